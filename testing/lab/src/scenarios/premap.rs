// SPDX-License-Identifier: GPL-2.0-or-later
//! PREMAP's experiment: page faults of an app with a growing heap, with the distribution's page
//! sizes, with system-wide large folios, and with Limelight; on a fresh machine and on one whose
//! free memory is fragmented into single pages.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Growth, Heap, Pages, Work};

use super::gallery_real::rootfs_packages;
use super::terms::{BEST_STOCK_OURS, LIMELIGHT, STOCK, STOCK_OURS};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// Faults and memory.
pub struct Premap;

/// Time, in exact mode.
pub struct PremapTime;

/// Limits that premap must respect.
pub struct PremapRules;

const PLAIN: &str = "plain";
const FRAGMENTED: &str = "fragmented";
/// Share of stock's faults that must be gone.
const GONE: f64 = 0.8;
/// Highest peak memory, relative to stock.
const MEMORY: f64 = 1.03;
/// The same for an app that uses little of its reservation: its memory need only be bounded.
const MEMORY_SPARSE: f64 = 2.0;
/// Share of the saving that must remain on a fragmented machine.
const LEFT: f64 = 0.9;
/// Free memory of the fragmented machine, in MiB.
const FRAGMENTED_MIB: u32 = 110;

const SWIPE: &str = "swipe";
const SWIPE_LARGE: &str = "swipe-large";
const ARENAS: &str = "arenas";
const SPARSE: &str = "sparse";
const PROGRAM: &str = "perl";

/// Growth patterns. The two swipes are those of the paper's browsers: 9,326 and 13,637 faults.
const WORKS: [(&str, Growth, u32); 5] = [
    (SWIPE, Growth::Swipe { pages: 9_500 }, 3),
    (SWIPE_LARGE, Growth::Swipe { pages: 13_900 }, 3),
    (
        ARENAS,
        Growth::Arenas {
            threads: 4,
            pages: 2_800,
        },
        3,
    ),
    (
        SPARSE,
        Growth::Sparse {
            mib: 128,
            every: 64,
        },
        3,
    ),
    (PROGRAM, Growth::Program, 1),
];

/// System-wide large folios, the best option of a stock kernel; each has its own tasks.
const LARGE: [(&str, Pages); 4] = [
    ("mthp-16k", Pages::Mthp { kib: 16 }),
    ("mthp-32k", Pages::Mthp { kib: 32 }),
    (MTHP_64K, Pages::Mthp { kib: 64 }),
    ("thp", Pages::Thp),
];
const MTHP_64K: &str = "mthp-64k";

fn variants() -> Vec<Variant> {
    Variant::product(&[Lru::Mglru], &[SwapKind::None], &[PLAIN, FRAGMENTED])
}

/// The tasks of an arm: the growth patterns, with large page sizes in the name.
fn tasks(variant: &Variant, arm: ArmOn, timed: bool) -> Vec<Task> {
    let settings: &[(&str, Pages)] = match arm.arm {
        Arm::BestStock if timed => &LARGE[2..3],
        Arm::BestStock => &LARGE,
        _ => &[("", Pages::Base)],
    };
    let fragmented_mib = (variant.load == FRAGMENTED).then_some(FRAGMENTED_MIB);
    let mut tasks = Vec::new();
    for &(setting, pages) in settings {
        for (work, growth, rounds) in WORKS {
            if timed && !matches!(growth, Growth::Swipe { .. }) {
                continue;
            }
            let heap = Heap {
                growth,
                rounds,
                pages,
                fragmented_mib,
                timed,
            };
            tasks.push(Task::new(name(work, setting), Work::Heap(heap)));
        }
    }
    tasks
}

fn name(work: &str, setting: &str) -> String {
    match setting {
        "" => work.to_owned(),
        setting => format!("{work}-{setting}"),
    }
}

