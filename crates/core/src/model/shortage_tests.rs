// SPDX-License-Identifier: GPL-2.0-or-later
//! Levels of shortage over time.

use super::*;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const MS: fn(u64) -> Duration = Duration::from_millis;

fn thresholds() -> Thresholds {
    derive_thresholds(256 * MIB, 2 * MIB)
}

fn gauge(ms: u64, available: u64, swap_free: u64) -> Gauge {
    Gauge {
        at: MS(ms),
        free: available / 2,
        available,
        swap_free,
        swap_total: 128 * MIB,
        ..Gauge::default()
    }
}

#[test]
fn thresholds_follow_memory_and_watermarks() {
    let small = thresholds();
    assert_eq!(small.kill / MIB, 6);
    assert_eq!(small.swap / MIB, 25);
    let large = derive_thresholds(64 << 30, 0);
    assert_eq!(large.kill, KILL_MOST);
    let tight = derive_thresholds(256 * MIB, 20 * MIB);
    assert_eq!((tight.kill / MIB, tight.swap / MIB), (20, 60));
}

proptest! {
    /// Above the kill threshold, the counters are read only when rates are due.
    #[test]
    fn old_paging_counters_change_nothing_between_two_measurements_of_rates(
        steps in prop::collection::vec((5u64..300, 7u64..60, 0u64..4000, 0u64..200), 1..40)
    ) {
        let mut fresh = Shortage::new(thresholds());
        let mut spared = fresh;
        let mut now = gauge(1, 100 * MIB, 64 * MIB);
        let mut read = now;
        for (ms, available, pages, stalled) in steps {
            now = Gauge {
                swapped_in: now.swapped_in + pages,
                swapped_out: now.swapped_out + pages / 2,
                refaulted: now.refaulted + pages / 3,
                some: now.some + MS(stalled),
                full: now.full + MS(stalled / 2),
                ..gauge(now.at.as_millis() as u64 + ms, available * MIB, 64 * MIB)
            };
            if spared.are_rates_due(now.at) || spared.level() >= Level::Low {
                read = now;
            }
            let old = Gauge {
                swapped_in: read.swapped_in,
                swapped_out: read.swapped_out,
                refaulted: read.refaulted,
                some: read.some,
                full: read.full,
                ..now
            };
            prop_assert_eq!(fresh.observe(now), spared.observe(old));
            prop_assert_eq!(fresh.rates(), spared.rates());
        }
    }
}

#[test]
fn levels_follow_the_memory_that_is_left() {
    let mut shortage = Shortage::new(thresholds());
    assert_eq!(
        shortage.observe(gauge(0, 100 * MIB, 128 * MIB)),
        Level::Plenty
    );
    assert_eq!(
        shortage.observe(gauge(1000, 20 * MIB, 128 * MIB)),
        Level::Swap
    );
    assert_eq!(
        shortage.observe(gauge(2000, 5 * MIB, 100 * MIB)),
        Level::Kill,
        "swap is free, but no app may be swapped"
    );
    shortage.set_swappable(100 * MIB, 0);
    assert_eq!(
        shortage.observe(gauge(2500, 5 * MIB, 100 * MIB)),
        Level::Low
    );
    let mut spent = gauge(2600, 5 * MIB, 100 * MIB);
    spent.swapped_out = 80 * MIB / 4096;
    assert_eq!(
        shortage.observe(spent),
        Level::Kill,
        "most swappable memory is swapped by now"
    );
    shortage.set_swappable(100 * MIB, spent.swapped_out);
    spent.at = MS(2700);
    assert_eq!(shortage.observe(spent), Level::Low);
    let mut waits = gauge(3000, 5 * MIB, 100 * MIB);
    waits.full = MS(300);
    assert_eq!(shortage.observe(waits), Level::Kill);
    let mut full = gauge(4000, 5 * MIB, 8 * MIB);
    full.full = waits.full;
    assert_eq!(shortage.observe(full), Level::Kill, "swap is nearly full");
    full.at = MS(5000);
    full.swap_free = MIB;
    assert_eq!(shortage.observe(full), Level::Exhausted);
    assert_eq!(shortage.since(), MS(5000));
}

