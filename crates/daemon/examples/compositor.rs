// SPDX-License-Identifier: GPL-2.0-or-later
//! A compositor's reports to limelightd, in thirty lines. Reads the events `focus PID`, `none`,
//! `input` and `frame` from standard input, prints the answers: docs/integrator/compositors.md.

use std::io::{stdin, BufRead, BufReader, Error, ErrorKind, Write};
use std::os::unix::net::UnixStream;

fn main() -> std::io::Result<()> {
    let socket = std::env::args().nth(1);
    let socket = socket.unwrap_or("/run/limelight/control.sock".into());
    // Kept open: the claim lives as long as the connection.
    let mut daemon = UnixStream::connect(socket)?;
    let mut answers = BufReader::new(daemon.try_clone()?).lines();
    for word in stdin().lines() {
        let word = word?;
        let rest = r#""source":"example""#;
        let request = match word.split_once(' ').unwrap_or((&word, "")) {
            ("focus", pid) => {
                format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"hold":true,{rest}}}"#)
            }
            ("none", _) => format!(r#"{{"op":"focus","target":"none","hold":true,{rest}}}"#),
            ("input", _) => format!(r#"{{"op":"window","event":"open",{rest}}}"#),
            ("frame", _) => format!(r#"{{"op":"window","event":"close",{rest}}}"#),
            _ => return Err(Error::new(ErrorKind::InvalidInput, word)),
        };
        daemon.write_all(format!("{request}\n").as_bytes())?;
        let answer = answers.next().ok_or(ErrorKind::UnexpectedEof)?;
        println!("{}", answer?);
    }
    Ok(())
}
