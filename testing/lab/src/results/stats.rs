// SPDX-License-Identifier: GPL-2.0-or-later
//! Medians and spread.

/// Summary of a set of repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of samples, at least 1.
    pub count: usize,
    /// Smallest sample.
    pub min: f64,
    /// Lower quartile.
    pub lower: f64,
    /// Median.
    pub median: f64,
    /// Upper quartile.
    pub upper: f64,
    /// Largest sample.
    pub max: f64,
}

impl Summary {
    /// Summarizes `samples`, ignoring NaN; `None` if no sample is left.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| !x.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Summary {
            count: sorted.len(),
            min,
            lower: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            upper: quantile(&sorted, 0.75),
            max,
        })
    }

    /// Half of the interquartile range. With fewer than four samples, quartiles mean little, so it
    /// is half of the full range.
    pub fn spread(&self) -> f64 {
        if self.count < 4 {
            (self.max - self.min) / 2.0
        } else {
            (self.upper - self.lower) / 2.0
        }
    }
}

/// Percentiles of a distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentiles {
    /// Number of samples, at least 1.
    pub count: usize,
    /// The percentiles of [`Percentiles::OF`], in that order.
    pub values: [f64; 7],
}

impl Percentiles {
    /// The percentiles, as parts of 1, and the maximum.
    pub const OF: [f64; 7] = [0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0];
    /// Their names.
    pub const NAMES: [&'static str; 7] = ["p5", "p25", "p50", "p75", "p95", "p99", "max"];

    /// The percentiles of `samples`, ignoring NaN; `None` if no sample is left.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|x| !x.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then(|| Percentiles {
            count: sorted.len(),
            values: Percentiles::OF.map(|q| quantile(&sorted, q)),
        })
    }
}

/// The `q`-quantile (0..=1) of ascending `sorted`, which must not be empty, with linear
/// interpolation.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let position = q * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// `value / base`. If `base` is 0, the result is 1 for a `value` of 0, else `None`.
pub fn ratio(value: f64, base: f64) -> Option<f64> {
    if base != 0.0 {
        Some(value / base)
    } else {
        (value == 0.0).then_some(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_and_even_counts_have_the_textbook_median() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap().median, 2.5);
    }

    #[test]
    fn quartiles_are_interpolated() {
        let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((summary.lower, summary.upper), (2.0, 4.0));
        assert_eq!(summary.spread(), 1.0);
        let four = Summary::of(&[10.0, 20.0, 30.0, 40.0]).unwrap();
        assert_eq!((four.lower, four.upper), (17.5, 32.5));
        assert_eq!(four.spread(), 7.5);
    }

    #[test]
    fn spread_of_few_samples_is_half_of_their_range() {
        let summary = Summary::of(&[1.0, 5.0, 2.0]).unwrap();
        assert_eq!(summary.spread(), 2.0);
        assert_eq!(Summary::of(&[7.0]).unwrap().spread(), 0.0);
    }

    #[test]
    fn percentiles_are_ascending_and_end_with_the_maximum() {
        let samples: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        let percentiles = Percentiles::of(&samples).unwrap();
        assert_eq!(percentiles.count, 101);
        assert_eq!(
            percentiles.values,
            [5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 100.0]
        );
        assert_eq!(Percentiles::of(&[f64::NAN]), None);
    }

    #[test]
    fn empty_input_has_no_summary_and_nan_is_ignored() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!(Summary::of(&[f64::NAN, 2.0]).unwrap().count, 1);
    }

    #[test]
    fn ratio_to_zero_is_one_or_none() {
        assert_eq!(ratio(6.0, 3.0), Some(2.0));
        assert_eq!(ratio(0.0, 0.0), Some(1.0));
        assert_eq!(ratio(1.0, 0.0), None);
    }
}
