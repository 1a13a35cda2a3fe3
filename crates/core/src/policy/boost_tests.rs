// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::model::app::{App, ProcessId};
use crate::model::boost::{Disk, Role, Schedulers, View};
use crate::model::never::{Exception, Exceptions};
use crate::model::terminal::{Part, Terminal};
use proptest::prelude::*;

fn home(path: &str, own: bool) -> Home {
    Home {
        path: path.to_owned(),
        inode: path.len() as u64,
        own,
        adopted: false,
    }
}

fn threads(pid: i32, tids: &[i32]) -> Threads {
    Threads {
        process: ProcessId { pid, starttime: 7 },
        tids: tids.to_vec(),
        role: Role::App,
    }
}

fn helper(path: &str, own: bool) -> Helper {
    Helper {
        name: "Xorg".to_owned(),
        home: Some(home(path, own)),
        threads: threads(90, &[90]),
    }
}

const APP: &str = "/user.slice/u/app.slice/app-1.scope";

fn snapshot(home: Option<Home>) -> Snapshot {
    let mut snapshot = Snapshot {
        topmost: Some(Measured {
            app: App {
                key: AppKey::Cgroup { inode: 5 },
                name: "app".to_owned(),
                process: None,
                home,
            },
            members: Vec::new(),
            footprint: None,
            terminal: None,
            exceptions: Exceptions::default(),
        }),
        ..Snapshot::default()
    };
    snapshot.boost.schedulers.slices = true;
    snapshot.boost.threads = vec![threads(10, &[10, 11])];
    snapshot
}

fn weights(steps: &[Step]) -> Vec<(&str, u32)> {
    let weighed = steps.iter().find_map(|step| match step {
        Step::Weigh { weights, .. } => Some(weights),
        _ => None,
    });
    let all = weighed.into_iter().flatten();
    all.map(|weight| (weight.cgroup.as_str(), weight.weight))
        .collect()
}

fn tuning(steps: &[Step]) -> Option<(Tuning, usize)> {
    steps.iter().find_map(|step| match step {
        Step::Tune {
            tuning, threads, ..
        } => Some((
            *tuning,
            threads.iter().map(|threads| threads.tids.len()).sum(),
        )),
        _ => None,
    })
}

#[test]
fn own_cgroup_is_weighed_with_all_ancestors_and_no_thread_is_reniced() {
    let steps = grant(&Event::Topmost, &snapshot(Some(home(APP, true))));
    let expected = [
        ("/user.slice", 10_000),
        ("/user.slice/u", 10_000),
        ("/user.slice/u/app.slice", 10_000),
        (APP, 10_000),
    ];
    assert_eq!(weights(&steps), expected);
    let (tuning, count) = tuning(&steps).unwrap();
    assert_eq!((tuning.nice_points, count), (0, 2));
    assert!(tuning.slice_us > 0);
    assert_eq!(tuning.io_level, None, "no disk would use it");
}

#[test]
fn app_that_is_closed_has_the_weight_of_the_foreground_app_until_it_has_exited() {
    const CLOSING: &str = "/user.slice/u/app.slice/app-2.scope";
    let mut machine = snapshot(Some(home(APP, true)));
    machine.closing = Some(home(CLOSING, true));
    assert_eq!(follow_closing(&machine), None, "no boost is in force");
    machine.closing = None;
    carry_out(&Event::Topmost, &mut machine);
    assert_eq!(follow_closing(&machine), None);
    machine.closing = Some(home(CLOSING, true));
    let step = follow_closing(&machine).unwrap();
    let raised = weights(std::slice::from_ref(&step)).pop();
    assert_eq!(raised, Some((CLOSING, 10_000)));
    carry_out(&Event::Tick, &mut machine);
    assert_eq!(follow_closing(&machine), None);
    machine.closing = None;
    let steps = [follow_closing(&machine).unwrap()];
    let kept = weights(&steps);
    assert!(kept.len() == 4 && kept.iter().all(|(cgroup, _)| *cgroup != CLOSING));
    // Nice values do not reach another app's cgroup.
    machine.closing = Some(home(CLOSING, true));
    machine.boost.without_cpu = Some("/user.slice".to_owned());
    assert!(weights(&grant(&Event::Tick, &machine)).is_empty());
}

