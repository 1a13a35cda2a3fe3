// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads ahead in files that the topmost app reads at random offsets, by `pread()` or through
//! mappings. Needed on a kernel that cannot read neighbouring pages for one app alone.
//!
//! Pages that the app waits for enter the page cache in the context of its threads. The tracepoint
//! for this is recorded for those threads alone ([`limelight_sys::perf`]), so cached pages and the
//! pages of other processes cost nothing. [`Places`] decides which neighbours are worth reading.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::ProcessId;
use limelight_core::policy::readahead::places::{self, File, Places};
use limelight_core::settings::ReadaheadSettings;
use limelight_sys::dir::Dir;
use limelight_sys::files::{FileKind, FileStat};
use limelight_sys::maps::ReadMapping;
use limelight_sys::meminfo::page_bytes;
use limelight_sys::pagecache::Range;
use limelight_sys::perf::{Registration, Tracepoint, Watch};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::Timespec;
use tracing::debug;

use crate::mechanisms::readahead::reader::Reader;
use crate::mechanisms::readahead::streams::Streams;
use crate::system::unusable::Unusable;
use crate::system::{own_memory, System};

const SYSTEM: &str = "filemap";
const EVENT: &str = "mm_filemap_add_to_page_cache";

/// Maximum number of threads that are watched at once; each watch takes three pages of memory.
const THREADS_MAX: usize = 32;

/// Shortest delay between the first event of a request and reading all its events. By then every
/// page of the request has raised its event, and the disk has not answered yet.
const AFTER: Duration = Duration::from_micros(300);

/// Longest such delay. Handling an event costs the app processor time twice: the event wakes the
/// event loop, and so does the delay. Events after which nothing is read are handled ever later.
/// Within 20 ms, a thread's buffer holds a hundred waits for single pages; events of longer
/// requests may not fit and are lost.
const LATEST: Duration = Duration::from_millis(20);

/// After this time without an event, the delay is the shortest again.
const PAUSE: Duration = Duration::from_millis(250);

/// Maximum number of files that are kept open.
const FILES_MAX: usize = 128;

/// Interval at which files that were not found are forgotten, so that they may be searched for
/// again.
const FORGET: Duration = Duration::from_secs(5);

/// Shortest time between two listings of the app's open and mapped files. A file that is not on the
/// list causes a new listing.
const LIST_AGAIN: Duration = Duration::from_millis(100);

/// Maximum number of descriptors of a process that are searched for a file.
const DESCRIPTORS_MAX: usize = 256;

/// Adjacent pages of a file that entered the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    file: File,
    first: u64,
    pages: u64,
}

/// When events are handled.
#[derive(Debug)]
struct Pace {
    delay: Duration,
    /// Time of the last handling.
    handled: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            delay: AFTER,
            handled: Duration::ZERO,
        }
    }
}

impl Pace {
    /// When an event that arrives at `now` is handled.
    fn due(&mut self, now: Duration) -> Duration {
        if now.saturating_sub(self.handled) >= PAUSE {
            self.delay = AFTER;
        }
        now + self.delay
    }

    /// Counts a handling of events: whether anything was read.
    fn handled(&mut self, now: Duration, read: bool) {
        self.handled = now;
        self.delay = match read {
            true => AFTER,
            false => (self.delay * 2).min(LATEST),
        };
    }
}

/// File waits of the topmost app's threads.
#[derive(Debug)]
pub struct Waits {
    tracepoint: Tracepoint,
    queue: OwnedFd,
    watches: BTreeMap<i32, Watch>,
    /// From the first watch on, so that the event loop never waits for the end of a watch.
    registration: Option<Registration>,
    files: HashMap<File, Option<Arc<std::fs::File>>>,
    forget_at: Duration,
    list: List,
    places: Places,
    pace: Pace,
    /// When the waiting events are handled; `None`: there are none.
    due: Option<Duration>,
}

impl Waits {
    /// Finds the tracepoint; watches no thread yet.
    pub fn start(system: &System) -> Result<Waits, Unusable> {
        let tracefs = Dir::open(system.tracefs()?)?;
        Ok(Waits {
            tracepoint: Tracepoint::find(&tracefs, SYSTEM, EVENT)?,
            queue: epoll::create(CreateFlags::CLOEXEC)?,
            watches: BTreeMap::new(),
            registration: None,
            files: HashMap::new(),
            forget_at: Duration::ZERO,
            list: List::default(),
            places: Places::new(),
            pace: Pace::default(),
            due: None,
        })
    }

