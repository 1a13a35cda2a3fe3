// SPDX-License-Identifier: GPL-2.0-or-later
//! A thread that locks shared file pages in memory: pages that an app maps and that are charged to
//! other cgroups.
//!
//! The thread rescans the app by itself, because an app maps more pages while it runs. A lock waits
//! for the disk if its page was evicted after the scan. The event loop must not wait, so it only
//! sends the app and the limit, and reads the result. The locked pages are mapped by this process,
//! so no lock outlives the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::clock::thread_time;
use limelight_sys::locked_file::LockedFile;
use limelight_sys::maps::{FilePage, PageCgroups, PageTable, ReadMapping};
use limelight_sys::meminfo::page_bytes;
use limelight_sys::pagecache::{ranges, Range};
use limelight_sys::proc::Proc;
use limelight_sys::process::Process;
use tracing::debug;

/// Shortest and longest time between two scans of an app. The interval is short at first, when an
/// app often maps more pages, and for as long as scans find new pages. Pages that were evicted
/// before the app became topmost are read back on demand, and may be evicted again before a scan
/// locks them.
const SOON: Duration = Duration::from_millis(125);
const LATE: Duration = Duration::from_secs(16);

/// Delay of the first scan of an app. Until then the app probably responds to the switch, and reading
/// its page tables would delay the response.
const FIRST: Duration = Duration::from_secs(1);

/// After this many scans at the longest interval have found no page to lock, the thread scans only
/// when the event loop does: see [`PagePinner::look`].
const LATE_LOOKS: u32 = 4;

/// Minimum time between the starts of two scans, as a multiple of the first scan's CPU time. The
/// app needs the CPU itself.
const LOOK_PART: u32 = 16;

/// Pages of a file within this distance (in pages) were probably read together: the kernel reads
/// 128 KiB at once (`VM_READAHEAD_PAGES`).
const NEAR: u64 = 32;

/// Stack of the thread, in bytes: its call depth is small.
const STACK: usize = 256 << 10;

/// The app whose pages are to be locked, and the limit.
#[derive(Debug, Clone)]
pub struct Order {
    /// The app.
    pub app: AppKey,
    /// Processes whose mappings are scanned.
    pub members: Vec<ProcessId>,
    /// Cgroups that a reservation protects, by inode number. Pages charged to them are not locked.
    pub reserved: BTreeSet<u64>,
    /// Maximum locked memory, in bytes.
    pub limit: u64,
}

/// The locked memory of the present app.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locked {
    /// Locked bytes.
    pub bytes: u64,
    /// Files with locked pages.
    pub files: usize,
    /// Whether the limit keeps more pages from being locked.
    pub full: bool,
    /// Why no page can be locked on this machine; `None`: pages can be locked.
    pub unable: Option<String>,
}

/// The event loop's handle of the thread. Dropping it unlocks everything.
#[derive(Debug)]
pub struct PagePinner {
    words: Sender<Command>,
    locked: Arc<Mutex<Locked>>,
}

/// A command from the event loop.
#[derive(Debug)]
enum Command {
    /// Lock pages of this app from now on; `None`: of no app.
    Order(Option<Order>),
    /// The event loop has scanned the app.
    Look,
}

impl PagePinner {
    /// Starts the thread. `proc` is the procfs to scan.
    pub fn start(proc: &Path) -> std::io::Result<PagePinner> {
        let (words, queue) = channel();
        let locked = Arc::new(Mutex::new(Locked::default()));
        let shelf = Arc::clone(&locked);
        let proc = proc.to_string_lossy().into_owned();
        std::thread::Builder::new()
            .name("limelight-lock".to_owned())
            .stack_size(STACK)
            .spawn(move || run(&proc, &queue, &shelf))?;
        Ok(PagePinner { words, locked })
    }

    /// Locks pages of this app from now on; `None`: of no app.
    pub fn ask(&self, order: Option<Order>) {
        self.say(Command::Order(order));
    }

    /// Reports that the event loop has scanned the app. The thread scans too, unless its own timer
    /// runs.
    pub fn look(&self) {
        self.say(Command::Look);
    }

    fn say(&self, word: Command) {
        // The thread ends only when this handle is dropped, or when the thread panics. Its end
        // unlocks everything.
        if self.words.send(word).is_err() {
            debug!("the thread that locks pages has ended");
        }
    }

