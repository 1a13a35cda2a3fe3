// SPDX-License-Identifier: GPL-2.0-or-later
//! Credentials of the peer of a Unix socket.

use std::os::fd::AsFd;

use crate::error::{Error, Result};

/// Credentials of the peer process at the time of its `connect()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCred {
    /// Process id; 0 if the process is in another pid namespace. The process may have exited since.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// Reads the peer's credentials (`SO_PEERCRED`).
pub fn peer(socket: &impl AsFd) -> Result<PeerCred> {
    // rustix's own type cannot hold pid 0, so the kernel's struct is read instead.
    let mut cred = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: `cred` and `len` are valid for writes of the given sizes. The descriptor is borrowed,
    // so it is open during the call.
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

/// Supplementary groups of the peer process at the time of its `connect()` (`SO_PEERGROUPS`, Linux
/// 4.13).
pub fn peer_groups(socket: &impl AsFd) -> Result<Vec<u32>> {
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = std::mem::size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: `groups` and `len` are valid for writes of the given sizes. The descriptor is
        // borrowed, so it is open during the call.
        let answer = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut len,
            )
        };
        let count = len as usize / std::mem::size_of::<u32>();
        if answer == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = std::io::Error::last_os_error();
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        // If the buffer is too small, the kernel fails with ERANGE and returns the required size.
        if errno != rustix::io::Errno::RANGE || count <= groups.len() {
            return Err(Error::new(
                "list the groups of",
                "a control connection",
                errno,
            ));
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_of_a_socket_pair_is_this_process() {
        let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
        let cred = peer(&left).unwrap();
        assert_eq!(cred.pid as u32, std::process::id());
        assert_eq!(cred.uid, rustix::process::geteuid().as_raw());
        assert_eq!(cred.gid, rustix::process::getegid().as_raw());
    }

    #[test]
    fn peer_groups_of_a_socket_pair_equal_the_groups_of_this_process() {
        let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|group| group.as_raw())
            .collect();
        let mut groups = peer_groups(&left).unwrap();
        own.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, own);
    }

    #[test]
    fn more_groups_than_the_initial_buffer_are_listed() {
        let many: Vec<rustix::process::Gid> =
            (1000..1200).map(rustix::process::Gid::from_raw).collect();
        let listed = std::thread::spawn(move || {
            // Requires root. Changes the groups of this thread only.
            rustix::thread::set_thread_groups(&many).ok()?;
            let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
            Some(peer_groups(&left).unwrap().len())
        });
        if let Some(count) = listed.join().unwrap() {
            assert_eq!(count, 200);
        }
    }

    #[test]
    fn file_has_no_peer() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(peer(&file).is_err());
        assert!(peer_groups(&file).is_err());
    }
}
