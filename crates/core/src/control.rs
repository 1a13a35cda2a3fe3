// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket's protocol: one JSON object a line, one answer a request, over the stream
//! socket `/run/limelight/control.sock`. Compositors and scripts may speak it directly.

use serde::{Deserialize, Serialize};

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The user now looks at this app, or at none. The daemon accepts it from the owner of the
    /// process in the active session, and from root.
    Focus {
        /// The app.
        target: FocusTarget,
        /// Who says so, for `status` and `explain`: `cli`, `x11`, a compositor's name.
        source: String,
    },
    /// The daemon's state: answered by [`Response::Status`].
    Status,
    /// What was done to one process: answered by [`Response::Explain`].
    Explain {
        /// Process id.
        pid: i32,
    },
}

/// The app that a focus claim names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FocusTarget {
    /// The app to which this process belongs.
    Pid(i32),
    /// The app in this cgroup: a path below the cgroup v2 mount point, or an absolute one.
    Cgroup(String),
    /// No app at all.
    None,
}
