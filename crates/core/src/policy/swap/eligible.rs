// SPDX-License-Identifier: GPL-2.0-or-later
//! Chooses the apps that may go to swap: no disposable app; no app with only its working set left,
//! as far as there is room; and of the others only as many as the storage bears, least recently
//! used first. The rest stays in memory, where it is needed next.
//!
//! LRU is the wrong order for apps that are used in turn and together need more than memory: each
//! would lose its pages shortly before it needs them. So some apps keep their working sets, always
//! the same ones: `keep` before `normal`, and an app that kept it so far before one that did not.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::model::app::AppKey;
use crate::model::apps::Known;
use crate::model::class::Class;
use crate::model::snapshot::Snapshot;

/// Why a disposable app is kept out of swap.
pub const DISPOSABLE: &str = "disposable apps are never swapped";

/// Maximum that is kept in memory because the storage bears no more, as a part of the memory that
/// swap itself does not take: more would leave reclaim nothing.
const KEPT_PART: u64 = 2;

/// Maximum for the working sets, as such a part too.
const RETAINED_PART: u64 = 3;

/// An app may keep this part of its working set on top of the working set. The part is smaller
/// before the app is exempt and larger afterwards, because each time in the foreground adds to it.
const SLACK_BEFORE: u64 = 6;
const SLACK_AFTER: u64 = 2;

/// Apps that may not go to swap, each with the reason. The foreground app may go there beyond its
/// working set, unless it is disposable: it may be larger than memory.
pub fn exempt(snapshot: &Snapshot) -> impl Iterator<Item = (&Known, String)> {
    let settings = &snapshot.settings.swap;
    let there = snapshot.storage.is_there();
    let severe = snapshot.shortage.is_severe(snapshot.now());
    let total = snapshot.shortage.thresholds().total;
    let bearable = snapshot.storage.bearable(total, settings.write_budget);
    let most = left_by_swap(snapshot) / KEPT_PART;
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let own = |known: &&Known| known.found.app.own_home().is_some();
    let disposable = |known: &Known| known.found.class.class == Class::Disposable;
    let held = |known: &Known| known.found.memory.anonymous;
    let cheap = snapshot.apps.iter().filter(|known| disposable(known));
    let mut kept: u64 = cheap.map(held).sum();
    let mut promised = 0u64;
    let retained = retained(snapshot);
    let apps = snapshot.apps.iter().filter(move |_| there).filter(own);
    apps.filter_map(move |known| {
        if disposable(known) {
            return Some((known, DISPOSABLE.to_owned()));
        }
        if retained.contains(&known.key()) {
            let rule = "only its working set is left in memory".to_owned();
            return Some((known, rule));
        }
        promised = promised.saturating_add(known.found.memory.allocated());
        // With little memory left, apps survive by going to swap.
        let stays = promised > bearable && !severe && front != Some(known.key());
        let room = kept.saturating_add(known.found.memory.allocated()) <= most;
        (stays && room).then(|| {
            kept = kept.saturating_add(known.found.memory.allocated());
            let rule = format!(
                "swap bears {} MiB, which apps used longer ago have",
                bearable >> 20
            );
            (known, rule)
        })
    })
}

/// Memory that swap itself does not take, in bytes. If zram has most of memory, exempt apps could
/// be all that is left, and reclaim would find nothing.
fn left_by_swap(snapshot: &Snapshot) -> u64 {
    let total = snapshot.shortage.thresholds().total;
    total.saturating_sub(snapshot.storage.compressed.taken)
}

/// Apps that keep their working sets in memory.
fn retained(snapshot: &Snapshot) -> BTreeSet<AppKey> {
    let shortage = &snapshot.shortage;
    if shortage.is_severe(snapshot.now()) {
        return BTreeSet::new();
    }
    let in_force = &snapshot.in_force.swapping;
    let was = |known: &Known| in_force.exempt.contains(&known.key());
    let slim = |known: &&Known| {
        let sets = &in_force.working_sets;
        let set = sets.iter().find(|(app, _)| *app == known.key());
        let slack = match was(known) {
            true => SLACK_AFTER,
            false => SLACK_BEFORE,
        };
        set.is_some_and(|(_, set)| known.found.memory.anonymous <= set.saturating_add(set / slack))
    };
    let dear = |known: &&Known| known.found.class.class > Class::Disposable;
    let mut apps: Vec<&Known> = snapshot.apps.iter().filter(dear).filter(slim).collect();
    apps.sort_by_key(|known| Reverse((known.found.class.class, was(known), known.used())));
    let most = left_by_swap(snapshot) / RETAINED_PART;
    let mut sum = 0u64;
    let fits = |known: &&Known| {
        let with = sum.saturating_add(known.found.memory.anonymous);
        let fits = with <= most;
        if fits {
            sum = with;
        }
        fits
    };
    let retained = apps.into_iter().filter(fits);
    retained.map(Known::key).collect()
}
