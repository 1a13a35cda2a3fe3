// SPDX-License-Identifier: GPL-2.0-or-later
//! Shared pages: what the app maps of files, and what is charged to somebody else.
//!
//! A cgroup's reservation does not reach them. The page cache of a shared library is charged to
//! whoever read it first, often to a cgroup that nobody reserves anything for, and the app waits
//! for the disk in the middle of its own code. On our kernel reclaim sees that the app maps them;
//! on any other the daemon can only lock them (`mlock2(2)`): that holds for a page whoever it is
//! charged to, needs no file of the system to be changed, and ends with the daemon.
//!
//! A lock does not give way by itself, so it is small: a quarter of the budget at the most, no more
//! than the app's own memory leaves of the budget, and less with every step that the pressure
//! model asks for. The reservation comes first: nothing is taken from it.

use crate::model::pressure::STEPS;
use crate::model::snapshot::{Locking, Measured, Snapshot};

use super::reservation::round;
use super::Step;

/// The part of the budget that may be locked.
const SHARE: u64 = 4;

/// Changes of the limit by less than this part of it are not worth a new look. A step of pressure
/// is a quarter at least.
const SLACK: u64 = 5;

/// What should be locked for this app.
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
        members: topmost.members.clone(),
        limit,
    })
}

/// The step to it from what is in force.
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
