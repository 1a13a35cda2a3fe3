// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket's protocol: one JSON object a line, one answer a request, over the stream
//! socket `/run/limelight/control.sock`. Compositors and scripts may speak it directly.
//!
//! ```text
//! > {"op":"focus","target":{"pid":4242},"source":"cli"}
//! < {"result":"ok","message":"gimp (pid 4242) is topmost"}
//! > {"op":"focus","target":"none","source":"sway","hold":true}
//! < {"result":"ok","message":"nothing is topmost from 2 s on"}
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
//! Requests come in any number over one connection and are answered in order. A request line may
//! have [`LINE_MAX`] bytes with its newline; a longer one is answered with
//! [`ErrorCode::BadRequest`] and the connection is closed. Unknown fields in a request are
//! refused, so that a misspelt one is never silently ignored; a client must ignore fields of an
//! answer that it does not know, because later versions add some. Sizes are in bytes, times in
//! milliseconds, points in time since boot (`CLOCK_BOOTTIME`).

#![forbid(unsafe_code)]

mod agent;
mod apps;
mod class;
mod decision;
mod history;
mod in_use;
mod shortage;
mod stalls;
mod window;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use agent::{AgentStatus, PassedOver, AGENT_TEXT_MAX, PASSED_OVER_MAX};
pub use apps::{AppReport, Notice};
pub use class::Class;
pub use decision::{Decision, Weighed};
pub use history::{fold, HistoryEntry, MemoryAction, MemoryThen, HISTORY_MAX};
pub use in_use::Use;
pub use shortage::{Level, Thresholds};
pub use stalls::{Stall, Stalls};
pub use window::{
    AppLatency, KernelWindows, LatencyReport, OpenWindow, WindowEvent, WindowStatus, WindowTallies,
};

/// Version of this protocol, in [`Status::protocol`]. It changes only when an old client would
/// misunderstand the daemon.
pub const PROTOCOL: u32 = 1;

/// Longest line in bytes, newline included, that the daemon reads.
pub const LINE_MAX: usize = 64 * 1024;

/// Maximum age of a reported response-window event, in microseconds.
pub const WINDOW_AGE_MAX_US: u64 = 10_000_000;

/// The socket's name inside the daemon's runtime directory.
pub const SOCKET_NAME: &str = "control.sock";

/// The daemon's runtime directory.
pub const RUNTIME_DIR: &str = "/run/limelight";

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The user switched to this app, or to none. The daemon accepts it from the owner of the
    /// process in the active session, and from root. Answered by [`Response::Ok`].
    Focus {
        /// The app.
        target: FocusTarget,
        /// Name of the source, for `status` and `explain`: `cli`, `x11`, a compositor's name. At
        /// most 64 bytes, printable.
        source: String,
        /// `false`, the default: an explicit claim. It outlives the connection, ranks above every
        /// other one, and ends with its app or with an explicit claim of `none`, which demotes
        /// the app at once.
        ///
        /// `true`: the running report of a session agent. It ends when this connection closes. It
        /// ranks below an explicit claim and above `oom_score_adj`. Its `none` demotes the app only
        /// after the configured gap, because overviews and lock screens come and go. If logind
        /// reports that the caller's session is not active, it is refused, but counts as soon as
        /// the session becomes active.
        #[serde(default)]
        hold: bool,
    },
    /// Input for an app arrived, or a frame of it was shown: a response window opens or closes. The
    /// daemon accepts it from the owner of the topmost app in the active session, and from root; a
    /// report about another app changes nothing. Answered by [`Response::Ok`].
    Window {
        /// Input or frame.
        event: WindowEvent,
        /// When it happened, in microseconds of `CLOCK_MONOTONIC`, the clock of input events and
        /// frames; at most [`WINDOW_AGE_MAX_US`] ago. Without it: now.
        #[serde(default)]
        at_us: Option<u64>,
        /// Any process of the app; without it: the topmost app.
        #[serde(default)]
        pid: Option<i32>,
        /// Name of the source, for `status`. At most 64 bytes, printable.
        source: String,
    },
    /// How long apps take from input to frame: answered by [`Response::Latency`].
    Latency {
        /// Only the app with this name.
        #[serde(default)]
        app: Option<String>,
    },
    /// The daemon's state: answered by [`Response::Status`].
    Status,
    /// What was done for or to one process: answered by [`Response::Explain`].
    Explain {
        /// Process id.
        pid: i32,
    },
    /// All known apps: answered by [`Response::Apps`].
    Apps {
        /// Only the app of this process.
        #[serde(default)]
        pid: Option<i32>,
    },
    /// Sets the class of an app until it ends. Root may set any class; the app's owner, in the
    /// active session, only classes up to the one that the daemon would choose. Answered by
    /// [`Response::Ok`].
    Class {
        /// Any process of the app.
        pid: i32,
        /// The class; `None` undoes an earlier request.
        #[serde(default)]
        class: Option<Class>,
    },
    /// Reports that a background app is in use: it is neither squeezed nor stopped, and is killed
    /// after the apps of its class that are not in use. Accepted from the owner of the process in
    /// the active session, and from root. It holds until it is withdrawn or this connection closes.
    /// Answered by [`Response::Ok`].
    InUse {
        /// A process of the app.
        pid: i32,
        /// Why it is in use.
        #[serde(rename = "use")]
        what: Use,
        /// Whether it is in use from now on.
        on: bool,
    },
    /// A session agent reports how it learns of the focus, for `status` and `doctor`. It stands
    /// until the next such report or until this connection closes. Answered by [`Response::Agent`],
    /// and again whenever that changes.
    Agent {
        /// Its source: `sway`, `x11`, ...; `None`: none works.
        source: Option<String>,
        /// How that source works here. At most [`AGENT_TEXT_MAX`] bytes, printable.
        detail: String,
        /// Sources that were tried first, at most [`PASSED_OVER_MAX`].
        #[serde(default)]
        passed_over: Vec<PassedOver>,
    },
    /// The last decision about memory, with all candidates: answered by [`Response::Decision`].
    Decision {
        /// The last decision with this action; without it: the last one of all.
        #[serde(default)]
        action: Option<MemoryAction>,
    },
    /// From now on this connection gets a [`Response::Notice`] for everything that the daemon does
    /// about a shortage of memory. Answered by [`Response::Ok`].
    Listen,
    /// What was done about shortages of memory: answered by [`Response::History`].
    History {
        /// Maximum number of entries, counted from the last one.
        #[serde(default = "all_of_history")]
        last: u16,
    },
}

