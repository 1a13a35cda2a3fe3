// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket's protocol: one JSON object per line and one answer per request, over the
//! stream socket `/run/limelight/control.sock`. Compositors and scripts may use it directly.
//!
//! ```text
//! > {"op":"focus","target":{"pid":4242},"source":"cli"}
//! < {"result":"ok","message":"gimp (pid 4242) is in the foreground"}
//! > {"op":"focus","target":"none","source":"sway","hold":true}
//! < {"result":"ok","message":"gimp (pid 4242) stays in the foreground for another 2000 ms"}
//! > {"op":"explain","pid":1}
//! < {"result":"explain","pid":1,...}
//! > {"op":"window","event":"open","at_us":81234567,"pid":4242,"source":"sway"}
//! < {"result":"ok","message":"open for at most 500 ms"}
//! > {"op":"window","event":"close","at_us":81250123,"pid":4242,"source":"sway"}
//! < {"result":"ok","message":"answered after 15.6 ms"}
//! > {"op":"window"}
//! < {"result":"error","code":"bad-request","message":"...","cure":"..."}
//! ```
//!
//! A client may send any number of requests over one connection; they are answered in order. A
//! request line may have [`LINE_MAX`] bytes, newline included. A longer line is answered with
//! [`ErrorCode::BadRequest`], and the connection is closed. A request with an unknown field is
//! refused, so that a misspelt field is never silently ignored; only `status` and `resume`, which
//! have no fields, accept any. A client must ignore unknown fields in an answer, because later
//! versions add fields. Sizes are in bytes. The name of a time ends in its unit, `_ms` or `_us`. A
//! point in time is counted from boot (`CLOCK_BOOTTIME`), unless its field says otherwise.

#![forbid(unsafe_code)]

mod agent;
mod apps;
mod class;
mod decision;
mod history;
mod in_use;
mod never;
mod pause;
mod shortage;
mod status;
mod window;

use serde::{Deserialize, Serialize};

pub use agent::{
    AgentStatus, PassedOver, AGENT_TEXT_MAX, FACILITIES_MAX, NOTIFICATIONS, PASSED_OVER_MAX, SOUND,
    VIDEO,
};
pub use apps::{AppReport, Notice};
pub use class::Class;
pub use decision::{Decision, Weighed};
pub use history::{fold, HistoryEntry, MemoryAction, MemoryThen, HISTORY_MAX};
pub use in_use::Use;
pub use never::{Avoid, Exception, Never};
pub use pause::{Pause, PAUSE_MAX_MS};
pub use shortage::{Level, Thresholds};
pub use status::{
    AppStatus, DeviceStatus, MechanismId, MechanismStatus, MemoryStatus, SourceStatus, Stall,
    Stalls, State, Status, TopmostStatus, WAKE_GRAPH,
};
pub use window::{
    AppLatency, KernelWindows, LatencyReport, OpenWindow, WindowEvent, WindowStatus, WindowTallies,
};

/// Version of this protocol, in [`Status::protocol`]. It changes only with an incompatible change.
pub const PROTOCOL: u32 = 1;

/// Maximum length in bytes, newline included, of a line that the daemon reads.
pub const LINE_MAX: usize = 64 * 1024;

/// Maximum age of a reported response-window event, in microseconds.
pub const WINDOW_AGE_MAX_US: u64 = 10_000_000;

/// Maximum size of a user's own configuration file ([`Request::Never`]), in bytes.
pub const USER_FILE_MAX: usize = 16 * 1024;

/// The socket's name inside the daemon's runtime directory.
pub const SOCKET_NAME: &str = "control.sock";

