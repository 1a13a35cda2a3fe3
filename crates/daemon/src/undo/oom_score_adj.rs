// SPDX-License-Identifier: GPL-2.0-or-later
//! Putting `oom_score_adj` back, also of the children that inherited it.

use std::collections::BTreeMap;

use limelight_core::model::ProcessId;
use tracing::debug;

use super::{fail_without_heirs, gone_or_failed, nearest, procs_of, Undone, PASSES};
use crate::doors::Doors;
use crate::restore::{Entry, Place};

/// Puts `oom_score_adj` of all these processes back, and of the children that inherited it.
pub(super) fn raise(doors: &Doors, entries: Vec<Entry>) -> Vec<(Entry, Undone)> {
    if entries.is_empty() {
        return Vec::new();
    }
    let mut results: Vec<(Entry, Undone)> = Vec::new();
    // A child forked between two looks inherits once more, so look until nothing is found.
    let mut inherited = heirs(doors, &entries);
    for entry in entries {
        let undone = raise_one(doors, &entry);
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

/// The value is put back exactly. What cannot be read, and so not be put back, is the lowest value
/// that the process may give itself without privilege: the kernel sets it to each privileged write.
fn raise_one(doors: &Doors, entry: &Entry) -> Undone {
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
