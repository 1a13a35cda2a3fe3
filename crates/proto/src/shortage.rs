// SPDX-License-Identifier: GPL-2.0-or-later
//! How short memory is (paper SWAP).

use serde::{Deserialize, Serialize};

/// Thresholds of available memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// All memory that apps could use if nothing else used it, in bytes. The thresholds are
    /// fractions of it.
    pub total: u64,
    /// Below this many available bytes, apps may be killed.
    pub kill: u64,
    /// Below this many available bytes, memory is short: apps are asked to free memory.
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
    /// Less than the swap threshold is available. Apps are asked to free memory.
    Swap,
    /// Less than the kill threshold is available, but swapping frees memory fast enough. Only an
    /// app that grows without bound may be killed.
    Low,
    /// The apps' working sets do not fit, and memory is paged in and out. Disposable apps may be
    /// killed.
    Crowded,
    /// Less than the kill threshold is available and swapping does not keep up, or the machine has
    /// been paging in and out for a while. Disposable apps may be killed; if there is none, another
    /// app is frozen.
    Kill,
    /// Memory and swap are used up or will be within 100 ms, or the machine does little but page in
    /// and out. Any app may be killed, except those that are never killed.
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
