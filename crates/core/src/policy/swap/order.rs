// SPDX-License-Identifier: GPL-2.0-or-later
//! Decides which apps may be killed, in which order, and why the other apps may not.

use std::fmt;
use std::time::Duration;

use crate::model::app::AppKey;
use crate::model::apps::{leak, Known, STARTS};
use crate::model::class::Class;
use crate::model::never::{Exception, Never};
use crate::model::protected::{Harm, PREVIOUS_FOR};
use crate::model::shortage::{Level, Situation};
use crate::model::snapshot::Snapshot;

use super::culprit::{self, Culprit, Culprits};
use super::{cost, services, write_back};

/// Reciprocal of the share of the leak threshold by which an app must have grown since the order
/// was made, to count as leaking. An app that has stopped growing takes no more memory.
const FRESH_PART: u64 = 8;

/// Reciprocal of the smallest share of the missing memory that a victim must have. A smaller app's
/// memory would not help.
const WORTH_PART: u64 = 4;
/// Before memory is exhausted, growth is a threat if it is at least this many times the memory that
/// is left. A linker or a compiler ends before that, a leak does not.
const THREATENS: u64 = 2;
/// Before memory is exhausted, growth is no threat if, at its rate, what is left lasts for longer
/// than this. The time suffices for an app's exit, so closing it earlier would only end work that
/// might have needed no more.
const LASTS: Duration = Duration::from_secs(5);

/// Why an app is not killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spared {
    /// It is the foreground app.
    Topmost,
    /// It left the foreground less than [`PREVIOUS_FOR`] ago.
    Previous,
    /// It has the class `keep`.
    Keep,
    /// A rule says that it is never closed. Contains the rule.
    Never(String),
    /// It contains a process that no action may affect. Contains the reason.
    Untouchable(String),
    /// A kill would affect a protected process. Contains the reason.
    Protected(String),
    /// A culprit that may not be killed takes the memory, so killing this app would only feed the
    /// culprit.
    Fed(Culprit),
}

impl fmt::Display for Spared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spared::Topmost => f.write_str("it is in the foreground"),
            Spared::Previous => {
                let seconds = PREVIOUS_FOR.as_secs();
                write!(f, "it was in the foreground less than {seconds} s ago")
            }
            Spared::Keep => f.write_str("apps of class keep are never killed"),
            Spared::Never(why) => write!(f, "it is never closed: {why}"),
            Spared::Untouchable(why) | Spared::Protected(why) => f.write_str(why),
            Spared::Fed(culprit) => culprit.fmt(f),
        }
    }
}

/// Sort key for victims: the smallest is killed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// `false` for an app that leaks. It is killed before all other apps, because killing another
    /// app would only feed the leak.
    healthy: bool,
    class: Class,
    avoid: bool,
    in_use: bool,
    dear: bool,
    used: Duration,
    key: AppKey,
}

/// An app that may be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The app.
    pub app: AppKey,
    /// The user whose growth its growth counts as ([`culprit::charged_user`]).
    pub owner: u32,
    /// Its class.
    pub class: Class,
    /// Whether it leaks: it grows without bound.
    pub leaks: bool,
    /// Whether a wish that it be closed last of its class is in force.
    pub avoid: bool,
    /// Whether it is in use in the background.
    pub in_use: bool,
    /// Whether swapping it costs the user less than closing it ([`cost::is_dear`]).
    pub dear: bool,
    /// Whether a service must be squeezed, or pages must be written back from zram, before this app
    /// is killed.
    pub waits: bool,
    /// End of its start, since boot.
    pub starts_until: Duration,
    /// Its allocated memory when the order was made, in bytes. Excludes page cache, so that an app
    /// that reads files does not seem to leak.
    pub held: u64,
    /// [`Known::least`] in bytes; at most `held`.
    pub least: u64,
    /// When its allocated memory was `least`, since boot.
    pub least_at: Duration,
}

impl Candidate {
    /// Whether it may be closed before memory is exhausted, because closing it costs little.
    pub fn is_cheap(&self) -> bool {
        self.class == Class::Disposable && !self.avoid && !self.in_use && !self.dear
    }

