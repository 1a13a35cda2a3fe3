// SPDX-License-Identifier: GPL-2.0-or-later
//! Levels of a shortage of memory (SWAP).

use serde::{Deserialize, Serialize};

/// Thresholds of available memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Memory that apps can use, in bytes.
    pub total: u64,
    /// Below this many available bytes, apps may be killed.
    pub kill: u64,
    /// Below this many available bytes, apps are swapped.
    pub swap: u64,
}

/// Level of shortage, in rising severity.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// No shortage.
    #[default]
    Plenty,
    /// Apps are asked to free memory, and are swapped.
    Swap,
    /// Only an app that grows without bound may be killed: less than the kill threshold is
    /// available, but swapping keeps up.
    Low,
    /// Disposable apps may be killed: the apps' working sets do not fit, and memory is paged in and
    /// out.
    Crowded,
    /// Disposable apps may be killed, and other apps frozen.
    Kill,
    /// Any killable app may be killed: memory and swap are used up, or the machine does little but
    /// page in and out.
    Exhausted,
}

impl Level {
    /// Its name in the protocol, the configuration and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Plenty => "plenty",
            Level::Swap => "swap",
            Level::Low => "low",
            Level::Crowded => "crowded",
            Level::Kill => "kill",
            Level::Exhausted => "exhausted",
        }
    }
}
