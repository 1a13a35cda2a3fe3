// SPDX-License-Identifier: GPL-2.0-or-later
//! EIMOS's scheduler experiments. A nested loop of additions runs alone and next to ten such loops.
//! Linpack runs next to ten loops. A task that draws 60 frames a second runs next to ten loops and
//! next to a build. In addition, a helper of the app draws frames, which the app's boost must not
//! delay.
//!
//! On one CPU, exact mode gives exact times. Two CPUs need fast mode, where times depend on the
//! host. There the verdicts judge the app's CPU share, which does not depend on the host.

use limelight_apps::scenario::{Boost, Helper, Place, Spin};

use super::terms::*;

const OWN: &str = "own-cgroup";
const SIBLINGS: &str = "sibling-cgroups";
const ROOT: &str = "no-cgroup";
/// EIMOS's number of loads.
const LOADS: u32 = 10;

/// Lowest speed of the app with its own cgroup, relative to an idle machine.
const SPEED: f64 = 0.97;
/// Lowest speed of an app without a cgroup. The daemon gives the app nice value -20 (weight 88,761)
/// and CPU-bound background programs nice value 7 (weight 215). Ten of them leave the app 0.98 of
/// its speed.
const SPEED_BY_NICE: f64 = 0.95;
/// Lowest speed of an app next to ten loads with a cgroup each. A weight of 10,000 against ten
/// times 100 gives 0.91.
const SPEED_BY_WEIGHT: f64 = 0.88;
/// Highest 99th percentile of the frame time, relative to an idle machine.
const SLOWER: f64 = 2.0;
/// Maximum share of missed frames beyond the idle machine's, in percentage points.
const MISSED: f64 = 1.0;
/// The app that draws, and its frames per run. The loads get a hundredth of the CPU, one clock tick
/// at a time, which delays one frame in 109. Of only 100 frames, 0, 1 or 2 would be late, which is
/// too coarse for `MISSED`.
const DRAWING: (Spin, u32) = (Spin::Frames, 300);
/// Longest time from a focus change until the boost has moved, in microseconds.
const MOVED_US: f64 = 50_000.0;

const ALONE: &str = "add-alone";
const ADD: &str = "add-loads";
/// A task of 10 s, so that the time until the daemon finds the competitors hardly matters.
const LONG: &str = "add-loads-10s";
const LONG_RUNS: u32 = 1700;
const LINPACK: &str = "linpack-loads";
const FRAMES: &str = "frames-loads";
const BUILD: &str = "frames-build";
const HELPER: &str = "helper-known";
const UNKNOWN: &str = "helper-unknown";
/// Number of frames that the helper draws in a run.
const HELPER_FRAMES: u32 = 100;
/// Number of frames that a helper draws in a run if the daemon does not know the helper. It is
/// lower, because each frame then takes a third of a second, also with a weight set by hand.
const UNKNOWN_FRAMES: u32 = 20;
const SWITCHES: &str = "switches";

fn place(variant: &Variant) -> Place {
    match variant.load.as_str() {
        ROOT => Place::Root,
        SIBLINGS => Place::Siblings,
        _ => Place::Background,
    }
}

/// The experiments, with `runs` runs of each program.
fn tasks(variant: &Variant, runs: u32) -> Vec<Task> {
    let place = place(variant);
    let task = |name: &str, change: fn(&mut Boost)| {
        let mut work = Boost {
            app: Spin::AddLoop,
            runs,
            load: Spin::AddLoop,
            loads: LOADS,
            place,
            helper: None,
            switches: false,
        };
        change(&mut work);
        Task::new(name, Work::Boost(work))
    };
    let mut all = vec![
        task(ADD, |_| ()),
        task(LINPACK, |work| work.app = Spin::Linpack),
        task(FRAMES, |work| (work.app, work.runs) = DRAWING),
        task(ALONE, |work| work.loads = 0),
        task(BUILD, |work| {
            (work.app, work.runs) = DRAWING;
            (work.load, work.loads) = (Spin::Build, 1);
        }),
        task(HELPER, |work| {
            (work.helper, work.runs) = (Some(Helper::Known), HELPER_FRAMES);
        }),
        task(UNKNOWN, |work| {
            (work.helper, work.runs) = (Some(Helper::Unknown), UNKNOWN_FRAMES);
        }),
        task(SWITCHES, |work| work.switches = true),
    ];
    if place == Place::Root {
        all.push(task(LONG, |work| work.runs = LONG_RUNS));
    }
    all
}

fn machine(vcpus: u32) -> MachineSize {
    MachineSize {
        memory_mib: 192,
        vcpus,
        ..MachineSize::default()
    }
}

