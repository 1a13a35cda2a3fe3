// SPDX-License-Identifier: GPL-2.0-or-later
//! Restores the changes that the restore record lists: while the daemon runs, when it stops, and
//! after a crash.

pub mod lineage;
pub mod oom_score_adj;
mod scope;
pub mod threads;

use std::rc::Rc;
use std::time::Duration;

use limelight_sys::cgroup::{Cgroup, CgroupPath, Limit, MemoryKnob, WeightKnob};
use limelight_sys::process::Process;
use limelight_sys::tree::ProcessTree;
use tracing::{debug, error, info};

use crate::restore::{Entry, Ledger, Place};
use crate::system::{System, MEMORY};

/// Result of restoring one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// The value from before Limelight is in force again.
    Restored,
    /// Another program has changed the value since, so it was left alone.
    Theirs {
        /// The value that was found.
        found: String,
    },
    /// There is nothing to restore: the process, cgroup or knob does not exist any more, or no
    /// process has inherited the value.
    Gone,
    /// The value could not be restored, and its entry stays in the record.
    Failed {
        /// The reason.
        why: String,
    },
}

/// Maximum number of passes over processes that fork while they are being restored.
const PASSES: usize = 8;

/// Time within which a forked child usually becomes visible.
const FORK_TIME: Duration = Duration::from_millis(50);

/// Opens a cgroup if it is still the same one. `None` also if that cannot be determined.
pub fn open_place(system: &System, place: &Place) -> Option<Cgroup> {
    find_place(system, place).ok().flatten()
}

