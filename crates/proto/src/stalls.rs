// SPDX-License-Identifier: GPL-2.0-or-later
//! The protocol's types for stalls of programs.

use serde::{Deserialize, Serialize};

/// Shares of the last 10 s in which programs waited (PSI `avg10`); `None`: not reported by the
/// kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Waits for a processor.
    pub cpu: Option<Stall>,
    /// Waits for memory.
    pub memory: Option<Stall>,
    /// Waits for a disk.
    pub io: Option<Stall>,
}

/// Shares of time, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Share in which at least one task waited.
    pub some: f64,
    /// Share in which all runnable tasks waited; `None`: not reported by the kernel.
    pub full: Option<f64>,
}
