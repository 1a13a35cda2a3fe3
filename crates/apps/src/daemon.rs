// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelightd` and `limelight` as a cell uses them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::cgroup;
use crate::process::{run, Process, Start};
use crate::record::Reporter;

/// The daemon's program.
pub const LIMELIGHTD: &str = "/bin/limelightd";
/// The command line program.
pub const LIMELIGHT: &str = "/bin/limelight";
/// What the daemon wrote to its standard error.
pub const LOG: &str = "/run/limelightd.log";
/// The daemon's configuration.
pub const CONFIG: &str = "/etc/limelight/limelight.toml";

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// A running daemon, and what the cgroups looked like before it started.
pub struct Daemon {
    process: Process,
    before: BTreeMap<PathBuf, String>,
}

impl Daemon {
    /// Starts it and waits until `limelight status` succeeds.
    pub fn start() -> Result<Self> {
        let before = cgroup::snapshot()?;
        let log = File::create(LOG).with_context(|| format!("cannot create {LOG}"))?;
        let mut command = Command::new(LIMELIGHTD);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut daemon = Daemon {
            process: Start::PLAIN.program(command, "limelightd")?,
            before,
        };
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let (code, text) = run(LIMELIGHT, &["status"])?;
            if code == 0 {
                return Ok(daemon);
            }
            if !daemon.process.alive() {
                bail!("limelightd ended at once; it wrote:\n{}", log_tail());
            }
            if Instant::now() > deadline {
                bail!(
                    "limelight status still exits with {code} after {START_LIMIT:?}:\n{text}\nlimelightd wrote:\n{}",
                    log_tail()
                );
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// The daemon's process id.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Ends it with SIGTERM and checks that every cgroup is as it was before it started.
    pub fn stop(mut self, reporter: &Reporter) -> Result<()> {
        self.process.signal(libc::SIGTERM)?;
        let code = self
            .process
            .wait(STOP_LIMIT)
            .with_context(|| format!("limelightd wrote:\n{}", log_tail()))?;
        reporter.check(
            "limelightd ends with exit code 0 on SIGTERM",
            code == 0,
            format!("exit code {code}"),
        )?;
        check_restored(reporter, &self.before)
    }

    /// Kills it outright; the snapshot from before its start.
    pub fn kill(mut self) -> Result<BTreeMap<PathBuf, String>> {
        self.process.signal(libc::SIGKILL)?;
        self.process.wait(STOP_LIMIT)?;
        Ok(std::mem::take(&mut self.before))
    }
}

/// Checks that every cgroup's values are those of a snapshot, and that no restore record is left.
pub fn check_restored(reporter: &Reporter, before: &BTreeMap<PathBuf, String>) -> Result<()> {
    let differences = cgroup::differences(before, &cgroup::snapshot()?);
    reporter.check(
        "every cgroup value is what it was before limelightd started",
        differences.is_empty(),
        if differences.is_empty() {
            format!("{} values equal", before.len())
        } else {
            differences.join("; ")
        },
    )?;
    let left = restore_record();
    reporter.check(
        "the restore record is empty",
        left.is_none(),
        left.unwrap_or_else(|| "nothing to restore".into()),
    )
}

/// What the restore record still holds, if anything.
fn restore_record() -> Option<String> {
    let directory = Path::new("/run/limelight/restore");
    let entries = fs::read_dir(directory).ok()?;
    let left: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().display().to_string()))
        .collect();
    (!left.is_empty()).then(|| left.join(", "))
}

/// Gives the focus to an app.
pub fn focus(pid: i32) -> Result<()> {
    limelight(&["focus", &pid.to_string()])
}

/// Runs `limelight` and insists on success.
pub fn limelight(arguments: &[&str]) -> Result<()> {
    let (code, text) = run(LIMELIGHT, arguments)?;
    if code != 0 {
        bail!(
            "limelight {} exits with {code}:\n{text}\nlimelightd wrote:\n{}",
            arguments.join(" "),
            log_tail()
        );
    }
    Ok(())
}

/// The last lines that the daemon wrote.
pub fn log_tail() -> String {
    let text = fs::read_to_string(LOG).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
