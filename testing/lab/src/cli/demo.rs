// SPDX-License-Identifier: GPL-2.0-or-later
//! `demo`: compares swipe times without and with Limelight in a simple table.

use anyhow::Result;

use super::How;
use crate::paths::{self, Paths};
use crate::results::Aggregates;
use crate::run::Runner;
use crate::scenario::{Kind, Mode};
use crate::scenarios::demo::{self, DEMO, WITH_OUR_KERNEL};

const INTRODUCTION: &str = "\
An image viewer runs in a small virtual machine. Its pages compete for memory with a file copy and
an indexer. The same swipes run with nothing else, on stock Debian, with earlyoom, and with
Limelight, all on Debian's own kernel.
";
const NEXT: &str = "\
What next?
  limelight selftest    the same comparison on this machine, without a virtual machine
  docs/user/install.md  how to install Limelight, and how to remove it again
  make demo KERNEL=ours adds a row with our kernel (builds it: 10 to 20 minutes on two cores)
";

/// Runs the demo. `our_kernel`: also with Limelight on our kernel. Returns false when a verdict, a
/// check or a machine failed.
pub fn run(paths: &Paths, our_kernel: bool, how: &How) -> Result<bool> {
    println!("{INTRODUCTION}");
    let mut options = how.options(Kind::Benchmark, Mode::Fast);
    if our_kernel {
        options.selection.arms = WITH_OUR_KERNEL.iter().map(ToString::to_string).collect();
    }
    let finished = Runner::new(paths, options.accelerator)?.run(&DEMO, &options)?;
    let lines = demo::lines(&Aggregates::from_rows(&finished.rows));
    for verdict in finished.judged() {
        if !verdict.passed {
            println!("NOT HELD: {} ({})", verdict.what, verdict.seen);
        }
    }
    for failure in &finished.failures {
        println!("FAILED: {failure}");
    }
    if !lines.is_empty() {
        let picture = paths.lab.join("demo.svg");
        paths::write(&picture, demo::picture(&lines))?;
        println!("\n{}", demo::table(&lines).text());
        println!(
            "earlyoom acts only when memory is used up; it does not choose what Linux evicts."
        );
        println!("As a picture: {}", paths.short(&picture));
    }
    if let Some(file) = &finished.file {
        println!(
            "All figures: {} (one JSON object a line).\n",
            paths.short(file)
        );
    }
    print!("{NEXT}");
    Ok(!finished.failed())
}
