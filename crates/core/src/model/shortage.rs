// SPDX-License-Identifier: GPL-2.0-or-later
//! How short the machine's memory is for all apps together: when to swap, and when to kill (SWAP).
//!
//! What is left counts, not how much anybody stalls: `MemAvailable` against two thresholds, swap
//! that is still free, and how fast both fall. Stalls count together with refaults and swap-ins:
//! that is a machine that has memory left on paper and works on nothing but its own paging.
//!
//! Nothing here allocates, so that whoever kills can ask while there is no memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Parts of memory, in thousandths, below which apps are swapped or killed.
const SWAP_PARTS: u64 = 100;
const KILL_PARTS: u64 = 25;
/// No machine needs more than this: what is left is for bursts, and those do not grow with it.
const KILL_MOST: u64 = 256 << 20;
/// A machine of any size needs this much.
const KILL_LEAST: u64 = 4 << 20;
/// The swap threshold is at least so many times the kill threshold.
const APART: u64 = 3;

/// Rates are taken over at least this long; the fall of what is left over less.
const RATE_OVER: Duration = Duration::from_millis(250);
const FALL_OVER: Duration = Duration::from_millis(20);
/// What would be gone in this time counts as gone: it is as long as a kill takes on a busy machine.
const AHEAD: Duration = Duration::from_millis(100);

/// A machine that stalls for this part of time, in percent, and reads back this part of its memory
/// a second, in thousandths, thrashes.
const STALLED: u64 = 20;
const READ_BACK: u64 = 20;
/// It has to thrash for so long before somebody is killed for it, and so long before anybody may be:
/// a large program that starts from a slow disk does so for seconds, and is over it then.
const THRASHED: Duration = Duration::from_secs(2);
const THRASHED_LONG: Duration = Duration::from_secs(10);

/// Reclaim into swap can keep up where it has so many times the kill threshold to move.
const ROOM: u64 = 4;

/// A machine that reads back this part of its memory a second, in thousandths, in the mean over
/// [`CROWDED_OVER`], and has this part of it left, is crowded: what its apps work with does not fit.
const CROWDED_BACK: u64 = 10;
const CROWDED_LEFT: u64 = 200;
const CROWDED_OVER: Duration = Duration::from_secs(20);

/// After so long with plenty of memory nothing waits for it any more: frozen apps run again, and the mean
/// over [`CROWDED_OVER`] has forgotten most of what was read back.
const OVER: Duration = Duration::from_secs(30);

/// A level ends when what is left is this much above its threshold, in quarters.
const LEAVE_QUARTERS: u64 = 5;

/// Nothing is killed for this long after an app died: its memory is on the way.
const SETTLE: Duration = Duration::from_millis(250);
/// The same where nothing is left at all and the dead one's memory is known to be free: whoever takes it
/// all the same would have the machine's last page before it has settled.
const BREATH: Duration = Duration::from_millis(40);
/// A kill whose memory does not arrive is waited for so long.
const ARRIVAL: Duration = Duration::from_secs(1);

const PAGE: u64 = 4096;

/// What is measured at one moment. Sizes in bytes.
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
    /// Time in which somebody stalled on memory, since boot (PSI `some total`).
    pub some: Duration,
    /// Time in which everybody stalled on memory, since boot (PSI `full total`).
    pub full: Duration,
    /// OOM kills since boot.
    pub oom_kills: u64,
}

impl Gauge {
    fn left(&self) -> u64 {
        self.available.saturating_add(self.swap_free)
    }
}

/// Bytes of available memory below which something is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Memory that apps can have, in bytes.
    pub total: u64,
    /// Apps may be killed.
    pub kill: u64,
    /// Apps are swapped.
    pub swap: u64,
}

impl Thresholds {
    /// For a machine with `total` bytes whose zones' high watermarks add up to `high`: a fortieth
    /// of memory to kill and a tenth to swap, and above what kswapd keeps free by itself.
    pub fn derive(total: u64, high: u64) -> Thresholds {
        let part = |parts| total / 1000 * parts;
        let kill = part(KILL_PARTS).max(high).clamp(KILL_LEAST, KILL_MOST);
        let swap = part(SWAP_PARTS).clamp(kill * APART, KILL_MOST * APART * 2);
        Thresholds { total, kill, swap }
    }
}

/// What the shortage of memory asks for.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing.
    #[default]
    Plenty,
    /// Apps are asked for memory, and swapped.
    Swap,
    /// Less is left than the kill threshold, but reclaim into swap keeps up with it: nobody may be
    /// killed but who takes memory without end.
    Low,
    /// Disposable apps may be killed: what the apps work with does not fit, and memory goes to and fro.
    Crowded,
    /// Disposable apps may be killed, and others frozen.
    Kill,
    /// Any app that may be killed at all may be: nothing is left to swap into, or swapping is all
    /// that the machine does.
    Exhausted,
}

impl Level {
    /// The name that it has everywhere.
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

/// How fast things change, a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    /// Part of the time in which everybody stalled on memory, in percent.
    pub stalled: u64,
    /// Bytes read back: refaults of files, and swap-ins.
    pub read_back: u64,
    /// The same in the mean over the last 20 s.
    pub crowding: u64,
    /// Bytes by which what is left (available memory and free swap) falls.
    pub falling: u64,
}

/// The last death that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Death {
    at: Duration,
    /// Bytes that it should bring, and what was available before it.
    expected: u64,
    available: u64,
    /// When its memory was seen to be free.
    freed: Option<Duration>,
}

