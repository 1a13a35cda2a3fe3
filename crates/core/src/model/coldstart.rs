// SPDX-License-Identifier: GPL-2.0-or-later
//! Records of the file ranges that an app reads in its first seconds, kept for its next start.
//!
//! A record is a text file. Its first line names the format and its version. Its last line is a
//! checksum of all lines above, which detects a truncated record. Each listed file has its version:
//! device, inode number, size and time of change. A file that has changed since is not read. Files
//! are in the order in which the app opened them, and ranges are sorted by offset.
//!
//! ```text
//! limelight-coldstart 2
//! program 2049 1311 6831736 1690000000000000000 /usr/bin/python3.11
//! file 2049 402 13312 1690000000000000000 /usr/lib/python3.11/abc.py
//! range 0 16384
//! sum 8c3b5e0f9d2a1746
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// First line of a record.
const HEADER: &str = "limelight-coldstart 2";

/// Two ranges with a gap of at most this many bytes are merged: reading the gap is cheaper than
/// another request.
const HOLE: u64 = 64 << 10;

/// Maximum number of files in one record.
pub const FILES_MAX: usize = 4096;

/// Maximum size of a record's text in bytes; the daemon reads no larger file.
pub const TEXT_MAX: u64 = 4 << 20;

/// One version of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileVersion {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last change of the contents, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A file and its ranges to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileExtents {
    /// Version of the file.
    pub version: FileVersion,
    /// Its path when it was recorded.
    pub path: String,
    /// Ascending, without overlap.
    pub extents: Vec<Extent>,
}

impl FileExtents {
    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        let lengths = self.extents.iter().map(|extent| extent.len);
        lengths.fold(0, u64::saturating_add)
    }
}

/// The file ranges that one app read in its first seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Path of the executed program; for a script, of the script that names that program as its
    /// interpreter.
    pub program: String,
    /// Version of `program` at the time of the recording.
    pub version: FileVersion,
    /// In the order in which the app opened them.
    pub files: Vec<FileExtents>,
}

/// Why a text is not a valid record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// Not a record, or a record in another version of the format.
    Foreign,
    /// The checksum does not match: the text is truncated or changed.
    Damaged,
    /// A syntax error in this line, counted from 1.
    Line(usize),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flaw::Foreign => write!(f, "does not begin with {HEADER:?}"),
            Flaw::Damaged => f.write_str("wrong checksum: the record is truncated or changed"),
            Flaw::Line(line) => write!(f, "syntax error in line {line}"),
        }
    }
}

impl Record {
    /// Builds a record from files in the order in which they were opened: sorts and merges the
    /// ranges, and keeps the first of several versions of a file. Beyond [`FILES_MAX`] files or
    /// `bytes_max` bytes it drops the largest files, because they are more often data than code,
    /// and the kernel's own read-ahead works well for large files.
    pub fn new(
        program: impl Into<String>,
        version: FileVersion,
        files: Vec<FileExtents>,
        bytes_max: u64,
    ) -> Record {
        let mut seen = BTreeSet::new();
        let mut files: Vec<(usize, FileExtents)> = files
            .into_iter()
            .map(|mut file| {
                file.extents = merge(file.extents, file.version.size);
                file
            })
            .filter(|file| {
                let id = (file.version.device, file.version.inode);
                !file.extents.is_empty() && seen.insert(id)
            })
            .enumerate()
            .collect();
        files.sort_by_key(|(_, file)| file.bytes());
        files.truncate(FILES_MAX);
        let mut bytes = 0u64;
        files.retain(|(_, file)| {
            bytes = bytes.saturating_add(file.bytes());
            bytes <= bytes_max
        });
        files.sort_by_key(|(order, _)| *order);
        let files = files.into_iter().map(|(_, file)| file).collect();
        Record {
            program: program.into(),
            version,
            files,
        }
    }

