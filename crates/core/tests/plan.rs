// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests of the plan's invariants.

use limelight_core::model::boost::View;
use limelight_core::model::footprint::{Footprint, Usage};
use limelight_core::model::never::{Exception, Exceptions, Never};
use limelight_core::model::pressure::{Memory, STEPS};
use limelight_core::model::prezero::Engine;
use limelight_core::model::shortage::{derive_thresholds, Gauge, Shortage};
use limelight_core::model::snapshot::{DisplayServer, Measured};
use limelight_core::model::{App, AppKey, Home, InForce, Lru, ProcessId, Snapshot};
use limelight_core::policy::protect::{follow, Step, GRAIN};
use limelight_core::policy::{boost, plan, premap, prezero, protect, readahead, Action, Event};
use limelight_core::settings::Settings;
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

/// Simulated mechanisms, which always succeed and check every action.
#[derive(Debug, Clone, Default)]
struct Machine {
    in_force: InForce,
}

impl Machine {
    fn apply(&mut self, action: &Action, snapshot: &Snapshot) {
        let front = snapshot.topmost.as_ref().map(|topmost| topmost.app.key);
        // A program that starts while no app is in the foreground is boosted, but gets no other
        // step.
        let next = snapshot.starting.as_ref().map(|starting| starting.app.key);
        let in_force = &mut self.in_force;
        let favoured = snapshot.topmost.as_ref().or(snapshot.starting.as_ref());
        let never = |never| favoured.is_some_and(|one| one.never(never).is_some());
        if is_boost(action) {
            assert!(!never(Never::Boost), "never boosted: {action:?}");
        }
        if is_protection(action) {
            assert!(!never(Never::Protect), "never protected: {action:?}");
        }
        match action {
            Action::Mark { app } => {
                assert!(snapshot.device, "there is no device");
                assert_eq!(
                    app.as_ref().map(|(key, _)| *key),
                    front.filter(|_| app.is_some())
                );
                in_force.marked.clone_from(app);
            }
            Action::Premap(premap::Step::Switch { window_pages }) => {
                assert!(snapshot.device_premap && *window_pages != in_force.device_premap);
                in_force.device_premap = *window_pages;
            }
            Action::Readahead(readahead::Step::Switch { factor }) => {
                assert!(snapshot.device_readahead && *factor != in_force.device_readahead);
                in_force.device_readahead = *factor;
            }
            Action::Prezero(prezero::Step::Switch { pool }) => {
                assert!(snapshot.device_prezero && *pool != in_force.device_prezero);
                let known = front.is_some() || snapshot.demand.is_some();
                assert!(pool.is_none() || known, "a pool without a demand");
                assert!(pool.as_ref().is_none_or(|pool| pool.target > 0));
                in_force.device_prezero.clone_from(pool);
            }
            Action::Boost(step) => match step {
                boost::Step::HandDown { app, .. } => {
                    assert!(snapshot.may_hand_down && Some(*app) == front);
                }
                boost::Step::Weigh { app, weights } => {
                    assert_eq!(Some(*app), front.or(next));
                    in_force.weighed = Some((*app, weights.clone()));
                }
                boost::Step::Unweigh { .. } => in_force.weighed = None,
                boost::Step::Tune {
                    app,
                    tuning,
                    threads,
                } => {
                    assert_eq!(Some(*app), front.or(next));
                    in_force.tuned = Some((*app, *tuning, threads.clone()));
                }
                boost::Step::Untune { .. } => in_force.tuned = None,
                boost::Step::Regroup { app, groups, .. } => {
                    assert_eq!(Some(*app), front.or(next));
                    in_force.regrouped = Some((*app, groups.clone()));
                }
                boost::Step::Ungroup { .. } => in_force.regrouped = None,
            },
            Action::Protect(step) => match step {
                Step::Switch { budget_percent } => in_force.device_protect = *budget_percent,
                Step::Adopt { app } => {
                    assert!(snapshot.may_adopt && Some(*app) == front);
                    in_force.adopted.push(*app);
                }
                Step::Release { app } => in_force.adopted.retain(|known| known != app),
                Step::Reserve { reserve, rule } => {
                    assert_eq!(Some(reserve.app), front, "reserved for a background app");
                    assert!(reserve.bytes <= snapshot.budget(), "{rule}");
                    assert_eq!(reserve.bytes % GRAIN, 0);
                    assert_eq!(reserve.knob, snapshot.lru.knob(), "the knob has no effect");
                    let other = in_force.reserved.filter(|other| other.app != reserve.app);
                    assert_eq!(other, None, "two apps protected at once");
                    in_force.reserved = Some(*reserve);
                }
                Step::ReserveDisplay { reserve, knob, .. } => {
                    assert_eq!(Some(reserve.app), front, "reserved for a background app");
                    assert!(reserve.bytes <= snapshot.budget() / 4);
                    assert_eq!(*knob, snapshot.lru.knob(), "the knob has no effect");
                    in_force.reserved_display = Some(*reserve);
                }
                Step::Unreserve { .. } => {
                    in_force.reserved = None;
                    in_force.reserved_display = None;
                }
                Step::Shield {
                    app,
                    members,
                    points,
                } => {
                    assert!(*points > 0 && Some(*app) == front);
                    let other = in_force.shielded.as_ref().filter(|(key, _)| key != app);
                    assert_eq!(other, None, "two apps shielded at once");
                    in_force.shielded = Some((*app, members.clone()));
                }
                Step::Unshield { .. } => in_force.shielded = None,
                Step::Lock { locking } => {
                    assert!(!snapshot.device, "the kernel protects these pages");
                    assert_eq!(Some(locking.app), front, "locked for a background app");
                    assert!(locking.limit > 0 && locking.limit <= snapshot.budget() / 4);
                    in_force.locked = Some(locking.clone());
                }
                Step::Unlock { .. } => in_force.locked = None,
            },
            // Swap has its own tests. In these situations the topmost app is the only known app.
            Action::Swap(step) => panic!("{step:?}"),
            Action::Window(_) => panic!("windows are passed at once, not planned"),
        }
    }
}

