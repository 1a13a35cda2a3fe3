// SPDX-License-Identifier: GPL-2.0-or-later
//! Putting back what the restore record lists: while the daemon runs, when it stops, after a crash.

use std::collections::BTreeMap;

use limelight_core::model::ProcessId;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Limit, MemoryKnob, WeightKnob};
use limelight_sys::process::Process;
use limelight_sys::tree::ProcessTree;
use tracing::{debug, error, info};

use crate::doors::Doors;
use crate::restore::{Entry, Ledger, Place};
use crate::undo_threads;

/// What came of putting one thing back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// It is as it was.
    Restored,
    /// Somebody changed it since; it is theirs now and was left alone.
    Theirs {
        /// What was found.
        found: String,
    },
    /// The process or cgroup does not exist any more.
    Gone,
    /// It could not be put back, and stays in the record.
    Failed {
        /// Why.
        why: String,
    },
}

/// Passes over a tree that forks while it is being restored.
pub(crate) const PASSES: usize = 8;

/// Opens a cgroup if it is still the same one.
pub fn open_place(doors: &Doors, place: &Place) -> Option<Cgroup> {
    find_place(doors, place).ok().flatten()
}

/// The same; an error where it cannot be told whether it is, as without a descriptor left.
pub fn find_place(doors: &Doors, place: &Place) -> limelight_sys::Result<Option<Cgroup>> {
    let Some(path) = CgroupPath::parse(&place.path) else {
        return Ok(None);
    };
    match doors.cgroups.open(&path) {
        Ok(cgroup) => Ok((cgroup.id().0 == place.inode).then_some(cgroup)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts back every entry for which `which` holds, newest first, and drops from the record what is
/// done with; what fails is owed. Returns the entries with what came of them.
pub fn undo(
    ledger: &mut Ledger,
    doors: &Doors,
    which: impl Fn(&Entry) -> bool,
) -> Vec<(Entry, Undone)> {
    let chosen: Vec<Entry> = ledger
        .entries()
        .iter()
        .rev()
        .filter(|entry| which(entry))
        .cloned()
        .collect();
    let mut results = Vec::new();
    // Children inherited lowered values, so all processes are looked at together.
    let (lowered, others): (Vec<Entry>, Vec<Entry>) = chosen
        .into_iter()
        .partition(|entry| matches!(entry, Entry::OomScoreAdj { .. }));
    results.extend(raise_oom_scores(doors, lowered));
    let (tuned, others): (Vec<Entry>, Vec<Entry>) = others
        .into_iter()
        .partition(|entry| matches!(entry, Entry::Threads { .. }));
    results.extend(undo_threads::restore(doors, tuned));
    for entry in others {
        let undone = undo_one(doors, &entry).unwrap_or_else(|error| gone_or_failed(&error));
        results.push((entry, undone));
    }
    let (failed, done): (Vec<_>, Vec<_>) = results
        .iter()
        .partition(|(_, undone)| matches!(undone, Undone::Failed { .. }));
    let entries = |of: Vec<&(Entry, Undone)>| -> Vec<Entry> {
        of.into_iter().map(|(entry, _)| entry.clone()).collect()
    };
    ledger.forget_all(&entries(done));
    ledger.owe(entries(failed));
    results
}

/// Puts everything back that a dead predecessor, or this daemon, left. Returns how many things
/// could not be.
pub fn undo_all(ledger: &mut Ledger, doors: &Doors) -> usize {
    let results = undo(ledger, doors, |_| true);
    let mut failed = 0;
    for (entry, undone) in &results {
        match undone {
            Undone::Restored => info!("put back: {entry}"),
            Undone::Gone => debug!("gone meanwhile: {entry}"),
            Undone::Theirs { found } => {
                info!("left alone, somebody changed it to {found} since: {entry}");
            }
            Undone::Failed { why } => {
                failed += 1;
                error!("cannot put back {entry}: {why}");
            }
        }
    }
    failed
}

fn undo_one(doors: &Doors, entry: &Entry) -> limelight_sys::Result<Undone> {
    Ok(match entry {
        Entry::Limit {
            cgroup,
            knob,
            original,
            ours,
        } => undo_limit(doors, cgroup, knob, original, ours)?,
        Entry::Controller { cgroup, controller } => undo_controller(doors, cgroup, controller)?,
        Entry::Weight {
            cgroup,
            knob,
            original,
            ours,
        } => undo_weight(doors, cgroup, knob, *original, *ours)?,
        Entry::SwapMax { cgroup, original } => {
            let ours = [Limit::ZERO.to_string()];
            undo_limit(doors, cgroup, MemoryKnob::SwapMax.file(), original, &ours)?
        }
        Entry::Frozen { cgroup } => thaw(doors, cgroup)?,
        Entry::Autogroup {
            number,
            original,
            ours,
            ..
        } => undo_autogroup(doors, entry, *number, *original, *ours)?,
        Entry::OomScoreAdj { .. } | Entry::Threads { .. } => Undone::Gone,
        Entry::Slice { path } => remove_cgroup(doors, path),
        Entry::Scope { path, .. } => empty_scope(doors, entry, path)?,
        Entry::TraceInstance { path } => match std::fs::remove_dir(path) {
            Ok(()) => Undone::Restored,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Undone::Gone,
            Err(error) => Undone::Failed {
                why: format!("cannot remove {}: {error}", path.display()),
            },
        },
    })
}

fn undo_limit(
    doors: &Doors,
    place: &Place,
    knob: &str,
    original: &str,
    ours: &[String],
) -> limelight_sys::Result<Undone> {
    let failed = |why: String| Ok(Undone::Failed { why });
    let knob = match knob {
        "memory.min" => MemoryKnob::Min,
        "memory.low" => MemoryKnob::Low,
        "memory.swap.max" => MemoryKnob::SwapMax,
        other => return failed(format!("{other} is no knob of ours")),
    };
    let Ok(original) = original.parse::<Limit>() else {
        return failed(format!("{original} is not a value of {}", knob.file()));
    };
    let Some(cgroup) = find_place(doors, place)? else {
        return Ok(Undone::Gone);
    };
    let found = match cgroup.limit(knob) {
        // Without the controller there is no value to put back.
        Err(error) if error.is_unsupported() => return Ok(Undone::Gone),
        found => found?,
    };
    if found != original {
        if !ours.contains(&found.to_string()) {
            let found = found.to_string();
            return Ok(Undone::Theirs { found });
        }
        cgroup.set_limit(knob, original)?;
    }
    Ok(Undone::Restored)
}

fn thaw(doors: &Doors, place: &Place) -> limelight_sys::Result<Undone> {
    let Some(cgroup) = find_place(doors, place)? else {
        return Ok(Undone::Gone);
    };
    cgroup.set_freeze(false)?;
    Ok(Undone::Restored)
}

fn undo_weight(
    doors: &Doors,
    place: &Place,
    knob: &str,
    original: u32,
    ours: u32,
) -> limelight_sys::Result<Undone> {
    let all = [WeightKnob::Cpu, WeightKnob::Io, WeightKnob::Bfq];
    let Some(knob) = all.into_iter().find(|known| known.file() == knob) else {
        return Ok(Undone::Failed {
            why: format!("{knob} is no knob of ours"),
        });
    };
    let Some(cgroup) = find_place(doors, place)? else {
        return Ok(Undone::Gone);
    };
    let found = match cgroup.weight(knob) {
        Err(error) if error.is_unsupported() => return Ok(Undone::Gone),
        found => found?,
    };
    if found != original {
        if found != ours {
            let found = found.to_string();
            return Ok(Undone::Theirs { found });
        }
        cgroup.set_weight(knob, original)?;
    }
    Ok(Undone::Restored)
}

/// Any process of the session will do, if the one that was written down has left it.
fn undo_autogroup(
    doors: &Doors,
    entry: &Entry,
    number: u64,
    original: i32,
    ours: i32,
) -> limelight_sys::Result<Undone> {
    let group_of = |process: Process| match process.autogroup() {
        Err(error) if error.is_exhausted() => Err(error),
        group => {
            let group = group.ok().flatten().filter(|group| group.number == number);
            Ok(group.map(|group| (group, process)))
        }
    };
    let first = entry.process().map(|id| doors.living(id)).transpose()?;
    let mut found = first.flatten().map(group_of).transpose()?.flatten();
    if found.is_none() {
        for stat in doors.proc.tree()?.iter() {
            found = match doors.proc.process(stat.pid) {
                Err(error) if error.is_exhausted() => return Err(error),
                process => process.ok().map(group_of).transpose()?.flatten(),
            };
            if found.is_some() {
                break;
            }
        }
    }
    Ok(match found {
        None => Undone::Gone,
        Some((group, _)) if group.nice == original => Undone::Restored,
        Some((group, _)) if group.nice != ours => Undone::Theirs {
            found: format!("nice {}", group.nice),
        },
        Some((_, process)) => {
            process.set_autogroup_nice(original)?;
            Undone::Restored
        }
    })
}

fn undo_controller(
    doors: &Doors,
    place: &Place,
    controller: &str,
) -> limelight_sys::Result<Undone> {
    let Some(cgroup) = find_place(doors, place)? else {
        return Ok(Undone::Gone);
    };
    let enabled = cgroup.subtree_control()?;
    if !enabled.iter().any(|name| name == controller) {
        return Ok(Undone::Restored);
    }
    // Taking the controller away would discard what others have set below since.
    if let Some(found) = limits_below(&cgroup)? {
        return Ok(Undone::Theirs { found });
    }
    match cgroup.set_subtree_controller(controller, false) {
        // A child hands it on to its own children: somebody relies on it now.
        Err(limelight_sys::Error::Busy { .. }) => Ok(Undone::Theirs {
            found: "in use by a child cgroup".to_owned(),
        }),
        done => done.map(|()| Undone::Restored),
    }
}

/// A memory limit that somebody set in a child, in words.
fn limits_below(cgroup: &Cgroup) -> limelight_sys::Result<Option<String>> {
    let defaults = [
        (MemoryKnob::Min, Limit::ZERO),
        (MemoryKnob::Low, Limit::ZERO),
        (MemoryKnob::High, Limit::Max),
        (MemoryKnob::Max, Limit::Max),
        (MemoryKnob::SwapMax, Limit::Max),
    ];
    for child in cgroup.children()? {
        for (knob, default) in defaults {
            let found = match child.limit(knob) {
                Err(error) if error.is_exhausted() => return Err(error),
                found => found.unwrap_or(default),
            };
            if found != default {
                return Ok(Some(format!("{} {} = {found}", child.path(), knob.file())));
            }
        }
    }
    Ok(None)
}

/// Puts `oom_score_adj` of all these processes back, and of the children that inherited it.
fn raise_oom_scores(doors: &Doors, entries: Vec<Entry>) -> Vec<(Entry, Undone)> {
    if entries.is_empty() {
        return Vec::new();
    }
    let mut results: Vec<(Entry, Undone)> = Vec::new();
    // A child forked between two looks inherits once more, so look until nothing is found.
    let mut inherited = heirs(doors, &entries);
    for entry in entries {
        let undone = raise_oom_score(doors, &entry);
        results.push((entry, undone));
    }
    let entries: Vec<Entry> = results.iter().map(|(entry, _)| entry.clone()).collect();
    for _ in 0..PASSES {
        let Ok(heirs_left) = &inherited else { break };
        if heirs_left.is_empty() {
            break;
        }
        for (heir, original) in heirs_left {
            if let Some(process) = doors.same_process(*heir) {
                if let Err(error) = process.set_oom_score_adj(*original) {
                    debug!("a child's inherited oom_score_adj stays: {error}");
                }
            }
        }
        inherited = heirs(doors, &entries);
    }
    fail_without_heirs(&mut results, inherited.err());
    results
}

/// As long as nobody could look for children that inherited, nothing is done with.
pub(crate) fn fail_without_heirs(
    results: &mut [(Entry, Undone)],
    error: Option<limelight_sys::Error>,
) {
    if let Some(error) = error {
        for (_, undone) in results {
            *undone = Undone::Failed {
                why: format!("children that inherited cannot be looked for: {error}"),
            };
        }
    }
}

/// The value is put back exactly. What cannot be read, and so not be put back, is the lowest value
/// that the process may give itself without privilege: the kernel sets it to each privileged write.
fn raise_oom_score(doors: &Doors, entry: &Entry) -> Undone {
    let Entry::OomScoreAdj { original, ours, .. } = entry else {
        return Undone::Gone;
    };
    let process = match entry.process().map(|id| doors.living(id)) {
        Some(Ok(Some(process))) => process,
        Some(Err(error)) => return gone_or_failed(&error),
        Some(Ok(None)) | None => return Undone::Gone,
    };
    match process.oom_score_adj() {
        Ok(found) if found == *original => Undone::Restored,
        Ok(found) if found != *ours => Undone::Theirs {
            found: found.to_string(),
        },
        Ok(_) => match process.set_oom_score_adj(*original) {
            Ok(()) => Undone::Restored,
            Err(error) => gone_or_failed(&error),
        },
        Err(error) => gone_or_failed(&error),
    }
}

/// Processes that are not recorded but have a value that they can only have inherited from one
/// that is, with the value that they would have inherited without us. An error where nothing is left
/// to look with.
pub fn heirs(doors: &Doors, entries: &[Entry]) -> limelight_sys::Result<Vec<(ProcessId, i16)>> {
    let recorded: BTreeMap<i32, (ProcessId, i16, i16)> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::OomScoreAdj {
                pid,
                original,
                ours,
                ..
            } => Some((*pid, (entry.process()?, *original, *ours))),
            _ => None,
        })
        .collect();
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let roots: Vec<i32> = recorded.keys().copied().collect();
    let tree = doors.tree_below(&roots)?;
    let alive = |id: ProcessId| {
        tree.get(id.pid)
            .is_some_and(|stat| stat.start_ticks == id.starttime)
    };
    let mut candidates: Vec<i32> = Vec::new();
    for (id, _, _) in recorded.values() {
        if alive(*id) {
            candidates.extend(tree.descendants(id.pid));
        }
    }
    let mut homes: Vec<&Place> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::OomScoreAdj { home, .. } => home.as_ref(),
            _ => None,
        })
        .collect();
    homes.dedup();
    for home in homes {
        candidates.extend(procs_of(doors, home)?);
    }
    candidates.sort_unstable();
    candidates.dedup();

    let mut heirs = Vec::new();
    for pid in candidates {
        let is_recorded = recorded.get(&pid).is_some_and(|(id, _, _)| alive(*id));
        if is_recorded {
            continue;
        }
        let looked = doors.process(pid);
        let looked = looked.and_then(|(id, process)| Ok((id, process.oom_score_adj()?)));
        let (id, value) = match looked {
            Ok(found) => found,
            Err(error) if error.is_exhausted() => return Err(error),
            Err(_) => continue,
        };
        let ancestor = nearest(&tree, pid, |pid| recorded.get(&pid).copied());
        // An orphan has no recorded ancestor left, but still the value.
        let source = ancestor.or_else(|| {
            recorded
                .values()
                .find(|(_, _, ours)| *ours == value)
                .copied()
        });
        if let Some((_, original, ours)) = source {
            if value == ours && value != original {
                heirs.push((id, original));
            }
        }
    }
    Ok(heirs)
}