    /// Bytes of all ranges of all files.
    pub fn bytes(&self) -> u64 {
        let bytes = self.files.iter().map(FileExtents::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// This record, updated with a newer recording of the same app. A file in both records keeps
    /// the ranges of both, because the newer recording misses pages evicted before it was made. New
    /// files are added, and the newer order counts. Files that are only in this record are dropped,
    /// or come last if the newer recording is `partial`.
    pub fn updated(&self, newer: Record, partial: bool, bytes_max: u64) -> Record {
        let mut old: BTreeMap<FileVersion, &FileExtents> =
            self.files.iter().map(|file| (file.version, file)).collect();
        let mut files = newer.files;
        for file in &mut files {
            if let Some(old) = old.remove(&file.version) {
                file.extents.extend(&old.extents);
            }
        }
        if partial {
            let missed = self.files.iter();
            files.extend(
                missed
                    .filter(|file| old.contains_key(&file.version))
                    .cloned(),
            );
        }
        Record::new(newer.program, newer.version, files, bytes_max)
    }

    /// Whether `other` is so similar that it is not worth writing: the same versions, and a
    /// difference of at most 1/32 in bytes. The order of the files, which varies a little from start
    /// to start, does not count.
    pub fn resembles(&self, other: &Record) -> bool {
        let versions = |record: &Record| -> BTreeSet<FileVersion> {
            record.files.iter().map(|file| file.version).collect()
        };
        let (a, b) = (self.bytes(), other.bytes());
        self.version == other.version
            && versions(self) == versions(other)
            && a.abs_diff(b) <= a.max(b) / 32
    }

    /// The record as text.
    pub fn encode(&self) -> String {
        let mut text = format!("{HEADER}\n");
        push_file(&mut text, "program", &self.version, &self.program);
        for file in &self.files {
            push_file(&mut text, "file", &file.version, &file.path);
            for extent in &file.extents {
                text.push_str(&format!("range {} {}\n", extent.offset, extent.len));
            }
        }
        sealed(text)
    }

    /// Parses a record. The result obeys the rules of [`Record::new`].
    pub fn decode(text: &str) -> Result<Record, Flaw> {
        let body = text.strip_prefix(HEADER).ok_or(Flaw::Foreign)?;
        if !body.starts_with('\n') {
            return Err(Flaw::Foreign);
        }
        let trimmed = text.strip_suffix('\n').ok_or(Flaw::Damaged)?;
        let end = trimmed.rfind('\n').ok_or(Flaw::Damaged)? + 1;
        let (above, last) = trimmed.split_at(end);
        let sum = last.strip_prefix("sum ").ok_or(Flaw::Damaged)?;
        if sum != format!("{:016x}", checksum(above)) {
            return Err(Flaw::Damaged);
        }
        let mut program = None;
        let mut files: Vec<FileExtents> = Vec::new();
        // Not `lines()`: a path may end in a carriage return.
        for (number, line) in above.split_terminator('\n').enumerate().skip(1) {
            let flaw = Flaw::Line(number + 1);
            let (word, rest) = line.split_once(' ').ok_or(flaw.clone())?;
            match (word, number) {
                ("program", 1) => program = Some(parse_file(rest).ok_or(flaw)?),
                ("file", _) if files.len() < FILES_MAX => {
                    let (version, path) = parse_file(rest).ok_or(flaw)?;
                    files.push(FileExtents {
                        version,
                        path,
                        extents: Vec::new(),
                    });
                }
                ("range", _) => {
                    let file = files.last_mut().ok_or(flaw.clone())?;
                    file.extents.push(parse_range(rest).ok_or(flaw)?);
                }
                _ => return Err(flaw),
            }
        }
        let (version, program) = program.ok_or(Flaw::Line(2))?;
        Ok(Record::new(program, version, files, u64::MAX))
    }
}

/// File name of a program's record in the directory of all records. Each user has separate records,
/// because a program's reads differ between users, and no user can spoil another user's record.
pub fn file_name(program: &str, user: u32) -> String {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let base: String = program
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .bytes()
        .map(|byte| if word(byte) { char::from(byte) } else { '_' })
        .take(32)
        .collect();
    format!("{base}-{:016x}@{user}", checksum(program))
}

/// User id in the name of a record. Older Limelight versions shared records between users and wrote
/// no id; such names count as root's (0).
pub fn user_of(file_name: &str) -> u32 {
    let user = file_name.rsplit_once('@').map(|(_, user)| user);
    user.and_then(|user| user.parse().ok()).unwrap_or(0)
}

/// The records to delete so that `most` remain. Repeatedly takes the least recently used record of
/// the user who has the most records left. Each user thus keeps a share, however many records
/// another user makes. `names`: least recently used first.
pub fn surplus(names: &[String], most: usize) -> Vec<String> {
    let mut left: BTreeMap<u32, VecDeque<&String>> = BTreeMap::new();
    for name in names {
        left.entry(user_of(name)).or_default().push_back(name);
    }
    let mut gone = Vec::new();
    for _ in most..names.len() {
        let fullest = left.values_mut().max_by_key(|records| records.len());
        gone.extend(fullest.and_then(VecDeque::pop_front).cloned());
    }
    gone
}

/// Sorts ranges, merges neighbours with a gap of at most [`HOLE`], and truncates them at `size`.
fn merge(mut extents: Vec<Extent>, size: u64) -> Vec<Extent> {
    extents.sort_unstable();
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        let end = extent.offset.saturating_add(extent.len).min(size);
        if extent.offset >= end {
            continue;
        }
        match merged.last_mut() {
            // Not `offset <= end of last + HOLE`: that sum could overflow, because offsets and
            // sizes from a record can be as large as `u64::MAX`.
            Some(last) if extent.offset.saturating_sub(last.offset + last.len) <= HOLE => {
                last.len = last.len.max(end - last.offset);
            }
            _ => merged.push(Extent {
                offset: extent.offset,
                len: end - extent.offset,
            }),
        }
    }
    merged
}

fn push_file(text: &mut String, word: &str, version: &FileVersion, path: &str) {
    let FileVersion {
        device,
        inode,
        size,
        mtime_ns,
    } = version;
    let path = escape(path);
    text.push_str(&format!(
        "{word} {device} {inode} {size} {mtime_ns} {path}\n"
    ));
}

fn parse_file(text: &str) -> Option<(FileVersion, String)> {
    let mut words = text.splitn(5, ' ');
    let version = FileVersion {
        device: words.next()?.parse().ok()?,
        inode: words.next()?.parse().ok()?,
        size: words.next()?.parse().ok()?,
        mtime_ns: words.next()?.parse().ok()?,
    };
    let path = unescape(words.next()?)?;
    path.starts_with('/').then_some((version, path))
}

fn parse_range(text: &str) -> Option<Extent> {
    let (offset, len) = text.split_once(' ')?;
    let (offset, len): (u64, u64) = (offset.parse().ok()?, len.parse().ok()?);
    offset.checked_add(len)?;
    Some(Extent { offset, len })
}

/// Escapes newlines, which a path may contain and a line of the record must not.
fn escape(path: &str) -> String {
    path.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescape(text: &str) -> Option<String> {
    let mut path = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        path.push(match char {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                _ => return None,
            },
            char => char,
        });
    }
    Some(path)
}

/// Adds the final checksum line to a record's lines.
pub fn sealed(mut lines: String) -> String {
    let sum = checksum(&lines);
    lines.push_str(&format!("sum {sum:016x}\n"));
    lines
}

/// 64-bit FNV-1a: it detects damage, not forgery.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
#[path = "coldstart_tests.rs"]
mod tests;
