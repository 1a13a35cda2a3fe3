// SPDX-License-Identifier: GPL-2.0-or-later
//! The gate against getting worse. `testing/lab/record.toml` holds the counters of the scenarios
//! that list some in [`Spec::recorded`]. A counter that exceeds its recorded value by more than the
//! margin fails the test. `limelight-lab record` (`make record`) updates the file.
//!
//! Only scenarios in exact mode take part: there, two runs of a repetition are identical on every
//! host. A different compiler or kernel package moves the counters a little, which the margins
//! allow for. Times are never recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Aggregates, Row};
use crate::kernel::Linux;
use crate::paths::{self, Paths};
use crate::scenario::{Mode, Spec, Verdict};

/// The record's file in the work tree.
pub const FILE: &str = "testing/lab/record.toml";

/// The head of the file.
const HEAD: &str = "\
# Counters of exact mode, one repetition. `make test` fails if a counter exceeds its value here by
# more than the margin (docs/development/lab.md#the-gate-against-getting-worse). `make record` runs
# the scenarios, updates this file and prints the difference.

";

/// Part of the recorded value by which a counter may exceed it.
const MARGIN: f64 = 0.10;
/// The same where the kernel's release is not the recorded one.
const MARGIN_OTHER_KERNEL: f64 = 0.30;

/// A counter that takes part in the gate; less of it is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// Its name in the guest's `values`.
    pub name: &'static str,
    /// Excess that is always allowed, in the counter's unit. Without it, a recorded 0 would allow
    /// nothing. It is doubled where the kernel's release is not the recorded one.
    pub allowance: f64,
}

/// The record: the kernels, and the counters by scenario and by `VARIANT ARM TASK`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Release of each kernel that was used, by the kernel's name.
    pub kernels: BTreeMap<String, String>,
    /// Counters by scenario, cell and name.
    pub counters: BTreeMap<String, Cells>,
}

/// The counters of a scenario: by `VARIANT ARM TASK`, and by name.
pub type Cells = BTreeMap<String, BTreeMap<String, f64>>;

impl Record {
    /// Reads the record of the work tree `root`; empty if there is none.
    pub fn load(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        if !path.exists() {
            return Ok(Record::default());
        }
        let text = paths::read_lossy(&path)?;
        toml::from_str(&text).with_context(|| format!("{FILE} is damaged; restore it from git"))
    }

    /// Writes the record to the work tree `root`.
    pub fn save(&self, root: &Path) -> Result<()> {
        let text = toml::to_string(self).context("cannot format the record")?;
        paths::write(&root.join(FILE), HEAD.to_owned() + &text)
    }

    /// Judges the rows of a scenario that has just run by the record of the work tree. No verdicts
    /// for a scenario without recorded counters, and for a version of Linux or a mode that the
    /// record is not about. Prints which kernels are not the recorded ones.
    pub fn check(paths: &Paths, spec: &Spec, mode: Mode, rows: &[Row]) -> Result<Vec<Verdict>> {
        if spec.recorded.is_empty() || mode != Mode::Exact || paths.linux != Linux::default() {
            return Ok(Vec::new());
        }
        let record = Record::load(&paths.root)?;
        for line in record.other_kernels(rows) {
            eprintln!("{}: {line}", spec.name);
        }
        Ok(record.judge(spec, rows))
    }

    /// Replaces a scenario's counters by those in `rows`, and the releases of its kernels.
    pub fn update(&mut self, spec: &Spec, rows: &[Row]) {
        for row in rows
            .iter()
            .filter(|row| !row.context.kernel_release.is_empty())
        {
            let kernel = row.arm.kernel.name().to_owned();
            self.kernels
                .insert(kernel, row.context.kernel_release.clone());
        }
        self.counters
            .insert(spec.name.to_owned(), cells(spec, rows));
    }

    /// One verdict for each recorded counter of each cell in `rows`. A counter without a recorded value
    /// fails, as does a recorded counter that the guest no longer reports.
    pub fn judge(&self, spec: &Spec, rows: &[Row]) -> Vec<Verdict> {
        let measured = cells(spec, rows);
        let none = Cells::new();
        let recorded = self.counters.get(spec.name).unwrap_or(&none);
        let mut verdicts = Vec::new();
        for (cell, counters) in &measured {
            let known = recorded.get(cell);
            let names: BTreeSet<&String> = counters
                .keys()
                .chain(known.into_iter().flat_map(BTreeMap::keys))
                .collect();
            for name in names {
                let known = known.and_then(|known| known.get(name)).copied();
                let now = counters.get(name).copied();
                let same = self.same_kernel(cell, rows);
                verdicts.push(verdict(spec, cell, name, known, now, same));
            }
        }
        verdicts
    }

    /// Whether the kernel that ran the cell is the recorded one.
    fn same_kernel(&self, cell: &str, rows: &[Row]) -> bool {
        let mut rows = rows.iter().filter(|row| cell_name(row) == cell);
        rows.all(|row| {
            let release = &row.context.kernel_release;
            self.kernels.get(row.arm.kernel.name()) == Some(release)
        })
    }

