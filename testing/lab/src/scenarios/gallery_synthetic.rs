// SPDX-License-Identifier: GPL-2.0-or-later
//! FMP's experiment with synthetic programs, as benchmarks. Fast mode has the host's disks and real
//! concurrency, exact mode has comparable times.

use limelight_apps::scenario::{Gallery, Pause};

use super::gallery::{self, COPY, GROW, INDEX_MAPPING, INDEX_READ, ROUNDS};
use super::terms::*;

const TASK: &str = "swipe";
/// Swap size in MiB: more than the guest can ever swap out. In exact mode a disk of this size is
/// part of the guest's memory.
const SWAP_MIB: u32 = 192;
/// The arms that are compared: idle, stock, the best knob, and Limelight, all on the same kernel.
/// If stock did not run on our kernel, the distribution's stock arm replaces it.
const PAIRS: [(ArmOn, ArmOn, ArmOn, ArmOn); 2] = [
    (IDLE, STOCK, BEST_STOCK, ON_DEBIAN),
    (IDLE_OURS, STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT),
];
/// The pauses of a user who views photos: milliseconds before a swipe, and the number of swipes
/// with that pause.
const THINK: [(u32, u32); 5] = [(200, 4), (1_000, 2), (3_000, 2), (10_000, 1), (30_000, 1)];

/// The gallery in fast mode, with every page replacement, swap and load: counters, and rough times.
pub const FAST: Spec = Spec {
    name: "gallery-synthetic",
    about: "an image viewer of 56 MiB in 160 MiB beside copy, index and grow",
    variants: &[(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::Disk, SwapKind::Zram, SwapKind::None],
        &[INDEX_READ, INDEX_MAPPING, GROW, COPY],
    )],
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
    further_arms: &[DAMON_LRU_SORT, DAMON_RECLAIM],
    machine: |_| gallery::comparable_machine(SWAP_MIB),
    tasks: |variant, _| {
        vec![swipe(
            gallery::brief(&variant.load),
            &[(200, 12), (2_000, 2)],
        )]
    },
    time_limit_s: 180,
    must_hold: against_pairs,
    metrics: &[gallery::METRICS],
    expected_console: OUT_OF_MEMORY,
    ..Spec::BENCHMARK
};

/// The gallery in exact mode, on one CPU: times without noise. A busy second of such a guest takes
/// ten seconds of host time, so the warm-up only fills its memory once.
pub const EXACT: Spec = Spec {
    name: "gallery-exact",
    about: "the same viewer where one instruction takes one nanosecond: times to compare",
    arms: &[
        IDLE,
        STOCK,
        BEST_STOCK,
        ON_DEBIAN,
        IDLE_OURS,
        BEST_STOCK_OURS,
        LIMELIGHT,
    ],
    further_arms: &[STOCK_OURS, EARLYOOM, DAMON_LRU_SORT, DAMON_RECLAIM],
    tasks: |variant, _| vec![brief_swipes(variant)],
    time_limit_s: 60,
    mode: Mode::Exact,
    ..FAST
};

/// The pauses of a user who views photos, with the load that hurts each page replacement most.
pub const THINKING: Spec = Spec {
    name: "gallery-think",
    about: "the same viewer, exact, with pauses from 0.2 s to 30 s before a swipe",
    variants: &[
        (&[Lru::TwoList], &[SwapKind::Zram], &[INDEX_READ]),
        (&[Lru::Mglru], &[SwapKind::Zram], &[INDEX_MAPPING]),
    ],
    arms: &[IDLE_OURS, STOCK, BEST_STOCK, LIMELIGHT],
    further_arms: &[IDLE, STOCK_OURS, BEST_STOCK_OURS, ON_DEBIAN],
    tasks: |variant, _| vec![swipe(alone_on_cpu(variant), &THINK)],
    time_limit_s: 180,
    must_hold: after_each_pause,
    metrics: &[
        gallery::METRICS,
        &[
            Metric::lower("pause_200_worst_us", "worst response after 0.2 s"),
            Metric::lower("pause_1000_worst_us", "worst response after 1 s"),
            Metric::lower("pause_3000_worst_us", "worst response after 3 s"),
            Metric::lower("pause_10000_worst_us", "response after 10 s"),
            Metric::lower("pause_30000_worst_us", "response after 30 s"),
        ],
    ],
    ..EXACT
};

/// The tasks of [`LUNCH_BREAK`]: name, time in ms for which the user is away, and whether
/// protection ages.
const LUNCH: [(&str, u32, bool); 8] = [
    ("ageing-10s", 10_000, true),
    ("ageing-1m", 60_000, true),
    ("ageing-10m", 600_000, true),
    ("ageing-60m", 3_600_000, true),
    ("whole-10s", 10_000, false),
    ("whole-1m", 60_000, false),
    ("whole-10m", 600_000, false),
    ("whole-60m", 3_600_000, false),
];
/// Completion time of a request to the swap disk: a slow disk, so that the load waits long enough
/// to count as memory pressure although it works for only a small part of an hour.
const LUNCH_SWAP_NSEC: u32 = 1_000_000;
/// Pause before each other swipe, in milliseconds.
const SWIPES_MS: u32 = 200;

