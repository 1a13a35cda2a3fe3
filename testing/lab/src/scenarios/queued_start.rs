// SPDX-License-Identifier: GPL-2.0-or-later
//! Cold starts of three real programs from a disk that serves one request at a time, beside
//! programs that read and write on the same disk, with each I/O scheduler.
//!
//! In `cold-start`, the disk serves any number of requests at once, and the loads compete with the
//! program for the only processor. Here the loads never wait for the processor, and compete with
//! the program for the disk only.

use limelight_apps::scenario::{ColdStart, StartedProgram};

use super::gallery_real::PACKAGES;
use super::terms::*;

/// Highest start time with a record, relative to stock.
const FASTER: f64 = 0.40;
/// Lowest throughput of the loads during a recorded start, relative to stock.
const KEPT: f64 = 0.50;

/// Variants: the I/O scheduler and the number of loads.
const LOADS: [(&str, &str, u32); 6] = [
    ("mq-deadline-5", "mq-deadline", 5),
    ("mq-deadline-10", "mq-deadline", 10),
    ("none-5", "none", 5),
    ("none-10", "none", 10),
    ("bfq-5", "bfq", 5),
    ("bfq-10", "bfq", 10),
];
const NAMES: &[&str] = &[
    LOADS[0].0, LOADS[1].0, LOADS[2].0, LOADS[3].0, LOADS[4].0, LOADS[5].0,
];

/// Speed of the disk: a SATA SSD's random reads of 4 KiB one at a time, and its largest request.
const DISK: FlashSpeed = FlashSpeed {
    request_nsec: 250_000,
    request_kib: 128,
};

const PROGRAMS: [(&str, StartedProgram); 3] = [
    ("python", StartedProgram::Python),
    ("perl", StartedProgram::Perl),
    ("xvfb", StartedProgram::Xvfb),
];

/// Cold starts beside readers and writers, on a disk that serves one request at a time.
pub const QUEUED_START: Spec = Spec {
    name: "queued-start",
    about: "python3, perl and Xvfb started beside 5 or 10 readers and writers, by I/O scheduler",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], NAMES)],
    arms: &[STOCK, BEST_STOCK, ON_DEBIAN, STOCK_OURS, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 1408,
        data_mib: 576,
        flash: Some(DISK),
        bfq: true,
        rootfs_packages: PACKAGES.to_vec(),
        ..MachineSize::default()
    },
    tasks: |variant, _| {
        let load = LOADS.iter().find(|load| load.0 == variant.load);
        let (_, scheduler, loads) = *load.unwrap_or(&LOADS[0]);
        let task = |(name, program)| {
            let work = ColdStart {
                program,
                loads,
                record: true,
                scheduler: Some(scheduler.into()),
            };
            Task::new(name, Work::ColdStart(work))
        };
        PROGRAMS.into_iter().map(task).collect()
    },
    time_limit_s: 400,
    must_hold,
    metrics: &[&[
        Metric::lower("start_us", "time of the start"),
        Metric::higher("load_kib_per_s", "throughput of the loads during the start"),
        Metric::neutral(
            "load_alone_kib_per_s",
            "throughput of the loads before the start",
        ),
        Metric::lower("requests", "disk requests"),
        Metric::neutral(
            "load_cpu_wait_us",
            "time that a load waited for a processor",
        ),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, "", |seen| {
        let mut verdicts = Vec::new();
        for (stock, arm) in [(STOCK, ON_DEBIAN), (STOCK_OURS, LIMELIGHT)] {
            for (task, _) in PROGRAMS {
                let seen = seen.of(task);
                let ratio = |name| seen.ratio(name, arm, stock);
                verdicts.extend(ratio("start_us").map(|ratio| {
                    let what = format!("{arm} starts {task} in at most 0.40 of stock's time");
                    seen.verdict(what, ratio <= FASTER, format!("{ratio:.3} of the time"))
                }));
                verdicts.extend(ratio("load_kib_per_s").map(|ratio| {
                    let what = format!("{arm} leaves the loads half of their throughput on stock");
                    seen.verdict(what, ratio >= KEPT, format!("{ratio:.3} of the throughput"))
                }));
            }
        }
        verdicts
    })
}
