// SPDX-License-Identifier: GPL-2.0-or-later
//! EIMOS's experiment: a file of 30 MB is read in pieces of 48 bytes, with the paper's readahead
//! factors, on a disk that takes one millisecond per request. Variations read whole pages or random
//! clusters, or use a disk that takes 10 ms per request.
//!
//! In the instruction model, a read of 48 bytes takes 1.7 us, so 128 KiB take 4.6 ms. A request to
//! the fast disk is shorter, so this reader never waits for that disk. A request to the slow disk
//! is longer. There, and for page reads on both disks, readahead can close the gap to the cached
//! file.
//!
//! `cold-start` measures the cold start of a real program from the fast disk.
//!
//! The limit is the time for the same file when it is already in the page cache. Readahead still
//! has to fill the page cache, so a part of the gap to the limit remains with any kernel.

use limelight_apps::scenario::{Access, ColdStart, Pattern, Reading, StartedProgram};

use super::gallery_real::PACKAGES;
use super::terms::*;

/// Size of the file in MiB, from the paper.
const FILE_MIB: u32 = 30;
/// Lowest share of stock's gap to the limit that readahead must close.
const CLOSED: f64 = 0.5;
/// Lowest number of requests on stock, relative to the topmost reader's with Limelight.
const FEWER: f64 = 4.0;
/// Maximum relative difference at which a background process's requests count as unchanged.
const UNCHANGED: f64 = 0.05;

const FAST_DISK: &str = "1ms-disk";
const SLOW_DISK: &str = "10ms-disk";
const SMALL: &str = "48-bytes";
const PAGES: &str = "4-kib";
const CLUSTERS_READ: &str = "clusters-read";
const CLUSTERS_MAPPED: &str = "clusters-mapped";

/// Tasks: access patterns with readahead factors.
fn works() -> Vec<(String, Reading)> {
    let work = |name: &str, pattern, factor| {
        let work = Reading {
            mib: FILE_MIB,
            pattern,
            factor,
        };
        (format!("{name}-x{factor}"), work)
    };
    let small = Pattern::Sequential { bytes: 48 };
    let pages = Pattern::Sequential { bytes: 4096 };
    let clusters = |access| Pattern::Clusters {
        access,
        clusters: 60,
    };
    vec![
        work(SMALL, small, 1),
        work(SMALL, small, 8),
        work(SMALL, small, 16),
        work(PAGES, pages, 8),
        work(PAGES, pages, 16),
        work(CLUSTERS_READ, clusters(Access::Read), 8),
        work(CLUSTERS_MAPPED, clusters(Access::Mapping), 8),
    ]
}

