// SPDX-License-Identifier: GPL-2.0-or-later
//! State of the machine before the package is installed. Removal must restore it.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cgroup::{self, Snapshot};
use crate::followed::nice;
use crate::record::Reporter;

/// Directories in which a purge must leave the same files as before the installation.
const WATCHED: [&str; 5] = ["/boot", "/etc", "/usr", "/opt", "/var/lib"];
/// Directories in [`WATCHED`] that other programs change; they are not compared.
const OTHERS: [&str; 4] = [
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/lib/systemd/timers",
    "/usr/share/mime",
];

/// The state before the installation.
pub(super) struct Before {
    pids: Vec<i32>,
    pub(super) values: Snapshot,
    files: BTreeSet<PathBuf>,
    accounts: [String; 2],
}

impl Before {
    pub(super) fn now(pids: Vec<i32>) -> Result<Before> {
        Ok(Before {
            values: values(&pids)?,
            pids,
            files: files()?,
            accounts: accounts()?,
        })
    }

    /// The values that differ now, one line each. Values of new and of removed cgroups are left
    /// out, unless the path contains `limelight`.
    pub(super) fn changes(&self) -> Result<Vec<String>> {
        let now = values(&self.pids)?;
        Ok(cgroup::differences(&self.values, &now)
            .into_iter()
            .filter(|line| {
                let coming_or_going = line.ends_with("-> absent") || line.contains(": absent ->");
                !coming_or_going || line.contains("limelight")
            })
            .collect())
    }

    pub(super) fn check_files(&self, reporter: &Reporter) -> Result<()> {
        let now = files()?;
        let list = |paths: Vec<&PathBuf>| {
            let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
            paths.join(" ")
        };
        let (new, lost) = (
            list(now.difference(&self.files).collect()),
            list(self.files.difference(&now).collect()),
        );
        reporter.check(
            "after a purge, the same files exist as before the installation",
            new.is_empty() && lost.is_empty(),
            format!("{} files; new: {new}; lost: {lost}", now.len()),
        )?;
        let now = accounts()?;
        let lines = |all: &[String; 2]| all.concat().lines().map(str::to_owned).collect();
        let (before, after): (BTreeSet<String>, BTreeSet<String>) =
            (lines(&self.accounts), lines(&now));
        // The group limelight stays after a purge, so that no other group gets its number
        // (docs/integrator/packaging.md).
        let is_ours = |line: &&String| line.starts_with("limelight:");
        let changed = before.symmetric_difference(&after);
        let changed: Vec<&String> = changed.filter(|line| !is_ours(line)).collect();
        reporter.check(
            "users and groups are unchanged, except for the group limelight",
            changed.is_empty(),
            format!("/etc/passwd, /etc/group: {changed:?}"),
        )?;
        let left = Path::new("/run/limelight").exists();
        reporter.check(
            "/run/limelight does not exist",
            !left,
            format!("/run/limelight exists: {left}"),
        )
    }
}

fn accounts() -> Result<[String; 2]> {
    Ok([
        fs::read_to_string("/etc/passwd")?,
        fs::read_to_string("/etc/group")?,
    ])
}

/// Values of all cgroups; cgroup, oom_score_adj and nice value of the processes `pids`.
fn values(pids: &[i32]) -> Result<Snapshot> {
    let mut values = cgroup::snapshot(pids)?;
    for pid in pids {
        values.insert(format!("/proc/{pid}/nice").into(), nice(*pid).to_string());
    }
    Ok(values)
}

fn files() -> Result<BTreeSet<PathBuf>> {
    fn visit(directory: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
        if OTHERS.iter().any(|other| directory.starts_with(other)) {
            return Ok(());
        }
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(|| format!("cannot list {}", directory.display()))?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                visit(&entry.path(), found)?;
            }
            found.insert(entry.path());
        }
        Ok(())
    }
    let mut found = BTreeSet::new();
    for directory in WATCHED {
        visit(Path::new(directory), &mut found)?;
    }
    Ok(found)
}
