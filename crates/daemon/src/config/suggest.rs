// SPDX-License-Identifier: GPL-2.0-or-later
//! Error messages for unknown names, with suggestions for misspelt ones.

use strsim::osa_distance;

use crate::config::keys::KEYS;
use crate::config::profiles;

/// The known name that is most like `wrong`; `None`: none is alike.
pub(super) fn alike<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase().replace('-', "_");
    let worst = (wrong.chars().count() / 3).max(1);
    let known = known
        .into_iter()
        .map(|name| (osa_distance(&wrong, name), name));
    let alike = known.filter(|(distance, name)| {
        // The beginning of a name is a hint, too: `budget` for `budget_percent`.
        let begins = name.starts_with(&wrong) || wrong.starts_with(name);
        *distance <= worst || wrong.len() >= 3 && begins
    });
    alike
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The question whether this name was meant; empty without a name. `quote` encloses the name.
pub(super) fn meant(name: Option<&str>, quote: char) -> String {
    name.map_or(String::new(), |name| {
        format!(" (did you mean {quote}{name}{quote}?)")
    })
}

fn all_sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = KEYS.iter().map(|key| key.section).collect();
    sections.dedup();
    sections
}

/// The error message for an unknown section.
pub(super) fn unknown_section(section: &str) -> String {
    let all = all_sections();
    let known: Vec<String> = all.iter().map(|name| format!("[{name}]")).collect();
    let known = known.join(", ");
    let meant =
        alike(section, all).map_or(String::new(), |name| format!(" (did you mean [{name}]?)"));
    format!("unknown section [{section}]{meant}; known sections: {known}")
}

/// The error message for a key in front of the first section.
pub(super) fn outside(name: &str) -> String {
    let of = |name: &str| {
        let keys = KEYS.iter().filter(|key| key.name == name);
        let sections: Vec<String> = keys.map(|key| format!("[{}]", key.section)).collect();
        sections.join(" or ")
    };
    let known = of(name);
    if !known.is_empty() {
        return format!("`{name}` is outside a section: write it below {known}");
    }
    match alike(name, KEYS.iter().map(|key| key.name)) {
        Some(meant) => format!(
            "`{name}` is outside a section, did you mean `{meant}` in {}?",
            of(meant)
        ),
        None => format!("`{name}` is outside a section, and no section has such a key"),
    }
}

/// The error message for an unknown key.
pub(super) fn unknown_key(section: &str, name: &str) -> String {
    let here = KEYS.iter().filter(|key| key.section == section);
    let here: Vec<&str> = here.map(|key| key.name).collect();
    let known: Vec<String> = here.iter().map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    if name == profiles::KEY {
        return format!("`{name}` in [{section}]: write it above the first section");
    }
    let other = KEYS.iter().find(|key| key.name == name);
    let meant = match other {
        Some(key) => format!(" (did you mean the key of [{}]?)", key.section),
        None => meant(alike(name, here), '`'),
    };
    format!("unknown key `{name}` in [{section}]{meant}; known keys: {known}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names_are_recognised() {
        let known = ["enabled", "budget_percent", "kill", "kill_percent", "ask"];
        for (wrong, expected) in [
            ("budget", Some("budget_percent")),
            ("buget_percent", Some("budget_percent")),
            ("Enabled", Some("enabled")),
            ("kil", Some("kill")),
            ("kill-percent", Some("kill_percent")),
            ("enbaled", Some("enabled")),
            ("colour", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(alike(wrong, known), expected, "{wrong}");
        }
    }
}
