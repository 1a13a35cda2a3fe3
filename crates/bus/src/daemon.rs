// SPDX-License-Identifier: GPL-2.0-or-later
//! A connection to limelightd.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use limelight_proto::{ErrorCode, Request, Response};
use zbus::fdo;

use crate::caller::Caller;

/// Maximum size of an answer, in bytes.
const ANSWER_MAX_BYTES: u64 = 8 << 20;

/// limelightd answers within milliseconds, but may be delayed while the machine thrashes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// limelightd cannot be reached, or answered nonsense.
    NoDaemon(String),
    /// limelightd refused the request.
    Refused {
        /// The code.
        code: ErrorCode,
        /// What failed, and what to do.
        message: String,
    },
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::NoDaemon(error.to_string())
    }
}

impl From<Failure> for fdo::Error {
    fn from(failure: Failure) -> fdo::Error {
        match failure {
            Failure::NoDaemon(why) => {
                fdo::Error::ServiceUnknown(format!("limelightd does not answer: {why}"))
            }
            Failure::Refused { code, message } => match code {
                ErrorCode::NotAllowed => fdo::Error::AccessDenied(message),
                ErrorCode::BadRequest => fdo::Error::InvalidArgs(message),
                ErrorCode::Busy => fdo::Error::LimitsExceeded(message),
                ErrorCode::NotFound => fdo::Error::UnixProcessIdUnknown(message),
                ErrorCode::NotAnApp | ErrorCode::Internal => fdo::Error::Failed(message),
            },
        }
    }
}

/// A connection to limelightd with the rights of one user.
#[derive(Debug)]
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects. `caller`: whose rights the connection has; `None`: this program's own.
    pub fn connect(socket: &Path, caller: Option<&Caller>) -> Result<Client, Failure> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Client(BufReader::new(stream));
        if let Some(caller) = caller.filter(|caller| caller.uid != 0) {
            client.ask(&Request::Become {
                uid: caller.uid,
                groups: caller.groups.clone(),
            })?;
        }
        Ok(client)
    }

    /// Sends a request without waiting for the answer.
    pub fn send(&mut self, request: &Request) -> Result<(), Failure> {
        let line = serde_json::to_string(request).map_err(std::io::Error::from)?;
        Ok(self.0.get_mut().write_all((line + "\n").as_bytes())?)
    }

    /// The next line from limelightd.
    pub fn next(&mut self) -> Result<Response, Failure> {
        let mut line = String::new();
        let read = (&mut self.0).take(ANSWER_MAX_BYTES).read_line(&mut line)?;
        if read == 0 || !line.ends_with('\n') {
            return Err(Failure::NoDaemon("it closed the connection".to_owned()));
        }
        let answer = serde_json::from_str(&line);
        Ok(answer.map_err(std::io::Error::from)?)
    }

    /// Sends a request and returns the answer; a refusal is a failure.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        self.send(request)?;
        match self.next()? {
            Response::Error {
                code,
                message,
                cure,
                ..
            } => Err(Failure::Refused {
                code,
                message: format!("{message}: {cure}"),
            }),
            answer => Ok(answer),
        }
    }

    /// The connection's socket, to end a wait for the next line.
    pub fn socket(&self) -> std::io::Result<UnixStream> {
        self.0.get_ref().try_clone()
    }

    /// Removes the time limit for the next line.
    pub fn wait_without_end(&self) -> std::io::Result<()> {
        self.0.get_ref().set_read_timeout(None)
    }
}
