// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks `prezero`'s promises other than speed. Every page handed out is zero, even if the engine
//! fails. The pool is drained before an allocation fails. No page is lost. An app with a CPU limit
//! gets no pages that were zeroed on other tasks' CPU time.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use limelight_sys::device::{Device, Mechanism, Setting, Zeroing, DEVICE_PATH};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::zero_extent::ZeroExtent;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::counters::keyed;
use crate::daemon::{focus, limelight, Daemon};
use crate::dispatch::Stage;
use crate::guest_setup::{drop_caches, memory_kib, wait};
use crate::memory::{Mapping, MIB, PAGE};
use crate::null_blk::NullBlk;
use crate::pool;
use crate::process::{named, Conversation, Start};
use crate::record::Reporter;

/// Pages in the pool in most cases.
const TARGET: u32 = 2048;
/// Pages that the app takes at a time.
const TAKEN: usize = 1500;
/// Bytes of zeroes on a disk.
const EXTENT: u64 = 4 << 20;
/// Time per request of a slow disk, in nanoseconds: longer than the kernel's timeout.
const SLOW_NS: u64 = 4_000_000_000;
const OPENINGS: usize = 1000;
/// Number of times an app grows its heap in its first window, and pages per growth.
const GROWTHS: usize = 4;
const GROWTH: usize = 2048;
/// Wait for the pool to fill, or for the daemon to read the kernel's counters.
const FILLS: Duration = Duration::from_secs(3);
/// Difference in free memory that a check tolerates, in KiB: the kernel's slab changes meanwhile.
const SLACK_KIB: u64 = 6 << 10;
/// The zeroing thread's largest share of a CPU in percent, and the slack for one clock tick.
const SHARE: f64 = 25.0;
const SHARE_SLACK: f64 = 5.0;
/// `SCHED_IDLE` of linux/sched.h.
const IDLE: i32 = 5;

/// The app's result.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Found {
    /// Number of pages that the app got.
    pages: usize,
    /// Number of these pages that were not zero.
    dirty: usize,
}

impl Found {
    /// Whether all pages were zero.
    pub fn is_clean(&self) -> bool {
        self.dirty == 0 && self.pages > 0
    }
}

/// The app's process. For each line `N` it maps N pages, reads every byte, dirties each page,
/// unmaps the pages and answers. For the line `heap` it grows its heap instead.
pub fn app() -> Result<()> {
    println!("true");
    for line in io::stdin().lock().lines() {
        let line = line?;
        let found = match line.trim() {
            "heap" => grow_heap()?,
            pages => map(pages.parse().context("the app expects a number of pages")?)?,
        };
        println!("{}", serde_json::to_string(&found)?);
    }
    Ok(())
}

fn map(pages: usize) -> Result<Found> {
    let mut area = Mapping::anonymous(pages * PAGE)?;
    let mut found = Found { pages, dirty: 0 };
    for page in 0..pages {
        // Write first: a read would map the kernel's shared zero page.
        area.dirty_page(page, 0);
        found.dirty += usize::from(!area.is_zero(page));
        area.soil(page);
    }
    Ok(found)
}

/// Grows the heap `GROWTHS` times by `GROWTH` pages, and shrinks it again.
fn grow_heap() -> Result<Found> {
    let mut found = Found::default();
    for _ in 0..GROWTHS {
        // SAFETY: nothing else in this process moves the break: no memory is allocated until the
        // heap has its old size again.
        let start = unsafe { libc::sbrk((GROWTH * PAGE) as isize) };
        if start as isize == -1 {
            return Err(io::Error::last_os_error()).context("the heap does not grow");
        }
        // SAFETY: the kernel has just given these bytes to this process alone, and they are zero.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), GROWTH * PAGE) };
        for page in bytes.chunks_mut(PAGE) {
            // Write first: a read would map the kernel's shared zero page.
            if let Some(first) = page.first_mut() {
                // SAFETY: a reference is a valid place to write to.
                unsafe { std::ptr::write_volatile(first, 0) };
            }
            found.pages += 1;
            found.dirty += usize::from(page.iter().any(|byte| *byte != 0));
            page.fill(0xa5);
        }
    }
    // SAFETY: returns what was taken above; nothing refers to it any more.
    unsafe { libc::sbrk(-((GROWTHS * GROWTH * PAGE) as isize)) };
    Ok(found)
}

