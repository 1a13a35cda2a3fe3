// SPDX-License-Identifier: GPL-2.0-or-later
//! Hundreds of processes and cgroups come and go, and apps exit while the daemon selects victims.

use std::io::{self, BufRead};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_core::model::class::Class;
use limelight_proto::MemoryAction;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::counters::{forks, Counters};
use crate::daemon::{self, focus, history, Daemon, Footprint};
use crate::dispatch::Stage;
use crate::memory::Mapping;
use crate::process::{Conversation, Start};
use crate::random::{seed, Random};
use crate::scenario::Storm;
use crate::swap_app::{App, Spec, CLASSES, DISPOSABLE, KEEP, NORMAL};

/// Memory that a short-lived process touches.
const CHILD: usize = 64 << 10;
/// One process in this many gets its own cgroup.
const GROUP_EVERY: u64 = 20;
/// Interval between two batches of processes.
const TURN: Duration = Duration::from_millis(50);

/// Apps that must survive: class, name and memory in MiB.
const INNOCENT: [(&str, &str, u32); 2] = [(KEEP, "office", 16), (KEEP, "bank", 16)];
const FRONT_MIB: u32 = 24;
const BURST_MIB: u32 = 8;
/// Leak rate of a burst, an app that leaks: two bursts exhaust memory within a second.
const BURST_MIB_PER_S: u32 = 64;
/// Number of concurrent bursts, and the longest life of a burst that is not killed, in
/// milliseconds.
const BURSTS: usize = 2;
const BURST_MS: u64 = 2500;

/// Time for the daemon to scan all apps.
const SCAN: Duration = Duration::from_secs(3);
/// Time within which the daemon notices ended apps.
const SETTLED: Duration = Duration::from_secs(5);
/// Longest duration of the storm, in multiples of [`Storm::seconds`]: a slow machine needs longer
/// for the same number of processes.
const PATIENCE: u32 = 6;
/// Allowed increase in the daemon's open file descriptors: some come and go with a request or an
/// app.
const SLACK: u64 = 8;

/// Specification of the process that creates the short-lived processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StormerSpec {
    /// Processes per second.
    pub processes_per_s: u32,
}

/// The stormer's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stormed {
    /// Number of processes created.
    pub processes: u64,
    /// Number of cgroups created and removed.
    pub cgroups: u64,
    /// Duration of the storm.
    pub elapsed_ms: u64,
}