/// A long pause of the user, beside a program whose work fits into memory only without the viewer.
pub const LUNCH_BREAK: Spec = Spec {
    name: "gallery-lunch",
    about: "the same viewer, exact, left in front for up to an hour beside periodic work",
    variants: &[(&[Lru::TwoList, Lru::Mglru], &[SwapKind::Disk], &[ROUNDS])],
    arms: &[STOCK, ON_DEBIAN, LIMELIGHT],
    further_arms: &[IDLE, IDLE_OURS, STOCK_OURS, BEST_STOCK, BEST_STOCK_OURS],
    machine: |_| MachineSize {
        swap_nsec: LUNCH_SWAP_NSEC,
        ..gallery::comparable_machine(SWAP_MIB)
    },
    tasks: |variant, arm| {
        let ages = |&&(_, _, ages): &&(&str, u32, bool)| ages || arm.is_ours();
        let task = |&(name, ms, ages): &(&'static str, u32, bool)| {
            let work = Gallery {
                windows: true,
                // `swap` would swap out the load, which is a service, and hide what ageing does.
                config: format!("[expert]\nprotect_ageing = {ages}\n[swap]\nenabled = false\n"),
                pauses: [(SWIPES_MS, 3), (ms, 1), (SWIPES_MS, 5)]
                    .map(|(ms, swipes)| Pause { ms, swipes })
                    .to_vec(),
                ..alone_on_cpu(variant)
            };
            Task::new(name, Work::GallerySynthetic(work))
        };
        LUNCH.iter().filter(ages).map(task).collect()
    },
    time_limit_s: 3_900,
    must_hold: |_| Vec::new(),
    metrics: &[
        gallery::METRICS,
        &[
            Metric::lower("load_rounds_ms", "milliseconds for a round of the load"),
            Metric::lower("pause_10000_worst_us", "response after 10 s"),
            Metric::lower("pause_60000_worst_us", "response after 1 min"),
            Metric::lower("pause_600000_worst_us", "response after 10 min"),
            Metric::lower("pause_3600000_worst_us", "response after 60 min"),
        ],
    ],
    ..EXACT
};

/// Eight swipes in quick succession, with the viewer's and the load's settings of exact mode.
pub fn brief_swipes(variant: &Variant) -> Task {
    swipe(alone_on_cpu(variant), &[(200, 8)])
}

/// The gallery on one CPU with a short warm-up. The viewer has priority over the load, because
/// sharing the CPU is boost's subject.
fn alone_on_cpu(variant: &Variant) -> Gallery {
    Gallery {
        warm_up_ms: 3_000,
        load_nice: 19,
        app_realtime: true,
        ..gallery::brief(&variant.load)
    }
}

/// The task with `pauses`: milliseconds before a swipe, and the number of swipes with that pause.
fn swipe(work: Gallery, pauses: &[(u32, u32)]) -> Task {
    let pause = |&(ms, swipes): &(u32, u32)| Pause { ms, swipes };
    let pauses = pauses.iter().map(pause).collect();
    Task::new(TASK, Work::GallerySynthetic(Gallery { pauses, ..work }))
}

/// Whether there is no swap, so that only a kill can stop the hog. Such variants only promise that
/// the viewer is not killed.
fn hopeless(variant: &Variant) -> bool {
    variant.load == GROW && variant.swap == SwapKind::None
}

fn against_pairs(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, TASK, |seen| {
        let mut verdicts = Vec::new();
        for (idle, stock, best, limelight) in PAIRS {
            verdicts.extend(seen.viewer_lives(limelight));
            if hopeless(seen.variant) {
                continue;
            }
            // Beside a copy, faults are reported but not judged, because stock itself may reach the
            // limit there.
            if seen.variant.load != COPY {
                let gone = seen
                    .faults_gone(idle, stock, limelight)
                    .or_else(|| seen.faults_gone(idle, STOCK, limelight));
                verdicts.extend(gone);
            }
            verdicts.extend(seen.response_near(idle, limelight));
            verdicts.extend(seen.throughput_near(best, limelight));
        }
        verdicts
    })
}

/// Verdicts on the swipe with the most major faults, for each length of pause.
fn after_each_pause(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, TASK, |seen| {
        let verdict = |(ms, _)| {
            let faults = |arm| {
                let series = format!("pause_{ms}_major_faults");
                let samples = aggregates.series(seen.variant, arm, TASK, &series);
                samples.iter().copied().reduce(f64::max)
            };
            let (stock, ours) = (faults(STOCK)?, faults(LIMELIGHT)?);
            Some(Verdict::new(
                format!(
                    "{}: the worst swipe after {ms} ms has at most 5 % of stock's major faults",
                    seen.variant
                ),
                ours <= stock * 0.05,
                format!("{ours} major faults, stock {stock}"),
            ))
        };
        THINK.into_iter().filter_map(verdict).collect::<Vec<_>>()
    })
}
