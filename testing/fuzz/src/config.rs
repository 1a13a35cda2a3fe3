// SPDX-License-Identifier: GPL-2.0-or-later
//! The configuration: `limelight.toml`, optionally followed by a line `=== classes.toml` and that
//! file.

use std::fs;
use std::path::Path;

use limelight_daemon::config::{load, values, Config, Origin, Value};

const SEPARATOR: &str = "=== classes.toml\n";

/// Errors name an existing file and line. A valid configuration stays the same when it is written
/// from what `values` reports and read again.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (main, classes) = match text.split_once(SEPARATOR) {
        Some((main, classes)) => (main, Some(classes)),
        None => (&*text, None),
    };
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let file = directory.path().join("limelight.toml");
    write(&file, main);
    if let Some(classes) = classes {
        write(&directory.path().join("classes.toml"), classes);
    }
    let origin = Origin::File(file.clone());
    let config = match load(&origin) {
        Ok(config) => config,
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                let text = fs::read_to_string(&error.file).expect("an error names a file");
                let lines = text.matches('\n').count() + 1;
                assert!(error.line <= lines, "{error} of {lines} lines");
                assert!(!error.message.is_empty());
            }
            return;
        }
    };
    let shown = values(&origin).expect("a valid configuration has values");
    write(&file, &written(&shown));
    let again = load(&origin).unwrap_or_else(|errors| panic!("{errors}\nof {main:?}"));
    // Left out: class rules contain their file and line, which have changed.
    let rest = |config: Config| Config {
        classes: Default::default(),
        ..config
    };
    assert_eq!(rest(config), rest(again), "{main:?}");
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).expect("a file in memory");
}

fn written(values: &[Value]) -> String {
    let mut text = String::new();
    let mut section = "";
    for value in values {
        let Some(written) = &value.value else {
            continue;
        };
        if value.section != section {
            section = value.section;
            text.push_str(&format!("[{section}]\n"));
        }
        text.push_str(&format!("{} = {written}\n", value.key));
    }
    text
}
