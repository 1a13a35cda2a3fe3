// SPDX-License-Identifier: GPL-2.0-or-later
//! The control socket's protocol: one JSON object per line and one answer per request, over the
//! stream socket `/run/limelight/control.sock`. Compositors and scripts may use it directly.
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
//! A client may send any number of requests over one connection; they are answered in order. A
//! request line may have [`LINE_MAX`] bytes, newline included. A longer line is answered with
//! [`ErrorCode::BadRequest`], and the connection is closed. A request with an unknown field is
//! refused, so that a misspelt field is never silently ignored. A client must ignore unknown fields
//! in an answer, because later versions add fields. Sizes are in bytes and times in milliseconds.
//! Points in time are counted from boot (`CLOCK_BOOTTIME`).

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

/// Version of this protocol, in [`Status::protocol`]. It changes only with an incompatible change.
pub const PROTOCOL: u32 = 1;

/// Maximum length in bytes, newline included, of a line that the daemon reads.
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
    /// daemon accepts the report from the owner of the topmost app in the active session, and from
    /// root. A report about another app changes nothing. Answered by [`Response::Ok`].
    Window {
        /// Input or frame.
        event: WindowEvent,
        /// Time of the event in microseconds of `CLOCK_MONOTONIC`, the clock of input events and
        /// frames; at most [`WINDOW_AGE_MAX_US`] ago. Default: now.
        #[serde(default)]
        at_us: Option<u64>,
        /// Any process of the app. Default: the topmost app.
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
    },
    /// Requests the last decision about memory, with all candidates. Answered by
    /// [`Response::Decision`].
    Decision {
        /// Only decisions with this action. Default: all decisions.
        #[serde(default)]
        action: Option<MemoryAction>,
    },
    /// Subscribes this connection: from now on it gets a [`Response::Notice`] for each action of
    /// the daemon against a shortage of memory. Answered by [`Response::Ok`].
    Listen,
    /// Requests past actions against shortages of memory. Answered by [`Response::History`].
    History {
        /// Maximum number of entries; the latest ones are returned.
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
    /// The request succeeded.
    Ok {
        /// The resulting state, as a sentence for display.
        message: String,
    },
    /// The request was refused, and nothing was changed.
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
    /// Whether the daemon plans and explains, but applies nothing.
    pub dry_run: bool,
    /// The foreground app.
    pub topmost: Option<TopmostStatus>,
    /// The previous foreground app.
    pub previous: Option<AppStatus>,
    /// All sources that can report the topmost app.
    pub sources: Vec<SourceStatus>,
    /// Session agents that have sent [`Request::Agent`] and whose claims are accepted now.
    #[serde(default)]
    pub agents: Vec<AgentStatus>,
    /// All mechanisms for the topmost app.
    pub mechanisms: Vec<MechanismStatus>,
    /// Response windows.
    pub window: WindowStatus,
    /// The machine's memory.
    pub memory: MemoryStatus,
    /// Shares of time in which programs waited.
    #[serde(default)]
    pub stalls: Stalls,
    /// State of `/dev/limelight`.
    pub device: DeviceStatus,
    /// Every change in force, or with `dry_run` every planned change.
    pub changes: Vec<Change>,
    /// Why the foreground app is left out, if it is: another user's app is shown only to its owner,
    /// to root and to a group. All data is then left out that would reveal when the foreground app
    /// changes or gets input; counts are 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// An app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStatus {
    /// Name of the process that a claim named, or the last component of the cgroup.
    pub name: String,
    /// Process id that a claim named, if any.
    pub pid: Option<i32>,
    /// Path of its cgroup below the cgroup v2 mount point (`/user.slice/...`).
    pub cgroup: Option<String>,
    /// Whether the cgroup contains only this app, so that its knobs may be used.
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
    /// Number of processes that belong to it now.
    pub members: u32,
    /// Milliseconds until it is demoted, while its source reports that no app has the focus.
    pub demoted_in_ms: Option<u64>,
}

