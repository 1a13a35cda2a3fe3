// SPDX-License-Identifier: GPL-2.0-or-later
//! `swap`: manages background apps when memory is short (SWAP).
//!
//! Seven kinds of steps; each kind is easier to undo than the next:
//!
//! 1. *Exempt*: disposable apps are not swapped, because they restore themselves from little data,
//!    so swapping them out would cost the storage more than a new start. One whose start is known to
//!    cost much more ([`cost`]) is swapped like the other apps, unless `[swap] by_cost` is off. Of
//!    all apps that may be swapped, only as many are swapped as the storage can hold, least recently
//!    used first. An app with only its working set in memory keeps the working set, as far as there
//!    is room.
//! 2. *Ask*: listening apps are asked to free memory.
//! 3. *Throttle*: an app that leaks in the background may grow only slowly.
//! 4. *Squeeze*: pages of the least recently used app are reclaimed, before reclaim takes pages
//!    from all apps. While the user is not waiting, this is done in advance, so that the next
//!    launch finds free memory and no writes on the disk.
//! 5. *Write back*: pages of the least recently used app in zram go to zram's backing device.
//! 6. *Freeze*: when nothing disposable is left or no app may be killed, the least recently used
//!    app is frozen and squeezed dry, that is, including its working set. It thaws after at most
//!    2 s, or earlier when it comes to the foreground.
//! 7. *Kill*: `Shortage` and [`order`] decide, and the thread that reads the gauge carries the kill
//!    out without delay. The policy plans only which apps may be killed.
//!
//! An app that comes to the foreground again is *returned*: it is thawed, and its memory is read
//! back ahead of its faults.

pub mod account;
mod cost;
pub mod culprit;
mod eligible;
pub mod order;
mod services;
mod throttle;
mod write_back;

pub use eligible::DISPOSABLE;

use std::time::Duration;

use super::plan::Event;
use crate::model::app::{AppKey, Home, ProcessId};
use crate::model::apps::Known;
use crate::model::protected::Harm;
use crate::model::shortage::Level;
use crate::model::snapshot::{Exempted, Snapshot};

/// Minimum time between two squeezes of one app.
const SQUEEZE_AGAIN: Duration = Duration::from_secs(5);
/// Minimum time between two freezes of any apps.
const FREEZE_AGAIN: Duration = Duration::from_millis(500);
/// Longest time that an app stays frozen. It is short, because another process may be waiting for
/// the app, but suffices to squeeze the app dry.
pub const FREEZE_MOST: Duration = Duration::from_secs(2);
/// Minimum time from the thaw of an app to its next freeze.
const FROZEN_AGAIN: Duration = Duration::from_secs(60);
/// After an action on an app was refused, no further action on that app is planned for this time.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Minimum time between two notices to listeners, even if the level changes.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Minimum time between two warnings about the same app.
const WARN_AGAIN: Duration = Duration::from_secs(30);
/// Time with plenty of memory after which frozen apps are thawed and listeners are told that the
/// shortage is over.
pub const CALM: Duration = Duration::from_secs(10);
/// Reciprocal of the smallest share of memory that one squeeze reclaims, if the app has that much.
/// Each squeeze costs a scan.
const SQUEEZE_PART: u64 = 32;
/// Smallest squeeze in bytes.
const SQUEEZE_LEAST: u64 = 1 << 20;
/// Largest squeeze in bytes: more at once would delay the next app.
const SQUEEZE_MOST: u64 = 64 << 20;

