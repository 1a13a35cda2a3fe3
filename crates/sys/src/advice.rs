// SPDX-License-Identifier: GPL-2.0-or-later
//! Support for `madvise()` advice in the running kernel.

use rustix::mm::{madvise, Advice};

/// Whether the kernel can populate memory for writing (`MADV_POPULATE_WRITE`, Linux 5.14).
pub fn knows_populate_write() -> bool {
    // SAFETY: an empty range: nothing is changed, the kernel only checks the advice itself.
    unsafe { madvise(std::ptr::null_mut(), 0, Advice::LinuxPopulateWrite) }.is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_since_5_14_support_it() {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut parts = release.split('.').map(|part| part.parse::<u32>());
        let (major, minor) = (
            parts.next().unwrap().unwrap(),
            parts.next().unwrap().unwrap(),
        );
        assert_eq!(super::knows_populate_write(), (major, minor) >= (5, 14));
    }
}
