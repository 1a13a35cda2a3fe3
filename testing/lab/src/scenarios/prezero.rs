// SPDX-License-Identifier: GPL-2.0-or-later
//! PREZERO's experiment. In each run, a task allocates memory, touches it, computes on it and frees
//! it. The machine is idle between two runs. The scenarios measure how long a run takes without
//! other programs, and how much the task costs a background program, in time and in modelled cache
//! misses.
//!
//! Exact mode counts instructions: zeroing a page takes 512 steps by `rep stosq` and 4096 steps by
//! `rep stosb` (ERMS). On real CPUs, the two instructions take about the same time. Results are
//! reported for each of them, and none of these results is the time on a real CPU.

use limelight_apps::scenario::{Engine, Mechanisms, Pages, Prezero, Program};

use super::gallery_real::PACKAGES;
use super::terms::*;
use crate::scenario::{Bus, ZeroDisk, Zeroes};

const INIT_ON_FREE: ArmOn = ArmOn::new(Arm::InitOnFree, Kernel::Limelight);

const STOSQ: &str = "stosq";
const STOSB: &str = "stosb";
/// Pages per run if no other program runs.
const PAGES: u32 = 4096;
/// Pages per run next to a program. Together they are as large as the last-level cache.
const PAGES_BESIDE: u32 = 2048;
const RUNS: u32 = 10;

/// The variant in which the program is never suspended and saturates the CPU.
const SATURATED: &str = "chaser-saturated";
/// After each gap, the other variants suspend the program for this time, so that the machine is
/// idle. The kernel zeroes at most 256 MiB/s, and needs 31 ms for the pages of a run.
const REST_MS: u32 = 60;

/// The background program of a variant.
fn program(variant: &Variant) -> Program {
    match variant.load.as_str() {
        "stream" => Program::Stream,
        "gzip" => Program::Compressor,
        "perl" => Program::Interpreter,
        _ => Program::Chaser,
    }
}

/// Counter of the program's cache misses on lines that were evicted while a page fault of the task
/// zeroed a page.
const LOST_TO_ZEROING: &str = "cache_background_llc_misses_by_app_zeroing";

// The task's name. In arms without Limelight it is `TASK`. In Limelight's arm, each combination of
// engine and mechanisms has a name of its own.
const TASK: &str = "churn";
const CPU: &str = "churn-cpu";
const VIRTIO: &str = "churn-virtio";
const VIRTIO_TRUSTED: &str = "churn-virtio-trusted";
const NVME: &str = "churn-nvme";
const NVME_TRUSTED: &str = "churn-nvme-trusted";
const PREMAP: &str = "churn-premap";
const WITH_PREMAP: &str = "churn-cpu-premap";
const PREMAP_FOLIOS: &str = "churn-premap-folios";
const WITH_PREMAP_FOLIOS: &str = "churn-cpu-premap-folios";

/// The machine's zero disks, by the number that [`block`] takes. QEMU generates the zeroes.
const DISKS: [ZeroDisk; 2] = [
    ZeroDisk::new(Bus::Virtio, Zeroes::Null),
    ZeroDisk::new(Bus::Nvme, Zeroes::Null),
];

/// Minimum reduction of a run's time, as a share of the time to which it is compared.
const FASTER: f64 = 0.20;
/// Minimum share of the task's pages that must come from the pool.
const SERVED: f64 = 0.99;
/// Maximum run time of a program next to the task, minus the task's own CPU time, as a multiple of
/// the program's run time alone.
const SLOWER: f64 = 1.03;

/// The engine that reads zeroes from this disk of [`DISKS`].
fn block(disk: u32, trusted: bool) -> Engine {
    Engine::Block {
        disk,
        offset_mib: 0,
        trusted,
    }
}

/// The tasks in Limelight's arm: prezero alone, with each engine; all mechanisms except prezero;
/// all mechanisms. The last two also run where the system permits folios of 64 KiB (`madvise`).
fn engines() -> Vec<(&'static str, Engine, Mechanisms)> {
    vec![
        (CPU, Engine::Cpu, Mechanisms::PrezeroOnly),
        (VIRTIO, block(0, false), Mechanisms::PrezeroOnly),
        (VIRTIO_TRUSTED, block(0, true), Mechanisms::PrezeroOnly),
        (NVME, block(1, false), Mechanisms::PrezeroOnly),
        (NVME_TRUSTED, block(1, true), Mechanisms::PrezeroOnly),
        (PREMAP, Engine::Cpu, Mechanisms::AllButPrezero),
        (WITH_PREMAP, Engine::Cpu, Mechanisms::All),
        (PREMAP_FOLIOS, Engine::Cpu, Mechanisms::AllButPrezero),
        (WITH_PREMAP_FOLIOS, Engine::Cpu, Mechanisms::All),
    ]
}

