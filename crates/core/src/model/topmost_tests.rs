// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::model::app::app;

const S: fn(u64) -> Duration = Duration::from_secs;

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
fn next_app_takes_over_at_once_and_the_last_one_is_previous() {
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
fn session_none_waits_for_the_gap_and_a_return_cancels_it() {
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
fn explicit_none_demotes_at_once_and_drops_inferred_claims() {
    let mut topmost = Topmost::new(S(2));
    topmost.claim_inferred(claim(3), S(0));
    assert_eq!(front(&topmost), Some(3));
    assert_eq!(topmost.claim_explicit(claim(0), S(1)), Shift::Changed);
    assert_eq!(front(&topmost), None);
    topmost.claim_inferred(claim(3), S(2));
    assert_eq!(
        front(&topmost),
        Some(3),
        "a new inferred claim counts again"
    );
}

#[test]
fn higher_ranks_win() {
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
        "the session's report still stands"
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
fn guess_counts_until_another_source_makes_a_claim() {
    let mut topmost = Topmost::new(S(2));
    topmost.claim_guessed(claim(1), S(0));
    assert_eq!(front(&topmost), Some(1));
    assert_eq!(topmost.front().map(|front| front.rank), Some(Rank::Guessed));
    topmost.claim_inferred(claim(2), S(1));
    assert_eq!(front(&topmost), Some(2));
    assert!(!topmost.hears_guesses());
    assert_eq!(topmost.claim_guessed(claim(1), S(2)), Shift::Unchanged);
    assert_eq!(topmost.vanished(app(2).key, S(3)), Shift::Changed);
    assert_eq!(front(&topmost), None, "the earlier guess was dropped");
    topmost.claim_guessed(claim(1), S(4));
    // An agent that reports no focus outranks a guess, too.
    topmost.claim_session(Holder(1), claim(0), S(5));
    assert!(!topmost.hears_guesses());
    assert_eq!(topmost.tick(S(7)), Shift::Changed);
    assert_eq!(front(&topmost), None);
    topmost.release(Holder(1), S(8));
    topmost.claim_guessed(claim(1), S(8));
    topmost.claim_guessed(claim(0), S(9));
    assert_eq!(front(&topmost), Some(1), "the app stays for the gap");
    assert_eq!(topmost.tick(S(11)), Shift::Changed);
    topmost.claim_guessed(claim(1), S(12));
    assert_eq!(topmost.claim_explicit(claim(0), S(13)), Shift::Changed);
    assert_eq!(front(&topmost), None);
}

#[test]
fn latest_of_two_sessions_counts_and_the_other_takes_over() {
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
fn app_that_ended_is_gone_at_once_and_never_previous() {
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
fn claims_of_inactive_sessions_do_not_count_until_active() {
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
    // The other user's session becomes active: its claim counts without being repeated.
    assert_eq!(
        topmost.set_active_users(users(&[1001]), S(2)),
        Shift::Changed
    );
    assert_eq!(front(&topmost), Some(2));
    assert_eq!(
        topmost.set_active_users(users(&[1001]), S(2)),
        Shift::Unchanged
    );
    // The login screen: no user's claim counts, the app leaves after the gap; root's claim counts.
    topmost.set_active_users(users(&[115]), S(3));
    assert!(topmost.hears_inferred());
    assert_eq!(front(&topmost), Some(2));
    assert_eq!(topmost.tick(S(5)), Shift::Changed);
    assert_eq!(front(&topmost), None);
    topmost.claim_explicit(of(0, 3), S(6));
    assert_eq!(front(&topmost), Some(3));
    topmost.claim_explicit(of(0, 0), S(7));
    // Two seats: both users' claims count, the latest first.
    topmost.set_active_users(users(&[1000, 1001]), S(8));
    assert_eq!(front(&topmost), Some(2));
}

#[test]
fn explicit_claim_outranks_only_its_own_user_s_agents() {
    let mut topmost = Topmost::new(S(2));
    let of = |uid: u32, pid: i32| Claim { uid, ..claim(pid) };
    topmost.claim_session(Holder(1), of(1000, 1), S(0));
    topmost.claim_explicit(of(1001, 2), S(1));
    assert_eq!(front(&topmost), Some(2), "the latest claim of two users");
    topmost.claim_session(Holder(1), of(1000, 3), S(2));
    assert_eq!(front(&topmost), Some(3));
    topmost.claim_session(Holder(2), of(1001, 4), S(3));
    assert_eq!(front(&topmost), Some(2), "above the user's own agent");
    topmost.claim_explicit(of(1000, 0), S(4));
    assert_eq!(front(&topmost), Some(2), "another user's claim stays");
    topmost.claim_explicit(of(0, 5), S(5));
    topmost.claim_session(Holder(1), of(1000, 1), S(6));
    assert_eq!(front(&topmost), Some(5), "root's claim outranks all");
    topmost.claim_explicit(of(0, 0), S(7));
    assert!(!topmost.is_explicit(), "root's none withdraws all");
    assert_eq!(front(&topmost), Some(1));
}

#[test]
fn explicit_claims_of_many_users_are_bounded() {
    let mut topmost = Topmost::new(S(2));
    for user in 0..100 {
        let claim = Claim {
            uid: 1000 + user,
            ..claim(1 + user as i32)
        };
        topmost.claim_explicit(claim, S(0));
    }
    assert_eq!(topmost.explicit().count(), EXPLICIT_MAX);
    assert_eq!(front(&topmost), Some(100));
}
