// SPDX-License-Identifier: GPL-2.0-or-later
//! Files written by Limelight itself that a full disk, a power failure or an edit may have damaged:
//! the record of a program's reads at its start, and the restore record.

use std::fs;

use limelight_core::model::coldstart::{sealed, Record};
use limelight_daemon::restore::{Entry, Ledger, FILE_NAME};

const BOOT: &str = "boot";

/// An accepted record obeys the same rules as a generated one, and stays the same when it is
/// written and read again. Reading and writing a restore record loses no entry.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check_start(&text);
    // The same text with a valid checksum, which the fuzzer could hardly find by itself.
    check_start(&sealed(text.clone().into_owned()));
    check_restore(data);
}

fn check_start(text: &str) {
    let Ok(record) = Record::decode(text) else {
        return;
    };
    for file in &record.files {
        let mut end = 0;
        for extent in &file.extents {
            assert!(extent.len > 0 && extent.offset >= end, "{file:?}");
            end = extent.offset + extent.len;
        }
        assert!(end <= file.version.size, "{file:?}");
        assert!(file.path.starts_with('/'), "{file:?}");
    }
    assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(&record));
    let updated = record.updated(record.clone(), true, u64::MAX);
    assert!(updated.resembles(&record));
}

fn check_restore(data: &[u8]) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let file = directory.path().join(FILE_NAME);
    fs::create_dir_all(file.parent().expect("it has a directory")).expect("room in memory");
    fs::write(&file, data).expect("a file in memory");
    let open = || Ledger::open(directory.path(), BOOT.to_owned());
    let mut ledger = open();
    let before = ledger.entries().to_vec();
    let own = Entry::Slice {
        path: "/limelight.slice".to_owned(),
    };
    ledger.intend([own]).expect("room in memory");
    let noted = ledger.entries().to_vec();
    assert!(before.iter().all(|entry| noted.contains(entry)));
    assert_eq!(open().entries(), noted);
}
