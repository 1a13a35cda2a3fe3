// SPDX-License-Identifier: GPL-2.0-or-later
//! EIMOS's scheduler experiments: a nested loop of additions alone and next to ten of its kind,
//! Linpack next to ten of those, a task that draws 60 frames a second next to ten loads and next to
//! a build; and a helper of the app: the app's boost must not delay its frames.
//!
//! On one CPU instructions are the clock. Two CPUs need fast mode, with the host's times; there the
//! app's CPU share is judged, which does not depend on the host.

use std::time::Duration;

use limelight_apps::scenario::{Boost, Helper, Place, Spin, Work};

use super::terms::{BEST_STOCK, IDLE, LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// One CPU, exact times.
pub struct Exact;

/// Two CPUs.
pub struct TwoProcessors;

/// Boost's promises other than speed.
pub struct Rules;

const OWN: &str = "own-cgroup";
const SIBLINGS: &str = "sibling-cgroups";
const ROOT: &str = "no-cgroup";
/// EIMOS's number of loads.
const LOADS: u32 = 10;

/// Share of the idle machine's throughput that the app must keep.
const SPEED: f64 = 0.97;
/// The same without a cgroup, where CPU-bound programs are reniced by seven: a weight of 102,400
/// against ten times 215.
const SPEED_ALONE: f64 = 0.95;
/// The same next to ten groups with a weight each: a weight of 10,000 against ten times 100 is
/// 0.91.
const SPEED_BY_NICE: f64 = 0.88;
/// Longest 99th percentile of the frame time, relative to an idle machine.
const SLOWER: f64 = 2.0;
/// Missed frames beyond those of the idle machine, in percentage points.
const MISSED: f64 = 1.0;
/// Frames per run. The loads take their hundredth of the CPU one clock tick at a time, which is one
/// frame in 109: out of a hundred frames that would be none, one or two.
const FRAMES_DRAWN: u32 = 300;
/// Time in microseconds within which the boost must have moved.
const MOVED_US: f64 = 50_000.0;

const ALONE: &str = "add-alone";
const ADD: &str = "add-loads";
/// Long enough that the time until competitors are found counts little.
const LONG: &str = "add-loads-10s";
const LONG_RUNS: u32 = 1700;
const LINPACK: &str = "linpack-loads";
const FRAMES: &str = "frames-loads";
const BUILD: &str = "frames-build";
const HELPER: &str = "helper-known";
const UNKNOWN: &str = "helper-unknown";
/// A frame takes a third of a second where the helper is unknown, or where the weight was set by
/// hand.
const HELPER_FRAMES: u32 = 100;
const UNKNOWN_FRAMES: u32 = 20;
const SWITCHES: &str = "switches";

fn place(variant: &Variant) -> Place {
    match variant.load.as_str() {
        ROOT => Place::Root,
        SIBLINGS => Place::Siblings,
        _ => Place::Background,
    }
}

/// The experiments, with `runs` runs of each program and `frames` frames.
fn tasks(place: Place, runs: u32, frames: u32) -> Vec<Task> {
    let add = Boost {
        app: Spin::AddLoop,
        runs,
        load: Spin::AddLoop,
        loads: LOADS,
        place,
        helper: None,
        switches: false,
    };
    let drawing = Boost {
        app: Spin::Frames,
        runs: frames,
        ..add.clone()
    };
    let served = |helper| Boost {
        runs: match helper {
            Helper::Known => HELPER_FRAMES,
            Helper::Unknown => UNKNOWN_FRAMES,
        },
        helper: Some(helper),
        ..add.clone()
    };
    let all = [
        (ADD, add.clone()),
        (
            LINPACK,
            Boost {
                app: Spin::Linpack,
                ..add.clone()
            },
        ),
        (FRAMES, drawing.clone()),
        (
            ALONE,
            Boost {
                loads: 0,
                ..add.clone()
            },
        ),
        (
            BUILD,
            Boost {
                load: Spin::Build,
                loads: 1,
                ..drawing
            },
        ),
        (HELPER, served(Helper::Known)),
        (UNKNOWN, served(Helper::Unknown)),
        (
            SWITCHES,
            Boost {
                switches: true,
                ..add.clone()
            },
        ),
    ];
    let long = Boost {
        runs: LONG_RUNS,
        ..add
    };
    let long = (place == Place::Root).then_some((LONG, long));
    let named = |(name, work): (&str, Boost)| Task::new(name, Work::Boost(work));
    all.into_iter().chain(long).map(named).collect()
}

fn variants(loads: &[&str]) -> Vec<Variant> {
    Variant::product(&[Lru::Mglru], &[SwapKind::None], loads)
}

fn machine(vcpus: u32) -> MachineSize {
    MachineSize {
        memory_mib: 192,
        vcpus,
        ..MachineSize::default()
    }
}

fn metrics() -> Vec<Metric> {
    let metric = Metric::new;
    vec![
        metric("run_us", "run", Better::Lower),
        metric("cpu_percent", "% of a processor", Better::Higher),
        metric("mflops", "MFLOPS", Better::Higher),
        metric("wake_p50_us", "wake-up p50", Better::Lower),
        metric("wake_p99_us", "wake-up p99", Better::Lower),
        metric("frame_p50_us", "frame p50", Better::Lower),
        metric("frame_p99_us", "frame p99", Better::Lower),
        metric("missed_frames_percent", "% missed", Better::Lower),
        metric("daemon_percent", "daemon's % of a processor", Better::Lower),
        metric("switch_p50_us", "boost moved p50", Better::Lower),
        metric("switch_max_us", "boost moved, worst", Better::Lower),
    ]
}

/// The figure by which an app's speed is judged.
#[derive(Clone, Copy)]
enum Speed {
    /// Time of a run.
    Time,
    /// The app's CPU share.
    Share,
}

fn judge(aggregates: &Aggregates, speed: Speed) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for variant in aggregates.variants() {
        for arm in [ON_DEBIAN, LIMELIGHT] {
            let figures = Figures {
                aggregates,
                variant: &variant,
                arm,
                speed,
            };
            for task in [ALONE, ADD, LONG, LINPACK] {
                verdicts.extend(figures.speed(task));
            }
            for task in [FRAMES, BUILD] {
                verdicts.extend(figures.in_time(task));
                verdicts.extend(figures.shown(task));
            }
            verdicts.extend(figures.shown(HELPER));
            verdicts.extend(figures.moved());
        }
    }
    verdicts
}