/// Whether this gives an app processor or disk time.
fn is_boost(action: &Action) -> bool {
    use boost::Step::{HandDown, Regroup, Tune, Weigh};
    let Action::Boost(step) = action else {
        return false;
    };
    matches!(
        step,
        HandDown { .. } | Weigh { .. } | Tune { .. } | Regroup { .. }
    )
}

/// Whether this protects an app's memory.
fn is_protection(action: &Action) -> bool {
    match action {
        Action::Mark { app } => app.is_some(),
        Action::Protect(step) => matches!(
            step,
            Step::Adopt { .. }
                | Step::Reserve { .. }
                | Step::ReserveDisplay { .. }
                | Step::Shield { .. }
                | Step::Lock { .. }
        ),
        _ => false,
    }
}

fn process(pid: i32) -> ProcessId {
    ProcessId { pid, starttime: 7 }
}

fn apps() -> impl Strategy<Value = App> {
    (1..4i32, 0..3u8).prop_map(|(pid, kind)| {
        let id = process(pid);
        let home = Home {
            path: format!("/app-{pid}"),
            inode: pid as u64,
            own: kind == 2,
            adopted: false,
        };
        App {
            key: if kind == 2 {
                AppKey::Cgroup { inode: home.inode }
            } else {
                AppKey::Tree(id)
            },
            name: format!("app{pid}"),
            process: Some(id),
            home: (kind > 0).then_some(home),
        }
    })
}

fn usages() -> impl Strategy<Value = Usage> {
    let bytes = || prop_oneof![0..600 * MIB, Just(u64::MAX)];
    (bytes(), bytes(), bytes(), bytes(), bytes(), bytes()).prop_map(
        |(current, swapped, file, file_mapped, shmem, refaulted)| Usage {
            current,
            swapped,
            file,
            file_mapped,
            shmem,
            refaulted,
        },
    )
}

/// Exceptions of a foreground app: each of them in one of four cases.
fn exceptions() -> impl Strategy<Value = Exceptions> {
    let rules = prop::collection::vec(0..4u8, Never::ALL.len());
    rules.prop_map(|rules| {
        let all = Never::ALL.into_iter().zip(rules);
        let chosen = all.filter(|(_, case)| *case == 0);
        let exception = |(never, _)| Exception {
            never,
            why: "a rule".to_owned(),
            by_owner: false,
        };
        chosen.map(exception).collect()
    })
}