/// Upper bounds of the memory that is kept available for the next launch: the reciprocal of a share
/// of memory, and a number of bytes.
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
        /// The reason, for display.
        rule: String,
    },
    /// Undo [`Step::Exempt`].
    Admit {
        /// The app.
        app: AppKey,
    },
    /// Notify listeners of the level of shortage.
    Ask {
        /// The level.
        level: Level,
        /// The app that would be killed next; `None` below [`Level::Crowded`], or if no app may be
        /// killed.
        next: Option<AppKey>,
    },
    /// Warn the user that the foreground app takes the memory.
    Warn {
        /// The foreground app.
        app: AppKey,
        /// Bytes by which the app grew within the last minute.
        grown: u64,
    },
    /// Limit the app's memory (`memory.high`), or raise its limit.
    Throttle {
        /// The app.
        app: AppKey,
        /// Its cgroup.
        home: Home,
        /// The limit in bytes.
        limit: u64,
        /// The reason, for display.
        rule: String,
    },
    /// Undo [`Step::Throttle`].
    Unthrottle {
        /// The app.
        app: AppKey,
    },
    /// Reclaim memory of the app.
    Squeeze {
        /// The app, or the cgroup of a [service](crate::model::apps::Service).
        app: AppKey,
        /// Its own cgroup; `None`: it has none, and its processes are squeezed one by one.
        home: Option<Home>,
        /// Its processes, ascending.
        members: Vec<ProcessId>,
        /// Number of bytes to reclaim.
        bytes: u64,
        /// Whether to reclaim the working set too, which the app will need when it returns.
        dry: bool,
        /// The reason, for display.
        rule: String,
    },
    /// Write the app's pages in zram to zram's backing device.
    WriteBack {
        /// The app.
        app: AppKey,
        /// Its processes, ascending.
        members: Vec<ProcessId>,
        /// Number of bytes to write.
        bytes: u64,
        /// The reason, for display.
        rule: String,
    },
    /// Freeze the app's processes.
    Freeze {
        /// The app.
        app: AppKey,
        /// Its cgroup.
        home: Home,
        /// The reason, for display.
        rule: String,
    },
    /// Let the app's processes run again.
    Thaw {
        /// The app.
        app: AppKey,
        /// The reason, for display.
        rule: String,
    },
    /// Read the app's memory back.
    Return {
        /// The app.
        app: AppKey,
        /// Its processes, ascending.
        members: Vec<ProcessId>,
        /// Maximum number of bytes to read.
        most: u64,
    },
    /// Set the apps that may be killed.
    Arm {
        /// The candidates, first victim first.
        order: Vec<order::Candidate>,
    },
}

fn off(event: &Event, snapshot: &Snapshot) -> bool {
    *event == Event::Stop || !snapshot.settings.swap.enabled
}

/// Steps that undo what no longer applies; they run before the steps of [`receive`] and [`grant`].
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
    // An exempt unit that no process has entered yet is not a known app. It stays exempt, unless a
    // protected process of another app has entered the cgroup.
    let known = |app: AppKey| snapshot.apps.iter().any(|known| known.key() == app);
    let shared = |one: &Exempted| {
        let protected = &snapshot.protected;
        protected
            .in_group(&one.path, Harm::Limit, one.app)
            .is_some()
    };
    let ends = off(event, snapshot);
    let admitted = in_force.exempt.iter().filter(|one| {
        let may = !exempt.contains(&one.app) && (ends || known(one.app));
        may || shared(one)
    });
    steps.extend(admitted.map(|one| Step::Admit { app: one.app }));
    let lifted: Vec<AppKey> = match off(event, snapshot) {
        true => in_force.throttled.iter().map(|one| one.app).collect(),
        false => throttle::lifted(snapshot).collect(),
    };
    steps.extend(lifted.into_iter().map(|app| Step::Unthrottle { app }));
    steps
}

/// Why a frozen app is thawed now; `None`: it stays frozen.
fn thaws(event: &Event, snapshot: &Snapshot, app: AppKey, since: Duration) -> Option<String> {
    if off(event, snapshot) || !snapshot.settings.swap.freeze {
        return Some("limelightd stops or is paused, or freezing was switched off".to_owned());
    }
    if snapshot
        .topmost
        .as_ref()
        .is_some_and(|top| top.app.key == app)
    {
        return Some("it is in the foreground".to_owned());
    }
    let known = snapshot.apps.iter().find(|known| known.key() == app);
    let home = known.and_then(|known| known.found.app.home.as_ref());
    let guarded = home.and_then(|home| snapshot.protected.in_group(&home.path, Harm::Freeze, app));
    if let Some(guarded) = guarded {
        return Some(guarded.to_string());
    }
    if home.is_some_and(|home| !home.own) {
        return Some("its cgroup also contains another app".to_owned());
    }
    if let Some(used) = known.and_then(|known| known.found.uses.first()) {
        return Some(format!("it {}", used.clause()));
    }
    let shortage = &snapshot.shortage;
    let now = snapshot.now();
    if now.saturating_sub(since) >= FREEZE_MOST {
        return Some("it has been frozen for the longest time allowed".to_owned());
    }
    let calm = now.saturating_sub(shortage.since());
    let plenty = shortage.level() == Level::Plenty && calm >= CALM;
    plenty.then(|| format!("there has been plenty of memory for {} s", calm.as_secs()))
}

