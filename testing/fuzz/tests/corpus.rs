// SPDX-License-Identifier: GPL-2.0-or-later
//! Replays every corpus entry through its target.

use std::fs;
use std::path::{Path, PathBuf};

use limelight_fuzz::{target, TARGETS};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| {
        panic!(
            "{}: {error}: every target has a corpus",
            directory.display()
        )
    });
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn replay(name: &str) {
    let run = target(name).unwrap();
    let paths = entries(&corpus().join(name));
    assert!(!paths.is_empty(), "{name} has no corpus entry");
    for path in paths {
        let data = fs::read(&path).unwrap();
        let result = std::panic::catch_unwind(|| run(&data));
        assert!(result.is_ok(), "{name} fails on {}", path.display());
    }
}

#[test]
fn all_corpus_entries_pass() {
    for (name, _) in TARGETS {
        replay(name);
    }
}

#[test]
fn every_corpus_has_its_target() {
    for directory in entries(&corpus()) {
        let name = directory.file_name().unwrap().to_str().unwrap();
        assert!(target(name).is_some(), "{name} is not a target");
    }
}
