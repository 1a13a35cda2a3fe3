// SPDX-License-Identifier: GPL-2.0-or-later
//! Streams of the topmost app on a kernel that cannot read ahead further for it alone.
//!
//! Where the app stands in a file is in `/proc/PID/fdinfo`. Looking there costs ten microseconds,
//! touches nobody else, and works however small the app's reads are; an event for each read, which
//! fanotify could deliver, would cost the app more than the disk does. So the daemon looks as long
//! as a stream moves, at its pace, and asks for the next windows. For one that stands still it has
//! fanotify watch that one file, and ends the watch with the first event.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::ProcessId;
use limelight_core::policy::readahead::{Rate, Stream};
use limelight_core::settings::ReadaheadSettings;
use limelight_sys::fanotify::Fanotify;
use limelight_sys::files::{FileKind, FileStat};
use limelight_sys::pagecache::Range;
use limelight_sys::process::Process;

use tracing::debug;

use super::disk::{Disk, Disks};
use super::reader::{Job, Reader};
use crate::doors::Doors;

/// Smaller files are read whole by the kernel's own read-ahead.
const SIZE_MIN: u64 = 256 << 10;

/// Streams that are followed at once.
const STREAMS_MAX: usize = 64;

/// Processes of the app, and descriptors of each, that are looked through.
const PROCESSES_MAX: usize = 32;
const DESCRIPTORS_MAX: usize = 512;

/// The event of an open comes before the opener has its descriptor.
const INSTALLED: Duration = Duration::from_millis(2);

/// How often all descriptors of the app are looked through.
const ROUND: Duration = Duration::from_secs(5);

/// Looks in a row at a stream that stands still after which a watch is set.
const IDLE: u32 = 3;

/// Time from setting a watch to the last look.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Time in which a watch is not set again when others than the app read the file.
const OTHERS: Duration = Duration::from_secs(10);

/// A file that the app has open for reading.
#[derive(Debug)]
struct Followed {
    process: Process,
    id: ProcessId,
    number: i32,
    stat: FileStat,
    size: u64,
    file: Arc<File>,
    stream: Stream,
    chunk: u64,
    due: Duration,
    /// Whether the next read of the file is an event.
    watched: bool,
    /// No watch is set before.
    watch_from: Duration,
}

/// All streams of the topmost app.
#[derive(Debug)]
pub struct Streams {
    followed: Vec<Followed>,
    /// Processes whose descriptors are to be looked through, and when.
    look_through: BTreeMap<i32, Duration>,
    /// When the whole app is looked through next.
    next_round: Duration,
    disks: Disks,
    rate: Rate,
    bytes: u64,
}

impl Streams {
    /// None yet.
    pub fn new(doors: &Doors, settings: &ReadaheadSettings, now: Duration) -> Streams {
        Streams {
            followed: Vec::new(),
            look_through: BTreeMap::new(),
            next_round: now,
            disks: Disks::new(&doors.roots.sys),
            rate: Rate::new(settings.rate, settings.rate, now),
            bytes: 0,
        }
    }

    /// How many streams are followed now.
    pub fn followed(&self) -> usize {
        self.followed.len()
    }

    /// How many of them stand still and wait for an event.
    pub fn resting(&self) -> usize {
        let resting = self.followed.iter().filter(|followed| followed.rests());
        resting.count()
    }

    /// Bytes asked for since the start.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Another app, or none, is topmost.
    pub fn clear(&mut self, queue: Option<&Fanotify>) {
        for followed in &mut self.followed {
            followed.end_watch(queue);
        }
        self.followed.clear();
        self.look_through.clear();
        // Their settings may be others when they are looked at again.
        self.disks.forget();
    }

    /// A process of the topmost app opened a file.
    pub fn opened(&mut self, pid: i32, stat: &FileStat, now: Duration) {
        if stat.id.size >= SIZE_MIN {
            self.look_through.entry(pid).or_insert(now + INSTALLED);
        }
    }

    /// Somebody read a file that stood still.
    pub fn read(&mut self, stat: &FileStat, queue: &Fanotify, now: Duration) {
        for followed in &mut self.followed {
            if followed.watched && followed.stat.same_file(stat) {
                followed.end_watch(Some(queue));
                followed.due = now;
                followed.watch_from = now + OTHERS;
            }
        }
    }

    /// Events were lost: perhaps those of watched files.
    pub fn wake(&mut self, queue: &Fanotify, now: Duration) {
        for followed in &mut self.followed {
            followed.end_watch(Some(queue));
            followed.due = now;
        }
    }

    /// Looks through the descriptors of the whole app, when it is new in front or was not looked
    /// through for a while: a descriptor may come by other ways than an open.
    pub fn look_through(&mut self, members: &[ProcessId], new: bool, now: Duration) {
        if !new && now < self.next_round {
            return;
        }
        self.next_round = now + ROUND;
        for id in members.iter().take(PROCESSES_MAX) {
            self.look_through.insert(id.pid, now);
        }
    }

    /// Whether a file is followed, so that its next pieces are asked for anyway.
    pub fn moves(&self, file: (u64, u64)) -> bool {
        self.followed.iter().any(|followed| {
            (followed.stat.id.device, followed.stat.id.inode) == file
                && followed.stream.idle() == 0
                && followed.stream.is_proven()
        })
    }

    /// How a disk likes to be read.
    pub fn disk(&mut self, device: u64) -> Disk {
        self.disks.get(device)
    }

