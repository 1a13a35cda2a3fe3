// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may be killed, in which order, and who may not and why.

use std::fmt;
use std::time::Duration;

use crate::model::app::AppKey;
use crate::model::apps::{leak, Known};
use crate::model::class::Class;
use crate::model::protected::{Harm, PREVIOUS_FOR};
use crate::model::shortage::{Level, Situation};
use crate::model::snapshot::Snapshot;

use super::culprit::{self, Culprit};
use super::services;

/// An app starts for so long: it grows then, and whoever launched it waits for it.
pub(super) const STARTS: Duration = Duration::from_secs(10);

/// Of the growth that is a leak this part has to be newer than the order: whoever has stopped takes
/// nothing from anybody.
const FRESH_PART: u64 = 8;

/// A victim has to have this part of what is missing; smaller ones would die for nothing.
const WORTH_PART: u64 = 4;
/// The same where something else takes the memory.
const WORTH_PART_FED: u64 = 2;
/// Where something else takes the memory, kills that did not help end after so many.
const KILLS_FED: u32 = 2;
/// While reclaim keeps up, a leak may go on that leaves swap for so long.
const SWAP_LASTS: Duration = Duration::from_secs(60);

/// Why an app is not killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spared {
    /// It is in front.
    Topmost,
    /// It was in front a moment ago.
    Previous,
    /// Its class.
    Keep,
    /// What it holds.
    Untouchable(String),
    /// A protected process that a kill would reach.
    Protected(String),
    /// What takes the memory instead of this app.
    Fed(Culprit),
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spared::Topmost => f.write_str("it is topmost"),
            Spared::Previous => {
                let seconds = PREVIOUS_FOR.as_secs();
                write!(f, "it was topmost less than {seconds} s ago")
            }
            Spared::Keep => f.write_str("apps of the class keep are never killed"),
            Spared::Untouchable(why) | Spared::Protected(why) => f.write_str(why),
            Spared::Fed(culprit) => culprit.fmt(f),
        }
    }
}

/// What counts when two apps are compared: the smaller is killed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// An app that takes memory without end is killed before any that does not: killing others
    /// would feed it.
    healthy: bool,
    class: Class,
    /// Another user's apps take the memory. Before `in_use`, which any app can claim for itself.
    of_bystander: bool,
    in_use: bool,
    used: Duration,
    key: AppKey,
}

/// An app that may be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub app: AppKey,
    /// Its class.
    pub class: Class,
    /// It takes memory without end.
    pub leaks: bool,
    /// It is in use although it is not in front.
    pub in_use: bool,
    /// What is no app gives memory back before this one is closed.
    pub waits: bool,
    /// Something else takes the memory: it is closed only where that helps.
    pub fed: bool,
    /// Until when it starts, since boot.
    pub starts_until: Duration,
    /// What it had allocated when the order was made, in bytes: files that it reads are no leak.
    pub held: u64,
    /// The least that it had allocated lately, in bytes: at most `held`.
    pub least: u64,
    /// When that was, since boot.
    pub least_at: Duration,
}

impl Candidate {
    /// Bytes by which it has grown lately if that is a leak and goes on, given what it has allocated now
    /// (`held_now`, in bytes), on a machine with `total` bytes: as a look now would have it.
    pub fn burst(&self, held_now: u64, total: u64) -> Option<u64> {
        let fresh = held_now.saturating_sub(self.held);
        let grown = held_now.saturating_sub(self.least);
        (fresh > leak(total) / FRESH_PART && grown > leak(total)).then_some(grown)
    }

    /// Whether its growth threatens more than what is left: free memory and swap. A compiler or a
    /// linker takes a lot for a while, and gives it back.
    fn threatens(&self, held_now: u64, now: &Situation) -> bool {
        if now.level >= Level::Exhausted {
            return true;
        }
        let grown = held_now.saturating_sub(self.least);
        let left = now.available.saturating_add(now.swap_free);
        let within = now
            .at
            .saturating_sub(self.least_at)
            .max(Duration::from_secs(1));
        let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let lasts = u64::try_from(SWAP_LASTS.as_millis()).unwrap_or(u64::MAX);
        let soon = grown / within.max(1) * lasts + grown % within.max(1) * lasts / within.max(1);
        grown >= left && (now.level > Level::Low || soon >= now.swap_free)
    }
}

