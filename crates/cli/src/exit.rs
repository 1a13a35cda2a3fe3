// SPDX-License-Identifier: GPL-2.0-or-later
//! Failures: one message with its cure, and one exit code for each kind.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use limelight_proto::{ErrorCode, Response};

use crate::format::printable;

/// `doctor` found a mechanism that does not act, or any failure without a code of its own.
pub const TROUBLE: u8 = 1;
/// No daemon answers on the control socket.
pub const NO_DAEMON: u8 = 3;
const REFUSED: u8 = 4;
const NO_SUCH_PROCESS: u8 = 5;

/// Why the command failed.
#[derive(Debug)]
pub enum Failure {
    /// No daemon listens on the control socket.
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// The error of `connect()`.
        cause: io::Error,
    },
    /// The daemon refused the request.
    Refused {
        /// The failure.
        message: String,
        /// How to solve it.
        cure: String,
    },
    /// The named process or cgroup does not exist.
    NotFound {
        /// The failure.
        message: String,
        /// How to solve it.
        cure: String,
    },
    /// Any other failure.
    Other(String),
}

impl Failure {
    /// The exit code for this failure.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.number())
    }

    fn number(&self) -> u8 {
        match self {
            Failure::NoDaemon { .. } => NO_DAEMON,
            Failure::Refused { .. } => REFUSED,
            Failure::NotFound { .. } => NO_SUCH_PROCESS,
            Failure::Other(_) => TROUBLE,
        }
    }

    /// Failure for an unexpected answer: a refusal, or an answer from a daemon of another version.
    pub fn unexpected(response: &Response) -> Self {
        match response {
            Response::Error {
                code,
                message,
                cure,
                ..
            } => {
                let (message, cure) = (message.clone(), cure.clone());
                match code {
                    ErrorCode::NotFound => Failure::NotFound { message, cure },
                    ErrorCode::BadRequest
                    | ErrorCode::NotAllowed
                    | ErrorCode::NotAnApp
                    | ErrorCode::Busy => Failure::Refused { message, cure },
                    ErrorCode::Internal => {
                        Failure::Other(with_cure(printable(&message), &printable(&cure)))
                    }
                }
            }
            _ => Failure::another_version(),
        }
    }

    /// Failure for an answer that does not match the request.
    pub fn another_version() -> Self {
        Failure::Other(
            "the daemon's answer does not match the request: are limelight and limelightd of the \
             same version?"
                .to_owned(),
        )
    }

    /// Output with `--json`: the error, its cure, and the exit code.
    pub fn as_json(&self) -> serde_json::Value {
        let text = self.to_string();
        let (error, cure) = match text.split_once("\n  ") {
            Some((error, cure)) => (error, Some(cure)),
            None => (text.as_str(), None),
        };
        serde_json::json!({ "error": error, "cure": cure, "code": self.number() })
    }
}

fn with_cure(message: String, cure: &str) -> String {
    match cure {
        "" => message,
        cure => format!("{message}\n  {cure}"),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoDaemon { socket, cause } => {
                let socket = socket.display();
                match cause.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => write!(
                        f,
                        "limelightd is not running: no process listens on {socket}\n  start it \
                         with `systemctl start limelightd`, or `limelightd` as root"
                    ),
                    io::ErrorKind::PermissionDenied => write!(
                        f,
                        "no permission to open {socket} ({cause})\n  the socket's mode decides \
                         which users may connect; try as root"
                    ),
                    _ => write!(f, "cannot reach limelightd on {socket}: {cause}"),
                }
            }
            Failure::Refused { message, cure } | Failure::NotFound { message, cure } => {
                f.write_str(&with_cure(printable(message), &printable(cure)))
            }
            // If there are several lines, all but the first contain the cure.
            Failure::Other(message) => {
                let lines: Vec<String> = message.lines().map(printable).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Other(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Failure::Other(error.to_string())
    }
}
