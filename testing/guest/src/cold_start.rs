// SPDX-License-Identifier: GPL-2.0-or-later
//! Cold start of a real program from a disk with a fixed time per request, while the page cache is
//! empty and other programs read and write on the same disk.

pub mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use self::programs::{copy_program, App, TREE};
use crate::cgroup::{self, Cgroup};
use crate::counters::{pressure_us, Counters};
use crate::daemon::{self, focus, log_tail, Daemon};
use crate::disk::Disk;
use crate::dispatch::Stage;
use crate::guest_setup::drop_caches;
use crate::load::{self, Counter};
use crate::memory::now_ns;
use crate::plan::{Arm, Flash};
use crate::process::{Process, Start};
use crate::random::seed;
use crate::scenario::{Access, ColdStart, Load};

/// Parent cgroup of the loads.
const SLICE: &str = "background.slice";
/// Directory of the daemon's records of starts.
const RECORDS: &str = "/var/lib/limelight/coldstart";
/// Timeout for a record to appear.
const RECORD_LIMIT: Duration = Duration::from_secs(120);
/// Length of a recorded start, in seconds.
const RECORD_S: u32 = 8;
/// memory.max of each load. With more memory, the loads' files would stay cached and the loads
/// would not use the disk.
const LOAD_MEMORY: &str = "16M";
/// memory.max of each reader that competes with the program for the disk only.
const QUEUED_LOAD_MEMORY: &str = "8M";
/// Time for the loads to reach their full rate, and for caches to settle.
const SETTLE: Duration = Duration::from_secs(2);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &ColdStart) -> Result<()> {
    if stage.machine.rootfs.is_none() {
        bail!("cold-start needs a root file system, and the plan's machine has none");
    }
    stage
        .reporter
        .progress("copying the program to the slow disk")?;
    if copy_program(work.program)? {
        // The very first start of the program does one-time work, which must not be measured.
        App::start(work.program)?;
    }
    if let Some(scheduler) = &work.scheduler {
        Disk::of(&Path::new("/dev").join(Flash::DISK))?.set_scheduler(scheduler)?;
    }
    let loads = Loads::new(&stage, work)?;
    // The daemon would replay a record that an earlier cell left, and this cell would mistake that
    // record for its own.
    if Path::new(RECORDS).exists() {
        fs::remove_dir_all(RECORDS)?;
    }
    let daemon = match stage.arm {
        Arm::Stock | Arm::BestStock => None,
        Arm::LimelightOnDebian | Arm::Limelight => {
            daemon::write_config(&format!("[expert]\nreadahead_record_s = {RECORD_S}\n"))?;
            Some(Daemon::start(&[])?)
        }
        arm => bail!("cold-start does not support arm {arm:?}"),
    };
    if daemon.is_some() && work.record {
        stage.reporter.progress("recording a start")?;
        drop_caches()?;
        let app = App::start(work.program)?;
        focus(app.pid())?;
        wait_for_record()?;
    }
    let running = loads.start()?;
    sleep(SETTLE);
    drop_caches()?;
    let app = measure(&mut stage, work, &loads)?;
    drop((app, running));
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// Starts the program beside the running loads, and reports the values.
fn measure(stage: &mut Stage, work: &ColdStart, loads: &Loads) -> Result<App> {
    let reporter = &mut stage.reporter;
    let disk = Disk::of(Path::new(TREE))?;
    let (alone, alone_ns) = (loads.kib(), now_ns());
    let by_hand = stage.arm == Arm::BestStock;
    let read = if by_hand { loads.read_bytes()? } else { 0 };
    sleep(SETTLE);
    if by_hand {
        let read = loads.read_bytes()?.saturating_sub(read);
        loads.limit_reads(Some(read / 2 / SETTLE.as_secs()))?;
    }

    let before = Counters::now()?;
    let (done, requests, waited) = (loads.kib(), disk.requests()?, loads.cpu_wait_us()?);
    let start_ns = now_ns();
    let app = App::start(work.program)?;
    let took_ns = now_ns() - start_ns;
    let requests = disk.requests()?.since(requests);
    let done_after = loads.kib();
    let waited = loads.cpu_wait_us()?.saturating_sub(waited);
    before.report(&mut reporter.values)?;
    reporter.value("start_us", took_ns as f64 / 1000.0);
    reporter.value("requests", requests.reads);
    reporter.value("read_kib", requests.read_kib);
    reporter.value("major_faults", app.major_faults()?);
    if work.loads > 0 {
        let rate = |kib: u64, ns: u64| kib as f64 * 1e9 / ns as f64;
        let during = rate(done_after - done, took_ns);
        reporter.value("load_kib_per_s", during);
        let alone = rate(done - alone, start_ns - alone_ns);
        reporter.value("load_alone_kib_per_s", alone);
        reporter.value("load_cpu_wait_us", waited);
    }
    if by_hand {
        loads.limit_reads(None)?;
    }
    Ok(app)
}

/// The loads of a cell. Their cgroups are created before the daemon starts: cgroups created later
/// would count as left behind by the daemon.
struct Loads {
    specs: Vec<load::Spec>,
    counters: Vec<Counter>,
    cgroups: Vec<Cgroup>,
    realtime: bool,
}

impl Loads {
    fn new(stage: &Stage, work: &ColdStart) -> Result<Self> {
        let mut store = stage.store()?;
        let queued = work.scheduler.is_some();
        let (mut specs, mut counters, mut cgroups) = (Vec::new(), Vec::new(), Vec::new());
        for (number, load) in loads(work.loads, queued).into_iter().enumerate() {
            // A copy's dirty pages do not fit into less, and cannot be reclaimed before they are
            // written.
            let memory = match load {
                Load::Index { .. } if queued => QUEUED_LOAD_MEMORY,
                _ => LOAD_MEMORY,
            };
            let counter = PathBuf::from(format!("/run/load-{number}"));
            let seed = seed(number as u64, stage.repetition);
            let spec = load::Spec::new(load, &mut store, counter, seed)?;
            counters.push(Counter::create(&spec.counter)?);
            let cgroup = Cgroup::create(&format!("{SLICE}/load-{number}.scope"))?;
            cgroup.set("memory.max", memory)?;
            specs.push(spec);
            cgroups.push(cgroup);
        }
        Ok(Loads {
            specs,
            counters,
            cgroups,
            realtime: queued,
        })
    }

    fn start(&self) -> Result<Vec<Process>> {
        let start = |(spec, cgroup)| {
            let load = Start::in_cgroup(cgroup).part("load", spec)?;
            if self.realtime {
                load.make_realtime()?;
            }
            Ok(load)
        };
        self.specs.iter().zip(&self.cgroups).map(start).collect()
    }

    /// KiB that all loads have read and written so far.
    fn kib(&self) -> u64 {
        self.counters.iter().map(Counter::kib).sum()
    }

    /// Bytes that all loads have read from the disk so far.
    fn read_bytes(&self) -> Result<u64> {
        let stat = Path::new(cgroup::ROOT).join(SLICE).join("io.stat");
        let text = fs::read_to_string(stat)?;
        let number = flash_number()?;
        let line = text.lines().find(|line| line.starts_with(&number));
        let words = line.into_iter().flat_map(str::split_ascii_whitespace);
        let bytes = words.filter_map(|word| word.strip_prefix("rbytes=")?.parse::<u64>().ok());
        Ok(bytes.sum())
    }

    /// Limits the loads' reads to a number of bytes per second; `None`: no limit.
    fn limit_reads(&self, rate: Option<u64>) -> Result<()> {
        let rate = rate.map_or("max".to_owned(), |rate| rate.to_string());
        let line = format!("{} rbps={rate}", flash_number()?);
        fs::write(Path::new(cgroup::ROOT).join(SLICE).join("io.max"), &line)
            .with_context(|| format!("cannot write {line:?} to io.max of {SLICE}"))
    }

    /// Time so far in which at least one load waited for a CPU, in microseconds; 0 without PSI.
    fn cpu_wait_us(&self) -> Result<u64> {
        if self.specs.is_empty() {
            return Ok(0);
        }
        pressure_us(&Path::new(cgroup::ROOT).join(SLICE).join("cpu.pressure"))
    }
}

/// Device number of the whole flash disk, such as `252:0`, as io.max expects it.
fn flash_number() -> Result<String> {
    let path = format!("/sys/block/{}/dev", Flash::DISK);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().to_owned())
}

/// The first `count` of five loads, repeated: three random readers and two copies.
fn loads(count: u32, queued: bool) -> Vec<Load> {
    let index = Load::Index {
        access: Access::Read,
        mib: if queued { 256 } else { 64 },
    };
    let copy = Load::Copy { mib: 32 };
    let five = [index, copy, index, copy, index];
    five.into_iter().cycle().take(count as usize).collect()
}

/// Waits until the daemon has written a record.
fn wait_for_record() -> Result<()> {
    let deadline = Instant::now() + RECORD_LIMIT;
    loop {
        let records = fs::read_dir(RECORDS).map_or(0, |entries| entries.count());
        if records > 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "no record in {RECORDS} after {RECORD_LIMIT:?}; limelightd wrote:\n{}",
                log_tail()
            );
        }
        sleep(Duration::from_millis(100));
    }
}
