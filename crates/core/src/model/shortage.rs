// SPDX-License-Identifier: GPL-2.0-or-later
//! Machine-wide shortage of memory: when to swap, and when to kill (SWAP).
//!
//! The level depends on what is left and not on how much processes stall: `MemAvailable` against
//! two thresholds, free swap, and how fast both fall. Stalls count only together with refaults and
//! swap-ins: a machine with both spends its time on paging, whatever `MemAvailable` says.
//!
//! Nothing here allocates, so that the guard can use it when no memory is left.

use std::time::Duration;

use limelight_proto::MemoryThen;
pub use limelight_proto::{Level, Thresholds};
use serde::{Deserialize, Serialize};

/// Parts of memory, in thousandths, below which apps are swapped or killed.
const SWAP_PARTS: u64 = 100;
const KILL_PARTS: u64 = 25;
/// Upper bound of the kill threshold. The reserve is for bursts, whose size does not depend on the
/// machine.
const KILL_MOST: u64 = 256 << 20;
/// Lower bound of the kill threshold on a machine of any size.
const KILL_LEAST: u64 = 4 << 20;
/// The swap threshold is at least this many times the kill threshold.
const APART: u64 = 3;

/// Minimum interval for rates, and a shorter one for the rate at which available memory and swap
/// fall.
const RATE_OVER: Duration = Duration::from_millis(250);
const FALL_OVER: Duration = Duration::from_millis(20);
/// Memory that will be used up within this time, the duration of a kill on a busy machine, counts
/// as used up.
const AHEAD: Duration = Duration::from_millis(100);

/// A machine thrashes if it stalls for this share of time, in percent, and reads back this part of
/// its memory per second, in thousandths.
const STALLED: u64 = 20;
const READ_BACK: u64 = 20;
/// Time of thrashing before [`Level::Kill`], and before [`Level::Exhausted`]: a large program that
/// starts from a slow disk thrashes for seconds and then stops.
const THRASHED: Duration = Duration::from_secs(2);
const THRASHED_LONG: Duration = Duration::from_secs(10);

/// Reclaim into swap can keep up if it has this many times the kill threshold to move.
const ROOM: u64 = 4;

/// On a crowded machine the apps' working sets do not fit. Two conditions, in thousandths of
/// memory: it reads back at least `CROWDED_BACK` per second, averaged over [`CROWDED_OVER`], and
/// less than `CROWDED_LEFT` is available.
const CROWDED_BACK: u64 = 10;
const CROWDED_LEFT: u64 = 200;
const CROWDED_OVER: Duration = Duration::from_secs(20);

/// A shortage is over after this time with plenty of memory: frozen apps run again, and the mean
/// over [`CROWDED_OVER`] has decayed.
const OVER: Duration = Duration::from_secs(30);

/// What [`Level::Kill`] lets go to swap may go there for this long.
const SEVERE_FOR: Duration = Duration::from_secs(5);

/// A level ends when what is left is this many quarters of its threshold.
const LEAVE_QUARTERS: u64 = 5;

/// No app is killed for this long after a death: its memory is still being freed.
const SETTLE: Duration = Duration::from_millis(250);
/// Shorter settle time when memory is exhausted and the victim's memory is known to be free.
/// Another app that grows could use up that memory within [`SETTLE`].
const BREATH: Duration = Duration::from_millis(40);
/// Longest wait for a victim's memory to be freed.
const ARRIVAL: Duration = Duration::from_secs(1);

const PAGE: u64 = 4096;

/// Measurements of one moment. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// When, since boot.
    pub at: Duration,
    /// `MemFree`.
    pub free: u64,
    /// `MemAvailable`, without the page cache that is kept for the topmost app.
    pub available: u64,
    /// `SwapFree`.
    pub swap_free: u64,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// Pages read from swap since boot (`pswpin`).
    pub swapped_in: u64,
    /// Pages written to swap since boot (`pswpout`).
    pub swapped_out: u64,
    /// Pages of files that were read again too soon, since boot (`workingset_refault_file`).
    pub refaulted: u64,
    /// Time in which some task stalled on memory, since boot (PSI `some total`).
    pub some: Duration,
    /// Time in which all tasks stalled on memory, since boot (PSI `full total`).
    pub full: Duration,
    /// OOM kills since boot.
    pub oom_kills: u64,
}

impl Gauge {
    fn left(&self) -> u64 {
        self.available.saturating_add(self.swap_free)
    }
}

impl From<&Gauge> for MemoryThen {
    fn from(gauge: &Gauge) -> MemoryThen {
        MemoryThen {
            available: gauge.available,
            free: gauge.free,
            swap_total: gauge.swap_total,
            swap_free: gauge.swap_free,
            some_ms: gauge.some.as_millis() as u64,
            full_ms: gauge.full.as_millis() as u64,
        }
    }
}

