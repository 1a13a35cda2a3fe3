// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may go to swap: nobody disposable, and of the others only as many as the storage bears,
//! those used longest ago first. The rest stays in memory, where it is needed next.

use crate::model::apps::Known;
use crate::model::class::Class;
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// Apps that may not go to swap, each with the reason.
pub fn exempt(snapshot: &Snapshot) -> impl Iterator<Item = (&Known, String)> {
    let settings = &snapshot.settings.swap;
    let there = snapshot.storage.is_there();
    let level = snapshot.shortage.level();
    let total = snapshot.shortage.thresholds().total;
    let bearable = snapshot.storage.bearable(total, settings.write_budget);
    let mut promised = 0u64;
    let own = |known: &&Known| known.found.app.own_home().is_some();
    let apps = snapshot.apps.iter().filter(move |_| there).filter(own);
    apps.filter_map(move |known| {
        if known.found.class.class == Class::Disposable {
            return Some((known, "disposable apps are never swapped".to_owned()));
        }
        promised = promised.saturating_add(known.found.memory.allocated());
        // With nothing left, whoever goes to swap lives.
        let stays = promised > bearable && level < Level::Exhausted;
        stays.then(|| {
            let rule = format!(
                "swap bears {} MiB, which apps used longer ago have",
                bearable >> 20
            );
            (known, rule)
        })
    })
}
