// SPDX-License-Identifier: GPL-2.0-or-later
//! Compositors and display servers, one file each. Each says which process has the focus, and some
//! when input comes and when the answer to it is shown; the daemon decides what that means.
//!
//! A new one is a file with a [`Source`] and a row in [`pick::KINDS`].

pub mod answer;
pub mod app_id;
pub mod arrivals;
pub mod environment;
mod hyprland;
mod i3;
mod i3_ipc;
mod kwin;
mod lines;
mod mutter;
mod niri;
pub mod pick;
pub mod responses;
mod sway;
mod wayland;
mod wlr;
pub mod x11;

use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use limelight_compositor::{FocusBy, PidBy, Seen};

/// Somebody who knows what has the focus.
pub trait Source {
    /// Name under which the daemon is told: `x11`, `sway`, ...
    fn name(&self) -> &'static str;

    /// Whom it asks and how, for people: `sway (pid 812), over /run/user/1000/sway-ipc.sock`.
    fn detail(&self) -> String;

    /// Descriptors that become readable when something may have changed.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Takes everything that has happened and says what has the focus now. Never waits for events;
    /// called once before the first wait, and whenever a descriptor is readable.
    fn observe(&mut self) -> Result<Seen, Gone>;

    /// Descriptor that becomes readable when there may be input or a frame; `None` where nobody
    /// tells.
    fn responses_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes input and frames that there have been since the last time. Never waits.
    fn responses(&mut self) -> Result<Vec<Told>, Gone> {
        Ok(Vec::new())
    }

    /// When [`Source::responses`] has something to do whatever the descriptor says, on
    /// `CLOCK_MONOTONIC`.
    fn responses_deadline(&self) -> Option<Duration> {
        None
    }
}

/// Something that happened to the app of a process.
pub type Told = (i32, answer::News);

/// A source cannot be reached (any more).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// What: "the X server on display :0".
    pub what: String,
    /// Why.
    pub cause: String,
}

impl Gone {
    /// What went away, and why.
    pub fn new(what: impl Into<String>, cause: impl std::fmt::Display) -> Gone {
        Gone {
            what: what.into(),
            cause: cause.to_string(),
        }
    }
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}
