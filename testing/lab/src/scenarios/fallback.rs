// SPDX-License-Identifier: GPL-2.0-or-later
//! A topmost app larger than memory, or than its cgroup's limit: protection gives way, and no
//! process is killed that stock would not have killed.

use std::time::Duration;

use limelight_apps::scenario::{HogMemory, SelfHog, Work};

use super::gallery;
use super::terms::{Seen, LIMELIGHT, STOCK_OURS};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// Counters: the work is completed, without kills.
pub struct Fallback;

/// Times: the cost of protection for an app that does not fit.
pub struct SelfHogCost;

/// More than the guest's memory.
const ANON_MIB: u32 = 180;
const FILE_MIB: u32 = 240;
/// A cgroup limit, and one and a half times as much memory inside it.
const LIMIT_MIB: u32 = 48;
const LIMITED_MIB: u32 = 72;
/// Longest run time of the topmost app, relative to stock.
const SLOWER: f64 = 1.15;

const ANONYMOUS: &str = "anonymous";
const MAPPING: &str = "mapping";
const LIMITED_ANONYMOUS: &str = "limited-anonymous";

/// Repetitions of the work in which a kill is a matter of chance: a last resort that gave up before
/// the disk had answered killed in one of three runs.
const CHANCES: u32 = 4;

fn hog(memory: HogMemory, mib: u32, rounds: u32, limit_mib: Option<u32>) -> Work {
    Work::SelfHog(SelfHog {
        memory,
        mib,
        rounds,
        limit_mib,
    })
}

/// All work that fits into the variant's swap.
fn tasks(variant: &Variant, rounds: u32) -> Vec<Task> {
    let mut all = vec![
        Task::new(MAPPING, hog(HogMemory::Mapping, FILE_MIB, rounds, None)),
        Task::new(
            "limited-mapping",
            hog(HogMemory::Mapping, LIMITED_MIB, rounds, Some(LIMIT_MIB)),
        ),
    ];
    if variant.swap == SwapKind::None {
        // Here stock kills too: the point is that the machine keeps running.
        all.push(Task::new(
            "anonymous-too-large",
            hog(HogMemory::Anonymous, 2 * ANON_MIB, 1, None),
        ));
    } else {
        all.push(Task::new(
            ANONYMOUS,
            hog(HogMemory::Anonymous, ANON_MIB, rounds, None),
        ));
        all.push(limited_anonymous(LIMITED_ANONYMOUS, rounds));
    }
    all
}

fn limited_anonymous(name: &str, rounds: u32) -> Task {
    Task::new(
        name,
        hog(HogMemory::Anonymous, LIMITED_MIB, rounds, Some(LIMIT_MIB)),
    )
}

fn for_each_task(aggregates: &Aggregates, judge: &mut dyn FnMut(&Seen<'_>)) {
    for variant in aggregates.variants() {
        for task in aggregates.tasks(&variant) {
            judge(&Seen {
                aggregates,
                variant: &variant,
                task: &task,
            });
        }
    }
}

const EXPECTED: &[&str] = &["Out of memory", "oom-kill", "invoked oom-killer"];

impl Scenario for Fallback {
    fn name(&self) -> &'static str {
        "fallback"
    }

    fn about(&self) -> &'static str {
        "a topmost app larger than memory or its limit goes on as on stock"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Disk, "itself"),
            Variant::new(Lru::Mglru, SwapKind::None, "itself"),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let mut all = tasks(variant, 2);
        if all.iter().any(|task| task.name == LIMITED_ANONYMOUS) {
            let again = (2..=CHANCES).map(|number| format!("{LIMITED_ANONYMOUS}-{number}"));
            all.extend(again.map(|name| limited_anonymous(&name, 2)));
        }
        all
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(720)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for_each_task(aggregates, &mut |seen| {
            verdicts.extend(seen.no_new_kills(STOCK_OURS, LIMELIGHT));
            let stock = seen.median(STOCK_OURS, "completed");
            let ours = seen.median(LIMELIGHT, "completed");
            if let (Some(stock), Some(ours)) = (stock, ours) {
                verdicts.push(Verdict::new(
                    format!(
                        "{} {}: the topmost app gets its work done where stock does it",
                        seen.variant, seen.task
                    ),
                    ours >= stock,
                    format!("done: stock {stock}, limelight {ours}"),
                ));
            }
        });
        verdicts
    }

    fn expected_console(&self) -> &'static [&'static str] {
        EXPECTED
    }
}

impl Scenario for SelfHogCost {
    fn name(&self) -> &'static str {
        "self-hog"
    }

    fn about(&self) -> &'static str {
        "the time that a topmost app larger than memory takes, against stock"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::TwoList, Lru::Mglru],
            &[SwapKind::Disk, SwapKind::None],
            &["itself"],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        tasks(variant, 3)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for_each_task(aggregates, &mut |seen| {
            let ratio =
                aggregates.ratio(seen.variant, seen.task, "elapsed_us", LIMELIGHT, STOCK_OURS);
            if let Some(ratio) = ratio {
                verdicts.push(Verdict::new(
                    format!(
                        "{} {}: at most {SLOWER} times as long as stock",
                        seen.variant, seen.task
                    ),
                    ratio <= SLOWER,
                    format!("{ratio:.3}"),
                ));
            }
        });
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric::new(name, label, Better::Lower);
        vec![
            metric("elapsed_us", "time"),
            metric("major_faults", "major faults"),
            metric("vmstat_limelight_protect_fallback", "pages given up"),
            metric("oom_kills", "OOM kills"),
        ]
    }

    fn expected_console(&self) -> &'static [&'static str] {
        EXPECTED
    }
}
