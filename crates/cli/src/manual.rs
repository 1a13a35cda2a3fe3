// SPDX-License-Identifier: GPL-2.0-or-later
//! Completion scripts and manual pages, generated from the definition of the command line.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Failure;

/// Prints the completion script for a shell.
pub fn completions(shell: Shell, out: &mut Vec<u8>) {
    clap_complete::generate(shell, &mut Args::command(), "limelight", out);
}

/// Writes `limelight.1` and one page for each command.
pub fn write(directory: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(Args::command(), directory).map_err(|error| {
        Failure::Other(format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        ))
    })
}