/// Steps that put actions in force; they run after the steps of [`withdraw`].
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
    steps.extend(throttle::limits(snapshot));
    steps.extend(match write_back::step(snapshot) {
        Some(step) => vec![step],
        None => freeze(snapshot).unwrap_or_else(|| squeeze(snapshot).into_iter().collect()),
    });
    steps
}

/// Steps for the new foreground app. They run before the steps of all other mechanisms: the disk
/// then reads the app's memory in the meantime, and an app that must not be swapped is exempt from
/// its first page on.
pub fn receive(event: &Event, snapshot: &Snapshot) -> Vec<Step> {
    if off(event, snapshot) {
        return Vec::new();
    }
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let own = |(app, step)| (Some(app) == front).then_some(step);
    let keep = exemptions(snapshot).filter_map(own);
    keep.chain(bring_back(snapshot)).collect()
}

/// Steps that make further apps exempt from swap, each with its app.
fn exemptions(snapshot: &Snapshot) -> impl Iterator<Item = (AppKey, Step)> + '_ {
    eligible::exempt(snapshot).filter_map(|(known, rule)| {
        let app = known.key();
        let done = snapshot.in_force.swapping.is_exempt(app);
        let home = known.found.app.own_home().filter(|_| !done)?.clone();
        let refused = refused_lately(snapshot, app);
        let guarded = snapshot.protected.in_group(&home.path, Harm::Limit, app);
        if refused || guarded.is_some() {
            return None;
        }
        Some((app, Step::Exempt { app, home, rule }))
    })
}

/// Reads the new foreground app's memory back, once.
fn bring_back(snapshot: &Snapshot) -> Option<Step> {
    let known = snapshot.known_topmost()?;
    let app = known.key();
    let most = snapshot.settings.swap.prefault;
    // Reading back must not evict other memory that the app needs.
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
    // While memory is short, each scan updates the sizes with which the guard detects a burst of
    // growth.
    let fresh = snapshot.shortage.level() == Level::Plenty;
    (!same || !fresh).then_some(Step::Arm { order })
}

fn ask(snapshot: &Snapshot) -> Option<Step> {
    let level = snapshot.shortage.level();
    let now = snapshot.now();
    let asked = snapshot.in_force.swapping.asked;
    let calm = now.saturating_sub(snapshot.shortage.since()) >= CALM;
    // The level changes often while a shortage lasts, so the notices are rate-limited.
    let done = match asked {
        Some((_, at)) if level > Level::Plenty => now.saturating_sub(at) < ASK_AGAIN,
        Some((before, _)) => before == Level::Plenty || !calm,
        None => level == Level::Plenty,
    };
    if done || !snapshot.settings.swap.ask {
        return None;
    }
    let next = match level >= Level::Crowded && snapshot.settings.swap.kill {
        true => order::candidates(snapshot).first().map(|next| next.app),
        false => None,
    };
    Some(Step::Ask { level, next })
}

/// Warns while memory is short because the foreground app grows. Once that app has started, healthy
/// apps are spared ([`culprit::find`]), and only the user can free memory.
fn warn(snapshot: &Snapshot) -> Option<Step> {
    let known = snapshot.known_topmost()?;
    if !culprit::is_foreground(snapshot) {
        return None;
    }
    let app = known.key();
    let now = snapshot.now();
    let warned = snapshot.in_force.swapping.warned;
    let lately = |(of, at): (AppKey, Duration)| of == app && now.saturating_sub(at) < WARN_AGAIN;
    (!warned.is_some_and(lately)).then_some(Step::Warn {
        app,
        grown: known.grown_until_stalled(now),
    })
}

