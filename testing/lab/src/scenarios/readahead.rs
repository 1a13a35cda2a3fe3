// SPDX-License-Identifier: GPL-2.0-or-later
//! EIMOS's experiment: a file of 30 MB read in pieces of 48 bytes, at the paper's factors, on a
//! disk with one millisecond per request; the same in pages, and in random clusters.
//!
//! In the instruction model a read of 48 bytes takes 1.7 us, so 128 KiB take 4.6 ms: longer than a
//! request to that disk, so the reader never waits for it. A disk of 10 ms is slower than the
//! reader; there, and for pages on both disks, read-ahead can close the gap to the cached file.
//!
//! And the cold start of a real program from such a disk.
//!
//! Read-ahead cannot save copying the data out and filling the page cache, so the limit is the same
//! file cached, and a part of the gap to it remains with any kernel.

use std::time::Duration;

use limelight_apps::scenario::{Access, Pattern, Reading, Work};

use super::terms::{BEST_STOCK, IDLE, LIMELIGHT, ON_DEBIAN, STOCK, STOCK_OURS};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// Small sequential reads and clusters.
pub struct SmallReads;

/// Readahead's promises, one by one.
pub struct Readahead;

/// Cold start of a real program, with and without a record, with and without load on the disk.
pub struct ColdStart;

/// Size of the file in MiB: the paper's.
const FILE_MIB: u32 = 30;
/// Share of stock's gap to the limit that must be closed.
const CLOSED: f64 = 0.5;
/// Factor by which the topmost reader's requests must be fewer than stock's.
const FEWER: f64 = 4.0;
/// Difference up to which a background process's requests count as unchanged.
const UNCHANGED: f64 = 0.05;

const FAST_DISK: &str = "1ms-disk";
const SLOW_DISK: &str = "10ms-disk";
const SMALL: &str = "48-bytes";
const PAGES: &str = "4-kib";
const CLUSTERS_READ: &str = "clusters-read";
const CLUSTERS_MAPPED: &str = "clusters-mapped";

/// Access patterns and factors.
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

