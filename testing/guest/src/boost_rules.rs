// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks boost's promises other than speed: values follow the focus and are restored exactly,
//! values set by the user win, a killed daemon's changes are undone, and no other process is
//! touched.

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
const LOOK: Duration = Duration::from_millis(1500);

/// Number of busy loops, more than there are CPUs, and the nice value that they get.
const LOOPS: usize = 6;
const GIVES_WAY: i32 = 7;
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

/// Busy loops on all CPUs, without a cgroup: they are reniced while an app without a cgroup is in
/// the foreground, and restored when it leaves it.
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
            sleep(LOOK / 3);
        }
    };
    focus(bare.pid())?;
    let seen = until(GIVES_WAY)?;
    reporter.check(
        "busy programs beside an app without a cgroup give way to it",
        seen.iter().all(|nice| *nice == GIVES_WAY),
        format!("{seen:?}"),
    )?;
    let (_, text) = run_program(LIMELIGHT, &["explain", &loops[0].pid().to_string()])?;
    reporter.check(
        "explain names the change and its reason",
        text.contains("nice 7") && text.contains("takes a processor"),
        text,
    )?;
    focus(other.pid())?;
    let seen = until(0)?;
    reporter.check(
        "they are put back when it leaves the foreground",
        seen.iter().all(|nice| *nice == 0),
        format!("{seen:?}"),
    )
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    std::fs::create_dir_all("/etc/limelight")?;
    std::fs::write(crate::daemon::CONFIG, "[protect]\nadopt = \"never\"\n")?;
    let Data::Disk(disk) = &stage.machine.data else {
        bail!("this test needs a data disk that has a scheduler");
    };
    Disk::of(Path::new(disk))?.set_scheduler("bfq")?;
    let named = |name| App::start(Some(name), false);
    let (first, second) = (named("first")?, named("second")?);
    // In sessions of their own, each of which is a scheduling group (autogroup).
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
            format!("{seen}, before {}", before[index]),
        )
    };

    let daemon = Daemon::start(&pids)?;
    focus(first.pid())?;
    let boosted = ["slice 300000 ns", "cpu.weight 10000"];
    expect("the topmost app has weight and slice", &first, &boosted)?;
    expect(
        "where a weight acts, nice values stay",
        &first,
        &["nice 3,"],
    )?;
    let ordered = ["io.bfq.weight default 1000", "I/O best-effort 0"];
    expect(
        "where BFQ schedules a disk, the topmost app has its weight and priority",
        &first,
        &ordered,
    )?;
    let (_, doctor) = run_program(LIMELIGHT, &["doctor", "--all"])?;
    let live = |knob: &str| {
        let mut lines = doctor.lines();
        lines.any(|line| line.contains(knob) && line.starts_with("acts") && line.contains("live"))
    };
    reporter.check(
        "doctor says that a disk's scheduler honours both",
        live("boost io.weight") && live("boost ioprio"),
        doctor.clone(),
    )?;
    focus(second.pid())?;
    expect("the boost follows the focus", &second, &boosted)?;
    same("the app that lost the focus is as it was", 0)?;

    focus(bare.pid())?;
    let reniced = ["nice -20,", "slice 300000 ns", "session nice -20"];
    expect(
        "without a cgroup of its own an app and its session get nice values",
        &bare,
        &reniced,
    )?;
    same("the second app is as it was", 1)?;
    same("a process that is no app's is untouched", 3)?;
    renice(bare.pid(), 7)?;
    sleep(LOOK);
    expect(
        "a value that the user sets is not set again",
        &bare,
        &["nice 7,"],
    )?;
    focus(second.pid())?;
    expect("nor put back when the focus leaves", &bare, &["nice 7,"])?;
    renice(bare.pid(), 0)?;

    second_weight(&second, "250")?;
    sleep(LOOK);
    focus(first.pid())?;
    expect(
        "a weight that the user sets stays",
        &second,
        &["cpu.weight 250"],
    )?;
    second_weight(&second, "100")?;

    competitors(reporter, &bare, &second)?;
    focus(bare.pid())?;
    let dead = daemon.kill()?;
    expect("values outlive a daemon that is killed", &bare, &reniced)?;
    let successor = Daemon::start_after(dead)?;
    for (index, app) in [
        "first app",
        "second app",
        "app without a cgroup",
        "innocent",
    ]
    .iter()
    .enumerate()
    {
        same(
            &format!("after kill -9 and a new start the {app} is as it was"),
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
