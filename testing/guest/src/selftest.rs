// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight selftest`: it shows the effect of protection, with limelightd and without, and leaves
//! nothing behind, however it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use serde_json::Value;

use crate::access_rules::become_user;
use crate::boost::sleeper;
use crate::cgroup::{self, Cgroup, ROOT};
use crate::daemon::{json, write_config, Before, Daemon, Line, LIMELIGHT};
use crate::dispatch::Stage;
use crate::guest_setup::{mount, wait};
use crate::handover::USER;
use crate::plan::Init;
use crate::process::{named, send, Process};
use crate::record::Reporter;
use crate::store::Store;
use crate::systemd;

/// Beginning of the name of the test's cgroup.
const TREE: &str = "limelight-selftest-";
/// The viewer's cgroup in it.
const VIEWER: &str = "app-limelight_selftest_viewer-1.scope";
/// Mount point of a file system in memory.
const IN_MEMORY: &str = "/run/in-memory";
const OUTPUT: &str = "/run/selftest.log";
/// Timeout for the test to get to its middle, or to end; longer than the test's own limit.
const PATIENCE: Duration = Duration::from_secs(180);

/// How the test is started.
struct Setting {
    /// Directory of its files.
    disk: PathBuf,
    /// Whether systemd's user manager makes its cgroup, on behalf of [`USER`]. Else it runs as
    /// root, without systemd.
    user: bool,
}

/// Runs all checks.
pub fn run(mut stage: Stage) -> Result<()> {
    let Store::Directory(disk) = stage.store()? else {
        bail!("the selftest needs a file system");
    };
    let user = stage.machine.init == Init::Systemd;
    let setting = Setting { disk, user };
    if user {
        // Not `start_user`, which makes the slice as root if it is missing.
        systemd::systemctl(&["start", &format!("user@{USER}.service")])?;
        fs::set_permissions(&setting.disk, fs::Permissions::from_mode(0o777))?;
        write_config(&format!("[access]\ngroup = {USER}\n"))?;
    } else {
        refusals(&stage.reporter, &setting)?;
    }
    let before = Before::now(&[])?;
    setting.shown(&mut stage, "alone", "memory.")?;
    if !user {
        before.check_restored("after a selftest without limelightd", &stage.reporter)?;
    }

    let home = Cgroup::create("app.slice/app-front-1.scope")?;
    let front = sleeper(Some(&home), false)?;
    let daemon = Daemon::start(&[front.pid()])?;
    let mut agent = Line::connect()?;
    agent.tell(&format!(
        r#"{{"op":"focus","target":{{"pid":{}}},"source":"agent","hold":true}}"#,
        front.pid()
    ))?;
    let free = setting.free_blocks()?;
    setting.shown(&mut stage, "daemon", "limelightd")?;
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
        setting.ended(reporter, when, signal, protected)?;
        given_back(reporter, when, front.pid())?;
        let gone = wait(|| Ok(setting.left()?.is_empty() && setting.free_blocks()? >= free))?;
        let (left, blocks) = (setting.left()?, setting.free_blocks()?);
        reporter.check(
            format!("{when}, no cgroup, process or file of the selftest is left"),
            gone,
            format!("{left:?}; {blocks} of {free} blocks are free"),
        )?;
    }
    drop(agent);
    daemon.stop(reporter)?;
    drop(front);
    stage.reporter.finish()
}

/// Checks that the test says why it cannot show anything.
fn refusals(reporter: &Reporter, setting: &Setting) -> Result<()> {
    let refused = |case: &str, directory: &Path, word: &str| -> Result<()> {
        let (code, text) = setting.run_in(directory)?;
        reporter.check(
            format!("{case}: exit code 1, a reason and no cgroup"),
            code == 1 && text.contains(word) && setting.left()?.is_empty(),
            format!("exit code {code}: {text}"),
        )
    };
    fs::create_dir(IN_MEMORY)?;
    mount("tmpfs", IN_MEMORY, "tmpfs", "size=256m")?;
    let in_memory = Path::new(IN_MEMORY);
    refused(
        "a directory in memory",
        in_memory,
        "keeps its files in memory",
    )?;
    cgroup::remove_all()?;
    cgroup::take_back("memory")?;
    let reason = "memory controller is not enabled";
    let result = refused("no memory controller", &setting.disk, reason);
    Cgroup::create("app.slice")?;
    result
}

