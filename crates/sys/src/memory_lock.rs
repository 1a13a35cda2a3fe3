// SPDX-License-Identifier: GPL-2.0-or-later
//! Protects the memory of the calling process from reclaim: `mlockall(2)`.

use rustix::io::Errno;

use crate::{Error, Result};

/// Locks every page that the process has touched or will touch, including the pages of its program.
/// Untouched memory, such as the unused part of thread stacks, stays unallocated.
///
/// # Errors
///
/// [`Error::Permission`] or [`Error::Io`] if the process lacks CAP_IPC_LOCK and its address space
/// exceeds RLIMIT_MEMLOCK.
pub fn lock_memory() -> Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: the call changes how the kernel treats the process's pages, not their contents.
    match unsafe { libc::mlockall(flags) } {
        0 => Ok(()),
        _ => {
            let errno = std::io::Error::last_os_error()
                .raw_os_error()
                .map_or(Errno::NOMEM, Errno::from_raw_os_error);
            Err(Error::new("lock the memory of", "/proc/self", errno))
        }
    }
}
