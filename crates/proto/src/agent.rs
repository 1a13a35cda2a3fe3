// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports of session agents about themselves.

use serde::{Deserialize, Serialize};

/// Longest text in [`super::Request::Agent`], in bytes.
pub const AGENT_TEXT_MAX: usize = 512;

/// Maximum number of sources that it may name as passed over.
pub const PASSED_OVER_MAX: usize = 16;

/// A source that does not work in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassedOver {
    /// Its name: `sway`, `x11`, ...
    pub name: String,
    /// Why it does not work.
    pub why: String,
}

/// A session agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// Its process id.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its source; `None`: none works.
    pub source: Option<String>,
    /// How that source works here.
    pub detail: String,
    /// Sources that were tried first.
    pub passed_over: Vec<PassedOver>,
}
