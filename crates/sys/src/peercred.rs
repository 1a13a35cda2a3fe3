// SPDX-License-Identifier: GPL-2.0-or-later
//! Who is at the other end of a Unix socket.

use std::os::fd::AsFd;

use crate::error::{Error, Result};

/// Credentials of the process that connected, as they were at `connect()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCred {
    /// Process, which may have exited since; 0 when it is in another pid namespace.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// Asks the kernel (`SO_PEERCRED`).
pub fn peer(socket: &impl AsFd) -> Result<PeerCred> {
    // rustix's own type holds a pid that cannot be 0, so the kernel's struct is read instead.
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: `cred` and `len` are valid for writes of the sizes given, and the descriptor is
    // borrowed, hence open, for the duration of the call.
    let answer = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&mut cred as *mut libc::ucred).cast(),
            &mut len,
        )
    };
    if answer != 0 {
        let errno = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
        let errno = errno.unwrap_or(rustix::io::Errno::IO);
        return Err(Error::new(
            "identify the peer of",
            "a control connection",
            errno,
        ));
    }
    Ok(PeerCred {
        pid: cred.pid,
        uid: cred.uid,
        gid: cred.gid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_our_own_peer() {
        let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
        let cred = peer(&left).unwrap();
        assert_eq!(cred.pid as u32, std::process::id());
        assert_eq!(cred.uid, rustix::process::geteuid().as_raw());
        assert_eq!(cred.gid, rustix::process::getegid().as_raw());
    }

    #[test]
    fn a_file_has_no_peer() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(peer(&file).is_err());
    }
}
