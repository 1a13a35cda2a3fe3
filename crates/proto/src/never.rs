// SPDX-License-Identifier: GPL-2.0-or-later
//! Exceptions for single apps: `[never]` in the configuration.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What Limelight does for or to no app that matches a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Never {
    /// Processor and disk priority while the app is in the foreground or starts.
    Boost,
    /// Protection of its memory while it is in the foreground.
    Protect,
    /// Closing it when memory is short.
    Close,
}

impl Never {
    /// All of them, in the order of the configuration.
    pub const ALL: [Never; 3] = [Never::Boost, Never::Protect, Never::Close];

    /// Its key in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Never::Boost => "boost",
            Never::Protect => "protect",
            Never::Close => "close",
        }
    }

    /// What never happens to the app, for display: "boosted".
    pub const fn participle(self) -> &'static str {
        match self {
            Never::Boost => "boosted",
            Never::Protect => "protected",
            Never::Close => "closed",
        }
    }
}

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An exception for an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exception {
    /// What never happens to the app.
    pub never: Never,
    /// The rule, as a clause: which name of the app matches which pattern, and where it is set.
    pub why: String,
    /// Whether the app's owner made the rule, not the administrator.
    pub by_owner: bool,
}

/// A wish that an app be closed only after the other apps of its class: `ManagedOOMPreference=avoid`
/// of its unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Avoid {
    /// Where the wish is set, as a clause.
    pub why: String,
    /// Whether the app's owner set it, not the administrator.
    pub by_owner: bool,
}
