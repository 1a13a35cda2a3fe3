// SPDX-License-Identifier: GPL-2.0-or-later

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::culprit::Culprits;
use super::order::{avoid_note, candidates, never_killed, pick, spared, Owners};
use super::*;
use crate::model::app::{App, Home, ProcessId};
use crate::model::apps::{AppMemory, Apps, Found, Use};
use crate::model::class::{Class, Reasoned};
use crate::model::never::{Avoid, Exception, Exceptions, Never};
use crate::model::protected::PREVIOUS_FOR;
use crate::model::shortage::{derive_thresholds, Gauge, Shortage, Situation};
use crate::model::snapshot::{Knob, Measured, Reserved, ReservedDisplay};
use crate::model::storage::{Area, Medium, Storage};

pub(super) const MIB: u64 = 1 << 20;
/// A time at which no app counts as starting.
const LATER: Duration = Duration::MAX;
pub(super) const S: fn(u64) -> Duration = Duration::from_secs;

/// A situation without available memory and without free swap.
pub(super) fn situation(level: Level, at: Duration) -> Situation {
    Situation {
        level,
        at,
        total: 256 * MIB,
        ..Situation::default()
    }
}

pub(super) fn key(number: u64) -> AppKey {
    AppKey::Cgroup { inode: number }
}

/// These apps of [`snapshot`], as apps that are exempt now.
pub(super) fn exempted(numbers: &[u64]) -> Vec<Exempted> {
    let one = |number: &u64| Exempted {
        app: key(*number),
        path: home(*number),
    };
    numbers.iter().map(one).collect()
}

/// Path of the cgroup of an app in [`snapshot`].
pub(super) fn home(number: u64) -> String {
    format!("/app.slice/app-{number}.scope")
}

#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) class: Class,
    pub(super) used: u64,
    pub(super) mib: u64,
    pub(super) swapped: u64,
    pub(super) grown: u64,
    pub(super) in_use: bool,
    pub(super) avoid: bool,
    pub(super) untouchable: bool,
    pub(super) own: bool,
}

pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let class = prop_oneof![
        Just(Class::Keep),
        Just(Class::Normal),
        Just(Class::Disposable)
    ];
    let flags = (any::<bool>(), any::<bool>(), 0u8..8, 0u8..8);
    (class, 0u64..900, 1u64..60, 0u64..40, flags).prop_map(
        |(class, used, mib, grown, (in_use, avoid, untouchable, own))| Spec {
            class,
            used,
            mib,
            swapped: 0,
            grown: if grown < 30 { 0 } else { grown },
            in_use,
            avoid,
            untouchable: untouchable == 0,
            own: own > 0,
        },
    )
}

fn found(number: u64, spec: &Spec, mib: u64) -> Found {
    let app = App {
        key: key(number),
        name: format!("app{number}"),
        process: Some(ProcessId {
            pid: number as i32,
            starttime: 1,
        }),
        home: Some(Home {
            path: home(number),
            inode: number,
            own: spec.own,
            adopted: false,
        }),
    };
    Found {
        started: Duration::MAX,
        class: Reasoned {
            class: spec.class,
            why: String::new(),
        },
        uses: spec.in_use.then_some(Use::Audio).into_iter().collect(),
        avoid: spec.avoid.then(|| avoid(false)),
        untouchable: spec
            .untouchable
            .then(|| "it holds the compositor".to_owned()),
        memory: AppMemory {
            resident: mib * MIB,
            anonymous: mib * MIB,
            swapped: spec.swapped * MIB,
        },
        ..Found::new(app, 1000)
    }
}

/// A wish that an app be closed last of its class.
fn avoid(by_owner: bool) -> Avoid {
    Avoid {
        why: "its unit has ManagedOOMPreference=avoid".to_owned(),
        by_owner,
    }
}

/// A machine of 256 MiB, 1000 s after boot. `available`: available memory in MiB; `swap`: free swap
/// in MiB.
pub(super) fn snapshot(specs: &[Spec], available: u64, swap: u64) -> Snapshot {
    reading_back(specs, available, swap, 0)
}

/// MiB to read back in a second, so that the working sets do not count as fitting in memory.
const BACK: u64 = 20;

/// [`snapshot`] of a machine that has read back `back` MiB from swap in the last second.
fn reading_back(specs: &[Spec], available: u64, swap: u64, back: u64) -> Snapshot {
    let mut apps = Apps::default();
    for (number, spec) in specs.iter().enumerate() {
        apps.was_topmost(key(number as u64), S(spec.used));
    }
    for at in [998, 999] {
        let all = specs.iter().enumerate();
        let grown = |spec: &Spec| if at == 999 { spec.grown } else { 0 };
        let all = all.map(|(number, spec)| found(number as u64, spec, spec.mib + grown(spec)));
        apps.observe(all.collect(), S(at));
    }
    let mut shortage = Shortage::new(derive_thresholds(256 * MIB, 0));
    let gauge = Gauge {
        at: S(999),
        available: available * MIB,
        swap_free: swap * MIB,
        swap_total: 128 * MIB,
        ..Gauge::default()
    };
    // Tasks stall, so reclaim does not keep up.
    let later = Gauge {
        at: S(1000),
        full: Duration::from_millis(500),
        swapped_in: (back * MIB) >> 12,
        ..gauge
    };
    for gauge in [gauge, later] {
        shortage.observe(gauge);
    }
    let mut snapshot = Snapshot {
        apps: apps.by_use().into_iter().cloned().collect(),
        shortage,
        storage: Storage {
            areas: vec![Area {
                medium: Medium::Flash,
                size: 128 * MIB,
                used: (128 - swap.min(128)) * MIB,
            }],
            ..Storage::default()
        },
        ..Snapshot::default()
    };
    snapshot.memory.total = 256 * MIB;
    snapshot.memory.available = available * MIB;
    snapshot.memory.free = available * MIB / 2;
    snapshot
}

pub(super) fn one(class: Class, used: u64) -> Spec {
    Spec {
        class,
        used,
        mib: 20,
        swapped: 0,
        grown: 0,
        in_use: false,
        avoid: false,
        untouchable: false,
        own: true,
    }
}

pub(super) fn with_topmost(mut snapshot: Snapshot, number: u64) -> Snapshot {
    let known = snapshot.apps.iter().find(|k| k.key() == key(number));
    snapshot.topmost = known.map(|known| Measured {
        app: known.found.app.clone(),
        members: Vec::new(),
        footprint: None,
        terminal: None,
        exceptions: Exceptions::default(),
    });
    snapshot
}

fn order_of(snapshot: &Snapshot) -> Vec<AppKey> {
    candidates(snapshot).iter().map(|one| one.app).collect()
}

