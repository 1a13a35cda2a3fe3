// SPDX-License-Identifier: GPL-2.0-or-later
//! What `prezero` promises beside speed: no page that is not zero is ever handed out, whatever becomes
//! of the engine; the pool goes back before anybody goes without; nothing is lost; and nobody's
//! processor time is spent for somebody who is not entitled to it.

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

use crate::cell::Stage;
use crate::cgroup::Cgroup;
use crate::counters::keyed;
use crate::daemon::{focus, limelight, Daemon};
use crate::machine::{drop_caches, memory_kib, wait};
use crate::memory::{Mapping, MIB, PAGE};
use crate::null_blk::NullBlk;
use crate::pool;
use crate::process::{named, Conversation, Start};
use crate::record::Reporter;

/// Pages in the pool, in most cases.
const TARGET: u32 = 2048;
/// Pages that the app takes at once.
const TAKEN: usize = 1500;
/// Zeroes on a disk.
const EXTENT: u64 = 4 << 20;
/// Longer than the kernel waits for a disk.
const SLOW_NS: u64 = 4_000_000_000;
const OPENINGS: usize = 1000;
/// Pages that an app takes in its first window, and how long a pool takes to fill.
const FIRST_WINDOW: usize = 3072;
const FILLS: Duration = Duration::from_secs(3);
/// What may be missing from free memory afterwards: caches of each processor, slab.
const SLACK_KIB: u64 = 6 << 10;
/// The zeroing thread's part of a processor, in percent, and what a tick of the clock may add.
const SHARE: f64 = 25.0;
const SHARE_SLACK: f64 = 5.0;
/// `SCHED_IDLE` of linux/sched.h.
const IDLE: i32 = 5;

/// What the app found.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Found {
    /// Pages that it was given.
    pages: usize,
    /// Of those, pages with something in them.
    dirty: usize,
}

/// The app's process: for each line `N` it takes as many pages, looks at every byte, leaves
/// something in each, gives them back, and answers.
pub fn app() -> Result<()> {
    println!("true");
    for line in io::stdin().lock().lines() {
        let pages: usize = line?.trim().parse().context("a number of pages")?;
        let mut area = Mapping::anonymous(pages * PAGE)?;
        let mut found = Found { pages, dirty: 0 };
        for page in 0..pages {
            // A write first: a read would map the kernel's one page of zeroes.
            area.dirty_page(page, 0);
            found.dirty += usize::from(!area.is_zero(page));
            area.soil(page);
        }
        drop(area);
        println!("{}", serde_json::to_string(&found)?);
    }
    Ok(())
}

/// Runs the test.
pub fn run(mut stage: Stage, rounds: usize) -> Result<()> {
    let reporter = &stage.reporter;
    let free_before = settled_free_kib()?;
    // The kernel looks at each page that it hands out, too, and warns.
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
        rules.throttled()?;
        rules.engines()?;
        let pages = rules.pages;
        stage.reporter.value("pages_looked_at", pages as f64);
    }
    let reporter = &stage.reporter;
    openings(reporter, free_before)?;
    seen_before(reporter)?;
    killed(reporter)?;
    stage.reporter.finish()
}

