// SPDX-License-Identifier: GPL-2.0-or-later
//! Which app is in front, and who says so.
//!
//! Claims have ranks. An *explicit* claim (`limelight focus PID`) stands until its app ends or an
//! explicit `none` withdraws it. A *session* claim is the running report of a session agent and
//! stands while the agent's connection does; with several agents the latest report counts. What
//! was *inferred* from `oom_score_adj` counts only while there is neither: it is dropped, not kept
//! for later, when it comes in beside a higher claim.
//!
//! Where logind tells which users have an active session, the claims of all others are kept and do
//! not count: whoever switches back to a session finds its app in front.

use std::collections::BTreeSet;
use std::time::Duration;

use super::app::{App, AppKey};

/// Where a claim comes from, in rising rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// Inferred from `oom_score_adj`.
    Inferred,
    /// A session agent's running report.
    Session,
    /// Somebody said so.
    Explicit,
}

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
    /// User id of the claimer, for [`Topmost::held_by_other_user`].
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

/// All claims in force and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Topmost {
    gap: Duration,
    explicit: Option<Claim>,
    /// Latest report last.
    sessions: Vec<(Holder, Claim)>,
    inferred: Option<Claim>,
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
        let claims = self.sessions.iter().map(|(_, claim)| claim);
        claims.filter(|claim| self.counts(claim)).count()
    }

    /// Whether an explicit claim is in force.
    pub fn is_explicit(&self) -> bool {
        self.explicit.is_some()
    }

    /// User id of whoever made the explicit claim in force.
    pub fn explicit_uid(&self) -> Option<u32> {
        self.explicit.as_ref().map(|claim| claim.uid)
    }

    /// Whether an inferred claim would count now.
    pub fn hears_inferred(&self) -> bool {
        let mut claims = self
            .explicit
            .iter()
            .chain(self.sessions.iter().map(|(_, c)| c));
        !claims.any(|claim| self.counts(claim))
    }

    /// Sets whose session is active; `None`: nobody tells.
    pub fn set_active_users(&mut self, active: Option<BTreeSet<u32>>, now: Duration) -> Shift {
        if active == self.active {
            return Shift::Unchanged;
        }
        self.active = active;
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

    /// Whether a claim of a user other than `uid` is in force.
    pub fn held_by_other_user(&self, uid: u32) -> bool {
        let claims = self
            .explicit
            .iter()
            .chain(self.sessions.iter().map(|(_, claim)| claim));
        claims.into_iter().any(|claim| claim.uid != uid)
    }

    /// An explicit claim; `none` withdraws the one in force and everything inferred, at once.
    pub fn claim_explicit(&mut self, claim: Claim, now: Duration) -> Shift {
        self.inferred = None;
        self.explicit = claim.app.is_some().then_some(claim);
        self.settle(now, Duration::ZERO)
    }

    /// A session agent's report.
    pub fn claim_session(&mut self, holder: Holder, claim: Claim, now: Duration) -> Shift {
        self.inferred = None;
        self.sessions.retain(|(other, _)| *other != holder);
        self.sessions.push((holder, claim));
        self.settle(now, self.gap)
    }

    /// An inferred claim. Dropped unless [`Topmost::hears_inferred`].
    pub fn claim_inferred(&mut self, claim: Claim, now: Duration) -> Shift {
        if !self.hears_inferred() {
            return Shift::Unchanged;
        }
        self.inferred = Some(claim);
        self.settle(now, self.gap)
    }

    /// A connection was closed: its session claim ends. The app stays for the gap, in which a
    /// restarted agent can claim it again.
    pub fn release(&mut self, holder: Holder, now: Duration) -> Shift {
        self.sessions.retain(|(other, _)| *other != holder);
        self.settle(now, self.gap)
    }

    /// An app ended: nobody can mean it any more.
    pub fn vanished(&mut self, key: AppKey, now: Duration) -> Shift {
        let meant = |claim: &Claim| claim.app.as_ref().is_some_and(|app| app.key == key);
        if self.explicit.as_ref().is_some_and(meant) {
            self.explicit = None;
        }
        if self.inferred.as_ref().is_some_and(meant) {
            self.inferred = None;
        }
        for (_, claim) in &mut self.sessions {
            if meant(claim) {
                claim.app = None;
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
        let claims = self
            .explicit
            .iter_mut()
            .chain(self.inferred.iter_mut())
            .chain(self.sessions.iter_mut().map(|(_, claim)| claim));
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
        let counts = |claim: &&Claim| self.counts(claim);
        let explicit = self.explicit.as_ref().filter(counts);
        let explicit = explicit.map(|claim| (Rank::Explicit, claim));
        let mut sessions = self.sessions.iter().rev().map(|(_, claim)| claim);
        let session = sessions.find(counts).map(|claim| (Rank::Session, claim));
        let inferred = self.inferred.as_ref().map(|claim| (Rank::Inferred, claim));
        explicit.or(session).or(inferred)
    }

    /// Brings `front` in line with the claims; when they name no app, the one in front leaves
    /// after `gap`.
    fn settle(&mut self, now: Duration, gap: Duration) -> Shift {
        let named = self
            .effective()
            .and_then(|(rank, claim)| Some((rank, claim.source.clone(), claim.app.clone()?)));
        match (named, &mut self.front) {
            (Some((rank, source, app)), Some(front)) if front.app.key == app.key => {
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
mod tests {
    use super::*;
    use crate::model::app::ProcessId;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn app(pid: i32) -> App {
        let process = ProcessId { pid, starttime: 1 };
        App {
            key: AppKey::Tree(process),
            name: format!("app{pid}"),
            process: Some(process),
            home: None,
        }
    }

    fn claim(pid: i32) -> Claim {
        let app = (pid != 0).then(|| app(pid));
        Claim {
            app,
            source: "test".into(),
            uid: 1000,
        }
    }

    fn front(topmost: &Topmost) -> Option<i32> {
        topmost
            .front()
            .and_then(|front| front.app.process)
            .map(|process| process.pid)
    }

    #[test]
    fn another_app_takes_over_at_once_and_the_last_one_is_remembered() {
        let mut topmost = Topmost::new(S(2));
        assert_eq!(topmost.claim_explicit(claim(1), S(0)), Shift::Changed);
        assert_eq!(topmost.claim_explicit(claim(1), S(1)), Shift::Unchanged);
        assert_eq!(topmost.claim_explicit(claim(2), S(1)), Shift::Changed);
        assert_eq!(front(&topmost), Some(2));
        assert_eq!(
            topmost.previous().map(|app| app.name.as_str()),
            Some("app1")
        );
        assert_eq!(topmost.front().map(|front| front.since), Some(S(1)));
    }

    #[test]
    fn a_session_none_waits_for_the_gap_and_a_return_cancels_it() {
        let mut topmost = Topmost::new(S(2));
        let agent = Holder(1);
        topmost.claim_session(agent, claim(1), S(0));
        assert_eq!(
            topmost.claim_session(agent, claim(0), S(10)),
            Shift::Unchanged
        );
        assert_eq!(
            topmost.claim_session(agent, claim(0), S(11)),
            Shift::Unchanged
        );
        assert_eq!(topmost.tick(S(11)), Shift::Unchanged);
        assert_eq!(
            topmost.claim_session(agent, claim(1), S(11)),
            Shift::Unchanged
        );
        assert_eq!(topmost.tick(S(30)), Shift::Unchanged);
        topmost.claim_session(agent, claim(0), S(40));
        topmost.claim_session(agent, claim(0), S(41));
        assert_eq!(
            topmost.tick(S(42)),
            Shift::Changed,
            "repeating none must not extend the gap"
        );
        assert_eq!(front(&topmost), None);
        assert_eq!(
            topmost.previous().map(|app| app.name.as_str()),
            Some("app1")
        );
    }

    #[test]
    fn an_explicit_none_demotes_at_once_and_forgets_what_was_inferred() {
        let mut topmost = Topmost::new(S(2));
        topmost.claim_inferred(claim(3), S(0));
        assert_eq!(front(&topmost), Some(3));
        assert_eq!(topmost.claim_explicit(claim(0), S(1)), Shift::Changed);
        assert_eq!(front(&topmost), None);
        topmost.claim_inferred(claim(3), S(2));
        assert_eq!(front(&topmost), Some(3), "a new transition counts again");
    }

    #[test]
    fn ranks_hold() {
        let mut topmost = Topmost::new(S(2));
        topmost.claim_session(Holder(1), claim(1), S(0));
        assert!(!topmost.hears_inferred());
        assert_eq!(topmost.claim_inferred(claim(3), S(1)), Shift::Unchanged);
        topmost.claim_explicit(claim(2), S(2));
        assert_eq!(
            topmost.claim_session(Holder(1), claim(4), S(3)),
            Shift::Unchanged
        );
        assert_eq!(front(&topmost), Some(2));
        topmost.claim_explicit(claim(0), S(4));
        assert_eq!(
            front(&topmost),
            Some(4),
            "the session's report is still running"
        );
        topmost.release(Holder(1), S(5));
        assert!(topmost.hears_inferred());
        assert_eq!(
            front(&topmost),
            Some(4),
            "an agent may restart within the gap"
        );
        assert_eq!(topmost.tick(S(7)), Shift::Changed);
    }

    #[test]
    fn the_latest_of_two_sessions_counts_and_the_other_takes_over() {
        let mut topmost = Topmost::new(S(2));
        topmost.claim_session(Holder(1), claim(1), S(0));
        topmost.claim_session(Holder(2), claim(2), S(1));
        assert_eq!(front(&topmost), Some(2));
        topmost.claim_session(Holder(1), claim(1), S(2));
        assert_eq!(front(&topmost), Some(1));
        topmost.release(Holder(1), S(3));
        assert_eq!(front(&topmost), Some(2));
    }

    #[test]
    fn an_app_that_ended_is_gone_at_once_and_never_previous() {
        let mut topmost = Topmost::new(S(2));
        topmost.claim_explicit(claim(1), S(0));
        topmost.claim_explicit(claim(2), S(1));
        assert_eq!(topmost.vanished(app(2).key, S(2)), Shift::Changed);
        assert_eq!(front(&topmost), None);
        assert_eq!(topmost.previous(), None);
        assert!(!topmost.is_explicit());
        assert_eq!(topmost.vanished(app(9).key, S(2)), Shift::Unchanged);
    }

    #[test]
    fn other_users_claims_are_seen() {
        let mut topmost = Topmost::new(S(2));
        topmost.claim_session(Holder(1), claim(1), S(0));
        assert!(!topmost.held_by_other_user(1000));
        assert!(topmost.held_by_other_user(1001));
    }

    #[test]
    fn whose_session_is_not_active_does_not_count_until_it_is() {
        let mut topmost = Topmost::new(S(2));
        let of = |uid: u32, pid: i32| Claim { uid, ..claim(pid) };
        let users = |all: &[u32]| Some(all.iter().copied().collect());
        topmost.set_active_users(users(&[1000]), S(0));
        topmost.claim_session(Holder(1), of(1000, 1), S(0));
        assert_eq!(
            topmost.claim_session(Holder(2), of(1001, 2), S(1)),
            Shift::Unchanged
        );
        assert_eq!(front(&topmost), Some(1));
        // The other user's session comes to the screen: nobody has to claim anything anew.
        assert_eq!(
            topmost.set_active_users(users(&[1001]), S(2)),
            Shift::Changed
        );
        assert_eq!(front(&topmost), Some(2));
        assert_eq!(
            topmost.set_active_users(users(&[1001]), S(2)),
            Shift::Unchanged
        );
        // The login screen: nobody's counts, the app leaves after the gap; root's word does.
        topmost.set_active_users(users(&[115]), S(3));
        assert!(topmost.hears_inferred());
        assert_eq!(front(&topmost), Some(2));
        assert_eq!(topmost.tick(S(5)), Shift::Changed);
        assert_eq!(front(&topmost), None);
        topmost.claim_explicit(of(0, 3), S(6));
        assert_eq!(front(&topmost), Some(3));
        topmost.claim_explicit(of(0, 0), S(7));
        // Two seats: both count, the latest first.
        topmost.set_active_users(users(&[1000, 1001]), S(8));
        assert_eq!(front(&topmost), Some(2));
    }
}
