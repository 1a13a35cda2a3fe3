// SPDX-License-Identifier: GPL-2.0-or-later
//! History of the actions on memory shortages: in memory, in a file that survives a restart, and in
//! the log.
//!
//! No decision depends on the file, so an error with it is logged once and otherwise ignored.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limelight_core::model::class::Class;
use limelight_core::model::App;
use limelight_proto::{fold, AppStatus, HistoryEntry, MemoryAction, MemoryThen, HISTORY_MAX};
use tracing::{info, warn};

use crate::system::access::Speaker;
use crate::system::now;

/// The file's name inside the daemon's state directory.
pub const FILE_NAME: &str = "history.jsonl";

/// A larger file is rewritten from the entries in memory.
const FILE_MAX_BYTES: u64 = 512 << 10;

/// One action, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note<'a> {
    /// Time of the decision, since boot.
    pub at: Duration,
    /// The action.
    pub action: MemoryAction,
    /// The app that the action affected; `None`: no single app.
    pub app: Option<&'a App>,
    /// The app's owner.
    pub uid: Option<u32>,
    /// The app's class.
    pub class: Option<Class>,
    /// The action's effect, in bytes.
    pub bytes: u64,
    /// Time from the decision until the action took effect; `None` if not measured.
    pub took: Option<Duration>,
    /// The reason.
    pub reason: String,
    /// The machine's memory at the time of the decision.
    pub memory: MemoryThen,
}

/// The most recent actions.
#[derive(Debug)]
pub struct History {
    entries: VecDeque<HistoryEntry>,
    /// Entries not yet sent to listening clients.
    fresh: Vec<HistoryEntry>,
    boot: String,
    /// For each action: how often it was taken since the daemon started, and its total effect in
    /// bytes.
    totals: BTreeMap<&'static str, (u64, u64)>,
    /// `None`: nothing is written, as in a dry run.
    file: Option<Journal>,
}

impl History {
    /// Reads what a previous daemon wrote to `directory`; `None` keeps everything in memory only.
    pub fn open(directory: Option<&Path>, boot: String) -> History {
        let mut history = History {
            entries: VecDeque::new(),
            fresh: Vec::new(),
            boot,
            totals: BTreeMap::new(),
            file: None,
        };
        history.keep_in(directory);
        history
    }

    /// Switches to the file in `directory`, and adds the entries that it holds.
    pub fn keep_in(&mut self, directory: Option<&Path>) {
        let path = directory.map(|directory| directory.join(FILE_NAME));
        if path.as_ref() == self.file.as_ref().map(|file| &file.path) {
            return;
        }
        self.file = path.map(|path| {
            let (file, read) = Journal::open(path);
            for entry in read {
                self.keep(entry);
            }
            file
        });
        self.entries
            .make_contiguous()
            .sort_by_key(|entry| entry.unix_ms);
    }

    fn keep(&mut self, entry: HistoryEntry) {
        if self.entries.len() == usize::from(HISTORY_MAX) {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Records an action in memory, in the file and in the log.
    pub fn note(&mut self, note: Note<'_>) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let then = wall
            .unwrap_or_default()
            .saturating_sub(now().saturating_sub(note.at));
        let entry = HistoryEntry {
            unix_ms: then.as_millis() as u64,
            at_ms: note.at.as_millis() as u64,
            boot: self.boot.clone(),
            action: note.action,
            app: note.app.map(AppStatus::from),
            uid: note.uid,
            class: note.class,
            bytes: note.bytes,
            took_us: note.took.map(|took| took.as_micros() as u64),
            times: 1,
            for_ms: 0,
            reason: note.reason,
            memory: note.memory,
        };
        log(&entry);
        let (times, bytes) = self.totals.entry(entry.action.counter()).or_default();
        *times += 1;
        *bytes = bytes.saturating_add(entry.bytes);
        if self.fresh.len() < usize::from(HISTORY_MAX) {
            self.fresh.push(entry.clone());
        }
        self.keep(entry);
        if let (Some(file), Some(entry)) = (&mut self.file, self.entries.back()) {
            match file.bytes < FILE_MAX_BYTES {
                true => file.append(entry),
                false => file.rewrite(self.entries.iter()),
            }
        }
    }

    /// Number and total effect of each action since the daemon started. Zeros are included, so that
    /// graphs have a starting point.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        for action in MemoryAction::ALL {
            let name = action.counter();
            let (times, bytes) = self.totals.get(name).copied().unwrap_or_default();
            counters.insert(name.to_owned(), times);
            counters.insert(format!("{name}_bytes"), bytes);
        }
        counters
    }

