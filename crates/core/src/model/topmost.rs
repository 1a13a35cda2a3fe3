// SPDX-License-Identifier: GPL-2.0-or-later
//! Which app is in front, and who says so.
//!
//! Claims have ranks. An *explicit* claim (`limelight focus PID`) stands until its app ends or an
//! explicit `none` withdraws it. A *session* claim is the running report of a session agent and
//! stands while the agent's connection does; with several agents the latest report counts. An
//! explicit claim outranks the agents of its own user only; root's outranks everything. Between two
//! users the latest claim counts, of whichever kind. What was *inferred* from `oom_score_adj` counts only while there is neither: it is dropped, not kept
//! for later, when it comes in beside a higher claim. So is what was *guessed* from the wake graph, which
//! counts only while nobody says anything at all.
//!
//! Where logind tells which users have an active session, the claims of all others are kept and do
//! not count: whoever switches back to a session finds its app in front.

use std::collections::BTreeSet;
use std::time::Duration;

use super::app::{App, AppKey};

/// Where a claim comes from, in rising rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// Guessed from whom the display server wakes.
    Guessed,
    /// Inferred from `oom_score_adj`.
    Inferred,
    /// A session agent's running report.
    Session,
    /// Somebody said so.
    Explicit,
}

/// Most users with an explicit claim; beyond that the oldest claim goes.
const EXPLICIT_MAX: usize = 16;

/// The connection that holds a session claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(pub u64);

/// Somebody's word on which app is in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The app; `None`: nothing has the focus.
    pub app: Option<App>,
    /// Who says so, for people.
    pub source: String,
    /// User id of the claimer.
    pub uid: u32,
}

/// The app in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The app.
    pub app: App,
    /// Who named it.
    pub source: String,
    /// Rank of that claim.
    pub rank: Rank,
    /// Since when it has been in front.
    pub since: Duration,
    /// When it will be demoted because nothing has had the focus for a while.
    pub leaves_at: Option<Duration>,
}

/// What a claim came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The app in front is the one it was.
    Unchanged,
    /// Another app, or none, is in front now.
    Changed,
}

/// An explicit claim, or the report of a session agent.
#[derive(Debug, Clone)]
struct Held {
    /// The agent's connection; `None` for an explicit claim.
    holder: Option<Holder>,
    claim: Claim,
}

/// All claims in force and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Topmost {
    gap: Duration,
    /// One explicit claim for each user at the most, and the reports; the latest last.
    held: Vec<Held>,
    inferred: Option<Claim>,
    guessed: Option<Claim>,
    front: Option<Front>,
    previous: Option<App>,
    /// Users whose claims count, besides root; `None`: everybody's do.
    active: Option<BTreeSet<u32>>,
}

impl Topmost {
    /// Nothing is topmost; the last app survives `gap` without any focus.
    pub fn new(gap: Duration) -> Topmost {
        Topmost {
            gap,
            ..Topmost::default()
        }
    }

    /// Changes the gap for later claims.
    pub fn set_gap(&mut self, gap: Duration) {
        self.gap = gap;
    }

    /// The app in front.
    pub fn front(&self) -> Option<&Front> {
        self.front.as_ref()
    }

    /// The app that was in front before.
    pub fn previous(&self) -> Option<&App> {
        self.previous.as_ref()
    }

    /// How many session agents report whose word counts.
    pub fn sessions(&self) -> usize {
        let reports = self.held.iter().filter(|held| held.holder.is_some());
        reports.filter(|held| self.counts(&held.claim)).count()
    }

    fn explicit(&self) -> impl DoubleEndedIterator<Item = &Claim> {
        let explicit = self.held.iter().filter(|held| held.holder.is_none());
        explicit.map(|held| &held.claim)
    }

    /// The explicit claim of this user.
    fn explicit_of(&self, uid: u32) -> Option<&Claim> {
        self.explicit().find(|claim| claim.uid == uid)
    }

    /// Whether an explicit claim is in force.
    pub fn is_explicit(&self) -> bool {
        self.explicit().any(|claim| self.counts(claim))
    }

    /// Whether root made an explicit claim, which outranks all others.
    pub fn is_root_explicit(&self) -> bool {
        self.explicit_of(0).is_some()
    }

