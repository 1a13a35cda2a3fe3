// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's cgroups, in the layout of a systemd session.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest_setup::number_in;

/// The mount point of cgroup v2.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Control file with the controllers enabled for a cgroup's children.
pub const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Files with values that Limelight may change, and must restore.
const TUNABLES: [&str; 10] = [
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "cgroup.freeze",
    "cpu.weight",
    "io.weight",
    SUBTREE_CONTROL,
];

/// A cgroup below [`ROOT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates the cgroup at `path`, which is relative to [`ROOT`]. Creates its ancestors too, and
    /// enables their controllers for their children.
    pub fn create(path: &str) -> Result<Self> {
        let mut directory = PathBuf::from(ROOT);
        delegate(&directory)?;
        let mut names = Path::new(path).iter().peekable();
        while let Some(name) = names.next() {
            directory.push(name);
            if !directory.is_dir() {
                fs::create_dir(&directory)
                    .with_context(|| format!("cannot create {}", directory.display()))?;
            }
            if names.peek().is_some() {
                delegate(&directory)?;
            }
        }
        Ok(Cgroup(directory))
    }

    /// Creates `name` below [`ROOT`] without enabling controllers for it.
    pub fn bare(name: &str) -> Result<Self> {
        let directory = Path::new(ROOT).join(name);
        fs::create_dir(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Cgroup(directory))
    }

    /// Creates a child cgroup without enabling controllers for it.
    pub fn child(&self, name: &str) -> Result<Self> {
        let directory = self.0.join(name);
        if !directory.is_dir() {
            fs::create_dir(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        Ok(Cgroup(directory))
    }

    /// Creates a cgroup for a background load.
    pub fn background(name: &str) -> Result<Self> {
        Cgroup::create(&format!("background.slice/{name}.scope"))
    }

    /// The cgroup's directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a control file.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        write(&self.0.join(file), value)
    }

    /// Reads a control file that holds one number.
    pub fn number(&self, file: &str) -> Result<u64> {
        number_in(&self.0.join(file))
    }

    /// Removes the cgroup, which must be empty.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir(&self.0).with_context(|| format!("cannot remove {}", self.0.display()))
    }

    /// Writes a control file of this cgroup and of every ancestor below the root. An ancestor's
    /// value limits that of its descendants, for example for memory.min.
    pub fn set_chain(&self, file: &str, value: &str) -> Result<()> {
        let mut directory = self.0.as_path();
        while directory != Path::new(ROOT) {
            write(&directory.join(file), value)?;
            directory = directory.parent().expect("a cgroup lies below the root");
        }
        Ok(())
    }
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("cannot write {value:?} to {}", path.display()))
}

/// Enables the available controllers for the children of `directory`.
fn delegate(directory: &Path) -> Result<()> {
    let path = directory.join("cgroup.controllers");
    let available =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for controller in ["memory", "cpu", "io"] {
        if available.split_whitespace().any(|name| name == controller) {
            write(&directory.join(SUBTREE_CONTROL), &format!("+{controller}"))?;
        }
    }
    Ok(())
}

