// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that are in use although another one is in the foreground.

use serde::{Deserialize, Serialize};

/// Why a background app is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// It plays or records sound.
    Audio,
    /// It holds an inhibitor lock.
    Inhibitor,
    /// Its window is visible beside the topmost one.
    Visible,
    /// It reported unsaved work.
    Unsaved,
    /// It installs, upgrades or removes packages: if it is stopped half-way, the system may not
    /// boot.
    Packages,
    /// It runs a virtual machine, with a whole system's unsaved work in it.
    Machine,
}

impl Use {
    /// As a clause after "it".
    pub fn clause(self) -> &'static str {
        match self {
            Use::Audio => "plays or records sound",
            Use::Inhibitor => "holds an inhibitor lock",
            Use::Visible => "can be seen",
            Use::Unsaved => "has unsaved work",
            Use::Packages => "installs or removes packages",
            Use::Machine => "runs a virtual machine",
        }
    }
}
