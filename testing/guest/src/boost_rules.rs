// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks boost's promises other than speed: boosted values follow the focus, original values are
//! restored exactly, values set by the user win, a successor undoes a killed daemon's changes, and
//! no other process is changed.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use crate::boost::{renice, sleeper, standing};
use crate::cgroup::Cgroup;
use crate::daemon::{focus, limelight, Daemon, LIMELIGHT};
use crate::disk::Disk;
use crate::dispatch::Stage;
use crate::followed::nice;
use crate::plan::Data;
use crate::process::{run as run_program, Process, Start};
use crate::record::Reporter;

/// Longer than the daemon's scan interval for an app.
const SCAN_WAIT: Duration = Duration::from_millis(1500);

/// Number of busy loops (more than CPUs), and the nice value that the daemon gives them.
const LOOPS: usize = 6;
const COMPETITOR_NICE: i32 = 7;
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// An app with or without a cgroup of its own.
struct App {
    process: Process,
    cgroup: Option<Cgroup>,
}

impl App {
    fn start(scope: Option<&str>, session: bool) -> Result<App> {
        let cgroup = scope
            .map(|name| Cgroup::create(&format!("app.slice/app-limelight-{name}-1.scope")))
            .transpose()?;
        let process = sleeper(cgroup.as_ref(), session)?;
        Ok(App { process, cgroup })
    }

    fn pid(&self) -> i32 {
        self.process.pid()
    }

    fn standing(&self) -> Result<String> {
        standing(self.pid(), self.cgroup.as_ref())
    }
}