    /// Entries recorded since the last call, oldest first.
    pub fn take_fresh(&mut self) -> Vec<HistoryEntry> {
        std::mem::take(&mut self.fresh)
    }

    /// The last entries that this user may see, oldest first. Repeats are folded into one entry.
    /// Users see actions on their own apps and actions on no app; root and the group of `[access]`
    /// see all actions.
    pub fn of(&self, speaker: Speaker, count: u16) -> Vec<HistoryEntry> {
        let may = |entry: &&HistoryEntry| entry.uid.is_none_or(|owner| speaker.sees(owner));
        let mut entries = fold(self.entries.iter().filter(may));
        let skipped = entries.len().saturating_sub(count.into());
        entries.split_off(skipped)
    }

    /// The last entries, oldest first.
    #[cfg(test)]
    fn last(&self, count: u16) -> impl Iterator<Item = &HistoryEntry> {
        let skipped = self.entries.len().saturating_sub(count.into());
        self.entries.iter().skip(skipped)
    }
}

/// Logs an entry; kills are warnings.
fn log(entry: &HistoryEntry) {
    let app = entry.app.as_ref();
    let name = app.map_or("apps", |app| app.name.as_str());
    let class = entry
        .class
        .map_or(String::new(), |class| format!(" ({class})"));
    let took = match entry.took_us {
        Some(us) => format!(" in {:.1} ms", us as f64 / 1e3),
        None => String::new(),
    };
    let line = format!(
        "{}: {name}{class}, {} KiB{took}: {}; available {} KiB, swap free {} KiB",
        entry.action,
        entry.bytes >> 10,
        entry.reason,
        entry.memory.available >> 10,
        entry.memory.swap_free >> 10,
    );
    match entry.action {
        MemoryAction::Kill | MemoryAction::ForeignKill => warn!("{line}"),
        _ => info!("{line}"),
    }
}

/// The history file, with one JSON object per line.
#[derive(Debug)]
struct Journal {
    path: PathBuf,
    bytes: u64,
    /// The last line may be incomplete.
    torn: bool,
    complained: bool,
}

impl Journal {
    fn open(path: PathBuf) -> (Journal, Vec<HistoryEntry>) {
        let mut file = Journal {
            path,
            bytes: 0,
            torn: false,
            complained: false,
        };
        let mut text = Vec::new();
        let read = fs::File::open(&file.path)
            .and_then(|open| open.take(2 * FILE_MAX_BYTES).read_to_end(&mut text));
        match read {
            Ok(bytes) => file.bytes = bytes as u64,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => file.complain(&error),
        }
        file.torn = text.last().is_some_and(|&byte| byte != b'\n');
        let entries = text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        (file, entries)
    }

    fn append(&mut self, entry: &HistoryEntry) {
        let Some(mut line) = line(entry) else {
            return;
        };
        if self.torn {
            line.insert(0, b'\n');
        }
        let written = self.directory().and_then(|()| {
            let mut file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&self.path)?;
            file.write_all(&line)
        });
        match written {
            Ok(()) => {
                self.bytes += line.len() as u64;
                self.torn = false;
                self.complained = false;
            }
            Err(error) => {
                self.torn = true;
                self.complain(&error);
            }
        }
    }

    /// Replaces the file with the last entries, at most half the size limit. If that fails, the old
    /// file stays.
    fn rewrite<'a>(&mut self, entries: impl DoubleEndedIterator<Item = &'a HistoryEntry>) {
        let mut room = FILE_MAX_BYTES / 2;
        let mut lines: Vec<Vec<u8>> = entries
            .rev()
            .filter_map(line)
            .take_while(|line| {
                let fits = line.len() as u64 <= room;
                room = room.saturating_sub(line.len() as u64);
                fits
            })
            .collect();
        lines.reverse();
        let text = lines.concat();
        let fresh = self.path.with_extension("jsonl.new");
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&fresh)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&fresh, &self.path));
        match written {
            Ok(()) => {
                self.bytes = text.len() as u64;
                self.torn = false;
            }
            Err(error) => {
                self.complain(&error);
                // A file that could not be written completely must not occupy the space.
                let _ = fs::remove_file(&fresh);
            }
        }
    }

    fn directory(&self) -> std::io::Result<()> {
        match self.path.parent() {
            Some(directory) => fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory),
            None => Ok(()),
        }
    }

    /// Warns once until writing works again, so that a full disk does not flood the log.
    fn complain(&mut self, error: &std::io::Error) {
        if !self.complained {
            self.complained = true;
            warn!(
                "{}: {error}; later actions are kept only in memory and in the log",
                self.path.display()
            );
        }
    }
}

