// SPDX-License-Identifier: GPL-2.0-or-later
//! Stalls of programs in the protocol.

use serde::{Deserialize, Serialize};

/// Shares of the last 10 s in which programs waited for something (PSI `avg10`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// For a processor.
    pub cpu: Option<Stall>,
    /// For memory.
    pub memory: Option<Stall>,
    /// For a disk.
    pub io: Option<Stall>,
}

/// Share of the time, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// At least one task waited.
    pub some: f64,
    /// All runnable tasks waited; `None` if the kernel does not report it.
    pub full: Option<f64>,
}
