// SPDX-License-Identifier: GPL-2.0-or-later
//! `run`: runs scenarios and prints their tables and verdicts.

use anyhow::Result;

use super::How;
use crate::paths::Paths;
use crate::results::{table, Aggregates};
use crate::run::{Finished, Runner};
use crate::scenario::Spec;

/// Runs scenarios and prints the results. Returns whether every machine, check and verdict passed.
pub fn run(paths: &Paths, specs: &[&Spec], how: &How) -> Result<bool> {
    let mut all_held = true;
    let accelerator = how.accelerator();
    let mut runner = Runner::new(paths, accelerator)?;
    for spec in specs {
        let finished = runner.run(spec, &how.options(spec.kind, spec.mode))?;
        show(paths, spec, &finished);
        all_held &= !finished.failed();
    }
    Ok(all_held)
}

/// Prints the tables, checks and verdicts of a scenario.
pub fn show(paths: &Paths, spec: &Spec, finished: &Finished) {
    for table in table::tables(spec, &Aggregates::from_rows(&finished.rows)) {
        println!("\n{}", table.text());
    }
    // Guests make many checks; print only the failed ones.
    let checks = finished.checks();
    let held = checks.iter().filter(|check| check.passed).count();
    println!("held   {held} of {} checks in the guests", checks.len());
    let failed = checks.iter().filter(|check| !check.passed);
    for verdict in failed.chain(&finished.verdicts) {
        let word = if verdict.passed { "held  " } else { "FAILED" };
        println!("{word} {} ({})", verdict.what, verdict.seen);
    }
    for failure in &finished.failures {
        println!("FAILED {}", failure.lines().next().unwrap_or_default());
    }
    if let Some(file) = &finished.file {
        println!("figures: {}", paths.short(file));
    }
}
