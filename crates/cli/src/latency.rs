// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight latency`.

use std::io::Write;

use limelight_proto::LatencyReport;

use crate::exit::Failure;
use crate::format::{self, printable};

const HEAD: [&str; 8] = [
    "app", "answers", "p50", "p95", "p99", "max", "late", "no frame",
];

/// Prints the response times of apps.
pub fn print(report: &LatencyReport, json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        return format::json(report, out);
    }
    if report.apps.is_empty() {
        match &report.hidden {
            Some(why) => writeln!(
                out,
                "none of your apps has answered any input yet; {}",
                printable(why)
            )?,
            None => writeln!(out, "no app has answered any input yet")?,
        }
        return Ok(());
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(report.apps.iter().map(|app| {
        [
            printable(&app.name),
            app.answers.to_string(),
            format::micros(app.p50_us),
            format::micros(app.p95_us),
            format::micros(app.p99_us),
            format::micros(app.max_us),
            app.late.to_string(),
            app.unanswered.to_string(),
        ]
    }));
    format::columns(&rows, &[1, 2, 3, 4, 5, 6, 7], out)
}
