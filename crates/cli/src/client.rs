// SPDX-License-Identifier: GPL-2.0-or-later
//! Client of the daemon's control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_proto::{Request, Response};

use crate::exit::Failure;

/// Maximum size of an answer, in bytes. A large answer has several hundred changes of several
/// hundred bytes each.
const ANSWER_MAX_BYTES: u64 = 8 << 20;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    socket: PathBuf,
    patience: Duration,
}

impl Client {
    /// Connects to the control socket. `patience` is the timeout for each answer.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Self, Failure> {
        let failed = |cause| Failure::NoDaemon {
            socket: socket.to_owned(),
            cause,
        };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        stream.set_write_timeout(Some(patience)).map_err(failed)?;
        Ok(Client {
            reader: BufReader::new(stream),
            socket: socket.to_owned(),
            patience,
        })
    }

    /// Sends a request and waits for the answer. If the daemon is busy, retries once after the
    /// delay that it names, unless that delay exceeds the timeout.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        let answer = self.ask_once(request)?;
        match answer {
            Response::Error {
                retry_ms: Some(ms), ..
            } if Duration::from_millis(ms) < self.patience => {
                std::thread::sleep(Duration::from_millis(ms));
                self.ask_once(request)
            }
            answer => Ok(answer),
        }
    }

    fn ask_once(&mut self, request: &Request) -> Result<Response, Failure> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        // A daemon that rejects the connection sends the reason and closes without reading. So the
        // answer, if there is one, is returned instead of the write error.
        let sent = self.reader.get_mut().write_all(line.as_bytes());
        match (sent, self.next()) {
            (Err(cause), Err(_)) => Err(self.no_daemon(cause)),
            (_, answer) => answer,
        }
    }

    /// Removes the timeout for answers: from now on the daemon may stay silent.
    pub fn wait_without_end(&mut self) -> Result<(), Failure> {
        let unlimited = self.reader.get_ref().set_read_timeout(None);
        unlimited.map_err(|cause| self.no_daemon(cause))
    }

    /// The next line from the daemon.
    pub fn next(&mut self) -> Result<Response, Failure> {
        let mut answer = String::new();
        let read = (&mut self.reader)
            .take(ANSWER_MAX_BYTES)
            .read_line(&mut answer);
        match read {
            Ok(_) if answer.ends_with('\n') => {}
            Ok(_) => {
                return Err(Failure::Other(format!(
                    "limelightd closed {} without an answer: see its log",
                    self.socket.display()
                )))
            }
            Err(cause) => return Err(self.no_daemon(cause)),
        }
        serde_json::from_str(&answer).map_err(|error| {
            Failure::Other(format!(
                "cannot parse limelightd's answer ({error}): are limelight and limelightd of the \
                 same version?"
            ))
        })
    }

    fn no_daemon(&self, cause: std::io::Error) -> Failure {
        Failure::NoDaemon {
            socket: self.socket.clone(),
            cause,
        }
    }
}