    /// Has a piece of a file read, within the rate and the room that is left.
    pub fn ask(
        &mut self,
        reader: &Reader,
        file: &Arc<File>,
        range: Range,
        room: &mut u64,
        now: Duration,
    ) {
        let Ok(stat) = FileStat::of(&**file) else {
            return;
        };
        let wanted = range.len.min(stat.id.size.saturating_sub(range.offset));
        let len = self.rate.take(wanted.min(*room), now);
        let piece = Job::Piece {
            file: Arc::clone(file),
            range: Range { len, ..range },
            chunk: self.disks.get(stat.device).chunk(),
        };
        if len > 0 && reader.ask(piece) {
            self.bytes += len;
            *room -= len;
        }
    }

    /// When the next look is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        // One with a watch is looked at whenever the app is.
        let looks = self.followed.iter();
        let looks = looks.filter(|followed| !followed.rests());
        let looks = looks.map(|followed| followed.due);
        looks.chain(self.look_through.values().copied()).min()
    }

    /// Looks at everything that is due. `room` bytes may be read ahead in all; what is asked for is
    /// taken off.
    pub fn pass_time(
        &mut self,
        doors: &Doors,
        settings: &ReadaheadSettings,
        (reader, queue): (&Reader, Option<&Fanotify>),
        room: &mut u64,
        now: Duration,
    ) {
        let due: Vec<i32> = self
            .look_through
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in due {
            self.look_through.remove(&pid);
            self.find(pid, doors, settings, now);
        }
        let (rate, bytes) = (&mut self.rate, &mut self.bytes);
        self.followed.retain_mut(|followed| {
            if followed.due > now || followed.rests() {
                return true;
            }
            let Some(position) = followed.position() else {
                followed.end_watch(queue);
                return false;
            };
            let look = followed.stream.look(position, followed.size, now);
            followed.due = now + look.next;
            if followed.stream.idle() == 0 {
                followed.watch_from = now;
            } else if followed.stream.idle() >= IDLE {
                followed.watch(queue, now);
            }
            if let Some((offset, len)) = look.read {
                let len = rate.take(len.min(*room), now);
                let piece = Job::Piece {
                    file: Arc::clone(&followed.file),
                    range: Range { offset, len },
                    chunk: followed.chunk,
                };
                if len > 0 && reader.ask(piece) {
                    followed.stream.granted(len);
                    *bytes += len;
                    *room -= len;
                }
            }
            true
        });
    }

    /// Follows the files of a process that are not followed yet.
    fn find(&mut self, pid: i32, doors: &Doors, settings: &ReadaheadSettings, now: Duration) {
        let Ok((id, process)) = doors.process(pid) else {
            return;
        };
        for number in process.descriptors(DESCRIPTORS_MAX).unwrap_or_default() {
            if self.followed.len() >= STREAMS_MAX {
                return;
            }
            let Ok(stat) = process.descriptor(number) else {
                continue;
            };
            let known = |followed: &Followed| followed.id == id && followed.number == number;
            let suits = match stat.kind {
                FileKind::Regular => stat.id.size >= SIZE_MIN,
                // Anybody may hold a name of a disk (`O_PATH`) without the right to open it.
                FileKind::Block => process
                    .status()
                    .is_ok_and(|status| status.effective_uid == 0),
                FileKind::Other => false,
            };
            if !suits || self.followed.iter().any(known) {
                continue;
            }
            let Some(followed) = self.follow(&process, id, number, stat, doors, settings, now)
            else {
                continue;
            };
            self.followed.push(followed);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn follow(
        &mut self,
        process: &Process,
        id: ProcessId,
        number: i32,
        stat: FileStat,
        doors: &Doors,
        settings: &ReadaheadSettings,
        now: Duration,
    ) -> Option<Followed> {
        let position = process.position(number).ok().filter(|at| at.cached_reads)?;
        // Fails when the number means another file by now.
        let mut file = process.open_descriptor(number, &stat).ok()?;
        let size = match stat.kind {
            FileKind::Block => file.seek(SeekFrom::End(0)).ok()?,
            _ => stat.id.size,
        };
        let disk = self.disks.get(stat.device);
        // Somebody has switched read-ahead off there.
        let window = (disk.read_ahead > 0).then_some(disk.read_ahead)? * u64::from(settings.factor);
        let (_, process) = doors.process(id.pid).ok()?;
        Some(Followed {
            process,
            id,
            number,
            stat,
            size,
            file: Arc::new(file),
            stream: Stream::new(position.offset, window, now),
            chunk: disk.chunk(),
            due: now,
            watched: false,
            watch_from: now,
        })
    }
}

impl Followed {
    /// Whether nothing has to be done before an event comes.
    fn rests(&self) -> bool {
        self.watched && self.stream.idle() > IDLE
    }

    /// Has the next read wake the daemon.
    fn watch(&mut self, queue: Option<&Fanotify>, now: Duration) {
        let Some(queue) = queue else { return };
        // Whoever reads a disk itself, at any place, would pay for the watch.
        let disk = self.stat.kind == FileKind::Block;
        if disk || self.watched || now < self.watch_from {
            return;
        }
        self.watched = queue.watch_reads(&*self.file).is_ok();
        if self.watched {
            // Once more, for a read right before the watch was set.
            self.due = now + LAST_LOOK;
        }
    }

    fn end_watch(&mut self, queue: Option<&Fanotify>) {
        if let (true, Some(queue)) = (self.watched, queue) {
            if let Err(error) = queue.unwatch_reads(&*self.file) {
                debug!("{error}");
            }
        }
        self.watched = false;
    }

    /// Where the app stands now; `None` when the descriptor is closed or leads elsewhere.
    fn position(&self) -> Option<u64> {
        let stat = self.process.descriptor(self.number).ok()?;
        let position = stat
            .same_file(&self.stat)
            .then(|| self.process.position(self.number))?;
        position.ok().map(|position| position.offset)
    }
}
