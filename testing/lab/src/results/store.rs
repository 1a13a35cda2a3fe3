// SPDX-License-Identifier: GPL-2.0-or-later
//! Results files: `target/lab/results/SCENARIO/DATE.jsonl`, one row per line, append-only.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{clock, Row};
use crate::paths;
use crate::scenario::Variant;

/// Appends `rows` to today's file of their scenario and returns its path. Each row is a single
/// write, so that the lines of two concurrent labs do not mix.
pub fn append(results: &Path, scenario: &str, rows: &[Row]) -> Result<PathBuf> {
    let dir = results.join(scenario);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{}.jsonl", clock::now().0));
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        for row in rows {
            let mut line = serde_json::to_vec(row)?;
            line.push(b'\n');
            file.write_all(&line)?;
        }
        Ok(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// All rows of `scenario`, oldest file first; empty if it never ran.
pub fn load(results: &Path, scenario: &str) -> Result<Vec<Row>> {
    let dir = results.join(scenario);
    let mut rows = Vec::new();
    for file in paths::files_below(&dir)? {
        if file
            .extension()
            .is_none_or(|extension| extension != "jsonl")
        {
            continue;
        }
        let path = dir.join(file);
        for (index, line) in paths::read_lossy(&path)?.lines().enumerate() {
            let row = serde_json::from_str(line)
                .with_context(|| format!("{}:{}: not a row", path.display(), index + 1))?;
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The rows of the newest run of each variant. Older runs are left out, because arms are compared
/// only within a run.
pub fn newest(rows: Vec<Row>) -> Vec<Row> {
    let mut runs: BTreeMap<Variant, String> = BTreeMap::new();
    for row in &rows {
        let run = runs.entry(row.variant.clone()).or_default();
        if row.context.run > *run {
            run.clone_from(&row.context.run);
        }
    }
    rows.into_iter()
        .filter(|row| runs[&row.variant] == row.context.run)
        .collect()
}

#[cfg(test)]
mod tests {
    use limelight_apps::plan::Arm;

    use super::*;
    use crate::results::row::tests::result_row;
    use crate::results::Outcome;
    use crate::scenario::{ArmOn, Kernel};

    const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);

    #[test]
    fn rows_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let mut rows = vec![result_row(
            STOCK,
            0,
            &[("major_faults", 0.1), ("x_us", 1e15)],
        )];
        let Outcome::Result { series, .. } = &mut rows[0].outcome else {
            unreachable!()
        };
        series.insert("pause_200_response_us".into(), vec![1.5, 2.0]);
        for outcome in [
            Outcome::Check {
                what: "\"quoted\"\nline".into(),
                passed: false,
                seen: "ü".into(),
            },
            Outcome::Failed {
                why: "panic".into(),
            },
        ] {
            rows.push(Row {
                outcome,
                ..rows[0].clone()
            });
        }
        append(dir.path(), "sample", &rows[..1]).unwrap();
        append(dir.path(), "sample", &rows[1..]).unwrap();
        assert_eq!(load(dir.path(), "sample").unwrap(), rows);
        assert!(load(dir.path(), "other").unwrap().is_empty());
    }

    #[test]
    fn damaged_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sample")).unwrap();
        fs::write(dir.path().join("sample/2026-01-01.jsonl"), "{}\n").unwrap();
        let error = load(dir.path(), "sample").unwrap_err().to_string();
        assert!(
            error.ends_with("sample/2026-01-01.jsonl:1: not a row"),
            "{error}"
        );
    }

    #[test]
    fn only_the_newest_run_of_each_variant_counts() {
        let mut rows = vec![result_row(STOCK, 0, &[]); 3];
        rows[1].context.run = "20270101-000000-1".into();
        rows[2].variant.load = "copy".into();
        assert_eq!(newest(rows.clone()), rows[1..]);
    }
}