    /// A line for each kernel in `rows` whose release is not the recorded one.
    pub fn other_kernels(&self, rows: &[Row]) -> Vec<String> {
        let lines: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| {
                let (kernel, now) = (row.arm.kernel.name(), &row.context.kernel_release);
                let was = self.kernels.get(kernel)?;
                (was != now && !now.is_empty()).then(|| {
                    format!(
                        "kernel {kernel} is {now}, the record was made with {was}: counters are \
                         compared with a margin of {:.0} %",
                        MARGIN_OTHER_KERNEL * 100.0
                    )
                })
            })
            .collect();
        lines.into_iter().collect()
    }

    /// The changes from `self` to `new`, one a line; empty if there are none.
    pub fn difference(&self, new: &Record) -> Vec<String> {
        let mut lines = Vec::new();
        let show = |value: Option<&String>| value.map_or("nothing".to_owned(), String::clone);
        compare(&self.kernels, &new.kernels, |name, was, now| {
            lines.push(format!("kernel {name}: {} -> {}", show(was), show(now)));
        });
        let flat = |record: &Record| -> BTreeMap<String, String> {
            let mut all = BTreeMap::new();
            for (scenario, cells) in &record.counters {
                for (cell, counters) in cells {
                    for (name, value) in counters {
                        all.insert(format!("{scenario} {cell} {name}"), value.to_string());
                    }
                }
            }
            all
        };
        compare(&flat(self), &flat(new), |name, was, now| {
            lines.push(format!("{name}: {} -> {}", show(was), show(now)));
        });
        lines
    }
}

/// Calls `differs` for each key whose values differ, or that only one of the maps has.
fn compare(
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
    mut differs: impl FnMut(&str, Option<&String>, Option<&String>),
) {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let (was, now) = (old.get(key), new.get(key));
        if was != now {
            differs(key, was, now);
        }
    }
}

fn cell_name(row: &Row) -> String {
    format!("{} {} {}", row.variant, row.arm, row.task)
}

/// The recorded counters in the first repetition of `rows`, without arms that run only when they are
/// named.
fn cells(spec: &Spec, rows: &[Row]) -> Cells {
    let listed = |row: &&Row| row.repetition == 0 && spec.arms(&row.variant).contains(&row.arm);
    let first: Vec<&Row> = rows.iter().filter(listed).collect();
    let aggregates = Aggregates::from_rows(first.iter().copied());
    let mut cells = Cells::new();
    for row in first.into_iter().filter(|row| row.check().is_none()) {
        let counters = cells.entry(cell_name(row)).or_default();
        for counter in spec.recorded {
            let median = aggregates.median(&row.variant, row.arm, &row.task, counter.name);
            counters.extend(median.map(|value| (counter.name.to_owned(), value)));
        }
    }
    cells.retain(|_, counters| !counters.is_empty());
    cells
}

fn verdict(
    spec: &Spec,
    cell: &str,
    name: &str,
    recorded: Option<f64>,
    now: Option<f64>,
    same_kernel: bool,
) -> Verdict {
    let allowance = spec
        .recorded
        .iter()
        .find(|counter| counter.name == name)
        .map_or(0.0, |counter| counter.allowance);
    let what = format!("{cell}: {name} is no worse than recorded");
    match (recorded, now) {
        (Some(recorded), Some(now)) => {
            let most = limit(recorded, allowance, same_kernel);
            let seen = format!("{now}, recorded {recorded}, at most {most:.0} allowed");
            let hint = match now < recorded - (most - recorded) {
                true => "; it is better than the record: run make record",
                false => "",
            };
            Verdict::new(what, now <= most, seen + hint)
        }
        (None, _) => Verdict::new(what, false, format!("not in {FILE}: run make record")),
        (Some(_), None) => Verdict::new(what, false, "the guest did not report it"),
    }
}

/// The highest value that is no worse than `recorded`.
fn limit(recorded: f64, allowance: f64, same_kernel: bool) -> f64 {
    match same_kernel {
        true => recorded * (1.0 + MARGIN) + allowance,
        false => recorded * (1.0 + MARGIN_OTHER_KERNEL) + 2.0 * allowance,
    }
}

#[cfg(test)]
mod tests {
    use limelight_apps::plan::Arm;

    use super::*;
    use crate::results::row::tests::result_row;
    use crate::results::Outcome;
    use crate::scenario::{ArmOn, Kernel, Kind};

