// SPDX-License-Identifier: GPL-2.0-or-later
//! `test`: runs the kernel's KUnit tests and every test scenario. `kunit`: runs the former only.
//! `soak`: runs the KUnit tests on the debug kernel, then every soak scenario.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use limelight_apps::plan::Plan;

use super::{measure, of_kind, How};
use crate::image::initramfs;
use crate::ktap::{self, Outcome};
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::qemu::{console, guest, Accelerator, Machine};
use crate::run::{Options, Runner};
use crate::scenario::{Kernel, Kind, Mode, Spec};

/// Timeout for a boot that runs no cells, on an idle host; it includes the kernel's KUnit tests.
const BARE_LIMIT: Duration = Duration::from_secs(300);
/// Factor on [`BARE_LIMIT`] for the debug kernel.
const DEBUG_FACTOR: u32 = 4;

/// The number of passed tests, and each failed test's name with the observed values.
#[derive(Default)]
pub(super) struct Tally {
    passed: usize,
    failed: Vec<(String, String)>,
}

impl Tally {
    pub(super) fn add(&mut self, name: String, passed: bool, seen: &str) {
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if passed {
            self.passed += 1;
        } else {
            self.failed.push((name, seen.to_owned()));
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.failed.is_empty()
    }

    /// Runs scenarios and counts their checks and verdicts.
    pub(super) fn run(
        &mut self,
        runner: &mut Runner,
        specs: &[&Spec],
        options: &Options,
    ) -> Result<()> {
        for spec in specs {
            for verdict in runner.run(spec, options)?.judged() {
                let name = format!("{} {}", spec.name, verdict.what);
                self.add(name, verdict.passed, &verdict.seen);
            }
        }
        Ok(())
    }

    /// Prints what the failed checks saw, then their names, then the counts. The names are last
    /// because a check may print a whole log, and CI pages show the end of the output.
    pub(super) fn print(&self) {
        for (name, seen) in &self.failed {
            println!("\n---- {name} ----\n{seen}");
        }
        if !self.failed.is_empty() {
            println!("\nfailures:");
            let names = self.failed.iter().map(|(name, _)| name);
            names.for_each(|name| println!("    {name}"));
        }
        println!("\n{} passed, {} failed", self.passed, self.failed.len());
    }
}

/// Runs all tests; the last line is `N passed, N failed`.
pub fn run(paths: &Paths, how: &How) -> Result<bool> {
    let options = how.options(Kind::Test, Mode::Fast);
    let mut runner = Runner::new(paths, options.accelerator)?;
    let mut tally = Tally::default();
    let limit = bare_limit(&options);
    kunit(paths, &mut runner, &mut tally, Kernel::Limelight, limit)?;
    exact(paths, &mut runner, &mut tally, limit)?;
    tally.run(&mut runner, &of_kind(Kind::Test), &options)?;
    tally.print();
    Ok(tally.is_clean())
}

/// Runs only the KUnit tests of `kernel`; the last line is `N passed, N failed`.
pub fn run_kunit(paths: &Paths, how: &How, kernel: Kernel) -> Result<bool> {
    let options = how.options(Kind::Test, Mode::Fast);
    let mut runner = Runner::new(paths, options.accelerator)?;
    let mut tally = Tally::default();
    let limit = match kernel {
        Kernel::Debug => bare_limit(&options).saturating_mul(DEBUG_FACTOR),
        _ => bare_limit(&options),
    };
    kunit(paths, &mut runner, &mut tally, kernel, limit)?;
    tally.print();
    Ok(tally.is_clean())
}

/// Runs the KUnit tests on the debug kernel, then every soak scenario. Some of these tests are
/// skipped on other kernels, for lack of `CONFIG_MEMORY_FAILURE`.
pub fn run_soak(paths: &Paths, how: &How) -> Result<bool> {
    let tests_hold = run_kunit(paths, how, Kernel::Debug)?;
    let scenarios_hold = measure::run(paths, &of_kind(Kind::Soak), how)?;
    Ok(tests_hold && scenarios_hold)
}

/// The timeout for a boot that runs no cells.
fn bare_limit(options: &Options) -> Duration {
    BARE_LIMIT.saturating_mul(u32::try_from(options.patience).unwrap_or(u32::MAX))
}

/// A machine that only boots `kernel`.
fn bare_machine(
    paths: &Paths,
    runner: &mut Runner,
    kernel: Kernel,
    dir: &Path,
    mode: Mode,
) -> Result<Machine> {
    let (kernel, accelerator) = runner.kernel(kernel)?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let initial = dir.join("initramfs");
    let programs = initramfs::Programs::of(paths, &kernel)?;
    initramfs::write(&programs, &Plan::default(), &[], &[], &initial)?;
    Ok(Machine {
        memory_mib: 512,
        mode,
        parameters: vec!["ignore_loglevel"],
        ..Machine::bare(&kernel, initial, accelerator)
    })
}

/// Boots our kernel twice in exact mode, and checks that both consoles are identical, including the
/// timestamps.
fn exact(paths: &Paths, runner: &mut Runner, tally: &mut Tally, limit: Duration) -> Result<()> {
    let progress = Progress::new("exact mode");
    progress.update("booting twice");
    let dir = paths.runs().join(format!("{}-exact", runner.name()));
    let machine = bare_machine(paths, runner, Kernel::Limelight, &dir, Mode::Exact)?;
    let consoles: Result<Vec<String>> = (0..2)
        .map(|_| guest::run(&machine, &dir, limit).map(|(_, console)| console))
        .collect();
    progress.finish("booted");
    let difference = match &consoles {
        Err(error) => Some(error.to_string()),
        Ok(both) => first_difference(&both[0], &both[1]),
    };
    tally.add(
        "exact mode: two boots of the same machine are identical to the microsecond".into(),
        difference.is_none(),
        difference.as_deref().unwrap_or_default(),
    );
    if difference.is_none() {
        paths::remove_tree(&dir)?;
    }
    Ok(())
}

/// The first line in which two texts differ.
fn first_difference(a: &str, b: &str) -> Option<String> {
    let (mut a, mut b) = (a.lines(), b.lines());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            (a, b) => return Some(format!("{:?} and {:?}", a.unwrap_or(""), b.unwrap_or(""))),
        }
    }
}

