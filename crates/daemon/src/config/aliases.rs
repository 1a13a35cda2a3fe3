// SPDX-License-Identifier: GPL-2.0-or-later
//! Old names of keys and values, which still work but cause a warning.

use crate::config::keys::{known, Key};

/// Section of the keys that are for research: no machine is known that needs another value.
pub(super) const EXPERT: &str = "expert";

/// Keys that are in [`EXPERT`] now: old section, old name, new name.
const MOVED: [(&str, &str, &str); 15] = [
    ("sources", "scan_interval_ms", "scan_interval_ms"),
    ("protect", "interval_ms", "protect_interval_ms"),
    ("protect", "ageing", "protect_ageing"),
    ("boost", "slice_us", "boost_slice_us"),
    ("boost", "io_level", "boost_io_level"),
    ("premap", "window_pages", "premap_window_pages"),
    ("prezero", "engine", "prezero_engine"),
    ("prezero", "block_device", "prezero_block_device"),
    ("prezero", "block_offset_mib", "prezero_block_offset_mib"),
    ("prezero", "block_mib", "prezero_block_mib"),
    ("prezero", "block_trusted", "prezero_block_trusted"),
    ("readahead", "factor", "readahead_factor"),
    ("readahead", "record_s", "readahead_record_s"),
    ("window", "deadline_ms", "window_deadline_ms"),
    ("window", "deadline_max_ms", "window_deadline_max_ms"),
];

/// Sections that have another name now, with the same keys: old name, new name.
const SECTIONS: [(&str, &str); 1] = [("topmost", "foreground")];

/// Old words of settings with the values "auto", "on" and "off": section, key, old word, new word.
const WORDS: [(&str, &str, &str, &str); 3] = [
    ("protect", "adopt", "never", "off"),
    ("protect", "adopt", "always", "on"),
    ("kernel", "device", "require", "on"),
];

/// The present name of a section; `None`: no section had this name before.
pub(super) fn section(old: &str) -> Option<&'static str> {
    let mut sections = SECTIONS.iter();
    sections.find(|(name, _)| *name == old).map(|(_, new)| *new)
}

/// The key that had this name before, with a warning; `None`: no key had it.
pub(super) fn key(section: &str, name: &str) -> Option<(&'static Key, String)> {
    if let Some(new) = self::section(section) {
        let key = known(new, name)?;
        return Some((key, format!("section [{section}] is now [{new}]")));
    }
    let mut moved = MOVED.iter();
    let (_, _, new) = moved.find(|(old, key, _)| (*old, *key) == (section, name))?;
    let key = known(EXPERT, new)?;
    let warning = format!("`{name}` in [{section}] is now `{new}` in [{EXPERT}]");
    Some((key, warning))
}

/// The word that replaces an old one of this key; `None`: it is no old word.
pub(super) fn word(key: &Key, old: &str) -> Option<&'static str> {
    let mut words = WORDS.iter();
    let is = |(section, name, word, _): &&(&str, &str, &str, &str)| {
        (*section, *name, *word) == (key.section, key.name, old)
    };
    words.find(is).map(|(_, _, _, new)| *new)
}
