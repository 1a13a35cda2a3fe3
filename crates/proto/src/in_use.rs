// SPDX-License-Identifier: GPL-2.0-or-later
//! Reasons why an app is in use although another app is in the foreground.

use serde::{Deserialize, Serialize};

/// Why a background app is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It plays or records sound.
    Audio,
    /// It shares or records the screen or a camera.
    Video,
    /// It holds an inhibitor lock.
    Inhibitor,
    /// One of its windows is visible although another app is in the foreground.
    Visible,
    /// It reported unsaved work.
    Unsaved,
    /// It installs, upgrades or removes packages. If it is killed half-way, the system may not
    /// boot.
    Packages,
    /// It runs a virtual machine, which may contain a whole system's unsaved work.
    Machine,
}

impl Use {
    /// The reason as a clause that follows "it", for display.
    pub fn clause(self) -> &'static str {
        match self {
            Use::Audio => "plays or records sound",
            Use::Video => "shares or records the screen or a camera",
            Use::Inhibitor => "holds an inhibitor lock",
            Use::Visible => "has a visible window",
            Use::Unsaved => "has unsaved work",
            Use::Packages => "installs or removes packages",
            Use::Machine => "runs a virtual machine",
        }
    }
}