/// Whether an app's memory may be pushed into swap now.
fn is_squeezable(known: &Known, snapshot: &Snapshot) -> bool {
    account::unsqueezed(known, snapshot).is_none() && !refused_lately(snapshot, known.key())
}

/// Whether an action on this app was refused recently, so that other targets come first.
fn refused_lately(snapshot: &Snapshot, app: AppKey) -> bool {
    let now = snapshot.now();
    let mut refused = snapshot.in_force.swapping.refused.iter();
    refused.any(|one| one.app == app && now.saturating_sub(one.at) < REFUSED_FOR)
}

/// Bytes that should be freed.
struct Missing {
    bytes: u64,
    /// What they are needed for.
    purpose: Purpose,
}

/// What freed memory is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Apps would have to be killed soon.
    Shortage,
    /// An app grows in the background.
    Growth,
    /// The foreground app grows.
    Foreground,
    /// An app may be launched next.
    Launch,
}

impl Purpose {
    fn clause(self) -> &'static str {
        match self {
            Purpose::Shortage => "memory is short",
            Purpose::Growth => "an app in the background takes memory",
            Purpose::Foreground => "the foreground app takes memory",
            Purpose::Launch => "the next launch needs room",
        }
    }
}

/// Bytes that should be freed; `None`: none.
///
/// While the user is not waiting, the available memory should suffice for the app that has the most
/// to read back, because it may be launched next. On a crowded machine, the free memory should
/// suffice for it, too. Otherwise its launch would evict other apps' pages one by one, and these
/// would later be read back one by one. More room than that costs more than it gives: each page
/// that is squeezed out for it is read back by the app that it belongs to.
///
/// An app that grows in the background would take such room before the launch, so only the least
/// room is kept meanwhile; while the foreground app takes the memory, the threshold `swap` is. While
/// the user waits, the disk is left to the foreground app, unless apps would have to be killed.
fn missing(snapshot: &Snapshot) -> Option<Missing> {
    let shortage = &snapshot.shortage;
    let thresholds = shortage.thresholds();
    let threshold = thresholds.swap / 4 * 5;
    // Uses the snapshot's reading: the gauge may be a minute old while there is plenty of memory.
    let memory = &snapshot.memory;
    // Squeezed pages stay in the swap cache until memory is needed. If they did not count, each
    // squeeze would be followed by another one. Where working sets do not fit, that is wanted: the
    // next launch takes all that there is.
    let dropped = match shortage.fits() {
        true => snapshot.unmapped_swap_cache,
        false => 0,
    };
    let available = memory.available.saturating_add(dropped);
    let available = available.saturating_sub(snapshot.kept_cache);
    let below = |goal: u64| goal.saturating_sub(available);
    if !snapshot.settled {
        let bytes = below(threshold);
        let urgent = shortage.level() >= Level::Kill && bytes > 0;
        return urgent.then_some(Missing {
            bytes,
            purpose: Purpose::Shortage,
        });
    }
    // A threshold that the owner has set is kept available in any case.
    let least = match snapshot.settings.swap.swap_percent {
        0 => thresholds.kill * 2,
        _ => threshold,
    };
    let (bytes, purpose) = if culprit::is_foreground(snapshot) {
        (below(threshold), Purpose::Foreground)
    } else if eligible::growth_behind(snapshot) > 0 {
        (below(least), Purpose::Growth)
    } else {
        let most = (thresholds.total / LAUNCH_PART).min(LAUNCH_MOST);
        let apps = snapshot.apps.iter();
        let back = apps.map(|known| to_read_back(known, snapshot)).max();
        let launch = back.unwrap_or(0).min(most);
        let free = match shortage.is_crowded() {
            true => memory.free.min(available),
            false => available,
        };
        let bytes = launch.saturating_sub(free);
        (bytes.max(below(least)), Purpose::Launch)
    };
    (bytes > 0).then_some(Missing { bytes, purpose })
}

