// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight selftest`: it shows the effect of protection, with limelightd and without, and leaves
//! nothing behind, however it ends.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{bail, Result};
use serde_json::Value;

use crate::boost::sleeper;
use crate::cgroup::{self, Cgroup, ROOT};
use crate::daemon::{json, Before, Daemon, Line, LIMELIGHT};
use crate::dispatch::Stage;
use crate::guest_setup::wait;
use crate::process::{named, run as run_program, send, Process, Start};
use crate::record::Reporter;
use crate::store::Store;

/// Beginning of the name of the test's cgroup.
const TREE: &str = "limelight-selftest-";
/// The viewer's cgroup in it.
const VIEWER: &str = "app-limelight_selftest_viewer-1.scope";
/// A file system in memory.
const IN_MEMORY: &str = "/run";
const OUTPUT: &str = "/run/selftest.log";
/// Timeout for a process to end; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs all checks.
pub fn run(mut stage: Stage) -> Result<()> {
    let Store::Directory(disk) = stage.store()? else {
        bail!("the selftest needs a file system");
    };
    refusals(&stage.reporter, &disk)?;
    let before = Before::now(&[])?;
    let free = free_blocks(&disk)?;
    shown(&mut stage, &disk, "alone", "memory.")?;
    before.check_restored("after a selftest without limelightd", &stage.reporter)?;

    let home = Cgroup::create("app.slice/app-front-1.scope")?;
    let front = sleeper(Some(&home), false)?;
    let daemon = Daemon::start(&[front.pid()])?;
    let mut agent = Line::connect()?;
    agent.tell(&format!(
        r#"{{"op":"focus","target":{{"pid":{}}},"source":"agent","hold":true}}"#,
        front.pid()
    ))?;
    shown(&mut stage, &disk, "daemon", "limelightd")?;
    let reporter = &stage.reporter;
    given_back(reporter, "after a selftest", front.pid())?;
    for (when, signal, protected) in [
        ("after kill -9 beside the load", libc::SIGKILL, false),
        (
            "after kill -9 while the viewer is protected",
            libc::SIGKILL,
            true,
        ),
        ("after ^C while the viewer is protected", libc::SIGINT, true),
    ] {
        ended(reporter, &disk, when, signal, protected)?;
        given_back(reporter, when, front.pid())?;
        let gone = wait(|| Ok(left()?.is_empty() && free_blocks(&disk)? >= free))?;
        reporter.check(
            format!("{when}, no cgroup, process or file of the selftest is left"),
            gone,
            format!(
                "{:?}; {} of {free} blocks are free",
                left()?,
                free_blocks(&disk)?
            ),
        )?;
    }
    drop(agent);
    daemon.stop(reporter)?;
    drop(front);
    stage.reporter.finish()
}

/// Checks that the test says why it cannot show anything.
fn refusals(reporter: &Reporter, disk: &Path) -> Result<()> {
    let refused = |case: &str, directory: &Path, word: &str| -> Result<()> {
        let directory = directory.to_string_lossy();
        let (code, text) = run_program(LIMELIGHT, &["selftest", "--directory", &directory])?;
        reporter.check(
            format!("{case}: exit code 1, a reason and no cgroup"),
            code == 1 && text.contains(word) && left()?.is_empty(),
            format!("exit code {code}: {text}"),
        )
    };
    refused("a directory in memory", Path::new(IN_MEMORY), "--directory")?;
    cgroup::remove_all()?;
    cgroup::take_back("memory")?;
    let result = refused(
        "no memory controller",
        disk,
        "memory controller is not enabled",
    );
    Cgroup::create("app.slice")?;
    result
}

/// Runs the test to its end, and checks its result. `by`: what must have protected the viewer.
fn shown(stage: &mut Stage, disk: &Path, name: &str, by: &str) -> Result<()> {
    let (code, result) = json(&["selftest", "--directory", &disk.to_string_lossy()])?;
    let protected_by = result["protected_by"].as_str().unwrap_or_default();
    stage.reporter.check(
        format!("the selftest shows that {by} protects the viewer"),
        code == 0 && result["result"] == "protected" && protected_by.starts_with(by),
        format!("exit code {code}: {result}"),
    )?;
    for phase in ["idle", "without", "with"] {
        for figure in ["major_faults", "median_us", "swipes"] {
            if let Some(value) = result[phase][figure].as_u64() {
                stage
                    .reporter
                    .value(format!("{name}_{phase}_{figure}"), value);
            }
        }
    }
    Ok(())
}

/// Starts the test, and sends it a signal in its middle. SIGINT goes to its process group, as a
/// terminal sends it.
fn ended(reporter: &Reporter, disk: &Path, when: &str, signal: i32, late: bool) -> Result<()> {
    let output = fs::File::create(OUTPUT)?;
    let mut command = Command::new(LIMELIGHT);
    command.args(["--timeout", "120", "selftest", "--directory"]);
    command.arg(disk).process_group(0);
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut test: Process = Start::PLAIN.program(command, "selftest")?;
    let reached = wait(|| Ok(in_middle(late)))?;
    match signal {
        libc::SIGINT => send(-test.pid(), signal)?,
        _ => test.signal(signal)?,
    }
    let code = test.wait(PATIENCE)?;
    let text = fs::read_to_string(OUTPUT)?;
    let told = signal == libc::SIGKILL || (code == 1 && text.contains("interrupted"));
    reporter.check(
        format!("{when}, the selftest ends in its middle"),
        reached && told,
        format!("reached: {reached}; exit code {code}: {text}"),
    )
}

/// Whether the load runs; `protected`: whether the viewer is protected too.
fn in_middle(protected: bool) -> bool {
    let Some(tree) = trees().pop() else {
        return false;
    };
    let holds = |path: &str| {
        let text = fs::read_to_string(tree.join(path)).unwrap_or_default();
        !["", "0"].contains(&text.trim())
    };
    let reserved = ["memory.min", "memory.low"].map(|knob| holds(&format!("{VIEWER}/{knob}")));
    holds("load/cgroup.procs") && reserved.contains(&true) == protected
}

/// The test's cgroups.
fn trees() -> Vec<PathBuf> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TREE));
    ours.map(|entry| entry.path()).collect()
}

/// Cgroups and processes of the test.
fn left() -> Result<Vec<String>> {
    let trees = trees().into_iter().map(|path| path.display().to_string());
    let process = named("limelight")?.map(|pid| format!("pid {pid}"));
    Ok(trees.chain(process).collect())
}

fn free_blocks(disk: &Path) -> Result<u64> {
    Ok(rustix::fs::statvfs(disk)?.f_bfree)
}

/// Checks that the app that had the foreground before the test has it again.
fn given_back(reporter: &Reporter, when: &str, pid: i32) -> Result<()> {
    let front = || -> Result<Value> { Ok(json(&["status"])?.1["topmost"]["pid"].clone()) };
    reporter.check(
        format!("{when}, the foreground belongs to the app that had it before"),
        wait(|| Ok(front()? == pid))?,
        format!("foreground: {}, before the test: {pid}", front()?),
    )
}
