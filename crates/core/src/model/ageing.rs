// SPDX-License-Identifier: GPL-2.0-or-later
//! Ageing of protection.
//!
//! If the user leaves an app in front and goes to lunch, the app does not use its protected memory,
//! while other programs wait for memory. The budget of `protect` therefore shrinks with the time
//! that passes under pressure without a response window, and is whole again with the next window.

use std::time::Duration;

/// Time under pressure without a response window that costs one step.
const STEP_EVERY: Duration = Duration::from_secs(300);

/// An interval counts if some task waited for memory for at least this share of it, in percent.
const PRESSURE_PERCENT: u32 = 5;

/// Shortest interval to judge. Work in bursts waits for memory in a small part of the time only, so
/// the share is an average over its pauses.
const SHORTEST: Duration = Duration::from_secs(60);

/// The budget does not shrink below this, in percent of memory.
const LEAST_PERCENT: u8 = 15;

/// Time that the topmost app has been unused under pressure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ageing {
    /// Whether a response window was ever reported. Without reports, use cannot be observed.
    hears_windows: bool,
    /// The last observation that ended an interval: time since boot, and time in which some task
    /// waited for memory.
    last: Option<(Duration, Duration)>,
    pressed: Duration,
}

impl Ageing {
    /// Notes that a response window is open. Returns whether protection had aged.
    pub fn window(&mut self) -> bool {
        self.hears_windows = true;
        let aged = self.steps() > 0;
        self.restart();
        aged
    }

    /// Notes that another app, or none, is topmost.
    pub fn restart(&mut self) {
        self.last = None;
        self.pressed = Duration::ZERO;
    }

    /// Adds an observation at time `at` since boot. `waited`: time since boot in which some task
    /// waited for memory (PSI `some total`); `None` on a kernel without PSI, where nothing ages.
    pub fn observe(&mut self, at: Duration, waited: Option<Duration>) {
        let Some(waited) = waited.filter(|_| self.hears_windows) else {
            return;
        };
        let Some((then, before)) = self.last else {
            self.last = Some((at, waited));
            return;
        };
        let interval = at.saturating_sub(then);
        if interval < SHORTEST {
            return;
        }
        if waited.saturating_sub(before) * 100 >= interval * PRESSURE_PERCENT {
            self.pressed += interval;
        }
        self.last = Some((at, waited));
    }

    /// Steps by which protection has aged.
    pub fn steps(&self) -> u8 {
        let steps = self.pressed.as_secs() / STEP_EVERY.as_secs();
        u8::try_from(steps).unwrap_or(u8::MAX)
    }
}

/// A budget of `percent` after `steps` steps: each step takes a quarter of it, down to
/// [`LEAST_PERCENT`]. A smaller budget does not shrink.
pub fn aged(percent: u8, steps: u8) -> u8 {
    let least = percent.min(LEAST_PERCENT);
    let mut left = percent;
    for _ in 0..steps {
        if left == least {
            break;
        }
        left = (left - left.div_ceil(4)).max(least);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    /// Observes `seconds` from `from` on, every 10 s, with some task waiting for `percent` of them.
    fn pass(ageing: &mut Ageing, from: u64, seconds: u64, percent: u64) {
        for at in (from..=from + seconds).step_by(10) {
            ageing.observe(S(at), Some(Duration::from_millis(at * 10 * percent)));
        }
    }

    /// A program that waits for memory for 8 s in each minute, observed every second.
    #[test]
    fn bursts_of_pressure_count_as_their_average() {
        let mut ageing = Ageing::default();
        ageing.window();
        let mut waited = 0;
        for at in 0..=660 {
            ageing.observe(S(at), Some(S(waited)));
            waited += u64::from(at % 60 < 8);
        }
        assert_eq!(ageing.steps(), 2);
    }

    #[test]
    fn protection_ages_by_a_step_per_five_minutes_of_pressure() {
        let mut ageing = Ageing::default();
        ageing.window();
        pass(&mut ageing, 0, 290, 90);
        assert_eq!(ageing.steps(), 0);
        pass(&mut ageing, 290, 10, 90);
        assert_eq!(ageing.steps(), 1);
        pass(&mut ageing, 300, 900, 90);
        assert_eq!(ageing.steps(), 4);
    }

    #[test]
    fn protection_does_not_age_without_pressure() {
        let mut ageing = Ageing::default();
        ageing.window();
        pass(&mut ageing, 0, 3600, 4);
        assert_eq!(ageing.steps(), 0);
    }

    #[test]
    fn protection_does_not_age_where_windows_are_not_reported() {
        let mut ageing = Ageing::default();
        pass(&mut ageing, 0, 3600, 90);
        assert_eq!(ageing.steps(), 0);
    }

    #[test]
    fn protection_does_not_age_without_psi() {
        let mut ageing = Ageing::default();
        ageing.window();
        ageing.observe(S(0), None);
        ageing.observe(S(3600), None);
        assert_eq!(ageing.steps(), 0);
    }

    #[test]
    fn window_and_focus_change_restore_protection() {
        let mut ageing = Ageing::default();
        ageing.window();
        pass(&mut ageing, 0, 600, 90);
        assert!(ageing.window());
        assert_eq!(ageing.steps(), 0);
        assert!(!ageing.window());
        pass(&mut ageing, 600, 600, 90);
        assert_eq!(ageing.steps(), 2);
        ageing.restart();
        assert_eq!(ageing.steps(), 0);
    }

    #[test]
    fn budget_shrinks_by_quarters_to_its_floor() {
        let budgets = [0, 1, 2, 3, 4, 5, 6, 200].map(|steps| aged(60, steps));
        assert_eq!(budgets, [60, 45, 33, 24, 18, 15, 15, 15]);
        assert_eq!(aged(10, 9), 10);
    }

    proptest! {
        #[test]
        fn budget_never_grows_with_age(percent in 1..=90u8, steps in 0..100u8) {
            let (now, later) = (aged(percent, steps), aged(percent, steps + 1));
            prop_assert!(later <= now && later >= percent.min(LEAST_PERCENT));
            prop_assert_eq!(aged(percent, 0), percent);
        }
    }
}