/// The tasks of an arm, with the parameters of `work`. `premap`: whether tasks are included that
/// use mechanisms other than prezero.
fn tasks(arm: ArmOn, work: &Prezero, premap: bool) -> Vec<Task> {
    if arm != LIMELIGHT {
        return vec![Task::new(TASK, Work::Prezero(work.clone()))];
    }
    engines()
        .into_iter()
        .filter(|(_, _, mechanisms)| premap || *mechanisms == Mechanisms::PrezeroOnly)
        .map(|(name, engine, mechanisms)| {
            let work = Prezero {
                engine,
                mechanisms,
                folios: match name {
                    PREMAP_FOLIOS | WITH_PREMAP_FOLIOS => Pages::Madvise { kib: 64 },
                    _ => Pages::Base,
                },
                ..work.clone()
            };
            Task::new(name, Work::Prezero(work))
        })
        .collect()
}

/// Verdicts on the pool: it serves nearly all pages, and no page is zeroed for it during a response
/// window.
fn pool_serves(seen: &Seen<'_>) -> Vec<Verdict> {
    let value = |name| seen.median(LIMELIGHT, name);
    let counts = (
        value("vmstat_limelight_prezero_served"),
        value("vmstat_limelight_prezero_missed"),
        value("vmstat_limelight_prezero_in_window"),
    );
    let (Some(served), Some(missed), Some(inside)) = counts else {
        return Vec::new();
    };
    vec![
        seen.verdict(
            "at least 99 % of the pages come from the pool",
            served > 0.0 && served >= (served + missed) * SERVED,
            format!("{served} of {} pages", served + missed),
        )
        .on_figure(),
        seen.verdict(
            "no page is zeroed for the pool during a response window",
            inside == 0.0,
            format!("{inside} pages zeroed during windows"),
        ),
    ]
}

/// The task without other programs.
pub const EXACT: Spec = Spec {
    name: "prezero-exact",
    about: "time of a run of PREZERO's task alone, with zeroing by words and by bytes",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[STOSQ, STOSB])],
    // There is no idle arm: without a background program, it would be the same as stock.
    arms: &[STOCK_OURS, INIT_ON_FREE, LIMELIGHT],
    machine: |variant| MachineSize {
        fast_strings: variant.load == STOSB,
        ..machine()
    },
    tasks: |_, arm| {
        let work = Prezero {
            pages: PAGES,
            runs: RUNS,
            gap_ms: 300,
            rest_ms: 0,
            warm_up: 3,
            background: None,
            engine: Engine::Cpu,
            mechanisms: Mechanisms::PrezeroOnly,
            cache_model: false,
            folios: Pages::Base,
        };
        tasks(arm, &work, true)
    },
    time_limit_s: 60,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, WITH_PREMAP, |seen| {
            let mut verdicts = Vec::new();
            for (task, _, mechanisms) in engines() {
                if mechanisms != Mechanisms::AllButPrezero {
                    verdicts.extend(pool_serves(&seen.of(task)));
                    verdicts.extend(faster(&seen.of(task), STOCK_OURS, TASK));
                }
            }
            verdicts.extend(faster(seen, LIMELIGHT, PREMAP));
            verdicts
        })
    },
    metrics: &[&[
        Metric::lower("response_us", "median time of a run"),
        Metric::lower("response_mean_us", "mean time of a run"),
        Metric::lower("app_cpu_us", "the task's processor time"),
    ]],
    repetitions: 3,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

/// The time that a background program loses by running next to the task.
pub const BACKGROUND: Spec = Spec {
    name: "prezero-background",
    about: "how much PREZERO's task slows a pointer chaser, a stream, gzip and perl",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None],
        &["chaser", SATURATED, "stream", "gzip", "perl"],
    )],
    // In the idle arm, the program runs without the task.
    arms: &[IDLE_OURS, STOCK_OURS, INIT_ON_FREE, LIMELIGHT],
    machine: machine_beside,
    tasks: |variant, arm| tasks(arm, &task_beside(variant, false), false),
    time_limit_s: 120,
    must_hold: |aggregates| Seen::each_variant(aggregates, TASK, judge_beside),
    metrics: &[BACKGROUND_METRICS],
    repetitions: 1,
    ..EXACT
};

/// The cache lines that a background program loses by running next to the task, by cause.
pub const CACHE: Spec = Spec {
    name: "prezero-cache",
    about: "modelled cache misses of the same programs, by the cause of the eviction",
    machine: |variant| MachineSize {
        cache_model: true,
        ..machine_beside(variant)
    },
    tasks: |variant, arm| tasks(arm, &task_beside(variant, true), false),
    metrics: &[
        BACKGROUND_METRICS,
        &[
            Metric::lower("cache_background_llc_misses", "the program's LLC misses"),
            Metric::lower(LOST_TO_ZEROING, "lines lost to zeroing in page faults"),
            Metric::lower(
                "cache_background_llc_misses_by_app",
                "lines lost to the task itself",
            ),
            Metric::lower(
                "cache_background_wait_us",
                "time of the program's misses, if no two overlap",
            ),
            Metric::lower("cache_app_llc_misses", "the task's LLC misses"),
            Metric::lower(
                "cache_app_zeroing_llc_misses",
                "LLC misses of the task's zeroing",
            ),
        ],
    ],
    ..BACKGROUND
};

