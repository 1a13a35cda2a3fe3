// SPDX-License-Identifier: GPL-2.0-or-later
//! Time from the daemon's last sample at which no kill was due until the memory is free, on a
//! machine that is busy and short of memory.

use limelight_apps::scenario::KillLatency;

use super::gallery::{self, INDEX_MAPPING};
use super::leak;
use super::terms::*;

const TASK: &str = "kills";
/// Number of apps that leak, one after the other.
const KILLS: u32 = 40;
/// Limit for the 99th percentile, in microseconds.
const P99_US: f64 = 100_000.0;

/// Measures the latency of kills.
pub const KILL_LATENCY: Spec = Spec {
    name: "kill-latency",
    about: "from the crossing of the kill threshold to freed memory, under pressure",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None, SwapKind::Disk, SwapKind::Zram],
        &[INDEX_MAPPING],
    )],
    machine: |_| leak::machine(640),
    tasks: |variant, _| {
        let work = KillLatency {
            kills: KILLS,
            loads: gallery::loads(&variant.load),
        };
        vec![Task::new(TASK, Work::KillLatency(work))]
    },
    time_limit_s: 1200,
    must_hold,
    metrics: &[&[
        Metric::lower("kill_p50_us", "time until memory is free, median"),
        Metric::lower("kill_p99_us", "time until memory is free, 99th percentile"),
        Metric::lower("kill_max_us", "time until memory is free, longest"),
        Metric::neutral("kills", "kills"),
        Metric::neutral("freed_p50_kib", "memory freed by a kill, median"),
        Metric::lower("innocent_dead", "dead apps that did not leak"),
        Metric::lower("oom_kills", "OOM kills"),
        Metric::lower("daemon_cpu_us", "the daemon's processor time"),
    ]],
    repetitions: 1,
    ..Spec::BENCHMARK
};

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let variant = seen.variant;
        let value = |name| seen.median(arm, name);
        let Some(kills) = value("kills") else {
            return Vec::new();
        };
        let dead = value("innocent_dead").unwrap_or(0.0);
        let oom = value("oom_kills").unwrap_or(0.0);
        let p99 = value("kill_p99_us").unwrap_or(f64::INFINITY);
        vec![
            Verdict::new(
                format!(
                    "{variant}: {arm} kills each app that leaks, no other app, and before the OOM \
                     killer"
                ),
                kills == f64::from(KILLS) && dead == 0.0 && oom == 0.0,
                format!(
                    "{kills} of {KILLS} leaking apps killed, {dead} other apps dead, \
                     {oom} OOM kills"
                ),
            ),
            Verdict::new(
                format!("{variant}: {arm} has freed the memory within 100 ms in 99 of 100 kills"),
                p99 < P99_US,
                format!("{:.1} ms", p99 / 1000.0),
            ),
        ]
    })
}