fn topmost() -> impl Strategy<Value = Option<Measured>> {
    let measured = (
        exceptions(),
        apps(),
        prop::collection::btree_set(1..40i32, 0..5),
        prop::option::of((usages(), usages())),
    );
    prop::option::of(
        measured.prop_map(|(exceptions, app, pids, usages)| Measured {
            app,
            members: pids.into_iter().map(process).collect(),
            footprint: usages.map(|(first, second)| {
                let mut footprint = Footprint::new(first);
                footprint.observe(second);
                footprint
            }),
            terminal: None,
            exceptions,
        }),
    )
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Topmost),
        2 => Just(Event::Starting),
        4 => Just(Event::Tick),
        2 => Just(Event::Pressure),
        1 => Just(Event::Settings),
        1 => Just(Event::Stop),
    ]
}

/// A display server that holds `mib`. Servers 1 to 3 are in the cgroup of an app.
fn server(number: u64, mib: u64) -> DisplayServer {
    DisplayServer {
        home: Home {
            path: format!("/app-{number}"),
            inode: number,
            own: true,
            adopted: false,
        },
        usage: Usage {
            current: mib * MIB,
            ..Usage::default()
        },
    }
}

prop_compose! {
    fn situations()(
        topmost in topmost(),
        starting in topmost(),
        total in prop_oneof![0..1024 * MIB, Just(u64::MAX)],
        others in prop_oneof![3 => 0..64 * MIB, 1 => any::<u64>()],
        budget_percent in 1..=90u8,
        oom_points in prop_oneof![Just(0u16), 1..=1000u16],
        flags in any::<[bool; 9]>(),
        (lowered_steps, age) in (0..=STEPS, 0..8u8),
        locked_bytes in 0..64 * MIB,
        device_members in 0..6u32,
        ceiling in prop::option::of(0..512 * MIB),
        demand in prop::option::of(any::<u64>()),
        display in prop::option::of((1..8u64, 0..1024u64)),
    ) -> Snapshot {
        let [enabled, mglru, memory_controller, device, may_adopt, readahead, premap, lock, settled] =
            flags;
        let mut settings = Settings::default();
        settings.protect.enabled = enabled;
        settings.protect.budget_percent = budget_percent;
        settings.protect.oom_points = oom_points;
        settings.protect.lock_shared = lock;
        settings.readahead.enabled = readahead;
        settings.premap.enabled = premap;
        Snapshot {
            settings,
            memory: Memory { total, ..Memory::default() },
            lru: if mglru { Lru::MultiGen } else { Lru::TwoList },
            memory_controller,
            device,
            device_premap: device,
            device_readahead: device,
            device_prezero: device,
            engines: vec![Engine::Cpu],
            demand,
            device_members,
            ceiling,
            may_adopt,
            topmost,
            display: display.map(|(number, mib)| server(number, mib)),
            starting,
            boost: View::default(),
            lowered_steps,
            age,
            protected_by_others: others,
            locked_bytes,
            settled,
            ..Snapshot::default()
        }
    }
}

