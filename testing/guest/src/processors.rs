// SPDX-License-Identifier: GPL-2.0-or-later
//! A CPU goes offline and comes back while the daemon runs. The daemon's guard must notice work on
//! each online CPU, sleep while there is no work, and leak no file descriptor.

use std::fs;
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use limelight_sys::clock::thread_time;
use rustix::thread::{sched_setaffinity, CpuSet};

use crate::daemon::{log_tail, wakeups, Daemon, LOG};
use crate::dispatch::Stage;
use crate::guest_setup::{suspend, wait};
use crate::record::Reporter;

const GUARD: &str = "limelight-guard";
/// Part of the daemon's log line if running tasks wake the guard.
const WATCHES: &str = "any task that runs";
/// Number of times the CPU goes offline and comes back.
const ROUNDS: u32 = 4;
/// The CPU that goes offline; on many machines the first CPU cannot.
const GOES: usize = 1;
/// CPU time of one burst of work.
const WORK: Duration = Duration::from_secs(2);
/// Minimum number of wakeups of the guard during [`WORK`]. On the lab's machine, the guard's period
/// is far below a tenth of that time, so many more are expected.
const NOTICED: u64 = 4;
/// Length of the idle period, and the maximum number of wakeups of the guard in it. The guard's
/// fallback, polling on a timer, would cause more.
const REST: Duration = Duration::from_secs(5);
const SELDOM: u64 = 4;

/// Runs the test.
pub fn run(stage: Stage, sleeps: bool) -> Result<()> {
    let daemon = Daemon::start(&[])?;
    let log = fs::read_to_string(LOG).with_context(|| format!("cannot read {LOG}"))?;
    ensure!(log.contains(WATCHES), "the guard polls on a timer:\n{log}");
    let watch = Watch { pid: daemon.pid() };
    watch.check(&stage.reporter, "at the start", &[0, GOES])?;
    let open = daemon.footprint()?.descriptors;
    for round in 1..=ROUNDS {
        stage.reporter.progress(format!("round {round}"))?;
        serve(false)?;
        watch.check(&stage.reporter, "with one CPU offline", &[0])?;
        serve(true)?;
        watch.check(&stage.reporter, "with the CPU back online", &[0, GOES])?;
    }
    if sleeps {
        stage.reporter.progress("sleeping")?;
        suspend()?;
        watch.check(&stage.reporter, "after a suspend", &[0, GOES])?;
    }
    let now = daemon.footprint()?.descriptors;
    stage.reporter.check(
        "the daemon has as many open files as at the start",
        now == open,
        format!("{open} open files at the start, {now} at the end"),
    )?;
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

/// Takes the CPU offline or online.
fn serve(serves: bool) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{GOES}/online");
    fs::write(&path, if serves { "1" } else { "0" }).with_context(|| format!("cannot write {path}"))
}

/// The daemon's guard.
struct Watch {
    pid: i32,
}

impl Watch {
    fn woken(&self) -> Result<u64> {
        let all = wakeups(self.pid)?;
        let guard = all.values().find(|(name, _)| name == GUARD);
        guard
            .map(|(_, count)| *count)
            .context("limelightd has no guard thread")
    }

    /// Checks that work on each of `processors` wakes the guard, and that an idle machine does not.
    fn check(&self, reporter: &Reporter, when: &str, processors: &[usize]) -> Result<()> {
        for &processor in processors {
            let before = self.woken()?;
            work_on(processor)?;
            let woken = self.woken()? - before;
            reporter.check(
                format!("{when}, work on CPU {processor} wakes the guard"),
                woken >= NOTICED,
                format!("woken {woken} times in {WORK:?} of work"),
            )?;
        }
        // Work that is still in progress may wake the guard in the first periods.
        let (mut last, mut woken) = (self.woken()?, Vec::new());
        let quiet = wait(|| {
            sleep(REST);
            let now = self.woken()?;
            woken.push(now - std::mem::replace(&mut last, now));
            Ok(woken.last().is_some_and(|woken| *woken <= SELDOM))
        })?;
        reporter.check(
            format!("{when}, the guard sleeps while no task runs"),
            quiet,
            match quiet {
                true => format!("woken {woken:?} times in {REST:?} each"),
                false => format!("woken {woken:?} times in {REST:?} each; {}", log_tail()),
            },
        )
    }
}

/// Uses CPU time on this CPU only.
fn work_on(processor: usize) -> Result<()> {
    let worker = thread::spawn(move || -> Result<()> {
        let mut only = CpuSet::new();
        only.set(processor);
        sched_setaffinity(None, &only).context("cannot set the CPU affinity")?;
        while thread_time() < WORK {
            std::hint::spin_loop();
        }
        Ok(())
    });
    match worker.join() {
        Ok(done) => done,
        Err(_) => bail!("the worker on CPU {processor} has panicked"),
    }
}
