// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks limelightd on a system laid out like Android: `oom_score_adj` and the cpuset `top-app`
//! identify the foreground app, and cgroup v1 holds the memory, cpu and blkio controllers.

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

/// Values of oom_score_adj that Android sets for the foreground app and for a cached app.
const FRONT: i32 = 0;
const CACHED: i32 = 900;
const TOP_APP: &str = "top-app";
const BACKGROUND: &str = "background";
/// Length of the idle period, and the maximum number of wakeups of the daemon's main thread in it.
const REST: Duration = Duration::from_secs(10);
const WAKE_UPS_MAX: u64 = 4;

/// An app as Android starts it: its process identifies the app, since its cgroup is not a unit.
struct App {
    process: Process,
}

impl App {
    fn start(name: &str) -> Result<App> {
        let cgroup = Cgroup::create(&format!("uid_10001/pid_{name}"))?;
        let process = sleeper(Some(&cgroup), true)?;
        let app = App { process };
        app.process.set_oom_score_adj(CACHED)?;
        Ok(app)
    }

    fn pid(&self) -> i32 {
        self.process.pid()
    }
}

/// Moves a process or a thread into a cpuset; `file` is `cgroup.procs` or `tasks`.
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
    let topmost = &status["foreground"];
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
        let figures = format!("foreground PID and source: {seen:?}, expected {wanted:?}");
        reporter.check(what, seen == wanted, figures)
    };
    let (a, b) = (App::start("a")?, App::start("b")?);
    let pids = [a.pid(), b.pid()];
    let first: Vec<String> = [&a, &b]
        .iter()
        .map(|app| standing(app.pid(), None))
        .collect::<Result<_>>()?;
    make_cpuset(TOP_APP)?;
    make_cpuset(BACKGROUND)?;
    // The test moves the apps back to this cpuset at its end, so that their cgroups compare equal.
    for pid in pids {
        put(BACKGROUND, "cgroup.procs", pid)?;
    }
    let daemon = Daemon::start(&pids)?;

    let log = fs::read_to_string(LOG).unwrap_or_default();
    let logged = log.contains("no memory controller, cgroup v1 holds it");
    reporter.check(
        "limelightd runs and logs that cgroup v1 holds the memory controller",
        logged,
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
        "doctor reports that cgroup v1 holds the memory controller, with a cure",
        named,
        format!("doctor's finding: {found:?}"),
    )?;

    let before = main_wakeups(daemon.pid())?;
    sleep(REST);
    let times = main_wakeups(daemon.pid())? - before;
    reporter.check(
        format!("without events, limelightd wakes at most {WAKE_UPS_MAX} times in {REST:?}"),
        times <= WAKE_UPS_MAX,
        format!("woken {times} times"),
    )?;

    a.process.set_oom_score_adj(FRONT)?;
    in_front(
        "a process whose oom_score_adj becomes 0 is in the foreground",
        &a,
        "oom_score_adj",
    )?;
    let lifted = |app: &App| Ok(standing(app.pid(), None)?.contains("nice -"));
    wait(|| lifted(&a))?;
    let seen = standing(a.pid(), None)?;
    reporter.check(
        "the foreground app gets a negative nice value",
        lifted(&a)?,
        seen,
    )?;

    put(TOP_APP, "cgroup.procs", b.pid())?;
    in_front(
        "a process moved into top-app is in the foreground",
        &b,
        "top-app",
    )?;
    wait(|| Ok(standing(a.pid(), None)? == first[0]))?;
    let seen = standing(a.pid(), None)?;
    reporter.check(
        "the app that left the foreground has its original values",
        seen == first[0],
        format!("{seen}; before limelightd: {}", first[0]),
    )?;
    a.process.set_oom_score_adj(CACHED)?;
    a.process.set_oom_score_adj(FRONT)?;
    sleep(Duration::from_secs(1));
    in_front(
        "once an app is in top-app, oom_score_adj 0 of another app has no effect",
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
        thread.context("limelightd has only one thread")?,
    )?;
    sleep(Duration::from_secs(1));
    in_front(
        "a single thread moved into top-app does not make its process the foreground app",
        &b,
        "top-app",
    )?;
    put(TOP_APP, "tasks", a.pid())?;
    put(BACKGROUND, "cgroup.procs", b.pid())?;
    in_front(
        "a process whose main thread is moved into top-app is in the foreground",
        &a,
        "top-app",
    )?;

    let before = daemon.kill()?;
    let daemon = Daemon::start_after(before)?;
    in_front(
        "after kill -9, limelightd's successor finds the app in top-app",
        &a,
        "top-app",
    )?;
    let seen = standing(b.pid(), None)?;
    reporter.check(
        "after the successor's start, the background app has its original values",
        seen == first[1],
        seen,
    )?;
    put(BACKGROUND, "cgroup.procs", a.pid())?;
    let no_app = wait(|| Ok(topmost()?.is_none()))?;
    reporter.check(
        "when every app has left top-app, no app is in the foreground",
        no_app,
        format!("foreground PID and source: {:?}", topmost()?),
    )?;
    // The app's value from before the daemon's start.
    a.process.set_oom_score_adj(CACHED)?;
    daemon.stop(reporter)?;
    let seen = standing(a.pid(), None)?;
    reporter.check(
        "after limelightd stopped, the app has its original values",
        seen == first[0],
        seen,
    )?;
    drop((a, b));
    for group in [TOP_APP, BACKGROUND] {
        let path = Path::new(CPUSET).join(group);
        // A cpuset becomes empty shortly after its last process is reaped.
        if !wait(|| Ok(fs::remove_dir(&path).is_ok()))? {
            anyhow::bail!("{} cannot be removed", path.display());
        }
    }
    stage.reporter.finish()
}
