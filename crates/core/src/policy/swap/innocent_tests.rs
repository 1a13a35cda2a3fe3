// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests that these apps are spared: a build in the background, idle apps beside a greedy app, apps
//! in use, and apps that another app may be waiting for.

use super::order::{candidates, pick, spared, Spared};
use super::tests::{key, situation, snapshot, with_topmost, Spec, MIB, S};
use super::*;
use crate::model::apps::{AppMemory, Service};
use crate::model::class::Class;
use crate::model::shortage::Situation;
use crate::policy::protect;

fn app(class: Class, mib: u64, grown: u64) -> Spec {
    Spec {
        class,
        used: 5,
        mib,
        swapped: 0,
        grown,
        in_use: false,
        avoid: false,
        untouchable: false,
        own: true,
    }
}

/// The guard's choice of a victim if no app has grown since the order was made.
fn picked(machine: &Snapshot, now: &Situation) -> Option<AppKey> {
    let all = candidates(machine);
    let held: Vec<u64> = all.iter().map(|one| one.held).collect();
    pick(&all, &held, now).map(|place| all[place].app)
}

fn with_swap(level: Level, swap_free: u64) -> Situation {
    Situation {
        available: 5 * MIB,
        swap_free: swap_free * MIB,
        shortfall: 20 * MIB,
        ..situation(level, S(1000))
    }
}

#[test]
fn build_in_the_background_is_not_killed_while_there_is_swap() {
    let mut machine = snapshot(&[app(Class::Normal, 100, 60)], 5, 100);
    machine.apps[0].found.started = S(1);
    assert!(machine.apps[0].leaks(256 * MIB));
    for level in [Level::Low, Level::Crowded, Level::Kill] {
        assert_eq!(picked(&machine, &with_swap(level, 279)), None, "{level:?}");
    }
    // With little swap, it is killed only if it took at least twice the memory that is left: a
    // linker ends before that, a leak does not.
    for level in [Level::Low, Level::Kill] {
        assert_eq!(picked(&machine, &with_swap(level, 50)), None, "{level:?}");
        assert_eq!(picked(&machine, &with_swap(level, 20)), Some(key(0)));
    }
    assert_eq!(
        picked(&machine, &with_swap(Level::Exhausted, 279)),
        Some(key(0))
    );
}

/// An index grew by 76 MiB, and 36 MiB are left.
#[test]
fn background_job_that_grows_slowly_is_not_killed_before_memory_is_exhausted() {
    let mut machine = snapshot(&[app(Class::Normal, 4, 76)], 5, 100);
    machine.apps[0].found.started = S(1);
    let all = candidates(&machine);
    let picked = |level: Level, seconds: u64| {
        let now = Situation {
            at: all[0].least_at + S(seconds),
            ..with_swap(level, 31)
        };
        picked(&machine, &now)
    };
    for level in [Level::Low, Level::Crowded, Level::Kill] {
        // At this rate, 36 MiB last for five seconds.
        assert_eq!(picked(level, 10), Some(key(0)), "{level:?}");
        assert_eq!(picked(level, 12), None, "{level:?}");
    }
    assert_eq!(picked(Level::Exhausted, 12), Some(key(0)));
}

#[test]
fn healthy_app_is_not_killed_for_one_that_grows() {
    let mut machine = snapshot(
        &[app(Class::Normal, 100, 60), app(Class::Disposable, 30, 0)],
        5,
        100,
    );
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 100)), None);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 20)), Some(key(0)));
}

#[test]
fn app_in_use_is_not_killed_as_a_leak_before_memory_is_exhausted() {
    let used = Spec {
        in_use: true,
        ..app(Class::Normal, 100, 60)
    };
    let machine = snapshot(&[used], 5, 1);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 0)), None);
    assert_eq!(
        picked(&machine, &with_swap(Level::Exhausted, 0)),
        Some(key(0))
    );
}

