// SPDX-License-Identifier: GPL-2.0-or-later
//! Response times of an app, and the deadline that follows from them.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::settings::WindowSettings;

/// Upper bound of recorded times, in microseconds; longer times are recorded as this value.
const LONGEST_US: u64 = 60_000_000;

/// Significant decimal digits of recorded times. Two digits are accurate to 1 % and take 10 KiB per
/// app.
const DIGITS: u8 = 2;

/// The deadline is this multiple of the response time.
const PATIENCE: u32 = 4;

/// Reciprocal of the share by which each quick answer reduces the deadline's excess over
/// [`PATIENCE`] times the response time.
const CALMER: u32 = 16;

/// Shortest deadline of a quick app, unless the configured deadline is shorter.
const DEADLINE_MIN: Duration = Duration::from_millis(100);

/// Response times of one app.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u32>,
    /// Deadline for the next answer, before clamping.
    reach: Duration,
}

/// Percentiles of a [`Latency`], accurate to 1 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Percentiles {
    /// 50th percentile.
    pub p50: Duration,
    /// 95th percentile.
    pub p95: Duration,
    /// 99th percentile.
    pub p99: Duration,
    /// Maximum.
    pub max: Duration,
}

impl Latency {
    /// Starts without answers, with the configured deadline.
    #[allow(clippy::expect_used, reason = "the bounds are constants")]
    pub fn new(settings: &WindowSettings) -> Latency {
        Latency {
            histogram: Histogram::new_with_bounds(1, LONGEST_US, DIGITS)
                .expect("1 us to 60 s with two digits is a histogram"),
            reach: settings.deadline,
        }
    }

    /// Adds an answer. A slow answer extends the next deadline at once, quick answers shorten it
    /// gradually.
    pub fn observe(&mut self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(us.max(1));
        let wanted = took.saturating_mul(PATIENCE);
        self.reach = match self.reach.checked_sub(wanted) {
            Some(too_long) => self.reach - too_long / CALMER,
            None => wanted,
        };
    }

    /// Deadline for the next answer.
    pub fn deadline(&self, settings: &WindowSettings) -> Duration {
        let least = settings.deadline.min(DEADLINE_MIN);
        self.reach.clamp(least, settings.deadline_max.max(least))
    }

    /// Number of answers.
    pub fn answers(&self) -> u64 {
        self.histogram.len()
    }

    /// Percentiles of the answers; all 0 if there are none.
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
    fn percentiles_match_the_observed_times() {
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
    fn one_slow_answer_extends_the_deadline_and_many_quick_ones_shorten_it() {
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
    fn times_above_a_minute_count_as_a_minute() {
        let mut latency = Latency::new(&WindowSettings::default());
        latency.observe(Duration::from_secs(86_400));
        latency.observe(Duration::ZERO);
        let longest = latency.percentiles().max;
        assert!(longest >= Duration::from_secs(60) && longest < Duration::from_secs(68));
        assert_eq!(latency.answers(), 2);
    }

    proptest! {
        #[test]
        fn deadline_stays_within_its_bounds(
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