/// Opens a cgroup if it is still the same one. Fails if that cannot be determined, for example
/// without a free descriptor.
pub fn find_place(system: &System, place: &Place) -> limelight_sys::Result<Option<Cgroup>> {
    let Some(path) = CgroupPath::parse(&place.path) else {
        return Ok(None);
    };
    match system.cgroups.open(&path) {
        Ok(cgroup) => Ok((cgroup.id().0 == place.inode).then_some(cgroup)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Restores every entry that `which` accepts, newest first. Entries that failed are owed. Other
/// entries are dropped from the record, even if another program has changed the value or the target
/// is gone. Returns the entries with their results.
///
/// Entries about lineages stay owed until [`undo_again`] finds none of their processes, because a
/// process that is just being forked is not visible yet.
pub fn undo(
    ledger: &mut Ledger,
    system: &System,
    which: impl Fn(&Entry) -> bool,
) -> Vec<(Entry, Undone)> {
    put_back(ledger, system, which, false)
}

/// Like [`undo`], for entries that have been owed for a while. Drops a lineage if the search finds
/// none of its processes.
pub fn undo_again(
    ledger: &mut Ledger,
    system: &System,
    which: impl Fn(&Entry) -> bool,
) -> Vec<(Entry, Undone)> {
    put_back(ledger, system, which, true)
}

fn put_back(
    ledger: &mut Ledger,
    system: &System,
    which: impl Fn(&Entry) -> bool,
    again: bool,
) -> Vec<(Entry, Undone)> {
    let all = ledger.entries().iter().rev().cloned();
    let (chosen, kept): (Vec<Entry>, Vec<Entry>) = all.partition(|entry| which(entry));
    let has_lineage = chosen.iter().any(|entry| entry.lineage().is_some());
    let since = has_lineage.then(|| ledger.searches.begins(lineage::moment(system)));
    let mut results = Vec::new();
    // Children have inherited lowered values, so all processes are handled together.
    let (lowered, others): (Vec<Entry>, Vec<Entry>) = chosen.into_iter().partition(Entry::is_score);
    results.extend(oom_score_adj::raise(system, lowered, &kept));
    let (tuned, others): (Vec<Entry>, Vec<Entry>) = others.into_iter().partition(Entry::is_asking);
    results.extend(threads::restore(system, tuned, &kept));
    for entry in others {
        let undone = undo_one(system, &entry).unwrap_or_else(|error| gone_or_failed(&error));
        results.push((entry, undone));
    }
    let is_done = |(entry, undone): &&(Entry, Undone)| match (undone, entry.lineage()) {
        (Undone::Failed { .. }, _) => false,
        (Undone::Gone, Some(_)) => again,
        (_, lineage) => lineage.is_none(),
    };
    let (done, left): (Vec<_>, Vec<_>) = results.iter().partition(is_done);
    let done: Vec<Entry> = done.into_iter().map(|(entry, _)| entry.clone()).collect();
    let left = left
        .into_iter()
        .map(|(entry, undone)| match (undone, since) {
            (Undone::Failed { .. }, _) | (_, None) => entry.clone(),
            // Processes that this search has seen are no longer covered.
            (_, Some(since)) => lineage::narrowed(entry, since),
        });
    let left: Vec<Entry> = left.collect();
    ledger.forget_all(&done);
    if let Err(error) = ledger.intend(left.clone()) {
        debug!("{error}");
    }
    let recorded = left.iter().filter_map(|left| {
        let mut entries = ledger.entries().iter();
        entries.find(|entry| entry.same_thing(left)).cloned()
    });
    let recorded: Vec<Entry> = recorded.collect();
    ledger.owe(recorded);
    results
}

/// Restores everything that this daemon or a dead one has changed. Returns how many entries could
/// not be restored.
pub fn undo_all(ledger: &mut Ledger, system: &System) -> usize {
    let mut results = undo(ledger, system, |_| true);
    let has_lineage = |entry: &Entry| entry.lineage().is_some();
    for _ in 0..PASSES {
        if !ledger.entries().iter().any(has_lineage) {
            break;
        }
        std::thread::sleep(FORK_TIME);
        results.retain(|(entry, _)| !has_lineage(entry));
        results.extend(undo_again(ledger, system, has_lineage));
    }
    let mut failed = 0;
    for (entry, undone) in &results {
        match undone {
            Undone::Restored => info!("put back: {entry}"),
            Undone::Gone => debug!("nothing to put back, because the target is gone: {entry}"),
            Undone::Theirs { found } => {
                info!(
                    "not put back: {entry}; another program has since changed or used it: {found}"
                );
            }
            Undone::Failed { why } => {
                failed += 1;
                error!("cannot put back {entry}: {why}");
            }
        }
    }
    failed
}

fn undo_one(system: &System, entry: &Entry) -> limelight_sys::Result<Undone> {
    Ok(match entry {
        Entry::Limit {
            cgroup,
            knob,
            original,
            ours,
        } => undo_limit(system, cgroup, knob, original, ours)?,
        Entry::Controller { cgroup, controller } => undo_controller(system, cgroup, controller)?,
        Entry::Weight {
            cgroup,
            knob,
            original,
            ours,
        } => undo_weight(system, cgroup, knob, *original, *ours)?,
        Entry::SwapMax { cgroup, original } => {
            let ours = [Limit::ZERO.to_string()];
            undo_limit(system, cgroup, MemoryKnob::SwapMax.file(), original, &ours)?
        }
        Entry::High {
            cgroup,
            original,
            ours,
        } => undo_limit(system, cgroup, MemoryKnob::High.file(), original, ours)?,
        Entry::Frozen { cgroup } => thaw(system, cgroup)?,
        Entry::Autogroup {
            number,
            original,
            ours,
            ..
        } => undo_autogroup(system, entry, *number, *original, *ours)?,
        Entry::OomScoreAdj { .. }
        | Entry::ScoreGiven { .. }
        | Entry::Threads { .. }
        | Entry::AskingGiven { .. } => Undone::Gone,
        Entry::Slice { path } => scope::remove(system, path),
        Entry::Scope { path, .. } => scope::empty(system, entry, path)?,
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
    system: &System,
    place: &Place,
    knob: &str,
    original: &str,
    ours: &[String],
) -> limelight_sys::Result<Undone> {
    let failed = |why: String| Ok(Undone::Failed { why });
    let knob = match knob {
        "memory.min" => MemoryKnob::Min,
        "memory.low" => MemoryKnob::Low,
        "memory.high" => MemoryKnob::High,
        "memory.swap.max" => MemoryKnob::SwapMax,
        other => return failed(format!("{other} is not a knob of Limelight")),
    };
    let Ok(original) = original.parse::<Limit>() else {
        return failed(format!("{original} is not a value of {}", knob.file()));
    };
    let Some(cgroup) = find_place(system, place)? else {
        return Ok(Undone::Gone);
    };
    let found = match cgroup.limit(knob) {
        // Without the controller there is no value to restore.
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

fn thaw(system: &System, place: &Place) -> limelight_sys::Result<Undone> {
    let Some(cgroup) = find_place(system, place)? else {
        return Ok(Undone::Gone);
    };
    cgroup.set_freeze(false)?;
    Ok(Undone::Restored)
}

fn undo_weight(
    system: &System,
    place: &Place,
    knob: &str,
    original: u32,
    ours: u32,
) -> limelight_sys::Result<Undone> {
    let all = [WeightKnob::Cpu, WeightKnob::Io, WeightKnob::Bfq];
    let Some(knob) = all.into_iter().find(|known| known.file() == knob) else {
        return Ok(Undone::Failed {
            why: format!("{knob} is not a knob of Limelight"),
        });
    };
    let Some(cgroup) = find_place(system, place)? else {
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

/// Restores a session's nice value through the recorded process, or through any other process of
/// the session if the recorded one has left it.
fn undo_autogroup(
    system: &System,
    entry: &Entry,
    number: u64,
    original: i32,
    ours: i32,
) -> limelight_sys::Result<Undone> {
    let group_of = |process: Rc<Process>| match process.autogroup() {
        Err(error) if error.is_exhausted() => Err(error),
        group => {
            let group = group.ok().flatten().filter(|group| group.number == number);
            Ok(group.map(|group| (group, process)))
        }
    };
    let first = entry.process().map(|id| system.living(id)).transpose()?;
    let mut found = first.flatten().map(group_of).transpose()?.flatten();
    if found.is_none() {
        for stat in system.proc.tree()?.iter() {
            found = match system.proc.process(stat.pid) {
                Err(error) if error.is_exhausted() => return Err(error),
                process => process
                    .ok()
                    .map(Rc::new)
                    .map(group_of)
                    .transpose()?
                    .flatten(),
            };
            if found.is_some() {
                break;
            }
        }
    }
    Ok(match found {
        None => Undone::Gone,
        Some((group, _)) if group.nice == original => Undone::Restored,
        Some((group, _)) if !threads::is_lowered(group.nice, original, ours) => Undone::Theirs {
            found: format!("nice {}", group.nice),
        },
        Some((_, process)) => {
            process.set_autogroup_nice(original)?;
            Undone::Restored
        }
    })
}

fn undo_controller(
    system: &System,
    place: &Place,
    controller: &str,
) -> limelight_sys::Result<Undone> {
    let Some(cgroup) = find_place(system, place)? else {
        return Ok(Undone::Gone);
    };
    let enabled = cgroup.subtree_control()?;
    if !enabled.iter().any(|name| name == controller) {
        return Ok(Undone::Restored);
    }
    // Disabling the controller would discard limits and weights that other programs have since set
    // in children.
    let found = match controller {
        MEMORY => limits_below(&cgroup)?,
        _ => weights_below(&cgroup, controller)?,
    };
    if let Some(found) = found {
        return Ok(Undone::Theirs { found });
    }
    match cgroup.set_subtree_controller(controller, false) {
        // A child has enabled it for its own children: another program relies on it now.
        Err(limelight_sys::Error::Busy { .. }) => Ok(Undone::Theirs {
            found: "in use by a child cgroup".to_owned(),
        }),
        done => done.map(|()| Undone::Restored),
    }
}

/// A memory limit that another program set in a child, as text.
fn limits_below(cgroup: &Cgroup) -> limelight_sys::Result<Option<String>> {
    let defaults = [
        (MemoryKnob::Min, Limit::ZERO),
        (MemoryKnob::Low, Limit::ZERO),
        (MemoryKnob::High, Limit::Max),
        (MemoryKnob::Max, Limit::Max),
        (MemoryKnob::SwapMax, Limit::Max),
    ];
    for child in cgroup.children()? {
        let child = child?;
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

/// A weight or a limit of CPU or disk time that another program set in a child, as text.
fn weights_below(cgroup: &Cgroup, controller: &str) -> limelight_sys::Result<Option<String>> {
    let (weights, bandwidth): (&[WeightKnob], _) = match controller {
        "cpu" => (&[WeightKnob::Cpu], "cpu.max"),
        _ => (&[WeightKnob::Io, WeightKnob::Bfq], "io.max"),
    };
    for child in cgroup.children()? {
        let child = child?;
        for knob in weights {
            let found = match child.weight(*knob) {
                Err(error) if error.is_exhausted() => return Err(error),
                found => found.unwrap_or(WeightKnob::DEFAULT),
            };
            if found != WeightKnob::DEFAULT {
                return Ok(Some(format!("{} {} = {found}", child.path(), knob.file())));
            }
        }
        let found = match child.dir().read_text(bandwidth) {
            Err(error) if error.is_exhausted() => return Err(error),
            found => found.unwrap_or_default(),
        };
        let first = found.split_ascii_whitespace().next().unwrap_or_default();
        if !matches!(first, "" | "max") {
            let found = found.trim();
            return Ok(Some(format!("{} {bandwidth} = {found}", child.path())));
        }
    }
    Ok(None)
}

/// Repeated passes over processes that may have inherited a value, until a pass finds none.
#[derive(Debug, Default)]
struct Search {
    passes: usize,
    /// Values restored in all passes.
    found: usize,
    /// Values restored in the last pass.
    left: usize,
    missed: bool,
    error: Option<limelight_sys::Error>,
}

impl Search {
    fn goes_on(&self) -> bool {
        let is_done = self.passes > 0 && self.left == 0 && !self.missed;
        self.error.is_none() && !is_done && self.passes < PASSES
    }

    fn pass(&mut self, result: limelight_sys::Result<(usize, bool)>) {
        self.passes += 1;
        match result {
            Ok((found, missed)) => {
                self.found += found;
                self.left = found;
                self.missed = missed;
            }
            Err(error) => self.error = Some(error),
        }
    }
}

/// Applies the outcome of a search to the results. If the search failed, no entry is done. If
/// children are forked faster than they are found, the lineages stay owed, and a later search
/// continues.
fn finish_given(results: &mut [(Entry, Undone)], search: Search) {
    for (entry, undone) in results {
        let given = entry.lineage().is_some();
        *undone = match (&search.error, undone.clone()) {
            (Some(error), _) => Undone::Failed {
                why: format!("the search for children that inherited the value failed: {error}"),
            },
            (None, _) if given && (search.left > 0 || search.missed) => Undone::Failed {
                why: "processes fork or end faster than they can be checked".to_owned(),
            },
            (None, _) if given && search.found > 0 => Undone::Restored,
            (None, undone) => undone,
        };
    }
}

/// Processes in a cgroup, if it still exists. Fails when no descriptor is left.
pub(crate) fn procs_of(system: &System, home: &Place) -> limelight_sys::Result<Vec<i32>> {
    let Some(cgroup) = find_place(system, home)? else {
        return Ok(Vec::new());
    };
    match cgroup.procs_below() {
        Err(error) if error.is_exhausted() => Err(error),
        procs => Ok(procs.unwrap_or_default()),
    }
}

/// The result of `find` for the nearest ancestor for which it returns one.
pub(crate) fn nearest<T>(
    tree: &ProcessTree,
    pid: i32,
    find: impl Fn(i32) -> Option<T>,
) -> Option<T> {
    let mut at = pid;
    // Bounded, because parent pids that were read at different moments may form a loop.
    for _ in 0..256 {
        at = tree.parent(at)?;
        if let Some(found) = find(at) {
            return Some(found);
        }
    }
    None
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
mod tests;