    /// How many threads are watched.
    pub fn watched(&self) -> usize {
        self.watches.len()
    }

    /// Stops watching: another app is topmost, or none, or none is followed. A deadline that is set
    /// stays set, because the queue is re-armed only after it.
    pub fn clear(&mut self) {
        self.watches.clear();
        self.files.clear();
        self.list = List::default();
        self.places.clear();
        self.pace = Pace::default();
    }

    /// Watches the threads of these processes, and no other threads.
    pub fn watch(&mut self, system: &System, members: &[ProcessId]) {
        if self.registration.is_none() {
            match Registration::new(&self.tracepoint) {
                Ok(registration) => self.registration = Some(registration),
                Err(error) => debug!("the end of a watch may take long: {error}"),
            }
        }
        let threads = members.iter().filter_map(|id| {
            let process = system.same_process(*id)?;
            process.threads().ok()
        });
        let tids: Vec<i32> = threads.flatten().take(THREADS_MAX).collect();
        for tid in &tids {
            let tid = *tid;
            if self.watches.contains_key(&tid) {
                continue;
            }
            let opened = Watch::open(&self.tracepoint, tid).and_then(|watch| {
                let data = EventData::new_u64(u64::from(tid.unsigned_abs()));
                epoll::add(&self.queue, &watch, data, EventFlags::IN).map_err(|errno| {
                    limelight_sys::Error::new("wait for", format!("/proc/{tid}"), errno)
                })?;
                Ok(watch)
            });
            match opened {
                Ok(watch) => {
                    self.watches.insert(tid, watch);
                }
                Err(error) => debug!("the waits of thread {tid} are not detected: {error}"),
            }
        }
        self.watches.retain(|tid, _| tids.contains(tid));
    }

    /// Notes that a thread has begun to wait.
    pub fn noticed(&mut self, now: Duration) {
        if self.due.is_none() {
            self.due = Some(self.pace.due(now));
        }
    }

    /// When the events are handled next.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due
    }

    /// Handles the events if that is due, and requests neighbouring pages, at most `room` bytes,
    /// which it subtracts from `room`. Returns whether events were handled; if so, the event loop
    /// must re-arm the queue.
    pub fn pass_time(
        &mut self,
        system: &System,
        (settings, members): (&ReadaheadSettings, &[ProcessId]),
        (streams, reader): (&mut Streams, &Reader),
        room: &mut u64,
        now: Duration,
    ) -> bool {
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.due = None;
        if now >= self.forget_at {
            self.forget_at = now + FORGET;
            self.files.retain(|_, file| file.is_some());
        }
        let before = *room;
        for run in self.take() {
            let region = places::region(streams.disk(run.file.0).read_ahead, settings.factor);
            let page = page_bytes();
            let at = (run.first * page, run.pages * page);
            let Some((offset, len)) = self.places.waited(run.file, at, region, now) else {
                continue;
            };
            if streams.moves(run.file) {
                continue;
            }
            if let Some(file) = self.file(run.file, system, members, now) {
                streams.ask(reader, &file, Range { offset, len }, room, now);
            }
        }
        self.pace.handled(now, *room < before);
        true
    }

    /// The pages that entered the page cache since the last call, as runs of adjacent pages.
    fn take(&mut self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        // Read every watch, whether readable or not: a check for readability resets that state, and
        // the epoll queue has already made such a check.
        for watch in self.watches.values_mut() {
            for contents in &watch.take().events {
                let Some(run) = run(&self.tracepoint, contents) else {
                    continue;
                };
                match runs.last_mut() {
                    Some(last) if last.file == run.file && last.first + last.pages == run.first => {
                        last.pages += run.pages;
                    }
                    _ => runs.push(run),
                }
            }
        }
        self.drop_ended();
        runs
    }

    /// Drops the watches of threads that have ended, because such watches stay readable for ever.
    fn drop_ended(&mut self) {
        let mut ready = Vec::with_capacity(THREADS_MAX);
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if let Err(error) = epoll::wait(&self.queue, spare_capacity(&mut ready), Some(&at_once)) {
            debug!("cannot detect threads that have ended: {error}");
        }
        for event in &ready {
            let flags = event.flags;
            if let (true, Ok(tid)) = (
                flags.contains(EventFlags::HUP),
                i32::try_from(event.data.u64()),
            ) {
                self.watches.remove(&tid);
            }
        }
    }

    /// Opens a file that the app has open or maps, and caches the result.
    fn file(
        &mut self,
        key: File,
        system: &System,
        members: &[ProcessId],
        now: Duration,
    ) -> Option<Arc<std::fs::File>> {
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        let found = self.list.find(key, system, members, now).map(Arc::new);
        // Cache a failure only if the list is new: the file may have been opened after an older
        // list was made.
        if found.is_some() || self.list.made == Some(now) {
            self.files.insert(key, found.clone());
        }
        found
    }
}