#[test]
fn disposable_apps_are_killed_first_then_normal_and_keep_never() {
    let apps = [
        one(Class::Keep, 1),
        one(Class::Normal, 2),
        one(Class::Disposable, 20),
        one(Class::Normal, 4),
        one(Class::Disposable, 10),
    ];
    let snapshot = snapshot(&apps, 5, 100);
    assert_eq!(order_of(&snapshot), [4, 2, 1, 3].map(key));
}

#[test]
fn app_in_use_is_killed_last_of_its_class() {
    let mut apps = [one(Class::Disposable, 1), one(Class::Disposable, 2)];
    apps[0].in_use = true;
    let all = candidates(&snapshot(&apps, 5, 100));
    assert_eq!([all[0].app, all[1].app], [1, 0].map(key));
    let held: Vec<u64> = all.iter().map(|one| one.held).collect();
    assert_eq!(
        pick(&all[1..], &held[1..], &situation(Level::Kill, LATER)),
        None
    );
    assert_eq!(
        pick(&all[1..], &held[1..], &situation(Level::Exhausted, LATER)),
        Some(0)
    );
}

#[test]
fn only_apps_of_the_user_who_takes_the_memory_are_killed() {
    let mut apps = [
        one(Class::Normal, 1),
        one(Class::Normal, 2),
        one(Class::Normal, 3),
        one(Class::Disposable, 4),
        one(Class::Normal, 5),
    ];
    // Each app grows by less than a leak, both together by more.
    apps[2].grown = 10;
    apps[4].grown = 10;
    let owned = |apps: &[Spec], uids: [u32; 5]| {
        let mut snapshot = snapshot(apps, 5, 100);
        for known in &mut snapshot.apps {
            let AppKey::Cgroup { inode } = known.key() else {
                panic!("{known:?}");
            };
            known.found.uid = uids[inode as usize];
        }
        snapshot
    };
    let order = |apps: &[Spec], uids| order_of(&owned(apps, uids));
    let two = [1000, 1001, 1001, 1000, 1001];
    assert_eq!(order(&apps, two), [1, 2, 4].map(key));
    assert_eq!(order(&apps, [1000; 5]), [3, 0, 1, 2, 4].map(key));
    apps[1].in_use = true;
    assert_eq!(order(&apps, two), [2, 4, 1].map(key));
    // Another user's apps grow as much.
    apps[0].grown = 20;
    assert_eq!(order(&apps, two), [0, 3, 2, 4, 1].map(key));
    apps[0].grown = 10;
    apps[4].grown = 0;
    apps[1].in_use = false;
    assert_eq!(order(&apps, two), [3, 0, 1, 2, 4].map(key));
}

#[test]
fn leaking_app_is_killed_first_unless_its_class_is_keep() {
    let mut apps = [
        one(Class::Disposable, 1),
        one(Class::Normal, 2),
        one(Class::Keep, 3),
    ];
    apps[1].grown = 30;
    apps[2].grown = 30;
    assert_eq!(order_of(&snapshot(&apps, 5, 100)), [1, 0].map(key));
}

#[test]
fn app_that_grew_since_the_order_was_made_is_killed_first() {
    let apps = [one(Class::Disposable, 1), one(Class::Normal, 2)];
    let all = candidates(&snapshot(&apps, 5, 100));
    let held = [20 * MIB, 60 * MIB];
    assert_eq!(pick(&all, &held, &situation(Level::Kill, LATER)), Some(1));
    assert_eq!(pick(&all, &held, &situation(Level::Low, LATER)), Some(1));
    assert_eq!(pick(&all, &held, &situation(Level::Swap, LATER)), None);
}

/// On a machine of 256 MiB, growth above 12.8 MiB is a leak: for example 7 MiB before and 7 MiB
/// after the last scan.
#[test]
fn leak_is_detected_independently_of_the_sampling_phase() {
    let mut apps = [one(Class::Disposable, 1), one(Class::Normal, 2)];
    apps[1].grown = 7;
    let all = candidates(&snapshot(&apps, 5, 100));
    let picked = |more: u64| {
        let held = [all[0].held, all[1].held + more * MIB];
        pick(&all, &held, &situation(Level::Kill, LATER))
    };
    assert!(!all[1].leaks);
    assert_eq!(all[1].held - all[1].least, 7 * MIB);
    assert_eq!(picked(0), Some(0), "the app has stopped growing");
    assert_eq!(picked(5), Some(0));
    assert_eq!(picked(7), Some(1));
}

#[test]
fn app_that_stopped_growing_does_not_leak() {
    let mut apps = [one(Class::Disposable, 1), one(Class::Normal, 2)];
    apps[1].grown = 12;
    let all = candidates(&snapshot(&apps, 5, 100));
    let held = [all[0].held, all[1].held + MIB];
    assert_eq!(pick(&all, &held, &situation(Level::Kill, LATER)), Some(0));
}

#[test]
fn starting_app_may_grow_while_reclaim_keeps_up() {
    let apps = [one(Class::Disposable, 1), one(Class::Normal, 2)];
    let mut all = candidates(&snapshot(&apps, 5, 100));
    all[1].starts_until = S(20);
    all[1].leaks = true;
    let held = [0, 60 * MIB];
    let picked = |level, at| pick(&all, &held, &situation(level, at));
    assert_eq!(picked(Level::Low, S(19)), None);
    assert_eq!(picked(Level::Low, S(20)), Some(1));
    assert_eq!(picked(Level::Crowded, S(19)), Some(1));
}

#[test]
fn disposable_apps_and_apps_beyond_the_room_in_swap_are_exempt() {
    let apps = [
        one(Class::Normal, 1),
        one(Class::Keep, 2),
        one(Class::Disposable, 3),
        one(Class::Normal, 4),
    ];
    let mut machine = snapshot(&apps, 100, 128);
    machine.storage.areas[0].size = 50 * MIB;
    let exempt: Vec<AppKey> = eligible::exempt(&machine)
        .map(|(known, _)| known.key())
        .collect();
    assert_eq!(exempt, [2, 3].map(key));
    machine.in_force.swapping.exempt = exempted(&[0, 3]);
    let steps = withdraw(&Event::Tick, &machine);
    assert_eq!(steps, [Step::Admit { app: key(0) }]);
    machine.storage.areas.clear();
    assert_eq!(eligible::exempt(&machine).count(), 0, "there is no swap");
}