#[test]
fn threads_get_nice_values_where_a_weight_is_inert() {
    let shared = snapshot(Some(home("/session-2.scope", false)));
    let mut without = snapshot(Some(home(APP, true)));
    without.boost.without_cpu = Some("/user.slice/u".to_owned());
    let mut ext = snapshot(Some(home(APP, true)));
    ext.boost.schedulers.sched_ext = Some("lavd".to_owned());
    for (snapshot, word) in [
        (&shared, "/session-2.scope"),
        (&snapshot(None), "no cgroup"),
        (&without, "/user.slice/u"),
        (&ext, "lavd"),
    ] {
        let steps = grant(&Event::Topmost, snapshot);
        assert!(weights(&steps).is_empty(), "{steps:?}");
        assert_eq!(tuning(&steps).unwrap().0.nice_points, 20, "{word}");
        let notes = notes(snapshot);
        let explains = |note: &String| note.contains("cpu.weight is inert") && note.contains(word);
        assert!(notes.iter().any(explains), "{notes:?}");
    }
}

#[test]
fn adopted_cgroup_gets_the_controllers_that_weights_need() {
    let bfq = Disk {
        name: "vda".to_owned(),
        scheduler: "bfq".to_owned(),
        cost: false,
    };
    let handed = |change: fn(&mut Snapshot)| {
        let mut snapshot = snapshot(Some(Home {
            adopted: true,
            ..home("/limelight.slice/app-1-7.scope", true)
        }));
        snapshot.may_hand_down = true;
        snapshot.boost.without_cpu = Some("/limelight.slice".to_owned());
        snapshot.boost.without_io = Some("/limelight.slice".to_owned());
        snapshot.boost.schedulers.disks = vec![bfq.clone()];
        change(&mut snapshot);
        grant(&Event::Topmost, &snapshot)
            .into_iter()
            .find_map(|step| match step {
                Step::HandDown { controllers, .. } => Some(controllers),
                _ => None,
            })
    };
    assert_eq!(handed(|_| ()), Some(vec!["cpu", "io"]));
    // Controllers are not enabled if weights would not act.
    let idle = |snapshot: &mut Snapshot| snapshot.boost.schedulers.disks.clear();
    assert_eq!(handed(idle), Some(vec!["cpu"]));
    let ext = |snapshot: &mut Snapshot| snapshot.boost.schedulers.sched_ext = Some("x".into());
    assert_eq!(handed(ext), Some(vec!["io"]));
    // A sound server in another cgroup would lose its realtime priority.
    let groups = |snapshot: &mut Snapshot| snapshot.boost.schedulers.realtime_groups = true;
    assert_eq!(handed(groups), Some(vec!["io"]));
    let done = |snapshot: &mut Snapshot| {
        snapshot.boost.without_cpu = None;
        snapshot.boost.without_io = None;
    };
    assert_eq!(handed(done), None);
    // The tree belongs to a service manager, or the daemon did not make the cgroup.
    assert_eq!(handed(|snapshot| snapshot.may_hand_down = false), None);
    let found = |snapshot: &mut Snapshot| {
        let app = &mut snapshot.topmost.as_mut().unwrap().app;
        app.home.as_mut().unwrap().adopted = false;
    };
    assert_eq!(handed(found), None);
    assert_eq!(
        handed(|snapshot| snapshot.settings.boost.enabled = false),
        None
    );
}

