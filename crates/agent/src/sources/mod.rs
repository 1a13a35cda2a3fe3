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

use limelight_core::control::FocusTarget;
use serde::Serialize;

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

/// What has the focus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Its process, as this process's pid namespace counts; `None` when nothing has the focus, when
    /// it is a program on another machine, or when nobody knows.
    pub pid: Option<i32>,
    /// Its cgroup, below the mount point, where that is known and its process is not.
    pub cgroup: Option<String>,
    /// The window, in the compositor's or display server's own notation.
    pub window: Option<String>,
    /// How the focus was learnt.
    pub focus_by: FocusBy,
    /// How the process was learnt.
    pub pid_by: Option<PidBy>,
}

impl Seen {
    /// Nothing has the focus.
    pub fn nothing(focus_by: FocusBy) -> Seen {
        Seen {
            pid: None,
            cgroup: None,
            window: None,
            focus_by,
            pid_by: None,
        }
    }

    /// A compositor named a window, and the process behind it where it knows that.
    pub fn of_compositor(window: String, pid: Option<i32>) -> Seen {
        let pid = pid.filter(|pid| *pid > 0);
        Seen {
            pid,
            window: Some(window),
            pid_by: pid.map(|_| PidBy::Compositor),
            ..Seen::nothing(FocusBy::Compositor)
        }
    }

    /// What is to be claimed.
    pub fn target(&self) -> FocusTarget {
        match (&self.pid, &self.cgroup) {
            (Some(pid), _) => FocusTarget::Pid(*pid),
            (None, Some(cgroup)) => FocusTarget::Cgroup(cgroup.clone()),
            (None, None) => FocusTarget::None,
        }
    }
}

/// How the focus was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FocusBy {
    /// The window manager said so (`_NET_ACTIVE_WINDOW`, i3's IPC).
    WindowManager,
    /// The X server said so (the input focus), because no window manager does.
    InputFocus,
    /// The compositor said so.
    Compositor,
}

/// How the process behind a window was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PidBy {
    /// The X server asked the kernel (XRes): cannot be forged.
    Server,
    /// The window says so itself (`_NET_WM_PID`), and that it is of this machine.
    Window,
    /// The compositor said so, which has it from the kernel but for X11 windows.
    Compositor,
    /// The cgroup that the compositor marked.
    Mark,
    /// An app of the name that the window gave itself: its unit, or its program.
    AppId,
}

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
