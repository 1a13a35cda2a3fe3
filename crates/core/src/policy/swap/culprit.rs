// SPDX-License-Identifier: GPL-2.0-or-later
//! What takes the memory, where that is no app that may be closed: the foreground app, or something
//! that is no app. Closing healthy apps would feed it, one after the other, and it would go on.

use std::collections::BTreeMap;
use std::fmt;

use super::order::STARTS;
use crate::model::apps::leak;
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// It explains the fall of available memory when it grew by at least this part of all growth.
const PART: u64 = 2;

/// What takes the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// The foreground app.
    Foreground,
    /// A cgroup that is no app.
    Service,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Culprit::Foreground => {
                "the foreground app takes the memory: closing this one would feed it"
            }
            Culprit::Service => {
                "a program that is no app takes the memory: closing this one would feed it"
            }
        })
    }
}

/// What takes the memory, if it is known to be neither a background app nor an app that starts.
pub fn find(snapshot: &Snapshot) -> Option<Culprit> {
    let shortage = &snapshot.shortage;
    if shortage.level() < Level::Swap {
        return None;
    }
    let (now, total) = (shortage.gauge().at, shortage.thresholds().total);
    let front = snapshot.known_topmost();
    let started = |started| now >= STARTS.saturating_add(started);
    let front = front.filter(|known| started(known.found.started));
    let front = front.map_or(0, |known| known.grown());
    let service = snapshot.services.iter().map(|service| service.grown).max();
    let service = service.unwrap_or(0);
    let apps: u64 = snapshot.apps.iter().map(|known| known.grown()).sum();
    let services: u64 = snapshot.services.iter().map(|service| service.grown).sum();
    let all = apps.saturating_add(services);
    let explains = |grown: u64| grown > leak(total) && grown >= all / PART;
    if explains(front) {
        Some(Culprit::Foreground)
    } else if explains(service) {
        Some(Culprit::Service)
    } else {
        None
    }
}

/// The user whose apps took most of the memory lately, if that is known: more than half of all growth,
/// whichever of the apps each part of it is in.
pub fn user(snapshot: &Snapshot) -> Option<u32> {
    let shortage = &snapshot.shortage;
    if shortage.level() < Level::Swap {
        return None;
    }
    let mut by_user: BTreeMap<u32, u64> = BTreeMap::new();
    for known in &snapshot.apps {
        let sum = by_user.entry(known.found.uid).or_default();
        *sum = sum.saturating_add(known.grown());
    }
    let services: u64 = snapshot.services.iter().map(|service| service.grown).sum();
    let all = by_user.values().sum::<u64>().saturating_add(services);
    let (user, grown) = by_user.into_iter().max_by_key(|(_, grown)| *grown)?;
    (grown > leak(shortage.thresholds().total) && grown > all / PART).then_some(user)
}
