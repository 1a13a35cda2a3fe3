// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero` end to end. At the daemon's request, the kernel fills its pool with each engine in
//! turn and serves a topmost app from the pool, window by window. Then engines fail while in use.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::churn::{Run, Spec};
use crate::counters::Counters;
use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::memory::{MIB, PAGE};
use crate::pool::{self, Windows};
use crate::process::{Conversation, Start};
use crate::scenario::{Damage, Engine, Mechanisms, PrezeroEngines, Spin};

/// Number of windows until the daemon knows the app's demand, and number of measured windows.
const LEARNT: u32 = 3;
const WINDOWS: u32 = 12;
/// Number of windows with a failed engine.
const BROKEN: u32 = 6;
/// Timeout for the pool to be drained.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the scenario.
pub fn run(stage: Stage, work: &PrezeroEngines) -> Result<()> {
    let app = Front::start(work.pages)?;
    let mut test = Test { stage, work, app };
    for (name, engine) in &work.engines {
        test.stage.reporter.progress(format!("engine {name}"))?;
        test.serves(name, *engine)?;
    }
    test.stage.reporter.progress("a CPU-bound program")?;
    let hog = Start::PLAIN.part("spin-load", &Spin::AddLoop)?;
    test.serves("cpu next to a program that never sleeps", Engine::Cpu)?;
    drop(hog);
    for (name, engine, damage) in &work.broken {
        test.stage.reporter.progress(format!("broken: {name}"))?;
        test.survives(name, *engine, *damage)?;
    }
    test.stage.reporter.finish()
}

struct Test<'a> {
    stage: Stage,
    work: &'a PrezeroEngines,
    app: Front,
}

/// The topmost app.
struct Front(Conversation);

impl Front {
    fn start(pages: u32) -> Result<Front> {
        let mut app = Start::PLAIN.conversation("churn", &Spec { pages })?;
        let _ready: bool = app.hear()?;
        Ok(Front(app))
    }

    /// One run inside a response window; the app verifies that its pages were zero.
    fn window(&mut self, windows: &mut Windows) -> Result<()> {
        windows.open()?;
        let _run: Run = self.0.ask("run")?;
        windows.close()
    }
}

impl Test<'_> {
    fn start(&self, engine: Engine) -> Result<(Daemon, Windows)> {
        pool::configure(engine, Mechanisms::PrezeroOnly, &self.stage.machine)?;
        let pid = self.app.0.process.pid();
        let daemon = Daemon::start(&[pid])?;
        focus(pid)?;
        let windows = Windows::connect()?;
        pool::set_verify(true)?;
        Ok((daemon, windows))
    }

    /// Checks that the engine fills the pool and that the app's pages come from the pool.
    fn serves(&mut self, name: &str, engine: Engine) -> Result<()> {
        let (daemon, mut windows) = self.start(engine)?;
        for _ in 0..LEARNT {
            pool::wait_full()?;
            self.app.window(&mut windows)?;
        }
        let reporter = &self.stage.reporter;
        let used = pool::text("engine")?;
        let expected = if engine == Engine::Cpu {
            "cpu"
        } else {
            "block"
        };
        reporter.check(
            format!("{name}: the kernel uses the configured engine"),
            used == expected,
            used,
        )?;
        let counters = Counters::now()?;
        for _ in 0..WINDOWS {
            pool::wait_full()?;
            self.app.window(&mut windows)?;
        }
        let errors = pool::number("errors")?;
        let mut values = Default::default();
        counters.report(&mut values)?;
        let count = |name: &str| {
            let name = format!("vmstat_limelight_prezero_{name}");
            values
                .get(&name)
                .copied()
                .with_context(|| format!("no {name}"))
        };
        let (served, missed) = (count("served")?, count("missed")?);
        let inside = count("in_window")?;
        reporter.check(
            format!("{name}: at least 99 % of the pages taken in windows come from the pool"),
            served >= 0.99 * (served + missed)
                && served >= 0.9 * f64::from(WINDOWS * self.work.pages),
            format!("{served} served, {missed} missed"),
        )?;
        reporter.check(
            format!("{name}: no page is zeroed in advance during a window"),
            inside == 0.0,
            format!("{inside} pages zeroed in advance during windows"),
        )?;
        reporter.check(
            format!("{name}: the engine has no errors"),
            errors == 0,
            format!("{errors} errors"),
        )?;
        daemon.stop(reporter)?;
        self.empty("after the daemon stopped", name)
    }

    /// Checks that the app gets zeroed pages while the engine fails. Both the app and the kernel
    /// verify each page: one that is not zero causes a kernel warning and fails the run.
    fn survives(&mut self, name: &str, engine: Engine, damage: Damage) -> Result<()> {
        let Engine::Block { disk, .. } = engine else {
            bail!("{name}: only a disk can be damaged");
        };
        let device = self.stage.machine.zero_disks.get(disk as usize).cloned();
        let device = device.context("the plan's machine has no such disk")?;
        let counters = Counters::now()?;
        let (daemon, mut windows) = self.start(engine)?;
        match damage {
            Damage::None => {}
            Damage::Written => {
                pool::wait_full()?;
                scribble(&device)?;
            }
            Damage::Removed => {
                pool::wait_full()?;
                remove(&device)?;
            }
        }
        for _ in 0..BROKEN {
            self.app.window(&mut windows)?;
            // Without a working engine, the pool cannot fill up. The kernel gets time to try.
            sleep(Duration::from_millis(300));
        }
        let used = pool::text("engine")?;
        let mut values = Default::default();
        counters.report(&mut values)?;
        let errors = values.get("vmstat_limelight_prezero_engine_errors");
        let errors = errors
            .copied()
            .context("no limelight_prezero_engine_errors")?;
        let reporter = &self.stage.reporter;
        reporter.check(
            format!(
                "{name}: the kernel falls back to the CPU, and {} windows have zeroed pages",
                BROKEN
            ),
            errors > 0.0 && used.starts_with("cpu"),
            format!("{errors} engine errors; the engine is {used}"),
        )?;
        daemon.stop(reporter)?;
        self.empty("after the daemon stopped", name)
    }

    fn empty(&self, when: &str, name: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        let mut pooled = pool::number("pooled")?;
        while pooled > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(50));
            pooled = pool::number("pooled")?;
        }
        self.stage.reporter.check(
            format!("{name}: {when}, the pool is empty"),
            pooled == 0,
            format!("{pooled} pages in the pool"),
        )
    }
}

/// Overwrites the beginning of a disk with data that is not zero.
fn scribble(device: &str) -> Result<()> {
    let mut disk = OpenOptions::new()
        .write(true)
        .open(device)
        .with_context(|| format!("cannot open {device} for writing"))?;
    let noise = vec![0xa5; PAGE];
    for _ in 0..4 * MIB / PAGE {
        disk.write_all(&noise)?;
    }
    disk.sync_all()
        .with_context(|| format!("cannot write to {device}"))
}

/// Removes a PCI device, as if it had been unplugged.
fn remove(device: &str) -> Result<()> {
    let name = Path::new(device)
        .file_name()
        .context("the device has no name")?;
    let block = Path::new("/sys/block").join(name);
    let mut at = fs::canonicalize(&block).with_context(|| format!("no {}", block.display()))?;
    while !(at.join("remove").exists() && at.join("vendor").exists() && at.join("class").exists()) {
        if !at.pop() {
            bail!("{device} is not a PCI device");
        }
    }
    let path = at.join("remove");
    fs::write(&path, "1").with_context(|| format!("cannot write to {}", path.display()))
}
