// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap`: what becomes of the apps that are not in front when memory is short (SWAP).
//!
//! A ladder, each rung taken back more easily than the next one:
//!
//! 1. *Exempt*: disposable apps never go to swap. They restore themselves from little, so writing
//!    them out would cost storage more than starting them anew. Of the others only so many may go
//!    there as the storage bears, those used longest ago first; and whoever has nothing but his
//!    working set in memory keeps it, as far as there is room.
//! 2. *Ask*: whoever listens is asked for memory.
//! 3. *Squeeze*: the app used longest ago gives up pages, before the machine has to take them from
//!    everybody. While nobody waits for anything that is done ahead: the next app that is launched
//!    shall find memory free, and the disk with nothing to write.
//! 4. *Freeze*: when nothing disposable is left, the app used longest ago is stopped and squeezed
//!    dry. It comes back when it is in front.
//! 5. *Kill*: by `Shortage` and [`order`], carried out by whoever reads the gauge, since nothing
//!    may stand between the decision and the deed. What is planned here is who may be killed.
//!
//! An app that comes to the front again is *returned*: thawed, and its memory read back ahead of
//! its faults.

pub mod account;
pub mod culprit;
mod eligible;
pub mod order;
mod services;

pub use eligible::DISPOSABLE;

use std::time::Duration;

use super::plan::Event;
use crate::model::app::{AppKey, Home, ProcessId};
use crate::model::apps::Known;
use crate::model::class::Class;
use crate::model::protected::Harm;
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

/// An app is squeezed, and another one frozen, at most once in this time.
const SQUEEZE_AGAIN: Duration = Duration::from_secs(5);
const FREEZE_AGAIN: Duration = Duration::from_millis(500);
/// No app stays stopped for longer: another process may wait for its answer. That is time enough to
/// squeeze it dry.
pub const FREEZE_MOST: Duration = Duration::from_secs(2);
/// An app that was stopped is not stopped again within this time.
const FROZEN_AGAIN: Duration = Duration::from_secs(60);
/// After the gate refused an action on an app, none is planned for it in this time.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Listeners are told at most once in this time, whatever the level does meanwhile.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const WARN_AGAIN: Duration = Duration::from_secs(30);
/// Frozen apps are thawed after so long with plenty of memory.
pub const CALM: Duration = Duration::from_secs(10);
/// A squeeze takes at least this part of memory, where the app has so much: each one costs a look.
const SQUEEZE_PART: u64 = 32;
/// Less is not worth a squeeze.
const SQUEEZE_LEAST: u64 = 1 << 20;
/// More at once would keep the next app waiting.
const SQUEEZE_MOST: u64 = 64 << 20;

/// Most of memory that is kept free for the next launch: this part of it, and this many bytes.
const LAUNCH_PART: u64 = 5;
const LAUNCH_MOST: u64 = 1 << 30;

/// One step of `swap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Keep the app's pages out of swap.
    Exempt {
        /// The app.
        app: AppKey,
        /// Its cgroup.
        home: Home,
        /// Why.
        rule: String,
    },
    /// Let its pages go to swap as before.
    Admit {
        /// The app.
        app: AppKey,
    },
    /// Tell listeners how short memory is.
    Ask {
        /// How short.
        level: Level,
        /// Who would be killed next.
        next: Option<AppKey>,
    },
    /// Tell people that the app in front takes memory without end.
    Warn {
        /// The app.
        app: AppKey,
        /// Bytes by which it grew lately.
        grown: u64,
    },
    /// Have the app give up memory.
    Squeeze {
        /// The app, or the cgroup of a [service](crate::model::apps::Service).
        app: AppKey,
        /// Its cgroup, if it has one of its own; else only its processes are squeezed.
        home: Option<Home>,
        /// Its processes, ascending.
        members: Vec<ProcessId>,
        /// How much, in bytes.
        bytes: u64,
        /// Also what it will need when it returns.
        dry: bool,
        /// Why.
        rule: String,
    },
    /// Stop the app's processes.
    Freeze {
        /// The app.
        app: AppKey,
        /// Its cgroup.
        home: Home,
        /// Why.
        rule: String,
    },
    /// Let them run again.
    Thaw {
        /// The app.
        app: AppKey,
        /// Why.
        rule: String,
    },
    /// Read the app's memory back.
    Return {
        /// The app.
        app: AppKey,
        /// Its processes, ascending.
        members: Vec<ProcessId>,
        /// Most of it, in bytes.
        most: u64,
    },
    /// These may be killed, first one first.
    Arm {
        /// They.
        order: Vec<order::Candidate>,
    },
}