#[test]
fn no_exemption_for_foreground_or_very_large_apps_or_in_a_severe_shortage() {
    let mut apps = [one(Class::Normal, 1), one(Class::Normal, 2)];
    apps[1].mib = 200;
    let mut machine = with_topmost(snapshot(&apps, 100, 128), 1);
    machine.storage.areas[0].size = 30 * MIB;
    assert_eq!(eligible::exempt(&machine).count(), 0, "it is topmost");
    machine.topmost = None;
    assert_eq!(
        eligible::exempt(&machine).count(),
        0,
        "the app takes most of the memory"
    );
    apps[1].mib = 60;
    let mut machine = snapshot(&apps, 100, 128);
    machine.storage.areas[0].size = 30 * MIB;
    assert_eq!(eligible::exempt(&machine).count(), 1);
    let mut short = snapshot(&apps, 5, 0);
    assert_eq!(eligible::exempt(&short).count(), 0);
    // The level changes often while a shortage lasts, so no app is exempt again at once.
    let plenty = |at, swapped_out| Gauge {
        at: S(at),
        available: 200 * MIB,
        swap_free: 100 * MIB,
        swap_total: 128 * MIB,
        full: Duration::from_millis(500),
        swapped_out,
        ..Gauge::default()
    };
    assert_eq!(short.shortage.observe(plenty(1001, 0)), Level::Plenty);
    short.storage = machine.storage.clone();
    short.at = S(1004);
    assert_eq!(eligible::exempt(&short).count(), 0);
    short.at = S(1006);
    assert_eq!(eligible::exempt(&short).count(), 1);
}

#[test]
fn apps_are_swapped_before_memory_is_so_short_that_apps_are_killed() {
    let mut apps = [one(Class::Normal, 1), one(Class::Normal, 2)];
    apps[1].mib = 60;
    let mut machine = snapshot(&apps, 100, 128);
    machine.storage.areas[0].size = 30 * MIB;
    assert_eq!(eligible::exempt(&machine).count(), 1);
    machine.shortage.set_swappable(100 * MIB, 0);
    let low = Gauge {
        at: S(1002),
        available: 5 * MIB,
        swap_free: 100 * MIB,
        swap_total: 128 * MIB,
        full: Duration::from_millis(500),
        ..Gauge::default()
    };
    assert_eq!(machine.shortage.observe(low), Level::Low);
    machine.at = S(1002);
    assert_eq!(eligible::exempt(&machine).count(), 0);
}

#[test]
fn least_recently_used_app_is_squeezed_only_when_memory_gets_short() {
    let apps = [
        one(Class::Disposable, 1),
        one(Class::Normal, 2),
        one(Class::Keep, 3),
    ];
    let squeezed = |machine: &Snapshot| {
        grant(&Event::Tick, machine)
            .into_iter()
            .find_map(|step| match step {
                Step::Squeeze { app, bytes, .. } => Some((app, bytes)),
                _ => None,
            })
    };
    // Below the threshold `swap`, but no app has anything to read back.
    for available in [100, 20] {
        let mut machine = reading_back(&apps, available, 128, BACK);
        machine.settled = true;
        assert_eq!(squeezed(&machine), None, "{available}");
    }
    let mut machine = reading_back(&apps, 20, 128, BACK);
    machine.settled = true;
    machine.settings.swap.swap_percent = 10;
    assert!(squeezed(&machine).is_some(), "the owner has set it");
    let mut machine = reading_back(&apps, 10, 128, BACK);
    machine.settled = true;
    assert_eq!(squeezed(&machine), Some((key(1), 8 * MIB)));
    machine.in_force.swapping.squeezed = vec![(key(1), S(999))];
    assert_eq!(squeezed(&machine).unwrap().0, key(2));
    machine.in_force.swapping.squeezing = Some(key(1));
    assert_eq!(squeezed(&machine), None);
}

#[test]
fn pages_outside_the_working_sets_are_squeezed_first() {
    let apps = [one(Class::Normal, 1), one(Class::Keep, 2)];
    let mut machine = reading_back(&apps, 10, 128, BACK);
    machine.settled = true;
    assert_eq!(squeezed(&machine), Some((key(0), false)));
    machine.in_force.swapping.lean = vec![key(0)];
    assert_eq!(squeezed(&machine), Some((key(1), false)));
    machine.in_force.swapping.lean = vec![key(0), key(1)];
    assert_eq!(squeezed(&machine), Some((key(0), true)));
}

/// The app that is squeezed, and whether its working set is squeezed too.
fn squeezed(machine: &Snapshot) -> Option<(AppKey, bool)> {
    let mut steps = grant(&Event::Tick, machine).into_iter();
    steps.find_map(|step| match step {
        Step::Squeeze { app, dry, .. } => Some((app, dry)),
        _ => None,
    })
}

#[test]
fn working_sets_that_fit_are_left_alone() {
    let apps = [one(Class::Normal, 1), one(Class::Keep, 2)];
    let mut machine = reading_back(&apps, 10, 128, BACK / 2);
    machine.settled = true;
    assert_eq!(squeezed(&machine), None, "no working set is known");
    machine.in_force.swapping.working_sets = vec![(key(1), 4 * MIB)];
    assert_eq!(squeezed(&machine), Some((key(1), false)));
    // The last squeeze's pages are on the disk, but no reclaim has dropped them yet.
    let mut written = machine.clone();
    written.unmapped_swap_cache = 16 * MIB;
    assert_eq!(squeezed(&written), None);
    machine.in_force.swapping.lean = vec![key(1)];
    assert_eq!(squeezed(&machine), None);
    let mut short = snapshot(&apps, 5, 128);
    short.settled = true;
    assert!(squeezed(&short).is_some(), "memory is short");
}

#[test]
fn room_for_the_next_launch_is_made_while_the_user_is_not_waiting() {
    let mut apps = [one(Class::Normal, 1), one(Class::Keep, 2)];
    apps[1].mib = 45;
    apps[1].swapped = 40;
    let squeezed = |machine: &Snapshot| {
        let mut steps = grant(&Event::Tick, machine).into_iter();
        steps.find_map(|step| match step {
            Step::Squeeze { bytes, .. } => Some(bytes),
            _ => None,
        })
    };
    let machine = |available: u64| reading_back(&apps, available, 128, BACK);
    let mut near = machine(35);
    assert_eq!(squeezed(&near), None, "the user waits");
    near.settled = true;
    assert_eq!(squeezed(&near), Some(8 * MIB));
    // Of 128 MiB of swap, 25.6 stay free for a shortage: four times the threshold `kill`.
    for (used, mib) in [(90, Some(8)), (99, Some(3)), (102, None)] {
        near.storage.areas[0].used = used * MIB;
        let squeezed = squeezed(&near).map(|bytes| bytes / MIB);
        assert_eq!(squeezed, mib, "{used} MiB of swap are used");
    }
    near.storage.areas.clear();
    assert_eq!(squeezed(&near), None, "there is no swap");
    let mut plenty = machine(45);
    plenty.settled = true;
    assert_eq!(squeezed(&plenty), None);
}

