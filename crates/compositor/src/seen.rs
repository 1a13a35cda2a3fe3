// SPDX-License-Identifier: GPL-2.0-or-later
//! The focus as reported by any source.

use limelight_proto::FocusTarget;
use serde::Serialize;

/// The focused app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Its process, in this process's pid namespace; `None` if nothing has the focus, if it is a
    /// program on another machine, or if the process is unknown.
    pub pid: Option<i32>,
    /// Its cgroup, below the mount point, if that is known and its process is not.
    pub cgroup: Option<String>,
    /// The window, in the compositor's or display server's own notation.
    pub window: Option<String>,
    /// Source of the focus.
    pub focus_by: FocusBy,
    /// Source of the process id.
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

    /// A window named by a compositor, with its process if the compositor knows it.
    pub fn of_compositor(window: String, pid: Option<i32>) -> Seen {
        let pid = pid.filter(|pid| *pid > 0);
        Seen {
            pid,
            window: Some(window),
            pid_by: pid.map(|_| PidBy::Compositor),
            ..Seen::nothing(FocusBy::Compositor)
        }
    }

    /// The target of the focus claim.
    pub fn target(&self) -> FocusTarget {
        match (&self.pid, &self.cgroup) {
            (Some(pid), _) => FocusTarget::Pid(*pid),
            (None, Some(cgroup)) => FocusTarget::Cgroup(cgroup.clone()),
            (None, None) => FocusTarget::None,
        }
    }
}

/// Source of the focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FocusBy {
    /// The window manager (`_NET_ACTIVE_WINDOW`, i3's IPC).
    WindowManager,
    /// The X server's input focus, without a window manager that reports it.
    InputFocus,
    /// The compositor.
    Compositor,
}

/// Source of the process id of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PidBy {
    /// The X server, which asked the kernel (XRes): cannot be forged.
    Server,
    /// The window itself (`_NET_WM_PID`), which claims to be of this machine.
    Window,
    /// The compositor, which has it from the kernel, except for X11 windows.
    Compositor,
    /// The cgroup that the compositor marked.
    Mark,
    /// An app, found by its unit or its program, with the name that the window gives itself.
    AppId,
}