/// Runs the test.
pub fn run(mut stage: Stage, rounds: usize) -> Result<()> {
    let reporter = &stage.reporter;
    let free_before = settled_free_kib()?;
    // The kernel also verifies each page that it hands out, and warns if one is not zero.
    pool::set_verify(true)?;
    {
        let app = start(None)?;
        let device = Device::open(Path::new(DEVICE_PATH))?;
        let mut rules = Rules {
            device,
            app,
            reporter,
            rounds,
            pages: 0,
        };
        rules.topmost()?;
        rules.processor()?;
        rules.available()?;
        rules.time()?;
        rules.pressure()?;
        rules.compaction()?;
        rules.throttled()?;
        rules.engines()?;
        let pages = rules.pages;
        stage.reporter.value("pages_looked_at", pages as f64);
    }
    let reporter = &stage.reporter;
    openings(reporter, free_before)?;
    killed(reporter)?;
    stage.reporter.finish()
}

struct Rules<'a> {
    device: Device,
    app: Conversation,
    reporter: &'a Reporter,
    rounds: usize,
    /// Pages checked so far.
    pages: usize,
}

impl Rules<'_> {
    fn topmost(&self) -> Result<()> {
        let pidfd = Pidfd::open(self.app.process.pid())?;
        Ok(self.device.set_topmost(&[pidfd])?)
    }

    fn on(&self, target_pages: u32, engine: Zeroing<'_>) -> Result<()> {
        let setting = Setting::Prezero {
            target_pages,
            engine,
        };
        Ok(self.device.switch_on(setting)?)
    }

    fn off(&self) -> Result<()> {
        Ok(self.device.switch_off(Mechanism::Prezero)?)
    }

    /// Has the app take pages `rounds` times; `refill` waits for the pool before each round.
    /// Returns the app's result and the number of pages that the pool has served.
    fn take(&mut self, rounds: usize, refill: bool) -> Result<(Found, u64)> {
        let before = counter("served")?;
        let mut all = Found::default();
        for _ in 0..rounds {
            if refill {
                wait(|| Ok(pooled()? >= TAKEN as u64))?;
            }
            let found: Found = self.app.ask(&TAKEN.to_string())?;
            all.pages += found.pages;
            all.dirty += found.dirty;
        }
        self.pages += all.pages;
        Ok((all, counter("served")? - before))
    }

    fn processor(&mut self) -> Result<()> {
        self.on(TARGET, Zeroing::Cpu)?;
        let (found, served) = self.take(self.rounds, true)?;
        self.reporter.check(
            "the CPU fills the pool, and at least 99 % of the foreground app's pages come from it",
            served * 100 >= found.pages as u64 * 99,
            format!("{served} of {} pages came from the pool", found.pages),
        )?;
        self.clean("CPU", found)?;
        self.off()?;
        self.reporter.check(
            "after prezero is switched off, the pool is empty",
            pooled()? == 0,
            format!("{} pages", pooled()?),
        )
    }

    fn clean(&self, engine: &str, found: Found) -> Result<()> {
        self.reporter.check(
            format!("{engine}: every page that was handed out is zero"),
            found.dirty == 0 && found.pages > 0,
            format!("{} of {} pages are not zero", found.dirty, found.pages),
        )
    }

    /// Checks that the pool counts as available memory.
    fn available(&self) -> Result<()> {
        // Waits for pages that the kernel frees late: they would count as free only after `free`
        // is measured.
        let free = settled_free_kib()?;
        let available = memory_kib("MemAvailable")?;
        self.on(TARGET, Zeroing::Cpu)?;
        let full = wait(|| Ok(pooled()? >= u64::from(TARGET) * 7 / 8))?;
        let kib = pooled()? * (PAGE as u64 >> 10);
        let (free_now, available_now) = (free_kib()?, memory_kib("MemAvailable")?);
        self.reporter.check(
            "the pool counts as available memory, but not as free memory",
            full && free_now + kib <= free + SLACK_KIB && available_now + SLACK_KIB >= available,
            format!(
                "{kib} KiB in the pool: MemFree {free} to {free_now}, MemAvailable {available} \
                 to {available_now}"
            ),
        )?;
        self.off()
    }

    /// Checks that the zeroing thread's CPU time is bounded, and that the thread yields to every
    /// other.
    fn time(&mut self) -> Result<()> {
        self.on(TARGET, Zeroing::Cpu)?;
        let (start, spent) = (Instant::now(), zero_us()?);
        while start.elapsed() < Duration::from_secs(3) {
            self.take(1, false)?;
        }
        let elapsed = start.elapsed().as_micros() as f64;
        let percent = (zero_us()? - spent) as f64 * 100.0 / elapsed;
        self.reporter.check(
            "the zeroing thread uses at most a quarter of a CPU",
            percent > 0.0 && percent <= SHARE + SHARE_SLACK,
            format!("{percent:.1} % of a CPU"),
        )?;
        let thread = named("kprezerod0")?.context("there is no zeroing thread")?;
        // SAFETY: no pointers are passed.
        let class = unsafe { libc::sched_getscheduler(thread) };
        self.reporter.check(
            "the zeroing thread runs under SCHED_IDLE",
            class == IDLE,
            format!("scheduling class {class}"),
        )?;
        self.off()
    }

    fn pressure(&self) -> Result<()> {
        self.on(u32::MAX, Zeroing::Cpu)?;
        let target = pool::number("target")?;
        let full = wait(|| Ok(pooled()? >= target * 7 / 8))?;
        let (before, drained) = (pooled()?, counter("drained")?);
        let kills = keyed(Path::new("/proc/vmstat"), "oom_kill")?;
        // More than the free memory, but less than free memory and pool together.
        let bytes = memory_kib("MemFree")? * 1024 + before * PAGE as u64 / 2;
        let mut hog = Mapping::anonymous(bytes as usize / PAGE * PAGE)?;
        for page in 0..hog.pages() {
            hog.dirty_page(page, 1);
        }
        let (after, drained) = (pooled()?, counter("drained")? - drained);
        let kills = keyed(Path::new("/proc/vmstat"), "oom_kill")? - kills;
        drop(hog);
        self.reporter.check(
            "the pool is freed before an allocation fails or a process is killed",
            full && after < before / 2 && drained > before / 2 && kills == 0,
            format!("{before} pages before, {after} after, {drained} freed, {kills} killed"),
        )?;
        self.off()
    }

    /// Checks that compaction frees the pool's pages, which it cannot migrate.
    fn compaction(&self) -> Result<()> {
        self.on(TARGET, Zeroing::Cpu)?;
        let full = wait(|| Ok(pooled()? >= u64::from(TARGET) * 7 / 8))?;
        let (before, drained) = (pooled()?, counter("drained")?);
        fs::write("/proc/sys/vm/compact_memory", "1").context("compact_memory")?;
        let (after, drained) = (pooled()?, counter("drained")? - drained);
        self.reporter.check(
            "compaction frees the pool's pages, which it cannot migrate",
            full && drained >= before,
            format!("{before} pages before, {after} after, {drained} freed"),
        )?;
        self.off()
    }

    /// Checks that an app with a CPU limit gets no pages that were zeroed on other tasks' CPU time.
    fn throttled(&mut self) -> Result<()> {
        let cgroup = Cgroup::create("app.slice/app-limelight-throttled-1.scope")?;
        cgroup.set_chain("cpu.max", "80000 100000")?;
        let free = std::mem::replace(&mut self.app, start(Some(&cgroup))?);
        self.topmost()?;
        self.on(TARGET, Zeroing::Cpu)?;
        wait(|| Ok(pooled()? >= TAKEN as u64))?;
        let (found, served) = self.take(2, false)?;
        self.reporter.check(
            "an app with a CPU limit gets no pages from the pool",
            served == 0 && found.dirty == 0,
            format!("{served} of {} pages came from the pool", found.pages),
        )?;
        self.off()?;
        self.app = free;
        self.topmost()
    }

    /// Fills the pool from disks of zeroes, working and defective ones.
    fn engines(&mut self) -> Result<()> {
        self.disk("a disk of zeroes", &[], |_| Ok(()), false)?;
        let bad = ("badblocks", "+100-163".to_owned());
        self.disk("a disk with bad blocks", &[bad], |_| Ok(()), true)?;
        let soil = |disk: &NullBlk| -> Result<()> {
            let file = OpenOptions::new().write(true).open(disk.device())?;
            file.write_all_at(&[0xa5; 4096], 10 * PAGE as u64)?;
            // The last byte of a page.
            file.write_all_at(&[1], 21 * PAGE as u64 - 1)?;
            Ok(file.sync_all()?)
        };
        self.disk("a disk that another program wrote to", &[], soil, true)?;
        let slow = ("completion_nsec", SLOW_NS.to_string());
        self.disk("a disk that does not answer", &[slow], |_| Ok(()), true)?;
        self.removed()
    }

    /// Has the app take pages while a disk fills the pool.
    fn disk(
        &mut self,
        name: &str,
        properties: &[(&str, String)],
        prepare: impl Fn(&NullBlk) -> Result<()>,
        fails: bool,
    ) -> Result<()> {
        let disk = zeroes(properties)?;
        prepare(&disk)?;
        let errors = counter("engine_errors")?;
        let extent = ZeroExtent::open(disk.device(), 0, EXTENT, false)?;
        self.on(TARGET, Zeroing::Block(&extent))?;
        let (found, served) = self.take(self.rounds, true)?;
        let errors = counter("engine_errors")? - errors;
        self.clean(name, found)?;
        self.reporter.check(
            format!("{name}: at least half of the app's pages come from the pool"),
            served * 2 >= found.pages as u64,
            format!("{served} of {} pages came from the pool", found.pages),
        )?;
        self.reporter.check(
            format!("{name}: errors are counted if the disk fails, and only then"),
            (errors > 0) == fails,
            format!("{errors} errors; engine {}", pool::text("engine")?),
        )?;
        self.off()?;
        drop(extent);
        disk.remove()
    }

    fn removed(&mut self) -> Result<()> {
        let disk = zeroes(&[])?;
        let extent = ZeroExtent::open(disk.device(), 0, EXTENT, false)?;
        self.on(TARGET, Zeroing::Block(&extent))?;
        let (mut found, _) = self.take(2, true)?;
        disk.remove()?;
        let (more, served) = self.take(self.rounds, true)?;
        found.pages += more.pages;
        found.dirty += more.dirty;
        self.clean("a removed disk", found)?;
        self.reporter.check(
            "a removed disk: the CPU fills the pool instead",
            served > 0,
            format!("{served} pages; engine {}", pool::text("engine")?),
        )?;
        self.off()
    }
}

