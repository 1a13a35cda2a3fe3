// SPDX-License-Identifier: GPL-2.0-or-later
//! When the daemon plans because time has passed. A tick costs milliseconds of CPU time, which the
//! topmost app could have used, and wakes a machine that is idle. Ticks without effect therefore
//! become rare.

use std::time::Duration;

use limelight_core::model::shortage::Level;

/// Initial interval between searches for cgroups of ended apps while no app is topmost.
pub const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// After each `QUIET_TICKS` ticks without effect, the configured interval is multiplied by the next
/// factor of `PATIENCE`. Threads and children that the app creates meanwhile inherit its settings,
/// and a memory shortage wakes the daemon anyway.
const QUIET_TICKS: u32 = 2;
const PATIENCE: [u32; 4] = [1, 4, 32, 256];

/// Largest factor while the user may change the tab of a terminal, or run another command in it.
const TAB_PATIENCE: u32 = 4;

/// Largest factor while memory is short. A tick then finds an app that grows in the foreground, and
/// a background job that has begun or ended, before the next scan does.
const SHORT_PATIENCE: u32 = 4;

/// Whether the topmost app has tabs with terminals, and how the daemon learns that they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tabs {
    /// It has none.
    None,
    /// A source reports input, and so tells when the tab may have changed.
    Heard,
    /// No source reports input.
    Unheard,
}

/// The schedule.
#[derive(Debug, Default)]
pub struct Ticks {
    /// Time of the next tick, since boot.
    pub next: Duration,
    /// Consecutive ticks without effect.
    quiet: u32,
    /// The last level that was told.
    level: Level,
}

impl Ticks {
    /// The first tick is due at `at`.
    pub fn starting_at(at: Duration) -> Ticks {
        Ticks {
            next: at,
            ..Ticks::default()
        }
    }

    /// Counts a plan: whether it was a tick without effect.
    pub fn count(&mut self, quiet: bool) {
        self.quiet = match quiet {
            true => self.quiet.saturating_add(1),
            false => 0,
        };
    }

    /// Factor by which the next tick may be later than configured. `told`: a PSI trigger reports
    /// shortages, and no protection is lowered; so, while the app does not change, a tick finds
    /// nothing new.
    pub fn patience(&self, told: bool, tabs: Tabs, level: Level) -> u32 {
        let stage = (self.quiet / QUIET_TICKS) as usize;
        let factor = PATIENCE.get(stage).or(PATIENCE.last()).filter(|_| told);
        let for_tabs = match tabs {
            Tabs::Unheard => TAB_PATIENCE,
            Tabs::None | Tabs::Heard => u32::MAX,
        };
        let for_shortage = match level {
            Level::Plenty => u32::MAX,
            _ => SHORT_PATIENCE,
        };
        factor.map_or(1, |factor| *factor.min(&for_tabs).min(&for_shortage))
    }

    /// Ticks within `interval` from `at` on, and again and again, if memory has become shorter than
    /// it was: the topmost app must be measured soon.
    pub fn follow_shortage(&mut self, level: Level, at: Duration, interval: Duration) {
        let before = std::mem::replace(&mut self.level, level);
        if level > before {
            self.quiet = 0;
            self.next = self.next.min(at + interval);
        }
    }

    /// The user has used the topmost app, and may have changed its tab.
    pub fn follow_use(&mut self, at: Duration, interval: Duration, tabs: Tabs) {
        if tabs == Tabs::None {
            return;
        }
        self.quiet = self.quiet.min(QUIET_TICKS);
        self.next = self.next.min(at + interval * TAB_PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    /// Makes ticks without effect until `until`, and returns their number.
    fn idle(ticks: &mut Ticks, until: Duration, tabs: Tabs) -> usize {
        let mut number = 0;
        while ticks.next < until {
            number += 1;
            ticks.count(true);
            ticks.next += INTERVAL * ticks.patience(true, tabs, Level::Plenty);
        }
        number
    }

    #[test]
    fn while_memory_is_short_a_tick_comes_within_four_intervals() {
        let mut schedule = Ticks::default();
        let factors: Vec<u32> = (0..100)
            .map(|_| {
                schedule.count(true);
                schedule.patience(true, Tabs::None, Level::Low)
            })
            .collect();
        assert_eq!(factors.first(), Some(&1));
        assert_eq!(factors.iter().max(), Some(&4));
        assert_eq!(factors.last(), Some(&4));
        assert_eq!(schedule.patience(true, Tabs::None, Level::Plenty), 256);
    }

    #[test]
    fn idle_terminal_whose_input_is_heard_costs_no_more_than_another_app() {
        let hour = Duration::from_secs(3600);
        let count = |tabs| idle(&mut Ticks::default(), hour, tabs);
        assert_eq!(count(Tabs::Heard), count(Tabs::None));
        assert!(count(Tabs::None) < 40, "{}", count(Tabs::None));
        assert!(count(Tabs::Unheard) > 1000);
    }

    #[test]
    fn use_of_a_terminal_is_followed_within_four_intervals() {
        let mut schedule = Ticks::default();
        idle(&mut schedule, Duration::from_secs(600), Tabs::Heard);
        let at = Duration::from_secs(601);
        assert!(schedule.next > at + INTERVAL * 8);
        schedule.follow_use(at, INTERVAL, Tabs::None);
        assert!(schedule.next > at + INTERVAL * 8);
        schedule.follow_use(at, INTERVAL, Tabs::Heard);
        assert_eq!(schedule.next, at + INTERVAL * 4);
        // Typing without end does not tick more often than that.
        schedule.follow_use(at + INTERVAL, INTERVAL, Tabs::Heard);
        assert_eq!(schedule.next, at + INTERVAL * 4);
        schedule.count(true);
        assert_eq!(schedule.patience(true, Tabs::Heard, Level::Plenty), 4);
    }

    #[test]
    fn shortage_and_lowered_protection_end_the_patience() {
        let mut schedule = Ticks::default();
        idle(&mut schedule, Duration::from_secs(600), Tabs::None);
        assert_eq!(schedule.patience(true, Tabs::None, Level::Plenty), 256);
        assert_eq!(schedule.patience(false, Tabs::None, Level::Plenty), 1);
        let at = Duration::from_secs(601);
        schedule.follow_shortage(Level::Swap, at, INTERVAL);
        assert_eq!(schedule.next, at + INTERVAL);
        assert_eq!(schedule.patience(true, Tabs::None, Level::Swap), 1);
    }

    /// The guard and the swapper report several times in each launch.
    #[test]
    fn reports_during_a_shortage_do_not_end_the_patience() {
        let mut schedule = Ticks::default();
        let mut at = Duration::from_secs(1);
        schedule.follow_shortage(Level::Swap, at, INTERVAL);
        for _ in 0..QUIET_TICKS {
            schedule.count(true);
        }
        schedule.next = at + INTERVAL * 4;
        let next = schedule.next;
        at += INTERVAL;
        for level in [Level::Swap, Level::Plenty] {
            schedule.follow_shortage(level, at, INTERVAL);
            assert_eq!(schedule.next, next);
            assert_eq!(schedule.patience(true, Tabs::None, level), 4);
        }
        schedule.follow_shortage(Level::Low, at, INTERVAL);
        assert_eq!(schedule.next, at + INTERVAL);
        assert_eq!(schedule.patience(true, Tabs::None, Level::Low), 1);
    }
}
