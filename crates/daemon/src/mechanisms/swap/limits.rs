// SPDX-License-Identifier: GPL-2.0-or-later
//! Limits that stay in force until they are withdrawn: apps that are kept out of swap, and frozen
//! apps.

use limelight_core::model::apps::Known;
use limelight_core::model::protected::Harm;
use limelight_core::model::snapshot::Exempted;
use limelight_core::model::{AppKey, Home};
use limelight_proto::Outcome;
use limelight_sys::cgroup::{Cgroup, Limit, MemoryKnob};

use crate::mechanisms::changes::{Kind, Reach};
use crate::mechanisms::controllers::hand_down;
use crate::mechanisms::shared::{failed, Context, Shared};
use crate::mechanisms::swap::{change, own_group};
use crate::restore::undo::{open_place, Undone};
use crate::restore::{Entry, Place};
use crate::sources::pressure::unmapped_in;
use crate::system::own_scope::scope_path;
use crate::system::MEMORY;

/// Smallest and largest amount of swap cache that is dropped, in bytes. The event loop waits for
/// it.
const DROP_LEAST: u64 = 512 << 10;
const DROP_MOST: u64 = 32 << 20;
/// Swappiness with which reclaim takes as much anonymous memory as possible.
const ANONYMOUS_ONLY: u8 = 200;

const SWAP_MAX: &str = "memory.swap.max";
const FREEZE: &str = "cgroup.freeze";

/// The cgroup on which an entry records this kind of limit.
fn limited(entry: &Entry, kind: Kind) -> Option<&Place> {
    match (entry, kind) {
        (Entry::SwapMax { cgroup, .. }, Kind::SwapMax)
        | (Entry::High { cgroup, .. }, Kind::High)
        | (Entry::Frozen { cgroup }, Kind::Freeze) => Some(cgroup),
        _ => None,
    }
}

/// Whether an entry records this kind of limit on the cgroup with this inode.
pub(super) fn is_about(entry: &Entry, kind: Kind, inode: u64) -> bool {
    limited(entry, kind).is_some_and(|cgroup| cgroup.inode == inode)
}

pub(super) fn exempt(
    shared: &mut Shared,
    app: AppKey,
    home: &Home,
    rule: &str,
    context: Context<'_>,
) {
    // The app is marked before the attempt, so that a failed attempt is not repeated at each scan.
    shared.in_force.swapping.exempt.push(Exempted {
        app,
        path: home.path.clone(),
    });
    let handed_down = hand_down(shared, &home.path, MEMORY, context);
    let knob = context.system.cgroup_file(&home.path, SWAP_MAX);
    let (from, outcome) = match handed_down {
        Ok(_) => forbid_swap(shared, app, home, context),
        Err(error) => {
            let why = error.to_string();
            (String::new(), Outcome::Inert { why })
        }
    };
    let change = change(context, knob, from, "0", rule, outcome);
    shared.changes.note(Reach::App(app), Kind::SwapMax, change);
}

/// Sets the swap limit to 0 and verifies it. Returns the previous value and the outcome.
fn forbid_swap(
    shared: &mut Shared,
    app: AppKey,
    home: &Home,
    context: Context<'_>,
) -> (String, Outcome) {
    let Some(group) = open_place(context.system, &Place::from(home)) else {
        return (String::new(), failed(format!("{} has ended", home.path)));
    };
    let found = match group.limit(MemoryKnob::SwapMax) {
        Ok(found) => found,
        Err(error) => return (String::new(), failed(error)),
    };
    if found == Limit::ZERO {
        keep(shared, Kind::SwapMax, home);
        return (found.to_string(), shared.done());
    }
    let entry = Entry::SwapMax {
        cgroup: Place::from(home),
        original: found.to_string(),
    };
    let may = || shared.gate.group(&home.path, Harm::Squeeze, app).is_none();
    drop_swap_cache(&group, may);
    let set = || group.set_limit(MemoryKnob::SwapMax, Limit::ZERO);
    let outcome = match shared.write(&entry, set) {
        Outcome::Applied => verified(&group),
        outcome => outcome,
    };
    (found.to_string(), outcome)
}

/// Drops pages of the swap cache that no process maps. Once the limit is 0, the kernel no longer
/// scans the cgroup's anonymous pages (`can_reclaim_anon_pages()` in `mm/vmscan.c`), so these pages
/// would stay in memory, although swap holds their contents. Before Linux 6.8 it does nothing,
/// because reclaim cannot be restricted to anonymous pages there. `may`: whether the cgroup may be
/// squeezed; asked right before the action, and only if there is one.
fn drop_swap_cache(group: &Cgroup, may: impl FnOnce() -> bool) {
    let unmapped = group.memory_stat().map_or(0, |stat| unmapped_in(&stat));
    if unmapped < DROP_LEAST || !may() {
        return;
    }
    if let Err(error) = group.reclaim(unmapped.min(DROP_MOST), Some(ANONYMOUS_ONLY)) {
        tracing::debug!("the swap cache of {} stays: {error}", group.path().as_str());
    }
}

