// SPDX-License-Identifier: GPL-2.0-or-later
//! Display servers, one file each. Each says which process has the focus, when input comes, and when
//! the answer to it is shown; the daemon decides what that means.

pub mod answer;
pub mod responses;
pub mod x11;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde::Serialize;

/// What a display server shows.
pub trait Source {
    /// Name under which the daemon is told: `x11`, `sway`, ...
    fn name(&self) -> &'static str;

    /// Descriptor that becomes readable when something may have changed.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes everything that has happened and says what has the focus now. Never waits for events;
    /// called once before the first wait, and whenever the descriptor is readable.
    fn observe(&mut self) -> Result<Seen, DisplayGone>;

    /// Descriptor that becomes readable when there may be input or a frame; `None` where the display
    /// server does not tell.
    fn responses_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes input and frames that there have been since the last time. Never waits.
    fn responses(&mut self) -> Result<Vec<Told>, DisplayGone>;

    /// When [`Source::responses`] has something to do whatever the descriptor says, on
    /// `CLOCK_MONOTONIC`.
    fn responses_deadline(&self) -> Option<Duration>;
}

/// Something that happened to the app of a process.
pub type Told = (i32, answer::News);

/// What has the focus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Its process, as this process's pid namespace counts; `None` when nothing has the focus, or
    /// when it is a program on another machine.
    pub pid: Option<i32>,
    /// The window, in the display server's own notation.
    pub window: Option<String>,
    /// How the focus was learnt.
    pub focus_by: FocusBy,
    /// How the process was learnt.
    pub pid_by: Option<PidBy>,
}

/// How the focus was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FocusBy {
    /// The window manager said so (`_NET_ACTIVE_WINDOW`).
    WindowManager,
    /// The server said so (the input focus), because no window manager does.
    InputFocus,
}

/// How the process behind a window was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PidBy {
    /// The server asked the kernel (XRes): cannot be forged.
    Server,
    /// The window says so itself (`_NET_WM_PID`), and that it is of this machine.
    Window,
}

/// The display server cannot be reached (any more).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayGone {
    /// Which display.
    pub display: String,
    /// Why.
    pub cause: String,
}

impl std::fmt::Display for DisplayGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no X server on display {:?}: {}",
            self.display, self.cause
        )
    }
}