const BACKGROUND_METRICS: &[Metric] = &[
    Metric::lower("background_us", "the program's run time"),
    Metric::lower("background_cpu_us", "the program's processor time"),
    Metric::neutral("runs", "runs of the task"),
    Metric::lower("response_us", "median time of a run"),
];

fn machine() -> MachineSize {
    MachineSize {
        memory_mib: 512,
        vcpus: 1,
        zero_disks: DISKS.to_vec(),
        ..MachineSize::default()
    }
}

/// The machine of a variant with a background program. If the program comes from Debian, the
/// machine has a root file system, from which the guest copies the program to a disk in guest
/// memory.
fn machine_beside(variant: &Variant) -> MachineSize {
    match program(variant) {
        Program::Compressor | Program::Interpreter => MachineSize {
            rootfs_packages: PACKAGES.to_vec(),
            data_mib: 16,
            request_nsec: 100_000,
            ..machine()
        },
        _ => machine(),
    }
}

/// The task next to this variant's program.
fn task_beside(variant: &Variant, cache_model: bool) -> Prezero {
    Prezero {
        pages: PAGES_BESIDE,
        runs: RUNS,
        gap_ms: 30,
        rest_ms: match variant.load.as_str() {
            SATURATED => 0,
            _ => REST_MS,
        },
        warm_up: 2,
        background: Some(program(variant)),
        engine: Engine::Cpu,
        mechanisms: Mechanisms::PrezeroOnly,
        cache_model,
        folios: Pages::Base,
    }
}

/// Verdicts on the task next to this variant's program.
fn judge_beside(seen: &Seen<'_>) -> Vec<Verdict> {
    let mut verdicts = Vec::from_iter(stock_is_seen(seen));
    for task in [CPU, VIRTIO, VIRTIO_TRUSTED, NVME, NVME_TRUSTED] {
        let seen = seen.of(task);
        // While the CPU is saturated, the zeroing thread gets too little CPU time to fill the pool.
        if seen.variant.load != SATURATED {
            verdicts.extend(pool_serves(&seen));
            verdicts.extend(program_keeps_its_lines(&seen));
        }
        verdicts.extend(program_keeps_its_time(&seen));
    }
    verdicts
}

/// Verdict that a run takes less time with Limelight than a run of `base_task` in the arm `base`.
fn faster(seen: &Seen<'_>, base: ArmOn, base_task: &str) -> Option<Verdict> {
    let base_us = seen.of(base_task).median(base, "response_us")?;
    let ours = seen.median(LIMELIGHT, "response_us")?;
    let gone = 1.0 - ours / base_us;
    Some(seen.verdict(
        format!("a run takes at least 20 % less time than one of {base_task} on {base}"),
        gone >= FASTER,
        format!("{:.1} % less", gone * 100.0),
    ))
}

/// Verdict that zeroing evicts fewer lines of the program than on stock, whichever thread zeroes.
/// The misses on these lines are divided by the number of the task's runs, which differs between
/// stock and Limelight.
fn program_keeps_its_lines(seen: &Seen<'_>) -> Option<Verdict> {
    let lost = |seen: &Seen<'_>, arm| {
        let value = |name: &str| seen.median(arm, name);
        let all: Option<f64> = ["app", "system", "background", "prezero"]
            .iter()
            .map(|who| value(&format!("cache_background_llc_misses_by_{who}_zeroing")))
            .sum();
        // The zeroing thread also evicts lines when it does not zero; these misses count too.
        let thread = value("cache_background_llc_misses_by_prezero")?;
        Some((all? + thread) / value("runs")?)
    };
    let (stock, ours) = (lost(&seen.of(TASK), STOCK_OURS)?, lost(seen, LIMELIGHT)?);
    Some(seen.verdict(
        "zeroing costs the program fewer cache misses than on stock",
        ours < stock,
        format!("{ours:.0} misses for each run of the task, stock {stock:.0}"),
    ))
}

/// Verdict that the program's run time, minus the task's CPU time, is at most [`SLOWER`] times its
/// run time alone.
fn program_keeps_its_time(seen: &Seen<'_>) -> Option<Verdict> {
    let alone = seen.of(TASK).median(IDLE_OURS, "background_us")?;
    let value = |name| seen.median(LIMELIGHT, name);
    let ratio = (value("background_us")? - value("app_cpu_us")?) / alone;
    Some(seen.verdict(
        format!(
            "minus the task's processor time, the program takes at most {SLOWER} times as long as \
             alone"
        ),
        ratio <= SLOWER,
        format!("{ratio:.3} times as long"),
    ))
}

/// Verdict that the model shows the problem on stock: zeroing pages for the task evicts lines of
/// the program.
fn stock_is_seen(seen: &Seen<'_>) -> Option<Verdict> {
    let lost = |arm| seen.median(arm, LOST_TO_ZEROING);
    let (alone, stock) = (lost(IDLE_OURS)?, lost(STOCK_OURS)?);
    Some(Verdict::new(
        format!(
            "{}: on stock, zeroing pages for the task evicts lines of the program",
            seen.variant
        ),
        alone == 0.0 && stock > 0.0,
        format!("{stock} misses, without the task {alone}"),
    ))
}
