// SPDX-License-Identifier: GPL-2.0-or-later
//! A window's app ID, and the desktop entry of that name.

use limelight_compositor::app_id::{entry_exec, names_of};

/// Names are never empty and contain no upper case, and a program is a file name, not a path.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let id = text.lines().next().unwrap_or_default();
    let names = names_of(id);
    assert_eq!(names.is_empty(), id.is_empty());
    for name in &names {
        assert!(!name.is_empty() && *name == name.to_lowercase(), "{name:?}");
    }
    if let Some(program) = entry_exec(&text) {
        assert!(!program.is_empty() && !program.contains('/'), "{program:?}");
    }
}
