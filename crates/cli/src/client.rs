// SPDX-License-Identifier: GPL-2.0-or-later
//! One question to the daemon, one answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::control::{Request, Response};

use crate::exit::Failure;

/// No answer is larger: some hundred changes of some hundred bytes each.
const ANSWER_MAX_BYTES: u64 = 8 << 20;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    socket: PathBuf,
}

impl Client {
    /// Connects to the control socket. A daemon that is silent for longer than `patience` is stuck.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Self, Failure> {
        let failed = |cause| Failure::NoDaemon {
            socket: socket.to_owned(),
            cause,
        };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        Ok(Client {
            stream,
            socket: socket.to_owned(),
        })
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let failed = |cause| Failure::NoDaemon {
            socket: self.socket.clone(),
            cause,
        };
        // A daemon that turns us away answers and closes before it reads: its answer says why.
        let sent = self.stream.write_all(line.as_bytes());
        let mut answer = String::new();
        let read = BufReader::new((&self.stream).take(ANSWER_MAX_BYTES)).read_line(&mut answer);
        match (sent, read) {
            (_, Ok(_)) if answer.ends_with('\n') => {}
            (Err(cause), _) | (Ok(()), Err(cause)) => return Err(failed(cause)),
            (Ok(()), Ok(_)) => {
                return Err(Failure::Other(format!(
                    "limelightd closed {} without an answer: its log says why",
                    self.socket.display()
                )))
            }
        }
        serde_json::from_str(&answer).map_err(|error| {
            Failure::Other(format!(
                "limelightd answered in a form that this limelight does not know ({error}): are \
                 they of the same version?"
            ))
        })
    }
}
