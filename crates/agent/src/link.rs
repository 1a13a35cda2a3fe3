// SPDX-License-Identifier: GPL-2.0-or-later
//! The connection to the daemon, kept for as long as the agent runs.
//!
//! It never blocks. At most one request is under way; what changes meanwhile is merged into the
//! next one, so a slow daemon sees fewer claims, never old ones. When the daemon goes away and
//! comes back, it is told the claim of that moment.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use limelight_core::control::{FocusTarget, Request, Response};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The daemon answers within milliseconds; one that takes this long is stuck.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// No answer to a claim is longer.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// What is claimed, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    source: &'static str,
    target: FocusTarget,
}

/// A connection to the daemon, or the way to one.
#[derive(Debug)]
pub struct Link {
    socket: PathBuf,
    wanted: Option<Claim>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not connected.
    Down {
        retry_at: Option<Instant>,
        pause: Duration,
    },
    Up(Connection),
}

#[derive(Debug)]
struct Connection {
    fd: OwnedFd,
    /// The claim that the daemon was told last.
    told: Option<Claim>,
    /// Until when it must have answered, while a request is under way.
    answer_by: Option<Instant>,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Link {
    /// A link that has not been tried yet.
    pub fn new(socket: PathBuf) -> Self {
        Link {
            socket,
            wanted: None,
            state: State::Down {
                retry_at: None,
                pause: RETRY_FIRST,
            },
        }
    }

    /// Sets what the daemon is to be told, at the next [`Link::turn`] and after every reconnection.
    pub fn claim(&mut self, source: &'static str, target: FocusTarget) {
        self.wanted = Some(Claim { source, target });
    }

    /// The descriptor to wait for, and for what.
    pub fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let State::Up(connection) = &self.state else {
            return None;
        };
        let write = match connection.outgoing.is_empty() {
            true => PollFlags::empty(),
            false => PollFlags::OUT,
        };
        Some((connection.fd.as_fd(), PollFlags::IN | write))
    }

    /// When [`Link::turn`] has something to do, whatever the descriptor says.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down { retry_at, .. } => *retry_at,
            State::Up(connection) => connection.answer_by,
        }
    }

    /// Does what can be done without waiting: connects, sends, takes answers.
    pub fn turn(&mut self, now: Instant) {
        if let State::Down { retry_at, pause } = self.state {
            if retry_at.is_some_and(|at| now < at) {
                return;
            }
            match connect(&self.socket) {
                Ok(fd) => {
                    tracing::info!("connected to limelightd on {}", self.socket.display());
                    self.state = State::Up(Connection::new(fd));
                }
                Err(errno) => {
                    // Once is enough: a machine without the daemon is no reason to fill a log.
                    if retry_at.is_none() {
                        tracing::warn!(
                            "no limelightd on {}: {errno}; trying again until there is one",
                            self.socket.display()
                        );
                    }
                    let pause_next = (pause * 2).min(RETRY_MAX);
                    self.state = State::Down {
                        retry_at: Some(now + pause),
                        pause: pause_next,
                    };
                    return;
                }
            }
        }
        if let State::Up(connection) = &mut self.state {
            if let Err(why) = connection.turn(self.wanted.as_ref(), now) {
                tracing::warn!("lost limelightd: {why}; trying again until it is back");
                self.state = State::Down {
                    retry_at: Some(now + RETRY_FIRST),
                    pause: RETRY_FIRST,
                };
            }
        }
    }
}

impl Connection {
    fn new(fd: OwnedFd) -> Self {
        Connection {
            fd,
            told: None,
            answer_by: None,
            outgoing: Vec::new(),
            incoming: Vec::new(),
        }
    }

    fn turn(&mut self, wanted: Option<&Claim>, now: Instant) -> Result<(), String> {
        self.receive()?;
        if self.answer_by.is_some_and(|by| now >= by) {
            return Err("it does not answer".into());
        }
        if let (None, Some(claim)) = (self.answer_by, wanted) {
            if self.told.as_ref() != Some(claim) {
                self.outgoing = encode(claim)?;
                self.told = Some(claim.clone());
                self.answer_by = Some(now + ANSWER_PATIENCE);
            }
        }
        self.send()
    }

    fn send(&mut self) -> Result<(), String> {
        while !self.outgoing.is_empty() {
            // A daemon that has just died must not end us by SIGPIPE.
            match net::send(&self.fd, &self.outgoing, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string()),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut buffer = [0u8; 4096];
        loop {
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.to_string()),
            }
            if self.incoming.len() > ANSWER_MAX_BYTES {
                return Err("its answer has no end".into());
            }
        }
        while let Some(end) = self.incoming.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.incoming.drain(..=end).collect();
            self.answer_by = None;
            report(&line);
        }
        Ok(())
    }
}

/// Logs what the daemon answered. A refusal is no failure of ours: the app may have ended, or the
/// session is not the active one.
fn report(line: &[u8]) {
    match serde_json::from_slice::<Response>(line) {
        Ok(Response::Ok { message }) => tracing::debug!("limelightd: {message}"),
        Ok(Response::Error { message, cure, .. }) => {
            tracing::warn!("limelightd refused: {message} ({cure})")
        }
        Ok(_) => tracing::warn!("limelightd answered another question"),
        Err(error) => tracing::warn!("limelightd answered in an unknown form: {error}"),
    }
}

fn encode(claim: &Claim) -> Result<Vec<u8>, String> {
    let request = Request::Focus {
        target: claim.target.clone(),
        source: claim.source.to_owned(),
        // It ends with the connection: a session that dies claims nothing any more.
        hold: true,
    };
    let mut line = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
    line.push(b'\n');
    Ok(line)
}

fn connect(socket: &std::path::Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&fd, &address)?;
    Ok(fd)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