/// Opens the device, switches prezero on and closes the device, [`OPENINGS`] times. Every 100th
/// time, waits until the pool holds pages before closing the device.
fn openings(reporter: &Reporter, free_before: u64) -> Result<()> {
    for turn in 0..OPENINGS {
        let device = Device::open(Path::new(DEVICE_PATH))?;
        device.switch_on(Setting::Prezero {
            target_pages: 512,
            engine: Zeroing::Cpu,
        })?;
        if turn % 100 == 0 {
            wait(|| Ok(pooled()? >= 256))?;
        }
        drop(device);
    }
    let free = settled_free_kib()?;
    reporter.check(
        format!("opening and closing the device {OPENINGS} times loses no page"),
        pooled()? == 0 && free + SLACK_KIB >= free_before,
        format!(
            "{} pages in the pool, {free_before} KiB free before, {free} after",
            pooled()?
        ),
    )
}

/// Runs the test of an app's first response window, in which the app grows its heap. The app is
/// started three times, the last time under another daemon. From the second start on, the pool
/// holds the pages that the app takes.
pub fn first_window(mut stage: Stage) -> Result<()> {
    let mut shares = Vec::new();
    let reporter = &stage.reporter;
    let mut daemon = Daemon::start(&[])?;
    for (turn, what) in [
        "first start",
        "second start",
        "third start, under another daemon",
    ]
    .iter()
    .enumerate()
    {
        if turn == 2 {
            let (_, before) = daemon.end()?;
            daemon = Daemon::start_after(before)?;
        }
        // If the daemon has a record of the app, it has the pool filled before the app starts.
        sleep(FILLS);
        let mut app = start(None)?;
        focus(app.process.pid())?;
        let (served, missed) = (counter("served")?, counter("missed")?);
        limelight(&["window", "open"])?;
        let found: Found = app.ask("heap")?;
        limelight(&["window", "close"])?;
        let (served, missed) = (counter("served")? - served, counter("missed")? - missed);
        // The daemon reads the kernel's counters after the window.
        sleep(FILLS);
        let share = served as f64 * 100.0 / (served + missed).max(1) as f64;
        shares.push(share);
        let enough = share >= 95.0 && served as usize >= GROWTHS * GROWTH / 2;
        reporter.check(
            format!("{what}: the app gets only zeroed pages in its first window"),
            found.dirty == 0,
            format!("{found:?}"),
        )?;
        if turn > 0 {
            reporter.check(
                format!("{what}: at least 95 % of the first window's pages come from the pool"),
                enough,
                format!("{served} pages served, {missed} missed"),
            )?;
        }
    }
    daemon.stop(reporter)?;
    let names = ["unseen", "seen_once", "seen_twice"];
    for (name, share) in names.into_iter().zip(shares) {
        stage
            .reporter
            .value(format!("served_{name}_percent"), share);
    }
    stage.reporter.finish()
}

