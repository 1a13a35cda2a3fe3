// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for response windows.

use serde::{Deserialize, Serialize};

use super::{SourceStatus, State};

/// An event that opens or closes a response window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WindowEvent {
    /// Input for the app arrived.
    Open,
    /// A frame of the app was shown. A client may report every frame, or only the first frame after
    /// an input.
    Close,
}

/// State of the response windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowStatus {
    /// Whether windows are used; active while a window is open.
    pub state: State,
    /// How events arrive on this machine, or why they do not.
    pub detail: String,
    /// The open window, if any.
    pub open: Option<OpenWindow>,
    /// Sources of input and frame events.
    pub sources: Vec<SourceStatus>,
    /// Windows as passed to the kernel.
    pub kernel: KernelWindows,
    /// Counts since the daemon started.
    pub tallies: WindowTallies,
    /// Response times of the foreground app; `None` if none were recorded.
    #[serde(rename = "foreground", alias = "topmost")]
    pub topmost: Option<AppLatency>,
}

/// Windows as passed to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KernelWindows {
    /// Whether windows are passed to the kernel: active while the kernel has an open window,
    /// unavailable if the kernel does not support windows.
    pub state: State,
    /// The interface, or why it is not used.
    pub detail: String,
    /// Number of windows opened or extended in the kernel.
    pub opened: u64,
    /// Number of windows closed in the kernel before their deadlines.
    pub closed: u64,
    /// Number of calls that the kernel refused.
    pub failed: u64,
}

/// Counts of windows, inputs and frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WindowTallies {
    /// Windows that opened.
    pub opened: u64,
    /// Windows that a frame closed before the deadline.
    pub answered: u64,
    /// Windows that ended at their deadline, without those in `moved`.
    pub expired: u64,
    /// Expired windows that a later frame answered.
    pub late: u64,
    /// Expired windows that no frame answered.
    pub unanswered: u64,
    /// Windows that ended after the focus had moved to another app.
    pub moved: u64,
    /// Windows that ended because no app was in the foreground any more, or because windows were
    /// switched off.
    pub abandoned: u64,
    /// Inputs that joined an open window.
    pub inputs_joined: u64,
    /// Inputs that were not for the foreground app, or that came while no app was in the foreground.
    pub inputs_elsewhere: u64,
    /// Frames that no input waited for.
    pub frames_unasked: u64,
    /// Frames of another app than the open window's.
    pub frames_elsewhere: u64,
}

/// An open window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpenWindow {
    /// Name of the app whose frame is awaited.
    pub app: String,
    /// Time since it opened, in microseconds.
    pub for_us: u64,
    /// Time until its deadline, in microseconds.
    pub ends_in_us: u64,
    /// Number of unanswered inputs.
    pub inputs: u32,
}

/// Answer to [`super::Request::Latency`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyReport {
    /// Apps with recorded answers since the daemon started, latest answer first.
    pub apps: Vec<AppLatency>,
    /// Who may see other users' apps; `None` if this caller sees all apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

/// Response times of an app, from input to the frame that answers it. Times are accurate to 1 %.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AppLatency {
    /// Name of the app.
    pub name: String,
    /// Number of answers, late ones included.
    pub answers: u64,
    /// Number of answers after the deadline.
    pub late: u64,
    /// Number of windows without a frame; not part of the percentiles.
    pub unanswered: u64,
    /// 50th percentile in microseconds.
    pub p50_us: u64,
    /// 95th percentile in microseconds.
    pub p95_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// Maximum in microseconds.
    pub max_us: u64,
    /// Deadline for its next answer, in milliseconds.
    pub deadline_ms: u64,
    /// The last response times in microseconds, oldest first; at most 40.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_us: Vec<u64>,
}
