// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for decisions about memory.

use serde::{Deserialize, Serialize};

use super::{AppStatus, MemoryAction, MemoryThen};
use crate::class::Class;
use crate::in_use::Use;
use crate::shortage::Level;

/// A decision on one app, and why no other app was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// When, in milliseconds since boot.
    pub at_ms: u64,
    /// The action.
    pub action: MemoryAction,
    /// The level of shortage.
    pub level: Level,
    /// The machine's memory at the time of the decision.
    pub memory: MemoryThen,
    /// Bytes of available memory below which apps may be killed.
    pub kill_threshold: u64,
    /// Bytes of available memory below which apps are swapped.
    pub swap_threshold: u64,
    /// All known apps with the verdict on each, in the order in which they were considered.
    pub weighed: Vec<Weighed>,
}

/// The verdict on one app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Weighed {
    /// The app.
    pub app: AppStatus,
    /// User id of its owner.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Why it was chosen or not.
    pub reason: String,
    /// Its class.
    pub class: Class,
    /// When it was last in the foreground, or else started, in milliseconds since boot.
    pub used_ms: u64,
    /// Why it was in use in the background; empty if it was not.
    pub uses: Vec<Use>,
    /// Its anonymous memory, resident or swapped, in bytes.
    pub allocated: u64,
}
