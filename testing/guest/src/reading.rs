// SPDX-License-Identifier: GPL-2.0-or-later
//! EIMOS's reader: a topmost app reads a file in small pieces or in random clusters. Then a
//! background process reads another file in the same way; Limelight must not affect that process.

use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_sys::inotify::Inotify;
use rustix::fs::inotify::WatchFlags;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{self, focus, Daemon};
use crate::disk::Disk;
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::guest_setup::drop_caches;
use crate::memory::{major_faults, now_ns, Mapping, PAGE};
use crate::plan::Arm;
use crate::process::{Conversation, Start};
use crate::random::{seed, Random};
use crate::scenario::{Access, Pattern, Reading};
use crate::store::Extent;

/// Length of a cluster, in bytes.
pub const CLUSTER: u64 = 256 << 10;
/// Number of pages that are read in a cluster.
const CLUSTER_PAGES: usize = 24;

/// Settling time before the measurement.
const SETTLE: Duration = Duration::from_secs(3);

/// Parameters of the reader's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The file.
    pub file: Extent,
    /// The access pattern.
    pub pattern: Pattern,
    /// Seed of the random offsets.
    pub seed: u64,
}

/// The reader's answer when it has finished.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Finished {
    /// Time for all reads.
    pub elapsed_ns: u64,
    /// Faults that waited for the disk.
    pub major_faults: u64,
    /// Sum of the data, so that the reads are not optimised away.
    pub sum: u64,
}

/// The reader's process: opens the file, reports that it is ready, waits for a line, reads,
/// answers.
pub fn reader(spec: &Spec) -> Result<()> {
    let mut file = spec.file.open()?;
    file.seek(SeekFrom::Start(spec.file.offset))?;
    println!("true");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let (start_ns, faults) = (now_ns(), major_faults());
    let mut sum = 0u64;
    match spec.pattern {
        Pattern::Sequential { bytes } => {
            let mut piece = vec![0u8; bytes as usize];
            let mut left = spec.file.len;
            while left > 0 {
                let len = left.min(piece.len() as u64) as usize;
                let piece = piece
                    .get_mut(..len)
                    .context("the buffer is shorter than a piece")?;
                file.read_exact(piece).context("the reader cannot read")?;
                sum = sum.wrapping_add(u64::from(piece.first().copied().unwrap_or(0)));
                left -= len as u64;
            }
        }
        Pattern::Clusters { access, clusters } => {
            let mapping = Mapping::file(&file, spec.file.offset, spec.file.len as usize)?;
            let mut random = Random::new(spec.seed);
            let places = random.sample((spec.file.len / CLUSTER) as usize, clusters as usize);
            let in_cluster = CLUSTER as usize / PAGE;
            for place in places {
                for page in random.sample(in_cluster, CLUSTER_PAGES) {
                    let page = place * in_cluster + page;
                    sum = sum.wrapping_add(match access {
                        Access::Mapping => mapping.touch_page(page),
                        Access::Read => {
                            let mut word = [0; 8];
                            let offset = spec.file.offset + (page * PAGE) as u64;
                            file.read_exact_at(&mut word, offset)
                                .context("the reader cannot read")?;
                            u64::from_le_bytes(word)
                        }
                    });
                }
            }
        }
    }
    let finished = Finished {
        elapsed_ns: now_ns() - start_ns,
        major_faults: major_faults() - faults,
        sum,
    };
    println!("{}", serde_json::to_string(&finished)?);
    // This process stays the topmost app until its next line of input.
    io::stdin().lock().read_line(&mut line)?;
    Ok(())
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Reading) -> Result<()> {
    let mut store = stage.store()?;
    let file = store.file("read", work.mib)?;
    let other = store.file("read-behind", work.mib)?;
    let disk = Disk::of(&file.path)?;
    // The first inotify watch on a file system makes reading its files slightly slower. On every
    // desktop there is one already, so this cost must not be attributed to limelightd's watch.
    let desktop = Inotify::new()?;
    let directory = file.path.parent().context("the file has no directory")?;
    desktop.watch(directory, WatchFlags::DELETE)?;
    let ordinary = disk.read_ahead_kib()?;
    let app = Cgroup::create(APP)?;
    let background = Cgroup::background("reader")?;
    let start = |file: &Extent, cgroup: &Cgroup| -> Result<Conversation> {
        let start = Start::in_cgroup(cgroup);
        let spec = Spec {
            file: file.clone(),
            pattern: work.pattern,
            seed: seed(u64::from_le_bytes(*b"clusters"), stage.repetition),
        };
        let mut talk = start.conversation("reader", &spec)?;
        let _ready: bool = talk.hear()?;
        Ok(talk)
    };
    if stage.arm == Arm::BestStock {
        // A file inherits the disk's value when it is opened, so the disk is set up first.
        disk.set_read_ahead_kib(ordinary * u64::from(work.factor))?;
    }
    let mut reader = start(&file, &app)?;
    let mut behind = start(&other, &background)?;
    drop_caches()?;
    let daemon = match stage.arm {
        Arm::Idle => {
            // The best possible result: everything is in the page cache.
            let whole = Pattern::Sequential { bytes: 1 << 20 };
            let spec = Spec {
                file: file.clone(),
                pattern: whole,
                seed: 0,
            };
            let mut first = Start::PLAIN.conversation("reader", &spec)?;
            let _ready: bool = first.hear()?;
            let _done: Finished = first.ask("read")?;
            None
        }
        Arm::Stock | Arm::BestStock => None,
        Arm::LimelightOnDebian | Arm::Limelight => {
            configure(work.factor)?;
            let daemon = Daemon::start(&[reader.process.pid()])?;
            focus(reader.process.pid())?;
            Some(daemon)
        }
        arm => bail!("readahead does not support arm {arm:?}"),
    };

    // A freshly booted kernel still has deferred work to do.
    sleep(SETTLE);
    let counters = Counters::now()?;
    let before = disk.requests()?;
    let daemon_before = daemon.as_ref().map(Daemon::cpu_ns).transpose()?;
    let finished: Finished = reader.ask("read")?;
    let requests = disk.requests()?.since(before);
    counters.report(&mut stage.reporter.values)?;
    if let (Some(daemon), Some(before)) = (&daemon, daemon_before) {
        let used = daemon.cpu_ns()?.saturating_sub(before);
        stage.reporter.value("daemon_cpu_us", used as f64 / 1000.0);
    }
    let mib = f64::from(work.mib);
    let values = &mut stage.reporter;
    values.value("read_us", finished.elapsed_ns as f64 / 1000.0);
    values.value("major_faults", finished.major_faults);
    values.value("requests", requests.reads);
    values.value("requests_per_mib", requests.reads as f64 / mib);
    values.value("read_kib", requests.read_kib);

    let before = disk.requests()?;
    let finished: Finished = behind.ask("read")?;
    let requests = disk.requests()?.since(before);
    values.value("background_read_us", finished.elapsed_ns as f64 / 1000.0);
    values.value("background_requests", requests.reads);
    values.value("background_read_kib", requests.read_kib);
    disk.set_read_ahead_kib(ordinary)?;
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
        let now = disk.read_ahead_kib()?;
        stage.reporter.check(
            "the disk's read-ahead setting is what it was at the start",
            now == ordinary,
            format!("{now} KiB at the end, {ordinary} KiB at the start"),
        )?;
    }
    stage.reporter.finish()
}

fn configure(factor: u32) -> Result<()> {
    daemon::write_config(&format!("[expert]\nreadahead_factor = {factor}\n"))
}
