// SPDX-License-Identifier: GPL-2.0-or-later
//! Schedules updates of the topmost app's reservation between two ticks, for which the app alone is
//! measured. While memory is short, the ancestors of the app's cgroup reserve little more than the
//! app uses, so their reservations must follow its growth. The first updates are frequent, because
//! an app that becomes topmost again takes its memory within less than a second. An update that
//! raises the reservation leads to further updates if reclaim may take what the app grows by.

use std::time::Duration;

use limelight_core::model::shortage::Level;

/// First and last delay before an update. Each delay is twice the previous one. After the last
/// update the periodic tick takes over.
const FIRST: Duration = Duration::from_millis(8);
const LAST: Duration = Duration::from_millis(256);
/// Delay while the app grows and reclaim may take what it grows by. A measurement takes a fraction
/// of a millisecond, and the reservation's headroom is at least 8 MiB.
const GROWING: Duration = Duration::from_millis(64);

/// The schedule of the updates: the time of the next one, and the delay before it.
#[derive(Debug, Default)]
pub struct ReservationTracker {
    next: Option<(Duration, Duration)>,
}

impl ReservationTracker {
    /// Time of the next update, since boot; `None`: none is scheduled.
    pub fn next_look(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    /// Schedules the updates if memory is short, unless an update is scheduled already. Called when
    /// the topmost app is about to take memory, or memory has become short.
    pub fn begin(&mut self, level: Level, at: Duration) {
        self.look_after(FIRST, level, at);
    }

    /// Schedules one update if memory is short, unless an update is scheduled already. Called after
    /// input, which may make the app grow. The update comes late enough not to disturb the app's
    /// response.
    pub fn follow_use(&mut self, level: Level, at: Duration) {
        self.look_after(LAST, level, at);
    }

    /// Schedules an update. Called when the app waits for a file: its page cache grows, or it needs
    /// pages that were evicted, which happens before memory counts as short. `contested`: whether
    /// reclaim may take what the app grows by.
    pub fn follow_reads(&mut self, contested: bool, at: Duration) {
        let pause = match contested {
            true => GROWING,
            false => LAST,
        };
        self.look_within(pause, at);
    }

    /// Schedules updates after one that raised the reservation, until the app stops growing.
    pub fn follow_growth(&mut self, at: Duration) {
        self.look_within(GROWING, at);
    }

    fn look_within(&mut self, pause: Duration, at: Duration) {
        let due = at + pause;
        if self.next.is_none_or(|(next, _)| next > due) {
            self.next = Some((due, pause));
        }
    }

    fn look_after(&mut self, pause: Duration, level: Level, at: Duration) {
        if level > Level::Plenty {
            self.next.get_or_insert((at + pause, pause));
        }
    }

    /// Returns whether an update is due. If so, schedules the next one.
    pub fn take(&mut self, now: Duration) -> bool {
        let Some((_, pause)) = self.next.filter(|(at, _)| *at <= now) else {
            return false;
        };
        self.next = (pause < LAST).then_some((now + pause * 2, pause * 2));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of all updates in milliseconds. The first `raises` of them raise the reservation.
    fn updates(mut tracker: ReservationTracker, mut raises: u32) -> Vec<u128> {
        let mut times = Vec::new();
        while let Some(at) = tracker.next_look() {
            assert!(tracker.take(at));
            times.push(at.as_millis());
            if raises > 0 {
                raises -= 1;
                tracker.follow_growth(at);
            }
        }
        times
    }

    #[test]
    fn updates_continue_while_the_app_grows_and_then_become_rare_and_end() {
        let mut tracker = ReservationTracker::default();
        tracker.follow_growth(Duration::ZERO);
        assert_eq!(updates(tracker, 3), [64, 128, 192, 256, 384, 640]);
    }

    #[test]
    fn growth_does_not_postpone_an_update() {
        let mut tracker = ReservationTracker {
            next: Some((Duration::from_millis(8), FIRST)),
        };
        tracker.follow_growth(Duration::ZERO);
        assert_eq!(tracker.next_look(), Some(Duration::from_millis(8)));
        assert_eq!(updates(tracker, 0), [8, 24, 56, 120, 248, 504]);
    }
}
