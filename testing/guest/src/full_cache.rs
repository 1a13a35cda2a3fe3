// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks premap, readahead and prezero on a machine whose memory is full of page cache, the state
//! of every machine after an hour of use. Free memory then stays near the watermarks, and all of the
//! cache can be reclaimed.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_sys::device::{Device, Mechanism, Setting, Zeroing, DEVICE_PATH};
use limelight_sys::perf::PageFaults;
use limelight_sys::pidfd::Pidfd;

use crate::counters::keyed;
use crate::daemon::main_wakeups;
use crate::disk::Disk;
use crate::dispatch::Stage;
use crate::fragment::fragment;
use crate::guest_setup::{drop_caches, memory_kib, wait};
use crate::heap;
use crate::memory::MIB;
use crate::pages::PageSetting;
use crate::pool;
use crate::prezero_rules::Found;
use crate::process::{named, Conversation, Start};
use crate::reading;
use crate::record::Reporter;
use crate::scenario::{Growth, Pages, Pattern};
use crate::store::{Extent, Store};

/// Pages by which the app's heap grows in a round: PREMAP's smaller browser.
const GROWTH: u32 = 9_500;
/// premap's largest window in pages, the daemon's default.
const WINDOW: u32 = 64;
/// Rounds for each state of the page cache.
const ROUNDS: u32 = 3;
/// Highest share of the app's pages that may fault while the page cache is empty, and while it is
/// full. While it is full, the app takes pages and kswapd frees others, so the number of faults
/// varies with the speed of both.
const FAULTS_PERCENT: [u64; 2] = [20, 60];
/// Size of the file that is read in order.
const FILE_MIB: u32 = 24;
/// Read-ahead factor, the daemon's default.
const FACTOR: u32 = 8;
/// The topmost reader must need at most a background reader's requests divided by this.
const FEWER: u64 = 2;
/// Target of the pool of zeroed pages, and pages that the app takes.
const TARGET: u32 = 2048;
/// Maximum number of pages that others than kswapd reclaim while the pool is filled: the target,
/// what the zeroing thread reclaimed and did not take, and what processes reclaim that allocate
/// meanwhile. kswapd goes on to the high watermark, which the kernel raises for a while when free
/// memory is fragmented.
const MOST_RECLAIMED: u64 = TARGET as u64 * 3 / 2;
/// Maximum number of anonymous pages that are reclaimed meanwhile. The zeroing thread reclaims none,
/// but kswapd takes a few among its own pages, and the kernel counts both together.
const MOST_ANONYMOUS: u64 = TARGET as u64 / 64;
/// Bytes of page cache that are read while the pool is full. The free memory between two
/// watermarks is a small part of this.
const READ: usize = 16 * MIB;
const TAKEN: usize = 1500;
/// Lowest share of these that must come from the pool, in percent. While memory is fragmented,
/// premap prefers a folio of 64 KiB that has become free to single pages of the pool.
const SERVED: u64 = 90;
const SERVED_FRAGMENTED: u64 = 50;
/// Time after which the zeroing thread polls at its longest interval, and time to count its polls.
const SETTLES: Duration = Duration::from_secs(8);
/// Maximum number of polls in that time. The shortest interval is 250 ms, the longest one 4 s.
const MOST_POLLS: u64 = 16;
/// Pages that the thread zeroes between two sleeps.
const BATCH: u64 = 64;
/// Memory that is left for the page cache, as single pages, while memory is fragmented.
const CACHE_MIB: u32 = 88;
/// Bytes of page cache that are added at once.
const STEP: usize = MIB / 4;
/// Index of the highest zone from which the kernel takes user memory: `ZONE_MOVABLE`.
const HIGHEST: usize = 3;