#[test]
fn next_launch_needs_room_only_for_the_part_of_a_working_set_that_is_not_in_memory() {
    let mut apps = [one(Class::Normal, 1), one(Class::Keep, 2)];
    apps[1].swapped = 40;
    let mut machine = reading_back(&apps, 35, 128, BACK);
    machine.settled = true;
    assert!(squeezed(&machine).is_some(), "40 MiB may be read back");
    // The app has 20 MiB in memory.
    for (set, squeezes) in [(16, false), (50, false), (60, true)] {
        machine.in_force.swapping.working_sets = vec![(key(1), set * MIB)];
        assert_eq!(squeezed(&machine).is_some(), squeezes, "{set}");
    }
}

/// The room would be taken before the launch, and each idle app would lose its working set for it.
#[test]
fn no_room_is_made_for_the_next_launch_while_an_app_grows_in_the_background() {
    let squeezed = |grown: u64, available: u64| {
        let mut apps = [one(Class::Normal, 1), one(Class::Keep, 2)];
        apps[0].swapped = 40;
        apps[1].grown = grown;
        let mut machine = reading_back(&apps, available, 128, BACK);
        machine.settled = true;
        let mut steps = grant(&Event::Tick, &machine).into_iter();
        steps.find_map(|step| match step {
            Step::Squeeze { bytes, rule, .. } => Some((bytes / MIB, rule)),
            _ => None,
        })
    };
    let (bytes, rule) = squeezed(0, 35).unwrap();
    assert_eq!(bytes, 8);
    assert!(rule.starts_with("the next launch needs room"), "{rule}");
    assert_eq!(squeezed(20, 35), None);
    assert_eq!(squeezed(20, 20), None, "the kernel reclaims for it");
    // Apps would have to be closed soon.
    let (_, rule) = squeezed(20, 10).unwrap();
    assert!(
        rule.starts_with("an app in the background takes memory"),
        "{rule}"
    );
}

#[test]
fn app_is_frozen_only_without_a_cheaper_victim_and_thaws_when_topmost() {
    let freezes = |machine: &Snapshot| {
        grant(&Event::Tick, machine)
            .into_iter()
            .any(|step| matches!(step, Step::Freeze { .. }))
    };
    let cheap = [one(Class::Normal, 1), one(Class::Disposable, 2)];
    assert!(!freezes(&snapshot(&cheap, 5, 100)));
    let dear = [one(Class::Normal, 1), one(Class::Keep, 2)];
    assert!(!freezes(&snapshot(&dear, 20, 100)));
    let mut machine = snapshot(&dear, 5, 100);
    assert!(freezes(&machine));
    machine.in_force.swapping.frozen = vec![(key(0), S(999))];
    assert_eq!(withdraw(&Event::Tick, &machine), []);
    let front = with_topmost(machine.clone(), 0);
    let thawed = withdraw(&Event::Topmost, &front);
    assert!(matches!(&thawed[..], [Step::Thaw { .. }]), "{thawed:?}");
    assert_eq!(withdraw(&Event::Stop, &machine).len(), 1);
}

/// A frozen app that is not squeezed frees nothing.
#[test]
fn only_an_app_that_is_squeezed_at_once_is_frozen() {
    let frozen = |machine: &Snapshot| {
        let steps = grant(&Event::Tick, machine).into_iter();
        let mut frozen = steps.filter_map(|step| match step {
            Step::Freeze { app, .. } => Some(app),
            _ => None,
        });
        frozen.next()
    };
    let small = Spec {
        mib: 0,
        ..one(Class::Normal, 1)
    };
    let mut machine = snapshot(&[small, one(Class::Keep, 2)], 5, 100);
    assert_eq!(
        frozen(&machine),
        Some(key(1)),
        "the first one has no memory"
    );
    machine.in_force.swapping.squeezing = Some(key(1));
    assert_eq!(frozen(&machine), None);
    machine.in_force.swapping.squeezing = None;
    machine.storage.areas[0].used = machine.storage.areas[0].size;
    assert_eq!(frozen(&machine), None, "swap is full");
}

#[test]
fn app_is_frozen_beside_a_cheaper_one_if_no_app_may_be_killed() {
    let apps = [one(Class::Normal, 1), one(Class::Disposable, 2)];
    let mut machine = snapshot(&apps, 5, 100);
    machine.settings.swap.kill = false;
    let steps = grant(&Event::Tick, &machine);
    let frozen = |step: &Step| matches!(step, Step::Freeze { app, .. } if *app == key(0));
    assert!(steps.iter().any(frozen), "{steps:?}");
}

#[test]
fn working_sets_are_kept_as_far_as_there_is_room() {
    let sized = |class, mib| Spec {
        mib,
        ..one(class, mib)
    };
    let apps = [
        sized(Class::Normal, 36),
        sized(Class::Keep, 30),
        sized(Class::Keep, 96),
        sized(Class::Normal, 48),
    ];
    let mut machine = snapshot(&apps, 100, 100);
    machine.storage.areas[0].size = 1024 * MIB;
    let exempt = |machine: &Snapshot| {
        let exempt = eligible::exempt(machine).map(|(known, _)| known.key());
        exempt.collect::<BTreeSet<AppKey>>()
    };
    assert!(exempt(&machine).is_empty(), "no working set is known");
    machine.in_force.swapping.working_sets = (0..4).map(|at| (key(at), 40 * MIB)).collect();
    // A third of 256 MiB.
    assert_eq!(exempt(&machine), [0, 1].map(key).into());
    machine.in_force.swapping.exempt = exempted(&[1, 3]);
    assert_eq!(
        exempt(&machine),
        [1, 3].map(key).into(),
        "the same apps stay exempt"
    );
    let mut front = with_topmost(machine.clone(), 3);
    assert_eq!(exempt(&front), [1].map(key).into(), "it may grow");
    front.in_force.swapping.exempt = exempted(&[1]);
    front.in_force.swapping.lifted = Some(key(3));
    assert_eq!(exempt(&front), [1].map(key).into(), "its place is kept");
    front.topmost = None;
    assert_eq!(exempt(&front), [1, 3].map(key).into());
    let mut crammed = machine.clone();
    crammed.storage.compressed.taken = 160 * MIB;
    assert_eq!(exempt(&crammed), [1].map(key).into(), "zram takes the rest");
    let grown = machine.apps.iter_mut().find(|known| known.key() == key(1));
    grown.unwrap().found.memory.anonymous = 64 * MIB;
    assert_eq!(exempt(&machine), [0, 3].map(key).into(), "it has grown");
    machine.shortage = snapshot(&apps, 5, 100).shortage;
    assert!(exempt(&machine).is_empty());
}

