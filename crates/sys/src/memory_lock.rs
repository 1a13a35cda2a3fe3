// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the caller's own memory out of reclaim: `mlockall(2)`.

use rustix::io::Errno;

use crate::{Error, Result};

/// Locks every page that the process has touched or will touch, including its program. Memory that
/// is only reserved (the stacks of threads) stays unallocated.
///
/// # Errors
///
/// [`Error::Permission`] or [`Error::Io`] without CAP_IPC_LOCK if RLIMIT_MEMLOCK is smaller than
/// the process.
pub fn lock_memory() -> Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: changes how the kernel treats the process's pages, not their contents.
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