impl Setting {
    /// The test's program. Emulated machines are slow, so the test gets more time than usual.
    fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(LIMELIGHT);
        command.args(["--json", "--timeout", "120", "selftest", "--limit", "120"]);
        command.arg("--directory").arg(directory);
        command.stdin(Stdio::null()).process_group(0);
        if self.user {
            command.env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"));
            // SAFETY: the closure runs between fork and exec of a single-threaded child and makes
            // only async-signal-safe calls.
            unsafe { command.pre_exec(|| become_user(USER, USER)) };
        }
        command
    }

    /// Exit code and output of a whole test.
    fn run_in(&self, directory: &Path) -> Result<(i32, String)> {
        let output = self.command(directory).output()?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.code().unwrap_or(-1), text))
    }

    /// Runs the test to its end, and checks its result. `by`: what must have protected the viewer.
    fn shown(&self, stage: &mut Stage, name: &str, by: &str) -> Result<()> {
        let (code, text) = self.run_in(&self.disk)?;
        // systemd-run writes a line to standard error, which follows the result.
        let mut values = serde_json::Deserializer::from_str(&text).into_iter();
        let result: Value = values.next().and_then(Result::ok).unwrap_or_default();
        let protected_by = result["protected_by"].as_str().unwrap_or_default();
        stage.reporter.check(
            format!("the selftest shows that {by} protects the viewer"),
            code == 0 && result["result"] == "protected" && protected_by.starts_with(by),
            format!("exit code {code}: {text}"),
        )?;
        for phase in ["idle", "without", "with"] {
            for figure in ["major_faults", "median_us", "swipes"] {
                if let Some(value) = result[phase][figure].as_u64() {
                    let name = format!("{name}_{phase}_{figure}");
                    stage.reporter.value(name, value);
                }
            }
        }
        Ok(())
    }

    /// Starts the test, and sends it a signal in its middle: beside the load, without protection or
    /// with it. SIGINT goes to its process group, as a terminal sends it.
    fn ended(&self, reporter: &Reporter, when: &str, signal: i32, protected: bool) -> Result<()> {
        let output = fs::File::create(OUTPUT)?;
        let mut command = self.command(&self.disk);
        command.stdout(output.try_clone()?).stderr(output);
        let mut test = Process::spawn(command, "selftest")?;
        let deadline = Instant::now() + PATIENCE;
        while !self.in_middle(protected) && test.alive() && Instant::now() < deadline {
            sleep(Duration::from_millis(50));
        }
        let reached = self.in_middle(protected);
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
    fn in_middle(&self, protected: bool) -> bool {
        let Some(tree) = self.trees().pop() else {
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
    fn trees(&self) -> Vec<PathBuf> {
        let above = match self.user {
            true => Path::new(ROOT).join(systemd::APPS),
            false => PathBuf::from(ROOT),
        };
        let entries = fs::read_dir(above).into_iter().flatten().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(TREE));
        ours.map(|entry| entry.path()).collect()
    }

    /// Cgroups and processes of the test.
    fn left(&self) -> Result<Vec<String>> {
        let trees = self.trees().into_iter();
        let trees = trees.map(|path| path.display().to_string());
        let process = named("limelight")?.map(|pid| format!("pid {pid}"));
        Ok(trees.chain(process).collect())
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(rustix::fs::statvfs(&self.disk)?.f_bfree)
    }
}

/// Checks that the app that had the foreground before the test has it again.
fn given_back(reporter: &Reporter, when: &str, pid: i32) -> Result<()> {
    let front = || -> Result<Value> { Ok(json(&["status"])?.1["foreground"]["pid"].clone()) };
    reporter.check(
        format!("{when}, the foreground belongs to the app that had it before"),
        wait(|| Ok(front()? == pid))?,
        format!("foreground: {}, before the test: {pid}", front()?),
    )
}
