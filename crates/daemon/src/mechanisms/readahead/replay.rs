// SPDX-License-Identifier: GPL-2.0-or-later
//! Replays and makes the records on disk. Runs in a reader thread, which may wait for disks.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use limelight_core::model::coldstart::{
    Extent, FileExtents, FileVersion, Flaw, Record, FILES_MAX, TEXT_MAX,
};
use limelight_core::policy::readahead::flight::{Flight, SLOTS};
use limelight_sys::files::{FileId, FileKind, FileStat};
use limelight_sys::pagecache::{self, cached, pieces, read_ahead, wait_for, Range};
use limelight_sys::proc::Proc;
use tracing::debug;

use crate::mechanisms::readahead::disk::{Disk, Disks};

/// Smallest amount of data, in bytes, for which a record of a start is made.
const WORTH: u64 = 256 << 10;

/// Largest file that is recorded, in bytes. The cached parts of larger files say little about one
/// app's start.
const FILE_MAX: u64 = 8 << 30;

/// Bytes that a replay reads between two checks of the machine's memory.
const MEMORY_EVERY: u64 = 8 << 20;

/// A record of an app start, to be read ahead.
#[derive(Debug, Clone)]
pub struct Replay {
    /// The program, as shown to the user.
    pub program: String,
    /// The program's record.
    pub record: PathBuf,
    /// Maximum number of bytes to read.
    pub room: u64,
}

/// Why a record cannot be read, or made.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The record cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The record.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The record's text is not valid.
    #[error("{} is not valid: {flaw}", path.display())]
    Invalid {
        /// The record.
        path: PathBuf,
        /// The flaw.
        flaw: Flaw,
    },
    /// The program's path is not UTF-8, so no record can name it.
    #[error("its path is not UTF-8")]
    NotUtf8,
    /// The program cannot be opened.
    #[error(transparent)]
    Unopened(#[from] limelight_sys::Error),
    /// The program is not a file.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// The record cannot be written.
    #[error(
        "cannot write {}: {error}: make {} writable, or name another [readahead] directory",
        path.display(),
        directory.display()
    )]
    Unwritable {
        /// The record.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Result of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// The program.
    pub program: String,
    /// The record's name.
    pub record: String,
    /// The figures, or why nothing was read.
    pub outcome: Result<Figures, RecordError>,
}

/// Figures of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Files that were opened and have not changed.
    pub files: usize,
    /// Files that are gone or have changed since.
    pub changed: usize,
    /// Bytes requested. Parts that were cached already are not read again.
    pub bytes: u64,
    /// Whether the replay stopped early because memory became short or the limit was reached.
    pub stopped: bool,
    /// How long the requests took.
    pub took: Duration,
}

/// A start to be recorded.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The program that runs.
    pub program: Candidate,
    /// The user who runs it.
    pub user: u32,
    /// The file that was executed right before the program. If it is a script, the record is made
    /// for the script.
    pub before: Option<Candidate>,
    /// Files that the app executed, opened or maps.
    pub files: Vec<Candidate>,
    /// Whether some of the files that the app opened may have been missed.
    pub partial: bool,
    /// Directory of the records.
    pub directory: PathBuf,
    /// Maximum number of bytes that a record may cover.
    pub bytes_max: u64,
    /// Maximum number of records that are kept.
    pub records_max: usize,
}

/// A file and its expected inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Inode number.
    pub inode: u64,
    /// Path at the time when the file was seen.
    pub path: PathBuf,
}

/// Result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// The program, or the script.
    pub program: String,
    /// The record, or why none could be made.
    pub outcome: Result<Kept, RecordError>,
}

/// The record of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Name of the record; `None`: the start read too little data to be worth a record.
    pub name: Option<String>,
    /// Files in the record.
    pub files: usize,
    /// Bytes in the record.
    pub bytes: u64,
    /// Whether the record was written, because it is new or differs from the old one.
    pub written: bool,
    /// Names of older records that were removed to stay within the limit.
    pub removed: Vec<String>,
}