    /// Whether an inferred claim would count now.
    pub fn hears_inferred(&self) -> bool {
        !self.held.iter().any(|held| self.counts(&held.claim))
    }

    /// Whether a guess would count now: nobody says who is in front, nor that nobody is.
    pub fn hears_guesses(&self) -> bool {
        self.inferred.is_none() && self.hears_inferred()
    }

    /// The app that is guessed to be in front, whether that counts or not.
    pub fn guessed(&self) -> Option<&App> {
        self.guessed.as_ref()?.app.as_ref()
    }

    /// Sets whose session is active; `None`: nobody tells.
    pub fn set_active_users(&mut self, active: Option<BTreeSet<u32>>, now: Duration) -> Shift {
        if active == self.active {
            return Shift::Unchanged;
        }
        self.active = active;
        self.settle(now, self.gap)
    }

    /// Whether logind tells whose session is active.
    pub fn knows_sessions(&self) -> bool {
        self.active.is_some()
    }

    /// Connections and users with a claim in force or in waiting; explicit claims have no connection.
    pub fn claimants(&self) -> Vec<(Option<Holder>, u32)> {
        let held = self.held.iter();
        held.map(|held| (held.holder, held.claim.uid)).collect()
    }

    /// Drops the claims of these.
    pub fn drop_claims(&mut self, of: &[(Option<Holder>, u32)], now: Duration) -> Shift {
        self.held
            .retain(|held| !of.contains(&(held.holder, held.claim.uid)));
        self.settle(now, self.gap)
    }

    /// Whether this user's claims count now.
    pub fn counts_of(&self, uid: u32) -> bool {
        let active = self.active.as_ref();
        uid == 0 || active.is_none_or(|active| active.contains(&uid))
    }

    fn counts(&self, claim: &Claim) -> bool {
        self.counts_of(claim.uid)
    }

    /// An explicit claim, which replaces the user's earlier one; `none` withdraws that one and
    /// everything inferred and guessed, at once. Root's `none` withdraws those of all users.
    pub fn claim_explicit(&mut self, claim: Claim, now: Duration) -> Shift {
        self.inferred = None;
        self.guessed = None;
        let everybody = claim.uid == 0 && claim.app.is_none();
        self.held
            .retain(|held| held.holder.is_some() || (held.claim.uid != claim.uid && !everybody));
        if claim.app.is_some() {
            if self.explicit().count() >= EXPLICIT_MAX {
                let oldest = self.held.iter().position(|held| held.holder.is_none());
                oldest.map(|at| self.held.remove(at));
            }
            self.held.push(Held {
                holder: None,
                claim,
            });
        }
        self.settle(now, Duration::ZERO)
    }

    /// A session agent's report.
    pub fn claim_session(&mut self, holder: Holder, claim: Claim, now: Duration) -> Shift {
        self.inferred = None;
        self.guessed = None;
        let holder = Some(holder);
        self.held.retain(|held| held.holder != holder);
        self.held.push(Held { holder, claim });
        self.settle(now, self.gap)
    }

    /// An inferred claim. Dropped unless [`Topmost::hears_inferred`].
    pub fn claim_inferred(&mut self, claim: Claim, now: Duration) -> Shift {
        if !self.hears_inferred() {
            return Shift::Unchanged;
        }
        self.inferred = Some(claim);
        self.guessed = None;
        self.settle(now, self.gap)
    }

    /// A guess. Dropped unless [`Topmost::hears_guesses`].
    pub fn claim_guessed(&mut self, claim: Claim, now: Duration) -> Shift {
        if !self.hears_guesses() {
            return Shift::Unchanged;
        }
        self.guessed = Some(claim);
        self.settle(now, self.gap)
    }

    /// A connection was closed: its session claim ends. The app stays for the gap, in which a
    /// restarted agent can claim it again.
    pub fn release(&mut self, holder: Holder, now: Duration) -> Shift {
        self.held.retain(|held| held.holder != Some(holder));
        self.settle(now, self.gap)
    }