/// The daemon's runtime directory.
pub const RUNTIME_DIR: &str = "/run/limelight";

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Claims that the user switched to this app, or to none. The daemon accepts the claim from the
    /// owner of the process in the active session, and from root. Answered by [`Response::Ok`].
    Focus {
        /// The app.
        target: FocusTarget,
        /// Name of the source, for `status` and `explain`: `cli`, `x11`, a compositor's name. At
        /// most 64 bytes, printable.
        source: String,
        /// `false`, the default: an explicit claim. It outlives the connection and outranks the
        /// session agents of the same user; root's explicit claim outranks all other claims. It
        /// ends with its app or with an explicit claim of `none`, which demotes the app at once.
        ///
        /// `true`: the current report of a session agent. It ends when this connection closes. It
        /// ranks below an explicit claim of the same user and above `oom_score_adj`. A report of
        /// `none` demotes the app only after the configured gap, because overviews and lock screens
        /// come and go. If logind reports that the caller's session is not active, the request is
        /// refused, but the report counts as soon as the session becomes active.
        #[serde(default)]
        hold: bool,
    },
    /// Reports input for an app, or a frame of an app: a response window opens or closes. The
    /// daemon accepts the report from the owner of the foreground app in the active session, and
    /// from root. A report about another app changes nothing. Answered by [`Response::Ok`].
    Window {
        /// Input or frame.
        event: WindowEvent,
        /// Time of the event in microseconds of `CLOCK_MONOTONIC`, the clock of input events and
        /// frames; at most [`WINDOW_AGE_MAX_US`] ago. Default: now.
        #[serde(default)]
        at_us: Option<u64>,
        /// Any process of the app. Default: the foreground app.
        #[serde(default)]
        pid: Option<i32>,
        /// Name of the source, for `status`. At most 64 bytes, printable.
        source: String,
    },
    /// Requests the apps' response times, from input to frame. Answered by [`Response::Latency`].
    Latency {
        /// Only the app with this name.
        #[serde(default)]
        app: Option<String>,
    },
    /// Requests the daemon's state. Answered by [`Response::Status`].
    Status,
    /// Requests what was done for or to one process. Answered by [`Response::Explain`].
    Explain {
        /// Process id.
        pid: i32,
    },
    /// Requests all known apps. Answered by [`Response::Apps`].
    Apps {
        /// Only the app of this process.
        #[serde(default)]
        pid: Option<i32>,
    },
    /// Sets the class of an app until the app ends. Root may set any class. The app's owner, in the
    /// active session, may set only the class that the daemon would choose or a lower one. Answered
    /// by [`Response::Ok`].
    Class {
        /// Any process of the app.
        pid: i32,
        /// The class; `None` withdraws the class that an earlier request set.
        #[serde(default)]
        class: Option<Class>,
        /// Whether the class also applies to later starts of the app, after a restart of the daemon
        /// too: root's to all users' apps of the same package, desktop id or program, a user's only
        /// to own apps. With `class: None`, the saved class of the same user is withdrawn as well.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        save: bool,
    },
    /// Reports that a background app is in use. Such an app is neither squeezed nor frozen, and it
    /// is killed after the apps of its class that are not in use. The daemon accepts the report
    /// from the owner of the process in the active session, and from root. The report stands until
    /// it is withdrawn or this connection closes. Answered by [`Response::Ok`].
    InUse {
        /// Any process of the app.
        pid: i32,
        /// Why it is in use.
        #[serde(rename = "use")]
        what: Use,
        /// `true`: it is in use from now on; `false`: the report is withdrawn.
        on: bool,
    },
    /// Reports how a session agent detects the focus, for `status` and `doctor`. The report stands
    /// until the next such report or until this connection closes. Answered by [`Response::Agent`],
    /// which is sent again whenever its contents change.
    Agent {
        /// Name of the agent's source: `sway`, `x11`, ...; `None`: no source works.
        source: Option<String>,
        /// How the source works in this session. At most [`AGENT_TEXT_MAX`] bytes, printable.
        detail: String,
        /// Sources that were tried before and do not work, at most [`PASSED_OVER_MAX`].
        #[serde(default)]
        passed_over: Vec<PassedOver>,
        /// What else it can do in this session, such as [`NOTIFICATIONS`] and [`SOUND`]; at most
        /// [`FACILITIES_MAX`].
        #[serde(default)]
        facilities: Vec<SourceStatus>,
    },
    /// Sends the user's own configuration, which makes exceptions for apps of this user (`[never]`).
    /// It replaces the exceptions that this connection has sent before. They apply until this
    /// connection closes; if the user has several such connections, those of the latest one apply.
    /// The daemon accepts it from every user. If the text has a mistake, the exceptions sent before
    /// stay in force. Answered by [`Response::Ok`].
    Never {
        /// Path of the file, for display.
        file: String,
        /// The file's contents, at most [`USER_FILE_MAX`] bytes; empty: no exceptions.
        text: String,
    },
    /// Requests the last decision about memory, with all candidates. Answered by
    /// [`Response::Decision`].
    Decision {
        /// Only decisions with this action. Default: all decisions.
        #[serde(default)]
        action: Option<MemoryAction>,
    },
    /// Subscribes this connection: from now on it gets a [`Response::Notice`] for each report of
    /// the level of shortage, each action against a shortage, and each warning that the foreground
    /// app grows. Answered by [`Response::Ok`].
    Listen {
        /// Whether it also gets a notice when the foreground app changes, if the caller may see the
        /// old or the new foreground app.
        #[serde(default)]
        foreground: bool,
    },
    /// Gives up root's rights on this connection: from now on, its requests count as requests of
    /// this user. For services that pass on requests of users. The daemon accepts it from root, on
    /// a connection that holds nothing yet. Answered by [`Response::Ok`].
    Become {
        /// The user.
        uid: u32,
        /// All groups of the user's process.
        #[serde(default)]
        groups: Vec<u32>,
    },
    /// Requests past actions against shortages of memory. Answered by [`Response::History`].
    History {
        /// Maximum number of entries; the latest ones are returned.
        #[serde(default = "all_of_history")]
        last: u16,
    },
    /// Undoes all changes, and makes none until the pause is over. A pause ends with its time, with
    /// [`Request::Resume`], or with the daemon; another request replaces it. The daemon accepts the
    /// request from root and from members of the group of `[access]`. Answered by [`Response::Ok`].
    Pause {
        /// Length in milliseconds, 1 to [`PAUSE_MAX_MS`]; `None`: until [`Request::Resume`].
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// Ends a pause. Accepted from the same users. Answered by [`Response::Ok`].
    Resume,
}