proptest! {
    /// In any sequence of situations, a reservation never exceeds the budget or uses an inert knob,
    /// and two apps are never favoured at once. After a stop nothing is in force.
    #[test]
    fn every_sequence_keeps_the_invariants(
        steps in prop::collection::vec((events(), situations()), 1..12),
    ) {
        let mut machine = Machine::default();
        let device = steps.iter().all(|(_, snapshot)| snapshot.device);
        for (event, mut snapshot) in steps {
            // The device is opened at the start or never.
            snapshot.device = device;
            snapshot.device_premap = device;
            snapshot.device_readahead = device;
            snapshot.device_prezero = device;
            snapshot.in_force = machine.in_force.clone();
            for action in plan(&event, &snapshot) {
                machine.apply(&action, &snapshot);
            }
            if event == Event::Stop {
                prop_assert_eq!(&machine.in_force, &InForce::default());
            }
            if snapshot.topmost.is_none() || !snapshot.settings.protect.enabled {
                prop_assert_eq!(machine.in_force.reserved, None);
                prop_assert_eq!(machine.in_force.reserved_display, None);
                prop_assert_eq!(&machine.in_force.shielded, &None);
                prop_assert_eq!(&machine.in_force.locked, &None);
            }
            let on = device && snapshot.settings.protect.enabled && event != Event::Stop;
            prop_assert_eq!(machine.in_force.device_protect.is_some(), on);
            let on = device && snapshot.settings.premap.enabled && event != Event::Stop;
            prop_assert_eq!(machine.in_force.device_premap.is_some(), on);
            let on = device && snapshot.settings.readahead.enabled && event != Event::Stop;
            prop_assert_eq!(machine.in_force.device_readahead.is_some(), on);
            let served = snapshot.topmost.is_some() || snapshot.demand.is_some();
            if !served || event == Event::Stop || !device {
                prop_assert_eq!(&machine.in_force.device_prezero, &None);
            }
        }
    }

    /// The same arguments give the same plan, and no action is planned again once it is in force.
    #[test]
    fn plan_is_deterministic_and_idempotent(event in events(), snapshot in situations()) {
        let actions = plan(&event, &snapshot);
        prop_assert_eq!(&actions, &plan(&event, &snapshot));
        let mut machine = Machine { in_force: snapshot.in_force.clone() };
        for action in &actions {
            machine.apply(action, &snapshot);
        }
        let after = Snapshot { in_force: machine.in_force, may_adopt: false, ..snapshot };
        let rest = plan(&event, &after);
        prop_assert!(rest.is_empty(), "{:?}", rest);
    }

    /// Each step of pressure reduces the locks, and the last one removes them. Locks take at most
    /// the part of the budget that the app's own memory leaves, and do not change the reservation.
    #[test]
    fn locks_give_way_under_pressure_and_to_the_reservation(
        steps in 0..STEPS,
        held in 0..700 * MIB,
        locked in 0..150 * MIB,
    ) {
        let with = |held: u64, steps: u8| viewer(Usage { current: held, ..Usage::default() }, steps);
        let limit = |snapshot: &Snapshot| {
            plan(&Event::Topmost, snapshot).into_iter().find_map(|action| match action {
                Action::Protect(Step::Lock { locking }) => Some(locking.limit),
                _ => None,
            })
        };
        prop_assert!(limit(&with(0, steps + 1)) < limit(&with(0, steps)));
        prop_assert_eq!(limit(&with(0, STEPS)), None);
        let budget = with(held, 0).budget();
        prop_assert!(limit(&with(held, 0)).unwrap_or(0) <= budget.saturating_sub(held));
        let before = reserve_of(&plan(&Event::Topmost, &with(held, 0)));
        let after = Snapshot { locked_bytes: locked, ..with(held, 0) };
        prop_assert_eq!(reserve_of(&plan(&Event::Topmost, &after)), before);
    }

    /// The ancestors' part is at most the app's own reservation, covers the part that the app uses,
    /// and does not change as long as it fits.
    #[test]
    fn ancestors_reserve_what_the_app_uses(
        used in prop::collection::vec(0..900 * MIB, 1..8),
        short: bool,
    ) {
        let mut in_force = InForce::default();
        for used in used {
            let mut snapshot = returned(used, short);
            reserved_of(Event::Tick, snapshot.clone(), &mut in_force);
            let reserved = in_force.reserved.unwrap();
            prop_assert!(reserved.carried <= reserved.bytes);
            prop_assert!(reserved.carried >= used.min(reserved.bytes));
            prop_assert!(!short || reserved.carried <= used + 1000 * MIB / 32);
            snapshot.in_force = in_force.clone();
            prop_assert_eq!(follow(&snapshot), None);
        }
    }

    /// A larger app never gets a smaller reservation, and a step of pressure never enlarges one.
    #[test]
    fn reservations_are_monotonic(held in 0..900 * MIB, more in 0..100 * MIB, steps in 0..STEPS) {
        let reserved = |held: u64, steps: u8| {
            let snapshot = viewer(Usage { current: held, ..Usage::default() }, steps);
            reserve_of(&plan(&Event::Topmost, &snapshot))
        };
        prop_assert!(reserved(held, steps) <= reserved(held + more, steps));
        prop_assert!(reserved(held, steps + 1) <= reserved(held, steps));
    }
}

