// SPDX-License-Identifier: GPL-2.0-or-later
//! Response times of a foreground app, after pauses of several lengths.

use std::collections::BTreeMap;

use crate::record::Reporter;

/// Collected response times.
#[derive(Debug, Default)]
pub struct Responses {
    /// Pause before the response in milliseconds, and response time in microseconds.
    all: Vec<(u32, f64)>,
}

impl Responses {
    /// Adds a response time after a pause, here and to the reporter's series for that pause.
    pub fn add(&mut self, pause_ms: u32, response_us: f64, reporter: &mut Reporter) {
        self.all.push((pause_ms, response_us));
        reporter.sample(series(pause_ms, "response_us"), response_us);
    }

    /// Reports `response_us` (median after the shortest pause), `response_mean_us` (mean over all
    /// pauses) and `pause_<ms>_worst_us` (maximum for each length of pause). Reports nothing if
    /// there are no responses.
    pub fn report(&self, reporter: &mut Reporter) {
        if self.all.is_empty() {
            return;
        }
        reporter.value("response_us", self.typical_us());
        let sum: f64 = self.all.iter().map(|&(_, us)| us).sum();
        reporter.value("response_mean_us", sum / self.all.len() as f64);
        for (pause_ms, us) in self.worst() {
            reporter.value(series(pause_ms, "worst_us"), us);
        }
    }

    /// The longest response after each length of pause.
    fn worst(&self) -> BTreeMap<u32, f64> {
        let mut worst = BTreeMap::new();
        for &(pause_ms, us) in &self.all {
            let longest = worst.entry(pause_ms).or_insert(us);
            *longest = us.max(*longest);
        }
        worst
    }

    fn typical_us(&self) -> f64 {
        let shortest = self.all.iter().map(|&(ms, _)| ms).min();
        let mut samples: Vec<f64> = self
            .all
            .iter()
            .filter(|&&(ms, _)| Some(ms) == shortest)
            .map(|&(_, us)| us)
            .collect();
        median(&mut samples)
    }
}

/// Name of the series `what` after pauses of this length.
pub fn series(pause_ms: u32, what: &str) -> String {
    format!("pause_{pause_ms}_{what}")
}

/// The median of the samples, which are sorted in place; 0 if there are none.
pub fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let middle = samples.len() / 2;
    match samples.len() {
        0 => 0.0,
        len if len % 2 == 1 => samples[middle],
        _ => (samples[middle - 1] + samples[middle]) / 2.0,
    }
}

/// The `q`-quantile (`q` in 0..=1) by the nearest-rank method; 0 if there are no samples.
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{median, quantile, Responses};

    #[test]
    fn quantile_is_a_sample() {
        let samples: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(quantile(&samples, 0.95), 19.0);
        assert_eq!(quantile(&samples, 0.5), 10.0);
        assert_eq!(quantile(&samples, 1.0), 20.0);
        assert_eq!(quantile(&[7.0], 0.0), 7.0);
        let samples = [5.0, 1.0, 2.0, 4.0, 3.0];
        assert_eq!(quantile(&samples, 0.5), 3.0);
        assert_eq!(quantile(&samples, 0.99), 5.0);
        let samples = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&samples, 0.5), 2.0);
        assert_eq!(quantile(&samples, 0.95), 4.0);
        assert_eq!(quantile(&samples, 1.0), 4.0);
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(quantile(&samples, 0.5), 100.0);
        assert_eq!(quantile(&samples, 0.99), 198.0);
        assert_eq!(quantile(&samples, 1.0), 200.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn median_is_the_middle_sample_or_mean_of_two() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
    }

    #[test]
    fn typical_response_is_the_median_after_the_shortest_pause() {
        let responses = Responses {
            all: vec![(2000, 900.0), (200, 3.0), (200, 1.0), (200, 2.0)],
        };
        assert_eq!(responses.typical_us(), 2.0);
        assert_eq!(
            responses.worst().into_iter().collect::<Vec<_>>(),
            [(200, 3.0), (2000, 900.0)]
        );
    }
}
