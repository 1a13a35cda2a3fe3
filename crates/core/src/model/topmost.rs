// SPDX-License-Identifier: GPL-2.0-or-later
//! Decides which app is in the foreground, from ranked claims.
//!
//! * *Explicit* (`limelight focus PID`): stands until its app ends or an explicit `none` withdraws
//!   the claim. It outranks the session agents of the same user. Root's explicit claim outranks all
//!   other claims.
//! * *Session*: the current report of a session agent. It stands until the agent's connection
//!   closes. With several agents, the latest report counts.
//! * *Inferred* from `oom_score_adj`: counts only while there is no explicit and no session claim,
//!   and is dropped otherwise.
//! * *Guessed* from the wake graph: counts only while there is no other claim, and is dropped
//!   otherwise.
//!
//! Between two users, the latest explicit or session claim counts.
//!
//! If logind reports which users have an active session, only the claims of these users and of root
//! count. The claims of other users are kept, so that after a switch back to a session its app is
//! in the foreground again.

use std::collections::BTreeSet;
use std::time::Duration;

use super::app::{App, AppKey};

/// Source of a claim, in rising rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// Guessed from the client that the display server wakes.
    Guessed,
    /// Inferred from `oom_score_adj`.
    Inferred,
    /// The current report of a session agent.
    Session,
    /// Set by a user command.
    Explicit,
}

/// Maximum number of explicit claims, one per user; one more drops the oldest.
const EXPLICIT_MAX: usize = 16;

/// The connection to which a session claim belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(pub u64);

/// A claim about the foreground app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The app; `None`: no app has the focus.
    pub app: Option<App>,
    /// Name of the source, for display.
    pub source: String,
    /// User id of the claimer.
    pub uid: u32,
}

/// The foreground app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The app.
    pub app: App,
    /// Name of the source that claimed it.
    pub source: String,
    /// Rank of that claim.
    pub rank: Rank,
    /// When it came to the foreground.
    pub since: Duration,
    /// When it will be demoted because no app has the focus; `None` while an app has.
    pub leaves_at: Option<Duration>,
}

/// Effect of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The foreground app is the same as before.
    Unchanged,
    /// The foreground app changed, perhaps to none.
    Changed,
}

/// An explicit claim, or the report of a session agent.
#[derive(Debug, Clone)]
struct Held {
    /// The agent's connection; `None` for an explicit claim.
    holder: Option<Holder>,
    claim: Claim,
}

/// All claims, in force or not, and the foreground app that follows from them.
#[derive(Debug, Clone, Default)]
pub struct Topmost {
    gap: Duration,
    /// The explicit claims, at most one per user, and the session claims; latest last.
    held: Vec<Held>,
    inferred: Option<Claim>,
    guessed: Option<Claim>,
    front: Option<Front>,
    previous: Option<App>,
    /// Users with an active session: only their claims and root's count. `None`: the claims of all
    /// users count.
    active: Option<BTreeSet<u32>>,
}

impl Topmost {
    /// Starts without a foreground app. `gap`: time without a focused app after which the
    /// foreground app is demoted.
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

    /// The foreground app.
    pub fn front(&self) -> Option<&Front> {
        self.front.as_ref()
    }

    /// The previous foreground app.
    pub fn previous(&self) -> Option<&App> {
        self.previous.as_ref()
    }

    /// Number of session agents whose reports count.
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

    /// Whether root made an explicit claim, which outranks all other claims.
    pub fn is_root_explicit(&self) -> bool {
        self.explicit_of(0).is_some()
    }

    /// Whether an inferred claim would count now.
    pub fn hears_inferred(&self) -> bool {
        !self.held.iter().any(|held| self.counts(&held.claim))
    }

    /// Whether a guess would count now: no other source makes a claim, not even the claim that no
    /// app has the focus.
    pub fn hears_guesses(&self) -> bool {
        self.inferred.is_none() && self.hears_inferred()
    }

