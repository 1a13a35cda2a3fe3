// SPDX-License-Identifier: GPL-2.0-or-later
//! A signal queue that callers can poll (`signalfd(2)`).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::error::{Error, Result};

/// A queue of blocked signals. Readable (`EPOLLIN`) when it is not empty.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

impl Signals {
    /// Blocks the signals in the calling thread and queues them here instead. Threads and processes
    /// that this thread creates later inherit the block.
    pub fn block(signals: &[Signal]) -> Result<Self> {
        let failed = |action| {
            let errno = Errno::from_io_error(&std::io::Error::last_os_error());
            Error::new(action, "a set of signals", errno.unwrap_or(Errno::IO))
        };
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset() initialises the set.
        let mut set: libc::sigset_t = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: the set is initialised, and a `Signal` is a valid signal number.
            unsafe { libc::sigaddset(&mut set, signal.as_raw()) };
        }
        // SAFETY: the set is initialised, and the pointer to the old set may be null.
        if unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } != 0 {
            return Err(failed("block"));
        }
        // SAFETY: the set is initialised; -1 requests a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(failed("queue"));
        }
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Signals { fd })
    }

    /// Takes the number of the next signal without blocking; `None` if the queue is empty.
    pub fn take(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = std::mem::size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is writable for `size` bytes.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        // SAFETY: the kernel writes whole records only, so `info` is fully initialised.
        (got == size as isize).then(|| unsafe { info.assume_init() }.ssi_signo as i32)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signal_is_queued() {
        // The mask affects this thread only.
        let signals = Signals::block(&[Signal::WINCH]).unwrap();
        assert_eq!(signals.take(), None);
        // SAFETY: raises a signal that is blocked above and ignored by default.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGWINCH) };
        assert_eq!(signals.take(), Some(libc::SIGWINCH));
        assert_eq!(signals.take(), None);
    }
}
