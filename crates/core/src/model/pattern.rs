// SPDX-License-Identifier: GPL-2.0-or-later
//! Patterns of apps in the configuration.

use wildmatch::WildMatch;

use super::class::Identity;

/// A pattern of apps, and where it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// File and line, for display.
    origin: String,
}

impl Pattern {
    /// A pattern that matches an app if it matches one of the app's names: the desktop id, the
    /// program's path, the cgroup's path or the Android package. `*` matches any text including
    /// slashes, `?` one character. `origin`: file and line, for display.
    pub fn new(text: &str, origin: impl Into<String>) -> Pattern {
        Pattern {
            text: text.to_owned(),
            origin: origin.into(),
        }
    }

    /// Why the app matches, as a clause; `None` if it does not.
    pub fn matches(&self, identity: &Identity) -> Option<String> {
        let wild = WildMatch::new(&self.text);
        let mut names = identity.names();
        let (kind, name) = names.find(|(_, name)| wild.matches(name))?;
        Some(format!(
            "its {kind} {name} matches \"{}\" ({})",
            self.text, self.origin
        ))
    }
}
