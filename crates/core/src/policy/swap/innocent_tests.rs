// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that did nothing wrong: a build in the background, idle apps beside a greedy one, apps in use,
//! apps that another one waits for.

use super::order::{candidates, pick, spared, Spared};
use super::tests::{key, situation, snapshot, with_topmost, Spec, MIB, S};
use super::*;
use crate::model::apps::{AppMemory, Service};
use crate::model::shortage::Situation;
use crate::policy::protect;

fn app(class: Class, mib: u64, grown: u64) -> Spec {
    Spec {
        class,
        used: 5,
        mib,
        grown,
        in_use: false,
        untouchable: false,
        own: true,
    }
}

/// As the guard asks: nothing has grown since the order was made.
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
fn build_in_the_background_is_not_closed_while_there_is_swap() {
    let mut machine = snapshot(&[app(Class::Normal, 100, 60)], 5, 100);
    machine.apps[0].found.started = S(1);
    assert!(machine.apps[0].leaks(256 * MIB));
    for level in [Level::Low, Level::Crowded, Level::Kill] {
        assert_eq!(picked(&machine, &with_swap(level, 279)), None, "{level:?}");
    }
    // It has taken more than all that is left.
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 50)), Some(key(0)));
    assert_eq!(picked(&machine, &with_swap(Level::Low, 50)), Some(key(0)));
    assert_eq!(
        picked(&machine, &with_swap(Level::Exhausted, 279)),
        Some(key(0))
    );
}

#[test]
fn healthy_app_is_not_closed_for_one_that_grows() {
    let mut machine = snapshot(
        &[app(Class::Normal, 100, 60), app(Class::Disposable, 30, 0)],
        5,
        100,
    );
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 100)), None);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 40)), Some(key(0)));
}

#[test]
fn app_in_use_is_not_closed_as_a_leak_before_nothing_is_left() {
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
fn greedy_foreground_app_costs_no_healthy_app_its_life() {
    let mut apps = vec![app(Class::Normal, 60, 60)];
    apps.extend((0..8).map(|_| app(Class::Normal, 6, 0)));
    let mut machine = with_topmost(snapshot(&apps, 2, 0), 0);
    // The foreground app was started long ago: it does not start any more.
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    assert_eq!(culprit::find(&machine), Some(culprit::Culprit::Foreground));
    assert_eq!(picked(&machine, &with_swap(Level::Exhausted, 0)), None);
    let fed = |known: &Known| matches!(spared(known, &machine), Some(Spared::Fed(_)));
    assert_eq!(machine.apps.iter().filter(|known| fed(known)).count(), 8);
    // And the kernel's OOM killer finds it by its own score.
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
fn disposable_apps_are_closed_for_a_greedy_one_only_while_that_helps() {
    let apps = [
        app(Class::Normal, 60, 60),
        app(Class::Disposable, 30, 0),
        app(Class::Disposable, 4, 0),
    ];
    let mut machine = with_topmost(snapshot(&apps, 2, 0), 0);
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    let mut now = with_swap(Level::Kill, 0);
    assert_eq!(
        picked(&machine, &now),
        Some(key(1)),
        "the other one is too small"
    );
    now.kills = 2;
    assert_eq!(picked(&machine, &now), None, "two have not helped");
}

#[test]
fn app_that_starts_is_no_culprit() {
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
fn victim_far_below_the_shortfall_does_not_die_for_nothing() {
    let apps = [app(Class::Disposable, 4, 0), app(Class::Disposable, 8, 0)];
    let machine = snapshot(&apps, 2, 0);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 0)), Some(key(1)));
    // Where nothing is left, any of them is better than the kernel's choice.
    let machine = snapshot(&apps[..1], 2, 0);
    assert_eq!(picked(&machine, &with_swap(Level::Kill, 0)), None);
    assert_eq!(
        picked(&machine, &with_swap(Level::Exhausted, 0)),
        Some(key(0))
    );
}

#[test]
fn no_app_stays_stopped_for_longer_than_two_seconds() {
    let mut machine = snapshot(&[app(Class::Normal, 40, 0)], 2, 100);
    machine.in_force.swapping.frozen = vec![(key(0), S(999))];
    assert_eq!(withdraw(&Event::Tick, &machine), []);
    machine.in_force.swapping.frozen = vec![(key(0), S(998))];
    let thaws = matches!(&withdraw(&Event::Tick, &machine)[..], [Step::Thaw { .. }]);
    assert!(thaws);
    // Nor is it stopped again at once.
    machine.in_force.swapping.frozen.clear();
    assert!(freeze(&machine).is_some());
    machine.in_force.swapping.thawed = vec![(key(0), S(990))];
    assert_eq!(freeze(&machine), None);
}
