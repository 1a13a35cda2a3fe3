// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs the kernel series' own selftest (`tools/testing/selftests/mm/limelight.c`), and reports
//! each test in its TAP output as a check.

use anyhow::Result;

use crate::dispatch::Stage;
use crate::ktap::{self, Outcome};
use crate::process;

/// Path of the selftest in the guest. The lab copies the program to it if the plan has
/// [`crate::scenario::Work::Kselftest`].
pub const PROGRAM: &str = "/bin/kselftest-limelight";

/// Runs the selftest. limelightd must not run, because only one process can open the device.
pub fn run(mut stage: Stage) -> Result<()> {
    let (code, text) = process::run(PROGRAM, &[])?;
    let cases = ktap::parse(&text);
    let reporter = &mut stage.reporter;
    for case in &cases {
        // A skip counts as a failure: our kernel has all mechanisms, so no test has a reason to
        // skip.
        reporter.check(
            &case.name,
            case.outcome == Outcome::Passed,
            match case.outcome {
                Outcome::Passed => "passed".to_owned(),
                Outcome::Skipped => format!("skipped:\n{text}"),
                Outcome::Failed => format!("failed:\n{text}"),
            },
        )?;
    }
    reporter.check(
        "the selftest runs to its end",
        code == 0 && !cases.is_empty(),
        match code {
            0 => format!("{} tests", cases.len()),
            _ => format!("exit code {code}:\n{text}"),
        },
    )?;
    reporter.value("tests", cases.len());
    stage.reporter.finish()
}