struct Rules<'a> {
    device: Device,
    app: Conversation,
    reporter: &'a Reporter,
    rounds: usize,
    /// Pages that were looked at.
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

    /// The app takes pages again and again. What it found, and how many came from the pool.
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
            "the processor fills the pool, and the topmost app is served from it",
            served * 100 >= found.pages as u64 * 99,
            format!("{served} of {} pages", found.pages),
        )?;
        self.clean("processor", found)?;
        self.off()?;
        self.reporter.check(
            "switched off, the pool is empty",
            pooled()? == 0,
            format!("{} pages", pooled()?),
        )
    }

    fn clean(&self, engine: &str, found: Found) -> Result<()> {
        self.reporter.check(
            format!("{engine}: every page that was handed out is zero"),
            found.dirty == 0 && found.pages > 0,
            format!("{} of {} are not", found.dirty, found.pages),
        )
    }

    /// The pool is free memory for everybody who asks.
    fn available(&self) -> Result<()> {
        // What the kernel gives back late must not look like the pool's.
        let free = settled_free_kib()?;
        let available = memory_kib("MemAvailable")?;
        self.on(TARGET, Zeroing::Cpu)?;
        let full = wait(|| Ok(pooled()? >= u64::from(TARGET) * 7 / 8))?;
        let kib = pooled()? * (PAGE as u64 >> 10);
        let (free_now, available_now) = (free_kib()?, memory_kib("MemAvailable")?);
        self.reporter.check(
            "the pool is not counted as free, but as available",
            full && free_now + kib <= free + SLACK_KIB && available_now + SLACK_KIB >= available,
            format!(
                "{kib} KiB in the pool: MemFree {free} to {free_now}, MemAvailable {available} \
                 to {available_now}"
            ),
        )?;
        self.off()
    }

    /// What the thread spends is bounded, its own, and nobody else's.
    fn time(&mut self) -> Result<()> {
        self.on(TARGET, Zeroing::Cpu)?;
        let (start, spent) = (Instant::now(), zero_us()?);
        while start.elapsed() < Duration::from_secs(3) {
            self.take(1, false)?;
        }
        let elapsed = start.elapsed().as_micros() as f64;
        let percent = (zero_us()? - spent) as f64 * 100.0 / elapsed;
        self.reporter.check(
            "the zeroing thread takes at most a quarter of a processor",
            percent > 0.0 && percent <= SHARE + SHARE_SLACK,
            format!("{percent:.1} %"),
        )?;
        let thread = named("kprezerod0")?.context("the zeroing thread")?;
        // SAFETY: no pointers are passed.
        let class = unsafe { libc::sched_getscheduler(thread) };
        self.reporter.check(
            "the zeroing thread yields to everybody",
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
        // More than is free, and not more than there is with the pool.
        let bytes = memory_kib("MemFree")? * 1024 + before * PAGE as u64 / 2;
        let mut hog = Mapping::anonymous(bytes as usize / PAGE * PAGE)?;
        for page in 0..hog.pages() {
            hog.dirty_page(page, 1);
        }
        let (after, drained) = (pooled()?, counter("drained")? - drained);
        let kills = keyed(Path::new("/proc/vmstat"), "oom_kill")? - kills;
        drop(hog);
        self.reporter.check(
            "the pool goes back before anybody is refused memory or killed",
            full && after < before / 2 && drained > before / 2 && kills == 0,
            format!("{before} pages before, {after} after, {drained} given back, {kills} killed"),
        )?;
        self.off()
    }

    /// Who may not use a processor for long gets none of what was zeroed on other people's time.
    fn throttled(&mut self) -> Result<()> {
        let cgroup = Cgroup::create("app.slice/app-limelight-throttled-1.scope")?;
        cgroup.set_chain("cpu.max", "80000 100000")?;
        let free = std::mem::replace(&mut self.app, start(Some(&cgroup))?);
        self.topmost()?;
        self.on(TARGET, Zeroing::Cpu)?;
        wait(|| Ok(pooled()? >= TAKEN as u64))?;
        let (found, served) = self.take(2, false)?;
        self.reporter.check(
            "an app whose processor time is limited is served nothing",
            served == 0 && found.dirty == 0,
            format!("{served} of {} pages", found.pages),
        )?;
        self.off()?;
        self.app = free;
        self.topmost()
    }

    /// Disks that hold zeroes, or say so.
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
        self.disk("a disk that somebody wrote to", &[], soil, true)?;
        let slow = ("completion_nsec", SLOW_NS.to_string());
        self.disk("a disk that does not answer", &[slow], |_| Ok(()), true)?;
        self.removed()
    }

    /// The app takes pages while a disk fills the pool.
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
            format!("{name}: the app is served all the same"),
            served * 2 >= found.pages as u64,
            format!("{served} of {} pages", found.pages),
        )?;
        self.reporter.check(
            format!("{name}: errors are counted"),
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
        self.clean("a disk that is taken away", found)?;
        self.reporter.check(
            "a disk that is taken away: the processor goes on",
            served > 0,
            format!("{served} pages; engine {}", pool::text("engine")?),
        )?;
        self.off()
    }
}

