// SPDX-License-Identifier: GPL-2.0-or-later
//! Test suites that other people wrote and Debian packages, as the foreground app beside busy loops
//! and an indexer that maps its files.

use limelight_apps::scenario::{Suite, Tool};

use super::gallery::{self, INDEX_MAPPING};
use super::terms::*;
use crate::scenario::FlashSpeed;

/// The tools, with the names of their tasks.
const TOOLS: [(&str, Tool); 7] = [
    ("stress-ng-vm", Tool::Vm),
    ("stress-ng-fault", Tool::Fault),
    ("stress-ng-brk", Tool::Brk),
    ("stress-ng-readahead", Tool::Readahead),
    ("hackbench", Tool::Hackbench),
    ("cyclictest", Tool::Cyclictest),
    ("fio", Tool::Fio),
];

/// Debian's packages of the tools.
const PACKAGES: &[&str] = &["stress-ng", "rt-tests", "fio"];

/// Speed of the disk that holds the tools and the indexer's files: that of an ordinary SSD.
const DISK: FlashSpeed = FlashSpeed {
    request_nsec: 100_000,
    request_kib: 128,
};
/// Nominal size of zram.
const SWAP_MIB: u32 = 256;
/// Largest loss against the best knob by hand.
const LOSS: f64 = 0.05;

/// Busy loops beside the tool.
const LOOPS: u32 = 3;

/// Debian's test suites.
pub const SUITES: Spec = Spec {
    name: "suites",
    about: "stress-ng, hackbench, cyclictest and fio beside busy loops and an indexer",
    variants: &[(&[Lru::Mglru], &[SwapKind::Zram], &[INDEX_MAPPING])],
    arms: &[IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |_| MachineSize {
        // Includes the memory of the disk's files.
        memory_mib: 928,
        flash: Some(DISK),
        rootfs_packages: PACKAGES.to_vec(),
        ..gallery::comparable_machine(SWAP_MIB)
    },
    tasks: |variant, _| {
        let task = |(name, tool)| {
            let loads = gallery::loads(&variant.load);
            let work = Suite {
                tool,
                loads,
                loops: LOOPS,
            };
            Task::new(name, Work::Suite(work))
        };
        TOOLS.map(task).into()
    },
    time_limit_s: 200,
    must_hold,
    metrics: &[&[
        Metric::higher("ops_per_s", "operations per second"),
        Metric::lower("time_us", "time of the run"),
        Metric::lower("wake_p50_us", "wake-up p50"),
        Metric::lower("wake_p99_us", "wake-up p99"),
        Metric::lower("wake_max_us", "wake-up, longest"),
        Metric::lower("daemon_cpu_us", "limelightd's processor time"),
        Metric::lower("kswapd_cpu_us", "kswapd's processor time"),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    let (first, _) = TOOLS[0];
    Seen::each_arm(aggregates, first, |seen, arm| {
        let no_worse = |(task, _): (&'static str, Tool)| {
            let seen = seen.of(task);
            let ratio = |name| seen.ratio(name, arm, BEST_STOCK);
            let slower = ratio("time_us").or_else(|| ratio("wake_p99_us"));
            let slower = slower.or_else(|| ratio("ops_per_s").map(|more| 1.0 / more))?;
            Some(seen.verdict(
                format!("{arm} is at most 5 % slower than the best knob by hand"),
                slower <= 1.0 + LOSS,
                format!("{slower:.3} times the best knob's time"),
            ))
        };
        TOOLS.into_iter().filter_map(no_worse).collect::<Vec<_>>()
    })
}
