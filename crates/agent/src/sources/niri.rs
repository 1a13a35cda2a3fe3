// SPDX-License-Identifier: GPL-2.0-or-later
//! niri: after one `EventStream` request, it sends its whole state and then every change.

use std::os::fd::BorrowedFd;

use limelight_compositor::niri::Windows;

use super::environment::Environment;
use super::lines::{Stream, StreamError};
use super::pick::NotHere;
use super::{Gone, Seen, Source};

/// niri's IPC.
pub struct Niri {
    stream: Stream,
    windows: Windows,
}

/// Connects to `$NIRI_SOCKET`.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let path = environment.niri.as_deref();
    let path = path.ok_or_else(|| {
        NotHere::because("$NIRI_SOCKET is not set, and no socket of niri was found")
    })?;
    let mut stream = Stream::connect(path)?;
    stream.say(b"\"EventStream\"\n")?;
    Ok(Box::new(Niri {
        stream,
        windows: Windows::default(),
    }))
}

impl Source for Niri {
    fn name(&self) -> &'static str {
        "niri"
    }

    fn detail(&self) -> String {
        self.stream.detail()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.stream.fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let gone = |why: StreamError| Gone::new("niri", why);
        for line in self.stream.lines().map_err(gone)? {
            let taken = self.windows.take(&line);
            taken.map_err(|error| gone(error.into()))?;
        }
        Ok(self.windows.seen())
    }
}

#[cfg(test)]
#[path = "niri_tests.rs"]
mod tests;
