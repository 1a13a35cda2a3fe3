// SPDX-License-Identifier: GPL-2.0-or-later
//! Records of the file ranges that an app needs in its first seconds. They are read ahead at its
//! next start.
//!
//! A record is a text file. Its first line names the format and its version. Its last line is a
//! checksum of all lines above, which detects a truncated record. Each file is listed with its
//! version: device, inode number, size and modification time. A file whose version has changed
//! since the recording is not read ahead. Files are in the order in which the app opened them. The
//! ranges of a file are sorted by offset.
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

/// Largest gap between two ranges that are merged, in bytes: reading the gap is cheaper than
/// another request.
const HOLE: u64 = 64 << 10;

/// Maximum number of files in one record.
pub const FILES_MAX: usize = 4096;

/// Maximum size of a record's text in bytes. The daemon reads no more bytes of a record's file.
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
    /// Time of the last change of the contents, in nanoseconds since 1970.
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

/// A file and the ranges of it that are read ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileExtents {
    /// Version of the file.
    pub version: FileVersion,
    /// Path of the file at the time of the recording.
    pub path: String,
    /// The ranges, ascending and without overlap.
    pub extents: Vec<Extent>,
}

impl FileExtents {
    /// Total size of all ranges, in bytes.
    pub fn bytes(&self) -> u64 {
        let lengths = self.extents.iter().map(|extent| extent.len);
        lengths.fold(0, u64::saturating_add)
    }
}

/// The file ranges that one app needs in its first seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Path of the file that was executed; for a script, the path of the script and not of its
    /// interpreter.
    pub program: String,
    /// Version of `program` at the time of the recording.
    pub version: FileVersion,
    /// The files, in the order in which the app opened them.
    pub files: Vec<FileExtents>,
}

/// Why a text is not a valid record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// The text is not a record, or a record in another version of the format.
    Foreign,
    /// The checksum is missing or wrong: the text is truncated or changed.
    Damaged,
    /// This line, counted from 1, has a syntax error or lists one file too many.
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
    /// Builds a record from `files`, which are in the order in which they were opened. Sorts and
    /// merges the ranges of each file. Drops files without ranges, and all but the first version of
    /// a file. If more than [`FILES_MAX`] files or `bytes_max` bytes remain, drops the files with
    /// the most bytes: they are more often data than code, and the kernel's own read-ahead works
    /// well for them.
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

    /// Total size of all ranges of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        let bytes = self.files.iter().map(FileExtents::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns `newer`, a newer recording of the same app, completed from this record. A file that
    /// has the same version in both gets the ranges of both, because the newer recording lacks the
    /// pages that were evicted before it was made. Files that are only in this record are dropped;
    /// if `newer` is `partial`, they are added at the end instead.
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

    /// Whether `other` is so similar that it is not worth writing: it has the same versions of the
    /// program and of all files, and its size in bytes differs by at most 1/32 of the larger size.
    /// The order of the files is ignored, because it varies a little from start to start.
    pub fn resembles(&self, other: &Record) -> bool {
        let versions = |record: &Record| -> BTreeSet<FileVersion> {
            record.files.iter().map(|file| file.version).collect()
        };
        let (a, b) = (self.bytes(), other.bytes());
        self.version == other.version
            && versions(self) == versions(other)
            && a.abs_diff(b) <= a.max(b) / 32
    }

    /// Returns the record as text.
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

    /// Parses a record. As in [`Record::new`], ranges are sorted and merged, and files without
    /// ranges and repeated files are dropped. The number of bytes is not limited.
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
        // `lines()` would remove a carriage return at the end of a path.
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

/// File name of the record of a program and a user, in the directory of all records. Each user has
/// separate records: a program reads different files for each user, and no user can spoil another
/// user's record.
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

/// User id in the file name of a record. Records of older Limelight versions were shared between
/// users, and their names have no id: they count as root's (0).
pub fn user_of(file_name: &str) -> u32 {
    let user = file_name.rsplit_once('@').map(|(_, user)| user);
    user.and_then(|user| user.parse().ok()).unwrap_or(0)
}

/// The records to delete so that at most `most` remain. `names` are the records, least recently
/// used first. Repeatedly chooses the least recently used record of the user who has the most
/// records left. Each user thus keeps a share, however many records another user makes.
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

/// Sorts ranges, cuts them off at the file's `size`, and merges those with a gap of at most
/// [`HOLE`].
fn merge(mut extents: Vec<Extent>, size: u64) -> Vec<Extent> {
    extents.sort_unstable();
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        let end = extent.offset.saturating_add(extent.len).min(size);
        if extent.offset >= end {
            continue;
        }
        match merged.last_mut() {
            // A comparison of `offset` with `last.offset + last.len + HOLE` could overflow, because
            // offsets and sizes in a record can be as large as `u64::MAX`.
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

/// Escapes newlines, which a path may contain but a line cannot, and backslashes.
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

/// Appends the checksum line to all other lines of a record.
pub fn sealed(mut lines: String) -> String {
    let sum = checksum(&lines);
    lines.push_str(&format!("sum {sum:016x}\n"));
    lines
}

/// 64-bit FNV-1a checksum. It detects damage, but not forgery.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
#[path = "coldstart_tests.rs"]
mod tests;
