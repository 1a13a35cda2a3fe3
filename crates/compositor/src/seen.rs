// SPDX-License-Identifier: GPL-2.0-or-later
//! The focus as reported by any source.

use limelight_proto::FocusTarget;
use serde::Serialize;

/// The focused app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Its process id, in the agent's pid namespace; `None` if no window has the focus, if the
    /// program runs on another machine, or if its process is unknown.
    pub pid: Option<i32>,
    /// Path of its cgroup below the mount point, if only the cgroup is known.
    pub cgroup: Option<String>,
    /// Id of the window, in the notation of the compositor or display server.
    pub window: Option<String>,
    /// Source of the focus.
    pub focus_by: FocusBy,
    /// Source of the process id, or of the cgroup if only the cgroup is known.
    pub pid_by: Option<PidBy>,
}

impl Seen {
    /// No window has the focus.
    pub fn nothing(focus_by: FocusBy) -> Seen {
        Seen {
            pid: None,
            cgroup: None,
            window: None,
            focus_by,
            pid_by: None,
        }
    }

    /// A window reported by a compositor; `pid` is dropped unless it is positive.
    pub fn of_compositor(window: String, pid: Option<i32>) -> Seen {
        let pid = pid.filter(|pid| *pid > 0);
        Seen {
            pid,
            window: Some(window),
            pid_by: pid.map(|_| PidBy::Compositor),
            ..Seen::nothing(FocusBy::Compositor)
        }
    }

    /// Target of the focus claim to send to the daemon.
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
    /// The X server's input focus, if no window manager reports the active window.
    InputFocus,
    /// The compositor.
    Compositor,
}

/// Source of the process id or cgroup of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PidBy {
    /// The X server, which asked the kernel (XRes). Cannot be forged.
    Server,
    /// The window itself (`_NET_WM_PID`), if it claims to be from this machine.
    Window,
    /// The compositor. It asked the kernel, except for X11 windows.
    Compositor,
    /// The cgroup that the compositor marked as focused. The process id is then unknown.
    Mark,
    /// A running app whose unit or program matches the name that the window gives itself.
    AppId,
}