/// Freezes an app. Returns whether that worked.
pub(super) fn freeze(
    shared: &mut Shared,
    app: AppKey,
    home: &Home,
    rule: &str,
    context: Context<'_>,
) -> bool {
    shared.in_force.swapping.frozen.push((app, context.now));
    let outcome = stop(shared, home, context);
    let stopped = outcome == Outcome::Applied;
    let knob = context.system.cgroup_file(&home.path, FREEZE);
    let change = change(context, knob, "0".to_owned(), "1", rule, outcome);
    shared.changes.note(Reach::App(app), Kind::Freeze, change);
    stopped
}

/// Lets a frozen app run again.
pub(super) fn thaw(shared: &mut Shared, app: AppKey, context: Context<'_>) {
    put_back(shared, app, Kind::Freeze, context);
    let in_force = &mut shared.in_force.swapping;
    in_force.frozen.retain(|(key, _)| *key != app);
    in_force.thawed.retain(|(key, _)| *key != app);
    in_force.thawed.push((app, context.now));
}

fn stop(shared: &mut Shared, home: &Home, context: Context<'_>) -> Outcome {
    let Some(group) = open_place(context.system, &Place::from(home)) else {
        return failed(format!("{} has ended", home.path));
    };
    match group.freezes() {
        Ok(true) if keep(shared, Kind::Freeze, home) => return Outcome::Applied,
        Ok(true) => {
            return Outcome::Inert {
                why: "another program froze it".to_owned(),
            }
        }
        Ok(false) => {}
        Err(error) => return failed(error),
    }
    let entry = Entry::Frozen {
        cgroup: Place::from(home),
    };
    shared.write(&entry, || group.set_freeze(true))
}

/// Returns whether the daemon has already set this knob. If so, cancels its pending restore.
fn keep(shared: &mut Shared, kind: Kind, home: &Home) -> bool {
    let mut entries = shared.recorded().iter();
    let entry = entries.find(|entry| is_about(entry, kind, home.inode));
    let entry = entry.cloned();
    entry.inspect(|entry| shared.ledger.keep(entry)).is_some()
}

/// Restores one knob of an app, if the daemon has set it.
pub(super) fn put_back(shared: &mut Shared, app: AppKey, kind: Kind, context: Context<'_>) {
    let known = context.apps.iter().find(|known| known.key() == app);
    let home = |known: &Known| Some(known.found.app.home.as_ref()?.inode);
    let inode = own_group(&app).or_else(|| known.and_then(home));
    // The app may have left the cgroup that Limelight made for it, and may be moved into it again.
    let scope = match app {
        AppKey::Tree(root) => Some(scope_path(root)),
        AppKey::Cgroup { .. } => None,
    };
    let results = shared.undo(context.system, |entry| {
        limited(entry, kind).is_some_and(|cgroup| {
            Some(cgroup.inode) == inode || Some(&cgroup.path) == scope.as_ref()
        })
    });
    for (entry, undone) in results {
        match undone {
            Undone::Failed { why } => tracing::error!("{entry} cannot be put back: {why}"),
            Undone::Theirs { found } => {
                tracing::info!("{entry} stays at {found}: another program set it");
            }
            Undone::Restored | Undone::Gone => {}
        }
    }
    shared
        .changes
        .drop_where(|reach, of| (reach, of) == (Reach::App(app), kind));
}

/// Reads the limit back to check that it is in force.
fn verified(group: &Cgroup) -> Outcome {
    match group.limit(MemoryKnob::SwapMax) {
        Ok(Limit::ZERO) => Outcome::Applied,
        Ok(found) => Outcome::Inert {
            why: format!("the kernel reports a limit of {found}"),
        },
        Err(error) => failed(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use limelight_sys::cgroup::{CgroupPath, Hierarchy};

    use super::*;

    /// What is written to `memory.reclaim` of a cgroup with these MiB on the anonymous lists, of
    /// which processes map 10.
    fn dropped(listed: u64, may: bool) -> String {
        let temp = tempfile::tempdir().unwrap();
        let stat = format!(
            "anon {}\nshmem 0\ninactive_anon {}\n",
            10 << 20,
            listed << 20
        );
        for (file, text) in [
            ("cgroup.procs", ""),
            ("memory.reclaim", ""),
            ("memory.stat", stat.as_str()),
        ] {
            fs::write(temp.path().join(file), text).unwrap();
        }
        let hierarchy = Hierarchy::at(temp.path()).unwrap();
        drop_swap_cache(&hierarchy.open(&CgroupPath::root()).unwrap(), || may);
        fs::read_to_string(temp.path().join("memory.reclaim")).unwrap()
    }

    #[test]
    fn swap_cache_that_no_process_maps_is_dropped_up_to_a_limit() {
        assert_eq!(dropped(13, true), format!("{} swappiness=200", 3 << 20));
        assert_eq!(dropped(10, true), "", "all pages are mapped");
        assert_eq!(dropped(100, true), format!("{DROP_MOST} swappiness=200"));
        assert_eq!(dropped(13, false), "", "it contains a protected process");
    }
}
