// SPDX-License-Identifier: GPL-2.0-or-later
//! Decisions about memory, with all candidates, in the protocol.

use serde::{Deserialize, Serialize};

use super::{AppStatus, MemoryAction, MemoryThen};
use crate::class::Class;
use crate::in_use::Use;
use crate::shortage::Level;

/// A decision on one app, and why no other app was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When, in milliseconds since boot.
    pub at_ms: u64,
    /// The action.
    pub action: MemoryAction,
    /// The level of shortage.
    pub level: Level,
    /// The machine's memory then.
    pub memory: MemoryThen,
    /// Bytes of available memory below which apps may be killed.
    pub kill_threshold: u64,
    /// Bytes of available memory below which apps are swapped.
    pub swap_threshold: u64,
    /// All known apps, in the order of the decision.
    pub weighed: Vec<Weighed>,
}

/// The verdict on one app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighed {
    /// The app.
    pub app: AppStatus,
    /// Its owner.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why, or why not.
    pub reason: String,
    /// Its class.
    pub class: Class,
    /// When it was last in the foreground, or else started, in milliseconds since boot.
    pub used_ms: u64,
    /// Why it was in use.
    pub uses: Vec<Use>,
    /// Its allocation in memory and in swap, in bytes.
    pub allocated: u64,
}
