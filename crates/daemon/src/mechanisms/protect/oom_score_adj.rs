// SPDX-License-Identifier: GPL-2.0-or-later
//! `oom_score_adj`: makes the OOM killer prefer other victims.
//!
//! The values of all processes of the app are lowered by the same number of points. An app that
//! marks some of its own processes as first victims thus keeps that order. If the app itself sets a
//! value above the original while it is topmost, Limelight neither lowers it again nor restores the
//! original.
//!
//! A value below 0 that the restore record does not explain is not lowered further. Either a
//! privileged program set it, or the process inherited it from Limelight unnoticed.

use std::rc::Rc;

use limelight_core::model::{AppKey, ProcessId};
use limelight_proto::{Change, Outcome};
use limelight_sys::process::Process;
use limelight_sys::tree::ProcessTree;

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{failed, Context, Shared};
use crate::restore::undo::oom_score_adj::Inheritance;
use crate::restore::undo::{lineage, Undone};
use crate::restore::{Entry, Moment, Place};

/// Lowest value that is written. -1000 would exempt a process from the OOM killer altogether.
const LOWEST: i16 = -999;

/// The value to write for a process, given its value without Limelight. A value below 0 stays.
fn lowered(original: i16, points: u16) -> i16 {
    if original < 0 {
        return original;
    }
    let points = i16::try_from(points).unwrap_or(1000);
    original.saturating_sub(points).max(LOWEST)
}

fn change(context: Context<'_>, id: ProcessId, from: i16, to: i16, points: u16) -> Change {
    let proc = context.system.roots.proc.display();
    let knob = format!("{proc}/{}/oom_score_adj", id.pid);
    let rule = format!(
        "protect: {points} points lower, so that protected memory does not make the app the OOM \
         killer's first choice"
    );
    context.change(knob, (from, to), rule, Outcome::Applied)
}

/// A process whose value is to be lowered.
struct Fresh {
    id: ProcessId,
    process: Rc<Process>,
    /// The present value.
    found: i16,
    /// The value without Limelight.
    original: i16,
    /// The value to write.
    ours: i16,
    entry: Entry,
}

/// Those processes of `members` that are not recorded yet and whose value is to be lowered, and the
/// entries for the values that their children will inherit. `None` if inherited and chosen values
/// cannot be distinguished because the daemon lacks memory or descriptors.
fn fresh(
    shared: &mut Shared,
    members: &[ProcessId],
    recorded: &[Entry],
    points: u16,
    context: Context<'_>,
) -> Option<(Vec<Fresh>, Vec<Entry>)> {
    let system = context.system;
    let home = context.front.and_then(|app| app.own_home());
    let home = home.map(Place::from);
    let inheritance = Inheritance::new(recorded, &[]);
    // The time and the process tree before any change. They are read at the first new process,
    // because most plans find no new process.
    let mut start: Option<(Moment, ProcessTree)> = None;
    let mut given = Vec::new();
    let mut fresh = Vec::new();
    for &id in members {
        if let Some(known) = recorded.iter().find(|entry| entry.process() == Some(id)) {
            shared.ledger.keep(known);
            continue;
        }
        let Some(process) = system.same_process(id) else {
            continue;
        };
        let origin = process.oom_score_adj().and_then(|found| {
            let made = match start.take() {
                Some(start) => start,
                None => (lineage::moment(system), inheritance.tree(system)?),
            };
            let (since, tree) = start.insert(made);
            let original = inheritance.original(tree, (id, &process), found)?;
            let lineage = lineage::of(&process, *since)?;
            Ok((found, original.unwrap_or(found), lineage))
        });
        let (found, original, lineage) = match origin {
            Ok(origin) => origin,
            // The daemon lacks memory or descriptors; the next plan may succeed.
            Err(error) if error.is_exhausted() => {
                tracing::debug!("no oom_score_adj is lowered: {error}");
                return None;
            }
            Err(_) => continue,
        };
        let ours = lowered(original, points);
        if ours < original {
            fresh.push(Fresh {
                id,
                process,
                found,
                original,
                ours,
                entry: Entry::OomScoreAdj {
                    pid: id.pid,
                    starttime: id.starttime,
                    original,
                    ours,
                    home: home.clone(),
                },
            });
            given.push(Entry::ScoreGiven {
                lineage,
                original,
                ours,
            });
        }
    }
    Some((fresh, given))
}

pub(super) fn shield(
    shared: &mut Shared,
    app: AppKey,
    members: &[ProcessId],
    points: u16,
    context: Context<'_>,
) {
    let seen = match &shared.in_force.shielded {
        Some((shielded, seen)) if *shielded == app => seen.as_slice(),
        _ => &[],
    };
    let unseen = members.iter().filter(|id| seen.binary_search(id).is_err());
    let unseen: Vec<ProcessId> = unseen.copied().collect();
    let all = shared.recorded().iter();
    let recorded: Vec<Entry> = all.filter(|entry| entry.is_score()).cloned().collect();
    let Some((fresh, given)) = fresh(shared, &unseen, &recorded, points, context) else {
        return;
    };
    let entries = fresh.iter().map(|one| one.entry.clone());
    let entries = shared.with_lineages(entries.collect(), given);
    let intended = shared.intend(entries);
    let mut unwritten = Vec::new();
    for one in &fresh {
        let mut change = change(context, one.id, one.original, one.ours, points);
        change.outcome = shared.done();
        if let Err(error) = &intended {
            change.outcome = failed(error);
        } else if one.found != one.ours && !shared.is_dry_run() {
            match one.process.set_oom_score_adj(one.ours) {
                Ok(()) => {}
                Err(error) => {
                    unwritten.push(one.entry.clone());
                    if error.is_gone() {
                        continue;
                    }
                    change.outcome = failed(error);
                }
            }
        }
        let reach = Reach::Process(one.id);
        shared.changes.note(reach, Kind::Score, change);
    }
    if intended.is_err() {
        return;
    }
    // Values that an ended process passed on stay in the restore record: its children may still
    // run.
    let is_member = |id: ProcessId| members.binary_search(&id).is_ok();
    let ended = |entry: &&Entry| {
        let process = entry.process();
        process.is_some_and(|id| !is_member(id) && context.system.has_ended(id))
    };
    unwritten.extend(recorded.iter().filter(ended).cloned());
    shared.ledger.forget_all(&unwritten);
    shared.changes.drop_where(|reach, kind| {
        kind == Kind::Score && matches!(reach, Reach::Process(id) if !is_member(id))
    });
    shared.in_force.shielded = Some((app, members.to_vec()));
}

pub(super) fn unshield(shared: &mut Shared, context: Context<'_>) {
    for (entry, undone) in shared.undo(context.system, Entry::is_score) {
        match undone {
            Undone::Failed { why } if entry.lineage().is_some() => {
                tracing::info!("not put back yet: {entry}; {why}");
            }
            Undone::Failed { why } => tracing::error!("cannot put back {entry}: {why}"),
            _ => {}
        }
    }
    shared.in_force.shielded = None;
    shared.changes.drop_where(|_, kind| kind == Kind::Score);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexplained_negative_score_is_not_lowered_further() {
        assert_eq!(lowered(-500, 500), -500);
        assert_eq!(lowered(-1, 500), -1);
        assert_eq!(lowered(-1000, 500), -1000);
    }

    #[test]
    fn score_is_lowered_but_never_below_minus_999() {
        assert_eq!(lowered(0, 500), -500);
        assert_eq!(lowered(200, 500), -300);
        assert_eq!(lowered(1000, 1000), 0);
        assert_eq!(lowered(0, 1000), -999);
    }
}