impl Scenario for SmallReads {
    fn name(&self) -> &'static str {
        "small-reads"
    }

    fn about(&self) -> &'static str {
        "30 MB read in 48 bytes, in pages and in clusters, from slow disks"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(&[Lru::Mglru], &[SwapKind::None], &[FAST_DISK, SLOW_DISK])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        let request_ms = if variant.load == SLOW_DISK { 10 } else { 1 };
        MachineSize {
            memory_mib: 320,
            vcpus: 2,
            data_mib: 2 * FILE_MIB + 8,
            request_nsec: request_ms * 1_000_000,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        works()
            .into_iter()
            .map(|(name, work)| Task::new(name, Work::Reading(work)))
            .collect()
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn repetitions(&self) -> u32 {
        1
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (name, work) in works() {
                let median = |arm: ArmOn, value| aggregates.median(&variant, arm, &name, value);
                let task = format!("{} {name}", variant.load);
                let sequential = matches!(work.pattern, Pattern::Sequential { .. });
                let small = matches!(work.pattern, Pattern::Sequential { bytes } if bytes < 4096);
                let waits = variant.load == SLOW_DISK || !small;
                for arm in [ON_DEBIAN, LIMELIGHT] {
                    if work.factor > 1 && sequential {
                        if waits {
                            let closed = gap_closed(&task, arm, |arm| median(arm, "read_us"));
                            verdicts.extend(closed);
                        }
                        verdicts.extend(requests_fewer(&task, arm, |arm| median(arm, "requests")));
                    }
                    verdicts.extend(background_unchanged(&task, arm, |arm| {
                        median(arm, "background_requests")
                    }));
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = Metric::new;
        vec![
            metric("read_us", "reading", Better::Lower),
            metric("requests", "disk requests", Better::Lower),
            metric("read_kib", "KiB from the disk", Better::Lower),
            metric(
                "background_requests",
                "a background reader's requests",
                Better::Neutral,
            ),
        ]
    }
}

/// Longest start with a record, relative to stock.
const FASTER: f64 = 0.70;
/// Longest start without a record, relative to stock: no slower, except for noise.
const NO_SLOWER: f64 = 1.03;

const FIRST: &str = "first-start";
const RECORDED: &str = "recorded";
const ALONE: &str = "alone";
const FIVE_LOADS: &str = "5-readers-and-writers";

impl Scenario for ColdStart {
    fn name(&self) -> &'static str {
        "cold-start"
    }

    fn about(&self) -> &'static str {
        "python3 started with nothing cached, from a disk of 1 ms a request"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(&[Lru::Mglru], &[SwapKind::None], &[ALONE, FIVE_LOADS])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK, ON_DEBIAN, STOCK_OURS, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 1024,
            vcpus: 2,
            data_mib: 320,
            request_nsec: 1_000_000,
            rootfs_packages: super::gallery_real::rootfs_packages(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let loads = if variant.load == ALONE { 0 } else { 5 };
        let task = |name, record| {
            let work = limelight_apps::scenario::ColdStart { loads, record };
            Task::new(name, Work::ColdStart(work))
        };
        // Nothing is recorded on stock: there the two are the same.
        vec![task(FIRST, false), task(RECORDED, true)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(400)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (stock, arm) in [(STOCK, ON_DEBIAN), (STOCK_OURS, LIMELIGHT)] {
                for (task, most, promise) in [
                    (RECORDED, FASTER, "starts in at most 70 % of stock's time"),
                    (FIRST, NO_SLOWER, "is no slower than stock without a record"),
                ] {
                    let ratio = aggregates.ratio(&variant, task, "start_us", arm, stock);
                    verdicts.extend(ratio.map(|ratio| {
                        Verdict::new(
                            format!("{variant} {task}: {arm} {promise}"),
                            ratio <= most,
                            format!("{ratio:.3}"),
                        )
                    }));
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = Metric::new;
        vec![
            metric("start_us", "start", Better::Lower),
            metric("requests", "disk requests", Better::Lower),
            metric("major_faults", "major faults", Better::Lower),
            metric("load_kib_per_s", "loads", Better::Higher),
        ]
    }
}

impl Scenario for Readahead {
    fn name(&self) -> &'static str {
        "readahead"
    }

    fn about(&self) -> &'static str {
        "starts are recorded and read ahead, changed files are not; only the topmost app reads further"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "rules")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            data_mib: 640,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::ReadaheadRules)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}

fn gap_closed(task: &str, arm: ArmOn, time: impl Fn(ArmOn) -> Option<f64>) -> Option<Verdict> {
    let (limit, stock, ours) = (time(IDLE)?, time(STOCK)?, time(arm)?);
    let closed = (stock - ours) / (stock - limit);
    Some(Verdict::new(
        format!("{task}: {arm} closes at least half of stock's gap to a cached file"),
        closed >= CLOSED,
        format!("{:.0} %", closed * 100.0),
    ))
}

fn requests_fewer(
    task: &str,
    arm: ArmOn,
    requests: impl Fn(ArmOn) -> Option<f64>,
) -> Option<Verdict> {
    let (stock, ours) = (requests(STOCK)?, requests(arm)?);
    Some(Verdict::new(
        format!("{task}: {arm} takes at most a quarter of stock's requests"),
        ours * FEWER <= stock,
        format!("{ours} of {stock}"),
    ))
}

fn background_unchanged(
    task: &str,
    arm: ArmOn,
    requests: impl Fn(ArmOn) -> Option<f64>,
) -> Option<Verdict> {
    // Each kernel treats a background process in its own way; Limelight must not change that.
    let (stock, ours) = (requests(STOCK)?, requests(arm)?);
    Some(Verdict::new(
        format!("{task}: {arm} leaves a background process's requests as they are"),
        (ours - stock).abs() <= stock * UNCHANGED,
        format!("{ours}, stock {stock}"),
    ))
}
