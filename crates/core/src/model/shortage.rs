// SPDX-License-Identifier: GPL-2.0-or-later
//! Machine-wide shortage of memory: when to swap, and when to kill (SWAP).
//!
//! The level depends on the memory that is left: `MemAvailable` against two thresholds, free swap,
//! and how fast both fall. Below the kill threshold, stalls show that swapping does not keep up.
//! Between the two thresholds, stalls count only together with refaults and swap-ins: a machine
//! with both spends its time on paging.
//!
//! Nothing here allocates, so that the guard can use it when no memory is left.

use std::time::Duration;

use limelight_proto::MemoryThen;
pub use limelight_proto::{Level, Thresholds};
use serde::{Deserialize, Serialize};

/// Thresholds of available memory, in thousandths of all memory, below which apps are swapped or
/// killed.
const SWAP_PARTS: u64 = 100;
const KILL_PARTS: u64 = 25;
/// Upper bound of the kill threshold. The threshold leaves room for bursts of allocations, and
/// their size does not grow with the machine's memory.
const KILL_MOST: u64 = 256 << 20;
/// Lower bound of the kill threshold.
const KILL_LEAST: u64 = 4 << 20;
/// The swap threshold is at least this many times the kill threshold.
const APART: u64 = 3;

/// Minimum interval for measuring rates, and the shorter one for the rate at which available memory
/// and free swap fall.
const RATE_OVER: Duration = Duration::from_millis(250);
const FALL_OVER: Duration = Duration::from_millis(20);
/// Memory counts as used up if at the current rate it will be used up within this time. A kill on a
/// busy machine takes that long.
const AHEAD: Duration = Duration::from_millis(100);

/// A machine thrashes if it stalls for at least this share of time, in percent, and reads back at
/// least this many thousandths of its memory per second.
const STALLED: u64 = 20;
const READ_BACK: u64 = 20;
/// Time of thrashing before [`Level::Kill`], and before [`Level::Exhausted`]. A large program that
/// starts from a slow disk also thrashes, but only for seconds.
const THRASHED: Duration = Duration::from_secs(2);
const THRASHED_LONG: Duration = Duration::from_secs(10);

/// Swapping can keep up only while at least this many times the kill threshold can still be swapped
/// out.
const ROOM: u64 = 4;

/// A machine is crowded if the apps' working sets do not fit in memory. Two conditions, in
/// thousandths of memory: the machine reads back at least `CROWDED_BACK` per second, averaged over
/// [`CROWDED_OVER`], and less than `CROWDED_LEFT` is available.
const CROWDED_BACK: u64 = 10;
const CROWDED_LEFT: u64 = 200;
const CROWDED_OVER: Duration = Duration::from_secs(20);
/// The working sets fit in memory if less than this is read back per second, in thousandths of
/// memory, averaged over [`CROWDED_OVER`].
const FITS_BACK: u64 = 3;

/// A shortage is over after this time at [`Level::Plenty`]. It is longer than [`CROWDED_OVER`], so
/// that the mean paging rate has decayed.
const OVER: Duration = Duration::from_secs(30);

/// A shortage stays severe for this long after its level fell below [`Level::Kill`]. A severe
/// shortage lifts apps' exemptions from swapping. Without the delay, the apps would become exempt
/// again at once.
const SEVERE_FOR: Duration = Duration::from_secs(5);

/// A level ends when the available memory reaches this many quarters of its threshold.
const LEAVE_QUARTERS: u64 = 5;

/// Minimum time between the death of an app and the next kill: the dead app's memory is still being
/// freed.
const SETTLE: Duration = Duration::from_millis(250);
/// Shorter settle time, counted from the moment at which the victim's memory is known to be free,
/// when memory is exhausted. A growing app could use up that memory within [`SETTLE`].
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
    /// `MemAvailable` without the page cache that is kept for the topmost app.
    pub available: u64,
    /// `SwapFree`.
    pub swap_free: u64,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// Pages read from swap since boot (`pswpin`).
    pub swapped_in: u64,
    /// Pages written to swap since boot (`pswpout`).
    pub swapped_out: u64,
    /// File pages that were read again after their eviction, since boot
    /// (`workingset_refault_file`).
    pub refaulted: u64,
    /// Time since boot in which some task waited for memory (PSI `some total`).
    pub some: Duration,
    /// Time since boot in which all non-idle tasks waited for memory (PSI `full total`).
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

/// Derives the thresholds for a machine with `total` bytes of memory. `high`: sum of the zones'
/// high watermarks in bytes, which kswapd keeps free by itself.
///
/// The kill threshold is a fortieth of memory, but at least `high`, and always from 4 MiB to 256
/// MiB. The swap threshold is a tenth of memory, but at least three times the kill threshold and at
/// most 1.5 GiB.
pub fn derive_thresholds(total: u64, high: u64) -> Thresholds {
    let part = |parts| total / 1000 * parts;
    let kill = part(KILL_PARTS).max(high).clamp(KILL_LEAST, KILL_MOST);
    let swap = part(SWAP_PARTS).clamp(kill * APART, KILL_MOST * APART * 2);
    Thresholds { total, kill, swap }
}

