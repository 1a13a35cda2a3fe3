// SPDX-License-Identifier: GPL-2.0-or-later
//! Follows the topmost app's streams: files that it reads in sequence. Needed on a kernel that
//! cannot extend read-ahead for one app alone.
//!
//! The app's position in a file is in `/proc/PID/fdinfo`. Reading it costs ten microseconds,
//! affects no other process, and works however small the app's reads are. A fanotify event for each
//! read would cost the app more than the reads from disk do. So the daemon polls a stream while it
//! moves, at the stream's pace, and requests the next read-ahead windows. When a stream stands
//! still, the daemon sets a fanotify watch on its file, and removes the watch with the first event.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::ProcessId;
use limelight_core::policy::readahead::Stream;
use limelight_core::rate::Rate;
use limelight_core::settings::ReadaheadSettings;
use limelight_sys::fanotify::Fanotify;
use limelight_sys::files::{FileKind, FileStat};
use limelight_sys::pagecache::Range;
use limelight_sys::process::Process;

use tracing::debug;

use crate::mechanisms::readahead::disk::{Disk, Disks};
use crate::mechanisms::readahead::reader::{Job, Reader};
use crate::system::System;

/// Smallest file that is followed, in bytes. The kernel's own read-ahead reads smaller files whole.
const SIZE_MIN: u64 = 256 << 10;

/// Maximum number of streams that are followed at once.
const STREAMS_MAX: usize = 64;

/// Maximum number of the app's processes that are scanned, and of descriptors of each.
const PROCESSES_MAX: usize = 32;
const DESCRIPTORS_MAX: usize = 512;

/// Delay between the event of an open and the scan, because the event comes before the opener has
/// the descriptor.
const INSTALLED: Duration = Duration::from_millis(2);

/// Interval between scans of all descriptors of the app.
const ROUND: Duration = Duration::from_secs(5);

/// Number of polls in a row without movement after which a watch is set.
const IDLE: u32 = 3;

/// Time from setting a watch to the last poll of the stream.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// After a read event, no watch is set for this time, because the reader may have been another
/// process. The wait ends early if the app's own stream moves.
const OTHERS: Duration = Duration::from_secs(10);

/// A file that the app has open for reading.
#[derive(Debug)]
struct Followed {
    process: Rc<Process>,
    id: ProcessId,
    /// Number of the descriptor.
    number: i32,
    stat: FileStat,
    size: u64,
    file: Arc<File>,
    stream: Stream,
    /// Bytes to request per call.
    chunk: u64,
    /// Time of the next poll.
    due: Duration,
    /// Whether the next read of the file raises an event.
    watched: bool,
    /// No watch is set before this time.
    watch_from: Duration,
}

/// All streams of the topmost app.
#[derive(Debug)]
pub struct Streams {
    followed: Vec<Followed>,
    /// Processes whose descriptors are to be scanned, and when.
    look_through: BTreeMap<i32, Duration>,
    /// When the whole app is scanned next.
    next_round: Duration,
    disks: Disks,
    rate: Rate,
    /// Bytes requested so far.
    bytes: u64,
}

impl Streams {
    /// Follows no stream yet.
    pub fn new(system: &System, settings: &ReadaheadSettings, now: Duration) -> Streams {
        Streams {
            followed: Vec::new(),
            look_through: BTreeMap::new(),
            next_round: now,
            disks: Disks::new(&system.roots.sys),
            rate: Rate::new(settings.rate, settings.rate, now),
            bytes: 0,
        }
    }

    /// How many streams are followed now.
    pub fn followed(&self) -> usize {
        self.followed.len()
    }

    /// How many followed streams stand still and wait for an event.
    pub fn resting(&self) -> usize {
        let resting = self.followed.iter().filter(|followed| followed.rests());
        resting.count()
    }

    /// Bytes requested since the mechanism was started or its configuration changed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops all streams: another app, or none, is topmost.
    pub fn clear(&mut self, queue: Option<&Fanotify>) {
        for followed in &mut self.followed {
            followed.end_watch(queue);
        }
        self.followed.clear();
        self.look_through.clear();
        // The disks' settings may change before the next stream is found.
        self.disks.forget();
    }

    /// Handles an open by a process of the topmost app.
    pub fn opened(&mut self, pid: i32, stat: &FileStat, now: Duration) {
        if stat.id.size >= SIZE_MIN {
            self.look_through.entry(pid).or_insert(now + INSTALLED);
        }
    }