#[test]
fn greedy_foreground_app_causes_no_kill_of_a_healthy_app() {
    let mut apps = vec![app(Class::Normal, 60, 60)];
    apps.extend((0..8).map(|_| app(Class::Normal, 6, 0)));
    let mut machine = with_topmost(snapshot(&apps, 2, 0), 0);
    // The foreground app was started long ago, so it is not starting.
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(culprit::find(&machine), Some(culprit::Culprit::Foreground));
    assert_eq!(picked(&machine, &with_swap(Level::Exhausted, 0)), None);
    let culprits = culprit::Culprits::of(&machine);
    let fed = |known: &Known| matches!(spared(known, &machine, &culprits), Some(Spared::Fed(_)));
    assert_eq!(machine.apps.iter().filter(|known| fed(known)).count(), 8);
    // The shield is removed, so that the kernel's OOM killer finds the foreground app.
    machine.settings.protect.oom_points = 500;
    if let Some(topmost) = &mut machine.topmost {
        topmost.members = vec![ProcessId {
            pid: 1,
            starttime: 1,
        }];
    }
    let shields = |steps: &[protect::Step]| {
        let shield = |step: &protect::Step| matches!(step, protect::Step::Shield { .. });
        steps.iter().any(shield)
    };
    assert!(!shields(&protect::grant(&Event::Tick, &machine)));
    machine.in_force.shielded = Some((key(0), Vec::new()));
    let steps = protect::withdraw(&Event::Tick, &machine);
    assert!(steps.contains(&protect::Step::Unshield { app: key(0) }));
}

#[test]
fn healthy_disposable_app_is_not_killed_for_a_greedy_foreground_app() {
    let apps = [app(Class::Normal, 60, 60), app(Class::Disposable, 30, 0)];
    let mut machine = with_topmost(snapshot(&apps, 2, 0), 0);
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 0)), None);
    assert_eq!(picked(&machine, &with_swap(Level::Exhausted, 0)), None);
}

#[test]
fn player_is_not_killed_for_a_greedy_foreground_app() {
    let player = Spec {
        in_use: true,
        ..app(Class::Disposable, 30, 0)
    };
    let mut machine = with_topmost(snapshot(&[app(Class::Normal, 60, 60), player], 2, 0), 0);
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(picked(&machine, &with_swap(Level::Exhausted, 0)), None);
}

#[test]
fn starting_app_is_not_the_culprit() {
    let mut machine = with_topmost(snapshot(&[app(Class::Normal, 60, 60)], 2, 0), 0);
    machine.apps[0].found.started = S(995);
    assert_eq!(culprit::find(&machine), None);
}

#[test]
fn growing_service_is_the_culprit() {
    let mut machine = snapshot(
        &[app(Class::Normal, 20, 0), app(Class::Normal, 20, 2)],
        2,
        0,
    );
    let known = &machine.apps[0];
    machine.services = vec![Service {
        app: known.found.app.clone(),
        memory: AppMemory::default(),
        grown: 50 * MIB,
    }];
    assert_eq!(culprit::find(&machine), Some(culprit::Culprit::Service));
    assert_eq!(picked(&machine, &with_swap(Level::Exhausted, 0)), None);
}

#[test]
fn large_service_is_the_culprit_until_memory_is_exhausted() {
    let idle = app(Class::Disposable, 12, 0);
    let mut machine = snapshot(&[idle], 5, 100);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 100)), Some(key(0)));
    machine.services = vec![Service {
        app: machine.apps[0].found.app.clone(),
        memory: AppMemory {
            resident: 70 * MIB,
            anonymous: 70 * MIB,
            swapped: 60 * MIB,
        },
        grown: 0,
    }];
    assert_eq!(culprit::find(&machine), Some(culprit::Culprit::Service));
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 100)), None);
    // Without swap, reclaim gets nothing from the service.
    machine.storage.areas.clear();
    assert_eq!(culprit::find(&machine), None);
}

