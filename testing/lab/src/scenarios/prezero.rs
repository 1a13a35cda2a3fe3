// SPDX-License-Identifier: GPL-2.0-or-later
//! PREZERO's experiment. A task allocates, touches, computes and frees, with idle gaps between its
//! runs: the time of a run, alone; and the task's cost for background programs, in time and in
//! modelled cache misses.
//!
//! In the instruction model zeroing a page by `rep stosq` takes 512 steps, by `rep stosb` (ERMS)
//! 4096, while on silicon both take about as long: both are reported, and neither is a time of
//! silicon.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Engine, Mechanisms, Prezero, Program, Work};

use super::gallery_real::rootfs_packages;
use super::terms::{IDLE_OURS, LIMELIGHT, STOCK_OURS};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Bus, Kernel, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task,
    Variant, Verdict, ZeroDisk, Zeroes,
};

/// The task alone.
pub struct Exact;

/// The task next to background programs.
pub struct Background {
    name: &'static str,
    about: &'static str,
    cache_model: bool,
}

/// The programs' loss of time.
pub const BACKGROUND: Background = Background {
    name: "prezero-background",
    about: "what PREZERO's task costs a chaser, a stream, gzip and perl in time",
    cache_model: false,
};

/// The programs' loss of cache lines, by cause.
pub const CACHE: Background = Background {
    name: "prezero-cache",
    about: "modelled cache misses of the same programs, by the cause that evicted their lines",
    cache_model: true,
};

const INIT_ON_FREE: ArmOn = ArmOn::new(Arm::InitOnFree, Kernel::Limelight);

const STOSQ: &str = "stosq";
const STOSB: &str = "stosb";
/// Pages of one run alone, and of one run next to a program: the latter as large as the last-level
/// cache.
const PAGES: u32 = 4096;
const PAGES_BESIDE: u32 = 2048;
const RUNS: u32 = 10;

/// A program that saturates the CPU, and the idle time after each gap in the other variants: at 256
/// MiB/s, the kernel's highest zeroing rate, a run's pages take 31 ms.
const SATURATED: &str = "chaser-saturated";
const REST_MS: u32 = 60;

const PROGRAMS: [(&str, Program); 5] = [
    ("chaser", Program::Chaser),
    (SATURATED, Program::Chaser),
    ("stream", Program::Stream),
    ("gzip", Program::Compressor),
    ("perl", Program::Interpreter),
];

/// The program's misses on lines evicted by zeroing in the task's page faults.
const LOST_TO_ZEROING: &str = "cache_background_llc_misses_by_app_zeroing";

/// The task's name in arms without an engine, and its names by engine and mechanisms in Limelight's
/// arm.
const TASK: &str = "churn";
const CPU: &str = "churn-cpu";
const VIRTIO: &str = "churn-virtio";
const VIRTIO_TRUSTED: &str = "churn-virtio-trusted";
const NVME: &str = "churn-nvme";
const NVME_TRUSTED: &str = "churn-nvme-trusted";
const PREMAP: &str = "churn-premap";
const WITH_PREMAP: &str = "churn-cpu-premap";

/// Zero disks of the machines, in this order: QEMU generates the zeroes.
const DISKS: [ZeroDisk; 2] = [
    ZeroDisk::new(Bus::Virtio, Zeroes::Null),
    ZeroDisk::new(Bus::Nvme, Zeroes::Null),
];

/// Share of stock's response time that must be gone.
const FASTER: f64 = 0.20;
/// Share of the pages that must come from the pool.
const SERVED: f64 = 0.99;
/// Longest run time of a program relative to alone, without the task's own CPU time.
const SLOWER: f64 = 1.03;

fn block(disk: u32, trusted: bool) -> Engine {
    Engine::Block {
        disk,
        offset_mib: 0,
        trusted,
    }
}

/// Limelight's tasks: the paper's mechanism alone with each engine, and together with the others.
fn engines() -> Vec<(&'static str, Engine, Mechanisms)> {
    vec![
        (CPU, Engine::Cpu, Mechanisms::PrezeroOnly),
        (VIRTIO, block(0, false), Mechanisms::PrezeroOnly),
        (VIRTIO_TRUSTED, block(0, true), Mechanisms::PrezeroOnly),
        (NVME, block(1, false), Mechanisms::PrezeroOnly),
        (NVME_TRUSTED, block(1, true), Mechanisms::PrezeroOnly),
        (PREMAP, Engine::Cpu, Mechanisms::AllButPrezero),
        (WITH_PREMAP, Engine::Cpu, Mechanisms::All),
    ]
}