/// Name of the source that guesses the topmost app from the clients that the display server wakes.
pub const WAKE_GRAPH: &str = "wake-graph";

/// A source of the topmost app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name: `explicit`, `session`, `top-app`, `oom_score_adj` or [`WAKE_GRAPH`], in falling
    /// rank.
    pub name: String,
    /// Whether it works.
    pub state: State,
    /// How it works here, or why it does not.
    pub detail: String,
}

/// The mechanisms for the topmost app, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MechanismId {
    /// Protects its memory from reclaim.
    Protect,
    /// Gives it the processor and the disk first.
    Boost,
    /// Reads ahead for it.
    Readahead,
    /// Maps its heap before its page faults.
    Premap,
    /// Zeroes pages before it needs them.
    Prezero,
    /// Takes memory from the other apps.
    Swap,
}

impl MechanismId {
    /// All mechanisms.
    pub const ALL: [MechanismId; 6] = [
        MechanismId::Protect,
        MechanismId::Boost,
        MechanismId::Readahead,
        MechanismId::Premap,
        MechanismId::Prezero,
        MechanismId::Swap,
    ];

    /// Its name in the configuration, in `status` and for display.
    pub const fn name(self) -> &'static str {
        match self {
            MechanismId::Protect => "protect",
            MechanismId::Boost => "boost",
            MechanismId::Readahead => "readahead",
            MechanismId::Premap => "premap",
            MechanismId::Prezero => "prezero",
            MechanismId::Swap => "swap",
        }
    }
}

/// Status of a mechanism.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismStatus {
    /// The [name](MechanismId::name) of the mechanism.
    pub name: String,
    /// Whether it acts on this machine.
    pub state: State,
    /// How it works here, or why it does not.
    pub detail: String,
    /// Its counters since the daemon started, by name; a name that ends in `_bytes` counts bytes.
    /// The kernel's own counters are in `/proc/vmstat` (`limelight_*`).
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// `detail` in a few words, if it is long. Daemons before 0.1.1 do not send it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub short: String,
}

/// State of a source or a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It acts now.
    Active,
    /// It is ready, but has nothing to do now.
    Idle,
    /// It is switched off by the configuration.
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
    /// Share of the last 10 s in which all runnable tasks waited for memory, in percent (PSI `full
    /// avg10`); `None` without PSI.
    pub psi_full_avg10: Option<f64>,
    /// `mglru`, `two-list`, or `unknown`.
    pub lru: String,
    /// Maximum number of bytes that `protect` may reserve.
    pub budget: u64,
    /// Bytes that other software has reserved. They have been subtracted from the budget.
    pub protected_by_others: u64,
    /// Bytes that `protect` reserves now through the app's cgroup.
    pub protected: u64,
    /// Steps by which protection is lowered because the machine had no other memory left, 0 to 4.
    pub lowered_steps: u8,
    /// Bytes of shared file pages that `protect` has locked for the topmost app.
    #[serde(default)]
    pub locked: u64,
    /// The level of shortage; `None` if it is not tracked (`swap` is off).
    #[serde(default)]
    pub level: Option<Level>,
    /// Thresholds of available memory for swapping and killing apps.
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
}

/// State of `/dev/limelight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum DeviceStatus {
    /// This daemon has opened it.
    Open {
        /// ABI version of the running kernel.
        abi_version: u32,
        /// Mechanisms compiled in, by name.
        built_in: Vec<String>,
        /// Mechanisms switched on, by name.
        enabled: Vec<String>,
        /// Number of the topmost set in force, 0 when there is none.
        generation: u64,
        /// Number of live processes in the topmost set, as counted by the kernel.
        members: u32,
    },
    /// This daemon does not use it.
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
    /// Further notes for the user, one sentence each: for example why nothing was done, or which
    /// memory is not protected.
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