/// Runs the test.
pub fn run(mut stage: Stage) -> Result<()> {
    let mut store = stage.store()?;
    let front = store.file("front", FILE_MIB)?;
    let behind = store.file("behind", FILE_MIB)?;
    let mut test = Test {
        cache: Cache::new(&store)?,
        device: Device::open(Path::new(DEVICE_PATH))?,
        reporter: &mut stage.reporter,
    };
    test.premap()?;
    test.readahead(&front, &behind)?;
    test.prezero()?;
    test.prezero_with_folios()?;
    stage.reporter.finish()
}

struct Test<'a> {
    cache: Cache,
    device: Device,
    reporter: &'a mut Reporter,
}

impl Test<'_> {
    fn topmost(&self, app: &Conversation) -> Result<()> {
        let pidfd = Pidfd::open(app.process.pid())?;
        Ok(self.device.set_topmost(&[pidfd])?)
    }

    fn premap(&mut self) -> Result<()> {
        let spec = heap::Spec {
            growth: Growth::Swipe { pages: GROWTH },
            seed: 1,
        };
        let mut app = Start::PLAIN.conversation("heap", &spec)?;
        let _ready: bool = app.hear()?;
        self.topmost(&app)?;
        self.device.switch_on(Setting::Premap {
            window_pages: WINDOW,
        })?;
        let faults = PageFaults::of(app.process.pid())?;
        for (full, most) in [false, true].into_iter().zip(FAULTS_PERCENT) {
            let (mut faulted, mut pages) = (0, 0);
            for _ in 0..ROUNDS {
                self.set(full)?;
                let before = faults.count()?;
                let round: heap::Round = app.ask("grow")?;
                faulted += faults.count()? - before;
                pages += round.used_pages;
            }
            let name = word(full);
            self.reporter
                .value(format!("premap_faults_{name}"), faulted);
            self.reporter.check(
                format!("premap saves faults while the page cache is {name}"),
                faulted * 100 <= pages * most,
                format!("{faulted} faults for {pages} pages, at most {most} %"),
            )?;
        }
        Ok(self.device.switch_off(Mechanism::Premap)?)
    }

    fn readahead(&mut self, front: &Extent, behind: &Extent) -> Result<()> {
        self.device
            .switch_on(Setting::Readahead { factor: FACTOR })?;
        for full in [false, true] {
            let (alone, _) = self.read(behind, full, false)?;
            let (requests, state) = self.read(front, full, true)?;
            let name = word(full);
            self.reporter
                .value(format!("readahead_requests_{name}"), requests);
            self.reporter
                .value(format!("readahead_requests_{name}_background"), alone);
            self.reporter.check(
                format!(
                    "the topmost app needs at most half of a background process's requests while \
                     the page cache is {name}"
                ),
                requests * FEWER <= alone,
                format!("{requests} requests; a background process needs {alone}; {state}"),
            )?;
        }
        Ok(self.device.switch_off(Mechanism::Readahead)?)
    }

    /// Reads a file that is not in the page cache, in the foreground if `front`. Returns the number
    /// of disk requests, and a description of memory before the read.
    fn read(&mut self, file: &Extent, full: bool, front: bool) -> Result<(u64, String)> {
        let state = self.set(full)?;
        let spec = reading::Spec {
            file: file.clone(),
            pattern: Pattern::Sequential { bytes: 4096 },
            seed: 0,
        };
        let mut reader = Start::PLAIN.conversation("reader", &spec)?;
        let _ready: bool = reader.hear()?;
        match front {
            true => self.topmost(&reader)?,
            false => self.device.set_topmost::<Pidfd>(&[])?,
        }
        let disk = Disk::of(&file.path)?;
        let before = disk.requests()?;
        let _done: reading::Finished = reader.ask("read")?;
        Ok((disk.requests()?.since(before).reads, state))
    }

    /// Checks that the pool of zeroed pages is filled while memory is full of page cache, at the
    /// expense of no more page cache than necessary. Then checks that it stays full while other
    /// processes read, that the app gets its pages, and that it is filled when memory is free again.
    fn prezero(&mut self) -> Result<()> {
        let mut app = Start::PLAIN.conversation("zero-checker", &())?;
        let _ready: bool = app.hear()?;
        self.topmost(&app)?;
        let state = self.set(true)?;
        let before = Reclaimed::so_far()?;
        let (zeroed, drained) = (counter("zeroed")?, counter("drained")?);
        self.device.switch_on(Setting::Prezero {
            target_pages: TARGET,
            engine: Zeroing::Cpu,
        })?;
        let filled = wait(pool_is_full)?;
        sleep(SETTLES);
        let reclaimed = Reclaimed::so_far()?.since(before);
        let pooled = pool::number("pooled")?;
        let reporter = &mut self.reporter;
        reporter.value("prezero_pooled_full", pooled);
        reporter.value("prezero_reclaimed_full", reclaimed.by_others());
        reporter.value("prezero_reclaimed_by_kswapd_full", reclaimed.by_kswapd);
        reporter.check(
            "the pool of zeroed pages is filled while the page cache is full",
            filled && pool_is_full()?,
            format!(
                "{pooled} of {TARGET} pages; before: {state}; now: {}",
                zones()?
            ),
        )?;
        reporter.check(
            "filling the pool reclaims little more page cache than its size, and hardly any anonymous \
             memory",
            reclaimed.by_others() <= MOST_RECLAIMED && reclaimed.anonymous <= MOST_ANONYMOUS,
            format!(
                "{reclaimed:?}, at most {MOST_RECLAIMED} and {MOST_ANONYMOUS}; {} pages zeroed, {} freed",
                counter("zeroed")? - zeroed,
                counter("drained")? - drained
            ),
        )?;
        self.polls()?;
        self.stays_full()?;
        self.serves(&mut app, SERVED)?;
        self.cache.evict()?;
        let filled = wait(pool_is_full)?;
        let pooled = pool::number("pooled")?;
        self.reporter.check(
            "the pool of zeroed pages is filled when memory is free again",
            filled,
            format!("{pooled} of {TARGET} pages; {}", zones()?),
        )?;
        self.serves(&mut app, SERVED)?;
        Ok(self.device.switch_off(Mechanism::Prezero)?)
    }

    /// Checks that the pool is filled although memory has hardly any block that is large enough for
    /// the folios that the pool should mainly consist of: single pages take their place. Less memory
    /// is left for the page cache, of which the pool may take an eighth, so half is enough.
    fn prezero_with_folios(&mut self) -> Result<()> {
        let _fragmented = fragment(CACHE_MIB)?;
        let _folios = PageSetting::make(Pages::Madvise { kib: 64 })?;
        let mut app = Start::PLAIN.conversation("zero-checker", &())?;
        let _ready: bool = app.hear()?;
        self.topmost(&app)?;
        self.device.switch_on(Setting::Premap {
            window_pages: WINDOW,
        })?;
        let state = self.set(true)?;
        self.device.switch_on(Setting::Prezero {
            target_pages: TARGET,
            engine: Zeroing::Cpu,
        })?;
        let filled = wait(pool_is_half_full)?;
        let pooled = pool::number("pooled")?;
        self.reporter.value("prezero_pooled_full_folios", pooled);
        self.reporter.check(
            "half of the pool is filled with single pages while memory is fragmented",
            filled,
            format!(
                "{pooled} of {TARGET} pages; before: {state}; now: {}",
                zones()?
            ),
        )?;
        self.serves(&mut app, SERVED_FRAGMENTED)?;
        self.device.switch_off(Mechanism::Prezero)?;
        Ok(self.device.switch_off(Mechanism::Premap)?)
    }

    /// Checks that the zeroing thread rarely wakes up for nothing.
    fn polls(&mut self) -> Result<()> {
        let thread = named("kprezerod0")?.context("there is no zeroing thread")?;
        let before = (main_wakeups(thread)?, counter("zeroed")?);
        sleep(SETTLES);
        let batches = (counter("zeroed")? - before.1) / BATCH;
        let polls = (main_wakeups(thread)? - before.0).saturating_sub(batches);
        self.reporter.value("prezero_polls_full", polls);
        self.reporter.check(
            "the zeroing thread polls rarely while the page cache is full",
            polls <= MOST_POLLS,
            format!("{polls} times in {SETTLES:?}"),
        )
    }

    /// Checks that reclaim takes page cache and not the pool while another process reads a file.
    fn stays_full(&mut self) -> Result<()> {
        let drained = counter("drained")?;
        let reclaimed = Reclaimed::so_far()?;
        for _ in 0..READ / STEP {
            self.cache.step()?;
        }
        let drained = counter("drained")? - drained;
        let reclaimed = Reclaimed::so_far()?.since(reclaimed);
        let pooled = pool::number("pooled")?;
        self.reporter.value("prezero_drained_full", drained);
        self.reporter.check(
            "the pool stays full while other processes read files",
            drained * 8 <= u64::from(TARGET) && pool_is_full()?,
            format!(
                "{drained} pages freed, {pooled} left; {reclaimed:?} during {READ} bytes of reads"
            ),
        )
    }

    /// Checks that at least `percent` of the app's fresh pages come from the pool.
    fn serves(&mut self, app: &mut Conversation, percent: u64) -> Result<()> {
        let before = counter("served")?;
        let found: Found = app.ask(&TAKEN.to_string())?;
        let served = counter("served")? - before;
        self.reporter.check(
            "the topmost app gets the pool's pages",
            served * 100 >= TAKEN as u64 * percent && found.is_clean(),
            format!("{served} of {TAKEN} pages came from the pool; the app's result: {found:?}"),
        )
    }

    /// Empties the page cache, or fills memory with it. Describes the result.
    fn set(&mut self, full: bool) -> Result<String> {
        drop_caches()?;
        if full {
            self.cache.fill()?;
        }
        Ok(format!(
            "{}, {} KiB of page cache",
            zones()?,
            memory_kib("Cached")?
        ))
    }
}