/// Processes in a cgroup, if it is still there; an error where nothing is left to look with.
pub(crate) fn procs_of(doors: &Doors, home: &Place) -> limelight_sys::Result<Vec<i32>> {
    let Some(cgroup) = find_place(doors, home)? else {
        return Ok(Vec::new());
    };
    match cgroup.procs_below() {
        Err(error) if error.is_exhausted() => Err(error),
        procs => Ok(procs.unwrap_or_default()),
    }
}

pub(crate) fn nearest<T>(
    tree: &ProcessTree,
    pid: i32,
    find: impl Fn(i32) -> Option<T>,
) -> Option<T> {
    let mut at = pid;
    // Bounded, because numbers that were read at different moments may form a loop.
    for _ in 0..256 {
        at = tree.parent(at)?;
        if let Some(found) = find(at) {
            return Some(found);
        }
    }
    None
}

/// Moves everything out of a cgroup of ours, back to where it came from, and removes it.
fn empty_scope(doors: &Doors, entry: &Entry, path: &str) -> limelight_sys::Result<Undone> {
    let Entry::Scope { from, moved, .. } = entry else {
        return Ok(Undone::Gone);
    };
    let Some(parsed) = CgroupPath::parse(path) else {
        return Ok(Undone::Failed {
            why: format!("{path} is no cgroup path"),
        });
    };
    let scope = doors.cgroups.open(&parsed)?;
    let mut refused = None;
    for _ in 0..PASSES {
        let pids = scope.procs_below().unwrap_or_default();
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            let Ok((id, _process)) = doors.process(pid) else {
                continue;
            };
            let own = moved
                .iter()
                .find(|m| m.pid == id.pid && m.starttime == id.starttime);
            let home = own.map_or(from, |m| &m.from);
            if let Err(error) = send_home(doors, home, pid) {
                refused = Some(error);
            }
        }
    }
    Ok(match remove_cgroup(doors, path) {
        Undone::Failed { why } => Undone::Failed {
            why: refused.unwrap_or(why),
        },
        undone => undone,
    })
}

