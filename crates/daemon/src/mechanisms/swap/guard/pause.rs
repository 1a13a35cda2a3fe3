// SPDX-License-Identifier: GPL-2.0-or-later
//! Determines how long the guard may sleep because memory cannot run out before that.

use std::time::Duration;

use limelight_sys::gauge::Memory;
use limelight_sys::psi::Trigger;

use crate::mechanisms::swap::guard::WINDOW;

/// Shortest and longest interval of the clock that reads the gauge.
pub const OFTEN: Duration = Duration::from_millis(10);
pub const SELDOM: Duration = Duration::from_secs(1);
/// Interval if a stall or the alarm warns before memory is gone. It is long so that the guard
/// rarely wakes an idle machine.
pub const HARDLY: Duration = Duration::from_secs(60);

/// Longest interval between readings of the gauge once [`Level::Low`] has lasted for a while:
/// swapping keeps up, so no kill is urgent. It is longer than [`OFTEN`], because each reading may
/// also measure every armed app.
///
/// [`Level::Low`]: limelight_core::model::shortage::Level::Low
const LOW: Duration = Duration::from_millis(100);

/// The kernel reports a stall within the window's length divided by this number, and the first
/// reclaim counts as a stall. A process that may not use the shortest window (CAP_SYS_RESOURCE)
/// receives the report at the window's end.
const TOLD_PART: u32 = 10;

/// Assumed limits: the time to fill all of a machine's memory is at least `FILLED`, and at most
/// `TAKEN` bytes are filled per second.
const FILLED: Duration = Duration::from_millis(160);
const TAKEN: u64 = 4 << 30;

/// What the guard relies on to end its sleep in time. A stall or the event loop may end it earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The clock, after this time.
    Clock(Duration),
    /// A stall, or the clock after this time.
    Told(Duration),
    /// The alarm after tasks have run for `time`, or the clock after `most`.
    Work { time: Duration, most: Duration },
}

/// Shortest time in which `headroom` bytes can be taken, on a machine with `total` bytes of memory.
pub fn taken_in(headroom: u64, total: u64) -> Duration {
    Duration::from_millis(headroom / per_ms(total))
}

/// Clamps a time to the range of the clock's interval.
pub fn clock(time: Duration) -> Duration {
    time.clamp(OFTEN, SELDOM)
}

/// Interval of the clock while swapping keeps up: [`LOW`], or less if swap may be full before that.
pub fn until_full(memory: Memory) -> Duration {
    clock(taken_in(memory.swap_free, memory.total)).min(LOW)
}

/// Whether memory is being taken: the headroom fell by more than a sixteenth.
pub fn falls(before: u64, now: u64) -> bool {
    now < before - before / 16
}

/// Maximum number of bytes that can be taken within a millisecond.
fn per_ms(total: u64) -> u64 {
    (total / FILLED.as_millis() as u64).clamp(1, TAKEN / 1000)
}

/// How long after a stall the kernel reports it.
pub fn told_within(trigger: &Trigger) -> Duration {
    match trigger.window() {
        window if window <= WINDOW => window / TOLD_PART,
        window => window,
    }
}

/// Whether the kernel reports a stall early enough, given that it reports one within `told`. Memory
/// that is available but not free must be reclaimed before the threshold is reached, and the first
/// reclaim counts as a stall.
pub fn is_told(headroom: u64, memory: Memory, told: Duration) -> bool {
    let others = memory.free.saturating_add(memory.pinned);
    let reclaimed = headroom.min(memory.available.saturating_sub(others));
    // Twice the time, because the rate is a guess.
    let taken = per_ms(memory.total).saturating_mul(told.as_millis() as u64 * 2);
    reclaimed > taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_warns_in_time_where_memory_must_be_reclaimed_first() {
        const GIB: u64 = 1 << 30;
        let memory = |free, available| Memory {
            total: 8 * GIB,
            free,
            available,
            ..Memory::default()
        };
        let late = is_told(4 * GIB, memory(GIB, 4 * GIB), Duration::from_secs(2));
        assert!(!late, "a report two seconds late counts as in time");
        let is_told = |headroom, memory| is_told(headroom, memory, WINDOW / TOLD_PART);
        assert!(is_told(4 * GIB, memory(GIB, 4 * GIB)));
        assert!(
            !is_told(4 * GIB, memory(4 * GIB - GIB / 4, 4 * GIB)),
            "a stall is expected although nearly all available memory is free"
        );
        assert!(
            !is_told(GIB / 4, memory(0, 4 * GIB)),
            "a stall is expected in time although the threshold is near"
        );
        let caches = Memory {
            pinned: 3 * GIB,
            ..memory(GIB, 4 * GIB)
        };
        assert!(
            !is_told(4 * GIB, caches),
            "caches in use count as reclaimable"
        );
        let phone = Memory {
            total: GIB,
            free: 0,
            available: GIB / 4,
            ..Memory::default()
        };
        assert!(
            !is_told(GIB / 4, phone),
            "a stall is expected in time for memory that may be gone at once"
        );
    }

    #[test]
    fn headroom_falls_when_it_shrinks_by_more_than_a_sixteenth() {
        assert!(!falls(0, 0) && !falls(0, 100) && !falls(100, 100));
        assert!(!falls(160, 150) && falls(160, 149));
    }

    #[test]
    fn clock_ticks_faster_while_swap_may_soon_be_full() {
        const MIB: u64 = 1 << 20;
        let swap = |swap_free| Memory {
            total: 256 * MIB,
            swap_free,
            ..Memory::default()
        };
        assert_eq!(until_full(swap(256 * MIB)), LOW);
        // A tenth of memory is taken in 16 ms.
        let soon = until_full(swap(26 * MIB));
        assert!(soon <= LOW / 4, "{soon:?}");
        assert_eq!(until_full(swap(0)), OFTEN);
    }

    #[test]
    fn clock_ticks_faster_near_the_threshold() {
        const MIB: u64 = 1 << 20;
        let patience = |headroom, total| clock(taken_in(headroom, total));
        assert_eq!(patience(0, 256 * MIB), OFTEN);
        assert_eq!(patience(128 * MIB, 256 * MIB), FILLED / 2);
        // A larger machine does not fill more than 4 GiB a second.
        let large = patience(1024 * MIB, 64 << 30);
        assert!((240..=260).contains(&large.as_millis()), "{large:?}");
        assert_eq!(patience(1024 * MIB, 256 * MIB), FILLED * 4);
        assert_eq!(patience(u64::MAX, 1), SELDOM);
        assert_eq!(patience(0, 0), OFTEN);
    }
}
