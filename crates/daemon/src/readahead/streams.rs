// SPDX-License-Identifier: GPL-2.0-or-later
//! Streams of the topmost app on a kernel that cannot read ahead further for it alone.
//!
//! Where the app stands in a file is in `/proc/PID/fdinfo`. Looking there costs ten microseconds,
//! touches nobody else, and works however small the app's reads are; an event for each read, which
//! fanotify could deliver, would cost the app more than the disk does. So the daemon looks, often
//! while a stream is fast and hardly ever while it stands still, and asks for the next windows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::ProcessId;
use limelight_core::policy::readahead::{Rate, Stream};
use limelight_core::settings::ReadaheadSettings;
use limelight_sys::files::{FileKind, FileStat};
use limelight_sys::pagecache::Range;
use limelight_sys::process::Process;

use super::disk::Disks;
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

/// Looks in a row at a stream that stands still after which it is forgotten until it is found
/// again: about ten seconds.
const IDLE_MAX: u32 = 30;

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
}

/// All streams of the topmost app.
#[derive(Debug)]
pub struct Streams {
    followed: Vec<Followed>,
    /// Processes whose descriptors are to be looked through, and when.
    look_through: BTreeMap<i32, Duration>,
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
            disks: Disks::new(&doors.roots.sys),
            rate: Rate::new(settings.rate, settings.rate, now),
            bytes: 0,
        }
    }

    /// How many streams are followed now.
    pub fn followed(&self) -> usize {
        self.followed.len()
    }

    /// Bytes asked for since the start.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Another app, or none, is topmost.
    pub fn clear(&mut self) {
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

    /// Looks through the descriptors of the whole app.
    pub fn look_through(&mut self, members: &[ProcessId], now: Duration) {
        for id in members.iter().take(PROCESSES_MAX) {
            self.look_through.insert(id.pid, now);
        }
    }

    /// When the next look is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let looks = self.followed.iter().map(|followed| followed.due);
        looks.chain(self.look_through.values().copied()).min()
    }

    /// Looks at everything that is due. `room` bytes may be read ahead in all.
    pub fn pass_time(
        &mut self,
        doors: &Doors,
        settings: &ReadaheadSettings,
        reader: &Reader,
        mut room: u64,
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
            if followed.due > now {
                return true;
            }
            let Some(position) = followed.position() else {
                return false;
            };
            let look = followed.stream.look(position, followed.size, now);
            followed.due = now + look.next;
            if let Some((offset, len)) = look.read {
                let len = rate.take(len.min(room), now);
                let piece = Job::Piece {
                    file: Arc::clone(&followed.file),
                    range: Range { offset, len },
                    chunk: followed.chunk,
                };
                if len > 0 && reader.ask(piece) {
                    followed.stream.granted(len);
                    *bytes += len;
                    room -= len;
                }
            }
            followed.stream.idle() < IDLE_MAX
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
                FileKind::Block => true,
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
        let position = process.position(number).ok().filter(|at| at.readable)?;
        let mut file = process.open_descriptor(number).ok()?;
        // The number may mean another file by now.
        if FileStat::of(&file).ok()? != stat {
            return None;
        }
        let size = match stat.kind {
            FileKind::Block => file.seek(SeekFrom::End(0)).ok()?,
            _ => stat.id.size,
        };
        let disk = self.disks.get(stat.device);
        let window = disk.read_ahead * u64::from(settings.factor);
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
        })
    }
}

impl Followed {
    /// Where the app stands now; `None` when the descriptor is closed or leads elsewhere.
    fn position(&self) -> Option<u64> {
        let stat = self.process.descriptor(self.number).ok()?;
        let same = (stat.id.device, stat.id.inode) == (self.stat.id.device, self.stat.id.inode);
        let position = same.then(|| self.process.position(self.number))?;
        position.ok().map(|position| position.offset)
    }
}