/// An app with a cgroup of its own, on a machine of 1000 MiB with a budget of 600 MiB.
fn viewer(usage: Usage, lowered_steps: u8) -> Snapshot {
    let home = Home {
        path: "/v".into(),
        inode: 5,
        own: true,
        adopted: false,
    };
    let app = App {
        key: AppKey::Cgroup { inode: 5 },
        name: "viewer".into(),
        process: None,
        home: Some(home),
    };
    Snapshot {
        memory: Memory {
            total: 1000 * MIB,
            available: 900 * MIB,
            ..Memory::default()
        },
        lru: Lru::MultiGen,
        memory_controller: true,
        lowered_steps,
        topmost: Some(Measured {
            app,
            members: vec![process(1)],
            footprint: Some(Footprint::new(usage)),
            terminal: None,
            exceptions: Exceptions::default(),
        }),
        ..Snapshot::default()
    }
}

fn reserve_of(actions: &[Action]) -> u64 {
    actions
        .iter()
        .find_map(|action| match action {
            Action::Protect(Step::Reserve { reserve, .. }) => Some(reserve.bytes),
            _ => None,
        })
        .unwrap_or(0)
}

#[test]
fn reservation_covers_the_app_and_its_growth() {
    let usage = Usage {
        current: 64 * MIB,
        file: 40 * MIB,
        file_mapped: 40 * MIB,
        ..Usage::default()
    };
    assert_eq!(
        reserve_of(&plan(&Event::Topmost, &viewer(usage, 0))),
        80 * MIB
    );
    let swapped = Usage {
        swapped: 36 * MIB,
        ..usage
    };
    assert_eq!(
        reserve_of(&plan(&Event::Topmost, &viewer(swapped, 0))),
        125 * MIB
    );
    assert_eq!(
        reserve_of(&plan(&Event::Topmost, &viewer(usage, 1))),
        60 * MIB
    );
    assert_eq!(reserve_of(&plan(&Event::Topmost, &viewer(usage, STEPS))), 0);
}

/// A viewer that uses and maps more than its budget in these tests.
fn large_viewer() -> Snapshot {
    let usage = Usage {
        current: 500 * MIB,
        file: 400 * MIB,
        file_mapped: 400 * MIB,
        ..Usage::default()
    };
    viewer(usage, 0)
}

#[test]
fn unreachable_memory_is_not_part_of_the_budget() {
    let mut snapshot = large_viewer();
    assert_eq!(reserve_of(&plan(&Event::Topmost, &snapshot)), 600 * MIB);
    snapshot.memory.reachable = 400 * MIB;
    assert_eq!(reserve_of(&plan(&Event::Topmost, &snapshot)), 240 * MIB);
}

#[test]
fn reservations_leave_memory_to_reclaim_where_zram_holds_the_rest() {
    let mut snapshot = large_viewer();
    snapshot.memory.reachable = 400 * MIB;
    snapshot.memory.compressed = 50 * MIB;
    assert_eq!(reserve_of(&plan(&Event::Topmost, &snapshot)), 240 * MIB);
    // 60 % of 900 MiB would be nearly all that reclaim can take.
    snapshot.memory.reachable = 900 * MIB;
    snapshot.memory.compressed = 300 * MIB;
    assert_eq!(reserve_of(&plan(&Event::Topmost, &snapshot)), 528 * MIB);
    // 12 % of the rest is less than a sixteenth of the machine.
    snapshot.memory.reachable = 400 * MIB;
    snapshot.memory.compressed = 240 * MIB;
    assert_eq!(reserve_of(&plan(&Event::Topmost, &snapshot)), 97 * MIB);
}

