// SPDX-License-Identifier: GPL-2.0-or-later
//! Detects which `madvise()` advice the running kernel supports.

use rustix::mm::{madvise, Advice};

/// Whether the kernel can map writable pages ahead of their first use (`MADV_POPULATE_WRITE`, Linux
/// 5.14).
pub fn knows_populate_write() -> bool {
    // SAFETY: the range is empty, so the kernel changes nothing and only checks the advice itself.
    unsafe { madvise(std::ptr::null_mut(), 0, Advice::LinuxPopulateWrite) }.is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_since_5_14_support_populate_write() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut parts = release.split('.').map(|part| part.parse::<u32>());
        let (major, minor) = (
            parts.next().unwrap().unwrap(),
            parts.next().unwrap().unwrap(),
        );
        assert_eq!(super::knows_populate_write(), (major, minor) >= (5, 14));
    }
}
