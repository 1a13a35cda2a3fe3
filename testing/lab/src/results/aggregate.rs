// SPDX-License-Identifier: GPL-2.0-or-later
//! The figures of a run, grouped for comparing arms.

use std::collections::{BTreeMap, BTreeSet};

use super::row::{Outcome, Row};
use super::stats::{self, Summary};
use crate::scenario::{ArmOn, Variant};

/// Key of a set of samples: variant, arm and task. The samples are the repetitions.
type Key = (Variant, ArmOn, String);

/// All figures of one scenario, by variant, arm, task and name.
#[derive(Debug, Clone, Default)]
pub struct Aggregates {
    cells: BTreeMap<Key, Figures>,
}

#[derive(Debug, Clone, Default)]
struct Figures {
    values: BTreeMap<String, Vec<f64>>,
    series: BTreeMap<String, Vec<f64>>,
}

impl Aggregates {
    /// Collects the figures in `rows`, which must belong to one scenario.
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut cells: BTreeMap<Key, Figures> = BTreeMap::new();
        for row in rows {
            let Outcome::Result { values, series } = &row.outcome else {
                continue;
            };
            let key = (row.variant.clone(), row.arm, row.task.clone());
            let figures = cells.entry(key).or_default();
            for (name, &value) in values {
                figures.values.entry(name.clone()).or_default().push(value);
            }
            for (name, samples) in series {
                figures
                    .series
                    .entry(name.clone())
                    .or_default()
                    .extend(samples);
            }
        }
        Aggregates { cells }
    }

    /// Whether there are no figures.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The variants that have figures.
    pub fn variants(&self) -> Vec<Variant> {
        let distinct: BTreeSet<_> = self.cells.keys().map(|(variant, _, _)| variant).collect();
        distinct.into_iter().cloned().collect()
    }

    /// The arms of `variant` with figures.
    pub fn arms(&self, variant: &Variant) -> Vec<ArmOn> {
        let distinct: BTreeSet<_> = self
            .cells
            .keys()
            .filter(|key| key.0 == *variant)
            .map(|key| key.1)
            .collect();
        distinct.into_iter().collect()
    }

    /// The tasks of `variant` that have figures in at least one arm.
    pub fn tasks(&self, variant: &Variant) -> Vec<String> {
        let distinct: BTreeSet<_> = self
            .cells
            .keys()
            .filter(|key| key.0 == *variant)
            .map(|key| &key.2)
            .collect();
        distinct.into_iter().cloned().collect()
    }

    /// The names of all values that any arm has for `task` of `variant`.
    pub fn names(&self, variant: &Variant, task: &str) -> Vec<String> {
        let distinct: BTreeSet<_> = self
            .cells
            .iter()
            .filter(|(key, _)| key.0 == *variant && key.2 == task)
            .flat_map(|(_, figures)| figures.values.keys())
            .collect();
        distinct.into_iter().cloned().collect()
    }

    /// The names of all series that any arm has for `task` of `variant`.
    pub fn series_names(&self, variant: &Variant, task: &str) -> Vec<String> {
        let distinct: BTreeSet<_> = self
            .cells
            .iter()
            .filter(|(key, _)| key.0 == *variant && key.2 == task)
            .flat_map(|(_, figures)| figures.series.keys())
            .collect();
        distinct.into_iter().cloned().collect()
    }

    /// One sample per repetition of the value `name`; empty if it was not measured.
    pub fn samples(&self, variant: &Variant, arm: ArmOn, task: &str, name: &str) -> &[f64] {
        self.cell(variant, arm, task)
            .and_then(|figures| figures.values.get(name))
            .map_or(&[], Vec::as_slice)
    }

    /// The samples of the series `name`, all repetitions concatenated; empty if absent.
    pub fn series(&self, variant: &Variant, arm: ArmOn, task: &str, name: &str) -> &[f64] {
        self.cell(variant, arm, task)
            .and_then(|figures| figures.series.get(name))
            .map_or(&[], Vec::as_slice)
    }

    /// Median and spread of the value `name`.
    pub fn summary(
        &self,
        variant: &Variant,
        arm: ArmOn,
        task: &str,
        name: &str,
    ) -> Option<Summary> {
        Summary::of(self.samples(variant, arm, task, name))
    }

    /// Median of the value `name`.
    pub fn median(&self, variant: &Variant, arm: ArmOn, task: &str, name: &str) -> Option<f64> {
        self.summary(variant, arm, task, name)
            .map(|summary| summary.median)
    }

    /// The median of `arm` divided by the median of `base`: 1.0 when both are 0; `None` when either
    /// was not measured, or when only the base is 0.
    pub fn ratio(
        &self,
        variant: &Variant,
        task: &str,
        name: &str,
        arm: ArmOn,
        base: ArmOn,
    ) -> Option<f64> {
        stats::ratio(
            self.median(variant, arm, task, name)?,
            self.median(variant, base, task, name)?,
        )
    }

    fn cell(&self, variant: &Variant, arm: ArmOn, task: &str) -> Option<&Figures> {
        self.cells.get(&(variant.clone(), arm, task.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use limelight_apps::plan::Arm;

    use super::*;
    use crate::results::row::tests::result_row;
    use crate::scenario::Kernel;

    const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
    const OURS: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);

    #[test]
    fn repetitions_are_pooled_and_arms_compared() {
        let rows = [
            result_row(STOCK, 0, &[("major_faults", 90.0)]),
            result_row(OURS, 0, &[("major_faults", 9.0)]),
            result_row(STOCK, 1, &[("major_faults", 110.0)]),
            result_row(OURS, 1, &[("major_faults", 11.0)]),
        ];
        let aggregates = Aggregates::from_rows(&rows);
        let variant = rows[0].variant.clone();
        assert_eq!(aggregates.variants(), std::slice::from_ref(&variant));
        assert_eq!(aggregates.arms(&variant), [STOCK, OURS]);
        assert_eq!(
            aggregates.samples(&variant, STOCK, "swipe", "major_faults"),
            [90.0, 110.0]
        );
        assert_eq!(
            aggregates.ratio(&variant, "swipe", "major_faults", OURS, STOCK),
            Some(0.1)
        );
    }

    #[test]
    fn unmeasured_values_are_absent_not_zero() {
        let rows = [result_row(STOCK, 0, &[("major_faults", 90.0)])];
        let aggregates = Aggregates::from_rows(&rows);
        let variant = &rows[0].variant;
        assert_eq!(
            aggregates.median(variant, OURS, "swipe", "major_faults"),
            None
        );
        assert_eq!(
            aggregates.median(variant, STOCK, "swipe", "minor_faults"),
            None
        );
        assert_eq!(
            aggregates.ratio(variant, "swipe", "major_faults", OURS, STOCK),
            None
        );
    }
}
