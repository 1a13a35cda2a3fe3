// SPDX-License-Identifier: GPL-2.0-or-later
//! How long an app takes to answer, and how long it is therefore waited for.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::settings::WindowSettings;

/// Longest time that is told apart from longer ones.
const LONGEST_US: u64 = 60_000_000;

/// Significant decimal digits of what is kept: a figure is right to 1 %, in 10 KiB an app.
const DIGITS: u8 = 2;

/// An app is waited for so many times as long as it takes.
const PATIENCE: u32 = 4;

/// Each quick answer takes this part off the patience that was too long.
const CALMER: u32 = 16;

/// An app that answers at once is waited for this long, or for the configured deadline where that
/// is shorter.
const DEADLINE_MIN: Duration = Duration::from_millis(100);

/// The answers of one app.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u32>,
    /// How long the next answer is waited for, before bounds.
    reach: Duration,
}

/// Figures of a [`Latency`], right to 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Percentiles {
    /// Half of the answers took no longer.
    pub p50: Duration,
    /// 95 of 100.
    pub p95: Duration,
    /// 99 of 100.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Latency {
    /// Nothing is known yet: the configured deadline holds.
    #[allow(clippy::expect_used, reason = "the bounds are constants")]
    pub fn new(settings: &WindowSettings) -> Latency {
        Latency {
            histogram: Histogram::new_with_bounds(1, LONGEST_US, DIGITS)
                .expect("1 us to 60 s with two digits is a histogram"),
            reach: settings.deadline,
        }
    }

    /// An answer that took this long. A slow one makes the next deadline longer at once, quick ones
    /// make it shorter little by little.
    pub fn observe(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(us.max(1));
        let wanted = took.saturating_mul(PATIENCE);
        self.reach = match self.reach.checked_sub(wanted) {
            Some(too_long) => self.reach - too_long / CALMER,
            None => wanted,
        };
    }

    /// How long the next answer is waited for.
    pub fn deadline(&self, settings: &WindowSettings) -> Duration {
        let least = settings.deadline.min(DEADLINE_MIN);
        self.reach.clamp(least, settings.deadline_max.max(least))
    }

    /// How many answers there were.
    pub fn answers(&self) -> u64 {
        self.histogram.len()
    }

    /// Their figures; all 0 when there were none.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| Duration::from_micros(self.histogram.value_at_quantile(quantile));
        if self.histogram.is_empty() {
            return Percentiles::default();
        }
        Percentiles {
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            max: Duration::from_micros(self.histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn percentiles_are_those_of_what_was_observed() {
        let settings = WindowSettings::default();
        let mut latency = Latency::new(&settings);
        assert_eq!(latency.percentiles(), Percentiles::default());
        for ms in 1..=100 {
            latency.observe(MS(ms));
        }
        let seen = latency.percentiles();
        for (figure, ms) in [
            (seen.p50, 50),
            (seen.p95, 95),
            (seen.p99, 99),
            (seen.max, 100),
        ] {
            let off = figure.abs_diff(MS(ms));
            assert!(off <= MS(ms) / 100, "{figure:?} for {ms} ms");
        }
        assert_eq!(latency.answers(), 100);
    }

    #[test]
    fn one_slow_answer_is_enough_and_many_quick_ones_make_it_calm_again() {
        let settings = WindowSettings::default();
        let mut latency = Latency::new(&settings);
        assert_eq!(latency.deadline(&settings), MS(500));
        latency.observe(MS(700));
        assert_eq!(latency.deadline(&settings), MS(2800));
        latency.observe(MS(9000));
        assert_eq!(latency.deadline(&settings), settings.deadline_max);
        for _ in 0..200 {
            latency.observe(MS(40));
        }
        let calm = latency.deadline(&settings);
        assert!(calm >= MS(160) && calm < MS(165), "{calm:?}");
        for _ in 0..200 {
            latency.observe(MS(2));
        }
        assert_eq!(latency.deadline(&settings), DEADLINE_MIN);
    }

    #[test]
    fn a_day_is_counted_as_a_minute() {
        let mut latency = Latency::new(&WindowSettings::default());
        latency.observe(Duration::from_secs(86_400));
        latency.observe(Duration::ZERO);
        let longest = latency.percentiles().max;
        assert!(longest >= Duration::from_secs(60) && longest < Duration::from_secs(68));
        assert_eq!(latency.answers(), 2);
    }

    proptest! {
        #[test]
        fn the_deadline_stays_within_its_bounds(
            base in 10..10_000u64,
            max in 10..10_000u64,
            answers in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let settings = WindowSettings {
                deadline: MS(base),
                deadline_max: MS(max),
                ..WindowSettings::default()
            };
            let mut latency = Latency::new(&settings);
            for &us in &answers {
                latency.observe(Duration::from_micros(us));
                let deadline = latency.deadline(&settings);
                prop_assert!(deadline >= MS(base).min(DEADLINE_MIN));
                prop_assert!(deadline <= MS(max).max(MS(base).min(DEADLINE_MIN)));
            }
            prop_assert_eq!(latency.answers(), answers.len() as u64);
        }
    }
}