/// Thresholds for a machine with `total` bytes and zones whose high watermarks add up to `high`: a
/// fortieth of memory to kill and a tenth to swap, and above what kswapd keeps free by itself.
pub fn derive_thresholds(total: u64, high: u64) -> Thresholds {
    let part = |parts| total / 1000 * parts;
    let kill = part(KILL_PARTS).max(high).clamp(KILL_LEAST, KILL_MOST);
    let swap = part(SWAP_PARTS).clamp(kill * APART, KILL_MOST * APART * 2);
    Thresholds { total, kill, swap }
}

/// Rates of change per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Share of time in which all tasks stalled on memory, in percent.
    pub stalled: u64,
    /// Bytes read back: refaults of files, and swap-ins.
    pub read_back: u64,
    /// Mean over the last 20 s of the part of `read_back` that shows working sets that do not fit.
    pub crowding: u64,
    /// Bytes by which the sum of available memory and free swap falls.
    pub falling: u64,
}

/// The last death that may still free memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Death {
    at: Duration,
    /// Bytes that it should free, and bytes available before it.
    expected: u64,
    available: u64,
    /// When its memory was known to be free.
    freed: Option<Duration>,
}

/// Input of the choice of a victim. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Situation {
    /// The level of shortage.
    pub level: Level,
    /// When, since boot.
    pub at: Duration,
    /// Memory that apps can use.
    pub total: u64,
    /// Available memory.
    pub available: u64,
    /// Free swap.
    pub swap_free: u64,
    /// Bytes missing to end the shortage.
    pub shortfall: u64,
}

/// Tracks the shortage from gauge readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    thresholds: Thresholds,
    swappable: u64,
    /// `pswpout` when `swappable` was set.
    swappable_at: u64,
    level: Level,
    since: Duration,
    /// The last time at [`Level::Kill`] or above.
    severe_at: Option<Duration>,
    rates: Rates,
    last: Option<Gauge>,
    rated: Option<Gauge>,
    fell: Option<Gauge>,
    thrashes_since: Option<Duration>,
    death: Option<Death>,
}

impl Shortage {
    /// Starts at [`Level::Plenty`].
    pub fn new(thresholds: Thresholds) -> Shortage {
        Shortage {
            thresholds,
            ..Shortage::default()
        }
    }