impl AsFd for Waits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// Decodes one event.
fn run(tracepoint: &Tracepoint, contents: &[u8]) -> Option<Run> {
    let number = |name| tracepoint.number(contents, name);
    // MAJOR() and MINOR() of include/linux/kdev_t.h.
    let device = u32::try_from(number("s_dev")?).ok()?;
    let device = rustix::fs::makedev(device >> 20, device & ((1 << 20) - 1));
    // Before Linux 6.9 the event had no order, because it covered a single page.
    let order = number("order").unwrap_or(0).min(20);
    Some(Run {
        file: (device, number("i_ino")?),
        first: number("index")?,
        pages: 1 << order,
    })
}

/// Where an app has a file: in a descriptor, or in a mapping.
#[derive(Debug)]
enum Where {
    Descriptor(ProcessId, i32),
    Mapped(ProcessId, ReadMapping),
}

impl Where {
    fn open(&self, key: File, system: &System) -> Option<std::fs::File> {
        let opened = match self {
            Where::Descriptor(id, number) => {
                let process = system.same_process(*id)?;
                let seen = process.descriptor(*number).ok()?;
                if !is_file(&seen, key) {
                    return None;
                }
                process.open_descriptor(*number, &seen)
            }
            Where::Mapped(id, mapped) => system.same_process(*id)?.open_mapped(mapped),
        };
        // The descriptor or the address may refer to another file now.
        let is_it = |file: &std::fs::File| FileStat::of(file).is_ok_and(|stat| is_file(&stat, key));
        opened.ok().filter(is_it)
    }
}

fn is_file(stat: &FileStat, key: File) -> bool {
    stat.kind == FileKind::Regular && (stat.id.device, stat.id.inode) == key
}

/// All files that an app has open or maps. They are listed together, because an app waits for many
/// of them while it starts.
#[derive(Debug, Default)]
struct List {
    files: HashMap<File, Where>,
    made: Option<Duration>,
}

impl List {
    fn find(
        &mut self,
        key: File,
        system: &System,
        members: &[ProcessId],
        now: Duration,
    ) -> Option<std::fs::File> {
        let known = self.files.get(&key);
        let known = known.and_then(|known| known.open(key, system));
        let fresh = |made: Duration| now.saturating_sub(made) < LIST_AGAIN;
        if known.is_some() || self.made.is_some_and(fresh) {
            return known;
        }
        self.made = Some(now);
        self.files.clear();
        for id in members {
            self.add(system, *id);
        }
        self.files.get(&key)?.open(key, system)
    }