#[test]
fn age_shrinks_the_reservation_and_the_device_s_budget() {
    let of_device = |snapshot: &Snapshot| {
        plan(&Event::Tick, snapshot)
            .into_iter()
            .find_map(|action| match action {
                Action::Protect(Step::Switch { budget_percent }) => budget_percent,
                _ => None,
            })
    };
    let mut snapshot = Snapshot {
        device: true,
        ..large_viewer()
    };
    snapshot.settings.protect.ageing = true;
    for (age, percent) in [(0, 60), (1, 45), (2, 33), (9, 15)] {
        snapshot.age = age;
        let actions = plan(&Event::Tick, &snapshot);
        assert_eq!(reserve_of(&actions), u64::from(percent) * 10 * MIB);
        assert_eq!(of_device(&snapshot), Some(percent));
    }
    snapshot.settings.protect.ageing = false;
    assert_eq!(of_device(&snapshot), Some(60));
}

#[test]
fn cached_reads_get_half_of_the_budget_until_refaults_prove_more() {
    let stream = Usage {
        current: 520 * MIB,
        file: 500 * MIB,
        ..Usage::default()
    };
    assert_eq!(
        reserve_of(&plan(&Event::Topmost, &viewer(stream, 0))),
        (20 + 300 + 8) * MIB
    );
    let mut snapshot = viewer(stream, 0);
    let footprint = snapshot
        .topmost
        .as_mut()
        .and_then(|topmost| topmost.footprint.as_mut())
        .unwrap();
    footprint.observe(Usage {
        refaulted: 100 * MIB,
        ..stream
    });
    assert_eq!(
        reserve_of(&plan(&Event::Topmost, &snapshot)),
        (20 + 400 + 8) * MIB
    );
}

#[test]
fn unproven_cached_reads_are_kept_only_above_the_swap_threshold() {
    let stream = Usage {
        current: 520 * MIB,
        file: 500 * MIB,
        ..Usage::default()
    };
    let mut snapshot = viewer(stream, 0);
    let thresholds = derive_thresholds(1000 * MIB, 0);
    let swap = thresholds.swap;
    snapshot.shortage = Shortage::new(thresholds);
    snapshot.memory.available = swap + 100 * MIB;
    assert_eq!(
        reserve_of(&plan(&Event::Topmost, &snapshot)),
        (20 + 100 + 8) * MIB
    );
    // A reservation that holds more is lowered at once, not an eighth at a time.
    let mut machine = Machine::default();
    for action in plan(&Event::Topmost, &snapshot) {
        machine.apply(&action, &snapshot);
    }
    snapshot.in_force = machine.in_force;
    snapshot.memory.available = swap / 2;
    snapshot.kept_cache = 100 * MIB;
    assert_eq!(reserve_of(&plan(&Event::Tick, &snapshot)), (20 + 8) * MIB);
}

#[test]
fn reservation_shrinks_slowly_and_follows_a_smaller_budget_at_once() {
    let large = viewer(
        Usage {
            current: 400 * MIB,
            ..Usage::default()
        },
        0,
    );
    let mut machine = Machine::default();
    for action in plan(&Event::Topmost, &large) {
        machine.apply(&action, &large);
    }
    assert_eq!(
        machine.in_force.reserved.map(|reserved| reserved.bytes),
        Some(500 * MIB)
    );

    let with = |current, others| Snapshot {
        in_force: machine.in_force.clone(),
        protected_by_others: others,
        ..viewer(
            Usage {
                current: current * MIB,
                ..Usage::default()
            },
            0,
        )
    };
    assert_eq!(plan(&Event::Tick, &with(330, 0)), [], "not worth a write");
    assert_eq!(reserve_of(&plan(&Event::Tick, &with(40, 0))), 437 * MIB);
    assert_eq!(
        reserve_of(&plan(&Event::Tick, &with(400, 200 * MIB))),
        400 * MIB
    );
}

/// An app that came back from swap, on a machine with `memory_recursiveprot`. `short`: whether
/// memory is short.
fn returned(current: u64, short: bool) -> Snapshot {
    let usage = Usage {
        current,
        swapped: 100 * MIB,
        ..Usage::default()
    };
    let thresholds = derive_thresholds(1000 * MIB, 0);
    let mut shortage = Shortage::new(thresholds);
    shortage.observe(Gauge {
        available: match short {
            true => thresholds.swap - 1,
            false => thresholds.swap * 2,
        },
        swap_free: 500 * MIB,
        swap_total: 500 * MIB,
        ..Gauge::default()
    });
    let mut settings = Settings::default();
    settings.swap.enabled = false;
    Snapshot {
        settings,
        recursive_protection: true,
        shortage,
        ..viewer(usage, 0)
    }
}