/// Boots `kernel` with its tests enabled and reads their results from the console.
fn kunit(
    paths: &Paths,
    runner: &mut Runner,
    tally: &mut Tally,
    kernel: Kernel,
    limit: Duration,
) -> Result<()> {
    let progress = Progress::new("kunit");
    progress.update("booting the kernel with its own tests");
    let dir = paths.runs().join(format!("{}-kunit", runner.name()));
    let mut in_turn = false;
    let (died, output) = loop {
        let mut machine = bare_machine(paths, runner, kernel, &dir, Mode::Fast)?;
        machine.in_turn = in_turn;
        machine
            .parameters
            .extend(["kunit.enable=1", "kunit.filter_glob=limelight*"]);
        let outcome = guest::run(&machine, &dir, limit);
        let output = paths::read_lossy(&dir.join("console.log"))?;
        let stale = outcome.is_err() && console::stale_translation(&output);
        if in_turn || !stale || machine.accelerator() != Accelerator::Tcg {
            break (outcome.err().map(|error| error.to_string()), output);
        }
        progress.update("the emulator executed stale code; booting again, in one thread");
        in_turn = true;
        paths::remove_tree(&dir)?;
    };
    let cases = ktap::parse(&output);
    progress.finish(format!("{} tests", cases.len()));
    tally.add(
        "kunit: the kernel's tests run and the machine powers off".into(),
        died.is_none() && !cases.is_empty(),
        died.as_deref()
            .unwrap_or("no test results on the console: is CONFIG_KUNIT set?"),
    );
    for case in &cases {
        tally.add(
            format!("kunit {}", case.name),
            case.outcome != Outcome::Failed,
            &format!("see {}", paths.short(&dir.join("console.log"))),
        );
    }
    if died.is_none() && cases.iter().all(|case| case.outcome != Outcome::Failed) {
        paths::remove_tree(&dir)?;
    }
    Ok(())
}
