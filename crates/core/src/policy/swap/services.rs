// SPDX-License-Identifier: GPL-2.0-or-later
//! Before an app is frozen or killed, the largest service is squeezed. Services are never frozen
//! and never killed.

use super::{Step, SQUEEZE_AGAIN, SQUEEZE_LEAST, SQUEEZE_MOST, SQUEEZE_PART};
use crate::model::apps::Service;
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// Whether services may be squeezed on this machine at all.
pub fn may_squeeze(snapshot: &Snapshot) -> bool {
    snapshot.settings.swap.services && snapshot.storage.is_there()
}

/// The largest service that has enough memory to squeeze and was not squeezed recently.
pub fn pending(snapshot: &Snapshot) -> Option<&Service> {
    next(snapshot, 0).map(|(service, _)| service)
}

/// The service to squeeze, and the number of bytes to reclaim from it: at most half of its resident
/// anonymous memory at once, because the service keeps running and needs the rest.
fn next(snapshot: &Snapshot, missing: u64) -> Option<(&Service, u64)> {
    let shortage = &snapshot.shortage;
    if shortage.level() < Level::Swap || !may_squeeze(snapshot) {
        return None;
    }
    let now = snapshot.now();
    let total = shortage.thresholds().total;
    let least = (total / SQUEEZE_PART).max(SQUEEZE_LEAST);
    let budget = snapshot.settings.swap.write_budget;
    let most = snapshot.storage.spare(budget).min(SQUEEZE_MOST);
    let squeezed = &snapshot.in_force.swapping.squeezed;
    let lately = |service: &Service| {
        let mut all = squeezed.iter();
        all.any(|(app, at)| *app == service.app.key && now.saturating_sub(*at) < SQUEEZE_AGAIN)
    };
    snapshot.services.iter().find_map(|service| {
        let held = service.memory.anonymous;
        let bytes = missing.max(least).min(held / 2).min(most);
        let spared = lately(service) || super::refused_lately(snapshot, service.app.key);
        (held >= least && bytes >= SQUEEZE_LEAST && !spared).then_some((service, bytes))
    })
}

/// The step that squeezes the next service, if there is one. `missing`: bytes that should be freed.
pub fn squeeze(snapshot: &Snapshot, missing: u64) -> Option<Step> {
    let (service, bytes) = next(snapshot, missing)?;
    Some(Step::Squeeze {
        app: service.app.key,
        home: service.app.own_home().cloned(),
        members: Vec::new(),
        bytes,
        dry: true,
        rule: format!(
            "memory is short: {} MiB available; it is not an app and has {} MiB",
            snapshot.memory.available >> 20,
            service.memory.anonymous >> 20
        ),
    })
}
