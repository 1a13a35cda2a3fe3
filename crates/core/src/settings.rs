// SPDX-License-Identifier: GPL-2.0-or-later
//! What the administrator decided, after the configuration was read and checked.

use std::time::Duration;

/// Everything that policy and model want to know from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How the topmost app is found.
    pub topmost: TopmostSettings,
    /// How it is protected.
    pub protect: ProtectSettings,
}

/// How the topmost app is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopmostSettings {
    /// How long nothing may have the focus before the last app is demoted.
    pub gap: Duration,
}

impl Default for TopmostSettings {
    fn default() -> Self {
        TopmostSettings {
            gap: Duration::from_secs(2),
        }
    }
}

/// The mechanism `protect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectSettings {
    /// Whether anything is done at all.
    pub enabled: bool,
    /// Most that may be protected, with what others protect already, in percent of RAM, 1 to 90.
    pub budget_percent: u8,
    /// Points of `oom_score_adj` (thousandths of memory) that the topmost app's processes are
    /// lowered by, 0 (not at all) to 1000.
    pub oom_points: u16,
    /// How often the topmost app is measured.
    pub interval: Duration,
}

impl Default for ProtectSettings {
    fn default() -> Self {
        ProtectSettings {
            enabled: true,
            budget_percent: 60,
            oom_points: 500,
            interval: Duration::from_millis(500),
        }
    }
}
