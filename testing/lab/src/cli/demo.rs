// SPDX-License-Identifier: GPL-2.0-or-later
//! `demo`: compares swipe times without and with Limelight in a simple table.

use anyhow::Result;

use super::How;
use crate::paths::Paths;
use crate::results::Aggregates;
use crate::run::Runner;
use crate::scenario::{Kind, Mode};
use crate::scenarios::demo::{self, DEMO};

const INTRODUCTION: &str = "\
Limelight's demo: an image viewer in a small virtual machine. Its pages compete for memory with a
file copy and an indexer. The same swipes run with nothing else, on Debian's own kernel, and with
Limelight. The first time, a kernel is built (10 to 20 minutes on two cores); after that a few
minutes are enough.
";

/// Runs the demo. Returns false when a verdict, a check or a machine failed.
pub fn run(paths: &Paths, how: &How) -> Result<bool> {
    println!("{INTRODUCTION}");
    let options = how.options(Kind::Benchmark, Mode::Fast);
    let finished = Runner::new(paths, options.accelerator)?.run(&DEMO, &options)?;
    if let Some(table) = demo::table(&Aggregates::from_rows(&finished.rows)) {
        println!("\n{}", table.text());
    }
    for verdict in finished.judged() {
        if !verdict.passed {
            println!("NOT HELD: {} ({})", verdict.what, verdict.seen);
        }
    }
    if let Some(file) = &finished.file {
        println!(
            "All figures: {} (one JSON object a line).",
            paths.short(file)
        );
        println!("`make report` makes a page with charts of everything that was measured.");
    }
    Ok(!finished.failed())
}
