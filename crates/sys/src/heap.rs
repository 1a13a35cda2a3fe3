// SPDX-License-Identifier: GPL-2.0-or-later
//! The C library's heap: `malloc_trim(3)`.

/// Returns the free pages in the heaps of all threads to the kernel. Without effect for C libraries
/// other than glibc.
///
/// By itself, glibc returns only memory at the end of a heap, and one small block there that a
/// thread keeps for its next allocation holds back all free memory below.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call frees no block that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