/// Makes and applies a plan. Returns the reservation and the ancestors' part in MiB, if either
/// changed.
fn reserved_of(event: Event, mut snapshot: Snapshot, in_force: &mut InForce) -> Option<(u64, u64)> {
    snapshot.in_force = in_force.clone();
    let mut machine = Machine {
        in_force: in_force.clone(),
    };
    let actions = plan(&event, &snapshot);
    for action in &actions {
        machine.apply(action, &snapshot);
    }
    let before = std::mem::replace(in_force, machine.in_force).reserved;
    let after = in_force.reserved;
    let changed = after.filter(|_| after != before);
    changed.map(|reserved| (reserved.bytes / MIB, reserved.carried / MIB))
}

#[test]
fn unused_reservation_protects_no_sibling_while_memory_is_short() {
    let mut in_force = InForce::default();
    let mut at = |event, snapshot| reserved_of(event, snapshot, &mut in_force);
    let short = |current| returned(current * MIB, true);
    let spare = 1000 / 64;
    let first = at(Event::Topmost, short(10));
    let fits = 10 + spare + 1;
    assert_eq!(first, Some((137, fits)), "whole grains");
    let grown = at(Event::Tick, short(12));
    assert_eq!(grown, Some((140, fits)), "only the app's own part grows");
    let larger = at(Event::Tick, short(30)).map(|(_, carried)| carried);
    assert_eq!(larger, Some(30 + spare + 1));
    let all = at(Event::Tick, returned(30 * MIB, false));
    assert!(
        all.is_some_and(|(bytes, carried)| bytes == carried),
        "memory is not short"
    );
    let less = at(Event::Tick, short(30)).map(|(_, carried)| carried);
    assert_eq!(less, Some(30 + spare + 1));
    let other = Snapshot {
        recursive_protection: false,
        ..short(30)
    };
    assert!(at(Event::Tick, other).is_some_and(|(bytes, carried)| bytes == carried));
}

/// Between two full plans, only the app itself is measured.
#[test]
fn reservation_in_force_follows_growth_and_is_never_lowered() {
    let mut in_force = InForce::default();
    reserved_of(Event::Topmost, returned(10 * MIB, true), &mut in_force);
    let before = in_force.reserved.unwrap();
    let followed = |current| {
        let snapshot = Snapshot {
            in_force: in_force.clone(),
            ..returned(current, true)
        };
        match follow(&snapshot) {
            Some(Step::Reserve { reserve, .. }) => Some(reserve),
            _ => None,
        }
    };
    assert_eq!(followed(10 * MIB), None);
    let much = followed(60 * MIB).unwrap();
    let tick = reserved_of(Event::Tick, returned(60 * MIB, true), &mut in_force.clone());
    assert_eq!(tick, Some((much.bytes / MIB, much.carried / MIB)));
    assert!(much.bytes >= before.bytes + 50 * MIB);
    let less = followed(2 * MIB);
    assert_eq!(
        less.map_or(before.bytes, |reserve| reserve.bytes),
        before.bytes
    );

    let mut other = returned(60 * MIB, true);
    other.in_force = in_force.clone();
    if let Some(reserved) = &mut other.in_force.reserved {
        reserved.app = AppKey::Cgroup { inode: 9999 };
    }
    assert_eq!(follow(&other), None, "the reservation is another app's");
}

#[test]
fn withdrawals_come_before_grants() {
    let mut old = viewer(
        Usage {
            current: 64 * MIB,
            ..Usage::default()
        },
        0,
    );
    let mut machine = Machine::default();
    for action in plan(&Event::Topmost, &old) {
        machine.apply(&action, &old);
    }
    old.in_force = machine.in_force;
    let topmost = old.topmost.as_mut().unwrap();
    topmost.app.key = AppKey::Cgroup { inode: 6 };
    topmost.app.home.as_mut().unwrap().inode = 6;
    let actions = plan(&Event::Topmost, &old);
    let at = |which: fn(&Action) -> bool| actions.iter().position(which).unwrap();
    let unreserve = at(|action| matches!(action, Action::Protect(Step::Unreserve { .. })));
    let reserve = at(|action| matches!(action, Action::Protect(Step::Reserve { .. })));
    assert!(unreserve < reserve, "{actions:?}");
}

