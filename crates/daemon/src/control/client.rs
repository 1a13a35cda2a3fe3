// SPDX-License-Identifier: GPL-2.0-or-later
//! One connection to the control socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use limelight_proto::{ErrorCode, Response, LINE_MAX};
use limelight_sys::peercred::PeerCred;
use rustix::event::epoll::EventFlags;

use crate::event_loop::reactor::{Reactor, Token};

/// A client's connection.
#[derive(Debug)]
pub(super) struct Client {
    pub stream: UnixStream,
    pub peer: PeerCred,
    /// All groups of the process that connected.
    pub groups: Vec<u32>,
    pub unread: Vec<u8>,
    /// Where the first line of `unread` ends. Kept, so that each byte is searched only once.
    pub line_end: Option<usize>,
    pub unsent: Vec<u8>,
    /// Time of the last transfer of bytes, in either direction.
    pub last_line: Duration,
    pub holds_claim: bool,
    /// The client has announced processes as in use.
    pub announces: bool,
    /// The user had permission to report the foreground app while the client held something.
    pub permitted: bool,
    /// The client receives notices about memory shortages.
    pub listens: bool,
    /// The client also receives a notice when the foreground app changes.
    pub hears_foreground: bool,
    /// No more input is read; the connection closes once the requests already read are answered.
    pub closing: bool,
    /// The awaited events; `None`: the connection is not waited for.
    pub armed: Option<EventFlags>,
}

impl Client {
    /// Whether the connection may stay open while the client sends nothing.
    pub fn stays(&self) -> bool {
        self.holds() || self.listens
    }

    /// Whether the client holds a claim, rules or announcements.
    pub fn holds(&self) -> bool {
        self.holds_claim || self.announces
    }

    /// Whether these events are awaited.
    pub fn hears(&self, flags: EventFlags) -> bool {
        self.armed.is_some_and(|armed| armed.contains(flags))
    }

    /// Waits for these events, and for the end of the connection. A connection whose end is known is
    /// waited for only to send: the kernel would report its end again and again.
    pub fn arm(&mut self, reactor: &Reactor, id: u64, wanted: EventFlags) -> std::io::Result<()> {
        let wanted = (!self.closing || !wanted.is_empty()).then_some(wanted);
        if wanted == self.armed {
            return Ok(());
        }
        let token = Token::Client(id);
        match (self.armed, wanted) {
            (None, Some(flags)) => reactor.add(&self.stream, token, flags)?,
            (Some(_), Some(flags)) => reactor.modify(&self.stream, token, flags)?,
            (_, None) => reactor.remove(&self.stream),
        }
        self.armed = wanted;
        Ok(())
    }

    /// Whether more input of this client may be buffered.
    pub fn has_room(&self) -> bool {
        !self.closing && self.unread.len() < LINE_MAX
    }

    /// Reads what the client has sent. Returns whether that was only a part of a line.
    pub fn receive(&mut self, now: Duration) -> bool {
        if self.closing {
            return false;
        }
        let mut buffer = [0u8; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closing = true,
            Ok(count) => {
                let searched = self.unread.len();
                let fresh = buffer.get(..count).unwrap_or_default();
                self.unread.extend_from_slice(fresh);
                self.last_line = now;
                if self.line_end.is_none() {
                    let end = newline(fresh);
                    self.line_end = end.map(|end| searched + end);
                }
                return self.line_end.is_none();
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.hang_up(),
        }
        false
    }

    /// Sends pending answers until all are sent or the socket's buffer is full.
    pub fn send(&mut self, now: Duration) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return self.hang_up(),
                Ok(count) => {
                    self.unsent.drain(..count);
                    self.last_line = now;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.hang_up(),
            }
        }
    }

    /// The next line without its newline; an overlong line ends the connection.
    pub fn take_line(&mut self) -> Option<Vec<u8>> {
        if self.line_end.unwrap_or(self.unread.len()) >= LINE_MAX {
            self.refuse_long_line();
            return None;
        }
        let mut line: Vec<u8> = self.unread.drain(..=self.line_end?).collect();
        line.pop();
        self.line_end = newline(&self.unread);
        Some(line)
    }

    fn refuse_long_line(&mut self) {
        self.forget_unread();
        self.closing = true;
        self.unsent.extend_from_slice(&encode(&Response::Error {
            code: ErrorCode::BadRequest,
            message: format!("a request line is longer than {LINE_MAX} bytes"),
            cure: "send one JSON object per line".to_owned(),
            retry_ms: None,
        }));
    }

    /// Drops buffered input and pending answers, so that the connection closes at once.
    fn hang_up(&mut self) {
        self.closing = true;
        self.forget_unread();
        self.unsent.clear();
    }

    fn forget_unread(&mut self) {
        self.unread.clear();
        self.line_end = None;
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\n')
}

/// Encodes one line of the protocol.
pub(super) fn encode(response: &Response) -> Vec<u8> {
    let mut line = serde_json::to_vec(response).unwrap_or_else(|error| {
        // Encoding fails only for values that JSON cannot represent, and the protocol has none.
        format!("{{\"result\":\"error\",\"code\":\"internal\",\"message\":{:?},\"cure\":\"report this\"}}", error.to_string()).into_bytes()
    });
    line.push(b'\n');
    line
}