/// Whether this app may be killed at all.
pub fn spared(known: &Known, snapshot: &Snapshot) -> Option<Spared> {
    let key = known.key();
    let now = snapshot.shortage.gauge().at;
    let part_of = known.found.part_of;
    let front = snapshot.topmost.as_ref().map(|top| top.app.key);
    if front.is_some_and(|front| front == key || Some(front) == part_of) {
        return Some(Spared::Topmost);
    }
    if let Some(why) = &known.found.untouchable {
        return Some(Spared::Untouchable(why.clone()));
    }
    if let Some(guarded) = snapshot.protected.within(known, Harm::Kill) {
        return Some(Spared::Protected(guarded.to_string()));
    }
    let was = |(app, left): (AppKey, Duration)| {
        (app == key || Some(app) == part_of) && now.saturating_sub(left) < PREVIOUS_FOR
    };
    if snapshot.previous.is_some_and(was) {
        return Some(Spared::Previous);
    }
    if known.found.class.class == Class::Keep {
        return Some(Spared::Keep);
    }
    let healthy = !known.leaks(snapshot.shortage.thresholds().total);
    let normal = known.found.class.class > Class::Disposable;
    let culprit = culprit::find(snapshot).filter(|_| healthy && normal);
    culprit.map(Spared::Fed)
}

/// Who may be killed, in which order.
pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let total = snapshot.shortage.thresholds().total;
    let waits = services::pending(snapshot).is_some();
    let fed = culprit::find(snapshot).is_some();
    let taker = culprit::user(snapshot);
    let killable = snapshot
        .apps
        .iter()
        .filter(|known| spared(known, snapshot).is_none());
    let mut ranked: Vec<(Rank, Candidate)> = killable
        .map(|known| {
            let leaks = known.leaks(total);
            let in_use = !known.found.uses.is_empty();
            let class = known.found.class.class;
            let rank = Rank {
                healthy: !leaks,
                class,
                of_bystander: taker.is_some_and(|uid| uid != known.found.uid),
                in_use,
                used: known.used(),
                key: known.key(),
            };
            let candidate = Candidate {
                app: known.key(),
                class,
                leaks,
                in_use,
                waits: waits && !leaks,
                fed: fed && !leaks,
                starts_until: known.found.started.saturating_add(STARTS),
                held: known.found.memory.allocated(),
                least: known.least(),
                least_at: known.least_at().unwrap_or(snapshot.shortage.gauge().at),
            };
            (rank, candidate)
        })
        .collect();
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Which of `candidates` is killed in this situation, given what each has allocated now (`held_now`, in
/// bytes, by place). While reclaim keeps up, an app that starts may grow. Allocates nothing.
pub fn pick(candidates: &[Candidate], held_now: &[u64], now: &Situation) -> Option<usize> {
    if now.level < Level::Low {
        return None;
    }
    let exhausted = now.level >= Level::Exhausted;
    let starts = |one: &Candidate| now.level == Level::Low && now.at < one.starts_until;
    // An app in use is nobody's victim before nothing is left.
    let guilty = |one: &Candidate, held: u64| {
        !starts(one) && (exhausted || !one.in_use) && one.threatens(held, now)
    };
    let bursts = candidates.iter().zip(held_now).enumerate();
    let burst = bursts
        .filter(|(_, (one, held))| guilty(one, **held))
        .filter_map(|(place, (one, held))| Some((place, one.burst(*held, now.total)?)))
        .max_by_key(|(place, grown)| (*grown, usize::MAX - place));
    if let Some((place, _)) = burst {
        return Some(place);
    }
    // While another app grows, closing a healthy one would feed it: swap has room for it yet.
    let mut all = candidates.iter().zip(held_now);
    let grows = all.any(|(one, held)| one.leaks || one.burst(*held, now.total).is_some());
    let may = |one: &Candidate, held: u64| {
        if one.leaks {
            return guilty(one, held);
        }
        let part = if one.fed { WORTH_PART_FED } else { WORTH_PART };
        let helps = held >= now.shortfall / part && !(one.fed && now.kills >= KILLS_FED);
        let cheap = one.class == Class::Disposable && !one.in_use && !one.waits;
        helps && now.level > Level::Low && (exhausted || (cheap && !grows))
    };
    let mut all = candidates.iter().zip(held_now);
    let worth = all.position(|(one, held)| may(one, *held));
    // Where nothing is left, a small victim is better than the kernel's choice.
    let any = |one: &Candidate| exhausted && !one.fed;
    worth.or_else(|| candidates.iter().position(any))
}
