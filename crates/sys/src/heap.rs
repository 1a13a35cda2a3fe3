// SPDX-License-Identifier: GPL-2.0-or-later
//! Settings of the C library's heap: `mallopt(3)`.

/// Size of a block, in bytes, from which on it has a mapping of its own, and free memory at the end
/// of a heap that the heap may keep. glibc's own values are 128 KiB, and grow to 32 and 64 MiB
/// with the blocks that the process frees.
const KEPT: libc::c_int = 64 << 10;

/// Makes every heap of this process return memory to the kernel soon after it is freed. To be
/// called before threads start. Without effect for C libraries other than glibc.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: the call changes a parameter of the allocator, and no memory.
        unsafe { libc::mallopt(parameter, KEPT) };
    }
}