impl Scenario for Premap {
    fn name(&self) -> &'static str {
        "premap"
    }

    fn about(&self) -> &'static str {
        "page faults of a growing heap: stock, large folios for all, and ours"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        variants()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK, STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 384,
            vcpus: 2,
            rootfs_packages: rootfs_packages(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task> {
        tasks(variant, arm, false)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(400)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (task, growth, _) in WORKS {
                let value = |arm, name| aggregates.median(&variant, arm, task, name);
                let sparse = matches!(growth, Growth::Sparse { .. });
                if !sparse {
                    verdicts.extend(faults_gone(&variant, task, |arm| value(arm, "faults")));
                }
                verdicts.extend(memory_bounded(&variant, task, sparse, |arm| {
                    value(arm, "peak_kib")
                }));
            }
        }
        for (task, growth, _) in WORKS {
            if !matches!(growth, Growth::Sparse { .. }) {
                verdicts.extend(saving_left(aggregates, task));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = Metric::new;
        vec![
            metric("faults", "page faults", Better::Lower),
            metric("peak_kib", "peak memory", Better::Lower),
            metric("response_us", "a round", Better::Lower),
            metric(
                "vmstat_limelight_premap_mapped",
                "pages mapped ahead",
                Better::Neutral,
            ),
            metric(
                "vmstat_limelight_premap_wasted",
                "pages mapped in vain",
                Better::Lower,
            ),
        ]
    }
}

fn faults_gone(
    variant: &Variant,
    task: &str,
    faults: impl Fn(ArmOn) -> Option<f64>,
) -> Option<Verdict> {
    let (stock, ours) = (faults(STOCK_OURS)?, faults(LIMELIGHT)?);
    let gone = 1.0 - ours / stock;
    Some(Verdict::new(
        format!("{variant} {task}: {LIMELIGHT} takes at least 80 % of the faults away"),
        gone >= GONE,
        format!("{ours} of {stock}: {:.1} % gone", gone * 100.0),
    ))
}

fn memory_bounded(
    variant: &Variant,
    task: &str,
    sparse: bool,
    peak: impl Fn(ArmOn) -> Option<f64>,
) -> Option<Verdict> {
    let ratio = peak(LIMELIGHT)? / peak(STOCK_OURS)?;
    let limit = if sparse { MEMORY_SPARSE } else { MEMORY };
    Some(Verdict::new(
        format!("{variant} {task}: {LIMELIGHT} holds at most {limit} times stock's memory"),
        ratio <= limit,
        format!("{ratio:.4}"),
    ))
}

/// Share of the saving on the plain machine that remains on the fragmented one.
fn saving_left(aggregates: &Aggregates, task: &str) -> Option<Verdict> {
    let saving = |load: &str, arm, large: &str| {
        let variants = aggregates.variants();
        let variant = variants.iter().find(|variant| variant.load == load)?;
        let stock = aggregates.median(variant, STOCK_OURS, task, "faults")?;
        let ours = aggregates.median(variant, arm, &name(task, large), "faults")?;
        Some(stock - ours)
    };
    let left =
        |arm, large: &str| Some(saving(FRAGMENTED, arm, large)? / saving(PLAIN, arm, large)?);
    let ours = left(LIMELIGHT, "")?;
    let mthp = left(BEST_STOCK_OURS, MTHP_64K).map_or("not run".to_owned(), |left| {
        format!("{:.1} %", left * 100.0)
    });
    Some(Verdict::new(
        format!("{task}: {LIMELIGHT} keeps at least 90 % of its saving on fragmented memory"),
        ours >= LEFT,
        format!("{:.1} %; {MTHP_64K} for everybody: {mthp}", ours * 100.0),
    ))
}

impl Scenario for PremapTime {
    fn name(&self) -> &'static str {
        "premap-time"
    }

    fn about(&self) -> &'static str {
        "instructions of a round of a growing heap"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        variants()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 384,
            vcpus: 1,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task> {
        tasks(variant, arm, true)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for task in [SWIPE, SWIPE_LARGE] {
                let time = |arm, task: &str| aggregates.median(&variant, arm, task, "response_us");
                let Some(ours) = time(LIMELIGHT, task) else {
                    continue;
                };
                if let Some(stock) = time(STOCK_OURS, task) {
                    verdicts.push(Verdict::new(
                        format!("{variant} {task}: {LIMELIGHT} responds faster than stock"),
                        ours < stock,
                        format!("{:.3}", ours / stock),
                    ));
                }
                let large = time(BEST_STOCK_OURS, &name(task, MTHP_64K));
                if let (Some(large), PLAIN) = (large, variant.load.as_str()) {
                    verdicts.push(Verdict::new(
                        format!("{variant} {task}: {LIMELIGHT} is no slower than {MTHP_64K} for everybody"),
                        ours <= large,
                        format!("{:.3}", ours / large),
                    ));
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric {
            name: "response_us",
            label: "a round",
            better: Better::Lower,
        }]
    }
}

impl Scenario for PremapRules {
    fn name(&self) -> &'static str {
        "premap-rules"
    }

    fn about(&self) -> &'static str {
        "premap beside limits, borders, locks, userfaultfd and fork"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, PLAIN)]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 256,
            vcpus: 2,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::PremapRules)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(60)
    }

    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        // The guest's checks cover everything.
        Vec::new()
    }
}