#[test]
fn notes_explain_the_missing_weight_where_realtime_is_granted_by_group() {
    let mut snapshot = snapshot(Some(Home {
        adopted: true,
        ..home("/limelight.slice/app-1-7.scope", true)
    }));
    snapshot.may_hand_down = true;
    snapshot.boost.without_cpu = Some("/limelight.slice".to_owned());
    snapshot.boost.schedulers.realtime_groups = true;
    let steps = grant(&Event::Topmost, &snapshot);
    assert_eq!(tuning(&steps).unwrap().0.nice_points, 20);
    let notes = notes(&snapshot);
    let explains = |note: &String| note.contains("CONFIG_RT_GROUP_SCHED");
    assert!(notes.iter().any(explains), "{notes:?}");
}

#[test]
fn autogroup_of_the_session_gets_a_nice_value() {
    let group = |number| Autogroup {
        number,
        process: ProcessId {
            pid: 10,
            starttime: 7,
        },
    };
    let mut snapshot = snapshot(None);
    assert_eq!(standing(&snapshot).nice, Standing::Live);
    assert!(matches!(standing(&snapshot).autogroup, Standing::Unused(_)));

    snapshot.boost.autogrouped = true;
    snapshot.boost.autogroups = vec![group(25)];
    let steps = grant(&Event::Topmost, &snapshot);
    assert_eq!(tuning(&steps).unwrap().0.nice_points, 20);
    let app = snapshot.topmost.as_ref().unwrap().app.key;
    let regroup = Step::Regroup {
        app,
        nice_points: 20,
        groups: vec![group(25)],
    };
    assert!(steps.contains(&regroup), "{steps:?}");

    snapshot.in_force.regrouped = Some((app, vec![group(25)]));
    assert!(!grant(&Event::Tick, &snapshot).contains(&regroup));
    assert_eq!(withdraw(&Event::Stop, &snapshot), [Step::Ungroup { app }]);
    // The autogroup does not matter for an app with its own cgroup.
    snapshot.topmost.as_mut().unwrap().app.home = Some(home(APP, true));
    assert_eq!(withdraw(&Event::Tick, &snapshot), [Step::Ungroup { app }]);
}

fn terminal(parts: &[(i32, Part)], job_runs: bool) -> Option<Terminal> {
    let id = |pid| ProcessId { pid, starttime: 7 };
    Some(Terminal {
        parts: parts.iter().map(|(pid, part)| (id(*pid), *part)).collect(),
        job_runs,
        ..Terminal::default()
    })
}

#[test]
fn cgroup_of_a_terminal_keeps_its_weight_while_a_job_runs() {
    let parts = [(10, Part::Window), (11, Part::Shell), (12, Part::Job)];
    let mut snapshot = snapshot(Some(home(APP, true)));
    snapshot.boost.helpers = vec![helper("/user.slice/u/session.slice/shell.service", true)];
    for (job_runs, weighed) in [(false, true), (true, false)] {
        snapshot.topmost.as_mut().unwrap().terminal = terminal(&parts, job_runs);
        let steps = grant(&Event::Topmost, &snapshot);
        let all = weights(&steps);
        assert_eq!(all.contains(&(APP, 10_000)), weighed, "{all:?}");
        let ancestor = ("/user.slice/u/app.slice", 10_000);
        assert_eq!(all.contains(&ancestor), weighed, "{all:?}");
        let compositor = ("/user.slice/u/session.slice", 10_000);
        assert!(all.contains(&compositor), "{all:?}");
        let notes = notes(&snapshot);
        let says = |text: &str| notes.iter().any(|note| note.contains(text));
        assert!(says("2 of 3 processes of this terminal"), "{notes:?}");
        assert_eq!(says("keep their weights while a job runs"), !weighed);
    }
    let note = |pid| part_note(&snapshot, ProcessId { pid, starttime: 7 });
    assert!(note(11)
        .unwrap()
        .contains("is boosted: it leads the session"));
    assert!(note(12)
        .unwrap()
        .contains("is not boosted: it is a background job"));
    assert_eq!(note(13), None);
}

