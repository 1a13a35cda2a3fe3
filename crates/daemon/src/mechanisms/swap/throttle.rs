// SPDX-License-Identifier: GPL-2.0-or-later
//! Limits that slow leaking apps (`memory.high`).

use limelight_core::model::snapshot::Throttled;
use limelight_core::model::{AppKey, Home};
use limelight_proto::Outcome;
use limelight_sys::cgroup::{Limit, MemoryKnob};

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::shared::{failed, Context, Shared};
use crate::mechanisms::swap::{change, limits};
use crate::restore::undo::open_place;
use crate::restore::{Entry, Place};

/// Limits are multiples of this, so that the kernel reports exactly the value that was written. At
/// least as large as a page on every architecture.
const GRAIN: u64 = 64 << 10;

/// Limits an app's memory, or raises its limit.
pub(super) fn throttle(
    shared: &mut Shared,
    app: AppKey,
    home: &Home,
    limit: u64,
    rule: &str,
    context: Context<'_>,
) -> Outcome {
    let (from, to, outcome) = set(shared, home, limit, context);
    let in_force = outcome == shared.done();
    let throttled = &mut shared.in_force.swapping.throttled;
    throttled.retain(|one| one.app != app);
    if in_force {
        throttled.push(Throttled {
            app,
            limit,
            raised: context.now,
        });
    }
    let knob = context
        .system
        .cgroup_file(&home.path, MemoryKnob::High.file());
    let change = change(context, knob, from, &to, rule, outcome.clone());
    shared.changes.note(Reach::App(app), Kind::High, change);
    outcome
}

/// Lifts an app's limit.
pub(super) fn lift(shared: &mut Shared, app: AppKey, context: Context<'_>) {
    limits::put_back(shared, app, Kind::High, context);
    let throttled = &mut shared.in_force.swapping.throttled;
    throttled.retain(|one| one.app != app);
}

/// Writes the limit. Returns the value before Limelight, the new value and the outcome.
fn set(
    shared: &mut Shared,
    home: &Home,
    limit: u64,
    context: Context<'_>,
) -> (String, String, Outcome) {
    let place = Place::from(home);
    let wanted = Limit::Bytes(limit / GRAIN * GRAIN);
    let fail = |outcome| (String::new(), wanted.to_string(), outcome);
    let Some(group) = open_place(context.system, &place) else {
        return fail(failed(format!("{} has ended", home.path)));
    };
    let (found, used) = match (group.limit(MemoryKnob::High), group.memory_current()) {
        (Ok(found), Ok(used)) => (found, used),
        (Err(error), _) | (_, Err(error)) => return fail(failed(error)),
    };
    let (original, in_force) = match recorded(shared, home.inode) {
        None => (found.to_string(), None),
        Some((original, ours)) if ours.contains(&found.to_string()) => {
            (original, Some(found.to_string()))
        }
        Some(_) => {
            let why = format!("another program set it to {found}");
            return fail(Outcome::Inert { why });
        }
    };
    // The kernel reclaims in the thread that writes a limit below the use, and the daemon must not
    // wait for that. The app may have grown since the scan.
    let wanted = match in_force {
        None => wanted.max(Limit::Bytes(used.div_ceil(GRAIN).saturating_mul(GRAIN))),
        Some(_) => wanted,
    };
    if original
        .parse()
        .is_ok_and(|original: Limit| original <= wanted)
    {
        let why = format!("another program limits it to {original}");
        return fail(Outcome::Inert { why });
    }
    let to = wanted.to_string();
    let first = in_force.is_none();
    // A crash during the write may leave either value.
    let entry = Entry::High {
        cgroup: place,
        original: original.clone(),
        ours: in_force.into_iter().chain([to.clone()]).collect(),
    };
    let outcome = match shared.intend([entry.clone()]) {
        Err(error) => failed(error),
        Ok(()) if shared.is_dry_run() => Outcome::Planned,
        Ok(()) => match group.set_limit(MemoryKnob::High, wanted) {
            Ok(()) => Outcome::Applied,
            Err(error) => {
                if first {
                    shared.ledger.forget(&entry);
                }
                failed(error)
            }
        },
    };
    (original, to, outcome)
}

/// The recorded limit of the cgroup with this inode: the original value, and Limelight's values.
fn recorded(shared: &Shared, inode: u64) -> Option<(String, Vec<String>)> {
    shared.recorded().iter().find_map(|entry| match entry {
        Entry::High {
            cgroup,
            original,
            ours,
        } if cgroup.inode == inode => Some((original.clone(), ours.clone())),
        _ => None,
    })
}
