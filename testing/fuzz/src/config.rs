// SPDX-License-Identifier: GPL-2.0-or-later
//! The configuration: `limelight.toml`, optionally followed by a line `=== classes.toml` and that
//! file. The first file is parsed as a user's own configuration, too.

use std::fs;
use std::path::Path;

use limelight_daemon::config::never::of_user;
use limelight_daemon::config::{load, values, Config, ConfigErrors, Origin, Value};

const SEPARATOR: &str = "=== classes.toml\n";

/// Errors name an existing file and line. A valid configuration stays the same when it is written
/// from what `values` reports and read again.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (main, classes) = match text.split_once(SEPARATOR) {
        Some((main, classes)) => (main, Some(classes)),
        None => (&*text, None),
    };
    if let Err(errors) = of_user(Path::new("/home/u/limelight.toml"), main) {
        check(&errors, |_| main.to_owned());
    }
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
            check(&errors, |file| {
                fs::read_to_string(file).expect("an error names a file")
            });
            return;
        }
    };
    let shown = values(&origin).expect("a valid configuration has values");
    write(&file, &written(&shown));
    let again = load(&origin).unwrap_or_else(|errors| panic!("{errors}\nof {main:?}"));
    // Left out: rules contain their file and line, which have changed.
    let rest = |config: Config| Config {
        classes: Default::default(),
        never: Default::default(),
        ..config
    };
    assert_eq!(rest(config), rest(again), "{main:?}");
}

/// Checks that each error names a line of its file. `text` returns a file's contents.
fn check(errors: &ConfigErrors, text: impl Fn(&Path) -> String) {
    assert!(!errors.0.is_empty());
    for error in &errors.0 {
        let lines = text(&error.file).matches('\n').count() + 1;
        assert!(error.line <= lines, "{error} of {lines} lines");
        assert!(!error.message.is_empty());
    }
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