#[test]
fn processes_of_a_terminal_in_front_get_nice_values_where_a_weight_acts() {
    let tuning = Tuning {
        among_points: 20,
        slice_us: 300,
        ..Tuning::default()
    };
    for role in [Role::Window, Role::Tab] {
        assert_eq!((tuning.nice(role, 0), tuning.slice_us(role)), (-20, 300));
    }
    assert_eq!(
        (tuning.nice(Role::Job, 0), tuning.slice_us(Role::Job)),
        (0, 0)
    );
    assert!(!tuning.spares(Role::Job), "a job loses what it inherited");
    assert!(
        Tuning::default().spares(Role::Job),
        "nothing can be inherited"
    );
}

fn standing(snapshot: &Snapshot) -> Knobs {
    let home = snapshot.topmost.as_ref().unwrap().app.home.as_ref();
    knobs(&snapshot.settings.boost, &snapshot.boost, home)
}

#[test]
fn disk_schedulers_decide_the_io_settings() {
    let disk = |scheduler: &str, cost| Disk {
        name: "vda".to_owned(),
        scheduler: scheduler.to_owned(),
        cost,
    };
    for (scheduler, cost, file, level) in [
        ("none", false, None, None),
        ("mq-deadline", true, Some(WeightFile::Io), None),
        ("bfq", false, Some(WeightFile::Bfq), Some(0)),
    ] {
        let mut snapshot = snapshot(Some(home(APP, true)));
        snapshot.boost.schedulers.disks = vec![disk(scheduler, cost)];
        let steps = grant(&Event::Topmost, &snapshot);
        assert_eq!(tuning(&steps).unwrap().0.io_level, level, "{scheduler}");
        let Some(Step::Weigh { weights, .. }) = steps.first() else {
            panic!("{steps:?}");
        };
        let io: Vec<_> = weights
            .iter()
            .map(|weight| weight.file)
            .filter(|file| *file != WeightFile::Cpu)
            .collect();
        assert_eq!(io.first().copied(), file, "{scheduler}");
        assert!(weights
            .iter()
            .all(|weight| weight.weight <= weight.file.max()));
    }
}

#[test]
fn helper_in_the_session_slice_gets_the_same_weight() {
    let mut snapshot = snapshot(Some(home(APP, true)));
    snapshot.boost.helpers = vec![helper("/user.slice/u/session.slice/shell.service", true)];
    let steps = grant(&Event::Topmost, &snapshot);
    let all = weights(&steps);
    for cgroup in [
        APP,
        "/user.slice/u/session.slice",
        "/user.slice/u/session.slice/shell.service",
    ] {
        assert!(all.contains(&(cgroup, 10_000)), "{cgroup}: {all:?}");
    }
    assert_eq!(tuning(&steps).unwrap().1, 3);
}

#[test]
fn helper_in_a_shared_branch_keeps_a_fifth_of_the_time() {
    let mut snapshot = snapshot(Some(home(APP, true)));
    snapshot.boost.helpers = vec![helper("/system.slice/lightdm.service", true)];
    let all = grant(&Event::Topmost, &snapshot);
    let all = weights(&all);
    assert!(all.contains(&("/user.slice", BESIDE_HELPER)), "{all:?}");
    assert!(all.contains(&("/user.slice/u", 10_000)), "{all:?}");
    assert!(
        all.contains(&("/system.slice/lightdm.service", 10_000)),
        "{all:?}"
    );
    assert!(
        !all.iter().any(|(cgroup, _)| *cgroup == "/system.slice"),
        "{all:?}"
    );

    snapshot.boost.helpers = vec![helper("/user.slice/u/session-2.scope", false)];
    let steps = grant(&Event::Topmost, &snapshot);
    let all = weights(&steps);
    assert!(
        all.contains(&("/user.slice/u/app.slice", BESIDE_HELPER)),
        "{all:?}"
    );
    assert!(
        !all.iter().any(|(cgroup, _)| cgroup.contains("session-2")),
        "{all:?}"
    );
    assert!(notes(&snapshot)
        .iter()
        .any(|note| note.contains("a helper beside it shares")));
}

