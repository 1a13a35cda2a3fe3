// SPDX-License-Identifier: GPL-2.0-or-later

use proptest::prelude::*;

use super::order::candidates;
use super::tests::{exempted, home, key, situation, snapshot, spec, with_topmost, Spec, MIB, S};
use super::*;
use crate::model::app::{App, ProcessId};
use crate::model::apps::{AppMemory, Service};
use crate::model::class::Class;
use crate::model::protected::{Guarded, Protected, Why};
use crate::model::snapshot::Refusal;

fn guarded(pid: i32, cgroup: String, why: Why) -> Guarded {
    Guarded {
        process: ProcessId { pid, starttime: 1 },
        cgroup,
        app: None,
        why,
    }
}

fn old(mib: u64) -> Spec {
    Spec {
        class: Class::Normal,
        used: 5,
        mib,
        swapped: 0,
        grown: 0,
        in_use: false,
        avoid: false,
        untouchable: false,
        own: true,
    }
}

fn service(number: u64, mib: u64) -> Service {
    let inode = 1000 + number;
    Service {
        app: App {
            key: key(inode),
            name: format!("build-{number}"),
            process: None,
            home: Some(Home {
                path: format!("/build-{number}"),
                inode,
                own: true,
                adopted: false,
            }),
        },
        memory: AppMemory {
            resident: mib * MIB,
            anonymous: mib * MIB,
            swapped: 0,
        },
        grown: 0,
    }
}

fn why() -> impl Strategy<Value = Why> {
    prop_oneof![
        Just(Why::Topmost),
        Just(Why::Previous),
        Just(Why::Ancestor),
        Just(Why::Session),
        Just(Why::Limelight),
    ]
}

#[test]
fn app_that_shares_its_cgroup_with_the_topmost_app_is_not_frozen() {
    let mut machine = snapshot(&[old(40), old(20)], 2, 100);
    assert!(freeze(&machine).is_some());
    // The foreground app is another app, but in the cgroup of app 0.
    let inside = guarded(900, home(0), Why::Topmost);
    machine.protected = Protected(vec![inside.clone()]);
    let steps = freeze(&machine).expect("app 1 may be frozen");
    assert!(steps.iter().all(|step| match step {
        Step::Freeze { app, .. } | Step::Squeeze { app, .. } => *app == key(1),
        _ => false,
    }));
    let below = guarded(901, format!("{}/sub", home(1)), Why::Topmost);
    machine.protected = Protected(vec![inside, below]);
    assert_eq!(freeze(&machine), None);
    assert_eq!(candidates(&machine), []);
}

#[test]
fn frozen_app_thaws_when_its_cgroup_holds_the_topmost_app() {
    let mut machine = snapshot(&[old(40)], 2, 100);
    machine.in_force.swapping.frozen = vec![(key(0), S(999))];
    assert_eq!(withdraw(&Event::Topmost, &machine), []);
    machine.protected = Protected(vec![guarded(900, home(0), Why::Topmost)]);
    let thaws = matches!(&withdraw(&Event::Topmost, &machine)[..], [Step::Thaw { app, .. }] if *app == key(0));
    assert!(thaws);
}

#[test]
fn swap_limit_is_lifted_when_the_topmost_app_enters_the_cgroup() {
    let mut machine = snapshot(&[old(40)], 100, 100);
    machine.in_force.swapping.exempt = exempted(&[0]);
    machine.in_force.swapping.working_sets = vec![(key(0), 40 * MIB)];
    assert_eq!(withdraw(&Event::Topmost, &machine), []);
    machine.protected = Protected(vec![guarded(900, home(0), Why::Topmost)]);
    let admit = [Step::Admit { app: key(0) }];
    assert_eq!(withdraw(&Event::Topmost, &machine), admit);
    // The scan has not found the app yet, or no longer finds it.
    machine.apps.clear();
    assert_eq!(withdraw(&Event::Topmost, &machine), admit);
    machine.protected = Protected(vec![guarded(900, home(1), Why::Topmost)]);
    assert_eq!(withdraw(&Event::Topmost, &machine), []);
}

