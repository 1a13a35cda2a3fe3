// SPDX-License-Identifier: GPL-2.0-or-later
//! Nice values of autogroups: sessions that the scheduler treats as groups.
//!
//! A lower value favours the whole session over other sessions. Inside the session, the threads'
//! own nice values decide.

use std::rc::Rc;

use limelight_core::model::boost::Autogroup;
use limelight_core::model::AppKey;
use limelight_proto::{Change, Outcome};
use limelight_sys::process::Process;

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{Context, Shared};
use crate::restore::undo::Undone;
use crate::restore::Entry;

fn change(
    context: Context<'_>,
    group: &Autogroup,
    (from, to): (i32, i32),
    outcome: Outcome,
) -> Change {
    let proc = context.system.roots.proc.display();
    let knob = format!("{proc}/{}/autogroup", group.process.pid);
    let from = format!("nice {from}");
    let to = format!("nice {to} (autogroup {})", group.number);
    let rule =
        "boost: the foreground app's session is one scheduling group (autogroup), which runs \
         before others";
    context.change(knob, (from, to), rule, outcome)
}

/// The process and the nice value of its group; `None` if the process has left this group.
fn look(context: Context<'_>, group: &Autogroup) -> Option<(Rc<Process>, i32)> {
    let process = context.system.same_process(group.process)?;
    let found = process.autogroup().ok().flatten()?;
    (found.number == group.number).then_some((process, found.nice))
}

fn lowered(nice: i32, points: u8) -> i32 {
    (nice - i32::from(points)).max(-20)
}

pub(super) fn regroup(
    shared: &mut Shared,
    app: AppKey,
    nice_points: u8,
    groups: &[Autogroup],
    context: Context<'_>,
) {
    // Restore sessions that are no longer listed: the helper has exited, or the process has left
    // the session.
    put_groups_back(shared, context, |number| {
        !groups.iter().any(|group| group.number == number)
    });
    let mut done = Vec::new();
    for group in groups {
        let recorded = shared.recorded().iter().find(
            |entry| matches!(entry, Entry::Autogroup { number, .. } if *number == group.number),
        );
        // A recorded group is never changed again: a renice in the meantime takes precedence.
        if let Some(known) = recorded.cloned() {
            shared.ledger.keep(&known);
            done.push(*group);
            continue;
        }
        let Some((process, nice)) = look(context, group) else {
            continue;
        };
        let ours = lowered(nice, nice_points);
        let entry = Entry::Autogroup {
            pid: group.process.pid,
            starttime: group.process.starttime,
            number: group.number,
            original: nice,
            ours,
        };
        let outcome = shared.write(&entry, || process.set_autogroup_nice(ours));
        if outcome == Outcome::Applied {
            done.push(*group);
        }
        let change = change(context, group, (nice, ours), outcome);
        shared
            .changes
            .note(Reach::App(app), Kind::Autogroup, change);
    }
    // Groups that failed are not noted as done, so the next plan retries them.
    shared.in_force.regrouped = (!done.is_empty()).then_some((app, done));
}

fn put_groups_back(shared: &mut Shared, context: Context<'_>, which: impl Fn(u64) -> bool) {
    let results = shared.undo(
        context.system,
        |entry| matches!(entry, Entry::Autogroup { number, .. } if which(*number)),
    );
    for (entry, undone) in results {
        match undone {
            Undone::Failed { why } => tracing::error!("cannot put back {entry}: {why}"),
            Undone::Theirs { found } => {
                tracing::info!(
                    "not put back: {entry}; another program has since set it to {found}"
                );
            }
            Undone::Restored | Undone::Gone => {}
        }
    }
}

pub(super) fn ungroup(shared: &mut Shared, app: AppKey, context: Context<'_>) {
    put_groups_back(shared, context, |_| true);
    shared.in_force.regrouped = None;
    shared
        .changes
        .drop_where(|reach, kind| (reach, kind) == (Reach::App(app), Kind::Autogroup));
}

#[cfg(test)]
mod tests {
    use super::lowered;

    #[test]
    fn nice_is_lowered_to_minus_20_at_most() {
        assert_eq!(lowered(0, 20), -20);
        assert_eq!(lowered(5, 20), -15);
        assert_eq!(lowered(-10, 20), -20);
    }
}