/// The tasks of an arm, from their common parameters.
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
                ..work.clone()
            };
            Task::new(name, Work::Prezero(work))
        })
        .collect()
}

/// The pool's promises wherever it is used.
fn pool_serves(aggregates: &Aggregates, variant: &Variant, task: &str) -> Vec<Verdict> {
    let value = |name| aggregates.median(variant, LIMELIGHT, task, name);
    let counts = (
        value("vmstat_limelight_prezero_served"),
        value("vmstat_limelight_prezero_missed"),
        value("vmstat_limelight_prezero_in_window"),
    );
    let (Some(served), Some(missed), Some(inside)) = counts else {
        return Vec::new();
    };
    vec![
        Verdict::new(
            format!("{variant} {task}: at least 99 % of the pages come from the pool"),
            served > 0.0 && served >= (served + missed) * SERVED,
            format!("{served} of {}", served + missed),
        ),
        Verdict::new(
            format!("{variant} {task}: no page is zeroed ahead inside a window"),
            inside == 0.0,
            format!("{inside}"),
        ),
    ]
}

fn parameters(arm: ArmOn) -> Vec<String> {
    match arm.arm {
        Arm::InitOnFree => vec!["init_on_free=1".into()],
        _ => Vec::new(),
    }
}

fn metric(name: &'static str, label: &'static str, better: Better) -> Metric {
    Metric {
        name,
        label,
        better,
    }
}

impl Scenario for Exact {
    fn name(&self) -> &'static str {
        "prezero-exact"
    }

    fn about(&self) -> &'static str {
        "PREZERO's task alone: how long a run takes, zeroing by words and by bytes"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(&[Lru::Mglru], &[SwapKind::None], &[STOSQ, STOSB])
    }

    /// Nothing runs next to the task, so stock is the idle machine.
    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS, INIT_ON_FREE, LIMELIGHT]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 512,
            vcpus: 1,
            fast_strings: variant.load == STOSB,
            zero_disks: DISKS.to_vec(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, arm: ArmOn) -> Vec<Task> {
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
        };
        tasks(arm, &work, true)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(60)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn kernel_parameters(&self, _variant: &Variant, arm: ArmOn) -> Vec<String> {
        parameters(arm)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in &aggregates.variants() {
            for (task, _, mechanisms) in engines() {
                if mechanisms != Mechanisms::AllButPrezero {
                    verdicts.extend(pool_serves(aggregates, variant, task));
                    verdicts.extend(faster(aggregates, variant, task, STOCK_OURS, TASK));
                }
            }
            verdicts.extend(faster(aggregates, variant, WITH_PREMAP, LIMELIGHT, PREMAP));
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![
            metric("response_us", "a run", Better::Lower),
            metric("response_mean_us", "a run, mean", Better::Lower),
            metric("app_cpu_us", "processor time", Better::Lower),
        ]
    }
}

