// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight latency`.

use std::io::Write;

use limelight_proto::LatencyReport;

use crate::exit::Failure;
use crate::format::{self, printable};

const HEAD: [&str; 8] = [
    "app", "answers", "p50", "p95", "p99", "max", "late", "no frame",
];

/// Prints the response times of apps. `app`: the app that the user asked for.
pub fn print(
    report: &LatencyReport,
    app: Option<&str>,
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if json {
        return format::json(report, out);
    }
    if report.apps.is_empty() {
        match (&report.hidden, app) {
            (None, Some(app)) => writeln!(out, "{}: no answers yet", printable(app))?,
            (Some(why), _) => writeln!(
                out,
                "none of your apps has answered any input yet; {}",
                printable(why)
            )?,
            (None, None) => writeln!(out, "no app has answered any input yet")?,
        }
        return Ok(());
    }
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(report.apps.iter().map(|app| {
        let time = |us: u64| match app.answers {
            0 => "-".to_owned(),
            _ => format::micros(us),
        };
        [
            printable(&app.name),
            app.answers.to_string(),
            time(app.p50_us),
            time(app.p95_us),
            time(app.p99_us),
            time(app.max_us),
            app.late.to_string(),
            app.unanswered.to_string(),
        ]
    }));
    format::columns(&rows, &[1, 2, 3, 4, 5, 6, 7], out)
}