/// An index in the background takes memory while two idle apps keep their working sets.
#[test]
fn working_sets_give_way_to_an_app_that_grows_in_the_background() {
    let kept = |grown: u64, front: bool| {
        let index = Spec {
            grown,
            ..one(Class::Normal, 9)
        };
        let apps = [one(Class::Keep, 1), one(Class::Keep, 2), index];
        let mut machine = snapshot(&apps, 100, 100);
        machine.storage.areas[0].size = 1024 * MIB;
        machine.in_force.swapping.working_sets = (0..2).map(|at| (key(at), 20 * MIB)).collect();
        if front {
            machine = with_topmost(machine, 2);
        }
        zram_takes(&mut machine, 128);
        eligible::exempt(&machine).count()
    };
    // Of the 128 MiB that zram leaves, 112 may be kept.
    assert_eq!(kept(0, false), 2);
    assert_eq!(kept(72, false), 2);
    assert_eq!(kept(80, false), 1);
    assert_eq!(kept(100, false), 0);
    assert_eq!(
        kept(100, true),
        2,
        "a reservation covers the foreground app"
    );
}

fn reserved_for(number: u64, mib: u64) -> Reserved {
    Reserved {
        app: key(number),
        knob: Knob::Min,
        bytes: mib * MIB,
        carried: mib * MIB,
    }
}

/// zram takes `mib` of the 256 MiB that apps can get.
fn zram_takes(machine: &mut Snapshot, mib: u64) {
    machine.storage.compressed.taken = mib * MIB;
    machine.memory.reachable = 256 * MIB;
    machine.memory.compressed = mib * MIB;
}

#[test]
fn reserved_app_does_not_count_twice() {
    let apps = [one(Class::Keep, 1), one(Class::Keep, 2)];
    let mut machine = with_topmost(snapshot(&apps, 100, 100), 1);
    machine.storage.areas[0].size = 1024 * MIB;
    machine.in_force.swapping.working_sets = (0..2).map(|at| (key(at), 20 * MIB)).collect();
    machine.in_force.swapping.lifted = Some(key(1));
    zram_takes(&mut machine, 128);
    // 112 MiB may be kept: 80 are reserved for the foreground app, and 20 are left for the other.
    machine.in_force.reserved = Some(reserved_for(1, 80));
    let exempt = |machine: &Snapshot| {
        let exempt = eligible::exempt(machine).map(|(known, _)| known.key());
        exempt.collect::<Vec<AppKey>>()
    };
    assert_eq!(exempt(&machine), [key(0)]);
    // In the plan for the next foreground app, the reservation is still the former one's. It will
    // move to the next app, and the former one keeps its memory.
    machine.in_force.reserved.as_mut().unwrap().app = key(0);
    assert_eq!(exempt(&machine), [] as [AppKey; 0]);
}

#[test]
fn exempt_apps_and_reservations_leave_memory_to_reclaim() {
    let apps = [one(Class::Keep, 1), one(Class::Keep, 2)];
    let mut machine = snapshot(&apps, 100, 100);
    machine.storage.areas[0].size = 1024 * MIB;
    machine.in_force.swapping.working_sets = (0..2).map(|at| (key(at), 20 * MIB)).collect();
    // Two kept working sets of 20 MiB. Of the 128 MiB that zram leaves, 16 are to stay evictable.
    zram_takes(&mut machine, 128);
    let exempt = |machine: &Snapshot, app_mib: u64, display_mib: u64| {
        let mut machine = machine.clone();
        machine.in_force.reserved = Some(reserved_for(9, app_mib));
        machine.in_force.reserved_display = Some(ReservedDisplay {
            app: key(9),
            inode: 1,
            bytes: display_mib * MIB,
        });
        eligible::exempt(&machine).count()
    };
    assert_eq!(exempt(&machine, 10, 10), 2);
    assert_eq!(exempt(&machine, 70, 10), 1);
    assert_eq!(exempt(&machine, 70, 30), 0);
    // What others reserved counts, too.
    machine.protected_by_others = 20 * MIB;
    assert_eq!(exempt(&machine, 70, 0), 1);
    machine.protected_by_others = 0;
    // Disposable apps get what kept working sets leave, but by SWAP's rule and where swap is on
    // flash, none is swapped.
    for known in &mut machine.apps {
        known.found.class.class = Class::Disposable;
    }
    assert_eq!(exempt(&machine, 70, 30), 2);
    machine.storage.areas[0].medium = Medium::Zram;
    assert_eq!(exempt(&machine, 10, 10), 2);
    assert_eq!(exempt(&machine, 70, 10), 1);
    machine.settings.swap.by_cost = false;
    assert_eq!(exempt(&machine, 70, 30), 2);
}

proptest! {
    /// With zram, reservations and exempt apps together leave memory to reclaim, whatever the apps'
    /// classes and sizes, unless the reservations alone exceed the limit.
    #[test]
    fn reclaim_always_finds_memory_with_zram(
        sizes in prop::collection::vec((1u64..60, 0usize..3, any::<bool>()), 1..12),
        reserved in 0u64..160,
        stored in 0u64..160,
        swap in 0u64..128,
    ) {
        let classes = [Class::Disposable, Class::Normal, Class::Keep];
        let apps: Vec<Spec> = sizes.iter().zip(1..).map(|((mib, class, _), used)| {
            Spec { mib: *mib, ..one(classes[*class], used) }
        }).collect();
        let mut machine = snapshot(&apps, 100, swap);
        machine.storage.areas[0].medium = Medium::Zram;
        zram_takes(&mut machine, stored);
        let known_sets = sizes.iter().zip(0..).filter(|((_, _, known), _)| *known);
        machine.in_force.swapping.working_sets =
            known_sets.map(|((mib, _, _), number)| (key(number), mib * MIB)).collect();
        machine.in_force.reserved = Some(reserved_for(99, reserved));
        let exempt = eligible::exempt(&machine);
        let kept: u64 = exempt.map(|(known, _)| known.found.memory.anonymous).sum();
        let most = machine.keepable().max(reserved * MIB);
        prop_assert!(kept + reserved * MIB <= most, "{} MiB kept", kept / MIB);
    }
}

#[test]
fn returning_app_gets_its_memory_back_once() {
    let apps = [one(Class::Normal, 1), one(Class::Normal, 2)];
    let mut machine = with_topmost(snapshot(&apps, 100, 100), 0);
    let back = Step::Return {
        app: key(0),
        members: Vec::new(),
        most: 50 * MIB,
    };
    assert_eq!(receive(&Event::Topmost, &machine), [back]);
    assert_eq!(receive(&Event::Stop, &machine), []);
    machine.in_force.swapping.returned = Some(key(0));
    assert_eq!(receive(&Event::Topmost, &machine), []);
}

