// SPDX-License-Identifier: GPL-2.0-or-later
//! Desktop entries and AppStream data. Packages install these files, and not all are well-formed.

use limelight_core::model::unit;
use limelight_daemon::sources::apps::desktop::{categories_of, parse};

/// An entry's ID is the name of its file, and no category is empty.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(entry) = parse("org.example.App", &text) {
        assert_eq!(entry.id, "org.example.App");
        assert!(entry.categories.iter().all(|category| !category.is_empty()));
        unit::parse(&entry.name);
    }
    for category in categories_of(&text) {
        assert!(text.contains(&category));
        assert_eq!(category.trim(), category);
    }
}
