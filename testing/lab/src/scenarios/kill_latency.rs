// SPDX-License-Identifier: GPL-2.0-or-later
//! Time from when a kill is due until the memory is free, on a machine that is busy and short of
//! memory.

use std::time::Duration;

use limelight_apps::scenario::{KillLatency as Parameters, Work};

use super::gallery::{self, INDEX_MAPPING};
use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant, Verdict,
};

/// Latency of kills.
pub struct KillLatency;

const TASK: &str = "kills";
const KILLS: u32 = 40;
/// Limit for the 99th percentile, in microseconds.
const P99_US: f64 = 100_000.0;

impl Scenario for KillLatency {
    fn name(&self) -> &'static str {
        "kill-latency"
    }

    fn about(&self) -> &'static str {
        "from the crossing of the kill threshold to freed memory, under pressure"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        let swaps = [SwapKind::None, SwapKind::Disk, SwapKind::Zram];
        Variant::product(&[Lru::Mglru], &swaps, &[INDEX_MAPPING])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        leak::machine(640)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            kills: KILLS,
            loads: gallery::loads(&variant.load),
        };
        vec![Task::new(TASK, Work::KillLatency(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(1200)
    }

    fn repetitions(&self) -> u32 {
        1
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let value = |name| aggregates.median(&variant, arm, TASK, name);
                let Some(kills) = value("kills") else {
                    continue;
                };
                let dead = value("innocent_dead").unwrap_or(0.0);
                let oom = value("oom_kills").unwrap_or(0.0);
                verdicts.push(Verdict::new(
                    format!("{variant}: {arm} kills each app that leaks, no other app, and before the OOM killer"),
                    kills == f64::from(KILLS) && dead == 0.0 && oom == 0.0,
                    format!("{kills} of {KILLS}, {dead} innocent, {oom} OOM kills"),
                ));
                let p99 = value("kill_p99_us").unwrap_or(f64::INFINITY);
                verdicts.push(Verdict::new(
                    format!("{variant}: {arm} frees the memory within 100 ms, 99 times of 100"),
                    p99 < P99_US,
                    format!("{:.1} ms", p99 / 1000.0),
                ));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = Metric::new;
        vec![
            metric("kill_p50_us", "memory free, median", Better::Lower),
            metric("kill_p99_us", "99th percentile", Better::Lower),
            metric("kill_max_us", "longest", Better::Lower),
            metric("kills", "kills", Better::Neutral),
            metric("freed_p50_kib", "freed each", Better::Neutral),
            metric("innocent_dead", "innocent dead", Better::Lower),
            metric("oom_kills", "OOM kills", Better::Lower),
            metric(
                "daemon_cpu_us",
                "the daemon's processor time",
                Better::Lower,
            ),
        ]
    }
}