#[test]
fn disposable_foreground_app_is_exempt_before_all_other_steps() {
    let apps = [one(Class::Disposable, 1), one(Class::Disposable, 2)];
    let machine = with_topmost(snapshot(&apps, 100, 100), 0);
    let exempts = |steps: Vec<Step>| -> Vec<AppKey> {
        let app = |step: &Step| match step {
            Step::Exempt { app, .. } => Some(*app),
            _ => None,
        };
        steps.iter().filter_map(app).collect()
    };
    assert_eq!(exempts(receive(&Event::Topmost, &machine)), [key(0)]);
    assert_eq!(exempts(grant(&Event::Topmost, &machine)), [key(1)]);
}

#[test]
fn disposable_and_foreground_apps_are_not_swappable() {
    let mut apps = [1, 2, 3].map(|used| one(Class::Normal, used));
    apps[0].class = Class::Disposable;
    for (app, mib) in apps.iter_mut().zip([10, 20, 40]) {
        app.mib = mib;
    }
    let mut machine = with_topmost(snapshot(&apps, 5, 100), 2);
    assert_eq!(swappable(&machine), 30 * MIB);
    machine.in_force.swapping.exempt = exempted(&[0]);
    assert_eq!(swappable(&machine), 20 * MIB);
    // The exemption of a normal app ends before an app is killed for it.
    machine.in_force.swapping.exempt = exempted(&[0, 1]);
    assert_eq!(swappable(&machine), 20 * MIB);
    // The exemption of an app that keeps its working set ends only when apps are killed.
    machine.in_force.swapping.working_sets = vec![(key(1), 20 * MIB)];
    machine.shortage = snapshot(&apps, 100, 100).shortage;
    assert_eq!(swappable(&machine), 0);
    machine.storage.areas.clear();
    assert_eq!(swappable(&machine), 0);
}

/// A machine that is short of memory. Its foreground app (1) grew by 30 MiB, the other app by
/// `other` MiB.
fn greedy_front(other: u64) -> Snapshot {
    let mut apps = [one(Class::Normal, 1), one(Class::Normal, 2)];
    apps[0].grown = other;
    apps[1].grown = 30;
    let mut machine = with_topmost(snapshot(&apps, 20, 100), 1);
    for known in &mut machine.apps {
        known.found.started = S(1);
    }
    machine.settled = true;
    machine
}

fn warns(machine: &Snapshot) -> bool {
    let steps = grant(&Event::Tick, machine);
    let warned = |step: &Step| matches!(step, Step::Warn { app, .. } if *app == key(1));
    steps.iter().any(warned)
}

#[test]
fn leak_in_the_foreground_leads_to_a_warning_and_a_squeeze() {
    let machine = greedy_front(0);
    assert!(warns(&machine));
    let steps = grant(&Event::Tick, &machine);
    let rule = steps.iter().find_map(|step| match step {
        Step::Squeeze { app, rule, .. } if *app == key(0) => Some(rule.as_str()),
        _ => None,
    });
    let rule = rule.unwrap_or_default();
    assert!(
        rule.starts_with("the foreground app takes memory"),
        "{steps:?}"
    );
    // Swap keeps room for a shortage.
    let mut full = machine;
    full.storage.areas[0].used = full.storage.areas[0].size - 20 * MIB;
    let steps = grant(&Event::Tick, &full);
    let squeezes = |step: &Step| matches!(step, Step::Squeeze { .. });
    assert!(!steps.iter().any(squeezes), "{steps:?}");
}

#[test]
fn warning_is_sent_while_the_foreground_app_takes_the_memory() {
    // The other app grew most and may be closed, so the user is not warned.
    let machine = greedy_front(50);
    assert_eq!(culprit::find(&machine), None);
    assert!(!warns(&machine));
    // A starting app may grow.
    let mut machine = greedy_front(0);
    machine.apps[1].found.started = S(995);
    assert_eq!(culprit::find(&machine), None);
    assert!(warns(&machine), "it takes the memory all the same");
    // No memory is left, so the app cannot grow any more.
    let mut machine = greedy_front(0);
    let front = machine.apps.iter().position(|known| known.key() == key(1));
    let known = &machine.apps[front.unwrap()];
    let mut apps = Apps::default();
    apps.was_topmost(key(1), S(2));
    for (at, mib) in [(990, 0), (998, 0), (999, 30), (1000, 30)] {
        let mut found = known.found.clone();
        found.memory.anonymous -= (30 - mib) * MIB;
        apps.observe(vec![found], S(at));
    }
    machine.apps[front.unwrap()] = apps.by_use()[0].clone();
    assert_eq!(machine.apps[front.unwrap()].grown(), 0);
    assert_eq!(culprit::find(&machine), Some(culprit::Culprit::Foreground));
    assert!(warns(&machine));
}

#[test]
fn listeners_are_notified_when_the_level_changes() {
    let mut machine = snapshot(&[one(Class::Disposable, 1)], 5, 100);
    let asks = |machine: &Snapshot| {
        grant(&Event::Tick, machine)
            .into_iter()
            .find(|step| matches!(step, Step::Ask { .. }))
    };
    let ask = Step::Ask {
        level: Level::Kill,
        next: Some(key(0)),
    };
    assert_eq!(asks(&machine), Some(ask.clone()));
    machine.in_force.swapping.asked = Some((Level::Kill, S(995)));
    assert_eq!(asks(&machine), None);
    machine.in_force.swapping.asked = Some((Level::Kill, S(985)));
    assert_eq!(asks(&machine), Some(ask));
    // The level has changed, but no further notice is sent within 10 s.
    machine.in_force.swapping.asked = Some((Level::Crowded, S(995)));
    assert_eq!(asks(&machine), None);
}

#[test]
fn end_of_a_shortage_is_notified_after_a_calm_time() {
    let mut machine = snapshot(&[one(Class::Disposable, 1)], 200, 100);
    machine.in_force.swapping.asked = Some((Level::Kill, S(900)));
    let asks = |machine: &Snapshot| ask(machine).is_some();
    assert!(asks(&machine), "there was plenty of memory from the start");
    let short = snapshot(&[], 5, 100).shortage;
    machine.shortage = short;
    let gauge = |at| Gauge {
        at: S(at),
        available: 200 * MIB,
        swap_free: 100 * MIB,
        swap_total: 128 * MIB,
        ..Gauge::default()
    };
    machine.shortage.observe(gauge(1001));
    assert!(!asks(&machine), "memory may be short again at once");
    machine.shortage.observe(gauge(1011));
    assert!(asks(&machine));
    machine.in_force.swapping.asked = Some((Level::Plenty, S(1011)));
    assert!(!asks(&machine));
}

