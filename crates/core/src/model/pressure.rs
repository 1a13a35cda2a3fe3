// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory pressure, and the steps by which protection is lowered.
//!
//! Stalls alone do not lower protection: a background load that thrashes on its own pages stalls
//! all the time, and protection exists to keep the topmost app out of that thrashing. Protection is
//! lowered only if there are stalls or OOM kills and the machine has *nothing else left*: no free
//! memory, no memory that reclaim could take from other processes, and nothing that could still go
//! to free swap.

use std::time::Duration;

use super::footprint::Kept;

/// Number of steps from full protection to none.
pub const STEPS: u8 = 4;

/// Minimum time between two steps down, so that each step can take effect before the next.
const STEP_DOWN_EVERY: Duration = Duration::from_millis(400);

/// Before each step up, enough memory (twice `scarce()`) must have been left for this long.
const CALM: Duration = Duration::from_secs(10);

/// The machine stalls if all non-idle tasks wait for memory for more than this share of time, in
/// percent.
const STALL_PERCENT: u32 = 10;

/// The machine's memory. Sizes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total: u64,
    /// `MemFree`: memory available without any reclaim.
    pub free: u64,
    /// `MemAvailable`: free, or reclaimable without swapping if nothing were protected.
    pub available: u64,
    /// Memory that is free or that reclaim can reach: on one of its lists, reclaimable slab, or
    /// already in zram; 0 if the kernel does not report it.
    pub reachable: u64,
    /// The part of `reachable` that is in zram: the compressed pages. Reclaim cannot free it.
    pub compressed: u64,
    /// Anonymous memory and tmpfs that reclaim can reach; `None` if the kernel does not report it.
    pub anonymous: Option<u64>,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// `SwapFree`.
    pub swap_free: u64,
}

impl Memory {
    /// Memory that apps can get at all; all memory if the kernel does not report it. Memory held by
    /// the kernel, a driver or mlock() does not count: a share of it would let a reservation take
    /// the last pages of the other apps.
    pub fn usable(&self) -> u64 {
        match self.reachable {
            0 => self.total,
            reachable => reachable.min(self.total),
        }
    }
}

/// Measurements of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// When, since boot.
    pub at: Duration,
    /// The machine's memory.
    pub memory: Memory,
    /// Memory that the topmost app's reservation keeps from reclaim. [`Memory::available`] includes
    /// its page cache, although reclaim cannot take it.
    pub kept: Kept,
    /// Time since boot in which all non-idle tasks waited for memory (PSI `full total`); `None` on
    /// a kernel without PSI.
    pub stalled: Option<Duration>,
    /// Time since boot in which some task waited for memory (PSI `some total`); `None` on a kernel
    /// without PSI.
    pub waited: Option<Duration>,
    /// OOM kills since boot (`/proc/vmstat: oom_kill`).
    pub oom_kills: u64,
}

/// Tracks the pressure from readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressure {
    last: Option<Reading>,
    steps: u8,
    stepped_at: Option<Duration>,
    calm_since: Option<Duration>,
}

impl Pressure {
    /// Steps by which protection is lowered now, 0 to [`STEPS`].
    pub fn steps(&self) -> u8 {
        self.steps
    }

    /// Adds a reading. Returns whether the number of steps changed.
    pub fn observe(&mut self, now: Reading) -> bool {
        let before = self.steps;
        let Some(last) = self.last else {
            self.last = Some(now);
            return false;
        };
        let exhausted = left_for_others(&now) < scarce(&now.memory);
        let stalling = match (last.stalled, now.stalled) {
            (Some(then), Some(stalled)) => {
                let interval = now.at.saturating_sub(last.at);
                stalled.saturating_sub(then) * 100 > interval * STALL_PERCENT
            }
            // Without PSI, exhaustion is the only sign.
            _ => exhausted,
        };
        let killed = now.oom_kills > last.oom_kills;

        if exhausted && (stalling || killed) {
            self.calm_since = None;
            let settled = self
                .stepped_at
                .is_none_or(|then| now.at.saturating_sub(then) >= STEP_DOWN_EVERY);
            if settled && self.steps < STEPS {
                self.steps += 1;
                self.stepped_at = Some(now.at);
            }
        } else if left_for_others(&now) < 2 * scarce(&now.memory) {
            // Enough memory for the current step, too little to raise protection.
            self.calm_since = None;
        } else {
            let since = *self.calm_since.get_or_insert(now.at);
            if self.steps > 0 && now.at.saturating_sub(since) >= CALM {
                self.steps -= 1;
                self.calm_since = Some(now.at);
            }
        }
        // Two readings in quick succession (a PSI event right after a tick) give a meaningless
        // share of time. So an interval is extended until it has a minimum length.
        if now.at.saturating_sub(last.at) >= STEP_DOWN_EVERY / 4 {
            self.last = Some(now);
        }
        self.steps != before
    }
}