#[test]
fn victim_far_below_the_shortfall_is_spared() {
    let apps = [app(Class::Disposable, 4, 0), app(Class::Disposable, 8, 0)];
    let machine = snapshot(&apps, 2, 0);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 0)), Some(key(1)));
    // When memory is exhausted, even a small victim is better than the kernel's choice.
    let machine = snapshot(&apps[..1], 2, 0);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 0)), None);
    assert_eq!(
        picked(&machine, &with_swap(Level::Exhausted, 0)),
        Some(key(0))
    );
}

#[test]
fn no_app_stays_frozen_for_longer_than_two_seconds() {
    let mut machine = snapshot(&[app(Class::Normal, 40, 0)], 2, 100);
    machine.in_force.swapping.frozen = vec![(key(0), S(999))];
    assert_eq!(withdraw(&Event::Tick, &machine), []);
    machine.in_force.swapping.frozen = vec![(key(0), S(998))];
    let thaws = matches!(&withdraw(&Event::Tick, &machine)[..], [Step::Thaw { .. }]);
    assert!(thaws);
    // With plenty of memory the guard reads the gauge once a minute.
    machine.in_force.swapping.frozen = vec![(key(0), S(999))];
    machine.at = S(1002);
    let thaws = matches!(&withdraw(&Event::Tick, &machine)[..], [Step::Thaw { .. }]);
    assert!(thaws, "the gauge is stale");
    machine.at = Duration::ZERO;
    // The app is not frozen again at once.
    machine.in_force.swapping.frozen.clear();
    assert!(freeze(&machine).is_some());
    machine.in_force.swapping.thawed = vec![(key(0), S(990))];
    assert_eq!(freeze(&machine), None);
}

/// Two users with one app each. Only the second user's app grows.
fn with_taker(class: Class) -> Snapshot {
    let apps = [app(class, 60, 0), app(Class::Normal, 60, 60)];
    let mut machine = snapshot(&apps, 2, 100);
    for known in &mut machine.apps {
        known.found.started = S(1);
        known.found.uid = if known.key() == key(0) { 1000 } else { 1001 };
    }
    assert_eq!(culprit::user(&machine), Some(1001));
    machine
}

#[test]
fn disposable_app_of_another_user_is_not_killed_before_memory_is_exhausted() {
    let machine = with_taker(Class::Disposable);
    // Without the growing app in the list, the healthy app could be picked only for its class.
    let all = candidates(&machine);
    let held: Vec<u64> = all.iter().map(|one| one.held).collect();
    let healthy: Vec<_> = all.iter().filter(|one| !one.leaks).copied().collect();
    assert_eq!(pick(&healthy, &held, &with_swap(Level::Kill, 100)), None);
    let first = pick(&all, &held, &with_swap(Level::Exhausted, 0));
    assert_eq!(first.map(|place| all[place].app), Some(key(1)));
}

#[test]
fn other_user_s_app_is_not_frozen_and_is_squeezed_last() {
    let mut machine = with_taker(Class::Normal);
    let chosen = |machine: &Snapshot| match squeeze(machine) {
        Some(Step::Squeeze { app, .. }) => Some(app),
        _ => None,
    };
    // The other user's app was used longer ago, but is squeezed last.
    machine.settled = true;
    assert_eq!(chosen(&machine), Some(key(1)));
    machine.in_force.swapping.squeezed = vec![(key(1), S(999))];
    assert_eq!(chosen(&machine), Some(key(0)));
    machine.apps.retain(|known| known.key() == key(0));
    machine.users_taken = vec![(1001, 60 * MIB)];
    assert_eq!(freeze(&machine), None);
    machine.users_taken = vec![(1000, 60 * MIB)];
    assert!(freeze(&machine).is_some());
}

#[test]
fn user_slices_identify_the_user_who_takes_the_memory() {
    let mut machine = with_taker(Class::Normal);
    for known in &mut machine.apps {
        let uid = known.found.uid;
        let home = known.found.app.home.as_mut().unwrap();
        home.path = format!("/user.slice/user-{uid}.slice/app-x.scope");
    }
    machine.users_taken = vec![(1000, 90 * MIB), (1001, 60 * MIB)];
    assert_eq!(culprit::user(&machine), Some(1000));
    machine.users_taken = vec![(1000, 60 * MIB), (1001, 60 * MIB)];
    assert_eq!(culprit::user(&machine), None);
}

