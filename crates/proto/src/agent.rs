// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for session agents.

use serde::{Deserialize, Serialize};

use super::SourceStatus;

/// Maximum length of a text in [`super::Request::Agent`], in bytes.
pub const AGENT_TEXT_MAX: usize = 512;

/// Maximum number of [`PassedOver`] sources in [`super::Request::Agent`].
pub const PASSED_OVER_MAX: usize = 16;

/// Maximum number of facilities in [`super::Request::Agent`].
pub const FACILITIES_MAX: usize = 8;

/// Name of the facility by which an agent shows desktop notifications.
pub const NOTIFICATIONS: &str = "notifications";

/// Name of the facility by which an agent finds the apps that play or record sound.
pub const SOUND: &str = "sound";

/// Name of the facility by which an agent finds the apps that share or record the screen or a
/// camera.
pub const VIDEO: &str = "video";

/// A source that does not work in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PassedOver {
    /// Its name: `sway`, `x11`, ...
    pub name: String,
    /// Why it does not work.
    pub why: String,
}

/// A session agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentStatus {
    /// Its process id.
    pub pid: i32,
    /// User id of its user.
    pub uid: u32,
    /// Name of its source; `None`: no source works.
    pub source: Option<String>,
    /// How the source works in this session, or why none does.
    pub detail: String,
    /// Sources that were tried before and do not work.
    pub passed_over: Vec<PassedOver>,
    /// What else it can do in this session: [`NOTIFICATIONS`], [`SOUND`], [`VIDEO`].
    #[serde(default)]
    pub facilities: Vec<SourceStatus>,
}
