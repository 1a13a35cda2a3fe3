// SPDX-License-Identifier: GPL-2.0-or-later
//! The file of the restore record. The first line lists all entries, and each later line is a
//! change of that list.
//!
//! A change only appends a line, because a switch of the foreground app takes a dozen changes and
//! the app waits for them. The file is never synced. It has to outlive this process, but not the
//! boot.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use crate::restore::entry::Entry;

const VERSION: u32 = 1;

/// A file of at least this many bytes is rewritten at the next step.
pub(crate) const LONG: u64 = 64 << 10;

/// The file's first line.
#[derive(Debug, Serialize, Deserialize)]
struct Record<'a> {
    version: u32,
    boot_id: Cow<'a, str>,
    pid: u32,
    entries: Cow<'a, [Entry]>,
}

/// A later line: a change of the entries since the previous line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step<'a> {
    /// Adds entries. Each one replaces the entry about the same thing.
    Intend(Cow<'a, [Entry]>),
    /// Removes entries whose changes were undone or never made.
    Forget(Cow<'a, [Entry]>),
}

impl Step<'_> {
    /// Applies the step to the entries.
    pub fn apply(&self, entries: &mut Vec<Entry>) {
        match self {
            Step::Intend(fresh) => {
                for entry in fresh.iter() {
                    match entries.iter_mut().find(|known| known.same_thing(entry)) {
                        Some(known) => *known = entry.clone(),
                        None => entries.push(entry.clone()),
                    }
                }
            }
            Step::Forget(gone) => {
                entries.retain(|known| !gone.iter().any(|entry| known.same_thing(entry)));
            }
        }
    }
}

/// The record could not be written, so the change must not be made.
#[derive(Debug, thiserror::Error)]
#[error("the restore record {} cannot be written: {error}", path.display())]
pub struct NotRecorded {
    path: PathBuf,
    error: io::Error,
}

/// The open file of the record.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    boot_id: String,
    /// `None`: the file is rewritten at the next step.
    file: Option<File>,
    /// Size of the file in bytes.
    len: u64,
}

impl Journal {
    /// Opens the record. Also returns the entries that a dead daemon left in it.
    pub fn open(path: PathBuf, boot_id: String) -> (Journal, Vec<Entry>) {
        let entries = match fs::read(&path) {
            Ok(bytes) => {
                let (entries, wrong) = read(&bytes, &boot_id);
                if let Some(why) = wrong {
                    set_aside(&path, &why);
                }
                entries
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                error!(
                    "the restore record {} cannot be read: {error}; changes of a predecessor are \
                     not put back",
                    path.display()
                );
                Vec::new()
            }
        };
        let journal = Journal {
            path,
            boot_id,
            file: None,
            len: 0,
        };
        (journal, entries)
    }

    /// Writes a step to the file. `entries` is the list before that step.
    pub fn add(&mut self, step: &Step<'_>, entries: &[Entry]) -> Result<(), NotRecorded> {
        let written = match &mut self.file {
            Some(file) if self.len < LONG => append(file, step),
            _ => self.renew(step, entries),
        };
        match written {
            Ok(bytes) => {
                self.len += bytes;
                Ok(())
            }
            Err(error) => {
                // The file may end in half a line, so the next step rewrites it.
                self.file = None;
                let path = self.path.clone();
                Err(NotRecorded { path, error })
            }
        }
    }

    /// Rewrites the whole file, with the step applied.
    fn renew(&mut self, step: &Step<'_>, entries: &[Entry]) -> io::Result<u64> {
        let mut entries = entries.to_vec();
        step.apply(&mut entries);
        let record = Record {
            version: VERSION,
            boot_id: self.boot_id.as_str().into(),
            pid: std::process::id(),
            entries: entries.into(),
        };
        let fresh = self.path.with_extension("json.new");
        // Not world-readable: it names the topmost app.
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)?;
        let bytes = append(&mut file, &record)?;
        fs::rename(&fresh, &self.path)?;
        (self.file, self.len) = (Some(file), 0);
        Ok(bytes)
    }

    /// Removes the file.
    pub fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            if error.kind() != ErrorKind::NotFound {
                warn!(
                    "cannot remove the empty restore record {}: {error}",
                    self.path.display()
                );
            }
        }
    }
}

/// Parses a file. Returns its entries, and why the rest of the file could not be parsed, if so.
pub(crate) fn read(bytes: &[u8], boot_id: &str) -> (Vec<Entry>, Option<String>) {
    let mut head = serde_json::Deserializer::from_slice(bytes).into_iter::<Record<'_>>();
    let mut entries = match head.next() {
        Some(Ok(record)) if record.version != VERSION => {
            let why = format!("version {} instead of {VERSION}", record.version);
            return (Vec::new(), Some(why));
        }
        Some(Ok(record)) if record.boot_id != boot_id => return (Vec::new(), None),
        Some(Ok(record)) => record.entries.into_owned(),
        Some(Err(error)) => return (Vec::new(), Some(error.to_string())),
        None => return (Vec::new(), Some("it is empty".to_owned())),
    };
    let rest = bytes.get(head.byte_offset()..).unwrap_or_default();
    for step in serde_json::Deserializer::from_slice(rest).into_iter::<Step<'_>>() {
        match step {
            Ok(step) => step.apply(&mut entries),
            // The daemon was killed while it wrote this line, so it had not made the change yet.
            Err(error) if error.is_eof() => break,
            Err(error) => return (entries, Some(error.to_string())),
        }
    }
    (entries, None)
}

/// Appends a line to a file. Returns its length in bytes.
fn append(file: &mut File, line: &impl Serialize) -> io::Result<u64> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

fn set_aside(path: &Path, why: &str) {
    let aside = path.with_extension("json.corrupt");
    let kept = match fs::rename(path, &aside) {
        Ok(()) => format!("the file is kept as {}", aside.display()),
        Err(error) => format!("the file cannot be moved aside: {error}"),
    };
    error!(
        "the restore record {} cannot be parsed ({why}); {kept}. Changes of a predecessor may \
         still be in force: check memory.min and memory.low of the cgroups that the record names",
        path.display()
    );
}