/// One arm of one variant.
struct Figures<'a> {
    aggregates: &'a Aggregates,
    variant: &'a Variant,
    arm: ArmOn,
    speed: Speed,
}

impl Figures<'_> {
    fn median(&self, arm: ArmOn, task: &str, name: &str) -> Option<f64> {
        self.aggregates.median(self.variant, arm, task, name)
    }

    fn speed(&self, task: &str) -> Option<Verdict> {
        let speed = match self.speed {
            Speed::Time => {
                self.median(IDLE, task, "run_us")? / self.median(self.arm, task, "run_us")?
            }
            Speed::Share => {
                self.median(self.arm, task, "cpu_percent")?
                    / self.median(IDLE, task, "cpu_percent")?
            }
        };
        // What no weight can achieve on one CPU is not promised.
        let promised = match (task, place(self.variant)) {
            (ALONE, _) | (_, Place::Background) => SPEED,
            (_, Place::Root) => SPEED_ALONE,
            (_, Place::Siblings) => SPEED_BY_NICE,
        };
        Some(Verdict::new(
            format!(
                "{} {task}: {} keeps at least {promised} of the idle machine's speed",
                self.variant, self.arm
            ),
            speed >= promised,
            format!("{speed:.4}"),
        ))
    }

    /// Lateness of the slowest frame in a hundred.
    fn in_time(&self, task: &str) -> Option<Verdict> {
        let idle = self.median(IDLE, task, "frame_p99_us")?;
        let ours = self.median(self.arm, task, "frame_p99_us")?;
        Some(Verdict::new(
            format!(
                "{} {task}: the slowest frame in a hundred of {} takes at most {SLOWER} times as long as on an idle machine",
                self.variant, self.arm
            ),
            ours <= idle * SLOWER,
            format!("{ours:.0} us, idle {idle:.0} us"),
        ))
    }

    /// Number of missed frames. A helper must not miss frames either, although it shares the CPU
    /// with an app that never sleeps.
    fn shown(&self, task: &str) -> Option<Verdict> {
        let idle = self.median(IDLE, task, "missed_frames_percent")?;
        let ours = self.median(self.arm, task, "missed_frames_percent")?;
        Some(Verdict::new(
            format!(
                "{} {task}: {} misses at most {MISSED} % of the frames more than an idle machine",
                self.variant, self.arm
            ),
            ours <= idle + MISSED,
            format!("{ours:.1} %, idle {idle:.1} %"),
        ))
    }

    fn moved(&self) -> Option<Verdict> {
        let worst = self.median(self.arm, SWITCHES, "switch_max_us")?;
        Some(Verdict::new(
            format!(
                "{}: on {} the boost has moved within 50 ms of each change of focus",
                self.variant, self.arm
            ),
            worst <= MOVED_US,
            format!("{:.1} ms at worst", worst / 1000.0),
        ))
    }
}

impl Scenario for Exact {
    fn name(&self) -> &'static str {
        "boost-exact"
    }

    fn about(&self) -> &'static str {
        "EIMOS's loops, Linpack and a frame task on one processor beside ten loads and a build"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        variants(&[OWN, ROOT, SIBLINGS])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine(1)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        tasks(place(variant), 40, FRAMES_DRAWN)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    fn repetitions(&self) -> u32 {
        1
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        judge(aggregates, Speed::Time)
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }
}

impl Scenario for TwoProcessors {
    fn name(&self) -> &'static str {
        "boost"
    }

    fn about(&self) -> &'static str {
        "the same on two processors"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        variants(&[OWN, ROOT])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine(2)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        tasks(place(variant), 400, FRAMES_DRAWN)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        judge(aggregates, Speed::Share)
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }
}

impl Scenario for Rules {
    fn name(&self) -> &'static str {
        "boost-rules"
    }

    fn about(&self) -> &'static str {
        "boost moves with the focus, respects the user, and leaves nothing behind"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        variants(&["values"])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            data_mib: 64,
            bfq: true,
            ..machine(2)
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::BoostRules)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