    fn add(&mut self, system: &System, id: ProcessId) {
        let Some(process) = system.same_process(id) else {
            return;
        };
        for mapped in own_memory::mappings(&process) {
            self.files
                .entry(mapped.file)
                .or_insert(Where::Mapped(id, mapped));
        }
        // Descriptors replace mappings of the same file, because opening a mapped file requires
        // more privileges.
        for number in process.descriptors(DESCRIPTORS_MAX).unwrap_or_default() {
            let Ok(stat) = process.descriptor(number) else {
                continue;
            };
            let key = (stat.id.device, stat.id.inode);
            if is_file(&stat, key) {
                self.files.insert(key, Where::Descriptor(id, number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;

    #[test]
    fn events_after_which_nothing_is_read_are_handled_ever_later() {
        let mut pace = Pace::default();
        let end = Duration::from_secs(2);
        let mut at = Duration::from_secs(1);
        let mut handlings = 0;
        // A thread that waits for the disk without end.
        while at < end {
            let due = pace.due(at);
            pace.handled(due, false);
            at = due + Duration::from_micros(200);
            handlings += 1;
        }
        assert!(handlings < 60, "{handlings} handlings in a second");
        assert!(pace.due(at) <= at + LATEST);
        pace.handled(at, true);
        assert_eq!(pace.due(at), at + AFTER, "a request ends the delay");
        pace.handled(at, false);
        assert_eq!(pace.due(at), at + AFTER * 2);
        let later = at + PAUSE;
        assert_eq!(pace.due(later), later + AFTER, "a pause ends the delay");
    }

    #[test]
    fn event_names_file_and_pages() {
        let temp = tempfile::tempdir().unwrap();
        let event = temp.path().join(format!("events/{SYSTEM}/{EVENT}"));
        std::fs::create_dir_all(&event).unwrap();
        std::fs::write(event.join("id"), "600\n").unwrap();
        let format = "\tfield:unsigned long i_ino;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long index;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:dev_t s_dev;\toffset:32;\tsize:4;\tsigned:0;\n\
            \tfield:unsigned char order;\toffset:36;\tsize:1;\tsigned:0;\n";
        std::fs::write(event.join("format"), format).unwrap();
        let tracefs = Dir::open(temp.path()).unwrap();
        let tracepoint = Tracepoint::find(&tracefs, SYSTEM, EVENT).unwrap();
        let mut contents = vec![0u8; 40];
        contents[16..24].copy_from_slice(&12u64.to_ne_bytes());
        contents[24..32].copy_from_slice(&7u64.to_ne_bytes());
        contents[32..36].copy_from_slice(&((254u32 << 20) | 3).to_ne_bytes());
        contents[36] = 2;
        let expected = Run {
            file: (rustix::fs::makedev(254, 3), 12),
            first: 7,
            pages: 4,
        };
        assert_eq!(run(&tracepoint, &contents), Some(expected));
        assert_eq!(run(&tracepoint, &contents[..30]), None);
    }

    #[test]
    fn tracepoint_stays_registered_while_no_thread_is_watched() {
        let temp = tempfile::tempdir().unwrap();
        let roots = Roots {
            cgroup: Some(temp.path().to_owned()),
            ..Roots::default()
        };
        let system = System::open(roots).unwrap();
        let Ok(mut waits) = Waits::start(&system) else {
            eprintln!("SKIPPED: there is no tracepoint");
            return;
        };
        let (own, _) = system.process(std::process::id() as i32).unwrap();
        waits.watch(&system, &[own]);
        let watched = waits.watched();
        if watched == 0 {
            eprintln!("SKIPPED: the kernel refuses perf events");
            return;
        }
        waits.clear();
        assert!(waits.watched() == 0 && waits.registration.is_some());
        // The same thread numbers may belong to the next app.
        waits.watch(&system, &[own]);
        assert_eq!(waits.watched(), watched);
    }

    #[test]
    fn open_and_mapped_files_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::write(&path, vec![1; 1 << 16]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let stat = FileStat::of(&file).unwrap();
        let roots = Roots {
            cgroup: Some(temp.path().to_owned()),
            ..Roots::default()
        };
        let system = System::open(roots).unwrap();
        let (own, _) = system.process(std::process::id() as i32).unwrap();
        let key = (stat.id.device, stat.id.inode);
        let find = |key| {
            let mut list = List::default();
            list.find(key, &system, &[own], Duration::ZERO)
        };
        let found = find(key).unwrap();
        assert_eq!(FileStat::of(&found).unwrap(), stat);
        drop((file, found));
        // A concurrent test may be scanning this process's descriptors.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while find(key).is_some() {
            assert!(std::time::Instant::now() < deadline);
        }
        // The program itself is only mapped.
        let (program, _) = system.process(own.pid).unwrap().1.program().unwrap();
        let key = (program.id.device, program.id.inode);
        let found = find(key);
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: opening a mapped file requires root");
            return;
        }
        assert_eq!(FileStat::of(found.unwrap()).unwrap(), program);
    }

    #[test]
    fn file_opened_later_is_found_when_the_list_is_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let roots = Roots {
            cgroup: Some(temp.path().to_owned()),
            ..Roots::default()
        };
        let system = System::open(roots).unwrap();
        let (own, _) = system.process(std::process::id() as i32).unwrap();
        let mut list = List::default();
        assert!(list.find((0, 0), &system, &[own], Duration::ZERO).is_none());
        let path = temp.path().join("later");
        std::fs::write(&path, "text").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let stat = FileStat::of(&file).unwrap();
        let key = (stat.id.device, stat.id.inode);
        let soon = LIST_AGAIN / 2;
        assert!(list.find(key, &system, &[own], soon).is_none());
        let found = list.find(key, &system, &[own], LIST_AGAIN).unwrap();
        assert_eq!(FileStat::of(&found).unwrap(), stat);
        // The list now has an entry for the file.
        assert!(list.find(key, &system, &[own], LIST_AGAIN).is_some());
    }
}
