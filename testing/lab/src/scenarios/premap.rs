// SPDX-License-Identifier: GPL-2.0-or-later
//! PREMAP's experiment: page faults of an app with a growing heap. It compares the distribution's
//! page sizes, system-wide large folios, and Limelight. The machine is fresh, or its free memory is
//! fragmented into single pages.

use limelight_apps::scenario::{Growth, Heap, Pages};

use super::gallery_real::PACKAGES;
use super::terms::*;

const PLAIN: &str = "plain";
const FRAGMENTED: &str = "fragmented";
/// Lowest share of stock's faults that premap must save.
const GONE: f64 = 0.8;
/// Highest peak memory, relative to stock.
const MEMORY: f64 = 1.03;
/// Highest peak memory of an app that uses little of its reservation, relative to stock. Such an
/// app's memory must be bounded, but may exceed stock's.
const MEMORY_SPARSE: f64 = 2.0;
/// Lowest number of faults saved on a fragmented machine, relative to those saved on a fresh one.
const LEFT: f64 = 0.9;
/// Free memory of the fragmented machine, in MiB.
const FRAGMENTED_MIB: u32 = 110;

const SWIPE: &str = "swipe";
const SWIPE_LARGE: &str = "swipe-large";
const ARENAS: &str = "arenas";
const SPARSE: &str = "sparse";
const PROGRAM: &str = "perl";

/// Growth patterns, and their rounds. The two swipes correspond to the paper's browsers, with 9,326
/// and 13,637 faults.
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

const VARIANTS: &[Product] = &[(&[Lru::Mglru], &[SwapKind::None], &[PLAIN, FRAGMENTED])];

/// Settings of system-wide large folios, the best option of a stock kernel. Each setting has its
/// own tasks.
const LARGE: [(&str, Pages); 4] = [
    ("mthp-16k", Pages::Mthp { kib: 16 }),
    ("mthp-32k", Pages::Mthp { kib: 32 }),
    (MTHP_64K, Pages::Mthp { kib: 64 }),
    ("thp", Pages::Thp),
];
const MTHP_64K: &str = "mthp-64k";
/// Limelight where the administrator permits large folios: premap fills its windows with them.
const MADVISE_64K: (&str, Pages) = ("madvise-64k", Pages::Madvise { kib: 64 });

/// The tasks of an arm: each growth pattern with each of the arm's page sizes. A large page size is
/// part of the name.
fn tasks(variant: &Variant, arm: ArmOn, timed: bool) -> Vec<Task> {
    let settings: &[(&str, Pages)] = match arm.arm {
        Arm::BestStock if timed => &LARGE[2..3],
        Arm::BestStock => &LARGE,
        Arm::Limelight => &[("", Pages::Base), MADVISE_64K],
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

/// Judges faults and peak memory.
pub const PREMAP: Spec = Spec {
    name: "premap",
    about: "page faults of a growing heap: stock, large folios for all, and ours",
    variants: VARIANTS,
    arms: &[STOCK, STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 384,
        rootfs_packages: PACKAGES.to_vec(),
        ..MachineSize::default()
    },
    tasks: |variant, arm| tasks(variant, arm, false),
    time_limit_s: 400,
    must_hold: faults_and_memory,
    metrics: &[&[
        Metric::lower("faults", "page faults"),
        Metric::lower("peak_kib", "peak memory"),
        Metric::lower("response_us", "median time of a round"),
        Metric::neutral("vmstat_limelight_premap_mapped", "pages mapped ahead"),
        Metric::lower(
            "vmstat_limelight_premap_wasted",
            "pages mapped ahead in vain",
        ),
    ]],
    repetitions: 3,
    ..Spec::BENCHMARK
};

fn faults_and_memory(aggregates: &Aggregates) -> Vec<Verdict> {
    let sparse = |growth| matches!(growth, Growth::Sparse { .. });
    let mut verdicts = Seen::each_variant(aggregates, "", |seen| {
        let mut verdicts = Vec::new();
        for (task, growth, _) in WORKS {
            let seen = seen.of(task);
            if !sparse(growth) {
                verdicts.extend(faults_gone(&seen));
            }
            verdicts.extend(memory_bounded(&seen, sparse(growth)));
        }
        verdicts
    });
    for (task, growth, _) in WORKS {
        if !sparse(growth) {
            verdicts.extend(saving_left(aggregates, task));
        }
    }
    verdicts
}

fn faults_gone(seen: &Seen<'_>) -> Option<Verdict> {
    let faults = |arm| seen.median(arm, "faults");
    let (stock, ours) = (faults(STOCK_OURS)?, faults(LIMELIGHT)?);
    let gone = 1.0 - ours / stock;
    Some(seen.figure(
        format!("{LIMELIGHT} avoids at least 80 % of the faults"),
        gone >= GONE,
        format!(
            "{ours} of {stock} faults remain: {:.1} % avoided",
            gone * 100.0
        ),
    ))
}

fn memory_bounded(seen: &Seen<'_>, sparse: bool) -> Option<Verdict> {
    let ratio = seen.median(LIMELIGHT, "peak_kib")? / seen.median(STOCK_OURS, "peak_kib")?;
    let limit = if sparse { MEMORY_SPARSE } else { MEMORY };
    Some(seen.figure(
        format!("the peak memory with {LIMELIGHT} is at most {limit} times stock's"),
        ratio <= limit,
        format!("{ratio:.4} times"),
    ))
}

/// Verdict on the faults saved on the fragmented machine, relative to the plain one.
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
        format!(
            "{task}: on fragmented memory, {LIMELIGHT} saves at least 90 % of the faults that it \
             saves on fresh memory"
        ),
        ours >= LEFT,
        format!("{:.1} %; {MTHP_64K} for all programs: {mthp}", ours * 100.0),
    ))
}

/// Judges times, in exact mode.
pub const PREMAP_TIME: Spec = Spec {
    name: "premap-time",
    about: "instructions of a round of a growing heap",
    arms: &[STOCK_OURS, BEST_STOCK_OURS, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 384,
        vcpus: 1,
        ..MachineSize::default()
    },
    tasks: |variant, arm| tasks(variant, arm, true),
    time_limit_s: 120,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, "", |seen| {
            let tasks = [SWIPE, SWIPE_LARGE].into_iter();
            tasks
                .flat_map(|task| faster(&seen.of(task)))
                .collect::<Vec<_>>()
        })
    },
    metrics: &[&[Metric::lower("response_us", "median time of a round")]],
    mode: Mode::Exact,
    ..PREMAP
};

fn faster(seen: &Seen<'_>) -> Vec<Verdict> {
    let time = |seen: &Seen<'_>, arm| seen.median(arm, "response_us");
    let Some(ours) = time(seen, LIMELIGHT) else {
        return Vec::new();
    };
    let stock = time(seen, STOCK_OURS).map(|stock| {
        seen.verdict(
            format!("{LIMELIGHT} responds faster than stock"),
            ours < stock,
            format!("{:.3} times stock's time", ours / stock),
        )
    });
    let large = time(&seen.of(&name(seen.task, MTHP_64K)), BEST_STOCK_OURS);
    let large = large.filter(|_| seen.variant.load == PLAIN).map(|large| {
        seen.verdict(
            format!("{LIMELIGHT} is no slower than {MTHP_64K} for all programs"),
            ours <= large,
            format!("{:.3} times the time of {MTHP_64K}", ours / large),
        )
    });
    stock.into_iter().chain(large).collect()
}