fn off(event: &Event, snapshot: &Snapshot) -> bool {
    *event == Event::Stop || !snapshot.settings.swap.enabled
}

/// What has to be taken back first.
pub fn withdraw(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    let in_force = &snapshot.in_force.swapping;
    let mut steps = Vec::new();
    let disarm = off(event, snapshot) || !snapshot.settings.swap.kill;
    if disarm && !in_force.armed.is_empty() {
        steps.push(Step::Arm { order: Vec::new() });
    }
    for (app, since) in &in_force.frozen {
        if let Some(rule) = thaws(event, snapshot, *app, *since) {
            steps.push(Step::Thaw { app: *app, rule });
        }
    }
    let exempt: Vec<AppKey> = match off(event, snapshot) {
        true => Vec::new(),
        false => eligible::exempt(snapshot)
            .map(|(known, _)| known.key())
            .collect(),
    };
    // A unit may be exempt before anybody is in it.
    let known = |app: AppKey| snapshot.apps.iter().any(|known| known.key() == app);
    let ends = off(event, snapshot);
    let admitted = in_force.exempt.iter();
    let admitted = admitted.filter(|app| !exempt.contains(app) && (ends || known(**app)));
    steps.extend(admitted.map(|app| Step::Admit { app: *app }));
    steps
}

/// Why a frozen app runs again, if it does.
fn thaws(event: &Event, snapshot: &Snapshot, app: AppKey, since: Duration) -> Option<String> {
    if off(event, snapshot) || !snapshot.settings.swap.freeze {
        return Some("swap ends".to_owned());
    }
    if snapshot
        .topmost
        .as_ref()
        .is_some_and(|top| top.app.key == app)
    {
        return Some("it is topmost".to_owned());
    }
    let known = snapshot.apps.iter().find(|known| known.key() == app);
    let home = known.and_then(|known| known.found.app.home.as_ref());
    let guarded = home.and_then(|home| snapshot.protected.in_group(&home.path, Harm::Freeze, app));
    if let Some(guarded) = guarded {
        return Some(guarded.to_string());
    }
    if home.is_some_and(|home| !home.own) {
        return Some("its cgroup holds another app too".to_owned());
    }
    if let Some(used) = known.and_then(|known| known.found.uses.first()) {
        return Some(format!("it {}", used.clause()));
    }
    let shortage = &snapshot.shortage;
    if shortage.gauge().at.saturating_sub(since) >= FREEZE_MOST {
        return Some("it has been stopped for long enough to be squeezed dry".to_owned());
    }
    let calm = shortage.gauge().at.saturating_sub(shortage.since());
    let plenty = shortage.level() == Level::Plenty && calm >= CALM;
    plenty.then(|| format!("there has been plenty of memory for {} s", calm.as_secs()))
}

/// What is done then.
pub fn grant(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    if off(event, snapshot) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let others = |(app, step)| (Some(app) != front).then_some(step);
    steps.extend(exemptions(snapshot).filter_map(others));
    steps.extend(arm(snapshot));
    steps.extend(ask(snapshot));
    steps.extend(warn(snapshot));
    let frozen = freeze(snapshot);
    match frozen {
        Some(frozen) => steps.extend(frozen),
        None => steps.extend(squeeze(snapshot)),
    }
    steps
}