/// Bytes that an app will read back from swap when it comes to the foreground: its swapped memory,
/// or the part of its working set that is not in memory, if the working set is known. The memory
/// that it still has is counted as part of the working set, because other pages are evicted first.
fn to_read_back(known: &Known, snapshot: &Snapshot) -> u64 {
    let memory = &known.found.memory;
    match snapshot.in_force.swapping.working_set(known.key()) {
        Some(set) => set.saturating_sub(memory.anonymous).min(memory.swapped),
        None => memory.swapped,
    }
}

fn squeeze(snapshot: &Snapshot) -> Option<Step> {
    let in_force = &snapshot.in_force.swapping;
    let shortage = &snapshot.shortage;
    let now = snapshot.now();
    let Missing {
        bytes: missing,
        purpose,
    } = missing(snapshot)?;
    if in_force.squeezing.is_some() || in_force.writing_back.is_some() {
        return None;
    }
    if let Some(step) = services::squeeze(snapshot, missing) {
        return Some(step);
    }
    let settings = &snapshot.settings.swap;
    let room = snapshot
        .storage
        .room(shortage.thresholds().total, settings.write_budget);
    let room = match purpose {
        // Swap keeps room for a shortage.
        Purpose::Growth | Purpose::Foreground | Purpose::Launch => {
            let free = snapshot.storage.spare(0);
            room.min(free.saturating_sub(shortage.needed_room()))
        }
        Purpose::Shortage => room,
    };
    let lately = |key: AppKey| {
        let mut all = in_force.squeezed.iter();
        all.any(|(app, at)| *app == key && now.saturating_sub(*at) < SQUEEZE_AGAIN)
    };
    // First pass: pages outside the working sets of all apps. Second pass: all pages. Each pass
    // starts with the least recently used app.
    let worth =
        |known: &&Known| !lately(known.key()) && known.found.memory.anonymous >= SQUEEZE_LEAST;
    // As long as the working sets fit in memory, any page of them that is squeezed out must be read
    // back. So apps whose working sets are unknown are left to the kernel's reclaim.
    let tight =
        !shortage.fits() || shortage.level() >= Level::Low || purpose == Purpose::Foreground;
    let outside = |known: &Known| {
        let known_set = in_force.working_set(known.key()).is_some();
        (tight || known_set) && !in_force.lean.contains(&known.key())
    };
    let taker = culprit::taker(snapshot);
    let first = |own: bool, dry: bool| {
        let owned = |known: &&Known| !own || Some(culprit::charged_user(known)) == taker;
        let mut apps = snapshot.apps.iter().filter(worth).filter(owned);
        apps.find_map(|known| {
            let may = if dry { tight } else { outside(known) };
            (may && is_squeezable(known, snapshot)).then_some((known, dry))
        })
    };
    // Both passes run first for the apps of the user who accounts for most of the growth.
    let turns = [(true, false), (true, true), (false, false), (false, true)];
    let mut turns = turns.into_iter();
    let (known, dry) = turns.find_map(|(own, dry)| first(own, dry))?;
    let why = match Some(culprit::charged_user(known)) == taker {
        true => "its user's apps took the most memory recently",
        false => "it was used longest ago",
    };
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
            "{}: {} MiB available, {} MiB free, {} MiB missing; {why}",
            purpose.clause(),
            snapshot.memory.available >> 20,
            snapshot.memory.free >> 20,
            missing >> 20
        ),
        dry,
    })
}