/// The app's speed relative to an idle machine, computed from the time of a run.
fn by_time(seen: &Seen<'_>, arm: ArmOn) -> Option<f64> {
    Some(seen.median(IDLE, "run_us")? / seen.median(arm, "run_us")?)
}

/// The app's speed relative to an idle machine, computed from its CPU share.
fn by_share(seen: &Seen<'_>, arm: ArmOn) -> Option<f64> {
    Some(seen.median(arm, "cpu_percent")? / seen.median(IDLE, "cpu_percent")?)
}

fn judge(aggregates: &Aggregates, speed: fn(&Seen<'_>, ArmOn) -> Option<f64>) -> Vec<Verdict> {
    Seen::each_arm(aggregates, SWITCHES, |seen, arm| {
        let mut verdicts = Vec::new();
        for task in [ALONE, ADD, LONG, LINPACK] {
            let seen = seen.of(task);
            verdicts.extend(speed(&seen, arm).map(|speed| fast(&seen, arm, speed)));
        }
        for task in [FRAMES, BUILD] {
            verdicts.extend(in_time(&seen.of(task), arm));
            verdicts.extend(shown(&seen.of(task), arm));
        }
        verdicts.extend(shown(&seen.of(HELPER), arm));
        verdicts.extend(moved(seen, arm));
        verdicts
    })
}

fn fast(seen: &Seen<'_>, arm: ArmOn, speed: f64) -> Verdict {
    // The promised speed is what the scheduler's weights can achieve.
    let promised = match (seen.task, place(seen.variant)) {
        (ALONE, _) | (_, Place::Background) => SPEED,
        (_, Place::Root) => SPEED_BY_NICE,
        (_, Place::Siblings) => SPEED_BY_WEIGHT,
    };
    seen.verdict(
        format!("{arm} keeps at least {promised} of the idle machine's speed"),
        speed >= promised,
        format!("{speed:.4} of the speed"),
    )
}

/// Verdict on the 99th percentile of the frame time.
fn in_time(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let slowest = |arm| seen.median(arm, "frame_p99_us");
    let (idle, ours) = (slowest(IDLE)?, slowest(arm)?);
    Some(seen.verdict(
        format!(
            "the slowest frame in a hundred of {arm} takes at most {SLOWER} times as long as on an \
             idle machine"
        ),
        ours <= idle * SLOWER,
        format!("{ours:.0} us, idle {idle:.0} us"),
    ))
}

/// Verdict on the share of missed frames. It also judges a helper that shares the CPU with an app
/// that never sleeps.
fn shown(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let missed = |arm| seen.median(arm, "missed_frames_percent");
    let (idle, ours) = (missed(IDLE)?, missed(arm)?);
    Some(seen.verdict(
        format!("{arm} misses at most {MISSED} % of the frames more than an idle machine"),
        ours <= idle + MISSED,
        format!("{ours:.1} %, idle {idle:.1} %"),
    ))
}

fn moved(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let worst = seen.median(arm, "switch_max_us")?;
    Some(Verdict::new(
        format!(
            "{}: on {arm} the boost has moved within 50 ms of each change of focus",
            seen.variant
        ),
        worst <= MOVED_US,
        format!("{:.1} ms at worst", worst / 1000.0),
    ))
}

/// The experiments on one CPU, with exact times.
pub const EXACT: Spec = Spec {
    name: "boost-exact",
    about: "EIMOS's loops, Linpack and a frame task on one processor beside ten loads and a build",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[OWN, ROOT, SIBLINGS])],
    arms: &[IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |_| machine(1),
    tasks: |variant, _| tasks(variant, 40),
    time_limit_s: 120,
    must_hold: |aggregates| judge(aggregates, by_time),
    metrics: &[&[
        Metric::lower("run_us", "mean time of a run"),
        Metric::higher("cpu_percent", "% of a processor"),
        Metric::higher("mflops", "MFLOPS"),
        Metric::lower("wake_p50_us", "wake-up p50"),
        Metric::lower("wake_p99_us", "wake-up p99"),
        Metric::lower("frame_p50_us", "frame p50"),
        Metric::lower("frame_p99_us", "frame p99"),
        Metric::lower("missed_frames_percent", "% of frames missed"),
        Metric::lower("daemon_percent", "daemon's % of a processor"),
        Metric::lower("switch_p50_us", "boost moved p50"),
        Metric::lower("switch_max_us", "boost moved, worst"),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

/// The experiments on two CPUs, judged by CPU share.
pub const TWO_PROCESSORS: Spec = Spec {
    name: "boost",
    about: "the same on two processors",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[OWN, ROOT])],
    machine: |_| machine(2),
    tasks: |variant, _| tasks(variant, 400),
    time_limit_s: 300,
    must_hold: |aggregates| judge(aggregates, by_share),
    repetitions: 5,
    mode: Mode::Fast,
    ..EXACT
};
