// SPDX-License-Identifier: GPL-2.0-or-later
//! PREZERO's experiment. A task allocates, touches, computes and frees, with idle gaps between its
//! runs: how long a run takes, alone; what the task costs programs in the background, in time and in
//! modelled cache misses.
//!
//! In the instruction model zeroing a page by `rep stosq` takes 512 steps, by `rep stosb` (ERMS) 4096,
//! where silicon takes about as long for either: both are reported, and neither is a time of silicon.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Prezero, Program, Work};

use super::gallery_real::rootfs_packages;
use super::terms::{IDLE_OURS, STOCK_OURS};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kernel, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant,
    Verdict,
};

/// The task alone.
pub struct Exact;

/// The task beside programs in the background.
pub struct Background {
    name: &'static str,
    about: &'static str,
    cache_model: bool,
}

/// Time that the programs lose.
pub const BACKGROUND: Background = Background {
    name: "prezero-background",
    about: "what PREZERO's task costs a chaser, a stream, gzip and perl in time",
    cache_model: false,
};

/// Cache lines that the programs lose, and to whom.
pub const CACHE: Background = Background {
    name: "prezero-cache",
    about: "modelled cache misses of the same programs, by who took their lines",
    cache_model: true,
};

const INIT_ON_FREE: ArmOn = ArmOn::new(Arm::InitOnFree, Kernel::Limelight);

const STOSQ: &str = "stosq";
const STOSB: &str = "stosb";
/// Pages of one run alone, and of one run beside a program: as large as the last cache.
const PAGES: u32 = 4096;
const PAGES_BESIDE: u32 = 2048;
const RUNS: u32 = 10;

const PROGRAMS: [(&str, Program); 4] = [
    ("chaser", Program::Chaser),
    ("stream", Program::Stream),
    ("gzip", Program::Compressor),
    ("perl", Program::Interpreter),
];

/// Misses of the program on lines that were pushed out by zeroing in the task's page faults.
const LOST_TO_ZEROING: &str = "cache_background_llc_misses_by_app_zeroing";

/// The task's name.
const TASK: &str = "churn";

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

    /// Nothing runs beside the task, so that stock is the idle machine.
    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS, INIT_ON_FREE]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 512,
            vcpus: 1,
            fast_strings: variant.load == STOSB,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Prezero {
            pages: PAGES,
            runs: RUNS,
            gap_ms: 300,
            warm_up: 3,
            background: None,
            cache_model: false,
        };
        vec![Task::new(TASK, Work::Prezero(work))]
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

    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
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
        vec![IDLE_OURS, STOCK_OURS, INIT_ON_FREE]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        let packaged = program(variant)
            .is_some_and(|program| matches!(program, Program::Compressor | Program::Interpreter));
        MachineSize {
            memory_mib: 512,
            vcpus: 1,
            // Exact mode has no host disk but the one from which programs are copied at first.
            rootfs_packages: if packaged {
                rootfs_packages()
            } else {
                Vec::new()
            },
            data_mib: if packaged { 16 } else { 0 },
            request_nsec: if packaged { 100_000 } else { 0 },
            cache_model: self.cache_model,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Prezero {
            pages: PAGES_BESIDE,
            runs: RUNS,
            gap_ms: 30,
            warm_up: 2,
            background: program(variant),
            cache_model: self.cache_model,
        };
        vec![Task::new(TASK, Work::Prezero(work))]
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
        aggregates
            .variants()
            .iter()
            .filter_map(|variant| stock_is_seen(aggregates, variant))
            .collect()
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

/// Whether the model sees what the others are compared with: lines that the program loses because
/// stock zeroes pages for the task.
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
