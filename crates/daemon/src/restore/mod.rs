// SPDX-License-Identifier: GPL-2.0-or-later
//! The restore record: what was changed and what was there before.
//!
//! Every entry is in a file (`restore.json` in the runtime directory) *before* its change is
//! made, and leaves it only after the change was undone, so that whatever kills the daemon, its
//! successor, or `limelightd --restore`, can put everything back. An entry whose change was never
//! made does no harm: a value is put back only while the present one is one that we wrote.
//!
//! Things are identified by what cannot be given to a stranger: a cgroup by its inode number, a
//! process by pid and start time, all of it by the boot.

mod entry;
mod journal;

use std::path::Path;

use tracing::warn;

pub use entry::{Asking, Entry, Lineage, Moment, Move, Place, Tuned};
pub use journal::NotRecorded;

use journal::{Journal, Step};

/// The record's name inside the runtime directory.
pub const FILE_NAME: &str = "restore.json";

/// The record, in memory and on disk.
#[derive(Debug)]
pub struct Ledger {
    entries: Vec<Entry>,
    /// Those of them that should have been put back by now, and could not be.
    owed: Vec<Entry>,
    journal: Journal,
}

impl Ledger {
    /// Opens the record in the runtime directory, with what a dead predecessor left in it. A
    /// record of an earlier boot is forgotten: nothing of what it names exists any more. One that
    /// cannot be understood is moved aside to `restore.json.corrupt` and reported.
    pub fn open(runtime: &Path, boot_id: String) -> Ledger {
        let (journal, entries) = Journal::open(runtime.join(FILE_NAME), boot_id);
        Ledger {
            entries,
            owed: Vec::new(),
            journal,
        }
    }

    /// Everything that is changed now, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Notes changes that are about to be made; an entry about the same thing is replaced where it
    /// stands. On an error nothing is noted and nothing may be changed.
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

    /// What the entry is about is wanted as it is, even if it should have been put back before.
    pub fn keep(&mut self, entry: &Entry) {
        self.owed.retain(|owed| !owed.same_thing(entry));
    }

    /// Notes what should have been put back and could not be.
    pub fn owe(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.keep(&entry);
            self.owed.push(entry);
        }
    }

    /// What should have been put back and could not be.
    pub fn owed(&self) -> &[Entry] {
        &self.owed
    }

    /// Drops an entry whose change was undone or never made. When that cannot be written the file
    /// says too much, which is harmless.
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
    use std::fs;

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
    fn what_was_intended_is_there_for_the_successor() {
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
    fn a_long_file_is_written_anew() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let mut longest = 0;
        for value in 0..2000 {
            ledger.intend([limit(2, &[&value.to_string()])]).unwrap();
            longest = longest.max(fs::metadata(temp.path().join(FILE_NAME)).unwrap().len());
        }
        assert!((LONG..2 * LONG).contains(&longest), "{longest}");
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"]), limit(2, &["1999"])]);
    }

    #[test]
    fn a_line_that_was_not_finished_is_no_change() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let whole = fs::read(temp.path().join(FILE_NAME)).unwrap().len();
        ledger.intend([limit(2, &["6"])]).unwrap();
        let bytes = fs::read(temp.path().join(FILE_NAME)).unwrap();
        for len in whole..bytes.len() - 2 {
            let (entries, wrong) = read(&bytes[..len], "boot");
            assert_eq!((entries, wrong), (vec![limit(1, &["5"])], None), "{len}");
        }
    }

    #[test]
    fn what_follows_a_line_that_makes_no_sense_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), "boot".into());
        ledger.intend([limit(1, &["5"])]).unwrap();
        let mut text = fs::read_to_string(temp.path().join(FILE_NAME)).unwrap();
        text.push_str("{\"what\":[]}\n");
        fs::write(temp.path().join(FILE_NAME), text).unwrap();
        let successor = Ledger::open(temp.path(), "boot".into());
        assert_eq!(successor.entries(), [limit(1, &["5"])]);
        assert!(temp.path().join("restore.json.corrupt").exists());
    }

    #[test]
    fn what_is_owed_is_owed_until_it_is_done_or_wanted_again() {
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
    fn an_empty_record_leaves_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(temp.path(), String::new());
        ledger.intend([limit(1, &["5"])]).unwrap();
        ledger.forget(&limit(1, &[]));
        assert!(temp.path().join(FILE_NAME).exists());
        ledger.close();
        assert!(!temp.path().join(FILE_NAME).exists());
    }

    #[test]
    fn a_change_that_cannot_be_recorded_is_not_noted() {
        let temp = tempfile::tempdir().unwrap();
        let gone = temp.path().join("gone");
        let mut ledger = Ledger::open(&gone, String::new());
        let error = ledger.intend([limit(1, &["5"])]).unwrap_err();
        assert!(error.to_string().contains("restore.json"), "{error}");
        assert_eq!(ledger.entries(), []);
    }

    #[test]
    fn a_corrupt_record_is_moved_aside() {
        let temp = tempfile::tempdir().unwrap();
        for text in [
            "{\"version\":1,\"entries\":[",
            "{\"version\":9,\"boot_id\":\"\",\"pid\":1,\"entries\":[]}",
        ] {
            fs::write(temp.path().join(FILE_NAME), text).unwrap();
            assert_eq!(Ledger::open(temp.path(), String::new()).entries(), []);
            assert!(!temp.path().join(FILE_NAME).exists());
            let aside = fs::read_to_string(temp.path().join("restore.json.corrupt")).unwrap();
            assert_eq!(aside, text);
        }
    }

    proptest! {
        /// The file always equals the memory, and there is one entry a thing.
        #[test]
        fn the_file_is_the_memory(
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
        fn no_file_stops_the_start(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let temp = tempfile::tempdir().unwrap();
            fs::write(temp.path().join(FILE_NAME), bytes).unwrap();
            let ledger = Ledger::open(temp.path(), "b".into());
            prop_assert!(ledger.entries().is_empty());
        }
    }
}