#[test]
fn low_memory_without_swap_is_exhausted() {
    let mut shortage = Shortage::new(thresholds());
    let mut none = gauge(0, 5 * MIB, 0);
    none.swap_total = 0;
    assert_eq!(shortage.observe(none), Level::Exhausted);
}

#[test]
fn levels_have_hysteresis() {
    let mut shortage = Shortage::new(thresholds());
    shortage.observe(gauge(0, 24 * MIB, 128 * MIB));
    assert_eq!(
        shortage.observe(gauge(100, 28 * MIB, 128 * MIB)),
        Level::Swap
    );
    assert_eq!(
        shortage.observe(gauge(200, 35 * MIB, 128 * MIB)),
        Level::Plenty
    );
}

#[test]
fn memory_that_would_be_used_up_before_a_kill_is_exhausted() {
    let mut shortage = Shortage::new(thresholds());
    for step in 0..5 {
        shortage.observe(gauge(step * 20, (50 - step * 10) * MIB, 0));
    }
    // 500 MiB/s: 10 MiB last for 20 ms.
    assert_eq!(shortage.level(), Level::Exhausted);
}

/// Readings every 20 ms for one second, with `available(step)` bytes and tasks that are stalled for
/// `stalled` percent of the time.
fn second(available: impl Fn(u64) -> u64, swap_free: u64, stalled: u64) -> Shortage {
    let mut shortage = Shortage::new(thresholds());
    for step in 0..50 {
        let full = MS(step * 20 * stalled / 100);
        shortage.observe(Gauge {
            full,
            ..gauge(step * 20, available(step), swap_free)
        });
    }
    shortage
}

#[test]
fn stalls_with_full_swap_are_exhausted_before_the_oom_killer_acts() {
    let level = |available: u64, swap_free, stalled| {
        second(|_| available * MIB, swap_free, stalled).level()
    };
    assert_eq!(level(10, 0, 30), Level::Exhausted);
    assert_eq!(level(10, 0, 10), Level::Swap);
    assert_eq!(level(14, 0, 30), Level::Swap);
    assert_eq!(level(10, 64 * MIB, 30), Level::Swap);
}

#[test]
fn with_full_swap_a_fall_below_the_kill_threshold_is_anticipated() {
    // 60 MiB/s: the kill threshold of 6.4 MiB will be reached within 100 ms.
    let falls = |step: u64| 70 * MIB - step * 12 * MIB / 10;
    assert_eq!(second(falls, 0, 0).level(), Level::Exhausted);
    assert_eq!(second(falls, 64 * MIB, 0).level(), Level::Swap);
}

#[test]
fn stalls_with_memory_left_are_not_a_shortage() {
    let mut shortage = Shortage::new(thresholds());
    for step in 0..100 {
        let mut now = gauge(step * 100, 60 * MIB, 0);
        now.full = MS(step * 90);
        now.refaulted = step * 10_000;
        assert_eq!(shortage.observe(now), Level::Plenty);
    }
}

#[test]
fn thrashing_leads_to_a_kill_although_swap_is_free() {
    let mut shortage = Shortage::new(thresholds());
    let mut seen = Vec::new();
    for step in 0..120 {
        let mut now = gauge(step * 100, 20 * MIB, 100 * MIB);
        now.full = MS(step * 50);
        now.swapped_in = step * 1000;
        seen.push(shortage.observe(now));
    }
    assert_eq!(seen[3], Level::Swap);
    assert!(seen[..20].iter().all(|level| *level < Level::Kill));
    assert!(seen[..100].iter().all(|level| *level < Level::Exhausted));
    assert!(seen.contains(&Level::Kill));
    assert_eq!(seen.last(), Some(&Level::Exhausted));
}

