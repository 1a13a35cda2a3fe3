// SPDX-License-Identifier: GPL-2.0-or-later
//! limelightd on a system laid out as Android's: the foreground app is known from `oom_score_adj`
//! and from the cpuset `top-app`, and cgroup v1 holds the memory, cpu and blkio controllers.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::boost::{sleeper, standing};
use crate::cgroup::Cgroup;
use crate::daemon::{self, main_wakeups, Daemon, LOG};
use crate::dispatch::Stage;
use crate::guest_setup::{wait, CPUSET};
use crate::process::Process;

/// Values of oom_score_adj that Android sets: for the foreground app, and for a cached one.
const FRONT: i32 = 0;
const CACHED: i32 = 900;
const TOP_APP: &str = "top-app";
const BACKGROUND: &str = "background";
/// Length of the idle period, and how often the daemon's main thread may run in it.
const REST: Duration = Duration::from_secs(10);
const WAKE_UPS_MAX: u64 = 4;

/// An app as Android starts it: only its process identifies it.
struct App {
    process: Process,
}

impl App {
    fn start(name: &str) -> Result<App> {
        let cgroup = Cgroup::create(&format!("uid_10001/pid_{name}"))?;
        let process = sleeper(Some(&cgroup), true)?;
        let app = App { process };
        app.set_score(CACHED)?;
        Ok(app)
    }

    fn pid(&self) -> i32 {
        self.process.pid()
    }

    fn set_score(&self, value: i32) -> Result<()> {
        let path = format!("/proc/{}/oom_score_adj", self.pid());
        fs::write(&path, value.to_string()).with_context(|| format!("cannot write {path}"))
    }
}

/// Moves a process, or with `tasks` a thread, into a cpuset.
fn put(group: &str, file: &str, number: i32) -> Result<()> {
    let path = Path::new(CPUSET).join(group).join(file);
    fs::write(&path, number.to_string())
        .with_context(|| format!("cannot move {number} into {}", path.display()))
}

/// Creates a cpuset with all CPUs and all memory nodes.
fn make_cpuset(name: &str) -> Result<()> {
    let directory = Path::new(CPUSET).join(name);
    fs::create_dir_all(&directory)?;
    for file in ["cpus", "mems"] {
        let all = fs::read_to_string(Path::new(CPUSET).join(file))?;
        fs::write(directory.join(file), all.trim())?;
    }
    Ok(())
}

fn json(arguments: &[&str]) -> Result<Value> {
    Ok(daemon::json(arguments)?.1)
}

