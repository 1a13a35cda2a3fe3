// SPDX-License-Identifier: GPL-2.0-or-later
//! Hyprland: its second socket reports that another window is active (`activewindowv2>>ADDRESS`).
//! The process of that window is queried over its first socket (`j/activewindow`).

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use limelight_compositor::hyprland::{active, concerns_focus};

use super::environment::Environment;
use super::lines::{Stream, StreamError};
use super::pick::NotHere;
use super::{Gone, Seen, Source};

/// Hyprland's two sockets.
pub struct Hyprland {
    events: Stream,
    questions: PathBuf,
    last: Option<Seen>,
}

/// Connects to the instance in `$HYPRLAND_INSTANCE_SIGNATURE`.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let directory = environment.hyprland.as_deref();
    let directory =
        directory.ok_or_else(|| NotHere::because("$HYPRLAND_INSTANCE_SIGNATURE is not set"))?;
    Ok(Box::new(Hyprland {
        events: Stream::connect(&directory.join(".socket2.sock"))?,
        questions: directory.join(".socket.sock"),
        last: None,
    }))
}

impl Source for Hyprland {
    fn name(&self) -> &'static str {
        "hyprland"
    }

    fn detail(&self) -> String {
        self.events.detail()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.events.fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let gone = |why: StreamError| Gone::new("Hyprland", why);
        let lines = self.events.lines().map_err(gone)?;
        let changed = lines.iter().any(|line| concerns_focus(line));
        if let (Some(last), false) = (&self.last, changed) {
            return Ok(last.clone());
        }
        let answer = Stream::ask(&self.questions, b"j/activewindow").map_err(gone)?;
        let seen = active(&answer).map_err(|error| gone(error.into()))?;
        self.last = Some(seen.clone());
        Ok(seen)
    }
}

#[cfg(test)]
#[path = "hyprland_tests.rs"]
mod tests;