#[test]
fn steady_paging_is_crowded_and_one_burst_is_not() {
    let mut shortage = Shortage::new(thresholds());
    let mut at = |second: u64, swapped_in_mib: u64| {
        let mut now = gauge(second * 1000, 40 * MIB, 100 * MIB);
        now.swapped_in = swapped_in_mib * 256;
        shortage.observe(now)
    };
    at(0, 0);
    // 15 MiB at once, then nothing.
    assert!((1..30).all(|second| at(second, 15) == Level::Plenty));
    // 12 MiB in every third second.
    let crowded = (30..90).any(|second| at(second, 15 + second / 3 * 12) == Level::Crowded);
    assert!(crowded);
    assert_eq!(at(150, 375), Level::Plenty, "paging has ended");
}

#[test]
fn files_read_again_and_again_are_crowding_only_without_room_in_swap() {
    let level = |swap_free: u64, swapped_in: u64| {
        let mut shortage = Shortage::new(thresholds());
        let mut level = Level::Plenty;
        for second in 0..60 {
            let mut now = gauge(second * 1000, 40 * MIB, swap_free);
            now.refaulted = second * 2000;
            now.swapped_in = second * swapped_in;
            level = shortage.observe(now);
        }
        level
    };
    // A copy of a file that is larger than memory.
    assert_eq!(level(100 * MIB, 20), Level::Plenty);
    // Swap is full.
    assert_eq!(level(0, 0), Level::Crowded);
    // Heap is paged as well.
    assert_eq!(level(100 * MIB, 500), Level::Crowded);
}

#[test]
fn shortage_is_over_after_calm_time_without_paging() {
    let mut shortage = Shortage::new(thresholds());
    shortage.observe(gauge(1000, 20 * MIB, 100 * MIB));
    assert!(!shortage.is_over(MS(100_000)), "memory is short");
    shortage.observe(gauge(2000, 60 * MIB, 100 * MIB));
    assert!(!shortage.is_over(MS(31_999)));
    assert!(shortage.is_over(MS(32_000)));
    for second in 3..60 {
        let mut now = gauge(second * 1000, 60 * MIB, 100 * MIB);
        now.swapped_in = second * 1000;
        shortage.observe(now);
    }
    assert!(!shortage.is_over(MS(60_000)), "still paging");
}

#[test]
fn one_spike_causes_one_kill() {
    let mut shortage = Shortage::new(thresholds());
    shortage.observe(gauge(0, 5 * MIB, 0));
    assert!(shortage.may_kill(MS(0)));
    shortage.killed(MS(0), 20 * MIB, 0);
    for ms in (20..1000).step_by(20) {
        shortage.observe(gauge(ms, 5 * MIB, 0));
        assert!(!shortage.may_kill(MS(ms)), "memory is being freed");
    }
    shortage.observe(gauge(1000, 5 * MIB, 0));
    assert!(shortage.may_kill(MS(1000)), "the wait is over");
    shortage.died(MS(1000));
    shortage.observe(gauge(1100, 5 * MIB, 0));
    assert!(!shortage.may_kill(MS(1100)), "an app died");
    assert!(shortage.may_kill(MS(1300)));
}

#[test]
fn exhausted_machine_kills_again_soon_after_memory_was_freed() {
    let mut shortage = Shortage::new(thresholds());
    let mut none = gauge(0, MIB, 0);
    shortage.observe(none);
    shortage.killed(MS(0), 20 * MIB, 0);
    none.at = MS(20);
    shortage.observe(none);
    shortage.freed(MS(20));
    assert!(!shortage.may_kill(MS(40)));
    assert!(shortage.may_kill(MS(60)));
    // With swap left, the usual settle time applies.
    shortage.set_swappable(100 * MIB, 0);
    let mut some = gauge(60, MIB, 100 * MIB);
    assert_eq!(shortage.observe(some), Level::Low);
    assert!(!shortage.may_kill(MS(60)));
    some.at = MS(260);
    shortage.observe(some);
    assert!(shortage.may_kill(MS(260)));
}