    /// The guessed foreground app, even if the guess does not count.
    pub fn guessed(&self) -> Option<&App> {
        self.guessed.as_ref()?.app.as_ref()
    }

    /// Sets the users with an active session; `None`: unknown.
    pub fn set_active_users(&mut self, active: Option<BTreeSet<u32>>, now: Duration) -> Shift {
        if active == self.active {
            return Shift::Unchanged;
        }
        self.active = active;
        self.settle(now, self.gap)
    }

    /// Whether logind reports which sessions are active.
    pub fn knows_sessions(&self) -> bool {
        self.active.is_some()
    }

    /// Connection and user of each claim, in force or not; explicit claims have no connection.
    pub fn claimants(&self) -> Vec<(Option<Holder>, u32)> {
        let held = self.held.iter();
        held.map(|held| (held.holder, held.claim.uid)).collect()
    }

    /// Drops the claims of these connections and users.
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

    /// Adds an explicit claim, which replaces the user's earlier one, and drops the inferred and
    /// the guessed claim. A claim without an app withdraws the earlier one at once, without the
    /// gap. Such a claim from root withdraws the explicit claims of all users.
    pub fn claim_explicit(&mut self, claim: Claim, now: Duration) -> Shift {
        self.inferred = None;
        self.guessed = None;
        let all_users = claim.uid == 0 && claim.app.is_none();
        self.held
            .retain(|held| held.holder.is_some() || (held.claim.uid != claim.uid && !all_users));
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

    /// Adds a session agent's report.
    pub fn claim_session(&mut self, holder: Holder, claim: Claim, now: Duration) -> Shift {
        self.inferred = None;
        self.guessed = None;
        let holder = Some(holder);
        self.held.retain(|held| held.holder != holder);
        self.held.push(Held { holder, claim });
        self.settle(now, self.gap)
    }

    /// Adds an inferred claim. Dropped unless [`Topmost::hears_inferred`].
    pub fn claim_inferred(&mut self, claim: Claim, now: Duration) -> Shift {
        if !self.hears_inferred() {
            return Shift::Unchanged;
        }
        self.inferred = Some(claim);
        self.guessed = None;
        self.settle(now, self.gap)
    }

    /// Adds a guess. Dropped unless [`Topmost::hears_guesses`].
    pub fn claim_guessed(&mut self, claim: Claim, now: Duration) -> Shift {
        if !self.hears_guesses() {
            return Shift::Unchanged;
        }
        self.guessed = Some(claim);
        self.settle(now, self.gap)
    }

    /// Ends the session claim of a closed connection. The app stays for the gap, in which a
    /// restarted agent can claim it again.
    pub fn release(&mut self, holder: Holder, now: Duration) -> Shift {
        self.held.retain(|held| held.holder != Some(holder));
        self.settle(now, self.gap)
    }

    /// Removes an ended app from all claims.
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

    /// Updates all claims after an app got another key (its main process moved to another cgroup).
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

    /// Demotes the foreground app when its gap has passed.
    pub fn tick(&mut self, now: Duration) -> Shift {
        match self.front.as_ref().and_then(|front| front.leaves_at) {
            Some(leaves_at) if leaves_at <= now => {
                self.demote();
                Shift::Changed
            }
            _ => Shift::Unchanged,
        }
    }

    /// Updates the data of an app (its cgroup changed) in all claims, as the foreground app and as
    /// the previous app.
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

    /// Updates `front` from the claims. If they name no app, the current app leaves after `gap`.
    fn settle(&mut self, now: Duration, gap: Duration) -> Shift {
        let named = self
            .effective()
            .and_then(|(rank, claim)| Some((rank, claim.source.clone(), claim.app.clone()?)));
        match (named, &mut self.front) {
            (Some((rank, source, app)), Some(front)) if front.app.key == app.key => {
                // Another window of the same app: use its process from now on.
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
