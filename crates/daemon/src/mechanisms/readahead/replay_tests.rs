// SPDX-License-Identifier: GPL-2.0-or-later
//! Makes and replays records of real files.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let place = Place { temp };
        place.fill("app", 1 << 20);
        place.fill("library", 2 << 20);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    fn fill(&self, name: &str, len: usize) {
        fs::write(self.path(name), vec![7; len]).unwrap();
    }

    fn candidate(&self, name: &str) -> Candidate {
        let path = self.path(name);
        Candidate {
            inode: fs::metadata(&path).unwrap().ino(),
            path,
        }
    }

    fn recording(&self) -> Recording {
        Recording {
            program: self.candidate("app"),
            user: 1000,
            before: None,
            files: vec![self.candidate("app"), self.candidate("library")],
            partial: false,
            directory: self.path("state/coldstart"),
            bytes_max: 64 << 20,
            records_max: 2,
        }
    }

    fn record(&self, recording: &Recording) -> Kept {
        record(recording).outcome.unwrap()
    }

    fn replay(&self, kept: &Kept, room: u64) -> Result<Figures, RecordError> {
        let job = Replay {
            program: "app".into(),
            record: self
                .path("state/coldstart")
                .join(kept.name.as_ref().unwrap()),
            room,
        };
        let mut disks = Disks::new(Path::new("/sys"));
        replay(&job, &mut disks, Path::new("/proc")).outcome
    }
}

#[test]
fn cached_parts_are_recorded_and_requested_again() {
    let place = Place::new();
    let kept = place.record(&place.recording());
    assert!(kept.written);
    assert_eq!((kept.files, kept.bytes), (2, 3 << 20));
    let figures = place.replay(&kept, u64::MAX).unwrap();
    assert_eq!(
        (
            figures.files,
            figures.changed,
            figures.bytes,
            figures.stopped
        ),
        (2, 0, 3 << 20, false)
    );
    let directory = place.path("state/coldstart");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join(kept.name.unwrap())), 0o600);
}

#[test]
fn files_are_replayed_in_their_order_but_a_hard_disk_is_read_by_inode() {
    let temp = tempfile::tempdir().unwrap();
    let queue = temp.path().join("dev/block/8:0/queue");
    fs::create_dir_all(&queue).unwrap();
    let file = |inode: u64| FileExtents {
        version: FileVersion {
            device: rustix::fs::makedev(8, 0),
            inode,
            size: 4096,
            mtime_ns: 0,
        },
        path: format!("/{inode}"),
        extents: vec![Extent {
            offset: 0,
            len: 4096,
        }],
    };
    let files = vec![file(5), file(9), file(2)];
    let record = Record::new("/app", files[0].version, files, u64::MAX);
    for (rotational, expected) in [("0\n", [5, 9, 2]), ("1\n", [2, 5, 9])] {
        fs::write(queue.join("rotational"), rotational).unwrap();
        let mut disks = Disks::new(temp.path());
        let order = in_order(&record, &mut disks);
        let inodes: Vec<u64> = order.iter().map(|file| file.version.inode).collect();
        assert_eq!(inodes, expected);
    }
}

#[test]
fn unchanged_start_is_not_written_again() {
    let place = Place::new();
    assert!(place.record(&place.recording()).written);
    assert!(!place.record(&place.recording()).written);
}

#[test]
fn changed_file_is_skipped_and_recorded_anew() {
    let place = Place::new();
    let kept = place.record(&place.recording());
    place.fill("library", 3 << 20);
    let figures = place.replay(&kept, u64::MAX).unwrap();
    assert_eq!((figures.files, figures.changed), (1, 1));
    let kept = place.record(&place.recording());
    assert!(kept.written);
    assert_eq!(place.replay(&kept, u64::MAX).unwrap().changed, 0);
}

#[test]
fn file_replaced_by_a_symlink_to_a_device_counts_as_changed() {
    let place = Place::new();
    let kept = place.record(&place.recording());
    fs::remove_file(place.path("library")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path("library")).unwrap();
    let figures = place.replay(&kept, u64::MAX).unwrap();
    assert_eq!((figures.files, figures.changed), (1, 1));
}

#[test]
fn error_names_the_damaged_record_and_the_next_recording_replaces_it() {
    let place = Place::new();
    let kept = place.record(&place.recording());
    let path = place
        .path("state/coldstart")
        .join(kept.name.as_ref().unwrap());
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let why = place.replay(&kept, u64::MAX).unwrap_err().to_string();
    assert!(why.contains(path.to_str().unwrap()), "{why}");
    assert!(why.contains("checksum"), "{why}");
    assert!(place.record(&place.recording()).written);
    assert!(place.replay(&kept, u64::MAX).is_ok());
}

#[test]
fn replay_stays_within_its_room() {
    let place = Place::new();
    let kept = place.record(&place.recording());
    let figures = place.replay(&kept, 2 << 20).unwrap();
    assert!(figures.stopped && figures.bytes <= 2 << 20, "{figures:?}");
}

#[test]
fn record_belongs_to_the_script_but_not_to_a_binary_wrapper() {
    let place = Place::new();
    fs::write(place.path("tool"), "#!/bin/app\n").unwrap();
    let with = |before: &str| Recording {
        before: Some(place.candidate(before)),
        ..place.recording()
    };
    let program = |recording: &Recording| record(recording).program;
    assert!(program(&with("tool")).ends_with("/tool"));
    assert!(program(&with("library")).ends_with("/app"));
}

#[test]
fn small_start_gets_no_record() {
    let place = Place::new();
    place.fill("app", 1000);
    let recording = Recording {
        files: vec![place.candidate("app")],
        ..place.recording()
    };
    let kept = place.record(&recording);
    assert!(!kept.written && kept.name.is_none());
    assert_eq!(names(&place.path("state/coldstart")), Vec::<String>::new());
}

#[test]
fn least_recently_used_records_are_removed() {
    let place = Place::new();
    let mut removed = Vec::new();
    for name in ["one", "two", "three"] {
        place.fill(name, 1 << 20);
        let recording = Recording {
            program: place.candidate(name),
            ..place.recording()
        };
        removed.extend(place.record(&recording).removed);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(removed.len(), 1);
    assert!(removed[0].starts_with("one-"), "{removed:?}");
    assert_eq!(names(&place.path("state/coldstart")).len(), 2);
}

#[test]
fn error_for_an_unwritable_directory_names_the_setting_to_change() {
    let place = Place::new();
    fs::write(place.path("state"), "in the way").unwrap();
    let error = record(&place.recording()).outcome.unwrap_err();
    let why = error.to_string();
    assert!(why.contains("[readahead] directory"), "{why}");
}