#[test]
fn threads_of_an_app_keep_their_order() {
    let tuning = Tuning {
        nice_points: 20,
        ..Tuning::default()
    };
    let nice: Vec<i32> = [-20, -5, 0, 10, 19]
        .map(|nice| tuning.nice(Role::App, nice))
        .into();
    assert_eq!(nice, [-20, -20, -20, -10, -1]);
}

#[test]
fn reclaim_gets_the_nice_value_of_the_app_s_weight() {
    assert_eq!(
        [1, 100, 125, 400, 1000, 10_000].map(points_of),
        [0, 0, 1, 6, 10, 20]
    );

    let mut kswapd = helper("/", false);
    kswapd.home = None;
    kswapd.threads.role = Role::Reclaim;
    let mut weighed = snapshot(Some(home(APP, true)));
    weighed.boost.helpers = vec![kswapd];
    let steps = grant(&Event::Topmost, &weighed);
    let (given, threads) = tuning(&steps).unwrap();
    assert_eq!(threads, 3);
    assert_eq!(given.nice(Role::Reclaim, 0), -20);
    // The weight covers the app's own threads.
    assert_eq!(given.nice(Role::App, 0), 0);
    assert!(weights(&steps).iter().all(|(_, weight)| *weight == 10_000));

    // An older kernel has no slices per thread, so the app's threads are left alone.
    weighed.boost.schedulers.slices = false;
    let steps = grant(&Event::Topmost, &weighed);
    assert_eq!(tuning(&steps).unwrap().1, 1);

    // Without a weight, kswapd gets the app's nice points.
    weighed.topmost.as_mut().unwrap().app.home = None;
    weighed.settings.boost.nice_points = 7;
    let (given, _) = tuning(&grant(&Event::Topmost, &weighed)).unwrap();
    assert_eq!(given.nice(Role::Reclaim, 0), -7);
}

#[test]
fn compositor_in_a_shared_cgroup_gets_a_nice_value() {
    let with = |role| {
        let mut compositor = helper("/user.slice/u/session-2.scope", false);
        compositor.threads.role = role;
        let mut snapshot = snapshot(Some(home(APP, true)));
        snapshot.boost.helpers = vec![compositor];
        snapshot
    };
    let mut among = with(Role::HelperAmong);
    let steps = grant(&Event::Topmost, &among);
    assert!(!weights(&steps).is_empty());
    let (given, threads) = tuning(&steps).unwrap();
    assert_eq!(threads, 3);
    assert_eq!(given.nice(Role::HelperAmong, 0), -20);
    // Where a weight acts, no other thread needs a nice value.
    assert_eq!(given.nice(Role::Helper, 0), 0);
    assert_eq!(given.nice(Role::App, 0), 0);

    // An older kernel has no slices per thread, so a helper in its own cgroup is left alone.
    among.boost.schedulers.slices = false;
    assert_eq!(tuning(&grant(&Event::Topmost, &among)).unwrap().1, 1);
    let mut alone = with(Role::Helper);
    alone.boost.schedulers.slices = false;
    assert_eq!(tuning(&grant(&Event::Topmost, &alone)), None);

    among.settings.boost.nice_points = 0;
    assert_eq!(tuning(&grant(&Event::Topmost, &among)), None);
}

#[test]
fn helper_has_a_shorter_slice_than_the_app() {
    let with = |slice_us| Tuning {
        slice_us,
        ..Tuning::default()
    };
    assert_eq!(
        (
            with(300).slice_us(Role::App),
            with(300).slice_us(Role::Helper)
        ),
        (300, 100)
    );
    assert_eq!(
        (
            with(100).slice_us(Role::Helper),
            with(9000).slice_us(Role::Reclaim)
        ),
        (100, 3000)
    );
    assert_eq!(
        (with(0).slice_us(Role::App), with(0).slice_us(Role::Helper)),
        (0, 0)
    );
}