#[test]
fn everything_ends_with_the_daemon() {
    let mut machine = snapshot(&[one(Class::Disposable, 1)], 5, 100);
    machine.in_force.swapping.exempt = exempted(&[0]);
    machine.in_force.swapping.armed = vec![key(0)];
    machine.in_force.swapping.frozen = vec![(key(0), S(1))];
    assert_eq!(withdraw(&Event::Stop, &machine).len(), 3);
    assert_eq!(grant(&Event::Stop, &machine), []);
    machine.settings.swap.enabled = false;
    assert_eq!(withdraw(&Event::Settings, &machine).len(), 3);
}

/// A rule that the app is never closed.
fn never_close(by_owner: bool) -> Exceptions {
    let exception = Exception {
        never: Never::Close,
        why: "its program /x matches \"x\" (file:1)".to_owned(),
        by_owner,
    };
    [exception].into_iter().collect()
}

#[test]
fn app_with_a_rule_is_never_closed_even_if_it_leaks() {
    let mut apps = [one(Class::Disposable, 1), one(Class::Normal, 2)];
    apps[0].grown = 30;
    let mut machine = snapshot(&apps, 5, 100);
    assert_eq!(order_of(&machine), [0, 1].map(key));
    machine.apps[0].found.exceptions = never_close(false);
    assert_eq!(order_of(&machine), [key(1)]);
    let why = never_killed(&machine.apps[0], &machine, Owners::of(&machine))
        .unwrap()
        .to_string();
    assert!(why.contains("never closed: its program /x"), "{why}");
    // The guard gets the same order.
    let armed = grant(&Event::Tick, &machine)
        .into_iter()
        .find_map(|step| match step {
            Step::Arm { order } => Some(order),
            _ => None,
        });
    let armed: Vec<AppKey> = armed.unwrap().iter().map(|one| one.app).collect();
    assert_eq!(armed, [key(1)]);
    // A rule about boost spares no app.
    let mut boost = never_close(false).of(Never::Close).unwrap().clone();
    boost.never = Never::Boost;
    machine.apps[0].found.exceptions = [boost].into_iter().collect();
    assert_eq!(order_of(&machine), [0, 1].map(key));
}

#[test]
fn rule_of_the_owner_spares_an_app_only_while_no_other_user_has_one() {
    let apps = [one(Class::Normal, 1), one(Class::Disposable, 2)];
    let mut machine = snapshot(&apps, 5, 100);
    machine.apps[0].found.exceptions = never_close(true);
    assert_eq!(order_of(&machine), [key(1)]);
    machine.apps[1].found.uid = 1001;
    assert_eq!(order_of(&machine), [1, 0].map(key));
    // An app that is never touched would not be closed instead.
    machine.apps[1].found.untouchable = Some("it holds the compositor".to_owned());
    assert_eq!(order_of(&machine), []);
    machine.apps[1].found.untouchable = None;
    machine.apps[0].found.exceptions = never_close(false);
    assert_eq!(order_of(&machine), [key(1)]);
}

#[test]
fn avoided_app_is_closed_last_of_its_class_and_only_when_memory_is_exhausted() {
    let mut apps = [
        one(Class::Disposable, 1),
        one(Class::Disposable, 2),
        one(Class::Disposable, 3),
        one(Class::Normal, 4),
    ];
    apps[0].avoid = true;
    apps[2].in_use = true;
    let mut machine = snapshot(&apps, 5, 100);
    assert_eq!(order_of(&machine), [1, 2, 0, 3].map(key));
    let all = candidates(&machine);
    let alone = &all[2..];
    let held: Vec<u64> = alone.iter().map(|one| one.held).collect();
    assert_eq!(pick(alone, &held, &situation(Level::Kill, LATER)), None);
    assert_eq!(
        pick(alone, &held, &situation(Level::Exhausted, LATER)),
        Some(0)
    );
    let accounts = account::of_kill(&machine, key(1), Level::Kill, "because");
    let of = |number| accounts.iter().find(|one| one.app == key(number)).unwrap();
    assert!(of(0).reason.contains("by wish of its unit"), "{:?}", of(0));
    // An owner's wish holds only while no other user has an app.
    machine.apps[0].found.avoid = Some(avoid(true));
    assert_eq!(order_of(&machine), [1, 2, 0, 3].map(key));
    let note = avoid_note(&machine.apps[0], &machine).unwrap();
    assert!(note.contains("only when memory is exhausted"), "{note}");
    machine.apps[3].found.uid = 1001;
    assert_eq!(order_of(&machine), [0, 1, 2, 3].map(key));
    let note = avoid_note(&machine.apps[0], &machine).unwrap();
    assert!(note.contains("not in force while another user"), "{note}");
    assert_eq!(avoid_note(&machine.apps[1], &machine), None);
}

#[test]
fn avoided_app_that_leaks_is_killed_only_when_memory_is_exhausted() {
    let mut apps = [one(Class::Normal, 1), one(Class::Normal, 2)];
    apps[0].grown = 30;
    apps[0].avoid = true;
    let all = candidates(&snapshot(&apps, 5, 1));
    let held: Vec<u64> = all.iter().map(|one| one.held).collect();
    assert!(all[0].leaks && all[0].avoid);
    assert_eq!(pick(&all, &held, &situation(Level::Kill, LATER)), None);
    assert_eq!(
        pick(&all, &held, &situation(Level::Exhausted, LATER)),
        Some(0)
    );
}

/// A wish of an app's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Never,
    Avoid,
}

fn wish() -> impl Strategy<Value = Option<Wish>> {
    prop_oneof![Just(None), Just(Some(Wish::Never)), Just(Some(Wish::Avoid))]
}