fn word(full: bool) -> &'static str {
    match full {
        true => "full",
        false => "empty",
    }
}

/// A sparse file that is larger than all memory. Its pages need no disk.
struct Cache {
    file: File,
    /// First byte that was never read.
    next: usize,
}

impl Cache {
    fn new(store: &Store) -> Result<Cache> {
        let Store::Directory(directory) = store else {
            bail!("this test needs a data disk with a file system");
        };
        let path = directory.join("sparse");
        let create = || -> std::io::Result<File> {
            fs::File::create(&path)?.set_len(64 << 30)?;
            File::open(&path)
        };
        let file = create().with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Cache { file, next: 0 })
    }

    /// Frees the page cache. `drop_caches` would also drain the pool of zeroed pages.
    fn evict(&self) -> Result<()> {
        // SAFETY: no pointers are passed.
        match unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }
        {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(error)).context("posix_fadvise failed"),
        }
    }

    /// Adds [`STEP`] bytes of page cache.
    fn step(&mut self) -> Result<()> {
        // SAFETY: no pointers are passed.
        let done =
            unsafe { libc::readahead(self.file.as_raw_fd(), self.next as libc::off64_t, STEP) };
        if done != 0 {
            return Err(std::io::Error::last_os_error()).context("readahead failed");
        }
        self.next += STEP;
        Ok(())
    }

    /// Adds page cache until memory has been reclaimed and no zone has memory above its high
    /// watermark.
    fn fill(&mut self) -> Result<()> {
        let total = (memory_kib("MemTotal")? as usize) << 10;
        let start = self.next;
        loop {
            self.step()?;
            let read = self.next - start;
            if read > total && zones()?.room == 0 {
                return Ok(());
            }
            if read > 4 * total {
                bail!(
                    "memory is not full after {} MiB of page cache: {}",
                    read / MIB,
                    zones()?
                );
            }
        }
    }
}