#[test]
fn limit_of_an_ancestor_leaves_reclaimable_memory() {
    let mut snapshot = viewer(
        Usage {
            current: 99 * MIB,
            ..Usage::default()
        },
        0,
    );
    snapshot.ceiling = Some(100 * MIB);
    assert_eq!(reserve_of(&plan(&Event::Topmost, &snapshot)), 60 * MIB);
}

#[test]
fn joining_process_is_passed_to_the_kernel_but_a_child_is_not() {
    let mut snapshot = viewer(Usage::default(), 0);
    snapshot.device = true;
    let mut machine = Machine::default();
    for action in plan(&Event::Topmost, &snapshot) {
        machine.apply(&action, &snapshot);
    }
    snapshot.in_force = machine.in_force;
    snapshot.topmost.as_mut().unwrap().members.push(process(2));
    let marks = |snapshot: &Snapshot| {
        let actions = plan(&Event::Tick, snapshot);
        actions
            .iter()
            .filter(|action| matches!(action, Action::Mark { .. }))
            .count()
    };
    snapshot.device_members = 2;
    assert_eq!(marks(&snapshot), 0, "a child is already a member");
    snapshot.device_members = 1;
    assert_eq!(marks(&snapshot), 1, "a process came from elsewhere");
}

/// The libraries that both apps map would be unlocked, and perhaps evicted before the new app's scan.
#[test]
fn locks_pass_from_one_foreground_app_to_the_next() {
    let first = viewer(Usage::default(), 0);
    let mut machine = Machine::default();
    for action in plan(&Event::Topmost, &first) {
        machine.apply(&action, &first);
    }
    let mut second = first.clone();
    let topmost = second.topmost.as_mut().unwrap();
    topmost.app.key = AppKey::Cgroup { inode: 99 };
    let next = topmost.app.key;
    second.in_force = machine.in_force.clone();
    let locks = |snapshot: &Snapshot| -> Vec<Option<AppKey>> {
        let actions = plan(&Event::Topmost, snapshot).into_iter();
        let locks = actions.filter_map(|action| match action {
            Action::Protect(Step::Lock { locking }) => Some(Some(locking.app)),
            Action::Protect(Step::Unlock { .. }) => Some(None),
            _ => None,
        });
        locks.collect()
    };
    assert_eq!(locks(&second), [Some(next)]);
    second.topmost = None;
    assert_eq!(locks(&second), [None]);
}

#[test]
fn app_with_a_rule_loses_its_protection_and_other_apps_keep_the_kernel_s() {
    let mut front = viewer(Usage::default(), 0);
    front.device = true;
    let mut machine = Machine::default();
    for action in plan(&Event::Topmost, &front) {
        machine.apply(&action, &front);
    }
    assert!(machine.in_force.reserved.is_some() && machine.in_force.marked.is_some());
    let exception = Exception {
        never: Never::Protect,
        why: "its program /v matches \"/v\" (file:1)".to_owned(),
        by_owner: false,
    };
    front.topmost.as_mut().unwrap().exceptions = [exception].into_iter().collect();
    front.in_force = machine.in_force.clone();
    for action in plan(&Event::Settings, &front) {
        machine.apply(&action, &front);
    }
    let in_force = &machine.in_force;
    assert_eq!((in_force.reserved, &in_force.shielded), (None, &None));
    assert_eq!((&in_force.marked, &in_force.locked), (&None, &None));
    // The kernel keeps its records of the other apps' pages.
    assert!(in_force.device_protect.is_some());
    let notes = protect::notes(&front);
    assert!(
        notes[0].contains("never protected: its program /v"),
        "{notes:?}"
    );
    assert!(notes[0].contains("/dev/limelight"), "{notes:?}");
}