/// Freezes the least recently used app and squeezes it dry, unless a leaking or cheap app may be
/// killed instead.
fn freeze(snapshot: &Snapshot) -> Option<Vec<Step>> {
    let in_force = &snapshot.in_force.swapping;
    let shortage = &snapshot.shortage;
    let now = snapshot.now();
    // Without swap, freezing an app frees nothing.
    let squeezes = snapshot.storage.is_there();
    if shortage.level() < Level::Kill || !snapshot.settings.swap.freeze || !squeezes {
        return None;
    }
    // An app that may not be killed frees nothing, however cheap it is.
    let kills = snapshot.settings.swap.kill;
    let is_cheap = |one: &order::Candidate| one.leaks || one.is_cheap();
    let cheap = kills && order::candidates(snapshot).iter().any(is_cheap);
    let last = in_force.frozen.iter().map(|(_, at)| *at).max();
    let lately = last.is_some_and(|at| now.saturating_sub(at) < FREEZE_AGAIN);
    let waits = services::pending(snapshot).is_some() || write_back::is_pending(snapshot);
    // A frozen app frees nothing until it is squeezed, and apps are squeezed one at a time.
    if cheap || lately || waits || in_force.squeezing.is_some() {
        return None;
    }
    let settings = &snapshot.settings.swap;
    let total = shortage.thresholds().total;
    let room = snapshot.storage.room(total, settings.write_budget);
    let bytes = |known: &Known| known.found.memory.anonymous.min(room);
    let recent = |at: Duration| now.saturating_sub(at) < FROZEN_AGAIN;
    let frozen = |key: AppKey| {
        let mut thawed = in_force.thawed.iter();
        in_force.frozen.iter().any(|(app, _)| *app == key)
            || thawed.any(|(app, at)| *app == key && recent(*at))
    };
    // One user's growth does not freeze another user's apps.
    let taker = culprit::user(snapshot);
    let owned = |known: &&Known| taker.is_none_or(|uid| uid == culprit::charged_user(known));
    let owners = order::Owners::of(snapshot);
    let (known, home) = snapshot.apps.iter().filter(owned).find_map(|known| {
        let previous = matches!(
            order::never_killed(known, snapshot, owners),
            Some(order::Spared::Previous)
        );
        let guarded = snapshot.protected.within(known, Harm::Freeze).is_some();
        let may = !previous && !guarded && !frozen(known.key());
        let home = known.found.app.own_home()?;
        let gains = bytes(known) >= SQUEEZE_LEAST;
        (may && gains && is_squeezable(known, snapshot)).then_some((known, home))
    })?;
    let rule = format!(
        "{} MiB available, and {}; it was used longest ago",
        shortage.gauge().available >> 20,
        match kills {
            true => "nothing disposable is left",
            false => "no app may be closed",
        }
    );
    Some(vec![
        Step::Freeze {
            app: known.key(),
            home: home.clone(),
            rule: rule.clone(),
        },
        Step::Squeeze {
            app: known.key(),
            home: Some(home.clone()),
            members: known.found.members.clone(),
            bytes: bytes(known),
            dry: true,
            rule,
        },
    ])
}

/// Bytes that reclaim may swap out when memory is short: the anonymous memory of all apps that are
/// neither in the foreground nor exempt; 0 without swap. Apps that are exempt because of the
/// storage's limit count, because that exemption ends before any app is killed for it.
pub fn swappable(snapshot: &Snapshot) -> u64 {
    let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
    let in_force = &snapshot.in_force.swapping;
    let retained = eligible::retained(snapshot);
    let stays_out = |known: &&Known| {
        in_force.is_exempt(known.key())
            && (eligible::is_disposable(known, snapshot) || retained.contains(&known.key()))
    };
    let may = |known: &&Known| Some(known.key()) != front && !stays_out(known);
    let apps = snapshot.apps.iter().filter(may);
    match snapshot.storage.is_there() {
        true => apps.map(|known| known.found.memory.anonymous).sum(),
        false => 0,
    }
}

/// Notes for the user, one sentence each.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let settings = &snapshot.settings.swap;
    if !settings.enabled {
        return vec!["swap is switched off by the configuration ([swap] enabled)".to_owned()];
    }
    let mut notes = Vec::new();
    if !snapshot.storage.is_there() {
        notes.push("there is no swap, so apps can only be killed".to_owned());
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
            "apps without a cgroup of their own: {without}; they can be squeezed and closed \
             process by process, but not kept out of swap or frozen"
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
