// SPDX-License-Identifier: GPL-2.0-or-later
//! The restore record: what was changed, and the values before Limelight.
//!
//! Every entry is written to a file ([`FILE_NAME`] in the runtime directory) *before* its change is
//! made, and is removed only when nothing is left to undo. However the daemon dies, the next daemon
//! or `limelightd --restore` can restore everything. An entry for a change that was never made is
//! harmless: a value is restored only while the present value is one that Limelight wrote.
//!
//! Entries identify things by properties that are never reused: a cgroup by its inode number, and a
//! process by PID and start time. The record as a whole is identified by the boot.

pub mod undo;
pub mod watcher;

mod entry;
mod journal;

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use limelight_core::model::ProcessId;
use tracing::warn;

use crate::exit::Failure;
use crate::system::{lock, Roots, System};

pub use entry::{Asking, Entry, Lineage, Moment, Move, Place, Tuned};
pub use journal::NotRecorded;

use journal::{Journal, Step};
use undo::lineage::Searches;

/// The record's path inside the runtime directory. All users can see the timestamps of the files in
/// that directory, and the record's timestamps reveal when the foreground app changed. So the
/// record is in the inner one of two directories that only root may enter. The timestamps of the
/// outer directory never change.
pub const FILE_NAME: &str = "private/record/restore.json";
/// The record's path in earlier versions.
const OLD_NAME: &str = "restore.json";

/// The record, in memory and on disk.
#[derive(Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
    /// Entries whose restore is due: an attempt failed, or is still to be made.
    owed: Vec<Entry>,
    /// Past searches for processes that inherited a value.
    searches: Searches,
    journal: Journal,
}

