// SPDX-License-Identifier: GPL-2.0-or-later
//! Chooses the apps that are exempt from swap. Disposable apps are exempt, unless swapping costs
//! less than closing them ([`cost`]), or reclaim would find too little beside them. An app with only
//! its working set left in memory is exempt as far as there is room. Of the other apps, only as many
//! are swapped as the storage can hold, least recently used first. The more recently used apps stay
//! in memory, because they are likely to be needed next.
//!
//! LRU is the wrong order for apps that are used in turn and together exceed memory: each app would
//! lose its pages shortly before it needs them. So some apps keep their working sets, and always
//! the same apps: `keep` before `normal`, and an app that has already kept its working set before
//! one that has not. They give way to an app that grows in the background: it is at work, and they
//! are not.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::model::app::AppKey;
use crate::model::apps::{leak, Known};
use crate::model::class::Class;
use crate::model::snapshot::Snapshot;

use super::cost;

/// The reason why a disposable app is kept out of swap, for display.
pub const DISPOSABLE: &str = "disposable apps are not swapped";

/// Reciprocal of a share of the memory that zram does not take. Apps that the storage cannot hold
/// are exempt only until all exempt apps reach this share. More would leave reclaim nothing to
/// take.
const KEPT_PART: u64 = 2;

/// Reciprocal of the largest share of the same memory that all kept working sets together may take.
const RETAINED_PART: u64 = 3;

/// Reciprocals of the largest share of its working set by which an app may exceed that set and
/// still count as having only its working set in memory. The share is larger once the app is
/// exempt, because each time in the foreground adds some memory.
const SLACK_BEFORE: u64 = 6;
const SLACK_AFTER: u64 = 2;

/// Apps that are exempt from swap, each with the reason. The foreground app is exempt only if it is
/// disposable: the limit must not hold it back while it grows, and it may become larger than memory.
pub fn exempt(snapshot: &Snapshot) -> impl Iterator<Item = (&Known, String)> {
    let settings = &snapshot.settings.swap;
    let there = snapshot.storage.is_there();
    let low = snapshot.shortage.is_low(snapshot.now());
    let total = snapshot.shortage.thresholds().total;
    let bearable = snapshot.storage.bearable(total, settings.write_budget);
    let most = (left_by_swap(snapshot) / KEPT_PART).min(left_by_reservations(snapshot));
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let own = |known: &&Known| known.found.app.own_home().is_some();
    let mut promised = 0u64;
    let retained = retained(snapshot);
    let disposable = kept_disposable(snapshot, &retained);
    let stays = |known: &&Known| {
        let key = known.key();
        disposable.contains(&key) || retained.contains(&key)
    };
    let mut kept = all_beside(snapshot, stays);
    let apps = snapshot.apps.iter().filter(move |_| there).filter(own);
    apps.filter_map(move |known| {
        if disposable.contains(&known.key()) {
            return Some((known, DISPOSABLE.to_owned()));
        }
        let is_front = front == Some(known.key());
        if retained.contains(&known.key()) && !is_front {
            let rule = "only its working set is left in memory".to_owned();
            return Some((known, rule));
        }
        promised = promised.saturating_add(known.found.memory.allocated());
        // While memory is low, apps lose this exemption: an app that can be swapped need not be
        // killed.
        let unbearable = promised > bearable && !low && !is_front;
        let room = kept.saturating_add(known.found.memory.allocated()) <= most;
        (unbearable && room).then(|| {
            kept = kept.saturating_add(known.found.memory.allocated());
            let rule = format!(
                "swap can hold {} MiB, which apps used longer ago take up",
                bearable >> 20
            );
            (known, rule)
        })
    })
}

/// Disposable apps that are kept out of swap. Where swapping writes to a disk, and with SWAP's
/// strict rule (`[swap] by_cost` off): all of them. Where all swap is zram without a backing device:
/// the most recently used ones that fit beside the reservations and the kept working sets. SWAP's
/// reason, the wear of flash, does not apply there, and reclaim has less memory to take, because
/// zram holds part of it.
fn kept_disposable(snapshot: &Snapshot, retained: &BTreeSet<AppKey>) -> BTreeSet<AppKey> {
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let is_retained = |known: &&Known| retained.contains(&known.key());
    let sets = all_beside(snapshot, is_retained);
    let mut room = left_by_reservations(snapshot).saturating_sub(sets);
    let recent_first = snapshot.apps.iter().rev();
    let disposable = recent_first.filter(|known| is_disposable(known, snapshot));
    let strict = !snapshot.settings.swap.by_cost || !snapshot.storage.is_memory();
    let fits = |known: &&Known| {
        if strict || Some(known.key()) == front {
            return true;
        }
        let left = room.checked_sub(beside(known, snapshot));
        room = left.unwrap_or(0);
        left.is_some()
    };
    disposable.filter(fits).map(Known::key).collect()
}