#[test]
fn new_threads_are_tuned_and_nothing_is_done_twice() {
    let mut snapshot = snapshot(Some(home(APP, true)));
    carry_out(&Event::Topmost, &mut snapshot);
    assert_eq!(grant(&Event::Tick, &snapshot), []);
    snapshot.boost.threads = vec![threads(10, &[10, 11, 12])];
    let steps = grant(&Event::Tick, &snapshot);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!(tuning(&steps).unwrap().1, 3);
    assert_eq!(withdraw(&Event::Tick, &snapshot), []);
}

#[test]
fn changed_knobs_start_from_the_original_values() {
    let mut snapshot = snapshot(Some(home(APP, true)));
    carry_out(&Event::Topmost, &mut snapshot);
    snapshot.boost.schedulers = Schedulers {
        sched_ext: Some("lavd".to_owned()),
        ..snapshot.boost.schedulers
    };
    let key = AppKey::Cgroup { inode: 5 };
    let expected = [Step::Unweigh { app: key }, Step::Untune { app: key }];
    assert_eq!(withdraw(&Event::Tick, &snapshot), expected);
}

/// Applies the plan with mechanisms that always succeed.
fn carry_out(event: &Event, snapshot: &mut Snapshot) {
    let mut steps = withdraw(event, snapshot);
    steps.extend(grant(event, snapshot));
    for step in steps {
        let in_force = &mut snapshot.in_force;
        match step {
            Step::Weigh { app, weights } => {
                assert!(in_force.weighed.as_ref().is_none_or(|(key, _)| *key == app));
                in_force.weighed = Some((app, weights));
            }
            Step::Unweigh { .. } => in_force.weighed = None,
            Step::Tune {
                app,
                tuning,
                threads,
            } => {
                assert!(in_force.tuned.as_ref().is_none_or(|(key, ..)| *key == app));
                in_force.tuned = Some((app, tuning, threads));
            }
            Step::Untune { .. } => in_force.tuned = None,
            Step::Regroup { app, groups, .. } => {
                assert!(in_force
                    .regrouped
                    .as_ref()
                    .is_none_or(|(key, _)| *key == app));
                in_force.regrouped = Some((app, groups));
            }
            Step::Ungroup { .. } => in_force.regrouped = None,
            Step::HandDown { .. } => panic!("no cgroup lacks a controller here"),
        }
    }
}

#[test]
fn notes_count_the_competitors() {
    let mut snapshot = snapshot(None);
    assert!(!notes(&snapshot)
        .iter()
        .any(|note| note.contains("in favour of")));
    snapshot.boost.competitors = vec![threads(20, &[20]), threads(21, &[21])];
    let notes = notes(&snapshot);
    let note = notes.iter().find(|note| note.contains("in favour of"));
    assert!(
        note.is_some_and(|note| note.ends_with("raised by 7 in favour of app: 2")),
        "{note:?}"
    );
}

fn paths() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-c]", 0..4).prop_map(|names| match names.is_empty() {
        true => "/".to_owned(),
        false => format!("/{}", names.join("/")),
    })
}

prop_compose! {
    fn situations()(
        app in prop::option::of((0..3u64, paths(), any::<bool>())),
        helpers in prop::collection::vec((paths(), any::<bool>()), 0..4),
        next in prop::option::of((10..13i32, paths(), any::<bool>())),
        flags in any::<[bool; 6]>(),
        nice_points in 0..=39u8,
        tids in prop::collection::vec(1..50i32, 0..4),
    ) -> Snapshot {
        let [enabled, slices, autogrouped, ext, cpu, bfq] = flags;
        let mut snapshot = snapshot(None);
        snapshot.settings.boost.enabled = enabled;
        snapshot.settings.boost.nice_points = nice_points;
        snapshot.boost = View {
            competitors: Vec::new(),
            schedulers: Schedulers {
                sched_ext: ext.then(|| "x".to_owned()),
                slices,
                disks: bfq.then(|| Disk {
                    name: "sda".to_owned(),
                    scheduler: "bfq".to_owned(),
                    cost: false,
            }).into_iter().collect(),
                ..Schedulers::default()
            },
            without_cpu: (!cpu).then(|| "/a".to_owned()),
            without_io: None,
            autogrouped,
            autogroups: match autogrouped {
                true => vec![Autogroup { number: 3, process: ProcessId { pid: 10, starttime: 7 } }],
                false => Vec::new(),
            },
            threads: vec![threads(10, &tids)],
            starting: next.iter().map(|(pid, ..)| threads(*pid, &[*pid])).collect(),
            helpers: helpers.into_iter().map(|(path, own)| helper(&path, own)).collect(),
        };
        match (app, &mut snapshot.topmost) {
            (Some((inode, path, own)), Some(topmost)) => {
                topmost.app.key = AppKey::Cgroup { inode };
                topmost.app.home = Some(home(&path, own));
            }
            _ => snapshot.topmost = None,
        }
        snapshot.starting = next.map(|(pid, path, own)| starting(home(&path, own), pid));
        snapshot
    }
}

