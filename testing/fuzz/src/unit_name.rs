// SPDX-License-Identifier: GPL-2.0-or-later
//! Unit names. Any user who may start a unit chooses its name.

use limelight_core::model::unit;

/// A name yields distinct IDs that are safe as path components.
pub fn run(data: &[u8]) {
    let name = String::from_utf8_lossy(data);
    let Some(parsed) = unit::parse(&name) else {
        assert!(!unit::is_app(&name), "an app's unit must parse: {name:?}");
        return;
    };
    for (at, id) in parsed.ids.iter().enumerate() {
        assert!(!id.is_empty() && id.len() <= 255, "{name:?}: {id:?}");
        let harmless = !id.starts_with('.') && !id.contains(['/', '\0', '\n']);
        assert!(harmless, "{name:?}: {id:?}");
        assert!(!parsed.ids[..at].contains(id), "{name:?}: {id:?} twice");
    }
}