/// Bytes that processes other than the topmost app can still get. Free swap helps only as far as
/// unreserved memory can go there.
fn left_for_others(reading: &Reading) -> u64 {
    let memory = &reading.memory;
    let swappable = memory.anonymous.map_or(memory.swap_free, |anonymous| {
        anonymous
            .saturating_sub(reading.kept.rest)
            .min(memory.swap_free)
    });
    memory
        .available
        .saturating_sub(reading.kept.cache)
        .saturating_add(swappable)
}

/// The machine has nothing left if fewer than this many bytes are left: 2 % of memory, at least
/// 4 MiB.
fn scarce(memory: &Memory) -> u64 {
    (memory.total / 50).max(4 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn reading(at_ms: u64, available: u64, swap_free: u64, stalled_ms: u64) -> Reading {
        Reading {
            at: Duration::from_millis(at_ms),
            memory: Memory {
                total: 160 * MIB,
                free: available / 2,
                available,
                reachable: 150 * MIB,
                compressed: 0,
                anonymous: None,
                swap_total: 64 * MIB,
                swap_free,
            },
            kept: Kept::default(),
            stalled: Some(Duration::from_millis(stalled_ms)),
            waited: None,
            oom_kills: 0,
        }
    }

    #[test]
    fn stalls_do_not_lower_protection_while_memory_is_left() {
        let mut pressure = Pressure::default();
        for i in 0..100 {
            assert!(!pressure.observe(reading(i * 500, 30 * MIB, 0, i * 450)));
        }
        assert_eq!(pressure.steps(), 0);
    }

    #[test]
    fn stalls_do_not_lower_protection_while_swap_is_free() {
        let mut pressure = Pressure::default();
        for i in 0..100 {
            pressure.observe(reading(i * 500, 0, 20 * MIB, i * 450));
        }
        assert_eq!(pressure.steps(), 0);
    }

    #[test]
    fn protection_steps_down_when_nothing_is_left_and_up_after_calm() {
        let mut pressure = Pressure::default();
        pressure.observe(reading(0, MIB, 0, 0));
        assert!(pressure.observe(reading(500, MIB, 0, 400)));
        assert_eq!(pressure.steps(), 1);
        assert!(!pressure.observe(reading(600, MIB, 0, 500)), "too soon");
        for i in 0..20 {
            pressure.observe(reading(1000 + i * 500, MIB, 0, 900 + i * 400));
        }
        assert_eq!(pressure.steps(), STEPS);

        let stalled = 900 + 19 * 400;
        pressure.observe(reading(11_000, 100 * MIB, 0, stalled));
        assert!(!pressure.observe(reading(20_000, 100 * MIB, 0, stalled)));
        assert!(pressure.observe(reading(21_000, 100 * MIB, 0, stalled)));
        assert_eq!(pressure.steps(), STEPS - 1);
        assert!(
            !pressure.observe(reading(22_000, 100 * MIB, 0, stalled)),
            "each step up needs its own calm time"
        );
    }

    #[test]
    fn protected_cache_does_not_count_as_left_for_others() {
        let mut pressure = Pressure::default();
        let with = |at, stalled| Reading {
            kept: Kept {
                cache: 40 * MIB,
                rest: 0,
            },
            ..reading(at, 41 * MIB, 0, stalled)
        };
        pressure.observe(with(0, 0));
        assert!(pressure.observe(with(500, 400)));
    }

    #[test]
    fn free_swap_is_not_left_if_only_protected_memory_could_go_there() {
        let with = |at, anonymous, stalled| {
            let mut reading = reading(at, MIB, 40 * MIB, stalled);
            reading.memory.anonymous = Some(anonymous);
            reading.kept.rest = 30 * MIB;
            reading
        };
        let mut pressure = Pressure::default();
        pressure.observe(with(0, 50 * MIB, 0));
        assert!(!pressure.observe(with(500, 50 * MIB, 400)));
        assert!(pressure.observe(with(1000, 31 * MIB, 800)));
    }

    #[test]
    fn exhaustion_decides_without_psi() {
        let mut pressure = Pressure::default();
        let without = |at| Reading {
            stalled: None,
            ..reading(at, MIB, 0, 0)
        };
        pressure.observe(without(0));
        assert!(pressure.observe(without(500)));
    }
}
