// SPDX-License-Identifier: GPL-2.0-or-later
//! How short memory is (paper SWAP).

use serde::{Deserialize, Serialize};

/// Thresholds of available memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thresholds {
    /// Memory that apps can use, in bytes: memory that is free, within reach of reclaim, or in
    /// zram. Memory held by the kernel, a driver or `mlock()` does not count. The default
    /// thresholds are derived from this value.
    pub total: u64,
    /// With less than this many bytes available, the level is at least [`Level::Low`]. Crowding or
    /// thrashing may lead to a kill above this threshold.
    pub kill: u64,
    /// With less than this many bytes available, the level is at least [`Level::Swap`].
    pub swap: u64,
}

/// Level of shortage, in rising severity. What may be killed at one level may also be killed at all
/// later levels.
///
/// The machine *thrashes* while tasks are stalled for at least 20 % of the time (PSI `full`) and at
/// least 2 % of memory is read back per second (swapped pages and evicted file pages).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// No shortage.
    #[default]
    Plenty,
    /// Less than the swap threshold is available. Listening apps are asked to free memory.
    Swap,
    /// Less than the kill threshold is available, but swapping frees memory fast enough. Only an
    /// app that leaks, that is, grows without bound in the background, may be killed.
    Low,
    /// The apps' working sets do not fit in memory: less than a fifth of memory is available, and
    /// at least 1 % of memory is read back per second, averaged over 20 s. Disposable apps that are
    /// not in use may be killed.
    Crowded,
    /// Less than the kill threshold is available, and swapping does not free memory fast enough. Or
    /// less than the swap threshold is available, and the machine has thrashed for 2 s. If no app
    /// may be killed at this level, the least recently used app is frozen.
    Kill,
    /// Less than the kill threshold is available, and swap is used up. Or less than twice the kill
    /// threshold is available, and memory and swap will be used up within 100 ms. Or as much is
    /// available, swap is full, and tasks are stalled for a fifth of the time or the kill threshold
    /// will be reached within 100 ms. Or less than the swap threshold is available, and the machine
    /// has thrashed for 10 s. Any app may be killed, except those that are never killed, such as the
    /// foreground app and apps of class `keep`.
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