/// Free memory, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Zones {
    free: u64,
    low: u64,
    high: u64,
    /// Free pages above the high watermarks, without what low zones reserve.
    room: u64,
}

impl std::fmt::Display for Zones {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Zones {
            free,
            low,
            high,
            room,
        } = self;
        write!(
            f,
            "{free} pages free, watermarks {low} and {high}, {room} usable above the high ones"
        )
    }
}

fn zones() -> Result<Zones> {
    let text = fs::read_to_string("/proc/zoneinfo").context("cannot read /proc/zoneinfo")?;
    Ok(sum_of_zones(&text))
}

fn sum_of_zones(zoneinfo: &str) -> Zones {
    let mut sum = Zones::default();
    let (mut free, mut high) = (0, 0);
    for line in zoneinfo.lines() {
        // "high: 6" belongs to a per-CPU page list.
        if line.contains(':') && !line.contains("protection") {
            continue;
        }
        let words: Vec<&str> = line
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect();
        let number = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok());
        match (words.as_slice(), number(1), number(2)) {
            (["pages", "free", _], _, Some(value)) => free = value,
            (["low", _], Some(value), _) => sum.low += value,
            (["high", _], Some(value), _) => high = value,
            (["protection", ..], ..) => {
                sum.free += free;
                sum.high += high;
                let kept = high + number(1 + HIGHEST).unwrap_or(0);
                sum.room += free.saturating_sub(kept);
                (free, high) = (0, 0);
            }
            _ => {}
        }
    }
    sum
}