impl Scenario for Background {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        let names = PROGRAMS.map(|(name, _)| name);
        Variant::product(&[Lru::Mglru], &[SwapKind::None], &names)
    }

    /// In the idle arm the program runs without the task.
    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE_OURS, STOCK_OURS, INIT_ON_FREE, LIMELIGHT]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        let packaged = program(variant)
            .is_some_and(|program| matches!(program, Program::Compressor | Program::Interpreter));
        MachineSize {
            memory_mib: 512,
            vcpus: 1,
            // Exact mode has no host disk except the one from which programs are copied at the
            // start.
            rootfs_packages: if packaged {
                rootfs_packages()
            } else {
                Vec::new()
            },
            data_mib: if packaged { 16 } else { 0 },
            request_nsec: if packaged { 100_000 } else { 0 },
            zero_disks: DISKS.to_vec(),
            cache_model: self.cache_model,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task> {
        let work = Prezero {
            pages: PAGES_BESIDE,
            runs: RUNS,
            gap_ms: 30,
            rest_ms: if variant.load == SATURATED {
                0
            } else {
                REST_MS
            },
            warm_up: 2,
            background: program(variant),
            engine: Engine::Cpu,
            mechanisms: Mechanisms::PrezeroOnly,
            cache_model: self.cache_model,
        };
        tasks(arm, &work, false)
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

    fn kernel_parameters(&self, _variant: &Variant, arm: ArmOn) -> Vec<String> {
        parameters(arm)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in &aggregates.variants() {
            verdicts.extend(stock_is_seen(aggregates, variant));
            for task in [CPU, VIRTIO, VIRTIO_TRUSTED, NVME, NVME_TRUSTED] {
                // The zeroing thread does not run when no CPU time is left.
                if variant.load != SATURATED {
                    verdicts.extend(pool_serves(aggregates, variant, task));
                    verdicts.extend(program_keeps_its_lines(aggregates, variant, task));
                }
                verdicts.extend(program_keeps_its_time(aggregates, variant, task));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut all = vec![
            metric("background_us", "the program", Better::Lower),
            metric("background_cpu_us", "its processor time", Better::Lower),
            metric("runs", "runs of the task", Better::Neutral),
            metric("response_us", "a run", Better::Lower),
        ];
        if self.cache_model {
            all.extend([
                metric(
                    "cache_background_llc_misses",
                    "the program's LLC misses",
                    Better::Lower,
                ),
                metric(
                    LOST_TO_ZEROING,
                    "lines lost to zeroing in faults",
                    Better::Lower,
                ),
                metric(
                    "cache_background_llc_misses_by_app",
                    "lines lost to the task itself",
                    Better::Lower,
                ),
                metric(
                    "cache_background_wait_us",
                    "what its misses take if waited for",
                    Better::Lower,
                ),
                metric(
                    "cache_app_llc_misses",
                    "the task's LLC misses",
                    Better::Lower,
                ),
                metric(
                    "cache_app_zeroing_llc_misses",
                    "its zeroing's LLC misses",
                    Better::Lower,
                ),
            ]);
        }
        all
    }
}

/// Verdict on the response time with a pool, relative to another arm and task.
fn faster(
    aggregates: &Aggregates,
    variant: &Variant,
    task: &str,
    base: ArmOn,
    base_task: &str,
) -> Option<Verdict> {
    let base_us = aggregates.median(variant, base, base_task, "response_us")?;
    let ours = aggregates.median(variant, LIMELIGHT, task, "response_us")?;
    let gone = 1.0 - ours / base_us;
    Some(Verdict::new(
        format!("{variant} {task}: a run takes at least 20 % less than {base_task} on {base}"),
        gone >= FASTER,
        format!("{:.1} % less", gone * 100.0),
    ))
}

/// Verdict that the program loses fewer lines to zeroing, by any thread, than on stock. The task's
/// number of runs next to it differs between stock and Limelight, so losses are counted per run.
fn program_keeps_its_lines(
    aggregates: &Aggregates,
    variant: &Variant,
    task: &str,
) -> Option<Verdict> {
    let lost = |arm, task: &str| {
        let value = |name: &str| aggregates.median(variant, arm, task, name);
        let all: Option<f64> = ["app", "system", "background", "prezero"]
            .iter()
            .map(|who| value(&format!("cache_background_llc_misses_by_{who}_zeroing")))
            .sum();
        // The zeroing thread's other work is part of the cost.
        let thread = value("cache_background_llc_misses_by_prezero")?;
        Some((all? + thread) / value("runs")?)
    };
    let (stock, ours) = (lost(STOCK_OURS, TASK)?, lost(LIMELIGHT, task)?);
    Some(Verdict::new(
        format!(
            "{variant} {task}: the program misses fewer lines because of zeroing than on stock"
        ),
        ours < stock,
        format!("{ours:.0} a run of the task, stock {stock:.0}"),
    ))
}

/// Verdict that the program takes as long as alone, apart from the task's CPU time.
fn program_keeps_its_time(
    aggregates: &Aggregates,
    variant: &Variant,
    task: &str,
) -> Option<Verdict> {
    let alone = aggregates.median(variant, IDLE_OURS, TASK, "background_us")?;
    let value = |name| aggregates.median(variant, LIMELIGHT, task, name);
    let ratio = (value("background_us")? - value("app_cpu_us")?) / alone;
    Some(Verdict::new(
        format!(
            "{variant} {task}: the program takes at most {SLOWER} times as long as alone, without \
             the task's own processor time"
        ),
        ratio <= SLOWER,
        format!("{ratio:.3}"),
    ))
}

/// Verdict that the model detects the baseline: lines that the program loses because stock zeroes
/// pages for the task.
fn stock_is_seen(aggregates: &Aggregates, variant: &Variant) -> Option<Verdict> {
    let lost = |arm| aggregates.median(variant, arm, TASK, LOST_TO_ZEROING);
    let (alone, stock) = (lost(IDLE_OURS)?, lost(STOCK_OURS)?);
    Some(Verdict::new(
        format!("{variant}: the zeroing for the task takes lines of the program on stock"),
        alone == 0.0 && stock > 0.0,
        format!("{stock}, without the task {alone}"),
    ))
}

fn program(variant: &Variant) -> Option<Program> {
    PROGRAMS
        .iter()
        .find_map(|(name, program)| (*name == variant.load).then_some(*program))
}