    /// Bytes by which it has grown since `least_at`, if it leaks and still grows; else `None`.
    /// `held_now`: its allocated memory now, in bytes; `total`: the machine's memory in bytes.
    /// Detects a leak before the next scan does.
    pub fn burst(&self, held_now: u64, total: u64) -> Option<u64> {
        let fresh = held_now.saturating_sub(self.held);
        let grown = held_now.saturating_sub(self.least);
        (fresh > leak(total) / FRESH_PART && grown > leak(total)).then_some(grown)
    }

    /// Whether its growth is a threat: at least [`THREATENS`] times the memory that is left
    /// (available memory and free swap), and fast enough to use that up within [`LASTS`]. A
    /// compiler, a linker or an index also takes much memory, but gives it back. When memory is
    /// exhausted, any growth is a threat.
    fn threatens(&self, held_now: u64, now: &Situation) -> bool {
        if now.level >= Level::Exhausted {
            return true;
        }
        let grown = held_now.saturating_sub(self.least);
        let left = now.available.saturating_add(now.swap_free);
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let within = ms(now.at.saturating_sub(self.least_at)).max(1000);
        let soon = grown.saturating_mul(ms(LASTS)) / within;
        grown >= left.saturating_mul(THREATENS) && soon >= left
    }
}

/// Why this app may not be killed at any level; `None` if it may. `culprits` are those of the
/// snapshot.
pub fn spared(known: &Known, snapshot: &Snapshot, culprits: &Culprits) -> Option<Spared> {
    never_killed(known, snapshot, culprits.owners()).or_else(|| {
        let healthy = !known.leaks(snapshot.shortage.thresholds().total);
        let culprit = culprits.beside(known).filter(|_| healthy);
        culprit.map(Spared::Fed)
    })
}

/// Why this app may not be killed, whatever takes the memory. Never [`Spared::Fed`]. `owners` are
/// those of the snapshot.
pub fn never_killed(known: &Known, snapshot: &Snapshot, owners: Owners) -> Option<Spared> {
    let key = known.key();
    let now = snapshot.now();
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
    let rule = never_closed(known, owners)?;
    Some(Spared::Never(rule.why.clone()))
}

/// The rule in force that spares this app, if any. A rule of the app's owner is in force only while
/// no other user has an app that may ever be closed: one user's wish must not close another user's
/// app, nor leave it to the kernel's OOM killer.
fn never_closed(known: &Known, owners: Owners) -> Option<&Exception> {
    let rule = known.found.exceptions.of(Never::Close);
    rule.filter(|rule| !rule.by_owner || owners.are_only(known.found.uid))
}

/// Whether the wish that this app be closed last of its class is in force. An owner's wish is in
/// force under the same condition as an owner's rule ([`never_closed`]).
fn is_avoided(known: &Known, owners: Owners) -> bool {
    let wish = known.found.avoid.as_ref();
    wish.is_some_and(|wish| !wish.by_owner || owners.are_only(known.found.uid))
}

/// The users who have apps that may ever be closed. Found once for the verdicts on all apps,
/// because finding them takes all apps into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// No user.
    None,
    /// One user, by user id.
    One(u32),
    /// Several users.
    Several,
}

impl Owners {
    /// The users of this snapshot's apps.
    pub fn of(snapshot: &Snapshot) -> Owners {
        let apps = snapshot.apps.iter();
        let mut touchable = apps.filter(|known| known.found.untouchable.is_none());
        let Some(first) = touchable.next() else {
            return Owners::None;
        };
        match touchable.all(|other| other.found.uid == first.found.uid) {
            true => Owners::One(first.found.uid),
            false => Owners::Several,
        }
    }

    /// Whether no other user is among them.
    fn are_only(self, uid: u32) -> bool {
        match self {
            Owners::None => true,
            Owners::One(owner) => owner == uid,
            Owners::Several => false,
        }
    }
}

/// What its exception from being closed means for an app, as a sentence for display; `None`: it has
/// none.
pub fn close_note(known: &Known, snapshot: &Snapshot) -> Option<String> {
    let why = &known.found.exceptions.of(Never::Close)?.why;
    Some(match never_closed(known, Owners::of(snapshot)) {
        Some(_) => format!("swap: this app is never closed by limelightd: {why}"),
        None => format!(
            "swap: its owner's rule that it is never closed is not in force while another user \
             has apps, because these could be closed instead: {why}"
        ),
    })
}