proptest! {
    /// If several users have apps that may be closed, no user's own rules change what the guard
    /// gets: the same candidates with the same properties in the same order.
    #[test]
    fn rules_of_owners_change_nothing_for_other_users(
        specs in prop::collection::vec((spec(), 0..3u32, wish()), 1..24),
    ) {
        let only: Vec<Spec> = specs.iter().map(|(spec, ..)| spec.clone()).collect();
        let mut without = snapshot(&only, 5, 1);
        let place = |known: &Known| {
            let AppKey::Cgroup { inode } = known.key() else { unreachable!() };
            inode as usize
        };
        for known in &mut without.apps {
            known.found.avoid = None;
            known.found.uid = 1000 + specs[place(known)].1;
        }
        let mut with = without.clone();
        for known in &mut with.apps {
            let wish = specs[place(known)].2;
            if wish == Some(Wish::Never) {
                known.found.exceptions = never_close(true);
            }
            if wish == Some(Wish::Avoid) {
                known.found.avoid = Some(avoid(true));
            }
        }
        let owners: BTreeSet<u32> = without
            .apps
            .iter()
            .filter(|known| known.found.untouchable.is_none())
            .map(|known| known.found.uid)
            .collect();
        if owners.len() > 1 {
            prop_assert_eq!(candidates(&with), candidates(&without));
        }
        // Elsewhere, the rules only take apps out of the order, and wishes only move apps within
        // their class.
        let kept = order_of(&with);
        let plain = |one: &AppKey| {
            let AppKey::Cgroup { inode } = one else { unreachable!() };
            specs[*inode as usize].2.is_none()
        };
        let of_class = |machine: &Snapshot| -> Vec<AppKey> {
            let all = order_of(machine).into_iter();
            all.filter(|one| plain(one) && kept.contains(one)).collect()
        };
        prop_assert_eq!(of_class(&with), of_class(&without));
    }

    /// Whatever else holds, an app with a rule of the system is no candidate, and the order of the
    /// other apps stays.
    #[test]
    fn rules_of_the_system_take_apps_out_of_the_order(
        specs in prop::collection::vec((spec(), any::<bool>()), 0..24),
    ) {
        let only: Vec<Spec> = specs.iter().map(|(spec, _)| spec.clone()).collect();
        let mut machine = snapshot(&only, 5, 1);
        let never = |app: AppKey| {
            let AppKey::Cgroup { inode } = app else { unreachable!() };
            specs[inode as usize].1
        };
        let mut expected = order_of(&machine);
        expected.retain(|app| !never(*app));
        for known in &mut machine.apps {
            if never(known.key()) {
                known.found.exceptions = never_close(false);
            }
        }
        prop_assert_eq!(order_of(&machine), expected);
    }

    #[test]
    fn spared_app_is_never_a_candidate(
        specs in prop::collection::vec(spec(), 0..24),
        front in 0u64..24,
        previous in 0u64..24,
        left in 980u64..1000,
    ) {
        let mut machine = with_topmost(snapshot(&specs, 5, 1), front);
        machine.previous = Some((key(previous), S(left)));
        let killable = candidates(&machine);
        for one in &killable {
            let AppKey::Cgroup { inode } = one.app else { unreachable!() };
            let spec = &specs[inode as usize];
            prop_assert!(spec.class != Class::Keep && !spec.untouchable);
            prop_assert!(inode != front);
            prop_assert!(inode != previous || 1000 - left >= PREVIOUS_FOR.as_secs());
        }
        // All other apps are candidates.
        let culprits = Culprits::of(&machine);
        let all = machine.apps.iter();
        let spared = all.filter(|known| spared(known, &machine, &culprits).is_some());
        prop_assert_eq!(spared.count() + killable.len(), specs.len());
    }

    #[test]
    fn victim_follows_the_order(
        specs in prop::collection::vec(spec(), 0..24),
        bursts in prop::collection::vec(0u64..30, 24),
        level in 0usize..6,
    ) {
        let machine = snapshot(&specs, 5, 1);
        use Level::{Crowded, Exhausted, Kill, Low, Plenty, Swap};
        let level = [Plenty, Swap, Low, Crowded, Kill, Exhausted][level];
        let all = candidates(&machine);
        for pair in all.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            prop_assert!(a.leaks >= b.leaks);
            if a.leaks == b.leaks {
                prop_assert!((a.class, a.avoid, a.in_use) <= (b.class, b.avoid, b.in_use));
            }
        }
        let held: Vec<u64> = all.iter().zip(&bursts).map(|(one, mib)| one.held + mib * MIB).collect();
        let picked = pick(&all, &held, &situation(level, LATER));
        prop_assert_eq!(picked, pick(&candidates(&machine), &held, &situation(level, LATER)));
        if level < Level::Low {
            prop_assert_eq!(picked, None);
        }
        if let Some(place) = picked {
            let one = all[place];
            let fresh = held[place] - one.held > 256 * MIB / 20 / 8;
            let burst = fresh && held[place] - one.least > 256 * MIB / 20;
            let guilty = one.leaks || burst;
            if level < Level::Exhausted {
                prop_assert!(guilty || one.class == Class::Disposable);
            }
            if !guilty {
                let lower = all.iter().any(|other| other.class < one.class && !other.leaks);
                prop_assert!(!lower);
            }
        }
    }

    #[test]
    fn plans_are_deterministic_and_spare_protected_apps(
        specs in prop::collection::vec(spec(), 0..24),
        front in 0u64..24,
        available in 0u64..60,
        swap in 0u64..128,
    ) {
        let machine = with_topmost(snapshot(&specs, available, swap), front);
        let steps = grant(&Event::Tick, &machine);
        prop_assert_eq!(&steps, &grant(&Event::Tick, &machine));
        for step in steps {
            if let Step::Squeeze { app, .. } | Step::Freeze { app, .. } = step {
                let AppKey::Cgroup { inode } = app else { unreachable!() };
                let spec = &specs[inode as usize];
                prop_assert!(inode != front && spec.class != Class::Disposable);
                prop_assert!(!spec.untouchable && !spec.in_use);
                match step {
                    Step::Squeeze { home, .. } => prop_assert_eq!(home.is_some(), spec.own),
                    _ => prop_assert!(spec.own && machine.shortage.level() >= Level::Kill),
                }
            }
        }
    }
}

#[test]
fn decision_accounts_for_every_app_once() {
    let mut specs = [
        one(Class::Disposable, 10),
        one(Class::Disposable, 20),
        one(Class::Normal, 5),
        one(Class::Keep, 1),
        one(Class::Normal, 7),
    ];
    specs[4].untouchable = true;
    let snapshot = snapshot(&specs, 5, 100);
    let accounts = account::of_kill(&snapshot, key(0), Level::Kill, "because");
    let order: Vec<AppKey> = accounts.iter().map(|one| one.app).collect();
    assert_eq!(order[..3], [key(0), key(1), key(2)]);
    assert_eq!(accounts.len(), specs.len());
    let of = |number| accounts.iter().find(|one| one.app == key(number)).unwrap();
    assert!(of(0).chosen && of(0).reason == "because");
    assert!(of(1).reason.contains("later"), "{:?}", of(1));
    assert!(of(2).reason.contains("nothing else is left"), "{:?}", of(2));
    assert!(of(3).reason.contains("never killed"), "{:?}", of(3));
    assert!(of(4).reason.contains("compositor"), "{:?}", of(4));

    let accounts = account::of_squeeze(&snapshot, key(2), "because");
    assert_eq!(accounts.len(), specs.len());
    let of = |number| accounts.iter().find(|one| one.app == key(number)).unwrap();
    assert!(of(2).chosen);
    assert!(
        of(0).reason.contains("swaps out no disposable"),
        "{:?}",
        of(0)
    );
    assert!(of(4).reason.contains("compositor"), "{:?}", of(4));
}
