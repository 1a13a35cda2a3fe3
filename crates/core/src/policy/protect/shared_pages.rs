// SPDX-License-Identifier: GPL-2.0-or-later
//! Shared pages: file pages that the app maps and that are charged to other cgroups.
//!
//! The reservation for the app's cgroup does not cover these pages. The page cache of a shared
//! library is charged to the cgroup that read it first, often a cgroup without any reservation. If
//! it is evicted, the app waits for the disk while it executes its own code. In the Limelight
//! kernel, reclaim sees that the app maps such pages. On any other kernel the daemon can only lock
//! them (`mlock2(2)`). A lock works whichever cgroup is charged, changes no setting of the machine,
//! and ends with the daemon.
//!
//! Reclaim cannot take locked pages, so the limit is small: at most a quarter of the budget, at
//! most the part of the budget that the app's own memory leaves, and less with each step of the
//! pressure model. The reservation has priority: locks do not reduce it.

use crate::model::pressure::STEPS;
use crate::model::snapshot::{Locking, Measured, Snapshot};

use super::reservation::round;
use super::Step;

/// Reciprocal of the largest share of the budget that may be locked.
const SHARE: u64 = 4;

/// Reciprocal of the largest relative change of the limit that is not worth a new scan. A step of
/// pressure changes the limit by at least a quarter.
const SLACK: u64 = 5;

/// The locks that this app should have; `None`: none.
pub(super) fn wanted(snapshot: &Snapshot, topmost: &Measured) -> Option<Locking> {
    let left = u64::from(STEPS - snapshot.lowered_steps.min(STEPS));
    let budget = snapshot.budget();
    let own = topmost.footprint.map_or(0, |footprint| {
        let usage = &footprint.usage;
        usage.held().saturating_add(usage.cached_reads())
    });
    let most = (budget / SHARE).min(budget.saturating_sub(own));
    let limit = round(most / u64::from(STEPS) * left);
    let wanted = snapshot.settings.protect.lock_shared && !snapshot.device;
    (wanted && limit > 0 && !topmost.members.is_empty()).then(|| Locking {
        app: topmost.app.key,
        members: topmost.front(),
        limit,
    })
}

/// The step that sets the wanted locks; `None` if the locks in force are close enough.
pub(super) fn lock(snapshot: &Snapshot, topmost: &Measured) -> Option<Step> {
    let wanted = wanted(snapshot, topmost)?;
    let settled = |current: &Locking| {
        let same = wanted.limit.abs_diff(current.limit) <= current.limit / SLACK;
        current.app == wanted.app && current.members == wanted.members && same
    };
    if snapshot.in_force.locked.as_ref().is_some_and(settled) {
        return None;
    }
    Some(Step::Lock { locking: wanted })
}