/// What is done before anything else for the app that came to the front: the disk is at work on it
/// meanwhile, and a new one that may not go to swap has pages from its first moment.
pub fn receive(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    if off(event, snapshot) {
        return Vec::new();
    }
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let own = |(app, step)| (Some(app) == front).then_some(step);
    let keep = exemptions(snapshot).filter_map(own);
    keep.chain(bring_back(snapshot)).collect()
}

/// Apps that may not go to swap from now on.
fn exemptions(snapshot: &Snapshot) -> impl Iterator<Item = (AppKey, Step)> + '_ {
    eligible::exempt(snapshot).filter_map(|(known, rule)| {
        let app = known.key();
        let done = snapshot.in_force.swapping.exempt.contains(&app);
        let home = known.found.app.own_home().filter(|_| !done)?.clone();
        let refused = refused_lately(snapshot, app);
        let guarded = snapshot.protected.in_group(&home.path, Harm::Limit, app);
        if refused || guarded.is_some() {
            return None;
        }
        Some((app, Step::Exempt { app, home, rule }))
    })
}

/// The app that came to the front gets its memory back, once.
fn bring_back(snapshot: &Snapshot) -> Option<Step> {
    let known = snapshot.known_topmost()?;
    let app = known.key();
    let most = snapshot.settings.swap.prefault;
    // What is brought back must not push out what else the app needs.
    let room = snapshot.memory.available / 2;
    let done = snapshot.in_force.swapping.returned == Some(app);
    (!done && most > 0).then(|| Step::Return {
        app,
        members: known.found.members.clone(),
        most: most.min(room),
    })
}

fn arm(snapshot: &Snapshot) -> Option<Step> {
    if !snapshot.settings.swap.kill {
        return None;
    }
    let order = order::candidates(snapshot);
    let armed = &snapshot.in_force.swapping.armed;
    let same = order.len() == armed.len() && order.iter().zip(armed).all(|(a, b)| a.app == *b);
    // Each look renews what is known of their size, by which a burst is recognised.
    let fresh = snapshot.shortage.level() == Level::Plenty;
    (!same || !fresh).then_some(Step::Arm { order })
}

fn ask(snapshot: &Snapshot) -> Option<Step> {
    let level = snapshot.shortage.level();
    let now = snapshot.shortage.gauge().at;
    let asked = snapshot.in_force.swapping.asked;
    let calm = now.saturating_sub(snapshot.shortage.since()) >= CALM;
    // Levels flap while a shortage lasts: one notice in a while says as much as twenty.
    let told = match asked {
        Some((_, at)) if level > Level::Plenty => now.saturating_sub(at) < ASK_AGAIN,
        Some((before, _)) => before == Level::Plenty || !calm,
        None => level == Level::Plenty,
    };
    if told || !snapshot.settings.swap.ask {
        return None;
    }
    let next = match level >= Level::Crowded && snapshot.settings.swap.kill {
        true => order::candidates(snapshot).first().map(|next| next.app),
        false => None,
    };
    Some(Step::Ask { level, next })
}

fn warn(snapshot: &Snapshot) -> Option<Step> {
    let known = snapshot.known_topmost()?;
    let shortage = &snapshot.shortage;
    let short = shortage.level() >= Level::Swap;
    if !short || !known.leaks(shortage.thresholds().total) {
        return None;
    }
    let app = known.key();
    let now = snapshot.shortage.gauge().at;
    let warned = snapshot.in_force.swapping.warned;
    let lately = |(who, at): (AppKey, Duration)| who == app && now.saturating_sub(at) < WARN_AGAIN;
    (!warned.is_some_and(lately)).then_some(Step::Warn {
        app,
        grown: known.grown(),
    })
}

/// Whether an app's memory may be pushed into swap now.
fn is_squeezable(known: &Known, snapshot: &Snapshot) -> bool {
    account::unsqueezed(known, snapshot).is_none() && !refused_lately(snapshot, known.key())
}

/// Whether the gate refused an action on this app a moment ago: another target comes first.
fn refused_lately(snapshot: &Snapshot, app: AppKey) -> bool {
    let now = snapshot.shortage.gauge().at;
    let mut refused = snapshot.in_force.swapping.refused.iter();
    refused.any(|(key, at)| *key == app && now.saturating_sub(*at) < REFUSED_FOR)
}

