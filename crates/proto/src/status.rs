// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for the daemon's state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AgentStatus, Change, Level, Thresholds, WindowStatus};

/// The daemon's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// [`PROTOCOL`](crate::PROTOCOL) of the daemon.
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
    /// Session agents that have sent [`Request::Agent`](crate::Request::Agent) and whose claims are
    /// accepted now.
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
    /// Why the foreground app is left out, if it is: an app is shown only to its owner, to root and
    /// to the group of `[access]`. All data that would reveal when the foreground app changes or
    /// gets input is then left out too; counts are 0.
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
    /// Milliseconds until it is demoted because no app has the focus; `None` while an app has it.
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
    /// Protects the topmost app's memory from reclaim.
    Protect,
    /// Gives the topmost app the processor and the disk first.
    Boost,
    /// Reads ahead for the topmost app.
    Readahead,
    /// Maps the topmost app's heap before its page faults.
    Premap,
    /// Zeroes pages before the topmost app needs them.
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
    /// Share of the last 10 s in which all non-idle tasks waited for memory, in percent (PSI `full
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
    /// Number of steps by which protection is lowered because no other memory was left, 0 (full
    /// protection) to 4 (none).
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
        /// Sequence number of the topmost set in force; 0: none.
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

/// Shares of the last 10 s in which programs waited (PSI `avg10`); `None`: not reported by the
/// kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Waits for a processor.
    pub cpu: Option<Stall>,
    /// Waits for memory.
    pub memory: Option<Stall>,
    /// Waits for a disk.
    pub io: Option<Stall>,
}

/// Shares of time, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Share in which at least one task waited.
    pub some: f64,
    /// Share in which all non-idle tasks waited; `None`: not reported by the kernel.
    pub full: Option<f64>,
}