    const OURS: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);
    const SAMPLE: Spec = Spec {
        name: "sample",
        recorded: &[
            Recorded {
                name: "major_faults",
                allowance: 16.0,
            },
            Recorded {
                name: "kills",
                allowance: 0.0,
            },
        ],
        ..Spec::TEST
    };

    fn record(faults: f64) -> Record {
        let mut record = Record::default();
        record.update(&SAMPLE, &[result_row(OURS, 0, &[("major_faults", faults)])]);
        record
    }

    fn judged(record: &Record, row: Row) -> Vec<(bool, String)> {
        let verdicts = record.judge(&SAMPLE, &[row]);
        verdicts.into_iter().map(|v| (v.passed, v.seen)).collect()
    }

    #[test]
    fn tenth_and_allowance_may_be_exceeded() {
        for (recorded, now, held) in [
            (0.0, 0.0, true),
            (0.0, 16.0, true),
            (0.0, 17.0, false),
            (1000.0, 1116.0, true),
            (1000.0, 1117.0, false),
            (1000.0, 3.0, true),
        ] {
            let row = result_row(OURS, 0, &[("major_faults", now)]);
            let judged = judged(&record(recorded), row);
            assert_eq!((judged.len(), judged[0].0), (1, held), "{now} {recorded}");
        }
    }

    #[test]
    fn another_kernel_widens_the_margin_and_is_reported() {
        let record = record(1000.0);
        for (now, held) in [(1332.0, true), (1333.0, false)] {
            let mut row = result_row(OURS, 0, &[("major_faults", now)]);
            assert!(record.other_kernels(std::slice::from_ref(&row)).is_empty());
            row.context.kernel_release = "6.12.99".into();
            let lines = record.other_kernels(std::slice::from_ref(&row));
            assert_eq!(lines.len(), 1);
            assert!(
                lines[0].contains("6.12.99") && lines[0].contains("6.12.0"),
                "{lines:?}"
            );
            assert_eq!(judged(&record, row)[0].0, held);
        }
    }

    #[test]
    fn better_counter_asks_for_a_new_record() {
        let row = |faults| result_row(OURS, 0, &[("major_faults", faults)]);
        assert!(judged(&record(1000.0), row(500.0))[0]
            .1
            .contains("make record"));
        assert!(!judged(&record(1000.0), row(950.0))[0]
            .1
            .contains("make record"));
    }

    #[test]
    fn missing_record_and_missing_counter_fail() {
        let both = [("major_faults", 0.0), ("kills", 0.0)];
        let row = result_row(OURS, 0, &both);
        let unknown = judged(&record(0.0), row.clone());
        assert_eq!(
            unknown.iter().map(|(held, _)| *held).collect::<Vec<_>>(),
            [false, true],
            "kills are not recorded"
        );
        assert!(judged(&Record::default(), row.clone())
            .iter()
            .all(|(held, _)| !held));

        let mut record = record(0.0);
        record.update(&SAMPLE, &[row]);
        let gone = judged(&record, result_row(OURS, 0, &[("major_faults", 0.0)]));
        assert_eq!(gone.iter().filter(|(held, _)| !held).count(), 1);
    }

    #[test]
    fn arms_that_run_only_when_named_are_not_judged() {
        let stock = ArmOn::new(Arm::Stock, Kernel::Debian);
        let row = result_row(stock, 0, &[("major_faults", 5000.0)]);
        assert!(judged(&record(0.0), row).is_empty());
    }

    #[test]
    fn cells_that_did_not_run_are_not_judged() {
        let mut record = record(0.0);
        let mut other = result_row(OURS, 0, &[("major_faults", 5.0)]);
        other.task = "other".into();
        record.update(
            &SAMPLE,
            &[result_row(OURS, 0, &[("major_faults", 0.0)]), other],
        );
        let row = result_row(OURS, 0, &[("major_faults", 0.0)]);
        assert_eq!(judged(&record, row.clone()).len(), 1);
        let failed = Row {
            outcome: Outcome::Failed {
                why: "panic".into(),
            },
            ..row
        };
        assert!(
            judged(&record, failed).is_empty(),
            "the failed cell itself fails the test"
        );
    }

    #[test]
    fn record_in_the_tree_has_all_cells_and_no_others() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let record = Record::load(&root).unwrap();
        let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for spec in crate::scenarios::all() {
            if spec.recorded.is_empty() {
                continue;
            }
            assert_eq!(
                (spec.mode, spec.kind),
                (Mode::Exact, Kind::Test),
                "{}",
                spec.name
            );
            let cells = expected.entry(spec.name.to_owned()).or_default();
            for variant in spec.variants() {
                for arm in spec.arms(&variant) {
                    for task in (spec.tasks)(&variant, arm) {
                        cells.insert(format!("{variant} {arm} {}", task.name));
                    }
                }
            }
        }
        let found: BTreeMap<String, BTreeSet<String>> = record
            .counters
            .into_iter()
            .map(|(scenario, cells)| (scenario, cells.into_keys().collect()))
            .collect();
        assert_eq!(found, expected, "run make record");
    }

    #[test]
    fn record_round_trips_and_differences_are_lines() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::load(dir.path()).unwrap(), Record::default());
        std::fs::create_dir_all(dir.path().join("testing/lab")).unwrap();
        let old = record(3.0);
        old.save(dir.path()).unwrap();
        assert_eq!(Record::load(dir.path()).unwrap(), old);
        assert!(old.difference(&old).is_empty());
        assert_eq!(
            old.difference(&record(4.0)),
            ["sample mglru/zram/index limelight@limelight swipe major_faults: 3 -> 4"]
        );
        assert_eq!(
            Record::default().difference(&old).len(),
            2,
            "a kernel and a counter"
        );
    }
}