/// Moves a process into a cgroup; where that is gone, into the nearest ancestor that takes it.
fn send_home(doors: &Doors, home: &Place, pid: i32) -> Result<(), String> {
    let found = find_place(doors, home).map_err(|error| error.to_string())?;
    if let Some(cgroup) = found {
        return cgroup.attach(pid).map_err(|error| error.to_string());
    }
    let mut path = CgroupPath::parse(&home.path);
    let mut refused = format!("{} is gone", home.path);
    while let Some(parent) = path.and_then(|path| path.parent()) {
        match doors
            .cgroups
            .open(&parent)
            .and_then(|cgroup| cgroup.attach(pid))
        {
            Ok(()) => return Ok(()),
            Err(error) => refused = error.to_string(),
        }
        path = Some(parent);
    }
    Err(refused)
}

fn remove_cgroup(doors: &Doors, path: &str) -> Undone {
    let Some(path) = CgroupPath::parse(path) else {
        return Undone::Failed {
            why: format!("{path} is no cgroup path"),
        };
    };
    let Some(parent) = path.parent() else {
        return Undone::Gone;
    };
    match doors
        .cgroups
        .open(&parent)
        .and_then(|parent| parent.remove_child(path.name()))
    {
        Ok(()) => Undone::Restored,
        Err(error) => gone_or_failed(&error),
    }
}

pub(crate) fn gone_or_failed(error: &limelight_sys::Error) -> Undone {
    if error.is_gone() {
        Undone::Gone
    } else {
        Undone::Failed {
            why: error.to_string(),
        }
    }
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