/// From a run in which the OOM killer acted: the victim waited for a processor, and another app took
/// all that the victim's release had freed before the victim exited.
#[test]
fn memory_that_has_come_back_counts_before_the_victim_exits() {
    let mut shortage = Shortage::new(thresholds());
    shortage.observe(gauge(0, MIB, 0));
    shortage.killed(MS(0), 2 * MIB, 8 * MIB);
    shortage.observe(gauge(10, 4 * MIB, 0));
    assert_eq!(shortage.freed_at(), None, "less than half came back");
    shortage.observe(gauge(20, 2 * MIB, 8 * MIB));
    assert_eq!(shortage.freed_at(), Some(MS(20)));
    shortage.observe(gauge(50, MIB, 0));
    assert!(!shortage.is_urgent(MS(50)));
    assert!(shortage.is_urgent(MS(60)));
    // An app that died by itself frees an unknown amount.
    shortage.died(MS(70));
    shortage.observe(gauge(80, 2 * MIB, 0));
    assert_eq!(shortage.freed_at(), None);
}

#[test]
fn freed_memory_in_per_cpu_lists_is_awaited() {
    let mut shortage = Shortage::new(thresholds());
    let mut reading = gauge(0, 4 * MIB, 0);
    shortage.observe(reading);
    let low = reading.free;
    assert!(
        !shortage.is_freed_memory_listed(20 * MIB, low),
        "no app died"
    );
    shortage.killed(MS(0), 8 * MIB, 0);
    assert!(!shortage.is_freed_memory_listed(20 * MIB, low), "not freed");
    shortage.freed(MS(20));
    assert!(shortage.is_freed_memory_listed(20 * MIB, low));
    assert!(!shortage.is_freed_memory_listed(MIB, low), "too little");
    assert!(!shortage.is_freed_memory_listed(20 * MIB, low + 1));
    reading.at = ARRIVAL;
    shortage.observe(reading);
    assert!(
        !shortage.is_freed_memory_listed(20 * MIB, low),
        "too long ago"
    );
}

fn readings() -> impl Strategy<Value = Vec<(u64, u64, u64, u64, u64)>> {
    let reading = (1u64..400, 0u64..300, 0u64..200, 0u64..500, 0u64..5000);
    prop::collection::vec(reading, 1..80)
}

#[test]
fn shortage_stays_severe_while_the_level_lasts_without_a_new_reading() {
    let mut shortage = Shortage::new(thresholds());
    assert_eq!(shortage.observe(gauge(0, 5 * MIB, 100 * MIB)), Level::Kill);
    let later = SEVERE_FOR * 2;
    assert!(shortage.is_severe(later) && shortage.is_low(later));
}

proptest! {
    /// At least the settle time passes between two kills, or the shorter one if memory is exhausted
    /// again after the first victim's memory came back. No kill happens while a quarter of memory
    /// is available, and the same readings give the same levels.
    #[test]
    fn kills_are_rate_limited(readings in readings()) {
        let (mut first, mut second) = (Shortage::new(thresholds()), Shortage::new(thresholds()));
        let (mut at, mut full, mut refaulted) = (0, 0, 0);
        let mut last_kill = None;
        for (passed, available, swap, stalled, pages) in readings {
            at += passed;
            full += stalled.min(passed);
            refaulted += pages;
            let mut now = gauge(at, available * MIB, swap * MIB);
            (now.full, now.refaulted) = (MS(full), refaulted);
            prop_assert_eq!(first.observe(now), second.observe(now));
            if !first.may_kill(MS(at)) {
                continue;
            }
            prop_assert!(now.available < thresholds().total / 4);
            if let Some(last) = last_kill {
                let came_back = first.is_urgent(MS(at)) && first.freed_at().is_some();
                let least = if came_back { BREATH } else { SETTLE };
                prop_assert!(MS(at - last) >= least);
            }
            last_kill = Some(at);
            first.killed(MS(at), 10 * MIB, 0);
            second.killed(MS(at), 10 * MIB, 0);
        }
    }
}
