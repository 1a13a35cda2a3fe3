// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the culprit of a shortage in which killing a healthy app would only free memory for the
//! culprit: the foreground app, a service, or another user. Apps that do not leak are then spared.

use std::collections::BTreeMap;
use std::fmt;

use super::order::Owners;
use super::services;
use crate::model::app::Home;
use crate::model::apps::{leak, Known, Service, STARTS};
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// Reciprocal of the smallest share of all growth, or of all memory, that makes a culprit.
const PART: u64 = 2;

/// The culprit of a shortage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// The foreground app.
    Foreground,
    /// A cgroup that is not an app.
    Service,
    /// Another user, by user id. Other users' healthy apps are spared even if no scan has seen the
    /// growing process yet: the kernel's OOM killer chooses by size and will find it.
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

/// The culprits of the present shortage, or of one that began now, and the owners of apps. Finding
/// them takes all apps into account, so they are found once for the verdicts on all apps.
///
/// The guard kills by the last order of victims. If memory runs out before the next plan, that
/// order was made while memory was not short, so it must already spare the healthy apps.
#[derive(Debug, Clone, Copy)]
pub struct Culprits {
    machine: Option<Culprit>,
    user: Option<u32>,
    owners: Owners,
}

impl Culprits {
    /// The culprits as of this snapshot.
    pub fn of(snapshot: &Snapshot) -> Culprits {
        Culprits {
            machine: growing(snapshot).or_else(|| filling(snapshot)),
            user: taker(snapshot),
            owners: Owners::of(snapshot),
        }
    }

    /// The users who have apps that may ever be closed.
    pub fn owners(&self) -> Owners {
        self.owners
    }

    /// The culprit for which this app would be closed in vain: the foreground app, a service, or
    /// another user.
    pub fn beside(&self, known: &Known) -> Option<Culprit> {
        let other = self.user.filter(|uid| *uid != charged_user(known));
        self.machine.or(other.map(Culprit::User))
    }
}

/// The culprit, if memory is short: the foreground app or a service, never [`Culprit::User`].
/// `None` also if the culprit is a background app or an app that is starting.
pub fn find(snapshot: &Snapshot) -> Option<Culprit> {
    if snapshot.shortage.level() < Level::Swap {
        return None;
    }
    growing(snapshot).or_else(|| filling(snapshot))
}

/// The foreground app, unless it is starting, or a service, if its growth would explain a shortage.
fn growing(snapshot: &Snapshot) -> Option<Culprit> {
    let has_started = |known: &Known| snapshot.now() >= STARTS.saturating_add(known.found.started);
    let service = snapshot.services.iter().map(|service| service.grown).max();
    if snapshot.known_topmost().is_some_and(has_started) && foreground_explains(snapshot) {
        Some(Culprit::Foreground)
    } else {
        explains(snapshot, service.unwrap_or(0)).then_some(Culprit::Service)
    }
}

/// Whether memory is short because the foreground app grows, even if that app is only starting.
pub fn is_foreground(snapshot: &Snapshot) -> bool {
    snapshot.shortage.level() >= Level::Swap && foreground_explains(snapshot)
}

fn foreground_explains(snapshot: &Snapshot) -> bool {
    let front = snapshot.known_topmost();
    let grown = front.map_or(0, |known| known.grown_until_stalled(snapshot.now()));
    explains(snapshot, grown)
}

/// Whether one growth of this many bytes is large enough to be a leak, and at least half of all
/// recent growth of apps and services.
fn explains(snapshot: &Snapshot, grown: u64) -> bool {
    let now = snapshot.now();
    let apps = snapshot.apps.iter();
    let apps: u64 = apps.map(|known| known.grown_until_stalled(now)).sum();
    let services: u64 = snapshot.services.iter().map(|service| service.grown).sum();
    let all = apps.saturating_add(services);
    grown > leak(snapshot.shortage.thresholds().total) && grown >= all / PART
}

/// A service that has at least half of the memory and can be squeezed, while memory is short but
/// not exhausted. The service would use the memory of a killed app only to page itself in again.
fn filling(snapshot: &Snapshot) -> Option<Culprit> {
    let shortage = &snapshot.shortage;
    let most = shortage.thresholds().total / PART;
    let fills = |service: &Service| service.memory.allocated() >= most;
    let short = (Level::Swap..Level::Exhausted).contains(&shortage.level());
    let filled = short && services::may_squeeze(snapshot) && snapshot.services.iter().any(fills);
    filled.then_some(Culprit::Service)
}

/// Like [`taker`], but `None` while memory is not short.
pub fn user(snapshot: &Snapshot) -> Option<u32> {
    let short = snapshot.shortage.level() >= Level::Swap;
    taker(snapshot).filter(|_| short)
}

/// The user who accounts for more than half of all recent growth, if the user's growth is large
/// enough to be a leak ([`leak`]). All growth is that of the users' slices, and of the apps and
/// services outside these slices.
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
            add(Some(charged_user(known)), known.taken());
        }
    }
    for service in &snapshot.services {
        if in_slice(&service.app.home).is_none() {
            add(None, service.grown);
        }
    }
    let sums = by_user.iter().map(|(user, taken)| (*user, *taken));
    most_taken(sums, snapshot.shortage.thresholds().total)?
}

/// The one of these takers that accounts for more than half of all growth, if its growth is large
/// enough to be a leak ([`leak`]). Each taker comes with its growth in bytes. `total`: the memory
/// that apps can use, in bytes. Allocates nothing.
pub fn most_taken<T>(takers: impl Iterator<Item = (T, u64)> + Clone, total: u64) -> Option<T> {
    let growth = takers.clone().map(|(_, taken)| taken);
    let all = growth.fold(0, |all: u64, taken| all.saturating_add(taken));
    let (taker, taken) = takers.max_by_key(|(_, taken)| *taken)?;
    (taken > leak(total) && taken > all / PART).then_some(taker)
}

/// The user whose growth this app's growth counts as: that of the user slice that contains it, else
/// the owner of its processes. A program that a user started as root counts as the user's.
pub fn charged_user(known: &Known) -> u32 {
    let home = known.found.app.home.as_ref();
    let user = home.and_then(|home| user_of(&home.path));
    user.unwrap_or(known.found.uid)
}

/// User id of the user slice that contains this cgroup, if any.
pub fn user_of(path: &str) -> Option<u32> {
    let slice = path.strip_prefix("/user.slice/user-")?.split('/').next()?;
    slice.strip_suffix(".slice")?.parse().ok()
}