/// Small sequential reads and clusters.
pub const SMALL_READS: Spec = Spec {
    name: "small-reads",
    about: "30 MB read in pieces of 48 bytes, in pages and in clusters, from slow disks",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[FAST_DISK, SLOW_DISK])],
    arms: &[IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |variant| {
        let request_ms = if variant.load == SLOW_DISK { 10 } else { 1 };
        MachineSize {
            memory_mib: 320,
            data_mib: 2 * FILE_MIB + 8,
            request_nsec: request_ms * 1_000_000,
            ..MachineSize::default()
        }
    },
    tasks: |_, _| {
        let task = |(name, work): (String, _)| Task::new(name, Work::Reading(work));
        works().into_iter().map(task).collect()
    },
    time_limit_s: 300,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, "", |seen| {
            let mut verdicts = Vec::new();
            for (task, work) in works() {
                for arm in OURS {
                    verdicts.extend(judge_reading(&seen.of(&task), &work, arm));
                }
            }
            verdicts
        })
    },
    metrics: &[&[
        Metric::lower("read_us", "time to read the file"),
        Metric::lower("requests", "disk requests"),
        Metric::lower("read_kib", "KiB from the disk"),
        Metric::neutral("background_requests", "a background reader's requests"),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

fn judge_reading(seen: &Seen<'_>, work: &Reading, arm: ArmOn) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    if let (Pattern::Sequential { bytes }, true) = (work.pattern, work.factor > 1) {
        // The 48-byte reader never waits for the fast disk, so there is no gap to close.
        if seen.variant.load == SLOW_DISK || bytes >= 4096 {
            verdicts.extend(gap_closed(seen, arm));
        }
        verdicts.extend(requests_fewer(seen, arm));
    }
    verdicts.extend(background_unchanged(seen, arm));
    verdicts
}

fn gap_closed(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let time = |arm| seen.median(arm, "read_us");
    let (limit, stock, ours) = (time(IDLE)?, time(STOCK)?, time(arm)?);
    let closed = (stock - ours) / (stock - limit);
    Some(verdict(
        seen,
        format!("{arm} closes at least half of stock's gap to a cached file"),
        closed >= CLOSED,
        format!("{:.0} % of the gap closed", closed * 100.0),
    ))
}

fn requests_fewer(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let requests = |arm| seen.median(arm, "requests");
    let (stock, ours) = (requests(STOCK)?, requests(arm)?);
    Some(verdict(
        seen,
        format!("{arm} takes at most a quarter of stock's requests"),
        ours * FEWER <= stock,
        format!("{ours} requests, stock {stock}"),
    ))
}

/// Verdict that a background process's requests are the same as on stock.
fn background_unchanged(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let requests = |arm| seen.median(arm, "background_requests");
    let (stock, ours) = (requests(STOCK)?, requests(arm)?);
    Some(verdict(
        seen,
        format!("{arm} leaves a background process's requests as they are"),
        (ours - stock).abs() <= stock * UNCHANGED,
        format!("{ours} requests of the background process, stock {stock}"),
    ))
}

fn verdict(seen: &Seen<'_>, what: String, passed: bool, figures: String) -> Verdict {
    let what = format!("{} {}: {what}", seen.variant.load, seen.task);
    Verdict::new(what, passed, figures).on_figure()
}

/// Highest start time with a record, relative to stock.
const FASTER: f64 = 0.70;
/// Highest start time without a record, relative to stock: no slower, except for noise.
const NO_SLOWER: f64 = 1.03;

const FIRST: &str = "first-start";
const RECORDED: &str = "recorded";
const ALONE: &str = "alone";
const FIVE_LOADS: &str = "5-readers-and-writers";

/// Cold start of a real program, with and without a record, with and without load on the disk.
pub const COLD_START: Spec = Spec {
    name: "cold-start",
    about: "python3 started with nothing cached, from a disk of 1 ms a request",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[ALONE, FIVE_LOADS])],
    arms: &[STOCK, ON_DEBIAN, STOCK_OURS, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 1024,
        data_mib: 320,
        request_nsec: 1_000_000,
        rootfs_packages: PACKAGES.to_vec(),
        ..MachineSize::default()
    },
    tasks: |variant, _| {
        let loads = if variant.load == ALONE { 0 } else { 5 };
        let task = |name, record| {
            let work = ColdStart {
                program: StartedProgram::Python,
                loads,
                record,
                scheduler: None,
            };
            Task::new(name, Work::ColdStart(work))
        };
        // On stock nothing is recorded, so both tasks are the same there.
        vec![task(FIRST, false), task(RECORDED, true)]
    },
    time_limit_s: 400,
    must_hold: starts_faster,
    metrics: &[&[
        Metric::lower("start_us", "time of the start"),
        Metric::lower("requests", "disk requests"),
        Metric::lower("major_faults", "major faults"),
        Metric::higher("load_kib_per_s", "throughput of the loads"),
    ]],
    repetitions: 3,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

fn starts_faster(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, "", |seen| {
        let mut verdicts = Vec::new();
        for (stock, arm) in [(STOCK, ON_DEBIAN), (STOCK_OURS, LIMELIGHT)] {
            for (task, most, promise) in [
                (RECORDED, FASTER, "starts in at most 70 % of stock's time"),
                (FIRST, NO_SLOWER, "is no slower than stock without a record"),
            ] {
                let seen = seen.of(task);
                verdicts.extend(seen.ratio("start_us", arm, stock).map(|ratio| {
                    let what = format!("{arm} {promise}");
                    let figure = format!("{ratio:.3} times stock's time");
                    seen.verdict(what, ratio <= most, figure)
                }));
            }
        }
        verdicts
    })
}