/// Again and again the device is opened, filled a little, and closed.
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
        format!("after {OPENINGS} openings of the device no page is lost"),
        pooled()? == 0 && free + SLACK_KIB >= free_before,
        format!(
            "{} pages in the pool, {free_before} KiB free before, {free} after",
            pooled()?
        ),
    )
}

/// An app takes fresh memory in its first response window, is started again, and once more under
/// another daemon: from the second time on the pool holds what it takes.
fn seen_before(reporter: &Reporter) -> Result<()> {
    let mut daemon = Daemon::start(&[])?;
    for (turn, what) in ["never", "once", "twice, by another daemon"]
        .iter()
        .enumerate()
    {
        if turn == 2 {
            let (_, before) = daemon.end()?;
            daemon = Daemon::start_after(before)?;
        }
        // The pool is filled before the app is started, where anything is known.
        sleep(FILLS);
        let mut app = start(None)?;
        focus(app.process.pid())?;
        let (served, missed) = (counter("served")?, counter("missed")?);
        limelight(&["window", "open"])?;
        let found: Found = app.ask(&FIRST_WINDOW.to_string())?;
        limelight(&["window", "close"])?;
        let (served, missed) = (counter("served")? - served, counter("missed")? - missed);
        // The daemon reads the counters between windows.
        sleep(FILLS);
        let enough = served * 100 >= (served + missed) * 95 && served as usize >= FIRST_WINDOW / 2;
        reporter.check(
            format!("an app that was seen {what} is given only zeroes in its first window"),
            found.dirty == 0,
            format!("{found:?}"),
        )?;
        if turn > 0 {
            reporter.check(
                format!("an app that was seen {what} has 95 % of its first window from the pool"),
                enough,
                format!("{served} pages served, {missed} missed"),
            )?;
        }
    }
    daemon.stop(reporter)
}

fn killed(reporter: &Reporter) -> Result<()> {
    let app = start(None)?;
    let daemon = Daemon::start(&[app.process.pid()])?;
    focus(app.process.pid())?;
    let filled = wait(|| Ok(pooled()? > 0))?;
    // The kernel warns when somebody is killed who is just making a tracefs instance
    // (trace_rb_cpu_prepare()): limelightd is not busy with the focus any more by then.
    sleep(Duration::from_secs(2));
    let before = pooled()?;
    let left = daemon.kill()?;
    reporter.check(
        "at once after kill -9 of limelightd the pool is empty",
        filled && pooled()? == 0,
        format!("{before} pages before, {} after", pooled()?),
    )?;
    Daemon::start_after(left)?.stop(reporter)
}

fn start(cgroup: Option<&Cgroup>) -> Result<Conversation> {
    let start = Start {
        cgroup,
        ..Start::PLAIN
    };
    let mut app = start.conversation("zero-checker", &())?;
    let _ready: bool = app.hear()?;
    Ok(app)
}

fn zeroes(properties: &[(&str, String)]) -> Result<NullBlk> {
    let mut all = vec![
        ("size", (EXTENT / MIB as u64 * 2).to_string()),
        ("memory_backed", "1".to_owned()),
        ("irqmode", "2".to_owned()),
    ];
    all.extend(properties.iter().cloned());
    NullBlk::create("zeroes", &all)
}

/// Free memory, with what processors keep for their next allocation: pages that were given back may
/// stay there for seconds, and are neither in `MemFree` nor in the pool.
fn free_kib() -> Result<u64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("cannot read /proc/zoneinfo")?;
    let counts = text.lines().filter_map(|line| {
        let count = line.trim_start().strip_prefix("count:")?;
        count.trim().parse::<u64>().ok()
    });
    Ok(memory_kib("MemFree")? + counts.sum::<u64>() * (PAGE as u64 >> 10))
}

/// Free memory once everything that is on its way back has arrived: nothing has for a second.
fn settled_free_kib() -> Result<u64> {
    drop_caches()?;
    let mut free = free_kib()?;
    let (mut calm, mut looks) = (0, 0);
    while calm < 5 && looks < 100 {
        sleep(Duration::from_millis(200));
        let now = free_kib()?;
        calm = match now.abs_diff(free) <= SLACK_KIB / 4 {
            true => calm + 1,
            false => 0,
        };
        (free, looks) = (now, looks + 1);
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
