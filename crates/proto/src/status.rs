// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for the daemon's state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AgentStatus, Change, Level, Pause, Thresholds, WindowStatus};

/// The daemon's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// [`PROTOCOL`](crate::PROTOCOL) of the daemon.
    pub protocol: u32,
    /// Process id of the daemon.
    pub pid: i32,
    /// Time since the daemon started, in milliseconds.
    pub uptime_ms: u64,
    /// Whether the daemon plans and explains changes, but makes none.
    pub dry_run: bool,
    /// The pause in force, during which the daemon makes no changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The foreground app; `None` if there is none or if it is `hidden`.
    #[serde(rename = "foreground", alias = "topmost")]
    pub topmost: Option<TopmostStatus>,
    /// The app that was in the foreground before; `None` if there is none or if it is hidden.
    pub previous: Option<AppStatus>,
    /// All sources of the foreground app, including those that do not work.
    pub sources: Vec<SourceStatus>,
    /// Session agents that have sent [`Request::Agent`](crate::Request::Agent) and whose claims the
    /// daemon accepts now. Only root and the group of `[access]` see other users' agents.
    #[serde(default)]
    pub agents: Vec<AgentStatus>,
    /// All mechanisms, including those that do not work.
    pub mechanisms: Vec<MechanismStatus>,
    /// Response windows.
    pub window: WindowStatus,
    /// The machine's memory.
    pub memory: MemoryStatus,
    /// Shares of time in which tasks waited for a processor, memory or a disk.
    #[serde(default)]
    pub stalls: Stalls,
    /// State of `/dev/limelight`.
    pub device: DeviceStatus,
    /// The last change of each setting that has not been undone, as far as the caller may see it.
    /// Its outcome tells whether the change is in force. With `dry_run`, all changes are planned.
    pub changes: Vec<Change>,
    /// Why the caller does not see the foreground app; `None` if the caller may see it. An app is
    /// shown only to its owner, to root and to the group of `[access]`. If it is hidden, so is all
    /// data that would reveal when the foreground app changes or gets input: counts are 0 or
    /// missing, and states that would reveal it are `idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// An app.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppStatus {
    /// Name of the process that the claim named; if it named a cgroup, the cgroup's last component.
    pub name: String,
    /// Process id that the claim named; `None` if it named a cgroup.
    pub pid: Option<i32>,
    /// Path of its cgroup below the cgroup v2 mount point (`/user.slice/...`).
    pub cgroup: Option<String>,
    /// Whether the cgroup contains only this app. If so, the daemon may use the cgroup's knobs.
    pub own_cgroup: bool,
}

/// The foreground app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ForegroundStatus"))]
pub struct TopmostStatus {
    /// The app.
    #[serde(flatten)]
    pub app: AppStatus,
    /// Source that reported the app: `cli`, `x11`, `oom_score_adj`, ...
    pub source: String,
    /// Time in the foreground, in milliseconds.
    pub for_ms: u64,
    /// Number of processes that belong to the app now.
    pub members: u32,
    /// Milliseconds until the app leaves the foreground because no app has the focus; `None` while
    /// an app has the focus.
    pub demoted_in_ms: Option<u64>,
}

/// Name of the source that guesses the foreground app from the clients that the display server
/// wakes.
pub const WAKE_GRAPH: &str = "wake-graph";

/// A source that can report the foreground app, or a facility of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceStatus {
    /// Its name: `explicit`, `session`, `top-app`, `oom_score_adj` or [`WAKE_GRAPH`], highest
    /// priority first.
    pub name: String,
    /// Whether the source works.
    pub state: State,
    /// How the source works here, or why it does not.
    pub detail: String,
}

/// The mechanisms for the foreground app, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MechanismId {
    /// Protects the foreground app's memory from reclaim.
    Protect,
    /// Gives the foreground app priority for the processor and the disk.
    Boost,
    /// Reads files ahead for the foreground app.
    Readahead,
    /// Maps pages of the foreground app's heap before it touches them.
    Premap,
    /// Zeroes pages before the foreground app needs them.
    Prezero,
    /// Takes memory from the other apps when memory is short.
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

    /// The mechanism's name in the configuration, in `status` and for display.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MechanismStatus {
    /// The [name](MechanismId::name) of the mechanism.
    pub name: String,
    /// Whether the mechanism acts now.
    pub state: State,
    /// How the mechanism works here, or why it does not.
    pub detail: String,
    /// The daemon's counters of the mechanism, by name. They start at 0 with the daemon. A counter
    /// whose name ends in `_bytes` counts bytes. The kernel's own counters are in `/proc/vmstat`
    /// (`limelight_*`).
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// `detail` in a few words; empty if `detail` is short. Daemons before 0.1.1 do not send it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub short: String,
}

/// State of a source or a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It acts now.
    Active,
    /// It is ready, but has nothing to do now.
    Idle,
    /// It is switched off by the configuration.
    Off,
    /// It cannot work now. The detail gives the reason.
    Unavailable,
}

/// The machine's memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The kernel's page reclaim: `mglru` or `two-list`.
    pub lru: String,
    /// Maximum number of bytes that `protect` may reserve.
    pub budget: u64,
    /// Bytes that other software has reserved. `budget` is already reduced by them.
    pub protected_by_others: u64,
    /// Bytes that `protect` reserves now through the app's cgroup.
    pub protected: u64,
    /// Number of steps by which protection is lowered because no other memory was left: 0 (full
    /// protection) to 4 (none).
    pub lowered_steps: u8,
    /// Bytes of shared file pages that `protect` has locked for the foreground app.
    #[serde(default)]
    pub locked: u64,
    /// The level of shortage; `None` if the guard thread does not run, because of `dry_run` or
    /// because it could not be started.
    #[serde(default)]
    pub level: Option<Level>,
    /// Available memory below which apps are swapped, and below which they are killed; `None` if
    /// the guard thread does not run.
    #[serde(default)]
    pub thresholds: Option<Thresholds>,
}

/// State of `/dev/limelight`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum DeviceStatus {
    /// The daemon has opened the device.
    Open {
        /// ABI version of the running kernel.
        abi_version: u32,
        /// Names of the mechanisms compiled into the kernel.
        built_in: Vec<String>,
        /// Names of the mechanisms that are switched on.
        enabled: Vec<String>,
        /// Sequence number of the topmost set in force; 0 if there is none or if it is hidden.
        generation: u64,
        /// Number of live processes in the topmost set, as counted by the kernel; 0 if hidden.
        members: u32,
    },
    /// The daemon does not use the device.
    Unused {
        /// The reason: the device is absent, switched off, busy, not permitted, or has another ABI.
        why: String,
    },
}

/// Shares of the last 10 s in which tasks waited (PSI `avg10`). A share is `None` if the kernel
/// does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Stall {
    /// Share in which at least one task waited.
    pub some: f64,
    /// Share in which all non-idle tasks waited; `None` if the kernel does not report it.
    pub full: Option<f64>,
}