/// The topmost app's PID and the source that named it.
fn topmost() -> Result<Option<(i64, String)>> {
    let status = json(&["status"])?;
    let topmost = &status["topmost"];
    Ok(topmost["pid"].as_i64().map(|pid| {
        let source = topmost["source"].as_str().unwrap_or_default();
        (pid, source.to_owned())
    }))
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    let in_front = |what: &str, app: &App, source: &str| -> Result<()> {
        let wanted = Some((i64::from(app.pid()), source.to_owned()));
        wait(|| Ok(topmost()? == wanted))?;
        let seen = topmost()?;
        reporter.check(what, seen == wanted, format!("{seen:?}, wanted {wanted:?}"))
    };
    let (a, b) = (App::start("a")?, App::start("b")?);
    let pids = [a.pid(), b.pid()];
    let first: Vec<String> = [&a, &b]
        .iter()
        .map(|app| standing(app.pid(), None))
        .collect::<Result<_>>()?;
    make_cpuset(TOP_APP)?;
    make_cpuset(BACKGROUND)?;
    // They also end up there, so limelightd has nothing to restore.
    for pid in pids {
        put(BACKGROUND, "cgroup.procs", pid)?;
    }
    let daemon = Daemon::start(&pids)?;

    let log = fs::read_to_string(LOG).unwrap_or_default();
    let said = log.contains("no memory controller, cgroup v1 holds it");
    reporter.check(
        "where cgroup v1 holds the memory controller, limelightd runs and says what cannot act",
        said,
        log,
    )?;
    let doctor = json(&["doctor"])?;
    let checks = doctor.as_array().context("doctor has no list")?;
    let found = checks
        .iter()
        .find(|one| one["check"] == "memory controller");
    let named = found.is_some_and(|one| {
        one["detail"]
            .as_str()
            .is_some_and(|text| text.contains("cgroup v1 holds it"))
            && one["cure"]
                .as_str()
                .is_some_and(|text| text.contains("cgroups.json"))
    });
    reporter.check(
        "doctor names it, with the cure",
        named,
        format!("{found:?}"),
    )?;

    let before = main_wakeups(daemon.pid())?;
    sleep(REST);
    let times = main_wakeups(daemon.pid())? - before;
    reporter.check(
        format!("while nothing happens it runs at most {WAKE_UPS_MAX} times in {REST:?}"),
        times <= WAKE_UPS_MAX,
        format!("{times} times"),
    )?;

    a.set_score(FRONT)?;
    in_front(
        "a process whose value becomes 0 is in the foreground",
        &a,
        "oom_score_adj",
    )?;
    let lifted = |app: &App| Ok(standing(app.pid(), None)?.contains("nice -"));
    wait(|| lifted(&a))?;
    let seen = standing(a.pid(), None)?;
    reporter.check("and is given precedence by nice values", lifted(&a)?, seen)?;

    put(TOP_APP, "cgroup.procs", b.pid())?;
    in_front("a process put into top-app is in front", &b, "top-app")?;
    wait(|| Ok(standing(a.pid(), None)? == first[0]))?;
    let seen = standing(a.pid(), None)?;
    reporter.check(
        "the app that was in front has its old values",
        seen == first[0],
        format!("{seen}, before {}", first[0]),
    )?;
    a.set_score(CACHED)?;
    a.set_score(FRONT)?;
    sleep(Duration::from_secs(1));
    in_front(
        "a value of 0 outside of top-app does not count any more",
        &b,
        "top-app",
    )?;
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid()))?;
    let thread = threads
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .find(|&tid: &i32| tid != daemon.pid());
    put(
        TOP_APP,
        "tasks",
        thread.context("limelightd has one thread")?,
    )?;
    sleep(Duration::from_secs(1));
    in_front(
        "a thread alone in top-app does not bring its process",
        &b,
        "top-app",
    )?;
    put(TOP_APP, "tasks", a.pid())?;
    put(BACKGROUND, "cgroup.procs", b.pid())?;
    in_front("by its threads' file too", &a, "top-app")?;

    let before = daemon.kill()?;
    let daemon = Daemon::start_after(before)?;
    in_front("a successor sees the app in top-app", &a, "top-app")?;
    let seen = standing(b.pid(), None)?;
    reporter.check(
        "and has put back what a dead daemon changed",
        seen == first[1],
        seen,
    )?;
    put(BACKGROUND, "cgroup.procs", a.pid())?;
    let nobody = wait(|| Ok(topmost()?.is_none()))?;
    reporter.check(
        "when all have left, no app is in the foreground",
        nobody,
        format!("{:?}", topmost()?),
    )?;
    // Restores its value from before the daemon's start.
    a.set_score(CACHED)?;
    daemon.stop(reporter)?;
    let seen = standing(a.pid(), None)?;
    reporter.check(
        "after the stop everybody has what he had",
        seen == first[0],
        seen,
    )?;
    drop((a, b));
    for group in [TOP_APP, BACKGROUND] {
        let path = Path::new(CPUSET).join(group);
        // The last process leaves shortly after it was reaped.
        if !wait(|| Ok(fs::remove_dir(&path).is_ok()))? {
            anyhow::bail!("{} cannot be removed", path.display());
        }
    }
    stage.reporter.finish()
}