/// Reads all file ranges of a record, a few requests at a time. Parts that are cached already are
/// not read again.
pub fn replay(job: &Replay, disks: &mut Disks, proc: &Path) -> Replayed {
    let outcome = load(&job.record).map(|record| {
        // The modification time of a record is the time of its last use.
        let now = fs::File::open(&job.record)
            .and_then(|file| file.set_modified(std::time::SystemTime::now()));
        if let Err(error) = now {
            debug!(
                "cannot update the modification time of {}: {error}",
                job.record.display()
            );
        }
        read_all(&record, job.room, disks, proc)
    });
    let name = job.record.file_name().unwrap_or_default();
    Replayed {
        program: job.program.clone(),
        record: name.to_string_lossy().into_owned(),
        outcome,
    }
}

fn read_all(record: &Record, room: u64, disks: &mut Disks, proc: &Path) -> Figures {
    let started = Instant::now();
    let mut figures = Figures::default();
    let mut looked = 0;
    let mut flight = Flight::new(SLOTS);
    for entry in in_order(record, disks) {
        if figures.bytes + entry.bytes() > room || memory_is_short(proc, &mut looked, figures.bytes)
        {
            figures.stopped = true;
            break;
        }
        let file = match open(Path::new(&entry.path)) {
            Ok((file, stat)) if version(&stat.id) == entry.version => Rc::new(file),
            _ => {
                figures.changed += 1;
                continue;
            }
        };
        figures.files += 1;
        let disk = disks.get(entry.version.device);
        let ranges = entry.extents.iter().map(|extent| Range {
            offset: extent.offset,
            len: extent.len,
        });
        for piece in ranges.flat_map(|range| pieces(range, disk.chunk())) {
            match request(&file, piece, disk, &mut flight) {
                Ok(()) => figures.bytes += piece.len,
                Err(error) => debug!("{}: {error}", entry.path),
            }
        }
    }
    figures.took = started.elapsed();
    figures
}

/// The files in the order of their replay. A rotating disk gets all requests at once, about in the
/// order of their position, because seeks cost more than waiting in a queue.
fn in_order<'a>(record: &'a Record, disks: &mut Disks) -> Vec<&'a FileExtents> {
    let mut files: Vec<&FileExtents> = record.files.iter().collect();
    files.sort_by_key(|file| {
        let version = file.version;
        disks.get(version.device).rotational.then_some(version)
    });
    files
}

/// Requests a piece of a file. Waits for the oldest request in flight if there are too many.
fn request(
    file: &Rc<fs::File>,
    piece: Range,
    disk: Disk,
    flight: &mut Flight<(Rc<fs::File>, Range)>,
) -> Result<(), limelight_sys::Error> {
    read_ahead(&**file, piece, disk.chunk())?;
    if disk.rotational {
        return Ok(());
    }
    match flight.add((file.clone(), piece)) {
        Some((file, oldest)) => wait_for(&*file, oldest),
        None => Ok(()),
    }
}

/// Whether less than an eighth of memory is available; checked every [`MEMORY_EVERY`] bytes.
fn memory_is_short(proc: &Path, looked: &mut u64, bytes: u64) -> bool {
    if bytes < *looked + MEMORY_EVERY {
        return false;
    }
    *looked = bytes;
    let memory = Proc::open(&proc.to_string_lossy()).and_then(|proc| proc.meminfo());
    let memory = memory.unwrap_or_default();
    match (memory.available_bytes, memory.total_bytes) {
        (Some(available), Some(total)) => available < total / 8,
        _ => false,
    }
}

/// Reads a record.
pub fn load(path: &Path) -> Result<Record, RecordError> {
    let file = || path.to_owned();
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|open| open.take(TEXT_MAX).read_to_string(&mut text));
    read.map_err(|error| RecordError::Unreadable {
        path: file(),
        error,
    })?;
    Record::decode(&text).map_err(|flaw| RecordError::Invalid { path: file(), flaw })
}

/// Determines which parts of the files are cached, and stores them as the program's record.
pub fn record(job: &Recording) -> Recorded {
    let script = job.before.as_ref().filter(|before| is_script(before));
    let program = script.unwrap_or(&job.program);
    let name = program.path.to_string_lossy().into_owned();
    let outcome = keep(job, program);
    Recorded {
        program: name,
        outcome,
    }
}

