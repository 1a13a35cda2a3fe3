// SPDX-License-Identifier: GPL-2.0-or-later
//! Restores values of processes that no longer have the role for which they got them, such as a
//! command that was stopped and continued in the background.

use limelight_core::model::boost::{Role, Threads};
use limelight_core::model::ProcessId;

use crate::mechanisms::shared::{Context, Shared};
use crate::restore::undo::threads::heirs::Inheritance;
use crate::restore::undo::Undone;
use crate::restore::Entry;

/// Restores the original values of processes that have another role than at the last time, or none.
pub(super) fn put_role_changes_back(
    shared: &mut Shared,
    threads: &[Threads],
    context: Context<'_>,
) {
    let role_of = |process: ProcessId| {
        let mut listed = threads.iter();
        listed
            .find(|listed| listed.process == process)
            .map(|listed| listed.role)
    };
    let Some((_, _, before)) = &shared.in_force.tuned else {
        return;
    };
    let of_terminal = |role| matches!(role, Role::Window | Role::Tab);
    let changed: Vec<ProcessId> = before
        .iter()
        .filter(|old| match role_of(old.process) {
            Some(role) => role != old.role,
            None => of_terminal(old.role),
        })
        .map(|old| old.process)
        .collect();
    if changed.is_empty() {
        return;
    }
    let is_changed = |entry: &Entry| {
        let process = entry.process().filter(|_| entry.is_asking());
        process.is_some_and(|process| changed.contains(&process))
    };
    for (entry, undone) in shared.undo(context.system, is_changed) {
        if let Undone::Failed { why } = undone {
            tracing::error!("cannot put back {entry}: {why}");
        }
    }
}

/// Restores the values of jobs that have inherited values from Limelight.
pub(super) fn disinherit(threads: &[Threads], inheritance: &Inheritance<'_>, context: Context<'_>) {
    let jobs: Vec<&Threads> = threads
        .iter()
        .filter(|listed| listed.role == Role::Job)
        .collect();
    if jobs.is_empty() {
        return;
    }
    let Ok(tree) = inheritance.tree(context.system) else {
        return;
    };
    for job in jobs {
        let Some(process) = context.system.same_process(job.process) else {
            continue;
        };
        if let Err(error) = inheritance.restore_process(&tree, (job.process, &process)) {
            tracing::debug!("a job keeps what it inherited: {error}");
        }
    }
}
