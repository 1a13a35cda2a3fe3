// SPDX-License-Identifier: GPL-2.0-or-later
//! `record`: updates the counters that `test` compares with.

use anyhow::{ensure, Result};

use super::How;
use crate::kernel::Linux;
use crate::paths::Paths;
use crate::results::{record, Record};
use crate::run::Runner;
use crate::scenario::Mode;
use crate::scenarios;

/// Runs all scenarios with recorded counters, writes the record and prints the difference. Writes
/// nothing if a machine or a check in a guest failed. Returns whether everything ran.
pub fn run(paths: &Paths, how: &How) -> Result<bool> {
    ensure!(
        paths.linux == Linux::default(),
        "the record is about Linux {}",
        Linux::default().series()
    );
    let old = Record::load(&paths.root)?;
    let mut new = Record::default();
    let mut runner = Runner::new(paths, how.accelerator())?;
    for spec in scenarios::all()
        .iter()
        .filter(|spec| !spec.recorded.is_empty())
    {
        let mut options = how.options(spec.kind, Mode::Exact);
        options.selection = Default::default();
        let finished = runner.run(spec, &options)?;
        let failed = finished.checks().into_iter().find(|check| !check.passed);
        if let Some(failed) = failed {
            println!("FAILED {} {} ({})", spec.name, failed.what, failed.seen);
        }
        if finished.failures.is_empty() && finished.checks().iter().all(|check| check.passed) {
            new.update(spec, &finished.rows);
        } else {
            println!("{} is unchanged", record::FILE);
            return Ok(false);
        }
    }
    let difference = old.difference(&new);
    for line in &difference {
        println!("{line}");
    }
    new.save(&paths.root)?;
    println!("{}: {} differences", record::FILE, difference.len());
    Ok(true)
}