proptest! {
    /// Weights, tuning and autogroups belong to one app at a time, the state after each event is
    /// stable, and nothing is in force after [`Event::Stop`].
    #[test]
    fn every_sequence_keeps_invariants(situations in prop::collection::vec(situations(), 1..8)) {
        let mut in_force = crate::model::InForce::default();
        for mut snapshot in situations {
            snapshot.in_force = in_force;
            carry_out(&Event::Tick, &mut snapshot);
            prop_assert_eq!(withdraw(&Event::Tick, &snapshot), []);
            prop_assert_eq!(grant(&Event::Tick, &snapshot), []);
            let no_app = snapshot.topmost.is_none() && snapshot.starting.is_none();
            if no_app || !snapshot.settings.boost.enabled {
                prop_assert_eq!(&snapshot.in_force, &crate::model::InForce::default());
            }
            let mut stopped = snapshot.clone();
            carry_out(&Event::Stop, &mut stopped);
            prop_assert_eq!(&stopped.in_force, &crate::model::InForce::default());
            in_force = snapshot.in_force;
        }
    }

    /// Each cgroup gets at most one weight, which is in range; the root gets none. Only the cgroups
    /// of apps and helpers and their ancestors get weights.
    #[test]
    fn weights_reach_only_the_paths_of_apps_and_helpers(snapshot in situations()) {
        let steps = grant(&Event::Topmost, &snapshot);
        for step in &steps {
            let Step::Weigh { weights, .. } = step else { continue };
            let apps = [&snapshot.topmost, &snapshot.starting];
            let homes = apps.into_iter().flatten().filter_map(|measured| measured.app.own_home());
            let homes: Vec<&Home> = homes.collect();
            for (at, weight) in weights.iter().enumerate() {
                prop_assert!(weight.weight >= 1 && weight.weight <= weight.file.max());
                prop_assert!(weight.cgroup.len() > 1 && weight.cgroup.starts_with('/'));
                let same = |other: &Weight| (other.file, &other.cgroup) == (weight.file, &weight.cgroup);
                prop_assert!(!weights[..at].iter().any(same), "{:?}", weights);
                let above = |path: &str| format!("{path}/").starts_with(&format!("{}/", weight.cgroup));
                let own = snapshot.boost.helpers.iter().filter_map(|helper| helper.home.as_ref());
                let mut own = own.filter(|home| home.own);
                let of_app = homes.iter().any(|home| above(&home.path));
                prop_assert!(of_app || own.any(|home| above(&home.path)));
            }
        }
    }
}

fn starting(home: Home, pid: i32) -> Measured {
    Measured {
        app: App {
            key: AppKey::Cgroup { inode: home.inode },
            name: "next".to_owned(),
            process: None,
            home: Some(home),
        },
        members: vec![ProcessId { pid, starttime: 7 }],
        footprint: None,
        terminal: None,
        exceptions: Exceptions::default(),
    }
}