fn all_of_history() -> u16 {
    HISTORY_MAX
}

/// The app that a focus claim names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FocusTarget {
    /// The app to which this process belongs.
    Pid(i32),
    /// The app in this cgroup: a path below the cgroup v2 mount point, or an absolute one.
    Cgroup(String),
    /// No app at all.
    None,
}

/// The daemon's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Response {
    /// The request succeeded.
    Ok {
        /// The resulting state, as a sentence for display.
        message: String,
    },
    /// The request was refused, and nothing was changed.
    Error {
        /// Machine-readable code.
        code: ErrorCode,
        /// What failed, with the pid, path or field.
        message: String,
        /// What the caller can do about it.
        cure: String,
        /// With [`ErrorCode::Busy`], if known: milliseconds until the same request will be
        /// answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_ms: Option<u64>,
    },
    /// Answer to [`Request::Status`].
    Status(Box<Status>),
    /// Answer to [`Request::Explain`].
    Explain(Box<Explain>),
    /// Answer to [`Request::Latency`].
    Latency(LatencyReport),
    /// Answer to [`Request::Apps`].
    Apps {
        /// The apps, last used first.
        apps: Vec<AppReport>,
        /// Why other users' apps were left out, if any were.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<String>,
    },
    /// Answer to [`Request::Decision`].
    Decision {
        /// The decision; `None`: the daemon has made none since it started.
        decision: Option<Box<Decision>>,
        /// Why other users' apps were left out of it, if they may have been.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<String>,
    },
    /// Answer to [`Request::Agent`]: the configuration for the agent.
    Agent {
        /// Whether it may move an app that shares its cgroup into a scope of its own.
        own_scopes: bool,
    },
    /// Sent to each connection that has sent [`Request::Listen`].
    Notice(Notice),
    /// Answer to [`Request::History`].
    History {
        /// Past actions, oldest first; at most [`HISTORY_MAX`].
        entries: Vec<HistoryEntry>,
        /// The pause in force.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paused: Option<Pause>,
        /// Why entries of other users' apps were left out, if they may have been.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<String>,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// Not a request of this protocol.
    BadRequest,
    /// The process or cgroup does not exist, or has just ended.
    NotFound,
    /// The caller may not do this, or not now.
    NotAllowed,
    /// The request is valid, but names something that can never be an app (the root cgroup, a
    /// kernel thread).
    NotAnApp,
    /// Too many clients are connected, or the caller sends too many requests.
    Busy,
    /// The daemon failed; its log says more.
    Internal,
}

/// One changed kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The setting, as a readable path: `/user.slice/.../memory.min`, `/proc/4242/oom_score_adj`,
    /// `/dev/limelight`.
    pub knob: String,
    /// Its value before Limelight, as read.
    pub from: String,
    /// Its value now, or the planned one (see `outcome`).
    pub to: String,
    /// The rule that required the change, with its input figures.
    pub rule: String,
    /// Time of the change, in milliseconds since boot.
    pub at_ms: u64,
    /// The result of the change.
    pub outcome: Outcome,
    /// The command or event that would undo it.
    pub undone_by: String,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Outcome {
    /// In force.
    Applied,
    /// Not written because the daemon runs with `--dry-run`.
    Planned,
    /// It has no effect, whether it was written or not.
    Inert {
        /// Why.
        why: String,
    },
    /// The kernel refused it.
    Failed {
        /// Why, with the errno's text.
        why: String,
    },
}

/// Answer to [`Request::Explain`]: what was done for or to one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explain {
    /// Process id.
    pub pid: i32,
    /// Its name (`comm`).
    pub name: String,
    /// Its role now.
    pub role: Role,
    /// The app to which it belongs, if known.
    pub app: Option<AppStatus>,
    /// Source of the claim that made that app the foreground app.
    pub source: Option<String>,
    /// Changes in force that affect this process.
    pub changes: Vec<Change>,
    /// Further notes for the user, one sentence each: for example why nothing was done, or which
    /// memory is not protected.
    pub notes: Vec<String>,
}

/// Role of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Belongs to the foreground app.
    #[serde(rename = "foreground", alias = "topmost")]
    Topmost,
    /// Belongs to the previous foreground app.
    Previous,
    /// Any other process.
    #[default]
    Background,
}

#[cfg(test)]
mod tests;
