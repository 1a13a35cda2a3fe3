// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may go to swap: nobody disposable, and of the others only as many as the storage bears,
//! those used longest ago first. The rest stays in memory, where it is needed next.

use crate::model::apps::Known;
use crate::model::class::Class;
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// Most that is kept in memory in this way, as a part of it: more would leave reclaim nothing.
const KEPT_PART: u64 = 2;

/// Apps that may not go to swap, each with the reason. The app in front may, unless it is
/// disposable: it may be larger than memory.
pub fn exempt(snapshot: &Snapshot) -> impl Iterator<Item = (&Known, String)> {
    let settings = &snapshot.settings.swap;
    let there = snapshot.storage.is_there();
    let level = snapshot.shortage.level();
    let total = snapshot.shortage.thresholds().total;
    let bearable = snapshot.storage.bearable(total, settings.write_budget);
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let own = |known: &&Known| known.found.app.own_home().is_some();
    let disposable = |known: &Known| known.found.class.class == Class::Disposable;
    let held = |known: &Known| known.found.memory.anonymous;
    let cheap = snapshot.apps.iter().filter(|known| disposable(known));
    let mut kept: u64 = cheap.map(held).sum();
    let mut promised = 0u64;
    let apps = snapshot.apps.iter().filter(move |_| there).filter(own);
    apps.filter_map(move |known| {
        if disposable(known) {
            return Some((known, "disposable apps are never swapped".to_owned()));
        }
        promised = promised.saturating_add(known.found.memory.allocated());
        // With little left, whoever goes to swap lives.
        let stays = promised > bearable && level < Level::Kill && front != Some(known.key());
        let room = kept.saturating_add(known.found.memory.allocated()) <= total / KEPT_PART;
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