    /// What is locked now.
    pub fn locked(&self) -> Locked {
        let locked = self.locked.lock();
        locked.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn run(proc: &str, words: &Receiver<Command>, shelf: &Mutex<Locked>) {
    let mut order: Option<Order> = None;
    let mut holdings = Holdings::default();
    let mut pace = Pace::default();
    let mut cost = Duration::ZERO;
    let mut looked = Instant::now();
    let mut unable = None;
    // Whether the present app has been scanned.
    let mut known = false;
    loop {
        let pause = match known {
            true => pace.pause().map(|pause| pause.max(cost * LOOK_PART)),
            false => Some(FIRST),
        };
        let word = match pause.filter(|_| order.is_some()) {
            Some(pause) => words.recv_timeout(pause.saturating_sub(looked.elapsed())),
            None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let scans = match word {
            Ok(Command::Order(fresh)) => {
                // Only the latest order counts.
                let later = words.try_iter().filter_map(|word| match word {
                    Command::Order(order) => Some(order),
                    Command::Look => None,
                });
                let fresh = later.last().unwrap_or(fresh);
                let stays = matches!((&order, &fresh), (Some(old), Some(new))
                    if old.app == new.app && old.reserved == new.reserved && holdings.bytes <= new.limit);
                if !stays {
                    let limit = fresh.as_ref().map_or(0, |order| order.limit);
                    holdings.hand_over(limit);
                }
                let app = |order: &Option<Order>| order.as_ref().map(|order| order.app);
                if app(&order) != app(&fresh) {
                    looked = Instant::now();
                    known = false;
                    unable = None;
                }
                pace = Pace::default();
                holdings.faults.clear();
                order = fresh;
                false
            }
            Ok(Command::Look) if pause.is_some() || order.is_none() => continue,
            Ok(Command::Look) | Err(RecvTimeoutError::Timeout) => {
                if known {
                    pace.looked(holdings.fresh);
                }
                true
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if let Some(order) = order.as_ref().filter(|_| scans) {
            looked = Instant::now();
            known = true;
            let begun = thread_time();
            unable = holdings
                .look(proc, order)
                .err()
                .map(|error| error.to_string());
            cost = thread_time().saturating_sub(begun);
        }
        let now = holdings.state(unable.clone());
        *shelf.lock().unwrap_or_else(PoisonError::into_inner) = now;
        if pace.pause().is_none() && holdings.fresh {
            pace.looked(true);
        }
    }
}

/// The interval between scans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    pause: Duration,
    /// Number of scans in a row at the longest interval that found no page to lock.
    late: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            pause: SOON,
            late: 0,
        }
    }
}

impl Pace {
    /// Time until the next scan; `None`: the thread waits until the event loop scans.
    fn pause(self) -> Option<Duration> {
        (self.late < LATE_LOOKS).then_some(self.pause)
    }

    /// Adapts the interval to the result of the last scan. `fresh`: that scan locked a page.
    fn looked(&mut self, fresh: bool) {
        *self = match fresh {
            true => Pace {
                pause: (self.pause / 2).max(SOON),
                late: 0,
            },
            false => Pace {
                pause: (self.pause * 2).min(LATE),
                late: self.late + u32::from(self.pause == LATE),
            },
        };
    }
}

/// A mapped file and the state of its pages.
#[derive(Debug, Default)]
struct Holding {
    /// `None` if the file cannot be locked.
    file: Option<LockedFile>,
    /// Locked pages.
    locked: BTreeSet<u64>,
    /// Pages that are charged to a reserved cgroup.
    reserved: BTreeSet<u64>,
}

impl Holding {
    fn bytes(&self) -> u64 {
        self.locked.len() as u64 * page_bytes()
    }

    fn is_settled(&self, page: u64) -> bool {
        self.locked.contains(&page) || self.reserved.contains(&page)
    }
}

/// Everything that is locked for one app.
#[derive(Debug, Default)]
struct Holdings {
    files: BTreeMap<(u64, u64), Holding>,
    /// Files of the previous app, until the first scan of the present one.
    former: BTreeMap<(u64, u64), Holding>,
    /// Locked bytes in `files`.
    bytes: u64,
    full: bool,
    /// Whether the last scan locked a page.
    fresh: bool,
    /// Page faults of each process before its last complete scan. A process that has not faulted
    /// since then has mapped no further page.
    faults: BTreeMap<ProcessId, u64>,
}

impl Holdings {
    fn state(&self, unable: Option<String>) -> Locked {
        let files = self.files.values();
        Locked {
            bytes: self.bytes,
            files: files.filter(|file| !file.locked.is_empty()).count(),
            full: self.full,
            unable,
        }
    }

    /// Switches to another app. Up to `limit` bytes stay locked until the next scan, which keeps
    /// the files that both apps map. Unlocking and relocking the files that all apps map would take
    /// longer than the rest of a scan.
    fn hand_over(&mut self, limit: u64) {
        let mut former = std::mem::take(self).files;
        let mut bytes = 0;
        former.retain(|_, holding| {
            holding.reserved.clear();
            bytes += holding.bytes();
            bytes <= limit
        });
        self.former = former;
    }

    /// Scans the processes of the app that have faulted since their last scan, and locks pages that
    /// are not locked yet. Fails if the kernel does not report to which cgroup a page is charged.
    fn look(&mut self, proc: &str, order: &Order) -> limelight_sys::Result<()> {
        let proc = Proc::open(proc)?;
        let mut cgroups = PageCgroups::open(&proc)?;
        let was_full = std::mem::take(&mut self.full);
        self.fresh = false;
        for &member in &order.members {
            let Ok(process) = proc.process(member.pid) else {
                continue;
            };
            let stat = process.stat().ok();
            let Some(stat) = stat.filter(|stat| stat.start_ticks == member.starttime) else {
                continue;
            };
            let faults = stat.minor_faults.saturating_add(stat.major_faults);
            if self.faults.get(&member) == Some(&faults) {
                self.full |= was_full;
                continue;
            }
            let Ok(mut table) = process.page_table() else {
                continue;
            };
            let mut complete = true;
            // A process that ends meanwhile has no mappings.
            for mapping in process.read_mappings().unwrap_or_default() {
                if let Err(error) = self.settle(&process, &mut table, &mapping, &mut cgroups, order)
                {
                    debug!("{error}");
                    complete = false;
                }
            }
            match complete {
                true => self.faults.insert(member, faults),
                false => self.faults.remove(&member),
            };
        }
        self.former.clear();
        Ok(())
    }

    /// Locks those pages of one mapping that need a lock and have none.
    fn settle(
        &mut self,
        process: &Process,
        table: &mut PageTable,
        mapping: &ReadMapping,
        cgroups: &mut PageCgroups,
        order: &Order,
    ) -> limelight_sys::Result<()> {
        let holding = self.files.entry(mapping.file).or_insert_with(|| {
            if let Some(former) = self.former.remove(&mapping.file) {
                self.bytes += former.bytes();
                return former;
            }
            let file = process.open_mapped(mapping);
            let file = file.and_then(|file| LockedFile::new(&file));
            if let Err(error) = &file {
                debug!("{error}");
            }
            Holding {
                file: file.ok(),
                ..Holding::default()
            }
        });
        let Some(file) = &holding.file else {
            return Ok(());
        };
        let mut pages = table.resident(mapping)?;
        pages.retain(|page| !holding.is_settled(page.index));
        let (reserved, others) = sorted(&pages, |page| {
            let inode = cgroups.of(page.frame);
            inode.is_some_and(|inode| order.reserved.contains(&inode))
        });
        let reserved = reserved.iter().map(|page| page.index);
        holding.reserved.extend(reserved);
        let wanted = with_gaps(others.iter().map(|page| page.index), |page| {
            holding.is_settled(page)
        });
        for range in ranges(wanted) {
            let left = order.limit.saturating_sub(self.bytes);
            let range = Range {
                len: range.len.min(left / page_bytes() * page_bytes()),
                ..range
            };
            if range.len == 0 {
                self.full = true;
                break;
            }
            file.hold(range)?;
            self.fresh = true;
            let first = range.offset / page_bytes();
            holding
                .locked
                .extend(first..first + range.len / page_bytes());
            self.bytes += range.len;
        }
        Ok(())
    }
}

/// Splits pages into those charged to a reserved cgroup and the others. Pages that the kernel read
/// at once are charged to one cgroup, and querying each page takes longer than locking it. So if
/// both ends of a run of adjacent pages are charged to reserved cgroups, or neither is, the pages
/// between them are not queried.
fn sorted(
    pages: &[FilePage],
    mut is_reserved: impl FnMut(&FilePage) -> bool,
) -> (Vec<FilePage>, Vec<FilePage>) {
    let (mut reserved, mut others) = (Vec::new(), Vec::new());
    let side_by_side =
        |a: &FilePage, b: &FilePage| a.index + 1 == b.index && a.index / NEAR == b.index / NEAR;
    for run in pages.chunk_by(side_by_side) {
        let ends = run.first().zip(run.last());
        let ends = ends.map(|(first, last)| (is_reserved(first), is_reserved(last)));
        for page in run {
            let own = match ends {
                Some((first, last)) if first == last => first,
                _ => is_reserved(page),
            };
            match own {
                true => reserved.push(*page),
                false => others.push(*page),
            }
        }
    }
    (reserved, others)
}

/// Returns the given ascending pages and the gaps between pages that are near each other. The pages
/// of such a gap were probably read together with their neighbours, and are needed as much. Settled
/// pages (already locked, or reserved) are left out.
fn with_gaps(pages: impl Iterator<Item = u64>, is_settled: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut all: Vec<u64> = Vec::new();
    for page in pages {
        let first = match all.last() {
            Some(&last) if page - last <= NEAR => last + 1,
            _ => page,
        };
        all.extend((first..=page).filter(|page| !is_settled(*page)));
    }
    all
}

#[cfg(test)]
#[path = "page_pinner_tests.rs"]
mod tests;