/// After so long below [`Level::Low`] a kill has helped.
const RELIEF: Duration = Duration::from_secs(2);

/// What the choice of a victim depends on, at one moment. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Situation {
    /// What the shortage asks for.
    pub level: Level,
    /// When, since boot.
    pub at: Duration,
    /// Memory that apps can have.
    pub total: u64,
    /// Memory that is available.
    pub available: u64,
    /// Swap that is free.
    pub swap_free: u64,
    /// What is missing until nothing is short any more.
    pub shortfall: u64,
    /// Kills since memory was not short last: they have not helped.
    pub kills: u32,
}

/// Follows the gauge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shortage {
    thresholds: Thresholds,
    swappable: u64,
    /// `pswpout` when that was so.
    swappable_at: u64,
    level: Level,
    since: Duration,
    rates: Rates,
    last: Option<Gauge>,
    rated: Option<Gauge>,
    fell: Option<Gauge>,
    thrashes_since: Option<Duration>,
    death: Option<Death>,
    kills: u32,
    relieved_since: Option<Duration>,
}

impl Shortage {
    /// Plenty of memory, as far as is known.
    pub fn new(thresholds: Thresholds) -> Shortage {
        Shortage {
            thresholds,
            ..Shortage::default()
        }
    }

    /// Other thresholds from now on.
    pub fn set_thresholds(&mut self, thresholds: Thresholds) {
        self.thresholds = thresholds;
    }

    /// So many bytes of apps that are not in front might still go to swap when so many pages had gone there since
    /// boot (`pswpout`): what is kept out of it, and what is there already, is nothing that reclaim could take.
    pub fn set_swappable(&mut self, bytes: u64, swapped_out: u64) {
        self.swappable = bytes;
        self.swappable_at = swapped_out;
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The level now.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Since when, since boot.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// The last gauge; zeroes before the first.
    pub fn gauge(&self) -> Gauge {
        self.last.unwrap_or_default()
    }

    /// How fast things change.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Whether what the apps work with does not fit, whatever is left at the moment: memory goes to
    /// and fro.
    pub fn is_crowded(&self) -> bool {
        let total = self.thresholds.total;
        total > 0 && self.rates.crowding >= total / 1000 * CROWDED_BACK
    }

    /// Whether it may become short soon enough that the gauge must be read often.
    pub fn is_near(&self) -> bool {
        self.level != Level::Plenty || self.gauge().available < self.thresholds.swap * 2
    }

    /// Whether nothing is left of the last shortage that passes with time alone.
    pub fn is_over(&self, at: Duration) -> bool {
        let calm = at.saturating_sub(self.since) >= OVER;
        self.level == Level::Plenty && calm && !self.is_crowded()
    }

    /// Takes a gauge in. Returns the level.
    pub fn observe(&mut self, now: Gauge) -> Level {
        self.rate(now);
        let level = self.ask(&now);
        if level != self.level {
            self.since = now.at;
        }
        self.level = level;
        self.last = Some(now);
        if level >= Level::Low {
            self.relieved_since = None;
        } else if now
            .at
            .saturating_sub(*self.relieved_since.get_or_insert(now.at))
            >= RELIEF
        {
            self.kills = 0;
        }
        level
    }

    /// What the choice of a victim depends on now.
    pub fn situation(&self) -> Situation {
        let gauge = self.gauge();
        Situation {
            level: self.level,
            at: gauge.at,
            total: self.thresholds.total,
            available: gauge.available,
            swap_free: gauge.swap_free,
            shortfall: self.thresholds.swap.saturating_sub(gauge.available),
            kills: self.kills,
        }
    }

    /// An app was killed, from which `expected` bytes will come.
    pub fn killed(&mut self, at: Duration, expected: u64) {
        self.kills = self.kills.saturating_add(1);
        self.wait_for(at, expected);
    }

    fn wait_for(&mut self, at: Duration, expected: u64) {
        self.death = Some(Death {
            at,
            expected,
            available: self.gauge().available,
            freed: None,
        });
    }

    /// The memory of the app that was killed last is free, whoever has it now.
    pub fn freed(&mut self, at: Duration) {
        if let Some(death) = &mut self.death {
            death.freed = Some(at);
        }
    }

    /// An app died without our doing: what it had is on the way too.
    pub fn died(&mut self, at: Duration) {
        self.wait_for(at, 0);
    }

    /// Whether the level allows a kill and the last death has had its effect: a spike kills one
    /// app at most.
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
            let pages = now.refaulted.saturating_sub(rated.refaulted)
                + now.swapped_in.saturating_sub(rated.swapped_in);
            self.rates.read_back = per_second(pages.saturating_mul(PAGE), over(&rated));
            self.rates.crowding = mean(self.rates.crowding, self.rates.read_back, over(&rated));
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
        // Where a level is in force already, it takes more to leave it.
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
        // There is something to reclaim and swap for it, and nobody waits long for that.
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

/// The mean over the last [`CROWDED_OVER`], after `rate` for so long.
fn mean(before: u64, rate: u64, for_so_long: Duration) -> u64 {
    let over = CROWDED_OVER.as_millis() as u64;
    let ms = u64::try_from(for_so_long.as_millis()).map_or(over, |ms| ms.min(over));
    (before.saturating_mul(over - ms)).saturating_add(rate.saturating_mul(ms)) / over
}

#[cfg(test)]
#[path = "shortage_tests.rs"]
mod tests;
