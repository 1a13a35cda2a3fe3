// SPDX-License-Identifier: GPL-2.0-or-later
//! What programs wait for, in the protocol's words.

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

/// How much of the time, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// At least one program waited.
    pub some: f64,
    /// All that had something to do did; `None` where the kernel does not tell.
    pub full: Option<f64>,
}
