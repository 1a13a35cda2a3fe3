// SPDX-License-Identifier: GPL-2.0-or-later
//! Classes of apps (SWAP).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Class of an app: what the daemon may do to the app when memory is short.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Killed before apps of other classes, least recently used app first. Not swapped, unless
    /// swapping costs much less than a restart (`[swap] by_cost`).
    Disposable,
    /// May be swapped; killed only when nothing disposable is left.
    #[default]
    Normal,
    /// May be swapped; never killed.
    Keep,
}

impl Class {
    /// All classes, highest first.
    pub const ALL: [Class; 3] = [Class::Keep, Class::Normal, Class::Disposable];

    /// Its name in the configuration, the protocol and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Keep => "keep",
            Class::Normal => "normal",
            Class::Disposable => "disposable",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Class::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| {
            format!("unknown class {text:?}: the classes are keep, normal and disposable")
        })
    }
}