/// What the wish that an app be closed last of its class means, as a sentence for display; `None`:
/// there is no such wish.
pub fn avoid_note(known: &Known, snapshot: &Snapshot) -> Option<String> {
    let why = &known.found.avoid.as_ref()?.why;
    Some(match is_avoided(known, Owners::of(snapshot)) {
        true => format!(
            "swap: limelightd closes this app only when memory is exhausted, after the other apps \
             of its class: {why}"
        ),
        false => format!(
            "swap: its owner's wish that it be closed last of its class is not in force while \
             another user has apps, because these could be closed instead: {why}"
        ),
    })
}

/// The apps that may be killed, first victim first.
pub fn candidates(snapshot: &Snapshot) -> Vec<Candidate> {
    let total = snapshot.shortage.thresholds().total;
    let culprits = Culprits::of(snapshot);
    let waits = services::pending(snapshot).is_some() || write_back::is_pending(snapshot);
    let killable = snapshot
        .apps
        .iter()
        .filter(|known| spared(known, snapshot, &culprits).is_none());
    let mut ranked: Vec<(Rank, Candidate)> = killable
        .map(|known| {
            let leaks = known.leaks(total);
            let avoid = is_avoided(known, culprits.owners());
            let in_use = !known.found.uses.is_empty();
            let class = known.found.class.class;
            let dear = cost::is_dear(known, snapshot);
            let rank = Rank {
                healthy: !leaks,
                class,
                avoid,
                in_use,
                dear,
                used: known.used(),
                key: known.key(),
            };
            let candidate = Candidate {
                app: known.key(),
                owner: culprit::charged_user(known),
                class,
                leaks,
                avoid,
                in_use,
                dear,
                waits: waits && !leaks,
                starts_until: known.found.started.saturating_add(STARTS),
                held: known.found.memory.allocated(),
                least: known.least(),
                least_at: known.least_at().unwrap_or(snapshot.now()),
            };
            (rank, candidate)
        })
        .collect();
    ranked.sort_unstable_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Index of the candidate to kill in this situation, if any. `held_now`: allocated memory of each
/// candidate now, in bytes, in the same order. At [`Level::Low`], where reclaim keeps up, an app is
/// not picked for its growth while it starts. If a user takes the memory, healthy apps of the other
/// users are not picked: their memory would only feed that user's next process. Allocates nothing.
pub fn pick(candidates: &[Candidate], held_now: &[u64], now: &Situation) -> Option<usize> {
    if now.level < Level::Low {
        return None;
    }
    let exhausted = now.level >= Level::Exhausted;
    let starts = |one: &Candidate| now.level == Level::Low && now.at < one.starts_until;
    // Before memory is exhausted, an app in use, or one to be closed last, is not killed for its
    // growth.
    let waits = |one: &Candidate| !exhausted && (one.in_use || one.avoid);
    let guilty =
        |one: &Candidate, held: u64| !starts(one) && !waits(one) && one.threatens(held, now);
    let bursts = candidates.iter().zip(held_now).enumerate();
    let burst = bursts
        .filter(|(_, (one, held))| guilty(one, **held))
        .filter_map(|(place, (one, held))| Some((place, one.burst(*held, now.total)?)))
        .max_by_key(|(place, grown)| (*grown, usize::MAX - place));
    if let Some((place, _)) = burst {
        return Some(place);
    }
    // While an app grows and memory is not exhausted, killing a healthy app would only feed the
    // growing one.
    let mut all = candidates.iter().zip(held_now);
    let grows = all.any(|(one, held)| one.leaks || one.burst(*held, now.total).is_some());
    let fed = |one: &Candidate| !one.leaks && now.taker.is_some_and(|uid| uid != one.owner);
    let may = |one: &Candidate, held: u64| {
        if one.leaks {
            return guilty(one, held);
        }
        if fed(one) {
            return false;
        }
        let helps = held >= now.shortfall / WORTH_PART;
        let cheap = one.is_cheap() && !one.waits;
        helps && now.level > Level::Low && (exhausted || (cheap && !grows))
    };
    let mut all = candidates.iter().zip(held_now);
    let worth = all.position(|(one, held)| may(one, *held));
    // When memory is exhausted, even a small victim is better than the kernel's choice.
    let any = || candidates.iter().position(|one| exhausted && !fed(one));
    worth.or_else(any)
}