fn line(entry: &HistoryEntry) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(entry).ok()?;
    line.push(b'\n');
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(reason: &str) -> Note<'_> {
        Note {
            at: now(),
            action: MemoryAction::Kill,
            app: None,
            uid: None,
            class: Some(Class::Normal),
            bytes: 1 << 20,
            took: Some(Duration::from_millis(3)),
            reason: reason.to_owned(),
            memory: MemoryThen::default(),
        }
    }

    fn reasons(history: &History, count: u16) -> Vec<String> {
        let last = history.last(count);
        last.map(|entry| entry.reason.clone()).collect()
    }

    #[test]
    fn history_survives_a_restart_and_a_torn_line() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("state");
        let mut history = History::open(Some(&state), "boot".to_owned());
        history.note(note("one"));
        history.note(note("two"));
        drop(history);
        let path = state.join(FILE_NAME);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"unix_ms\":17").unwrap();

        let mut history = History::open(Some(&state), "boot".to_owned());
        assert_eq!(reasons(&history, 9), ["one", "two"]);
        history.note(note("three"));
        let history = History::open(Some(&state), "boot".to_owned());
        assert_eq!(reasons(&history, 2), ["two", "three"]);
        let entry = history.last(1).next().unwrap();
        assert_eq!(entry.took_us, Some(3000));
        let off = now().abs_diff(Duration::from_millis(entry.at_ms));
        assert!(off < Duration::from_secs(60), "off by {off:?}");
    }

    #[test]
    fn fresh_entries_are_returned_once() {
        let mut history = History::open(None, String::new());
        history.note(note("one"));
        assert_eq!(history.take_fresh().len(), 1);
        let counters = history.counters();
        assert_eq!(counters["killed"], 1);
        assert_eq!(counters["killed_bytes"], 1 << 20);
        assert_eq!(counters["squeezed"], 0);
        assert_eq!(history.take_fresh(), []);
    }

    #[test]
    fn users_see_only_actions_on_their_own_apps() {
        let mut history = History::open(None, String::new());
        for uid in [None, Some(1000), Some(1001)] {
            history.note(Note { uid, ..note("why") });
        }
        let speaker = |uid, member| Speaker { uid, member };
        assert_eq!(history.of(speaker(0, false), 9).len(), 3);
        assert_eq!(history.of(speaker(1002, true), 9).len(), 3);
        let own = history.of(speaker(1000, false), 9);
        let own: Vec<_> = own.iter().map(|entry| entry.uid).collect();
        assert_eq!(own, [None, Some(1000)]);
        assert_eq!(history.of(speaker(1000, false), 1).len(), 1);
    }

    #[test]
    fn memory_and_file_are_bounded() {
        let temp = tempfile::tempdir().unwrap();
        let mut history = History::open(Some(temp.path()), String::new());
        let long = "x".repeat(2000);
        for _ in 0..3 * HISTORY_MAX {
            history.note(note(&long));
        }
        assert_eq!(history.last(u16::MAX).count(), usize::from(HISTORY_MAX));
        let path = temp.path().join(FILE_NAME);
        let size = fs::metadata(&path).unwrap().len();
        assert!(size <= FILE_MAX_BYTES + 4096, "{size} bytes");
        let read = History::open(Some(temp.path()), String::new());
        assert!(read.last(u16::MAX).count() >= 100);
    }

    #[test]
    fn unwritable_file_is_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let taken = temp.path().join("taken");
        fs::write(&taken, "no directory").unwrap();
        let mut history = History::open(Some(&taken), String::new());
        history.note(note("one"));
        assert_eq!(reasons(&history, 1), ["one"]);
        // A dry run writes no file.
        history.keep_in(None);
        history.note(note("two"));
        assert_eq!(reasons(&history, 2), ["one", "two"]);
        // /dev/full rejects every write.
        std::os::unix::fs::symlink("/dev/full", temp.path().join(FILE_NAME)).unwrap();
        history.keep_in(Some(temp.path()));
        history.note(note("three"));
        history.note(note("four"));
        assert_eq!(reasons(&history, 2), ["three", "four"]);
    }
}