    /// An app ended: nobody can mean it any more.
    pub fn vanished(&mut self, key: AppKey, now: Duration) -> Shift {
        let meant = |claim: &Claim| claim.app.as_ref().is_some_and(|app| app.key == key);
        self.held
            .retain(|held| held.holder.is_some() || !meant(&held.claim));
        for claim in [&mut self.inferred, &mut self.guessed] {
            if claim.as_ref().is_some_and(meant) {
                *claim = None;
            }
        }
        for held in &mut self.held {
            if meant(&held.claim) {
                held.claim.app = None;
            }
        }
        let was_front = self
            .front
            .as_ref()
            .is_some_and(|front| front.app.key == key);
        let shift = self.settle(now, if was_front { Duration::ZERO } else { self.gap });
        if self.previous.as_ref().is_some_and(|app| app.key == key) {
            self.previous = None;
        }
        shift
    }

    /// An app is another one now (its main process was moved to another cgroup): every claim follows.
    pub fn moved(&mut self, key: AppKey, app: App, now: Duration) -> Shift {
        let held = self.held.iter_mut().map(|held| &mut held.claim);
        let claims = held
            .chain(self.inferred.iter_mut())
            .chain(self.guessed.iter_mut());
        for known in claims.filter_map(|claim| claim.app.as_mut()) {
            if known.key == key {
                known.clone_from(&app);
            }
        }
        match &mut self.previous {
            Some(previous) if previous.key == key => *previous = app,
            _ => {}
        }
        self.settle(now, self.gap)
    }

    /// Time passed.
    pub fn tick(&mut self, now: Duration) -> Shift {
        match self.front.as_ref().and_then(|front| front.leaves_at) {
            Some(leaves_at) if leaves_at <= now => {
                self.demote();
                Shift::Changed
            }
            _ => Shift::Unchanged,
        }
    }

    /// Replaces what is known of an app (its cgroup changed) wherever it is meant.
    pub fn update_app(&mut self, app: &App) {
        let held = self.held.iter_mut().map(|held| &mut held.claim);
        let claims = held
            .chain(self.inferred.iter_mut())
            .chain(self.guessed.iter_mut());
        for known in claims
            .filter_map(|claim| claim.app.as_mut())
            .chain(self.front.iter_mut().map(|front| &mut front.app))
            .chain(self.previous.iter_mut())
        {
            if known.key == app.key {
                known.clone_from(app);
            }
        }
    }

    fn effective(&self) -> Option<(Rank, &Claim)> {
        let root = self.explicit_of(0).map(|claim| (Rank::Explicit, claim));
        let mut held = self.held.iter().rev().map(|held| &held.claim);
        let latest = held.find(|claim| self.counts(claim));
        let held = latest.map(|latest| match self.explicit_of(latest.uid) {
            Some(explicit) => (Rank::Explicit, explicit),
            None => (Rank::Session, latest),
        });
        let inferred = self.inferred.as_ref().map(|claim| (Rank::Inferred, claim));
        let guessed = self.guessed.as_ref().map(|claim| (Rank::Guessed, claim));
        root.or(held).or(inferred).or(guessed)
    }

    /// Brings `front` in line with the claims; when they name no app, the one in front leaves
    /// after `gap`.
    fn settle(&mut self, now: Duration, gap: Duration) -> Shift {
        let named = self
            .effective()
            .and_then(|(rank, claim)| Some((rank, claim.source.clone(), claim.app.clone()?)));
        match (named, &mut self.front) {
            (Some((rank, source, app)), Some(front)) if front.app.key == app.key => {
                // Another window of the same app: its process is the one that counts.
                front.app = app;
                front.rank = rank;
                front.source = source;
                front.leaves_at = None;
                Shift::Unchanged
            }
            (Some((rank, source, app)), _) => {
                self.demote();
                self.front = Some(Front {
                    app,
                    source,
                    rank,
                    since: now,
                    leaves_at: None,
                });
                Shift::Changed
            }
            (None, Some(_)) if gap.is_zero() => {
                self.demote();
                Shift::Changed
            }
            (None, Some(front)) => {
                front.leaves_at.get_or_insert(now + gap);
                Shift::Unchanged
            }
            (None, None) => Shift::Unchanged,
        }
    }

    fn demote(&mut self) {
        if let Some(front) = self.front.take() {
            self.previous = Some(front.app);
        }
    }
}

#[cfg(test)]
#[path = "topmost_tests.rs"]
mod tests;