fn keep(job: &Recording, program: &Candidate) -> Result<Kept, RecordError> {
    let path = utf8(&program.path).ok_or(RecordError::NotUtf8)?;
    let (_, stat) = open(&program.path)?;
    let files = job.files.iter().take(FILES_MAX).filter_map(survey);
    let mut record = Record::new(path, version(&stat.id), files.collect(), job.bytes_max);
    let name = limelight_core::model::coldstart::file_name(path, job.user);
    let at = job.directory.join(&name);
    let old = match load(&at) {
        Ok(old) => Some(old),
        Err(why) => {
            debug!("no older record: {why}");
            None
        }
    };
    if let Some(old) = &old {
        record = old.updated(record, job.partial, job.bytes_max);
    }
    let mut kept = Kept {
        name: Some(name),
        files: record.files.len(),
        bytes: record.bytes(),
        written: false,
        removed: Vec::new(),
    };
    if old.is_some_and(|old| old.resembles(&record)) {
        return Ok(kept);
    }
    if kept.bytes < WORTH {
        kept.name = None;
        return Ok(kept);
    }
    let written = write(&job.directory, &at, &record.encode());
    written.map_err(|error| RecordError::Unwritable {
        path: at,
        directory: job.directory.clone(),
        error,
    })?;
    kept.written = true;
    kept.removed = prune(&job.directory, job.records_max);
    Ok(kept)
}

/// The cached parts of a file. `None` if the file cannot be opened, is empty or too large, or is
/// not the file that the app opened.
fn survey(candidate: &Candidate) -> Option<FileExtents> {
    let path = utf8(&candidate.path)?;
    let (file, stat) = open(&candidate.path).ok()?;
    let id = stat.id;
    if id.inode != candidate.inode || id.size == 0 || id.size > FILE_MAX {
        return None;
    }
    let ranges = cached(&file, id.size).ok()?;
    let extents = ranges.iter().map(|range| Extent {
        offset: range.offset,
        len: range.len,
    });
    Some(FileExtents {
        version: version(&id),
        path: path.to_owned(),
        extents: extents.collect(),
    })
}

fn open(path: &Path) -> Result<(fs::File, FileStat), RecordError> {
    let file = pagecache::open(path)?;
    let stat = FileStat::of(&file)?;
    match stat.kind {
        FileKind::Regular => Ok((file, stat)),
        _ => Err(RecordError::NotRegular(path.to_owned())),
    }
}

fn is_script(candidate: &Candidate) -> bool {
    let mut start = [0; 2];
    open(&candidate.path).is_ok_and(|(file, stat)| {
        stat.id.inode == candidate.inode
            && file.read_exact_at(&mut start, 0).is_ok()
            && start == *b"#!"
    })
}

fn version(id: &FileId) -> FileVersion {
    FileVersion {
        device: id.device,
        inode: id.inode,
        size: id.size,
        mtime_ns: id.mtime_ns,
    }
}

fn utf8(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| path.starts_with('/'))
}

/// Replaces a file as a whole or not at all. Only the file's owner may read it, because a record
/// shows which apps a person uses.
fn write(directory: &Path, at: &Path, text: &str) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let fresh = directory.join(".fresh");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(text.as_bytes())?;
    drop(file);
    // Not synced: a record that a power cut truncates fails its checksum, and is made again.
    fs::rename(&fresh, at)
}

/// Removes records until `most` remain, always from the user who has the most left, least recently
/// used first. Returns their names.
fn prune(directory: &Path, most: usize) -> Vec<String> {
    let mut records: Vec<_> = names(directory)
        .into_iter()
        .filter_map(|name| {
            let used = fs::metadata(directory.join(&name)).ok()?.modified().ok()?;
            Some((used, name))
        })
        .collect();
    records.sort();
    let names: Vec<String> = records.into_iter().map(|(_, name)| name).collect();
    let gone = |name: &String| fs::remove_file(directory.join(name)).is_ok();
    let surplus = limelight_core::model::coldstart::surplus(&names, most);
    surplus.into_iter().filter(gone).collect()
}

/// Names of the records in `directory`; empty if it cannot be listed.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != ErrorKind::NotFound {
                debug!("cannot list {}: {error}", directory.display());
            }
            return Vec::new();
        }
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
