// SPDX-License-Identifier: GPL-2.0-or-later
//! What is said of the focus, whoever says it.

use limelight_core::control::FocusTarget;
use serde::Serialize;

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
