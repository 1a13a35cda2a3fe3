// SPDX-License-Identifier: GPL-2.0-or-later
//! PREZERO's experiment: a foreground task allocates memory, touches it, computes on it and frees
//! it, with idle gaps between its runs. It runs alone, or next to a background program with a fixed
//! amount of work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep, JoinHandle};
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cache_model;
use crate::cgroup::Cgroup;
use crate::churn::{Run, Spec};
use crate::counters::Counters;
use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::memory::{cpu_ns, now_ns};
use crate::pages::PageSetting;
use crate::plan::Arm;
use crate::pool::{self, Windows};
use crate::process::{Conversation, Process, Start};
use crate::record::Reporter;
use crate::response::median;
use crate::scenario::{Mechanisms, Prezero};
use crate::{background, memory};

/// Settling time before the measurement.
const SETTLE: Duration = Duration::from_secs(1);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Prezero) -> Result<()> {
    let app_cgroup = Cgroup::create(APP)?;
    let background_cgroup = Cgroup::background("program")?;
    let start = Start::in_cgroup(&app_cgroup);
    let mut app = start.conversation("churn", &Spec { pages: work.pages })?;
    let _ready: bool = app.hear()?;
    let program = work
        .background
        .map(|program| background::start(program, &background_cgroup))
        .transpose()?;
    sleep(SETTLE);
    let _folios = PageSetting::make(work.folios)?;
    let daemon = match stage.arm {
        Arm::Idle | Arm::Stock | Arm::InitOnFree => None,
        Arm::Limelight => {
            pool::configure(work.engine, work.mechanisms, &stage.machine)?;
            let daemon = Daemon::start(&[app.process.pid()])?;
            focus(app.process.pid())?;
            Some(daemon)
        }
        arm => bail!("prezero does not support arm {arm:?}"),
    };
    let zeroes = daemon.is_some() && work.mechanisms != Mechanisms::AllButPrezero;
    let mut front = Front {
        app,
        windows: daemon.is_some().then(Windows::connect).transpose()?,
        gap: Duration::from_millis(work.gap_ms.into()),
        runs_us: Vec::new(),
    };
    if zeroes {
        pool::wait_full()?;
    }
    if stage.arm != Arm::Idle {
        for _ in 0..work.warm_up {
            front.run()?;
        }
        front.runs_us.clear();
    }

    if zeroes {
        stage.reporter.value("pooled_pages", pool::wait_full()?);
    }
    let zeroing_us = || match zeroes {
        true => pool::number("zero_us"),
        false => Ok(0),
    };
    let counters = Counters::now()?;
    let zeroed_us = zeroing_us()?;
    let daemon_ns = daemon.as_ref().map_or(Ok(0), Daemon::cpu_ns)?;
    let app_cpu = cpu_ns(front.app.process.pid());
    if work.cache_model {
        cache_model::begin();
    }
    match program {
        None => {
            for _ in 0..work.runs {
                if zeroes {
                    // In exact mode, time jumps ahead while the machine is idle, so filling the
                    // pool from a host-backed disk seems slow. Waiting here keeps the filling out
                    // of the run's time.
                    pool::wait_full()?;
                }
                front.run()?;
            }
        }
        Some(program) => {
            let mut program = Running::go(program)?;
            while !program.ended() {
                match stage.arm {
                    Arm::Idle => sleep(front.gap),
                    _ => front.run()?,
                }
                if work.rest_ms > 0 {
                    program.rest(Duration::from_millis(work.rest_ms.into()))?;
                }
            }
            program.report(&mut stage.reporter)?;
        }
    }
    if work.cache_model {
        let report = cache_model::end(stage.index)?;
        stage.reporter.value("cache_report", report);
    }
    let app_cpu = cpu_ns(front.app.process.pid()) - app_cpu;
    counters.report(&mut stage.reporter.values)?;
    stage.reporter.value("app_cpu_us", app_cpu as f64 / 1000.0);
    if let Some(daemon) = &daemon {
        let daemon_ns = daemon.cpu_ns()? - daemon_ns;
        let reporter = &mut stage.reporter;
        reporter.value("daemon_cpu_us", daemon_ns as f64 / 1000.0);
        reporter.value("prezero_cpu_us", zeroing_us()? - zeroed_us);
    }
    front.report(&mut stage.reporter);
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// The task and the times of its runs.
struct Front {
    app: Conversation,
    windows: Option<Windows>,
    gap: Duration,
    runs_us: Vec<f64>,
}

impl Front {
    /// Runs the task once, in a response window if there is a daemon, and waits for the gap.
    fn run(&mut self) -> Result<()> {
        if let Some(windows) = &mut self.windows {
            windows.open()?;
        }
        let run: Run = self.app.ask("run")?;
        if let Some(windows) = &mut self.windows {
            windows.close()?;
        }
        self.runs_us.push(run.elapsed_ns as f64 / 1000.0);
        sleep(self.gap);
        Ok(())
    }

    fn report(&mut self, reporter: &mut Reporter) {
        reporter.value("runs", self.runs_us.len());
        for us in &self.runs_us {
            reporter.sample("run_us", *us);
        }
        if !self.runs_us.is_empty() {
            let mean = self.runs_us.iter().sum::<f64>() / self.runs_us.len() as f64;
            reporter.value("response_mean_us", mean);
            reporter.value("response_us", median(&mut self.runs_us));
        }
    }
}

/// A running background program. A thread waits for the program's end, so that the measured end
/// time does not depend on polling.
struct Running {
    program: Process,
    began_ns: u64,
    rested_ns: u64,
    cpu_before_us: u64,
    ended: std::sync::Arc<AtomicBool>,
    waiter: JoinHandle<Result<u64>>,
}

impl Running {
    fn go(mut program: Process) -> Result<Running> {
        let cpu_before_us = memory::cpu_of_children_us();
        let ended = std::sync::Arc::new(AtomicBool::new(false));
        let (pid, flag) = (program.pid(), ended.clone());
        let began_ns = now_ns();
        program.tell("go")?;
        let waiter = thread::spawn(move || {
            let waited = crate::process::await_end(pid);
            let at_ns = now_ns();
            flag.store(true, Ordering::Release);
            waited.map(|()| at_ns)
        });
        Ok(Running {
            program,
            began_ns,
            rested_ns: 0,
            cpu_before_us,
            ended,
            waiter,
        })
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Suspends the program for `time`, which does not count as its running time.
    fn rest(&mut self, time: Duration) -> Result<()> {
        if self.ended() {
            return Ok(());
        }
        let since = now_ns();
        self.program.signal(libc::SIGSTOP)?;
        sleep(time);
        self.program.signal(libc::SIGCONT)?;
        self.rested_ns += now_ns() - since;
        Ok(())
    }

    fn report(mut self, reporter: &mut Reporter) -> Result<()> {
        let ended_ns = match self.waiter.join() {
            Ok(ended_ns) => ended_ns?,
            Err(_) => bail!("the thread that waits for the background program panicked"),
        };
        let status = self.program.ended()?;
        let status = status.context("the background program has ended without an exit status")?;
        if !status.success() {
            bail!("the background program ended with {status}: see the console");
        }
        let cpu_us = memory::cpu_of_children_us() - self.cpu_before_us;
        let elapsed_ns = ended_ns - self.began_ns - self.rested_ns;
        reporter.value("background_us", elapsed_ns as f64 / 1000.0);
        reporter.value("background_cpu_us", cpu_us);
        Ok(())
    }
}