/// Bytes that are missing, and what for. While nobody waits as much should be available as the
/// largest app has, since it may be launched next; where memory goes to and fro as much should be
/// free as the one that has most to read back needs, or the launch pushes others' pages out one by
/// one, and they come back one by one. While somebody waits the disk is theirs, unless apps would
/// have to be killed.
fn missing(snapshot: &Snapshot) -> Option<(u64, &'static str)> {
    let shortage = &snapshot.shortage;
    let thresholds = shortage.thresholds();
    let least = thresholds.swap / 4 * 5;
    // The gauge may be a second old while there is plenty.
    let memory = &snapshot.memory;
    let available = memory.available.saturating_sub(snapshot.kept_cache);
    if !snapshot.settled {
        let missing = least.saturating_sub(available);
        let urgent = shortage.level() >= Level::Kill && missing > 0;
        return urgent.then_some((missing, "memory is short"));
    }
    let most = (thresholds.total / LAUNCH_PART).min(LAUNCH_MOST);
    let largest = |of: fn(&Known, &Snapshot) -> u64| {
        let sizes = snapshot.apps.iter().map(|known| of(known, snapshot));
        sizes.max().unwrap_or(0).min(most).max(least)
    };
    let launch = largest(|known, _| {
        let memory = known.found.memory;
        memory.resident.max(memory.allocated())
    });
    let mut missing = launch.saturating_sub(available);
    if shortage.is_crowded() {
        let back = largest(to_read_back);
        missing = missing.max(back.saturating_sub(memory.free.min(available)));
    }
    (missing > 0).then_some((missing, "the next launch needs room"))
}

/// What an app reads back from swap when it comes to the front, in bytes: its working set, where
/// that is known.
fn to_read_back(known: &Known, snapshot: &Snapshot) -> u64 {
    let sets = &snapshot.in_force.swapping.working_sets;
    let set = sets.iter().find(|(app, _)| *app == known.key());
    let swapped = known.found.memory.swapped;
    set.map_or(swapped, |(_, set)| swapped.min(*set))
}

fn squeeze(snapshot: &Snapshot) -> Option<Step> {
    let in_force = &snapshot.in_force.swapping;
    let shortage = &snapshot.shortage;
    let now = shortage.gauge().at;
    let (missing, purpose) = missing(snapshot)?;
    if in_force.squeezing.is_some() {
        return None;
    }
    if let Some(step) = services::squeeze(snapshot, missing) {
        return Some(step);
    }
    let settings = &snapshot.settings.swap;
    let room = snapshot
        .storage
        .room(shortage.thresholds().total, settings.write_budget);
    let lately = |key: AppKey| {
        let mut all = in_force.squeezed.iter();
        all.any(|(app, at)| *app == key && now.saturating_sub(*at) < SQUEEZE_AGAIN)
    };
    // What nobody needs at once goes first, whoever has it; then all of whoever was used longest ago.
    let worth =
        |known: &&Known| !lately(known.key()) && known.found.memory.anonymous >= SQUEEZE_LEAST;
    let first = |dry: bool| {
        let mut apps = snapshot.apps.iter().filter(worth);
        apps.find_map(|known| {
            let may = dry || !in_force.lean.contains(&known.key());
            (may && is_squeezable(known, snapshot)).then_some((known, dry))
        })
    };
    let (known, dry) = first(false).or_else(|| first(true))?;
    let bytes = missing
        .max(shortage.thresholds().total / SQUEEZE_PART)
        .min(known.found.memory.anonymous)
        .min(room)
        .min(SQUEEZE_MOST);
    (bytes >= SQUEEZE_LEAST).then(|| Step::Squeeze {
        app: known.key(),
        home: known.found.app.own_home().cloned(),
        members: known.found.members.clone(),
        bytes,
        rule: format!(
            "{purpose}: {} MiB available, {} MiB free, {} MiB missing; it was used longest ago",
            snapshot.memory.available >> 20,
            snapshot.memory.free >> 20,
            missing >> 20
        ),
        dry,
    })
}

