// SPDX-License-Identifier: GPL-2.0-or-later
//! Slows leaking background apps while memory is short: `memory.high` follows their use of memory,
//! but rises only slowly. The kernel then reclaims the leaking app's own pages first. If there are
//! none to reclaim, it makes the app wait.
//!
//! The lowest rate keeps the waits short: the kernel charges memory in batches of 256 KiB, so at 4
//! MiB/s an app with one task waits about 60 ms for each batch (the kernel's own bound is 2 s). The
//! rate is higher than that of the slowest leak ([`leak`](crate::model::apps::leak)), so a throttled
//! app still counts as leaking, and healthy apps are not closed instead of it.

use std::time::Duration;

use super::order;
use super::{refused_lately, Step};
use crate::model::app::{AppKey, Home};
use crate::model::apps::{Known, STARTS};
use crate::model::protected::Harm;
use crate::model::shortage::Level;
use crate::model::snapshot::{Snapshot, Throttled};

/// An app may grow by this many bytes in a second, or by this share of memory (its reciprocal) if
/// that is more.
const RATE_LEAST: u64 = 4 << 20;
const RATE_PART: u64 = 1024;

/// The limit exceeds the app's use by at most the growth of this time. It is as long as the
/// interval between two scans, so that an app that grows at the permitted rate never waits.
const AHEAD: Duration = Duration::from_secs(2);

/// The limit is lifted when it has not been raised for this long: the app has stopped growing.
const STOPPED: Duration = Duration::from_secs(10);

/// Why an app is throttled, for display.
const RULE: &str = "memory is short, and it grows without end in the background";

/// Bytes by which a throttled app may grow within this time.
fn growth(snapshot: &Snapshot, within: Duration) -> u64 {
    let total = snapshot.shortage.thresholds().total;
    let rate = (total / RATE_PART).max(RATE_LEAST);
    let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    rate.saturating_mul(within) / 1000
}

/// The app's cgroup, if the app may be throttled: nobody sees it, hears it or waits for it.
/// `owners` are those of the snapshot.
fn target<'a>(known: &'a Known, snapshot: &Snapshot, owners: order::Owners) -> Option<&'a Home> {
    let short = snapshot.shortage.level() >= Level::Swap;
    let spared = order::never_killed(known, snapshot, owners).is_some();
    let guarded = || snapshot.protected.within(known, Harm::Throttle).is_some();
    let may = short && !spared && known.found.uses.is_empty() && !guarded();
    known.found.app.own_home().filter(|_| may)
}

/// The throttled apps whose limit is lifted now.
pub(super) fn lifted(snapshot: &Snapshot) -> impl Iterator<Item = AppKey> + '_ {
    let owners = order::Owners::of(snapshot);
    let stays = move |one: &Throttled| {
        let mut apps = snapshot.apps.iter();
        let known = apps.find(|known| known.key() == one.app);
        let grows = snapshot.now().saturating_sub(one.raised) < STOPPED;
        snapshot.settings.swap.throttle
            && grows
            && known.is_some_and(|known| target(known, snapshot, owners).is_some())
    };
    let all = snapshot.in_force.swapping.throttled.iter();
    all.filter(move |one| !stays(one)).map(|one| one.app)
}

/// Steps that limit apps, or raise their limits.
pub(super) fn limits(snapshot: &Snapshot) -> impl Iterator<Item = Step> + '_ {
    let apps = snapshot.apps.iter();
    let apps = apps.filter(|_| snapshot.settings.swap.throttle);
    let owners = order::Owners::of(snapshot);
    apps.filter_map(move |known| {
        let limit = limit(known, snapshot)?;
        Some(Step::Throttle {
            app: known.key(),
            home: target(known, snapshot, owners)?.clone(),
            limit,
            rule: RULE.to_owned(),
        })
    })
}