    /// Replaces the thresholds.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// Sets how many bytes of background apps could still go to swap at the moment when
    /// `swapped_out` pages had gone there since boot (`pswpout`). Memory that is exempt or already
    /// in swap does not count, since reclaim cannot take it.
    pub fn set_swappable(&mut self, bytes: u64, swapped_out: u64) {
        self.swappable = bytes;
        self.swappable_at = swapped_out;
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The current level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// When the current level began, since boot.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Whether the level is [`Level::Kill`] or above, or was so lately: it may come and go several
    /// times a second.
    pub fn is_severe(&self, now: Duration) -> bool {
        let lately = |at: Duration| now.saturating_sub(at) < SEVERE_FOR;
        self.level >= Level::Kill || self.severe_at.is_some_and(lately)
    }

    /// The last gauge; zeroes before the first.
    pub fn gauge(&self) -> Gauge {
        self.last.unwrap_or_default()
    }

    /// Current rates.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Whether memory is paged in and out because the apps' working sets do not fit. Independent of
    /// the memory that is available at the moment.
    pub fn is_crowded(&self) -> bool {
        let total = self.thresholds.total;
        total > 0 && self.rates.crowding >= total / 1000 * CROWDED_BACK
    }

    /// Whether memory may become short so soon that the gauge must be read often.
    pub fn is_near(&self) -> bool {
        self.level != Level::Plenty || self.gauge().available < self.thresholds.swap * 2
    }

    /// Whether the last shortage has ended and its aftereffects have expired.
    pub fn is_over(&self, at: Duration) -> bool {
        let calm = at.saturating_sub(self.since) >= OVER;
        self.level == Level::Plenty && calm && !self.is_crowded()
    }

    /// Adds a gauge reading. Returns the level.
    pub fn observe(&mut self, now: Gauge) -> Level {
        self.rate(now);
        let level = self.ask(&now);
        if level != self.level {
            self.since = now.at;
        }
        self.level = level;
        if level >= Level::Kill {
            self.severe_at = Some(now.at);
        }
        self.last = Some(now);
        level
    }

    /// Input for the choice of a victim now.
    pub fn situation(&self) -> Situation {
        let gauge = self.gauge();
        Situation {
            level: self.level,
            at: gauge.at,
            total: self.thresholds.total,
            available: gauge.available,
            swap_free: gauge.swap_free,
            shortfall: self.thresholds.swap.saturating_sub(gauge.available),
        }
    }

    /// An app was killed, which should free `expected` bytes.
    pub fn killed(&mut self, at: Duration, expected: u64) {
        self.death = Some(Death {
            at,
            expected,
            available: self.gauge().available,
            freed: None,
        });
    }

    /// The last victim's memory is free, even if another process has already taken it.
    pub fn freed(&mut self, at: Duration) {
        if let Some(death) = &mut self.death {
            death.freed = Some(at);
        }
    }

    /// An app died without Limelight's doing: its memory is being freed too.
    pub fn died(&mut self, at: Duration) {
        self.killed(at, 0);
    }

    /// Whether the level allows a kill and the last death has taken effect: a spike kills at most
    /// one app.
    pub fn may_kill(&self, at: Duration) -> bool {
        let settled = self.death.is_none_or(|death| {
            let passed = at.saturating_sub(death.at);
            let arrived =
                self.gauge().available >= death.available.saturating_add(death.expected / 2);
            let freed = death.freed.is_some_and(|freed| at >= freed + BREATH);
            passed >= ARRIVAL
                || (passed >= SETTLE && (arrived || freed))
                || (freed && self.level == Level::Exhausted)
        });
        self.level >= Level::Low && settled
    }

    fn rate(&mut self, now: Gauge) {
        let per_second = |amount: u64, over: Duration| match over.as_millis() {
            0 => 0,
            ms => amount.saturating_mul(1000) / u64::try_from(ms).unwrap_or(u64::MAX),
        };
        let over = |from: &Gauge| now.at.saturating_sub(from.at);
        let rated = *self.rated.get_or_insert(now);
        if over(&rated) >= RATE_OVER {
            let stalled = now.full.saturating_sub(rated.full);
            let stalled = u64::try_from(stalled.as_millis()).unwrap_or(u64::MAX);
            self.rates.stalled = per_second(stalled, over(&rated)) / 10;
            let bytes = |pages: u64| per_second(pages.saturating_mul(PAGE), over(&rated));
            let files = now.refaulted.saturating_sub(rated.refaulted);
            let swapped_in = now.swapped_in.saturating_sub(rated.swapped_in);
            self.rates.read_back = bytes(files + swapped_in);
            // With room in swap, working sets that do not fit are paged in from there, too. Refaults
            // of files alone are a stream larger than memory, which no kill makes fit.
            let files = match now.swap_free > self.thresholds.kill {
                true => files.min(swapped_in),
                false => files,
            };
            let crowding = bytes(files + swapped_in);
            self.rates.crowding = mean(self.rates.crowding, crowding, over(&rated));
            self.rated = Some(now);
        }
        let fell = *self.fell.get_or_insert(now);
        if over(&fell) >= FALL_OVER {
            let falling = per_second(fell.left().saturating_sub(now.left()), over(&fell));
            self.rates.falling = (self.rates.falling + falling) / 2;
            self.fell = Some(now);
        }
        let thrashes = self.rates.stalled >= STALLED
            && self.rates.read_back >= self.thresholds.total / 1000 * READ_BACK;
        match thrashes {
            true => _ = self.thrashes_since.get_or_insert(now.at),
            false => self.thrashes_since = None,
        }
    }

    fn ask(&self, now: &Gauge) -> Level {
        let Thresholds { kill, swap, .. } = self.thresholds;
        // Hysteresis: leaving a level takes more.
        let below = |threshold: u64, level: Level| {
            let quarters = if self.level >= level {
                LEAVE_QUARTERS
            } else {
                4
            };
            now.available < threshold / 4 * quarters
        };
        let thrashed = |enough: Duration| {
            let since = self.thrashes_since;
            since.is_some_and(|since| now.at.saturating_sub(since) >= enough)
        };
        let short = below(swap, Level::Swap);
        let part = |thousandths| self.thresholds.total / 1000 * thousandths;
        let crowded =
            self.rates.crowding >= part(CROWDED_BACK) && below(part(CROWDED_LEFT), Level::Crowded);
        let nowhere = now.swap_free < kill.min(now.swap_total / 10).max(PAGE);
        let soon = self.rates.falling / 1000 * u64::try_from(AHEAD.as_millis()).unwrap_or(0);
        let low = below(kill, Level::Low);
        // Background apps have memory to swap, swap has room for it, and tasks hardly stall on it.
        let gone_since = now.swapped_out.saturating_sub(self.swappable_at);
        let swappable = self
            .swappable
            .saturating_sub(gone_since.saturating_mul(PAGE));
        let room = now.swap_free.min(swappable);
        let keeps_up = room >= kill * ROOM && self.rates.stalled < STALLED;
        let gone = now.available < kill * 2 && now.left() <= soon;

        if gone || (nowhere && below(kill, Level::Exhausted)) || (short && thrashed(THRASHED_LONG))
        {
            Level::Exhausted
        } else if (low && !keeps_up) || (short && thrashed(THRASHED)) {
            Level::Kill
        } else if crowded {
            Level::Crowded
        } else if low {
            Level::Low
        } else if short {
            Level::Swap
        } else {
            Level::Plenty
        }
    }
}

/// Updates the mean over the last [`CROWDED_OVER`] with `rate`, which lasted `for_so_long`.
fn mean(before: u64, rate: u64, for_so_long: Duration) -> u64 {
    let over = CROWDED_OVER.as_millis() as u64;
    let ms = u64::try_from(for_so_long.as_millis()).map_or(over, |ms| ms.min(over));
    (before.saturating_mul(over - ms)).saturating_add(rate.saturating_mul(ms)) / over
}

#[cfg(test)]
#[path = "shortage_tests.rs"]
mod tests;