/// Stops the app used longest ago and squeezes it dry, when nobody is left who may be killed for
/// less.
fn freeze(snapshot: &Snapshot) -> Option<Vec<Step>> {
    let in_force = &snapshot.in_force.swapping;
    let shortage = &snapshot.shortage;
    let now = shortage.gauge().at;
    // Without swap, stopping an app frees nothing.
    let squeezes = snapshot.storage.is_there();
    if shortage.level() < Level::Kill || !snapshot.settings.swap.freeze || !squeezes {
        return None;
    }
    let cheap = order::candidates(snapshot);
    let cheap = cheap
        .iter()
        .any(|one| one.leaks || (one.class == Class::Disposable && !one.in_use));
    let last = in_force.frozen.iter().map(|(_, at)| *at).max();
    let lately = last.is_some_and(|at| now.saturating_sub(at) < FREEZE_AGAIN);
    if cheap || lately || services::pending(snapshot).is_some() {
        return None;
    }
    let recent = |at: Duration| now.saturating_sub(at) < FROZEN_AGAIN;
    let frozen = |key: AppKey| {
        let mut thawed = in_force.thawed.iter();
        in_force.frozen.iter().any(|(app, _)| *app == key)
            || thawed.any(|(app, at)| *app == key && recent(*at))
    };
    let (known, home) = snapshot.apps.iter().find_map(|known| {
        let previous = matches!(
            order::spared(known, snapshot),
            Some(order::Spared::Previous)
        );
        let guarded = snapshot.protected.within(known, Harm::Freeze).is_some();
        let may = !previous && !guarded && !frozen(known.key());
        let home = known.found.app.own_home()?;
        (may && is_squeezable(known, snapshot)).then_some((known, home))
    })?;
    let rule = format!(
        "{} MiB available, and nothing disposable is left; it was used longest ago",
        shortage.gauge().available >> 20
    );
    let mut steps = vec![Step::Freeze {
        app: known.key(),
        home: home.clone(),
        rule: rule.clone(),
    }];
    let settings = &snapshot.settings.swap;
    let room = snapshot
        .storage
        .room(snapshot.shortage.thresholds().total, settings.write_budget);
    let bytes = known.found.memory.anonymous.min(room);
    if bytes >= SQUEEZE_LEAST && in_force.squeezing.is_none() {
        steps.push(Step::Squeeze {
            app: known.key(),
            home: Some(home.clone()),
            members: known.found.members.clone(),
            bytes,
            dry: true,
            rule,
        });
    }
    Some(steps)
}

/// Bytes that reclaim may move to swap: of apps that are neither in front nor kept out of it.
pub fn swappable(snapshot: &Snapshot) -> u64 {
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let exempt = &snapshot.in_force.swapping.exempt;
    let may = |known: &&Known| Some(known.key()) != front && !exempt.contains(&known.key());
    let apps = snapshot.apps.iter().filter(may);
    match snapshot.storage.is_there() {
        true => apps.map(|known| known.found.memory.anonymous).sum(),
        false => 0,
    }
}

/// What a person should know, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let settings = &snapshot.settings.swap;
    if !settings.enabled {
        return vec!["swap is switched off by the configuration ([swap] enabled)".to_owned()];
    }
    let mut notes = Vec::new();
    if !snapshot.storage.is_there() {
        notes.push("there is no swap: apps can only be killed".to_owned());
    }
    if !settings.kill {
        notes.push(
            "apps are not killed ([swap] kill): the kernel's OOM killer will choose".to_owned(),
        );
    }
    let without = snapshot
        .apps
        .iter()
        .filter(|known| known.found.app.own_home().is_none())
        .count();
    if without > 0 {
        notes.push(format!(
            "{without} apps have no cgroup of their own: they can be squeezed and closed process by process, but not kept out of swap or stopped"
        ));
    }
    notes
}

#[cfg(test)]
mod innocent_tests;
#[cfg(test)]
mod protected_tests;
#[cfg(test)]
mod tests;