/// Pages that the kernel has reclaimed.
#[derive(Debug, Clone, Copy)]
struct Reclaimed {
    file: u64,
    anonymous: u64,
    /// Pages of both kinds that kswapd reclaimed.
    by_kswapd: u64,
}

impl Reclaimed {
    fn so_far() -> Result<Reclaimed> {
        let stolen = |name: &str| keyed(Path::new("/proc/vmstat"), name);
        Ok(Reclaimed {
            file: stolen("pgsteal_file")?,
            anonymous: stolen("pgsteal_anon")?,
            by_kswapd: stolen("pgsteal_kswapd")?,
        })
    }

    /// Pages that the zeroing thread and processes reclaimed.
    fn by_others(self) -> u64 {
        (self.file + self.anonymous).saturating_sub(self.by_kswapd)
    }

    fn since(self, earlier: Reclaimed) -> Reclaimed {
        Reclaimed {
            file: self.file - earlier.file,
            anonymous: self.anonymous - earlier.anonymous,
            by_kswapd: self.by_kswapd - earlier.by_kswapd,
        }
    }
}

/// Whether the pool has at least seven eighths of its target, below which the thread fills it.
fn pool_is_full() -> Result<bool> {
    Ok(pool::number("pooled")? * 8 >= u64::from(TARGET) * 7)
}

fn pool_is_half_full() -> Result<bool> {
    Ok(pool::number("pooled")? * 2 >= u64::from(TARGET))
}

fn counter(name: &str) -> Result<u64> {
    keyed(
        Path::new("/proc/vmstat"),
        &format!("limelight_prezero_{name}"),
    )
}

#[cfg(test)]
mod tests {
    use super::{sum_of_zones, Zones};

    #[test]
    fn room_excludes_what_low_zones_reserve() {
        let text = "Node 0, zone      DMA\n  pages free     3840\n        boost    0\n        \
                    min      60\n        low      75\n        high     90\n        promo    105\n  \
                    protection: (0, 201, 201, 201)\n  pagesets\n    cpu: 0\n              \
                    high:  6\n              low:  3\nNode 0, zone    DMA32\n  pages free     \
                    1000\n        low      900\n        high     1200\n        protection: (0, \
                    0, 0, 0)\n";
        let expected = Zones {
            free: 4840,
            low: 975,
            high: 1290,
            room: 3840 - 90 - 201,
        };
        assert_eq!(sum_of_zones(text), expected);
    }
}
