// SPDX-License-Identifier: GPL-2.0-or-later
//! Judges the rows of a scenario.
//!
//! A promise about harm fails if it fails in any repetition. A promise about a figure depends on a
//! counter that varies from run to run on a busy host. If the first repetition of a test falls
//! short in a figure, the test is repeated and the median decides.

use super::Finished;
use crate::results::{Aggregates, Row};
use crate::scenario::{Spec, Variant, Verdict};

/// Number of further repetitions of a test whose first repetition falls short in a figure.
pub const FURTHER: u32 = 2;

/// The verdicts of `spec` on `rows`.
pub fn judge<'a>(spec: &Spec, rows: impl IntoIterator<Item = &'a Row>) -> Vec<Verdict> {
    (spec.must_hold)(&Aggregates::from_rows(rows))
}

/// Whether the deferred arms may change the judgement of what has run.
pub fn needs_deferred(spec: &Spec, finished: &Finished) -> bool {
    let short = finished.verdicts.iter().any(|verdict| !verdict.passed);
    short && finished.failures.is_empty() && !spec.deferred_arms.is_empty()
}

/// The variants to repeat: those in which a figure falls short. None if anything else failed,
/// because repetitions would not change that.
pub fn unsure(spec: &Spec, finished: &Finished) -> Vec<Variant> {
    let mut failed = finished.judged();
    failed.retain(|verdict| !verdict.passed);
    let repeatable = finished.failures.is_empty() && failed.iter().all(|failed| failed.is_figure);
    if failed.is_empty() || !repeatable {
        return Vec::new();
    }
    let mut all: Vec<Variant> = finished
        .rows
        .iter()
        .map(|row| row.variant.clone())
        .collect();
    all.sort();
    all.dedup();
    let short = |variant: &Variant| {
        let rows = finished.rows.iter().filter(|row| row.variant == *variant);
        judge(spec, rows).iter().any(|verdict| !verdict.passed)
    };
    // A verdict that combines several variants may fail although each variant alone passes.
    match all.iter().any(short) {
        true => all.into_iter().filter(short).collect(),
        false => all,
    }
}

/// Adds the rows of other boots to `finished`, and judges all of them together.
pub fn extend(spec: &Spec, finished: &mut Finished, further: Finished) {
    finished.boots += further.boots;
    finished.rows.extend(further.rows);
    finished.failures.extend(further.failures);
    finished.file = further.file.or(finished.file.take());
    finished.verdicts = judge(spec, &finished.rows);
}

/// Adds `further` repetitions to `finished` and judges all of them together. Medians decide
/// figures; each promise about harm must hold in every repetition.
pub fn add(spec: &Spec, finished: &mut Finished, further: Finished) {
    let mut harm = Vec::new();
    for repetition in spec.repetitions..spec.repetitions + FURTHER {
        let rows = further.rows.iter();
        harm.extend(judge(spec, rows.filter(|row| row.repetition == repetition)));
    }
    harm.retain(|verdict| !verdict.is_figure && !verdict.passed);
    extend(spec, finished, further);
    finished.verdicts.extend(harm);
}

#[cfg(test)]
mod tests {
    use limelight_apps::plan::Arm;

    use super::*;
    use crate::results::row::tests::result_row;
    use crate::scenario::{ArmOn, Kernel};

    const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
    const LIMELIGHT: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);

    /// One promise about a figure and one about harm.
    const SAMPLE: Spec = Spec {
        name: "sample",
        must_hold: |aggregates| {
            let mut verdicts = Vec::new();
            for variant in aggregates.variants() {
                let median = |name| aggregates.median(&variant, LIMELIGHT, "swipe", name);
                let kept = median("kept").is_some_and(|kept| kept >= 90.0);
                verdicts.push(Verdict::new(format!("{variant} kept"), kept, "").on_figure());
                let died = median("died") != Some(0.0);
                verdicts.push(Verdict::new(format!("{variant} died"), !died, ""));
            }
            verdicts
        },
        ..Spec::TEST
    };

    fn run(repetition: u32, kept: f64, died: f64) -> Finished {
        let figures = [("kept", kept), ("died", died)];
        let mut finished = Finished {
            rows: vec![
                result_row(STOCK, repetition, &[("kept", 0.0)]),
                result_row(LIMELIGHT, repetition, &figures),
            ],
            ..Finished::default()
        };
        finished.verdicts = judge(&SAMPLE, &finished.rows);
        finished
    }

    #[test]
    fn only_a_figure_that_falls_short_is_repeated() {
        assert!(unsure(&SAMPLE, &run(0, 95.0, 0.0)).is_empty());
        assert_eq!(unsure(&SAMPLE, &run(0, 88.0, 0.0)).len(), 1);
        assert!(unsure(&SAMPLE, &run(0, 88.0, 1.0)).is_empty());
        let broken = Finished {
            failures: vec!["time limit".into()],
            ..run(0, 88.0, 0.0)
        };
        assert!(unsure(&SAMPLE, &broken).is_empty());
    }

    #[test]
    fn deferred_arms_run_only_if_a_verdict_fails_without_them() {
        let excused = Spec {
            deferred_arms: &[STOCK],
            ..SAMPLE
        };
        assert!(!needs_deferred(&excused, &run(0, 95.0, 0.0)));
        assert!(needs_deferred(&excused, &run(0, 95.0, 1.0)));
        assert!(!needs_deferred(&SAMPLE, &run(0, 95.0, 1.0)));
        let broken = Finished {
            failures: vec!["time limit".into()],
            ..run(0, 95.0, 1.0)
        };
        assert!(!needs_deferred(&excused, &broken));
    }

    #[test]
    fn only_the_variants_that_fall_short_are_repeated() {
        let mut two = run(0, 88.0, 0.0);
        let held = run(0, 95.0, 0.0).rows.into_iter().map(|mut row| {
            row.variant.load = "other".into();
            row
        });
        two.rows.extend(held);
        two.verdicts = judge(&SAMPLE, &two.rows);
        let again = unsure(&SAMPLE, &two);
        assert_eq!(again.len(), 1);
        assert_ne!(again[0].load, "other");
    }

    #[test]
    fn median_decides_a_figure() {
        for (second, third, held) in [(95.0, 95.0, true), (95.0, 80.0, false)] {
            let mut finished = run(0, 88.0, 0.0);
            let mut further = run(1, second, 0.0);
            further.rows.extend(run(2, third, 0.0).rows);
            add(&SAMPLE, &mut finished, further);
            assert_eq!(!finished.failed(), held);
        }
    }

    #[test]
    fn harm_in_a_further_repetition_fails() {
        let mut finished = run(0, 88.0, 0.0);
        let mut further = run(1, 95.0, 1.0);
        further.rows.extend(run(2, 95.0, 0.0).rows);
        add(&SAMPLE, &mut finished, further);
        assert!(finished.failed());
    }
}