/// The stormer's process: storms until the next line on its standard input, then answers with its
/// result.
pub fn stormer(spec: &StormerSpec) -> Result<()> {
    let mut lines = io::stdin().lock().lines();
    lines.next().context("no command to start")??;
    drop(lines);
    let started = Instant::now();
    let mut done = Stormed {
        processes: 0,
        cgroups: 0,
        elapsed_ms: 0,
    };
    while !readable(TURN)? {
        let due = started.elapsed().as_millis() as u64 * u64::from(spec.processes_per_s) / 1000;
        while done.processes < due {
            let number = done.processes;
            let group = number.is_multiple_of(GROUP_EVERY).then(|| {
                // By its name, this is the cgroup of a disposable app.
                Cgroup::create(&format!("app.slice/app-{DISPOSABLE}.storm-{number}.scope"))
            });
            let group = group.transpose()?;
            child(group.as_ref())?;
            done.processes += 1;
            if let Some(group) = group {
                group.remove()?;
                done.cgroups += 1;
            }
        }
    }
    done.elapsed_ms = started.elapsed().as_millis() as u64;
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

/// Whether standard input becomes readable within this time.
fn readable(patience: Duration) -> Result<bool> {
    let mut wait = libc::pollfd {
        fd: io::stdin().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `wait` is one valid pollfd.
    match unsafe { libc::poll(&mut wait, 1, patience.as_millis() as i32) } {
        -1 => Err(io::Error::last_os_error()).context("cannot wait for standard input"),
        ready => Ok(ready > 0),
    }
}

/// Forks a process that touches a little memory and exits, and waits for it.
fn child(group: Option<&Cgroup>) -> Result<()> {
    // SAFETY: the stormer is single-threaded, so its child may continue with the whole program.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("the stormer cannot fork"),
        0 => {
            let moved = group.map_or(Ok(()), |group| group.set("cgroup.procs", "0"));
            let touched = moved.and_then(|()| {
                let mut memory = Mapping::anonymous(CHILD)?;
                (0..memory.pages()).for_each(|page| memory.dirty_page(page, 1));
                Ok(())
            });
            // SAFETY: ends the process without running the parent's exit handlers.
            unsafe { libc::_exit(i32::from(touched.is_err())) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the child is ours and has not been waited for.
            unsafe { libc::waitpid(pid, &mut status, 0) };
            let killed = libc::WIFSIGNALED(status);
            if !killed && libc::WEXITSTATUS(status) != 0 {
                bail!("a short-lived process could not do its work");
            }
            Ok(())
        }
    }
}

/// A running storm.
pub struct Stormer(Conversation);

/// Cgroup of the stormer.
pub fn home() -> Result<Cgroup> {
    Cgroup::background("stormer")
}

impl Stormer {
    /// Starts the storm in `cgroup`, the stormer's [`home`].
    pub fn start(cgroup: &Cgroup, processes_per_s: u32) -> Result<Stormer> {
        let start = Start::in_cgroup(cgroup);
        let mut talk = start.conversation("stormer", &StormerSpec { processes_per_s })?;
        talk.say("storm")?;
        Ok(Stormer(talk))
    }

    /// Stops the storm and returns the result.
    pub fn stop(mut self) -> Result<Stormed> {
        self.0.ask("enough")
    }
}

/// An app that leaks until it is killed or its time is up.
struct Burst {
    app: App,
    ends: Instant,
}

impl Burst {
    fn start(number: u64, random: &mut Random) -> Result<Burst> {
        let spec = Spec {
            mib: BURST_MIB,
            leak_mib_per_s: BURST_MIB_PER_S,
            seed: number,
        };
        let mut app = App::start(DISPOSABLE, &format!("burst{number}"), &spec)?;
        app.talk.say("leak")?;
        let lives = Duration::from_millis(random.below(BURST_MS));
        Ok(Burst {
            app,
            ends: Instant::now() + lives,
        })
    }

    /// Kills the app, if it is still alive, and removes its cgroup.
    fn end(self) -> Result<()> {
        let cgroup = self.app.cgroup().clone();
        drop(self.app);
        // The cgroup is empty as soon as the process is dead, even if its memory is not free yet.
        cgroup.remove()
    }
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Storm) -> Result<()> {
    stage.need_daemon("storm")?;
    let mut random = Random::new(seed(0x5702, stage.repetition));
    let spec = |mib| Spec::new(mib, u64::from(mib));
    let innocent = INNOCENT
        .iter()
        .map(|(class, name, mib)| App::start(class, name, &spec(*mib)));
    let mut innocent: Vec<App> = innocent.collect::<Result<_>>()?;
    innocent.push(App::start(NORMAL, "front", &spec(FRONT_MIB))?);
    let home = home()?;
    daemon::write_config(CLASSES)?;
    let mut daemon = Daemon::start(&[])?;
    for app in &innocent {
        focus(app.pid())?;
    }
    sleep(SCAN);
    let before = daemon.footprint()?;
    let counters = Counters::now()?;
    let stormer = Stormer::start(&home, work.processes_per_s)?;

    let begun = Instant::now();
    let length = Duration::from_secs(work.seconds.into());
    let forked = forks()?;
    let mut bursts: Vec<Burst> = Vec::new();
    let mut number = 0;
    while begun.elapsed() < length
        || forks()? - forked < work.processes && begun.elapsed() < length * PATIENCE
    {
        while bursts.len() < BURSTS {
            bursts.push(Burst::start(number, &mut random)?);
            number += 1;
        }
        sleep(Duration::from_millis(10));
        let mut place = 0;
        while let Some(burst) = bursts.get_mut(place) {
            match !burst.app.alive() || Instant::now() >= burst.ends {
                true => bursts.swap_remove(place).end()?,
                false => place += 1,
            }
        }
    }
    bursts.drain(..).try_for_each(Burst::end)?;
    let stormed = stormer.stop()?;
    sleep(SETTLED);
    // The daemon scans apps when the foreground app changes.
    for app in &innocent {
        focus(app.pid())?;
    }
    sleep(SCAN);
    counters.report(&mut stage.reporter.values)?;
    let after = daemon.alive().then(|| daemon.footprint()).transpose()?;
    judge(&mut stage, &mut innocent, before, after)?;
    let reporter = &mut stage.reporter;
    reporter.value("processes", stormed.processes);
    reporter.value(
        "processes_per_s",
        stormed.processes as f64 * 1000.0 / stormed.elapsed_ms.max(1) as f64,
    );
    reporter.value("cgroups", stormed.cgroups);
    reporter.value("bursts", number);
    drop(innocent);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

fn judge(
    stage: &mut Stage,
    innocent: &mut [App],
    before: Footprint,
    after: Option<Footprint>,
) -> Result<()> {
    let entries = history()?;
    let kills: Vec<_> = entries
        .iter()
        .filter(|entry| entry.action == MemoryAction::Kill)
        .collect();
    let dead = innocent
        .iter_mut()
        .map(|app| usize::from(!app.alive()))
        .sum::<usize>();
    let reporter = &mut stage.reporter;
    reporter.value("kills", kills.len());
    reporter.value("innocent_dead", dead);
    reporter.value("daemon_fds_before", before.descriptors);
    reporter.check(
        "the daemon survives the storm",
        after.is_some(),
        daemon::log_tail(),
    )?;
    if let Some(after) = after {
        reporter.value("daemon_fds_after", after.descriptors);
        reporter.check(
            format!(
                "the daemon has at most {SLACK} more descriptors than before, and no more threads"
            ),
            after.descriptors <= before.descriptors + SLACK && after.threads <= before.threads,
            format!("{before:?} before, {after:?} after"),
        )?;
    }
    let wrong = kills.iter().filter(|kill| {
        let cgroup = kill.app.as_ref().and_then(|app| app.cgroup.as_deref());
        kill.class != Some(Class::Disposable)
            || !cgroup.is_some_and(|cgroup| {
                let name = Path::new(cgroup).file_name().unwrap_or_default();
                name.to_string_lossy().starts_with("app-disposable.")
            })
    });
    let wrong: Vec<_> = wrong.collect();
    reporter.check(
        "at least one app is killed, and all killed apps are disposable",
        wrong.is_empty() && dead == 0 && !kills.is_empty(),
        format!(
            "{} kills; kills of other apps: {wrong:?}; {dead} apps dead that must survive",
            kills.len()
        ),
    )
}