/// The directory of a process's cgroup.
pub fn of(pid: i32) -> Result<PathBuf> {
    let path = format!("/proc/{pid}/cgroup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.with_context(|| format!("{path} names no cgroup of v2: {text:?}"))?;
    Ok(Path::new(ROOT).join(own))
}

/// Controllers enabled in the root's cgroup.subtree_control.
pub fn handed_down() -> Result<Vec<String>> {
    let path = Path::new(ROOT).join(SUBTREE_CONTROL);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Disables a controller in the root's cgroup.subtree_control. Fails if a child has the controller
/// enabled in its own cgroup.subtree_control.
pub fn take_back(controller: &str) -> Result<()> {
    write(
        &Path::new(ROOT).join(SUBTREE_CONTROL),
        &format!("-{controller}"),
    )
}

/// Values that must be restored when Limelight has stopped, by path: every tunable of every cgroup,
/// and the cgroup and oom_score_adj of some processes.
pub type Snapshot = BTreeMap<PathBuf, String>;

/// Takes a snapshot of all cgroups and of the processes in `pids`.
pub fn snapshot(pids: &[i32]) -> Result<Snapshot> {
    let mut values = BTreeMap::new();
    for pid in pids {
        for file in ["oom_score_adj", "cgroup"] {
            let path = PathBuf::from(format!("/proc/{pid}/{file}"));
            let value = fs::read_to_string(&path).unwrap_or_else(|_| "gone".into());
            values.insert(path, value.trim().to_owned());
        }
    }
    visit(Path::new(ROOT), &mut |directory| {
        for file in TUNABLES {
            let path = directory.join(file);
            if let Ok(value) = fs::read_to_string(&path) {
                values.insert(path, value.trim().to_owned());
            }
        }
        Ok(())
    })?;
    Ok(values)
}

/// The values that differ between two snapshots, one line each.
pub fn differences(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let absent = String::from("absent");
    before
        .keys()
        .chain(after.keys().filter(|path| !before.contains_key(*path)))
        .filter_map(|path| {
            let was = before.get(path).unwrap_or(&absent);
            let is = after.get(path).unwrap_or(&absent);
            (was != is).then(|| format!("{}: {was} -> {is}", path.display()))
        })
        .collect()
}

/// Removes all cgroups, which must be empty.
pub fn remove_all() -> Result<()> {
    let mut directories = Vec::new();
    visit(Path::new(ROOT), &mut |directory| {
        directories.push(directory.to_owned());
        Ok(())
    })?;
    for directory in directories.iter().rev() {
        if directory != Path::new(ROOT) {
            fs::remove_dir(directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
    }
    Ok(())
}

/// Kills all processes in the cgroups below `slice`, and removes these cgroups. The slice itself
/// stays. `slice` is relative to [`ROOT`] and may be absent; after `limit`, a cgroup that cannot be
/// removed is an error.
pub fn kill_below(slice: &str, limit: Duration) -> Result<()> {
    let slice = Path::new(ROOT).join(slice);
    if !slice.is_dir() {
        return Ok(());
    }
    let mut directories = Vec::new();
    visit(&slice, &mut |directory| {
        directories.push(directory.to_owned());
        Ok(())
    })?;
    for directory in directories.iter().skip(1) {
        let killed = write(&directory.join("cgroup.kill"), "1");
        // The write may have failed because systemd removed the empty scope.
        if directory.is_dir() {
            killed?;
        }
    }
    let deadline = Instant::now() + limit;
    for directory in directories.iter().skip(1).rev() {
        while let Err(error) = fs::remove_dir(directory) {
            // systemd has removed the empty scope.
            if error.kind() == ErrorKind::NotFound {
                break;
            }
            if Instant::now() > deadline {
                return Err(error)
                    .with_context(|| format!("cannot remove {}", directory.display()));
            }
            sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Calls `act` for every cgroup, parents first. systemd may remove an empty scope meanwhile.
fn visit(directory: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    act(directory)?;
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot list {}", directory.display()))?,
    };
    let mut children: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    children.sort();
    for child in children {
        visit(&child, act)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::differences;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    #[test]
    fn differences_name_changed_new_and_lost_values() {
        let snapshot = |pairs: &[(&str, &str)]| -> BTreeMap<PathBuf, String> {
            pairs
                .iter()
                .map(|(path, value)| (PathBuf::from(path), value.to_string()))
                .collect()
        };
        let before = snapshot(&[("a/memory.min", "0"), ("b/memory.min", "0")]);
        let after = snapshot(&[("a/memory.min", "4096"), ("c/memory.min", "0")]);
        assert_eq!(
            differences(&before, &after),
            [
                "a/memory.min: 0 -> 4096",
                "b/memory.min: 0 -> absent",
                "c/memory.min: absent -> 0"
            ]
        );
        assert!(differences(&before, &before).is_empty());
    }
}
