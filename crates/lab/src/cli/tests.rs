// SPDX-License-Identifier: GPL-2.0-or-later
//! `test`: the kernel's own tests and every test scenario.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use limelight_apps::plan::{Data, Machine as Setup, Plan, Swap};

use super::{of_kind, How};
use crate::image::initramfs;
use crate::ktap::{self, Outcome};
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::qemu::{guest, Machine};
use crate::run::Runner;
use crate::scenario::{Kernel, Kind, Mode};

/// How long the kernel's own tests may take, boot included.
const KUNIT_LIMIT: Duration = Duration::from_secs(300);

/// Counts of what was shown.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Tally {
    fn add(&mut self, name: String, passed: bool, seen: &str) {
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(format!("{name}: {seen}"));
        }
    }
}

/// Runs all tests; the last line is `N passed, N failed`.
pub fn run(paths: &Paths, how: &How) -> Result<bool> {
    let options = how.options(Kind::Test);
    let mut runner = Runner::new(paths, options.accelerator)?;
    let mut tally = Tally::default();
    kunit(paths, &mut runner, &mut tally)?;
    for scenario in of_kind(Kind::Test) {
        let finished = runner.run(scenario, &options)?;
        for verdict in finished.judged() {
            let name = format!("{} {}", scenario.name(), verdict.what);
            tally.add(name, verdict.passed, &verdict.seen);
        }
    }
    if !tally.failed.is_empty() {
        println!("\nfailures:");
        tally
            .failed
            .iter()
            .for_each(|failure| println!("    {failure}"));
    }
    println!("\n{} passed, {} failed", tally.passed, tally.failed.len());
    Ok(tally.failed.is_empty())
}

/// Boots our kernel with its tests switched on and reads their results off the console.
fn kunit(paths: &Paths, runner: &mut Runner, tally: &mut Tally) -> Result<()> {
    let (kernel, accelerator) = runner.kernel(Kernel::Limelight)?;
    let progress = Progress::new("kunit");
    progress.update("booting the kernel with its own tests");
    let dir = paths.runs().join(format!("{}-kunit", runner.name()));
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let setup = Setup {
        modules: Vec::new(),
        data: Data::None,
        rootfs: None,
        swap: Swap::None,
        lru_gen: None,
    };
    let initial = dir.join("initramfs");
    initramfs::write(
        paths,
        &Plan {
            machine: setup,
            cells: Vec::new(),
        },
        &[],
        &initial,
    )?;
    let machine = Machine {
        kernel: Kernel::Limelight,
        image: kernel.image(),
        initramfs: initial,
        memory_mib: 512,
        vcpus: 2,
        disks: Vec::new(),
        mode: Mode::Fast,
        accelerator,
        parameters: [
            "kunit.enable=1",
            "kunit.filter_glob=limelight*",
            "ignore_loglevel",
        ]
        .map(String::from)
        .to_vec(),
    };
    let outcome = guest::run(&machine, &dir, KUNIT_LIMIT);
    let died = outcome.as_ref().err().map(|error| error.to_string());
    let console = paths::read_lossy(&dir.join("console.log"))?;
    let cases = ktap::parse(&console);
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
