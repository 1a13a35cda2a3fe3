// SPDX-License-Identifier: GPL-2.0-or-later
//! A Unix socket over which a compositor sends events as lines or packets. Reading events does not
//! block. A query blocks until the compositor answers; each read waits at most 2 s. Unprocessed
//! input is bounded.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_compositor::{lines, Invalid};
use limelight_sys::peercred;

/// Limit of unprocessed input, in bytes. The largest messages are lists of all windows.
const WAITING_MAX: usize = 16 << 20;

/// Longest wait for the next input while an answer is outstanding. A compositor answers within
/// milliseconds, so one that sends nothing for this long hangs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// Why a compositor's socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// Connecting to the socket, sending to it, or reading the answer to [`Stream::ask`] failed.
    #[error("{}: {error}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Reading from the open connection, or waiting for input on it, failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The compositor closed the connection.
    #[error("the compositor closed the connection")]
    Closed,
    /// The unprocessed input exceeds [`WAITING_MAX`].
    #[error("the compositor sent more than {} MiB at once", WAITING_MAX >> 20)]
    TooLong,
    /// The compositor sent nothing on this socket for [`ANSWER_PATIENCE`], although an answer was
    /// outstanding.
    #[error("{}: no answer within {} s", .0.display(), ANSWER_PATIENCE.as_secs())]
    NoAnswer(PathBuf),
    /// The compositor on this socket did not confirm the subscription to events.
    #[error("{}: the compositor did not confirm the subscription to window events", .0.display())]
    Refused(PathBuf),
    /// The compositor sent an invalid message.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl StreamError {
    fn socket(path: &Path, error: io::Error) -> StreamError {
        let path = path.to_owned();
        StreamError::Socket { path, error }
    }
}

/// A connection and its unprocessed input.
#[derive(Debug)]
pub struct Stream {
    socket: UnixStream,
    path: PathBuf,
    unread: Vec<u8>,
}

impl Stream {
    /// Connects, and makes the socket non-blocking. The error names the path.
    pub fn connect(path: &Path) -> Result<Stream, StreamError> {
        let failed = |error| StreamError::socket(path, error);
        let socket = UnixStream::connect(path).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        Ok(Stream {
            socket,
            path: path.to_owned(),
            unread: Vec::new(),
        })
    }

    /// Sends one query over a separate connection. Returns all bytes until the compositor closes
    /// that connection, but at most [`WAITING_MAX`]. Each read waits at most [`ANSWER_PATIENCE`].
    pub fn ask(path: &Path, question: &[u8]) -> Result<Vec<u8>, StreamError> {
        let failed = |error| StreamError::socket(path, error);
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

    /// Sends a message. Fails if the socket cannot take the whole message at once: messages are
    /// short, so the peer must have stopped reading.
    pub fn say(&mut self, words: &[u8]) -> Result<(), StreamError> {
        let said = self.socket.write_all(words);
        said.map_err(|error| StreamError::socket(&self.path, error))
    }

    /// The process at the other end: `sway (pid 812)`.
    pub fn peer(&self) -> String {
        peer_of(&self.socket)
    }

    /// The process at the other end and the socket, for display.
    pub fn detail(&self) -> String {
        format!(
            "{} reports the focus over {}",
            self.peer(),
            self.path.display()
        )
    }

    /// Descriptor that becomes readable when there is input.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads all available input, and returns all unprocessed input. The caller removes what it
    /// processes.
    pub fn read(&mut self) -> Result<&mut Vec<u8>, StreamError> {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(StreamError::Closed),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
            if self.unread.len() > WAITING_MAX {
                return Err(StreamError::TooLong);
            }
        }
        Ok(&mut self.unread)
    }

    /// The unprocessed input, without another read.
    pub fn unread(&mut self) -> &mut Vec<u8> {
        &mut self.unread
    }

    /// Waits for input, for at most [`ANSWER_PATIENCE`]. A signal ends the wait early, without an
    /// error.
    pub fn wait(&self) -> Result<(), StreamError> {
        use rustix::event::{poll, PollFd, PollFlags, Timespec};
        let patience = Timespec {
            tv_sec: ANSWER_PATIENCE.as_secs() as i64,
            tv_nsec: 0,
        };
        match poll(
            &mut [PollFd::new(&self.socket, PollFlags::IN)],
            Some(&patience),
        ) {
            Ok(0) => Err(StreamError::NoAnswer(self.path.clone())),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Reads all available input, and removes and returns its complete lines.
    pub fn lines(&mut self) -> Result<Vec<String>, StreamError> {
        Ok(lines::take(self.read()?))
    }
}

/// The process at the other end of a socket according to the kernel, for display.
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
