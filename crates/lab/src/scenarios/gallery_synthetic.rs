// SPDX-License-Identifier: GPL-2.0-or-later
//! FMP's experiment with our own programs, as a benchmark: in fast mode with disks and real
//! concurrency, in exact mode with times that can be compared.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Pause, Work};

use super::gallery::{self, COPY, GROW, INDEX_MAPPING, INDEX_READ};
use super::terms::{
    Seen, BEST_STOCK, BEST_STOCK_OURS, IDLE, IDLE_OURS, LIMELIGHT, ON_DEBIAN, STOCK, STOCK_OURS,
};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

const TASK: &str = "swipe";
/// Swap of a machine that has it: more than anything that could go there.
const SWAP_MIB: u32 = 256;
/// In exact mode it is part of the guest's memory: enough for the hog and the viewer's heap.
const EXACT_SWAP_MIB: u32 = 192;
/// What the console of a machine says in which a hog grows without swap.
const OUT_OF_MEMORY: &[&str] = &["Out of memory", "oom-kill", "invoked oom-killer"];

/// Counters and rough times.
pub struct Fast;

/// The pauses of a person who looks at a photo.
pub struct Think;

/// Times without noise, on one CPU.
pub struct Exact;

/// Each Limelight arm is compared with what runs on the same kernel; with the distribution's stock
/// where stock did not run on ours.
const PAIRS: [(ArmOn, ArmOn, ArmOn, ArmOn); 2] = [
    (IDLE, STOCK, BEST_STOCK, ON_DEBIAN),
    (IDLE_OURS, STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT),
];

/// Swipes by the pause in milliseconds before each.
fn pauses(swipes: &[(u32, u32)]) -> Vec<Pause> {
    swipes
        .iter()
        .map(|&(ms, swipes)| Pause { ms, swipes })
        .collect()
}

fn variants() -> Vec<Variant> {
    Variant::product(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::Disk, SwapKind::Zram, SwapKind::None],
        &[INDEX_READ, INDEX_MAPPING, GROW, COPY],
    )
}

fn arms() -> Vec<ArmOn> {
    PAIRS
        .iter()
        .flat_map(|&(idle, stock, best, limelight)| [idle, stock, best, limelight])
        .collect()
}

/// Without swap nothing but a killer stops a hog: such variants show who dies, and promise no more.
fn hopeless(variant: &Variant) -> bool {
    variant.load == GROW && variant.swap == SwapKind::None
}

fn judge(aggregates: &Aggregates) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for variant in aggregates.variants() {
        let seen = Seen {
            aggregates,
            variant: &variant,
            task: TASK,
        };
        for (idle, stock, best, limelight) in PAIRS {
            verdicts.extend(seen.viewer_lives(limelight));
            if hopeless(&variant) {
                continue;
            }
            // Reported, but promised by nobody: stock may reach the limit beside a copy.
            if variant.load != COPY {
                let gone = seen
                    .faults_gone(idle, stock, limelight)
                    .or_else(|| seen.faults_gone(idle, STOCK, limelight));
                verdicts.extend(gone);
            }
            verdicts.extend(seen.response_near(idle, limelight));
            verdicts.extend(seen.throughput_near(best, limelight));
        }
    }
    verdicts
}

impl Scenario for Fast {
    fn name(&self) -> &'static str {
        "gallery-synthetic"
    }

    fn about(&self) -> &'static str {
        "an image viewer of 56 MiB in 160 MiB beside copy, index and grow"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        variants()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        arms()
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::comparable_machine(SWAP_MIB)
    }

    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task> {
        let mut work = gallery::brief(&variant.load);
        work.pauses = pauses(&[(200, 12), (2_000, 2)]);
        if arm.arm == Arm::Idle {
            work.loads.clear();
        }
        vec![Task::new(TASK, Work::GallerySynthetic(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(180)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        judge(aggregates)
    }

    fn metrics(&self) -> Vec<Metric> {
        gallery::metrics()
    }

    fn expected_console(&self) -> &'static [&'static str] {
        OUT_OF_MEMORY
    }
}

/// Milliseconds before a swipe, and how many such swipes.
const THINK: [(u32, u32); 5] = [(200, 6), (1_000, 4), (3_000, 2), (10_000, 1), (30_000, 1)];

impl Scenario for Think {
    fn name(&self) -> &'static str {
        "gallery-think"
    }

    fn about(&self) -> &'static str {
        "the same viewer with pauses from 0.2 s to 30 s before a swipe"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Zram, INDEX_READ),
            Variant::new(Lru::Mglru, SwapKind::Zram, INDEX_MAPPING),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE_OURS, STOCK, BEST_STOCK, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::comparable_machine(SWAP_MIB)
    }

    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task> {
        let mut work = gallery::brief(&variant.load);
        work.pauses = pauses(&THINK);
        if arm.arm == Arm::Idle {
            work.loads.clear();
        }
        vec![Task::new(TASK, Work::GallerySynthetic(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (ms, _) in THINK {
                let series = format!("pause_{ms}_major_faults");
                let worst = |arm| {
                    let faults = aggregates.series(&variant, arm, TASK, &series);
                    faults.iter().copied().reduce(f64::max)
                };
                if let (Some(stock), Some(ours)) = (worst(STOCK), worst(LIMELIGHT)) {
                    verdicts.push(Verdict::new(
                        format!("{variant}: the worst swipe after {ms} ms has at most 5 % of stock's major faults"),
                        ours <= stock * 0.05,
                        format!("{ours}, stock {stock}"),
                    ));
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        gallery::metrics()
    }
}

impl Scenario for Exact {
    fn name(&self) -> &'static str {
        "gallery-exact"
    }

    fn about(&self) -> &'static str {
        "the same viewer where one instruction takes one nanosecond: times to compare"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        variants()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![
            IDLE,
            STOCK,
            BEST_STOCK,
            ON_DEBIAN,
            IDLE_OURS,
            BEST_STOCK_OURS,
            LIMELIGHT,
        ]
    }

    fn further_arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            vcpus: 1,
            ..gallery::comparable_machine(EXACT_SWAP_MIB)
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let mut work = gallery::brief(&variant.load);
        // Who gets the only CPU is another mechanism's business.
        work.load_nice = 19;
        // A busy second of the guest costs the host ten: this fills the guest's memory once.
        work.warm_up_ms = 3000;
        work.pauses = pauses(&[(200, 8)]);
        vec![Task::new(TASK, Work::GallerySynthetic(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(60)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        judge(aggregates)
    }

    fn metrics(&self) -> Vec<Metric> {
        gallery::metrics()
    }

    fn expected_console(&self) -> &'static [&'static str] {
        OUT_OF_MEMORY
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }
}