#[test]
fn healthy_app_is_not_killed_for_another_user() {
    let apps = [app(Class::Disposable, 30, 0), app(Class::Normal, 20, 0)];
    let mut machine = snapshot(&apps, 2, 0);
    machine.apps[1].found.uid = 1002;
    machine.users_taken = vec![(1000, 0), (1002, 60 * MIB)];
    for known in &mut machine.apps {
        known.found.app.home = Some(Home {
            path: format!("/user.slice/user-{}.slice/app", known.found.uid),
            ..known.found.app.home.clone().unwrap()
        });
    }
    let now = with_swap(Level::Exhausted, 0);
    assert_eq!(picked(&machine, &now), Some(key(1)));
    // No scan has found the process that took the memory: the kernel's OOM killer chooses by size.
    machine.apps.remove(1);
    assert_eq!(picked(&machine, &now), None);
}

/// A program that a user started as root takes part in the user's growth.
#[test]
fn root_s_app_in_a_user_s_slice_counts_as_the_user_s() {
    let apps = [app(Class::Disposable, 30, 0)];
    let mut machine = snapshot(&apps, 1, 0);
    machine.users_taken = vec![(1000, 60 * MIB)];
    let known = &mut machine.apps[0];
    known.found.uid = 0;
    let home = known.found.app.home.as_mut().unwrap();
    home.path = "/user.slice/user-1000.slice/app".to_owned();
    let now = Situation {
        taker: Some(1000),
        ..with_swap(Level::Exhausted, 0)
    };
    assert_eq!(picked(&machine, &now), Some(key(0)));
    let home = machine.apps[0].found.app.home.as_mut().unwrap();
    home.path = "/user.slice/user-1001.slice/app".to_owned();
    assert_eq!(picked(&machine, &now), None);
}

/// The user's process is in no app that a scan has seen, or its app may not be killed.
#[test]
fn healthy_app_is_not_killed_for_another_user_who_grew_since_the_last_scan() {
    let apps = [app(Class::Disposable, 30, 0), app(Class::Normal, 20, 0)];
    let mut machine = snapshot(&apps, 2, 0);
    machine.apps[1].found.uid = 1002;
    let with_taker = |uid, level| Situation {
        taker: Some(uid),
        ..with_swap(level, 0)
    };
    for level in [Level::Kill, Level::Exhausted] {
        assert_eq!(picked(&machine, &with_swap(level, 0)), Some(key(0)));
    }
    assert_eq!(picked(&machine, &with_taker(1002, Level::Kill)), None);
    let exhausted = with_taker(1002, Level::Exhausted);
    assert_eq!(picked(&machine, &exhausted), Some(key(1)));
    machine.apps.remove(1);
    assert_eq!(picked(&machine, &exhausted), None);
    // A leaking app is killed even if another user takes the memory.
    let leaking = snapshot(&[app(Class::Normal, 60, 60)], 2, 0);
    assert_eq!(picked(&leaking, &exhausted), Some(key(0)));
}

/// The guard kills by an order that may be older than the shortage: memory can run out before the
/// next plan.
#[test]
fn order_made_before_the_shortage_spares_the_apps_that_it_would_spare_in_it() {
    let apps = [app(Class::Disposable, 30, 0), app(Class::Normal, 60, 60)];
    let now = with_swap(Level::Exhausted, 0);
    let mut machine = snapshot(&apps, 200, 0);
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(machine.shortage.level(), Level::Plenty);
    let front = with_topmost(machine.clone(), 1);
    assert_eq!(picked(&front, &now), None, "for the foreground app");
    machine.apps[1].found.uid = 1001;
    machine.apps[1].found.untouchable = Some("it contains the compositor".to_owned());
    assert_eq!(picked(&machine, &now), None, "for another user");
}
