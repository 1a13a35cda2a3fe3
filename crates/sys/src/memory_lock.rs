// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the caller's own memory out of reclaim: `mlockall(2)`.

use rustix::io::Errno;

use crate::{Error, Result};

/// Locks every page that the process touches from now on or has touched, of its program as well.
/// What is only reserved (the stacks of threads) stays unused.
///
/// # Errors
///
/// [`Error::Permission`] or [`Error::Io`] without CAP_IPC_LOCK where RLIMIT_MEMLOCK is smaller than the process.
pub fn lock_memory() -> Result<()> {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: changes how the kernel treats the process's pages, not what is in them.
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
