// SPDX-License-Identifier: GPL-2.0-or-later
//! A handle for a process. It never refers to another process, even if the pid is reused.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use crate::error::{Error, Result};

/// A pidfd and the pid with which it was opened. Readable (`EPOLLIN`) once the process exits.
#[derive(Debug)]
pub struct Pidfd {
    pid: i32,
    fd: OwnedFd,
}

impl Pidfd {
    /// Opens a process by pid. [`Error::Gone`] if it does not exist, [`Error::Invalid`] if the id
    /// belongs to a thread that is not the first of its process.
    pub fn open(pid: i32) -> Result<Self> {
        let path = || format!("/proc/{pid}");
        let raw = (pid > 0)
            .then_some(pid)
            .and_then(Pid::from_raw)
            .ok_or_else(|| Error::new("open a pidfd of", path(), Errno::SRCH))?;
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Pidfd { pid, fd }),
            // The id of a thread causes EINVAL, or ENOENT on newer kernels.
            Err(Errno::NOENT) => Err(Error::new("open a pidfd of", path(), Errno::INVAL)),
            Err(errno) => Err(Error::new("open a pidfd of", path(), errno)),
        }
    }

    /// The pid with which the process was opened. The pid may be reused after the process has
    /// exited. So a use of the pid is valid only if [`Pidfd::is_alive`] returns true *after* that
    /// use.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// True until the process exits.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A failed poll does not prove an exit. If the process has exited, the next operation on it
        // fails.
        !matches!(poll(&mut fds, Some(&now)), Ok(ready) if ready > 0)
    }

    /// Sends a signal; [`Error::Gone`] if the process has exited.
    pub fn send(&self, signal: Signal) -> Result<()> {
        pidfd_send_signal(&self.fd, signal)
            .map_err(|errno| Error::new("signal", format!("/proc/{}", self.pid), errno))
    }
}

impl AsFd for Pidfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Pidfd> for OwnedFd {
    fn from(pidfd: Pidfd) -> OwnedFd {
        pidfd.fd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pidfd_follows_a_child_to_its_end() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pidfd = Pidfd::open(child.id() as i32).unwrap();
        assert!(pidfd.is_alive());
        pidfd.send(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!pidfd.is_alive());
        assert!(pidfd.send(Signal::KILL).unwrap_err().is_gone());
        assert!(Pidfd::open(child.id() as i32).unwrap_err().is_gone());
    }

    #[test]
    fn invalid_pids_are_gone() {
        assert!(Pidfd::open(0).unwrap_err().is_gone());
        assert!(Pidfd::open(-1).unwrap_err().is_gone());
        assert!(Pidfd::open(i32::MAX).unwrap_err().is_gone());
    }

    #[test]
    fn thread_id_is_not_a_process() {
        let (send, receive) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get())
                .unwrap();
            let _ = stopped.recv();
        });
        let tid = receive.recv().unwrap();
        assert!(matches!(Pidfd::open(tid), Err(Error::Invalid { .. })));
        drop(stop);
        thread.join().unwrap();
    }
}