/// Rates of change per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Share of time in which all non-idle tasks waited for memory, in percent.
    pub stalled: u64,
    /// Bytes read back by refaults of files and by swap-ins.
    pub read_back: u64,
    /// The part of `read_back` that indicates oversized working sets, averaged over about 20 s.
    pub crowding: u64,
    /// Bytes by which the sum of available memory and free swap falls.
    pub falling: u64,
}

/// The last death of an app. Its memory may not be free yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Death {
    at: Duration,
    /// Bytes that the death should free.
    expected: u64,
    /// Bytes available before the death.
    available: u64,
    /// Bytes of available memory and free swap at which the death has taken effect; `None`: what it
    /// frees is unknown.
    returns: Option<u64>,
    /// When the memory was known to be free; `None`: not known yet.
    freed: Option<Duration>,
}

/// Input for the choice of a victim. Sizes in bytes.
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
    /// Bytes by which available memory is below the swap threshold.
    pub shortfall: u64,
    /// The user who accounts for most of the recent growth, measured after the last scan; `None`:
    /// no user does, or that is unknown.
    pub taker: Option<u32>,
}

/// Tracks the shortage from gauge readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    thresholds: Thresholds,
    /// Argument of the last [`Shortage::set_swappable`], in bytes.
    swappable: u64,
    /// `pswpout` when `swappable` was set.
    swappable_at: u64,
    level: Level,
    since: Duration,
    /// The last time with less available memory than the kill threshold.
    low_at: Option<Duration>,
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

    /// Sets how many bytes of background apps can still be swapped out. `swapped_out`: value of
    /// `pswpout` at the time of this measurement. Memory of exempt disposable apps and memory
    /// already in swap do not count.
    pub fn set_swappable(&mut self, bytes: u64, swapped_out: u64) {
        self.swappable = bytes;
        self.swappable_at = swapped_out;
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// Bytes that must be free in swap for swapping to keep up. With less, apps may be closed.
    pub fn needed_room(&self) -> u64 {
        self.thresholds.kill * ROOM
    }

    /// The current level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// When the current level began, since boot.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Whether the level is at least [`Level::Kill`], or was within the last 5 s. The level may
    /// change several times a second.
    pub fn is_severe(&self, now: Duration) -> bool {
        self.level >= Level::Kill || lately(self.severe_at, now)
    }

    /// Whether the shortage is severe, or less memory than the kill threshold is available or was
    /// within the last 5 s.
    pub fn is_low(&self, now: Duration) -> bool {
        self.is_severe(now) || lately(self.low_at, now)
    }

    /// The last reading; all 0 before the first one.
    pub fn gauge(&self) -> Gauge {
        self.last.unwrap_or_default()
    }

    /// Current rates.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Whether memory is paged in and out because the apps' working sets do not fit. Does not
    /// depend on the memory that is available at the moment.
    pub fn is_crowded(&self) -> bool {
        let total = self.thresholds.total;
        total > 0 && self.rates.crowding >= total / 1000 * CROWDED_BACK
    }

    /// Whether the apps' working sets fit in memory: almost nothing is read back. Working sets that
    /// fit should stay in memory.
    pub fn fits(&self) -> bool {
        self.rates.crowding < self.thresholds.total / 1000 * FITS_BACK
    }

    /// Whether memory is short or close to it, so that the gauge must be read often.
    pub fn is_near(&self) -> bool {
        self.level != Level::Plenty || self.gauge().available < self.thresholds.swap * 2
    }

    /// Whether there has been plenty of memory for long enough and paging has ended.
    pub fn is_over(&self, at: Duration) -> bool {
        let calm = at.saturating_sub(self.since) >= OVER;
        self.level == Level::Plenty && calm && !self.is_crowded()
    }

    /// Whether a reading at this time will measure the rates of stalls and paging anew. Between two
    /// measurements, the paging counters of a gauge do not matter below [`Level::Low`].
    pub fn are_rates_due(&self, at: Duration) -> bool {
        self.rated
            .is_none_or(|rated| at.saturating_sub(rated.at) >= RATE_OVER)
    }

    /// Adds a gauge reading. Returns the level.
    pub fn observe(&mut self, now: Gauge) -> Level {
        self.rate(now);
        let level = self.next_level(&now);
        if level != self.level {
            self.since = now.at;
        }
        self.level = level;
        if level >= Level::Kill {
            self.severe_at = Some(now.at);
        }
        if now.available < self.thresholds.kill {
            self.low_at = Some(now.at);
        }
        // A victim that waits for a processor exits late, but its memory and swap may have been
        // released ahead of its exit.
        if let Some(death) = &mut self.death {
            let returned = death.returns.is_some_and(|returns| now.left() >= returns);
            if returned && death.freed.is_none() {
                death.freed = Some(now.at);
            }
        }
        self.last = Some(now);
        level
    }

    /// Input for the choice of a victim now, without [`Situation::taker`].
    pub fn situation(&self) -> Situation {
        let gauge = self.gauge();
        Situation {
            level: self.level,
            at: gauge.at,
            total: self.thresholds.total,
            available: gauge.available,
            swap_free: gauge.swap_free,
            shortfall: self.thresholds.swap.saturating_sub(gauge.available),
            taker: None,
        }
    }

    /// Notes that an app was killed, which should free `expected` bytes of memory and `swapped` bytes
    /// of swap.
    pub fn killed(&mut self, at: Duration, expected: u64, swapped: u64) {
        let returns = expected.saturating_add(swapped) / 2;
        self.death = Some(Death {
            at,
            expected,
            available: self.gauge().available,
            returns: (returns > 0).then(|| self.gauge().left().saturating_add(returns)),
            freed: None,
        });
    }

    /// When the last victim's memory was known to be free; `None`: not known yet.
    pub fn freed_at(&self) -> Option<Duration> {
        self.death?.freed
    }

    /// Whether another app must be killed now, although the last victim may not have exited yet.
    pub fn is_urgent(&self, at: Duration) -> bool {
        self.level == Level::Exhausted && self.may_kill(at)
    }

    /// Notes that the last victim's memory was freed, even if another process has already taken it.
    pub fn freed(&mut self, at: Duration) {
        if let Some(death) = &mut self.death {
            death.freed = Some(at);
        }
    }

    /// Notes that an app died for another reason than a kill by Limelight. Its memory is being
    /// freed too.
    pub fn died(&mut self, at: Duration) {
        self.killed(at, 0, 0);
    }

    /// Whether the level allows a kill and the last death has taken effect. A spike thus kills at
    /// most one app.
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

    /// Whether the last victim's memory is free but not available yet: with the `listed` bytes in
    /// the kernel's per-CPU page lists, enough memory would be available to end the shortage.
    /// `false` more than 1 s after the death, and if less than `low` bytes are free: the kernel's
    /// OOM killer could act before the lists are emptied.
    pub fn is_freed_memory_listed(&self, listed: u64, low: u64) -> bool {
        let Some(Death { at, freed, .. }) = self.death else {
            return false;
        };
        let gauge = self.gauge();
        let enough = self.thresholds.kill / 4 * LEAVE_QUARTERS;
        freed.is_some()
            && gauge.at.saturating_sub(at) < ARRIVAL
            && gauge.free >= low
            && gauge.available < enough
            && gauge.available.saturating_add(listed) >= enough
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
            // While swap has room, working sets that do not fit cause swap-ins as well as file
            // refaults. File refaults without swap-ins come from streaming through files larger
            // than memory; no kill helps there. So refaults count only up to the number of
            // swap-ins.
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

    fn next_level(&self, now: &Gauge) -> Level {
        let Thresholds { kill, swap, .. } = self.thresholds;
        // Hysteresis: leaving a level takes more memory than entering it.
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
        // Swapping keeps up if background apps still have memory to swap, swap has room for it, and
        // tasks hardly stall.
        let gone_since = now.swapped_out.saturating_sub(self.swappable_at);
        let swappable = self
            .swappable
            .saturating_sub(gone_since.saturating_mul(PAGE));
        let room = now.swap_free.min(swappable);
        let keeps_up = room >= self.needed_room() && self.rates.stalled < STALLED;
        let close = now.available < kill * 2;
        let gone = close && now.left() <= soon;
        // What is left is page cache that is in use. Reclaim may find nothing to free in it, and
        // the kernel's OOM killer then acts although more than the kill threshold is available.
        let full = now.swap_total > 0 && nowhere;
        let fails = now.available <= kill.saturating_add(soon) || self.rates.stalled >= STALLED;

        if gone
            || (full && close && fails)
            || (nowhere && below(kill, Level::Exhausted))
            || (short && thrashed(THRASHED_LONG))
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

/// Whether `at` is less than [`SEVERE_FOR`] ago.
fn lately(at: Option<Duration>, now: Duration) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) < SEVERE_FOR)
}

/// Updates the mean over about the last [`CROWDED_OVER`] after `rate` has lasted for `lasted`.
fn mean(before: u64, rate: u64, lasted: Duration) -> u64 {
    let over = CROWDED_OVER.as_millis() as u64;
    let ms = u64::try_from(lasted.as_millis()).map_or(over, |ms| ms.min(over));
    (before.saturating_mul(over - ms)).saturating_add(rate.saturating_mul(ms)) / over
}

#[cfg(test)]
#[path = "shortage_tests.rs"]
mod tests;
