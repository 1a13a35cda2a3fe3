// SPDX-License-Identifier: GPL-2.0-or-later
//! What a cell of a [`crate::plan::Plan`] can run.

use serde::{Deserialize, Serialize};

/// One scenario with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scenario", rename_all = "kebab-case")]
pub enum Work {
    /// Run a static program of the initramfs and pass on its output and exit code.
    Command {
        /// Program and arguments.
        argv: Vec<String>,
    },
}