/// Checks busy loops on all CPUs, in no cgroup of their own. The daemon renices them while an app
/// without its own cgroup is in the foreground, and restores them when that app leaves.
fn competitors(reporter: &Reporter, bare: &App, other: &App) -> Result<()> {
    let spin = |_| {
        let mut command = Command::new("/bin/busybox");
        command.args(["sh", "-c", "while :; do :; done"]);
        Start::PLAIN.program(command, "loop")
    };
    let loops: Vec<Process> = (0..LOOPS).map(spin).collect::<Result<_>>()?;
    let nices = || -> Result<Vec<i32>> { loops.iter().map(|one| Ok(nice(one.pid()))).collect() };
    let until = |wanted: i32| -> Result<Vec<i32>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = nices()?;
            if seen.iter().all(|nice| *nice == wanted) || Instant::now() > deadline {
                return Ok(seen);
            }
            sleep(SCAN_WAIT / 3);
        }
    };
    focus(bare.pid())?;
    let seen = until(COMPETITOR_NICE)?;
    reporter.check(
        "busy programs get nice 7 while an app without its own cgroup is in the foreground",
        seen.iter().all(|nice| *nice == COMPETITOR_NICE),
        format!("nice values: {seen:?}"),
    )?;
    let (_, text) = run_program(LIMELIGHT, &["explain", &loops[0].pid().to_string()])?;
    reporter.check(
        "explain names a busy program's new nice value and the reason",
        text.contains("nice 7") && text.contains("competes with the foreground app"),
        text,
    )?;
    focus(other.pid())?;
    let seen = until(0)?;
    reporter.check(
        "busy programs get nice 0 again when an app with its own cgroup takes the foreground",
        seen.iter().all(|nice| *nice == 0),
        format!("nice values: {seen:?}"),
    )
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    std::fs::create_dir_all("/etc/limelight")?;
    std::fs::write(crate::daemon::CONFIG, "[protect]\nadopt = \"off\"\n")?;
    let Data::Disk(disk) = &stage.machine.data else {
        bail!("this test needs a data disk that has a scheduler");
    };
    Disk::of(Path::new(disk))?.set_scheduler("bfq")?;
    let named = |name| App::start(Some(name), false);
    let (first, second) = (named("first")?, named("second")?);
    // Each of these apps has its own session, which is a scheduling group (autogroup).
    let (bare, innocent) = (App::start(None, true)?, App::start(None, true)?);
    renice(first.pid(), 3)?;
    let everyone = [&first, &second, &bare, &innocent];
    let all = || -> Result<Vec<String>> { everyone.iter().map(|app| app.standing()).collect() };
    let before = all()?;
    let pids: Vec<i32> = everyone.iter().map(|app| app.pid()).collect();
    let expect = |what: &str, app: &App, words: &[&str]| -> Result<()> {
        let seen = app.standing()?;
        let held = words.iter().all(|word| seen.contains(word));
        reporter.check(what, held, seen)
    };
    let same = |what: &str, index: usize| -> Result<()> {
        let seen = everyone[index].standing()?;
        reporter.check(
            what,
            seen == before[index],
            format!("{seen}; before limelightd: {}", before[index]),
        )
    };

    let daemon = Daemon::start(&pids)?;
    focus(first.pid())?;
    let boosted = ["slice 300000 ns", "cpu.weight 10000"];
    expect(
        "the foreground app gets cpu.weight 10000 and a slice of 300000 ns",
        &first,
        &boosted,
    )?;
    expect(
        "a foreground app with its own cgroup keeps its nice value",
        &first,
        &["nice 3,"],
    )?;
    let ordered = ["io.bfq.weight default 1000", "I/O best-effort 0"];
    expect(
        "with BFQ, the foreground app gets io.bfq.weight 1000 and I/O priority 0",
        &first,
        &ordered,
    )?;
    let (_, doctor) = run_program(LIMELIGHT, &["doctor", "--all"])?;
    let live = |knob: &str| {
        let mut lines = doctor.lines();
        lines.any(|line| line.contains(knob) && line.starts_with("acts") && line.contains("live"))
    };
    reporter.check(
        "doctor reports that a disk's scheduler honours I/O weight and I/O priority",
        live("boost io.weight") && live("boost ioprio"),
        doctor.clone(),
    )?;
    focus(second.pid())?;
    expect("the boost follows the focus", &second, &boosted)?;
    same("the first app has its original values after the boost", 0)?;

    focus(bare.pid())?;
    let reniced = ["nice -20,", "slice 300000 ns", "session nice -20"];
    expect(
        "an app without its own cgroup gets nice -20, and so does its session",
        &bare,
        &reniced,
    )?;
    same("the second app has its original values after the boost", 1)?;
    same("a process that belongs to no app keeps its values", 3)?;
    renice(bare.pid(), 7)?;
    sleep(SCAN_WAIT);
    expect(
        "limelightd does not overwrite a nice value that the user sets",
        &bare,
        &["nice 7,"],
    )?;
    focus(second.pid())?;
    expect(
        "a nice value that the user sets stays when the app loses the focus",
        &bare,
        &["nice 7,"],
    )?;
    renice(bare.pid(), 0)?;

    second_weight(&second, "250")?;
    sleep(SCAN_WAIT);
    focus(first.pid())?;
    expect(
        "a cpu.weight that the user sets stays when the app loses the focus",
        &second,
        &["cpu.weight 250"],
    )?;
    second_weight(&second, "100")?;

    competitors(reporter, &bare, &second)?;
    focus(bare.pid())?;
    let dead = daemon.kill()?;
    expect(
        "boosted values stay after kill -9 of limelightd and its watcher",
        &bare,
        &reniced,
    )?;
    let successor = Daemon::start_after(dead)?;
    for (index, app) in [
        "first app",
        "second app",
        "app without a cgroup",
        "process of no app",
    ]
    .iter()
    .enumerate()
    {
        same(
            &format!("after kill -9 and a successor's start, the {app} has its original values"),
            index,
        )?;
    }
    limelight(&["focus", "--none"])?;
    successor.stop(reporter)?;
    std::fs::remove_file(crate::daemon::CONFIG)?;
    stage.reporter.finish()
}

fn second_weight(app: &App, weight: &str) -> Result<()> {
    match &app.cgroup {
        Some(cgroup) => cgroup.set("cpu.weight", weight),
        None => Ok(()),
    }
}