    /// Handles the first read of a watched file.
    pub fn read(&mut self, stat: &FileStat, queue: &Fanotify, now: Duration) {
        for followed in &mut self.followed {
            if followed.watched && followed.stat.same_file(stat) {
                followed.end_watch(Some(queue));
                followed.due = now;
                followed.watch_from = now + OTHERS;
            }
        }
    }

    /// Schedules a poll of every stream after events were lost, because some may concern watched
    /// files.
    pub fn wake(&mut self, queue: &Fanotify, now: Duration) {
        for followed in &mut self.followed {
            followed.end_watch(Some(queue));
            followed.due = now;
        }
    }

    /// Schedules a scan of the whole app when it has just become topmost (`new`) or was not scanned
    /// for a while. Scans find descriptors that a process got without an open, for example by
    /// inheritance.
    pub fn look_through(&mut self, members: &[ProcessId], new: bool, now: Duration) {
        if !new && now < self.next_round {
            return;
        }
        self.next_round = now + ROUND;
        for id in members.iter().take(PROCESSES_MAX) {
            self.look_through.insert(id.pid, now);
        }
    }

    /// Whether a stream of this file moves, so that its next pieces are requested anyway.
    pub fn moves(&self, file: (u64, u64)) -> bool {
        self.followed.iter().any(|followed| {
            (followed.stat.id.device, followed.stat.id.inode) == file
                && followed.stream.idle() == 0
                && followed.stream.is_proven()
        })
    }

    /// Read-ahead properties of a disk.
    pub fn disk(&mut self, device: u64) -> Disk {
        self.disks.get(device)
    }

    /// Requests a piece of a file, within the rate and the room that is left.
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

    /// When the next poll is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        // A resting stream is not polled: its next read raises an event.
        let looks = self.followed.iter();
        let looks = looks.filter(|followed| !followed.rests());
        let looks = looks.map(|followed| followed.due);
        looks.chain(self.look_through.values().copied()).min()
    }

    /// Polls all streams that are due. At most `room` bytes are read ahead; the requested bytes are
    /// subtracted from `room`.
    pub fn pass_time(
        &mut self,
        system: &System,
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
            self.find(pid, system, settings, now);
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

    /// Starts to follow those files of a process that are not followed yet.
    fn find(&mut self, pid: i32, system: &System, settings: &ReadaheadSettings, now: Duration) {
        let Ok((id, process)) = system.process(pid) else {
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
                // Follow disks for root's processes only: any user may hold an `O_PATH` descriptor
                // of a disk without the right to open the disk.
                FileKind::Block => process
                    .status()
                    .is_ok_and(|status| status.effective_uid == 0),
                FileKind::Other => false,
            };
            if !suits || self.followed.iter().any(known) {
                continue;
            }
            let Some(followed) = self.follow(&process, id, number, stat, system, settings, now)
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
        system: &System,
        settings: &ReadaheadSettings,
        now: Duration,
    ) -> Option<Followed> {
        let position = process.position(number).ok().filter(|at| at.cached_reads)?;
        // Fails if the descriptor refers to another file now.
        let mut file = process.open_descriptor(number, &stat).ok()?;
        let size = match stat.kind {
            FileKind::Block => file.seek(SeekFrom::End(0)).ok()?,
            _ => stat.id.size,
        };
        let disk = self.disks.get(stat.device);
        // Returns `None` if read-ahead is switched off for this disk.
        let window = (disk.read_ahead > 0).then_some(disk.read_ahead)? * u64::from(settings.factor);
        let (_, process) = system.process(id.pid).ok()?;
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
    /// Whether the stream is not polled because its next read raises an event.
    fn rests(&self) -> bool {
        self.watched && self.stream.idle() > IDLE
    }

    /// Sets a watch, so that the next read wakes the daemon.
    fn watch(&mut self, queue: Option<&Fanotify>, now: Duration) {
        let Some(queue) = queue else { return };
        // Set no watch on a disk: every process that reads the disk itself, at any offset, would
        // pay for it.
        let disk = self.stat.kind == FileKind::Block;
        if disk || self.watched || now < self.watch_from {
            return;
        }
        self.watched = queue.watch_reads(&*self.file).is_ok();
        if self.watched {
            // Poll once more, to notice a read right before the watch was set.
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

    /// The app's current offset; `None` when the descriptor is closed or refers to another file.
    fn position(&self) -> Option<u64> {
        let stat = self.process.descriptor(self.number).ok()?;
        let position = stat
            .same_file(&self.stat)
            .then(|| self.process.position(self.number))?;
        position.ok().map(|position| position.offset)
    }
}