fn all_of_history() -> u16 {
    HISTORY_MAX
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

/// The daemon's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Response {
    /// Done.
    Ok {
        /// The state now in force, as a sentence for display.
        message: String,
    },
    /// Refused, and nothing was changed.
    Error {
        /// Machine-readable code.
        code: ErrorCode,
        /// The failure, naming the pid, path or field.
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
        /// The decision; `None`: none since the daemon started.
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
    /// Sent to connections that sent [`Request::Listen`].
    Notice(Notice),
    /// Answer to [`Request::History`].
    History {
        /// Past actions, oldest first; at most [`HISTORY_MAX`].
        entries: Vec<HistoryEntry>,
        /// Why entries of other users' apps were left out, if they may have been.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<String>,
    },
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// Not a request of this protocol.
    BadRequest,
    /// No such process or cgroup, or it ended meanwhile.
    NotFound,
    /// The caller may not claim that app, or not now.
    NotAllowed,
    /// The request is fine, but it names something that can never be an app (the root cgroup, a
    /// kernel thread).
    NotAnApp,
    /// The daemon serves as many clients as it can, or the caller asks too often.
    Busy,
    /// The daemon failed; its log says more.
    Internal,
}

/// The daemon's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// [`PROTOCOL`] of the daemon.
    pub protocol: u32,
    /// Its process id.
    pub pid: i32,
    /// Time since it started, in milliseconds.
    pub uptime_ms: u64,
    /// It plans and explains, but applies nothing.
    pub dry_run: bool,
    /// The foreground app.
    pub topmost: Option<TopmostStatus>,
    /// The previous foreground app.
    pub previous: Option<AppStatus>,
    /// All sources of the topmost app.
    pub sources: Vec<SourceStatus>,
    /// Session agents that reported how they work and whose claims are accepted now.
    #[serde(default)]
    pub agents: Vec<AgentStatus>,
    /// All mechanisms for the topmost app.
    pub mechanisms: Vec<MechanismStatus>,
    /// Response windows.
    pub window: WindowStatus,
    /// The machine's memory.
    pub memory: MemoryStatus,
    /// Stalls of programs.
    #[serde(default)]
    pub stalls: Stalls,
    /// `/dev/limelight`.
    pub device: DeviceStatus,
    /// Every change in force, or with `dry_run` every change that would be.
    pub changes: Vec<Change>,
    /// Why the foreground app is left out, with everything that would show when it changes or gets
    /// input: another user's app is shown only to its owner, to root and to a group. Counts are
    /// then 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// An app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStatus {
    /// Name of the process that was claimed, or the cgroup's last component.
    pub name: String,
    /// The process that was claimed, when one was.
    pub pid: Option<i32>,
    /// Its cgroup, below the cgroup v2 mount point (`/user.slice/...`).
    pub cgroup: Option<String>,
    /// Whether that cgroup holds this app and nothing else, so that its knobs may be used.
    pub own_cgroup: bool,
}

