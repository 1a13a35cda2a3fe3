// SPDX-License-Identifier: GPL-2.0-or-later
//! What sources and clients report.

use std::collections::BTreeSet;
use std::time::Duration;

use limelight_core::model::topmost::{Claim, Holder};
use limelight_core::model::ProcessId;

/// A report of a source or a client.
#[derive(Debug)]
pub enum Input {
    /// A source infers that a process has entered the foreground.
    Inferred {
        /// The process.
        id: ProcessId,
        /// The source's name.
        source: &'static str,
        /// The owner of the process may have caused this report.
        by_owner: bool,
    },
    /// A source infers that no process is in the foreground.
    InferredNone {
        /// The source's name.
        source: &'static str,
    },
    /// The best guess at the foreground process; `None`: there is no guess.
    Guessed(Option<ProcessId>),
    /// A client claims the foreground.
    Claimed {
        /// The claim.
        claim: Claim,
        /// The claim ends when this connection closes; `None`: it lasts until the next claim.
        holder: Option<Holder>,
    },
    /// A client has closed its connection.
    Disconnected(u64),
    /// The users with an active session at a seat; `None` where no such session is known.
    ActiveUsers(Option<BTreeSet<u32>>),
    /// These processes, oldest first, execute programs with a record of an earlier start.
    Launched(Vec<i32>),
    /// The topmost app may have ended.
    Exit,
    /// Memory pressure.
    Pressure,
    /// The guard or the swapper has a report.
    Memory,
    /// Units may have been made for apps.
    Units,
    /// Times at which the user pressed a key or a button to which an app should respond.
    Strokes(Vec<Duration>),
    /// Times at which the display showed a frame.
    Frames(Vec<Duration>),
}
