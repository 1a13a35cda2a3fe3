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
//! pressure model. The reservation has priority: locks do not reduce it. On a machine with swap,
//! nothing is locked while so little memory and swap is left that apps may soon be closed.

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
    let wanted =
        snapshot.settings.protect.lock_shared && !snapshot.device && !is_little_left(snapshot);
    (wanted && limit > 0 && !topmost.members.is_empty()).then(|| Locking {
        app: topmost.app.key,
        members: topmost.front(),
        limit,
    })
}

/// Whether so little memory and swap is left that locked pages could cost an app its life: twice as
/// much as is left when swapping no longer keeps up. Locked pages count as left, because they are
/// if the locks end.
///
/// Without swap, page cache is nearly all that reclaim can take, so the locks stay.
fn is_little_left(snapshot: &Snapshot) -> bool {
    let memory = &snapshot.memory;
    let left = memory.available + memory.swap_free + snapshot.locked_bytes;
    memory.swap_total > 0 && left < snapshot.shortage.needed_room() * 2
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::app::{App, AppKey, ProcessId};
    use crate::model::never::Exceptions;
    use crate::model::pressure::Memory;
    use crate::model::shortage::{derive_thresholds, Shortage};

    const MIB: u64 = 1 << 20;

    #[test]
    fn nothing_is_locked_while_little_memory_and_swap_is_left() {
        let topmost = Measured {
            app: App {
                key: AppKey::Cgroup { inode: 5 },
                name: "viewer".to_owned(),
                process: None,
                home: None,
            },
            members: vec![ProcessId {
                pid: 7,
                starttime: 1,
            }],
            footprint: None,
            terminal: None,
            exceptions: Exceptions::default(),
        };
        let locks = |available: u64, swap_free: u64, swap_total: u64, locked: u64| {
            let mut snapshot = Snapshot {
                memory: Memory {
                    total: 320 * MIB,
                    available: available * MIB,
                    swap_total: swap_total * MIB,
                    swap_free: swap_free * MIB,
                    ..Memory::default()
                },
                locked_bytes: locked * MIB,
                shortage: Shortage::new(derive_thresholds(320 * MIB, 0)),
                ..Snapshot::default()
            };
            snapshot.settings.protect.lock_shared = true;
            wanted(&snapshot, &topmost).is_some()
        };
        // Eight times the threshold `kill` is 64 MiB.
        assert!(locks(24, 40, 256, 0));
        assert!(!locks(20, 40, 256, 0));
        // What is locked now would be left without the locks.
        assert!(locks(10, 40, 256, 14));
        assert!(!locks(5, 40, 256, 14));
        assert!(locks(5, 0, 0, 0), "there is no swap");
    }
}
