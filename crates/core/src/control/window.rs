// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows in the protocol's words.

use serde::{Deserialize, Serialize};

use super::{SourceStatus, State};
pub use crate::model::window::Tallies as WindowTallies;

/// What happened to a response window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowEvent {
    /// Input for the app arrived.
    Open,
    /// A frame of the app was shown. Each may be told, or only the first one after input.
    Close,
}

/// Response windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStatus {
    /// Whether there are any: active while one is open.
    pub state: State,
    /// How they are learnt here, or why they are not.
    pub detail: String,
    /// The one that is open.
    pub open: Option<OpenWindow>,
    /// What tells of input and frames.
    pub sources: Vec<SourceStatus>,
    /// Whether the kernel is told of windows: active while it has one that is open.
    pub kernel: KernelWindows,
    /// How windows came and went since the daemon started.
    pub tallies: WindowTallies,
    /// Answers of the app in front; `None` when it has given none.
    pub topmost: Option<AppLatency>,
}

/// What the kernel is told of windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelWindows {
    /// Whether it is told; unavailable where it does not want to know.
    pub state: State,
    /// Through what, or why not.
    pub detail: String,
    /// How often it was told that a window is open, or ends at another time.
    pub opened: u64,
    /// How often that one was closed; the others ended at their deadlines.
    pub closed: u64,
    /// How often it refused.
    pub failed: u64,
}

/// A window that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWindow {
    /// Name of the app whose frame is waited for.
    pub app: String,
    /// Since when, in microseconds.
    pub for_us: u64,
    /// When it ends without a frame, in microseconds.
    pub ends_in_us: u64,
    /// How many inputs wait.
    pub inputs: u32,
}

/// Answer to `latency`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// Apps that answered since the daemon started, those that did last first.
    pub apps: Vec<AppLatency>,
    /// Why other users' apps were left out, if they may have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// How long an app takes from input to the frame that answers it. Times are right to 1 %.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppLatency {
    /// Name of the app.
    pub name: String,
    /// How often it answered, late answers included.
    pub answers: u64,
    /// Of those, how many after the deadline.
    pub late: u64,
    /// How often no frame came at all: not in the figures.
    pub unanswered: u64,
    /// Half of the answers took no longer, in microseconds.
    pub p50_us: u64,
    /// 95 of 100.
    pub p95_us: u64,
    /// 99 of 100.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
    /// How long its next answer is waited for, in milliseconds.
    pub deadline_ms: u64,
}
