// SPDX-License-Identifier: GPL-2.0-or-later
//! Sources of the focus: compositors and display servers, one file each. Every source reports the
//! process that has the focus. Some also report the times of input and of the first frame after it.
//! The daemon decides what follows from the reports.
//!
//! To add one, write a file with a [`Source`] and add a row to [`pick::KINDS`].

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

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use limelight_compositor::{FocusBy, PidBy, Seen};

/// A source of focus reports.
pub trait Source {
    /// Name in reports to the daemon: `x11`, `sway`, ...
    fn name(&self) -> &'static str;

    /// The server and the interface in use, for display: `sway (pid 812), version 1.9, reports the
    /// focus over /run/user/1000/sway-ipc.sock`.
    fn detail(&self) -> String;

    /// Descriptors that become readable when the focus may have changed.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Takes all events and returns what has the focus now. Never waits for events. Called before
    /// the first wait and after every wait.
    fn observe(&mut self) -> Result<Seen, Gone>;

    /// Processes with windows that the source knows to be visible, whether or not they have the
    /// focus. Called after [`Source::observe`]; may wait for an answer.
    fn visible(&mut self) -> Result<BTreeSet<i32>, Gone> {
        Ok(BTreeSet::new())
    }

    /// Whether events have arrived since the last call of [`Source::observe`] that no descriptor
    /// reports. They are to be taken before the next wait.
    fn is_behind(&self) -> bool {
        false
    }

    /// Descriptor that becomes readable when there may be input or a frame; `None` if the source
    /// does not report them.
    fn responses_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes input and frames since the last call. Never waits.
    fn responses(&mut self) -> Result<Vec<Told>, Gone> {
        Ok(Vec::new())
    }

    /// When [`Source::responses`] has work even if the descriptor has no event, on
    /// `CLOCK_MONOTONIC`.
    fn responses_deadline(&self) -> Option<Duration> {
        None
    }
}

/// An event for the app of a process: its pid, and the event.
pub type Told = (i32, answer::News);

/// Error: a source cannot be reached, or went away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// The source: "the X server on display :0".
    pub what: String,
    /// The cause.
    pub cause: String,
}

impl Gone {
    /// Error for a source that cannot be reached, or went away.
    pub fn new(what: impl Into<String>, cause: impl std::fmt::Display) -> Gone {
        Gone {
            what: what.into(),
            cause: cause.to_string(),
        }
    }
}

impl std::error::Error for Gone {}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}