/// Whether the app is disposable and not [dear](cost::is_dear).
pub(super) fn is_disposable(known: &Known, snapshot: &Snapshot) -> bool {
    known.found.class.class == Class::Disposable && !cost::is_dear(known, snapshot)
}

/// Memory that zram does not take, in bytes. Without this limit, zram and exempt apps together
/// could take all memory and leave reclaim nothing.
fn left_by_swap(snapshot: &Snapshot) -> u64 {
    let total = snapshot.shortage.thresholds().total;
    total.saturating_sub(snapshot.storage.compressed.taken)
}

/// Memory that exempt apps may take beside the reservations and the growing apps, in bytes.
fn left_by_reservations(snapshot: &Snapshot) -> u64 {
    let reserved = snapshot.in_force.reserved_bytes();
    let others = snapshot.protected_by_others;
    let growth = growth_behind(snapshot);
    snapshot
        .keepable()
        .saturating_sub(reserved.saturating_add(others).saturating_add(growth))
}

/// Bytes by which background apps have grown within a minute, as far as each may be a leak. They
/// work with this memory. If idle apps could not be swapped for it, reclaim would take it from the
/// growing apps, which would read it back at once.
pub(super) fn growth_behind(snapshot: &Snapshot) -> u64 {
    let now = snapshot.now();
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let least = leak(snapshot.shortage.thresholds().total);
    let behind = snapshot.apps.iter();
    let behind = behind.filter(|known| Some(known.key()) != front);
    let growth = behind.map(|known| known.grown_until_stalled(now));
    growth.filter(|growth| *growth > least).sum()
}

/// Anonymous memory that the app holds beside the reservations, in bytes: none if a reservation
/// covers it. The reservation of an app that has left the foreground is about to move to the next
/// app.
fn beside(known: &Known, snapshot: &Snapshot) -> u64 {
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let reserved = snapshot.in_force.reserved.map(|reserved| reserved.app);
    match Some(known.key()) == reserved && reserved == front {
        true => 0,
        false => known.found.memory.anonymous,
    }
}

/// [`beside`] of all these apps together.
fn all_beside(snapshot: &Snapshot, which: impl FnMut(&&Known) -> bool) -> u64 {
    let apps = snapshot.apps.iter().filter(which);
    apps.map(|known| beside(known, snapshot)).sum()
}

/// Apps that keep their working sets in memory. All of them are exempt, except the foreground app,
/// whose place is kept until it leaves the foreground.
pub(super) fn retained(snapshot: &Snapshot) -> BTreeSet<AppKey> {
    let shortage = &snapshot.shortage;
    if shortage.is_severe(snapshot.now()) {
        return BTreeSet::new();
    }
    let in_force = &snapshot.in_force.swapping;
    let was = |known: &Known| {
        let key = known.key();
        in_force.is_exempt(key) || in_force.lifted == Some(key)
    };
    let slim = |known: &&Known| {
        let set = in_force.working_set(known.key());
        let slack = match was(known) {
            true => SLACK_AFTER,
            false => SLACK_BEFORE,
        };
        set.is_some_and(|set| known.found.memory.anonymous <= set.saturating_add(set / slack))
    };
    let dear = |known: &&Known| known.found.class.class > Class::Disposable;
    let mut apps: Vec<&Known> = snapshot.apps.iter().filter(dear).filter(slim).collect();
    apps.sort_by_key(|known| Reverse((known.found.class.class, was(known), known.used())));
    let most = left_by_swap(snapshot) / RETAINED_PART;
    let room = left_by_reservations(snapshot);
    let (mut sum, mut taken) = (0u64, 0u64);
    let fits = |known: &&Known| {
        let with = sum.saturating_add(known.found.memory.anonymous);
        let then = taken.saturating_add(beside(known, snapshot));
        let fits = with <= most && then <= room;
        if fits {
            (sum, taken) = (with, then);
        }
        fits
    };
    let retained = apps.into_iter().filter(fits);
    retained.map(Known::key).collect()
}
