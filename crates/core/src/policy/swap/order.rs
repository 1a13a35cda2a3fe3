// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may be killed, in which order, and who may not and why.

use std::fmt;
use std::time::Duration;

use crate::model::app::AppKey;
use crate::model::apps::{leak, Known};
use crate::model::class::Class;
use crate::model::protected::{Harm, PREVIOUS_FOR};
use crate::model::shortage::Level;
use crate::model::snapshot::Snapshot;

use super::services;

/// An app starts for so long: it grows then, and whoever launched it waits for it.
const STARTS: Duration = Duration::from_secs(10);

/// Of the growth that is a leak this part has to be newer than the order: whoever has stopped takes
/// nothing from anybody.
const FRESH_PART: u64 = 8;

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
    /// Until when it starts, since boot.
    pub starts_until: Duration,
    /// What it had allocated when the order was made, in bytes: files that it reads are no leak.
    pub held: u64,
    /// The least that it had allocated lately, in bytes: at most `held`.
    pub least: u64,
}

impl Candidate {
    /// Bytes by which it has grown lately if that is a leak and goes on, given what it has allocated now
    /// (`held_now`, in bytes), on a machine with `total` bytes: as a look now would have it.
    pub fn burst(&self, held_now: u64, total: u64) -> Option<u64> {
        let fresh = held_now.saturating_sub(self.held);
        let grown = held_now.saturating_sub(self.least);
        (fresh > leak(total) / FRESH_PART && grown > leak(total)).then_some(grown)
    }
}

/// Whether this app may be killed at all.
pub fn spared(known: &Known, snapshot: &Snapshot) -> Option<Spared> {
    let key = known.key();
    let now = snapshot.shortage.gauge().at;
    if snapshot
        .topmost
        .as_ref()
        .is_some_and(|top| top.app.key == key)
    {
        return Some(Spared::Topmost);
    }
    if let Some(why) = &known.found.untouchable {
        return Some(Spared::Untouchable(why.clone()));
    }
    if let Some(guarded) = snapshot.protected.within(known, Harm::Kill) {
        return Some(Spared::Protected(guarded.to_string()));
    }
    let was =
        |(app, left): (AppKey, Duration)| app == key && now.saturating_sub(left) < PREVIOUS_FOR;
    if snapshot.previous.is_some_and(was) {
        return Some(Spared::Previous);
    }
    (known.found.class.class == Class::Keep).then_some(Spared::Keep)
}

/// Who may be killed, in which order.
pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let total = snapshot.shortage.thresholds().total;
    let waits = services::pending(snapshot).is_some();
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
                starts_until: known.found.started.saturating_add(STARTS),
                held: known.found.memory.allocated(),
                least: known.least(),
            };
            (rank, candidate)
        })
        .collect();
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Which of `candidates` is killed now, given what each has allocated now (`held_now`, in bytes, by place)
/// on a machine with `total` bytes, `at` that time since boot. While reclaim keeps up, whoever starts may grow.
/// Allocates nothing.
pub fn pick(
    candidates: &[Candidate],
    held_now: &[u64],
    level: Level,
    total: u64,
    at: Duration,
) -> Option<usize> {
    if level < Level::Low {
        return None;
    }
    let starts = |candidate: &Candidate| level == Level::Low && at < candidate.starts_until;
    let bursts = candidates.iter().zip(held_now).enumerate();
    let burst = bursts
        .filter(|(_, (candidate, _))| !starts(candidate))
        .filter_map(|(place, (candidate, now))| Some((place, candidate.burst(*now, total)?)))
        .max_by_key(|(place, grown)| (*grown, usize::MAX - place));
    if let Some((place, _)) = burst {
        return Some(place);
    }
    let may = |candidate: &Candidate| match level {
        Level::Exhausted => true,
        Level::Low => candidate.leaks && !starts(candidate),
        _ => {
            let cheap = candidate.class == Class::Disposable && !candidate.in_use;
            candidate.leaks || (cheap && !candidate.waits)
        }
    };
    candidates.iter().position(may)
}