fn killed(reporter: &Reporter) -> Result<()> {
    let app = start(None)?;
    let daemon = Daemon::start(&[app.process.pid()])?;
    focus(app.process.pid())?;
    let filled = wait(|| Ok(pooled()? > 0))?;
    // Gives limelightd time to finish handling the focus change: the kernel warns when a process is
    // killed while it creates a tracefs instance (trace_rb_cpu_prepare()).
    sleep(Duration::from_secs(2));
    let before = pooled()?;
    let left = daemon.kill()?;
    reporter.check(
        "immediately after kill -9 of limelightd, the pool is empty",
        filled && pooled()? == 0,
        format!("{before} pages before, {} after", pooled()?),
    )?;
    Daemon::start_after(left)?.stop(reporter)
}

fn start(cgroup: Option<&Cgroup>) -> Result<Conversation> {
    let start = Start::in_cgroup(cgroup);
    let mut app = start.conversation("zero-checker", &())?;
    let _ready: bool = app.hear()?;
    Ok(app)
}

fn zeroes(properties: &[(&str, String)]) -> Result<NullBlk> {
    NullBlk::in_memory("zeroes", EXTENT / MIB as u64 * 2, properties)
}

/// Free memory in KiB, including the per-CPU page lists. Freed pages may stay on these lists for
/// seconds; they are neither in `MemFree` nor in the pool.
fn free_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("cannot read /proc/zoneinfo")?;
    let counts = text.lines().filter_map(|line| {
        let count = line.trim_start().strip_prefix("count:")?;
        count.trim().parse::<u64>().ok()
    });
    Ok(memory_kib("MemFree")? + counts.sum::<u64>() * (PAGE as u64 >> 10))
}

/// Free memory in KiB, once it has been stable for a second.
fn settled_free_kib() -> Result<u64> {
    drop_caches()?;
    let mut free = free_kib()?;
    let (mut calm, mut samples) = (0, 0);
    while calm < 5 && samples < 100 {
        sleep(Duration::from_millis(200));
        let now = free_kib()?;
        calm = match now.abs_diff(free) <= SLACK_KIB / 4 {
            true => calm + 1,
            false => 0,
        };
        (free, samples) = (now, samples + 1);
    }
    Ok(free)
}

fn counter(name: &str) -> Result<u64> {
    keyed(
        Path::new("/proc/vmstat"),
        &format!("limelight_prezero_{name}"),
    )
}

fn pooled() -> Result<u64> {
    pool::number("pooled")
}

fn zero_us() -> Result<u64> {
    pool::number("zero_us")
}
