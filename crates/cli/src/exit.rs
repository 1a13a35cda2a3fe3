// SPDX-License-Identifier: GPL-2.0-or-later
//! Failures: one message with its cure, and one exit code for each kind.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use limelight_proto::{ErrorCode, Response};
use serde::Serialize;

use crate::format::printable;

/// `doctor` found a mechanism that does not act, or any failure without a code of its own.
pub const TROUBLE: u8 = 1;
/// No daemon answers on the control socket.
pub const NO_DAEMON: u8 = 3;
const REFUSED: u8 = 4;
const NOT_FOUND: u8 = 5;
/// The command line is wrong.
pub const USAGE: u8 = 2;

/// A failure, as a command with `--json` prints it on standard error.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// What failed.
    pub error: String,
    /// How to solve it.
    pub cure: Option<String>,
    /// The exit code.
    pub code: u8,
}

impl Report {
    /// Makes a report of clap's text about a usage error. Its first paragraph says what is wrong,
    /// the others how it is right: a tip, the usage, and where to read more, each on a line.
    pub fn of_usage(text: &str) -> Report {
        let (what, cure) = text.split_once("\n\n").unwrap_or((text, ""));
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let clause = |line: &str| {
            let line = line.trim().trim_end_matches('.');
            let line = line.strip_prefix("tip: ").unwrap_or(line);
            let mut letters = line.chars();
            let first = letters.next()?;
            Some(format!(
                "{}{}",
                first.to_ascii_lowercase(),
                letters.as_str()
            ))
        };
        let clauses: Vec<String> = cure.lines().filter_map(clause).collect();
        Report {
            error: one_line(what.strip_prefix("error: ").unwrap_or(what)),
            cure: (!clauses.is_empty()).then(|| clauses.join("; ")),
            code: USAGE,
        }
    }
}

/// Why the command failed.
#[derive(Debug)]
pub enum Failure {
    /// No daemon answers on the control socket.
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// The error of the connection attempt, or of a read or write.
        cause: io::Error,
    },
    /// The daemon refused the request.
    Refused {
        /// The failure.
        message: String,
        /// How to solve it.
        cure: String,
    },
    /// What the command line names does not exist: a process, an app, a cgroup, a program, a file.
    NotFound {
        /// The failure.
        message: String,
        /// How to solve it.
        cure: String,
    },
    /// Any other failure that the user can solve.
    Curable {
        /// The failure.
        message: String,
        /// How to solve it.
        cure: String,
    },
    /// Any other failure; a list of failures has one on each line.
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
            Failure::NotFound { .. } => NOT_FOUND,
            Failure::Curable { .. } | Failure::Other(_) => TROUBLE,
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
                    ErrorCode::Internal => Failure::Curable { message, cure },
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

    /// The failure and its cure, for display.
    pub fn parts(&self) -> (String, Option<String>) {
        match self {
            Failure::NoDaemon { socket, cause } => {
                let socket = socket.display();
                match cause.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => (
                        format!("limelightd is not running: no process listens on {socket}"),
                        Some(
                            "start it with `systemctl start limelightd`, or `limelightd` as root"
                                .to_owned(),
                        ),
                    ),
                    io::ErrorKind::PermissionDenied => (
                        format!("no permission to open {socket} ({cause})"),
                        Some(
                            "the socket's mode decides which users may connect; try as root"
                                .to_owned(),
                        ),
                    ),
                    _ => (
                        format!("cannot reach limelightd on {socket}: {cause}"),
                        None,
                    ),
                }
            }
            Failure::Refused { message, cure }
            | Failure::NotFound { message, cure }
            | Failure::Curable { message, cure } => {
                let cure = printable(cure);
                (
                    printable(message),
                    Some(cure).filter(|cure| !cure.is_empty()),
                )
            }
            Failure::Other(message) => {
                let lines: Vec<String> = message.lines().map(printable).collect();
                (lines.join("\n"), None)
            }
        }
    }

    /// Output with `--json`.
    pub fn as_json(&self) -> serde_json::Value {
        let (error, cure) = self.parts();
        let code = self.number();
        serde_json::json!(Report { error, cure, code })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (message, Some(cure)) => write!(f, "{message}\n  {cure}"),
            (message, None) => f.write_str(&message),
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