/// Creates the record's directories, and moves the record of an earlier version there.
fn make_private(runtime: &Path, path: &Path) -> io::Result<()> {
    let inner = path.parent();
    let outer = inner.and_then(Path::parent);
    for directory in [outer, inner].into_iter().flatten() {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Set the mode only if needed, because all users can see when a directory's mode was set.
        let mode = fs::metadata(directory)?.permissions().mode();
        if mode & 0o777 != 0o700 {
            fs::set_permissions(directory, Permissions::from_mode(0o700))?;
        }
    }
    match fs::rename(runtime.join(OLD_NAME), path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Restores what a dead daemon left changed, and does nothing else. This is `limelightd --restore`;
/// the watcher calls it, too.
pub fn put_back(roots: Roots) -> Result<(), Failure> {
    let runtime = roots.runtime.clone();
    if !runtime.exists() {
        return Ok(());
    }
    let _lock = lock::take_to_restore(&runtime)?;
    let system = System::open(roots)?;
    let mut ledger = Ledger::open(&runtime, system.boot_id());
    let failed = undo::undo_all(&mut ledger, &system);
    ledger.close();
    match failed {
        0 => Ok(()),
        count => Err(Failure::Broken(format!(
            "{count} changes could not be put back; they stay listed in {}",
            runtime.join(FILE_NAME).display()
        ))),
    }
}

impl Ledger {
    /// Opens the record in the runtime directory, with the entries that a dead daemon left in it. A
    /// record of an earlier boot is dropped, because nothing that it names exists any more. A
    /// record that cannot be parsed is moved aside to `restore.json.corrupt` and reported.
    pub fn open(runtime: &Path, boot_id: String) -> Ledger {
        let path = runtime.join(FILE_NAME);
        if let Err(error) = make_private(runtime, &path) {
            warn!("cannot create {}: {error}", path.display());
        }
        let (journal, entries) = Journal::open(path, boot_id);
        Ledger {
            entries,
            owed: Vec::new(),
            searches: Searches::default(),
            journal,
        }
    }

    /// All changes in force, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The processes whose `oom_score_adj` Limelight has set: process, value without Limelight, and
    /// Limelight's value.
    pub fn lowered_scores(&self) -> Vec<(ProcessId, i16, i16)> {
        let lowered = self.entries.iter().filter_map(|entry| match entry {
            Entry::OomScoreAdj { original, ours, .. } => Some((entry.process()?, *original, *ours)),
            _ => None,
        });
        lowered.collect()
    }

    /// Records changes that are about to be made. An entry about the same thing is replaced in
    /// place. On an error nothing is recorded, and no change may be made.
    pub fn intend(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), NotRecorded> {
        let wanted: Vec<Entry> = entries.into_iter().collect();
        let fresh = wanted.iter().filter(|entry| !self.entries.contains(entry));
        let fresh: Vec<Entry> = fresh.cloned().collect();
        if !fresh.is_empty() {
            let step = Step::Intend(fresh.into());
            self.journal.add(&step, &self.entries)?;
            step.apply(&mut self.entries);
        }
        wanted.iter().for_each(|entry| self.keep(entry));
        Ok(())
    }

    /// Keeps a change in force: cancels its restore if that is due.
    pub fn keep(&mut self, entry: &Entry) {
        self.owed.retain(|owed| !owed.same_thing(entry));
    }

    /// Marks changes as owed: their restore is due, and is tried until it succeeds.
    pub fn owe(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.keep(&entry);
            self.owed.push(entry);
        }
    }

    /// Changes whose restore is due.
    pub fn owed(&self) -> &[Entry] {
        &self.owed
    }

    /// Drops an entry for a change that was undone or never made. If the file cannot be written, it
    /// lists too many entries, which is harmless.
    pub fn forget(&mut self, entry: &Entry) {
        self.forget_all(std::slice::from_ref(entry));
    }

    /// Drops several entries with one write.
    pub fn forget_all(&mut self, gone: &[Entry]) {
        let known = |gone: &Entry| self.entries.iter().any(|entry| entry.same_thing(gone));
        if !gone.iter().any(known) {
            return;
        }
        let step = Step::Forget(gone.into());
        if let Err(error) = self.journal.add(&step, &self.entries) {
            warn!("{error}");
        }
        step.apply(&mut self.entries);
        gone.iter().for_each(|entry| self.keep(entry));
    }

    /// Removes the file of an empty record.
    pub fn close(self) {
        if self.entries.is_empty() {
            self.journal.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::journal::{read, LONG};
    use super::*;
    use proptest::prelude::*;

    fn limit(inode: u64, ours: &[&str]) -> Entry {
        Entry::Limit {
            cgroup: Place {
                path: format!("/g{inode}"),
                inode,
            },
            knob: "memory.min".into(),
            original: "0".into(),
            ours: ours.iter().map(|&value| value.to_owned()).collect(),
        }
    }

    #[test]
    fn recorded_change_is_there_for_the_next_daemon() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"]), limit(2, &["6"])]).unwrap();
        ledger.intend([limit(1, &["5", "7"])]).unwrap();
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(
            successor.entries(),
            [limit(1, &["5", "7"]), limit(2, &["6"])]
        );
        assert_eq!(Ledger::open(temp.path(), "next".into()).entries(), []);
    }

    #[test]
    fn long_file_is_rewritten() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let mut longest = 0;
        for value in 0..2000 {
            ledger.intend([limit(2, &[&value.to_string()])]).unwrap();
            longest = longest.max(fs::metadata(temp.path().join(FILE_NAME)).unwrap().len());
        }
        assert!((LONG..2 * LONG).contains(&longest), "{longest} bytes");
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"]), limit(2, &["1999"])]);
    }

    #[test]
    fn unfinished_line_is_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let whole = fs::read(temp.path().join(FILE_NAME)).unwrap().len();
        ledger.intend([limit(2, &["6"])]).unwrap();
        let bytes = fs::read(temp.path().join(FILE_NAME)).unwrap();
        for len in whole..bytes.len() - 2 {
            let (entries, wrong) = read(&bytes[..len], "boot");
            assert_eq!(
                (entries, wrong),
                (vec![limit(1, &["5"])], None),
                "cut at {len}"
            );
        }
    }

    #[test]
    fn lines_after_an_invalid_one_are_ignored() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let mut text = fs::read_to_string(temp.path().join(FILE_NAME)).unwrap();
        text.push_str("{\"what\":[]}\n");
        fs::write(temp.path().join(FILE_NAME), text).unwrap();
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"])]);
        assert!(temp
            .path()
            .join("private/record/restore.json.corrupt")
            .exists());
    }

    #[test]
    fn failed_undo_stays_owed_until_it_succeeds_or_the_change_is_wanted_again() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        let all = [limit(1, &["5"]), limit(2, &["6"]), limit(3, &["7"])];
        ledger.intend(all.clone()).unwrap();
        ledger.owe(all.clone());
        ledger.owe([all[0].clone()]);
        assert_eq!(ledger.owed().len(), 3);
        ledger.forget(&all[0]);
        ledger.intend([all[1].clone()]).unwrap();
        assert_eq!(ledger.owed(), [limit(3, &["7"])]);
        ledger.keep(&limit(3, &[]));
        assert_eq!(ledger.owed(), []);
        assert_eq!(ledger.entries(), [limit(2, &["6"]), limit(3, &["7"])]);
    }

    #[test]
    fn empty_record_leaves_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), String::new());
        ledger.intend([limit(1, &["5"])]).unwrap();
        ledger.forget(&limit(1, &[]));
        assert!(temp.path().join(FILE_NAME).exists());
        ledger.close();
        assert!(!temp.path().join(FILE_NAME).exists());
    }

    #[test]
    fn change_that_cannot_be_recorded_is_not_kept() {
        let temp = tempfile::tempdir().unwrap();
        let gone = temp.path().join("gone");
        let mut ledger = Ledger::open(&gone, String::new());
        let error = ledger.intend([limit(1, &["5"])]).unwrap_err();
        assert!(error.to_string().contains("restore.json"), "{error}");
        assert_eq!(ledger.entries(), []);
    }

    #[test]
    fn record_of_an_earlier_version_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let old = temp.path().join(OLD_NAME);
        fs::rename(temp.path().join(FILE_NAME), &old).unwrap();
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"])]);
        assert!(!old.exists());
    }

    #[test]
    fn corrupt_record_is_moved_aside() {
        let temp = tempfile::tempdir().unwrap();
        make_private(temp.path(), &temp.path().join(FILE_NAME)).unwrap();
        for text in [
            "{\"version\":1,\"entries\":[",
            "{\"version\":9,\"boot_id\":\"\",\"pid\":1,\"entries\":[]}",
        ] {
            fs::write(temp.path().join(FILE_NAME), text).unwrap();
            assert_eq!(Ledger::open(temp.path(), String::new()).entries(), []);
            assert!(!temp.path().join(FILE_NAME).exists());
            let aside = fs::read_to_string(temp.path().join("private/record/restore.json.corrupt"))
                .unwrap();
            assert_eq!(aside, text);
        }
    }

    proptest! {
        /// The file always matches the entries in memory, and there is one entry for each thing.
        #[test]
        fn file_matches_the_entries_in_memory(
            steps in prop::collection::vec((0u64..6, any::<bool>(), "[0-9]{1,4}"), 1..12),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let mut ledger = Ledger::open(temp.path(), "b".into());
            for (inode, add, value) in steps {
                let entry = limit(inode, &[&value]);
                if add {
                    ledger.intend([entry]).unwrap();
                } else {
                    ledger.forget(&entry);
                }
                let read = Ledger::open(temp.path(), "b".into());
                prop_assert_eq!(read.entries(), ledger.entries());
                for (at, entry) in ledger.entries().iter().enumerate() {
                    prop_assert!(!ledger.entries()[..at].iter().any(|e| e.same_thing(entry)));
                }
            }
        }

        #[test]
        fn no_file_contents_prevent_the_start(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let temp = tempfile::tempdir().unwrap();
            make_private(temp.path(), &temp.path().join(FILE_NAME)).unwrap();
            fs::write(temp.path().join(FILE_NAME), bytes).unwrap();
            let ledger = Ledger::open(temp.path(), "b".into());
            prop_assert!(ledger.entries().is_empty());
        }
    }
}