/// The app's new limit in bytes; `None` if it has none or the old one stays.
fn limit(known: &Known, snapshot: &Snapshot) -> Option<u64> {
    let now = snapshot.now();
    let wanted = known
        .found
        .memory
        .resident
        .saturating_add(growth(snapshot, AHEAD));
    let mut throttled = snapshot.in_force.swapping.throttled.iter();
    let Some(old) = throttled.find(|one| one.app == known.key()) else {
        let leaks = known.leaks(snapshot.shortage.thresholds().total);
        let starts = now < known.found.started.saturating_add(STARTS);
        return (leaks && !starts && !refused_lately(snapshot, known.key())).then_some(wanted);
    };
    let passed = now.saturating_sub(old.raised).min(AHEAD);
    let most = old.limit.saturating_add(growth(snapshot, passed));
    let limit = wanted.min(most);
    (limit > old.limit).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{key, one, snapshot, with_topmost, Spec, MIB, S};
    use super::super::{grant, withdraw};
    use super::*;
    use crate::model::app::ProcessId;
    use crate::model::apps::Use;
    use crate::model::class::Class;
    use crate::model::protected::{Guarded, Protected, Why};
    use crate::policy::plan::Event;
    use proptest::prelude::*;

    /// A machine of 256 MiB whose app 0 leaks and whose app 1 does not. `available` in MiB.
    fn machine(available: u64) -> Snapshot {
        let leaking = Spec {
            grown: 30,
            ..one(Class::Normal, 100)
        };
        let mut machine = snapshot(&[leaking, one(Class::Normal, 200)], available, 100);
        machine.settings.swap.throttle = true;
        for known in &mut machine.apps {
            known.found.started = S(1);
        }
        machine
    }

    fn throttled(snapshot: &Snapshot) -> Vec<(AppKey, u64)> {
        let steps = grant(&Event::Tick, snapshot).into_iter();
        let limits = steps.filter_map(|step| match step {
            Step::Throttle { app, limit, .. } => Some((app, limit)),
            _ => None,
        });
        limits.collect()
    }

    fn lifts(event: Event, snapshot: &Snapshot) -> bool {
        let lift = |step: &Step| matches!(step, Step::Unthrottle { app } if *app == key(0));
        withdraw(&event, snapshot).iter().any(lift)
    }

    /// The same machine, whose app 0 has had this limit in MiB since `raised` seconds after boot.
    fn limited(available: u64, limit: u64, raised: u64) -> Snapshot {
        let mut machine = machine(available);
        machine.in_force.swapping.throttled = vec![Throttled {
            app: key(0),
            limit: limit * MIB,
            raised: S(raised),
        }];
        machine
    }

    #[test]
    fn only_the_leaking_app_is_throttled_and_only_while_memory_is_short() {
        // It has 50 MiB and may grow by 4 MiB a second until the next scan.
        assert_eq!(throttled(&machine(20)), [(key(0), 58 * MIB)]);
        assert_eq!(throttled(&machine(120)), []);
        let mut off = machine(20);
        off.settings.swap.throttle = false;
        assert_eq!(throttled(&off), []);
        let mut starting = machine(20);
        starting.apps[0].found.started = S(995);
        assert_eq!(throttled(&starting), []);
    }

    #[test]
    fn limit_rises_slowly_with_the_use_and_never_falls() {
        // One second after the last raise.
        assert_eq!(throttled(&limited(20, 50, 999)), [(key(0), 54 * MIB)]);
        // A delayed scan does not permit a burst.
        assert_eq!(throttled(&limited(20, 50, 900)), [(key(0), 58 * MIB)]);
        assert_eq!(throttled(&limited(20, 57, 999)), [(key(0), 58 * MIB)]);
        assert_eq!(throttled(&limited(20, 70, 999)), []);
    }

    #[test]
    fn limit_is_lifted_when_memory_suffices_or_the_app_stops_growing() {
        assert!(!lifts(Event::Tick, &limited(20, 70, 999)));
        assert!(lifts(Event::Tick, &limited(120, 70, 999)));
        assert!(lifts(Event::Tick, &limited(20, 70, 990)));
        assert!(lifts(Event::Stop, &limited(20, 70, 999)));
    }

    #[test]
    fn limit_is_lifted_for_an_app_that_someone_sees_hears_or_needs() {
        let topmost = with_topmost(limited(20, 70, 999), 0);
        assert!(lifts(Event::Topmost, &topmost));
        assert_eq!(throttled(&with_topmost(machine(20), 0)), []);
        type Edit = fn(&mut Snapshot);
        let edits: [Edit; 6] = [
            |machine| machine.apps[0].found.uses = vec![Use::Visible],
            |machine| machine.apps[0].found.uses = vec![Use::Audio],
            |machine| machine.apps[0].found.class.class = Class::Keep,
            |machine| machine.apps[0].found.untouchable = Some("login".to_owned()),
            |machine| machine.previous = Some((key(0), S(995))),
            |machine| {
                machine.protected = Protected(vec![Guarded {
                    process: ProcessId {
                        pid: 1,
                        starttime: 1,
                    },
                    cgroup: "/app.slice/app-0.scope".to_owned(),
                    app: None,
                    why: Why::Ancestor,
                }]);
            },
        ];
        for (place, edit) in edits.into_iter().enumerate() {
            let mut spared = machine(20);
            edit(&mut spared);
            assert_eq!(throttled(&spared), [], "{place}");
            let mut lifted = limited(20, 70, 999);
            edit(&mut lifted);
            assert!(lifts(Event::Tick, &lifted), "{place}");
        }
    }

    proptest! {
        /// A limit is never below what the app has, and its rise is bounded by the passed time, so
        /// that neither a late nor an early scan changes how fast the app may grow.
        #[test]
        fn limit_follows_the_use(
            resident in 0u64..200,
            old in 0u64..200,
            raised in 980u64..1001,
        ) {
            let mut machine = limited(20, old, raised);
            machine.apps[0].found.memory.resident = resident * MIB;
            if let Some((_, limit)) = throttled(&machine).first() {
                prop_assert!(*limit > old * MIB);
                prop_assert!(*limit <= old * MIB + (1000 - raised.min(1000)) * 4 * MIB);
                prop_assert!(*limit <= (resident + 8) * MIB);
            }
            let mut fresh = machine.clone();
            fresh.in_force.swapping.throttled.clear();
            for (_, limit) in throttled(&fresh) {
                prop_assert_eq!(limit, (resident + 8) * MIB);
            }
        }
    }
}
