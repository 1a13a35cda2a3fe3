// SPDX-License-Identifier: GPL-2.0-or-later
//! Decisions about memory, with all that was weighed, in the protocol's words.

use serde::{Deserialize, Serialize};

use super::{AppStatus, Deed, MemoryThen};
use crate::model::apps::Use;
use crate::model::class::Class;
use crate::model::shortage::Level;

/// What was decided about one app, and why about no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When, in milliseconds since boot.
    pub at_ms: u64,
    /// What.
    pub deed: Deed,
    /// How short memory was.
    pub level: Level,
    /// The machine's memory then.
    pub memory: MemoryThen,
    /// Bytes of available memory below which apps may be killed.
    pub kill_threshold: u64,
    /// Bytes of available memory below which apps are swapped.
    pub swap_threshold: u64,
    /// Every app that was known, in the order in which it was weighed.
    pub weighed: Vec<Weighed>,
}

/// What was thought of one app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weighed {
    /// The app.
    pub app: AppStatus,
    /// Its owner.
    #[serde(default)]
    pub uid: Option<u32>,
    /// It was the one.
    pub chosen: bool,
    /// Why, or why not.
    pub reason: String,
    /// Its class.
    pub class: Class,
    /// When it was in front last, or started, in milliseconds since boot.
    pub used_ms: u64,
    /// Why it was in use.
    pub uses: Vec<Use>,
    /// What it had allocated, in memory and in swap, in bytes.
    pub allocated: u64,
}