#[test]
fn refused_target_is_skipped_for_a_while() {
    let mut machine = snapshot(&[old(40), old(20)], 2, 100);
    machine.in_force.swapping.refused = vec![Refusal {
        app: key(0),
        at: S(999),
        harm: Harm::Freeze,
        why: "it holds pid 1".to_owned(),
    }];
    let steps = freeze(&machine).expect("app 1 may be frozen");
    assert!(matches!(&steps[0], Step::Freeze { app, .. } if *app == key(1)));
}

#[test]
fn service_is_squeezed_before_any_app_is_frozen_or_closed() {
    let disposable = Spec {
        class: Class::Disposable,
        ..old(20)
    };
    let mut machine = snapshot(&[old(40), disposable], 2, 100);
    machine.services = vec![service(0, 120), service(1, 60)];
    assert_eq!(freeze(&machine), None);
    let Some(Step::Squeeze { app, bytes, .. }) = squeeze(&machine) else {
        panic!("no squeeze");
    };
    assert_eq!(app, key(1000));
    assert!(bytes > 0 && bytes <= 60 * MIB);
    let held = [20 * MIB, 40 * MIB];
    let picked = |machine: &Snapshot| {
        let all = candidates(machine);
        order::pick(
            &all,
            &held[..all.len()],
            &situation(Level::Kill, Duration::MAX),
        )
    };
    assert_eq!(picked(&machine), None);
    machine.in_force.swapping.squeezed = vec![(key(1000), S(999)), (key(1001), S(999))];
    assert_eq!(picked(&machine), Some(0));
}

#[test]
fn nothing_is_frozen_without_swap() {
    let mut machine = snapshot(&[old(40)], 2, 100);
    machine.storage = Default::default();
    assert_eq!(freeze(&machine), None);
}

proptest! {
    /// No target of any planned step contains a process that is protected against the step's harm.
    #[test]
    fn no_plan_reaches_a_protected_process(
        specs in prop::collection::vec(spec(), 1..16),
        front in 0u64..16,
        available in 0u64..60,
        swap in 0u64..128,
        inside in prop::collection::vec((0u64..16, 0u8..3, why()), 0..6),
        frozen in prop::collection::vec(0u64..16, 0..4),
    ) {
        let mut machine = with_topmost(snapshot(&specs, available, swap), front);
        machine.settings.swap.throttle = true;
        for known in &mut machine.apps {
            known.found.started = S(1);
        }
        let all = inside.iter().enumerate().map(|(place, (number, depth, why))| {
            let cgroup = home(*number) + &"/sub".repeat(usize::from(*depth));
            guarded(900 + place as i32, cgroup, *why)
        });
        machine.protected = Protected(all.collect());
        machine.in_force.swapping.frozen = frozen.iter().map(|number| (key(*number), S(999))).collect();
        let path = |app: AppKey| {
            let AppKey::Cgroup { inode } = app else { unreachable!() };
            home(inode)
        };
        let reached = |app, harm| machine.protected.in_group(&path(app), harm, app);
        for step in grant(&Event::Tick, &machine) {
            let (app, harm) = match &step {
                Step::Exempt { app, .. } => (*app, Harm::Limit),
                Step::Squeeze { app, home: Some(_), .. } => (*app, Harm::Squeeze),
                Step::Throttle { app, .. } => (*app, Harm::Throttle),
                Step::Freeze { app, .. } => (*app, Harm::Freeze),
                _ => continue,
            };
            prop_assert_eq!(reached(app, harm), None, "{:?}", step);
        }
        for one in candidates(&machine) {
            let known = machine.apps.iter().find(|known| known.key() == one.app).unwrap();
            let own = known.found.app.own_home().is_some();
            prop_assert!(!own || reached(one.app, Harm::Kill).is_none());
        }
        let steps = withdraw(&Event::Tick, &machine);
        for (app, _) in &machine.in_force.swapping.frozen {
            let known = machine.apps.iter().any(|known| known.key() == *app);
            if known && reached(*app, Harm::Freeze).is_some() {
                let thaws = steps.iter().any(|step| matches!(step, Step::Thaw { app: thawed, .. } if thawed == app));
                prop_assert!(thaws);
            }
        }
    }
}
