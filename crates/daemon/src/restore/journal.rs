// SPDX-License-Identifier: GPL-2.0-or-later
//! The record's file: its first line lists everything, each later one is a step.
//!
//! Every change is a line at the end, because an app waits for it: the focus moves in a dozen of
//! them. It is never synchronised. It has to outlive this process, not the boot.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::{error, warn};

use super::entry::Entry;

const VERSION: u32 = 1;

/// A file of so many bytes is written anew.
pub(super) const LONG: u64 = 64 << 10;

/// The file's first line.
#[derive(Debug, Serialize, Deserialize)]
struct Record<'a> {
    version: u32,
    boot_id: Cow<'a, str>,
    pid: u32,
    entries: Cow<'a, [Entry]>,
}

/// Each later line: what has changed since the one before.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step<'a> {
    /// Noted, in the place of what is about the same thing.
    Intend(Cow<'a, [Entry]>),
    /// Undone or never made.
    Forget(Cow<'a, [Entry]>),
}

impl Step<'_> {
    /// Makes it.
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

/// The file.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    boot_id: String,
    /// `None`: it is written anew at the next step.
    file: Option<File>,
    /// Bytes in it.
    len: u64,
}

impl Journal {
    /// Opens it, with the entries that a dead predecessor left.
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
                error!("the restore record {} cannot be read: {error}; nothing of a predecessor is put back", path.display());
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

    /// Writes a step down that is made to `entries`.
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
                // Half a line may be at its end.
                self.file = None;
                let path = self.path.clone();
                Err(NotRecorded { path, error })
            }
        }
    }

    /// Writes the whole file anew, with a step made.
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
        // Not for everybody: it names the app in front.
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

    /// Removes it.
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

/// What a file says, and why the rest of it could not be understood.
pub(super) fn read(bytes: &[u8], boot_id: &str) -> (Vec<Entry>, Option<String>) {
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
            // Who was killed while he wrote it had not made the change yet.
            Err(error) if error.is_eof() => break,
            Err(error) => return (entries, Some(error.to_string())),
        }
    }
    (entries, None)
}

/// Adds a line to a file. Returns how many bytes it has.
fn append(file: &mut File, line: &impl Serialize) -> io::Result<u64> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)?;
    Ok(bytes.len() as u64)
}

fn set_aside(path: &Path, why: &str) {
    let aside = path.with_extension("json.corrupt");
    let kept = match fs::rename(path, &aside) {
        Ok(()) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("and it cannot be moved aside: {error}"),
    };
    error!(
        "the restore record {} cannot be understood ({why}); {kept}. What a predecessor changed may still be in force: look at memory.min and memory.low of the cgroups that it names",
        path.display()
    );
}
