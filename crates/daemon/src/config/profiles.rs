// SPDX-License-Identifier: GPL-2.0-or-later
//! Profiles: `profile = "NAME"` in front of the first section sets several keys to values that suit
//! a kind of machine. Keys that a file sets win.

use toml::de::{DeTable, DeValue};

use crate::config::line_at;
use crate::config::suggest::{alike, meant};

/// Name of the key.
pub(super) const KEY: &str = "profile";

/// A profile.
#[derive(Debug)]
pub(super) struct Profile {
    pub name: &'static str,
    /// Its keys and values, as in a configuration file.
    pub text: &'static str,
}

/// All profiles. docs/user/guide.md has the reasons for the values.
pub(super) const PROFILES: [Profile; 4] = [
    Profile {
        name: "desktop",
        text: "",
    },
    Profile {
        name: "phone",
        text: "
[readahead]
record_mib = 32
[swap]
write_budget_mib = 2048
grace_ms = 1000
prefault_mib = 64
[window]
apps = 32
",
    },
    Profile {
        name: "kiosk",
        text: "
[foreground]
gap_ms = 60000
[protect]
budget_percent = 80
[boost]
terminal = false
",
    },
    Profile {
        name: "server",
        text: "
[protect]
budget_percent = 20
oom_score_adj_points = 0
[boost]
cpu_weight = 300
nice_points = 5
io_weight = 300
[swap]
services = false
freeze = false
kill = false
",
    },
];

/// The line and the profile that a file's text names, or the error message; `None`: it names none,
/// or is not TOML.
pub(super) fn named(text: &str) -> Option<(usize, Result<&'static Profile, String>)> {
    let table = DeTable::parse(text).ok()?.into_inner();
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == KEY)?;
    let line = line_at(text, key.span().start);
    let names = || PROFILES.iter().map(|profile| profile.name);
    let quoted: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
    let allowed = quoted.join(", ");
    let profile = match value.get_ref() {
        DeValue::String(name) => PROFILES
            .iter()
            .find(|one| one.name == *name)
            .ok_or_else(|| {
                let meant = meant(alike(name, names()), '"');
                format!("`{KEY}` is \"{name}\"{meant}; allowed: {allowed}")
            }),
        value => Err(format!(
            "`{KEY}` is a value of type {}; allowed: {allowed}",
            value.type_str()
        )),
    };
    Some((line, profile))
}
