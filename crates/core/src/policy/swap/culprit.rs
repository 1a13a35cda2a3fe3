// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the culprit of a shortage if it is not an app that may be killed: the foreground app, a
//! service, or another user. Healthy apps are then spared, because a kill would only free memory
//! for the culprit.

use std::collections::BTreeMap;
use std::fmt;

use super::services;
use crate::model::app::Home;
use crate::model::apps::{leak, Known, Service, STARTS};
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// Divisor: a culprit has at least this part of all growth, or of all memory.
const PART: u64 = 2;

/// The culprit of a shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// The foreground app.
    Foreground,
    /// A cgroup that is not an app.
    Service,
    /// Another user, by user id. That user's newest process may not be known yet, but the kernel's
    /// OOM killer, which chooses by size, finds it.
    User(u32),
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Culprit::Foreground => f.write_str("the foreground app")?,
            Culprit::Service => f.write_str("a program that is not an app")?,
            Culprit::User(uid) => write!(f, "uid {uid}")?,
        }
        f.write_str(" takes the memory, and closing this app would only free more for it")
    }
}

/// The culprit, if memory is short; `None` also if it is a background app or an app that is
/// starting.
pub fn find(snapshot: &Snapshot) -> Option<Culprit> {
    let shortage = &snapshot.shortage;
    if shortage.level() < Level::Swap {
        return None;
    }
    let (now, total) = (snapshot.now(), shortage.thresholds().total);
    let front = snapshot.known_topmost();
    let started = |started| now >= STARTS.saturating_add(started);
    let front = front.filter(|known| started(known.found.started));
    let front = front.map_or(0, |known| known.grown_until_stalled(now));
    let service = snapshot.services.iter().map(|service| service.grown).max();
    let service = service.unwrap_or(0);
    let grown = |known: &Known| known.grown_until_stalled(now);
    let apps: u64 = snapshot.apps.iter().map(grown).sum();
    let services: u64 = snapshot.services.iter().map(|service| service.grown).sum();
    let all = apps.saturating_add(services);
    let explains = |grown: u64| grown > leak(total) && grown >= all / PART;
    if explains(front) {
        Some(Culprit::Foreground)
    } else if explains(service) || is_filled_by_service(snapshot) {
        Some(Culprit::Service)
    } else {
        None
    }
}

/// Whether one service has at least half of the memory and can be squeezed. The service would only
/// use the memory of a killed app to page itself in again.
fn is_filled_by_service(snapshot: &Snapshot) -> bool {
    let shortage = &snapshot.shortage;
    let most = shortage.thresholds().total / PART;
    let fills = |service: &Service| service.memory.allocated() >= most;
    shortage.level() < Level::Exhausted
        && services::may_squeeze(snapshot)
        && snapshot.services.iter().any(fills)
}

/// The user who takes the memory, unless `known` belongs to that user.
pub fn of_other_user(known: &Known, snapshot: &Snapshot) -> Option<Culprit> {
    let taker = user(snapshot).filter(|uid| *uid != known.found.uid);
    taker.map(Culprit::User)
}

/// The user who took more than half of the memory taken lately; `None` while memory is not short.
pub fn user(snapshot: &Snapshot) -> Option<u32> {
    let short = snapshot.shortage.level() >= Level::Swap;
    taker(snapshot).filter(|_| short)
}

/// The user who took more than half of the memory taken lately, if any. Measured by the users'
/// slices if there are any, else by apps and services.
pub fn taker(snapshot: &Snapshot) -> Option<u32> {
    let mut by_user: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    let mut add = |user: Option<u32>, bytes: u64| {
        let sum = by_user.entry(user).or_default();
        *sum = sum.saturating_add(bytes);
    };
    let in_slice = |home: &Option<Home>| {
        let user = user_of(&home.as_ref()?.path)?;
        let mut known = snapshot.users_taken.iter();
        known.find(|(uid, _)| *uid == user)
    };
    for (uid, taken) in &snapshot.users_taken {
        add(Some(*uid), *taken);
    }
    for known in &snapshot.apps {
        if in_slice(&known.found.app.home).is_none() {
            add(Some(known.found.uid), known.taken());
        }
    }
    for service in &snapshot.services {
        if in_slice(&service.app.home).is_none() {
            add(None, service.grown);
        }
    }
    let sums = by_user.values();
    let all = sums.fold(0, |all: u64, sum| all.saturating_add(*sum));
    let (user, taken) = by_user.into_iter().max_by_key(|(_, taken)| *taken)?;
    let total = snapshot.shortage.thresholds().total;
    user.filter(|_| taken > leak(total) && taken > all / PART)
}

/// User id of the user slice that contains this cgroup, if any.
pub fn user_of(path: &str) -> Option<u32> {
    let slice = path.strip_prefix("/user.slice/user-")?.split('/').next()?;
    slice.strip_suffix(".slice")?.parse().ok()
}