/// The foreground app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopmostStatus {
    /// The app.
    #[serde(flatten)]
    pub app: AppStatus,
    /// Source of the claim: `cli`, `x11`, `oom_score_adj`, ...
    pub source: String,
    /// Time in the foreground, in milliseconds.
    pub for_ms: u64,
    /// Processes that belong to it now.
    pub members: u32,
    /// While its source reports that no app has the focus: milliseconds until it is demoted.
    pub demoted_in_ms: Option<u64>,
}

/// Name of the source that guesses the topmost app from the clients that the display server wakes.
pub const WAKE_GRAPH: &str = "wake-graph";

/// A source of the topmost app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// `explicit`, `session`, `top-app`, `oom_score_adj`, [`WAKE_GRAPH`], in falling rank.
    pub name: String,
    /// Whether it works.
    pub state: State,
    /// How it works here, or why it does not.
    pub detail: String,
}

/// A mechanism for the topmost app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismStatus {
    /// `protect`.
    pub name: String,
    /// Whether it acts on this machine.
    pub state: State,
    /// How it works here, or why it does not.
    pub detail: String,
    /// Its counters since the daemon started, by name; a name that ends in `_bytes` counts bytes.
    /// The kernel's own counters are in `/proc/vmstat` (`limelight_*`).
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
}

/// State of a source or a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Acts now.
    Active,
    /// Ready, with nothing to do now.
    Idle,
    /// Switched off by the configuration.
    Off,
    /// This machine cannot do it.
    Unavailable,
}

/// The machine's memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// `MemTotal` in bytes.
    pub total: u64,
    /// `MemAvailable` in bytes.
    pub available: u64,
    /// `SwapTotal` in bytes.
    pub swap_total: u64,
    /// `SwapFree` in bytes.
    pub swap_free: u64,
    /// Share of time in which every runnable task waited for memory, last 10 s, in percent
    /// (`full avg10`); `None` without PSI.
    pub psi_full_avg10: Option<f64>,
    /// `mglru`, `two-list`, or `unknown`.
    pub lru: String,
    /// Maximum that `protect` may reserve, in bytes.
    pub budget: u64,
    /// Bytes that other software has reserved; they come out of the budget.
    pub protected_by_others: u64,
    /// Bytes that `protect` reserves now through the cgroup.
    pub protected: u64,
    /// Steps by which protection is lowered because the machine had no other memory left, 0 to 4.
    pub lowered_steps: u8,
    /// Bytes that `protect` has locked of files that the topmost app shares with other processes.
    #[serde(default)]
    pub locked: u64,
    /// The level of shortage; `None` if it is not tracked (`swap` is off).
    #[serde(default)]
    pub level: Option<Level>,
    /// Thresholds of available memory for swapping and killing apps.
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
}

/// `/dev/limelight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum DeviceStatus {
    /// Open by this daemon.
    Open {
        /// ABI version of the running kernel.
        abi_version: u32,
        /// Mechanisms compiled in, by name.
        built_in: Vec<String>,
        /// Mechanisms switched on, by name.
        enabled: Vec<String>,
        /// Number of the topmost set in force, 0 when there is none.
        generation: u64,
        /// Live processes in the topmost set, as the kernel counts them.
        members: u32,
    },
    /// Not used.
    Unused {
        /// Why: absent, switched off, busy, not permitted, another ABI.
        why: String,
    },
}

/// One changed kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The setting, as a readable path: `/user.slice/.../memory.min`, `/proc/4242/oom_score_adj`,
    /// `/dev/limelight`.
    pub knob: String,
    /// Its value before Limelight, as read.
    pub from: String,
    /// Its value now, or the planned one (see `outcome`).
    pub to: String,
    /// The rule that asked for it, with its input figures.
    pub rule: String,
    /// Time of the change, in milliseconds since boot.
    pub at_ms: u64,
    /// The actual result.
    pub outcome: Outcome,
    /// The command or event that would undo it.
    pub undone_by: String,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Outcome {
    /// In force.
    Applied,
    /// Not written because the daemon runs with `--dry-run`.
    Planned,
    /// It has no effect, written or not.
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

/// What was done for or to one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explain {
    /// Process id.
    pub pid: i32,
    /// Its name (`comm`).
    pub name: String,
    /// Its role now.
    pub role: Role,
    /// The app to which it belongs, if known.
    pub app: Option<AppStatus>,
    /// Source of the claim that made that app topmost.
    pub source: Option<String>,
    /// Changes in force that affect this process.
    pub changes: Vec<Change>,
    /// Further notes for the user, one sentence each: why nothing was done, what protection does
    /// not reach.
    pub notes: Vec<String>,
}

/// Role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Belongs to the foreground app.
    Topmost,
    /// Belongs to the previous foreground app.
    Previous,
    /// Any other process.
    Background,
}

#[cfg(test)]
mod tests;
