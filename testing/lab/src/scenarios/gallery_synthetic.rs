// SPDX-License-Identifier: GPL-2.0-or-later
//! FMP's experiment with synthetic programs, as benchmarks: in fast mode with disks and real
//! concurrency, in exact mode with comparable times.

use std::time::Duration;

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
/// Swap size: more than could ever be swapped out. In exact mode a disk of this size is part of the
/// guest's memory.
const SWAP_MIB: u32 = 192;
/// Expected console output when a hog grows without swap.
const OUT_OF_MEMORY: &[&str] = &["Out of memory", "oom-kill", "invoked oom-killer"];
/// Each Limelight arm is compared with arms on the same kernel, or with the distribution's stock
/// arm if stock did not run on ours.
const PAIRS: [(ArmOn, ArmOn, ArmOn, ArmOn); 2] = [
    (IDLE, STOCK, BEST_STOCK, ON_DEBIAN),
    (IDLE_OURS, STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT),
];
/// Pauses before a swipe in milliseconds, of a user who views photos, and the number of such
/// swipes.
const THINK: &[(u32, u32)] = &[(200, 4), (1_000, 2), (3_000, 2), (10_000, 1), (30_000, 1)];

/// The viewer next to a load, in one of several modes.
pub struct Synthetic {
    name: &'static str,
    about: &'static str,
    mode: Mode,
    variants: fn() -> Vec<Variant>,
    arms: &'static [ArmOn],
    further_arms: &'static [ArmOn],
    /// Time from the start of the load to the first swipe.
    warm_up_ms: u32,
    /// Pauses before a swipe in milliseconds, and the number of such swipes.
    pauses: &'static [(u32, u32)],
    limit: Duration,
    judge: fn(&Aggregates) -> Vec<Verdict>,
    /// Figures in addition to the common ones.
    further_metrics: fn() -> Vec<Metric>,
}

/// Counters and rough times.
pub static FAST: Synthetic = Synthetic {
    name: "gallery-synthetic",
    about: "an image viewer of 56 MiB in 160 MiB beside copy, index and grow",
    mode: Mode::Fast,
    variants: matrix,
    arms: &[
        IDLE,
        STOCK,
        BEST_STOCK,
        ON_DEBIAN,
        IDLE_OURS,
        STOCK_OURS,
        BEST_STOCK_OURS,
        LIMELIGHT,
    ],
    further_arms: &[],
    warm_up_ms: 6_000,
    pauses: &[(200, 12), (2_000, 2)],
    limit: Duration::from_secs(180),
    judge: against_pairs,
    further_metrics: Vec::new,
};

/// Times without noise, on one CPU. A busy second of such a guest costs the host ten: the warm-up
/// only fills its memory once.
pub static EXACT: Synthetic = Synthetic {
    name: "gallery-exact",
    about: "the same viewer where one instruction takes one nanosecond: times to compare",
    mode: Mode::Exact,
    variants: matrix,
    arms: &[
        IDLE,
        STOCK,
        BEST_STOCK,
        ON_DEBIAN,
        IDLE_OURS,
        BEST_STOCK_OURS,
        LIMELIGHT,
    ],
    further_arms: &[STOCK_OURS],
    warm_up_ms: 3_000,
    pauses: &[(200, 8)],
    limit: Duration::from_secs(60),
    judge: against_pairs,
    further_metrics: Vec::new,
};

/// The pauses of a user who views photos.
pub static THINKING: Synthetic = Synthetic {
    name: "gallery-think",
    about: "the same viewer, exact, with pauses from 0.2 s to 30 s before a swipe",
    mode: Mode::Exact,
    variants: hurting,
    arms: &[IDLE_OURS, STOCK, BEST_STOCK, LIMELIGHT],
    further_arms: &[IDLE, STOCK_OURS, BEST_STOCK_OURS, ON_DEBIAN],
    warm_up_ms: 3_000,
    pauses: THINK,
    limit: Duration::from_secs(180),
    judge: after_each_pause,
    further_metrics: gallery::pause_metrics,
};

/// Every page replacement with every swap and every load.
fn matrix() -> Vec<Variant> {
    Variant::product(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::Disk, SwapKind::Zram, SwapKind::None],
        &[INDEX_READ, INDEX_MAPPING, GROW, COPY],
    )
}

/// Each page replacement with the load that hurts it most.
fn hurting() -> Vec<Variant> {
    vec![
        Variant::new(Lru::TwoList, SwapKind::Zram, INDEX_READ),
        Variant::new(Lru::Mglru, SwapKind::Zram, INDEX_MAPPING),
    ]
}

/// Without swap only a kill stops a hog: such variants show which process dies, and promise no
/// more.
fn hopeless(variant: &Variant) -> bool {
    variant.load == GROW && variant.swap == SwapKind::None
}

fn against_pairs(aggregates: &Aggregates) -> Vec<Verdict> {
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
            // Reported without a promise: stock may reach the limit next to a copy.
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

/// The first swipe after a pause decides, however long the pause: judges the worst of each length.
fn after_each_pause(aggregates: &Aggregates) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for variant in aggregates.variants() {
        for (ms, _) in THINK {
            let worst = |arm, what: &str| {
                let series = format!("pause_{ms}_{what}");
                let samples = aggregates.series(&variant, arm, TASK, &series);
                samples.iter().copied().reduce(f64::max)
            };
            let faults = |arm| worst(arm, "major_faults");
            if let (Some(stock), Some(ours)) = (faults(STOCK), faults(LIMELIGHT)) {
                verdicts.push(Verdict::new(
                    format!(
                        "{variant}: the worst swipe after {ms} ms has at most 5 % of stock's major faults"
                    ),
                    ours <= stock * 0.05,
                    format!("{ours}, stock {stock}"),
                ));
            }
        }
    }
    verdicts
}

impl Scenario for Synthetic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn variants(&self) -> Vec<Variant> {
        (self.variants)()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        self.arms.to_vec()
    }

    fn further_arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        self.further_arms.to_vec()
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::comparable_machine(SWAP_MIB)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let mut work = gallery::brief(&variant.load);
        work.warm_up_ms = self.warm_up_ms;
        if self.mode == Mode::Exact {
            // Sharing the only CPU is another mechanism's job.
            work.load_nice = 19;
            work.app_realtime = true;
        }
        work.pauses = self
            .pauses
            .iter()
            .map(|&(ms, swipes)| Pause { ms, swipes })
            .collect();
        vec![Task::new(TASK, Work::GallerySynthetic(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        self.limit
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        (self.judge)(aggregates)
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut all = gallery::metrics();
        all.extend((self.further_metrics)());
        all
    }

    fn expected_console(&self) -> &'static [&'static str] {
        OUT_OF_MEMORY
    }
}
