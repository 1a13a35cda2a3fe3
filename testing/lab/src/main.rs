// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight-lab`: builds kernels and images, boots virtual machines, measures Limelight.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use limelight_lab::cli::{self, Arguments};
use limelight_lab::paths::Paths;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let run = || -> Result<bool> {
        let paths = Paths {
            linux: arguments.linux,
            ..Paths::discover()?
        };
        cli::run(&paths, arguments.command)
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("limelight-lab: {error:#}");
            ExitCode::from(2)
        }
    }
}
