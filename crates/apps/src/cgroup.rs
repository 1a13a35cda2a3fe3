// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's cgroups, laid out as systemd lays out a session's.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The mount point of cgroup v2.
pub const ROOT: &str = "/sys/fs/cgroup";

/// Says which controllers a cgroup hands down, and changes it.
pub const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Files whose values Limelight may touch, and must put back.
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

/// A cgroup below [`ROOT`], with its ancestors created and their controllers handed down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates `path`, given relative to [`ROOT`].
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

    /// Creates `name` below [`ROOT`], and hands nothing down to it.
    pub fn bare(name: &str) -> Result<Self> {
        let directory = Path::new(ROOT).join(name);
        fs::create_dir(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Cgroup(directory))
    }

    /// Creates one below this one, and hands nothing down to it.
    pub fn child(&self, name: &str) -> Result<Self> {
        let directory = self.0.join(name);
        if !directory.is_dir() {
            fs::create_dir(&directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        Ok(Cgroup(directory))
    }

    /// Creates one for a background load.
    pub fn background(name: &str) -> Result<Self> {
        Cgroup::create(&format!("background.slice/{name}.scope"))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a control file.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        write(&self.0.join(file), value)
    }

    /// Reads a control file that holds one number.
    pub fn number(&self, file: &str) -> Result<u64> {
        let path = self.0.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.trim()
            .parse()
            .with_context(|| format!("{} holds {text:?}", path.display()))
    }

    /// Removes it; it must be empty.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir(&self.0).with_context(|| format!("cannot remove {}", self.0.display()))
    }

    /// Writes a control file here and in every ancestor but the root, which has none: memory.low
    /// and memory.min are capped by each of them.
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

/// Hands the controllers that the kernel has down to the children of `directory`.
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

/// The directory of the cgroup that a process is in.
pub fn of(pid: i32) -> Result<PathBuf> {
    let path = format!("/proc/{pid}/cgroup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.with_context(|| format!("{path} holds {text:?}"))?;
    Ok(Path::new(ROOT).join(own))
}

/// Controllers that the root hands down.
pub fn handed_down() -> Result<Vec<String>> {
    let path = Path::new(ROOT).join(SUBTREE_CONTROL);
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Takes a controller back that the root hands down; no other cgroup may hand it on.
pub fn take_back(controller: &str) -> Result<()> {
    write(
        &Path::new(ROOT).join(SUBTREE_CONTROL),
        &format!("-{controller}"),
    )
}

/// Every tunable of every cgroup, and the cgroup and OOM standing of some processes, by path: what
/// must be the same again when Limelight has gone.
pub type Snapshot = BTreeMap<PathBuf, String>;

/// Takes a snapshot.
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

/// The values that differ between two snapshots, one line each; empty when none does.
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

/// Removes every cgroup; all of them must be empty.
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

/// Kills everything in the cgroups below `slice`, which is relative to [`ROOT`], and removes them; the slice itself
/// stays, and need not be there.
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
        write(&directory.join("cgroup.kill"), "1")?;
    }
    let deadline = Instant::now() + limit;
    for directory in directories.iter().skip(1).rev() {
        while let Err(error) = fs::remove_dir(directory) {
            // systemd removes an empty scope as well.
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

/// Calls `act` for every cgroup, parents first.
fn visit(directory: &Path, act: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    act(directory)?;
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
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