#[test]
fn starting_program_is_boosted_like_the_foreground_app() {
    const NEXT: &str = "/user.slice/u/app.slice/app-next-2.scope";
    let mut both = snapshot(Some(home(APP, true)));
    both.starting = Some(starting(home(NEXT, true), 20));
    both.boost.starting = vec![threads(20, &[20, 21])];
    let steps = grant(&Event::Starting, &both);
    let expected = [
        ("/user.slice", 10_000),
        ("/user.slice/u", 10_000),
        ("/user.slice/u/app.slice", 10_000),
        (APP, 10_000),
        (NEXT, 10_000),
    ];
    assert_eq!(weights(&steps), expected);
    let tuned = steps.iter().find_map(|step| match step {
        Step::Tune { threads, .. } => Some(threads.clone()),
        _ => None,
    });
    let tuned: Vec<i32> = tuned.unwrap().iter().map(|t| t.process.pid).collect();
    assert_eq!(tuned, [10, 20]);
    assert!(notes(&both)[0].contains("next is being started"));
}

#[test]
fn starting_program_is_boosted_alone_without_a_foreground_app() {
    let mut alone = Snapshot {
        starting: Some(starting(home("/", false), 20)),
        ..Snapshot::default()
    };
    alone.boost.schedulers.slices = true;
    alone.boost.threads = vec![threads(20, &[20])];
    let steps = grant(&Event::Starting, &alone);
    let key = alone.starting.as_ref().unwrap().app.key;
    assert!(
        matches!(&steps[..], [Step::Tune { app, tuning, .. }] if *app == key && tuning.nice_points == 20),
        "{steps:?}"
    );
    // When the program comes to the foreground, nothing is undone and redone.
    let (tuning, threads) = match &steps[0] {
        Step::Tune {
            tuning, threads, ..
        } => (*tuning, threads.clone()),
        other => panic!("{other:?}"),
    };
    let mut after = alone.clone();
    after.topmost = after.starting.take();
    after.in_force.tuned = Some((key, tuning, threads));
    assert!(withdraw(&Event::Topmost, &after).is_empty());
    assert!(grant(&Event::Topmost, &after).is_empty());
    // When its start is over and it is not in the foreground, the tuning is undone.
    after.topmost = None;
    assert_eq!(withdraw(&Event::Tick, &after), [Step::Untune { app: key }]);
}

/// A rule that an app is never boosted.
fn never_boost() -> Exceptions {
    let exception = Exception {
        never: Never::Boost,
        why: "its app id next matches \"next\" (file:1)".to_owned(),
        by_owner: true,
    };
    [exception].into_iter().collect()
}

#[test]
fn app_with_a_rule_is_not_boosted_and_loses_its_boost() {
    let mut front = snapshot(Some(home(APP, true)));
    let boosted = grant(&Event::Topmost, &front);
    assert!(!weights(&boosted).is_empty() && tuning(&boosted).is_some());
    front.in_force.weighed = Some((AppKey::Cgroup { inode: 5 }, Vec::new()));
    front.topmost.as_mut().unwrap().exceptions = never_boost();
    assert_eq!(grant(&Event::Topmost, &front), []);
    let app = AppKey::Cgroup { inode: 5 };
    assert_eq!(withdraw(&Event::Topmost, &front), [Step::Unweigh { app }]);
    assert_eq!(
        notes(&front),
        ["boost: this app is never boosted: its app id next matches \"next\" (file:1)"]
    );
}

#[test]
fn starting_program_with_a_rule_is_not_boosted() {
    const NEXT: &str = "/user.slice/u/app.slice/app-next-2.scope";
    let mut both = snapshot(Some(home(APP, true)));
    both.starting = Some(Measured {
        exceptions: never_boost(),
        ..starting(home(NEXT, true), 20)
    });
    both.boost.starting = vec![threads(20, &[20, 21])];
    let steps = grant(&Event::Starting, &both);
    assert!(!weights(&steps).iter().any(|(cgroup, _)| *cgroup == NEXT));
    assert_eq!(
        tuning(&steps).unwrap().1,
        2,
        "only the foreground app's threads"
    );
    both.topmost = None;
    both.boost.threads = Vec::new();
    assert_eq!(grant(&Event::Starting, &both), []);
}
