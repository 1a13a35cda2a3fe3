// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for a pause.

use serde::{Deserialize, Serialize};

/// Longest pause with an end, in milliseconds: a week.
pub const PAUSE_MAX_MS: u64 = 7 * 24 * 3600 * 1000;

/// A pause in force: the daemon has undone its changes, and makes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pause {
    /// Time since the pause began, in milliseconds.
    pub for_ms: u64,
    /// Time until the pause ends by itself, in milliseconds; `None`: it lasts until
    /// [`Request::Resume`](crate::Request::Resume).
    pub left_ms: Option<u64>,
}
