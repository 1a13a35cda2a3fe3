// SPDX-License-Identifier: GPL-2.0-or-later
//! A Unix socket over which a compositor talks in lines or packets: reads never wait, and what nobody
//! ends is bounded.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_compositor::lines;
use limelight_sys::peercred;

/// More than this does not wait unread: the largest messages are lists of all windows.
const WAITING_MAX: usize = 16 << 20;

/// A compositor answers a question within milliseconds; one that takes this long is stuck.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// A connection and what has been read from it.
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
    path: PathBuf,
    unread: Vec<u8>,
}

impl Stream {
    /// Connects. The error says to what.
    pub fn connect(path: &Path) -> Result<Stream, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let socket = UnixStream::connect(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Stream {
            socket,
            path: path.to_owned(),
            unread: Vec::new(),
        })
    }

    /// Asks one question over a connection of its own, and reads until the other side ends it.
    pub fn ask(path: &Path, question: &[u8]) -> Result<Vec<u8>, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut socket = UnixStream::connect(path).map_err(failed)?;
        socket
            .set_read_timeout(Some(ANSWER_PATIENCE))
            .map_err(failed)?;
        socket.write_all(question).map_err(failed)?;
        let mut answer = Vec::new();
        let mut socket = socket.take(WAITING_MAX as u64);
        socket.read_to_end(&mut answer).map_err(failed)?;
        Ok(answer)
    }

    /// Says something. Questions are so short that a socket that cannot take one is stuck.
    pub fn say(&mut self, words: &[u8]) -> Result<(), String> {
        let said = self.socket.write_all(words);
        said.map_err(|error| format!("{}: {error}", self.path.display()))
    }

    /// Who is at the other end: `sway (pid 812)`.
    pub fn peer(&self) -> String {
        peer_of(&self.socket)
    }

    /// For people: who says it, and where.
    pub fn detail(&self) -> String {
        format!("{} says it over {}", self.peer(), self.path.display())
    }

    /// To wait for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads everything that there is; what was read before and not taken stays in front.
    pub fn read(&mut self) -> Result<&mut Vec<u8>, String> {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
            if self.unread.len() > WAITING_MAX {
                return Err("what it says has no end".into());
            }
        }
        Ok(&mut self.unread)
    }

    /// What was read and not taken.
    pub fn unread(&mut self) -> &mut Vec<u8> {
        &mut self.unread
    }

    /// Waits until there is something to read.
    pub fn wait(&self) -> Result<(), String> {
        use rustix::event::{poll, PollFd, PollFlags, Timespec};
        let patience = Timespec {
            tv_sec: ANSWER_PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        match poll(
            &mut [PollFd::new(&self.socket, PollFlags::IN)],
            Some(&patience),
        ) {
            Ok(0) => Err(format!(
                "{}: no answer within {} s",
                self.path.display(),
                ANSWER_PATIENCE.as_secs()
            )),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.to_string()),
        }
    }

    /// All whole lines that there are.
    pub fn lines(&mut self) -> Result<Vec<String>, String> {
        Ok(lines::take(self.read()?))
    }
}

/// Who is at the other end of a socket, by the kernel's word.
pub fn peer_of(socket: &impl AsFd) -> String {
    let Ok(peer) = peercred::peer(socket) else {
        return "a compositor".to_owned();
    };
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", peer.pid)).unwrap_or_default();
    match comm.trim() {
        "" => format!("pid {}", peer.pid),
        comm => format!("{comm} (pid {})", peer.pid),
    }
}
