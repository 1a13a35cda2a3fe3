// SPDX-License-Identifier: GPL-2.0-or-later
//! Prints either the findings that need attention, on one screen, or all findings.

use std::io::Write;

use super::findings::{Finding, Verdict};
use super::Report;
use crate::exit::Failure;
use crate::format::{self, printable, Paper, Table};

/// Prints the findings. `all`: every check, not only those that need attention.
pub fn print(
    report: &Report,
    all: bool,
    json: bool,
    paper: &Paper,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let Report {
        mechanisms, checks, ..
    } = report;
    if json {
        let each: Vec<&Finding> = mechanisms.iter().chain(checks).collect();
        return format::json(&each, out);
    }
    writeln!(out, "{}, {}", printable(&report.kernel), report.daemon)?;
    writeln!(out)?;
    // Without the daemon, the title says it all about the foreground app.
    let told = |one: &&Finding| all || report.daemon_runs || one.part != "foreground";
    let lines: Vec<&Finding> = mechanisms.iter().filter(told).collect();
    section(&lines, paper, out)?;
    // A finding that stops a whole mechanism is already shown on the mechanism's line.
    let shown = |finding: &Finding| mechanisms.iter().any(|one| one.detail == finding.detail);
    let trouble = |finding: &&Finding| finding.state.is_trouble() && !shown(finding);
    let known = |finding: &&Finding| {
        finding.part == "others" && !matches!(finding.check.as_str(), "killers" | "tuners")
    };
    let groups: [(&str, Vec<&Finding>); 2] = match all {
        true => [("checks", checks.iter().collect()), ("", Vec::new())],
        false => [
            ("could be better", checks.iter().filter(trouble).collect()),
            ("other software", checks.iter().filter(known).collect()),
        ],
    };
    for (title, group) in groups {
        if !group.is_empty() {
            writeln!(out, "\n{title}")?;
            section(&group, paper, out)?;
        }
    }
    let named = checks
        .iter()
        .filter(|one| one.state.is_trouble() && shown(one));
    writeln!(out, "\n{}", tally(checks, named.count(), all))?;
    Ok(())
}

fn section(findings: &[&Finding], paper: &Paper, out: &mut Vec<u8>) -> Result<(), Failure> {
    let name = |finding: &Finding| {
        let check = finding.check.strip_prefix("mechanism ");
        printable(check.unwrap_or(&finding.check))
    };
    let names = findings.iter().map(|finding| name(finding).chars().count());
    let width = names.max().unwrap_or(0);
    let mut table = Table::default();
    let mut before = None;
    for finding in findings {
        let cure = match &finding.cure {
            Some(_) if finding.cure == before => "\n-> as above".to_owned(),
            Some(cure) => format!("\n-> {}", printable(cure)),
            None => String::new(),
        };
        before.clone_from(&finding.cure);
        table.line(
            &format!("{:7}  {:width$}", finding.state.word(), name(finding)),
            format!("{}{cure}", printable(&finding.detail)),
        );
    }
    let mut text = Vec::new();
    table.print_within(paper.width, &mut text)?;
    for line in String::from_utf8_lossy(&text).lines() {
        writeln!(out, "{}", coloured(line, paper))?;
    }
    Ok(())
}

/// Colours the state at the start of a line; a cure stays uncoloured.
fn coloured(line: &str, paper: &Paper) -> String {
    let states = [
        (Verdict::Acts, "32"),
        (Verdict::Ready, "36"),
        (Verdict::Off, "2"),
        (Verdict::Note, "36"),
        (Verdict::Inert, "33"),
        (Verdict::Missing, "31"),
    ];
    let state = states
        .iter()
        .find_map(|(state, colour)| Some((line.strip_prefix(state.word())?, state, colour)));
    match state {
        Some((rest, state, colour)) if paper.colour && rest.starts_with(' ') => {
            format!("\x1b[{colour}m{}\x1b[0m{rest}", state.word())
        }
        _ => line.to_owned(),
    }
}

/// The last line. `named`: number of inert or missing checks that only a mechanism's line names.
fn tally(checks: &[Finding], named: usize, all: bool) -> String {
    let of = |state: Verdict| checks.iter().filter(|one| one.state == state).count();
    let mut text = format!(
        "{} checks: {} in order, {} notes, {} inert, {} missing",
        checks.len(),
        of(Verdict::Acts),
        of(Verdict::Note) + of(Verdict::Off),
        of(Verdict::Inert),
        of(Verdict::Missing),
    );
    if !all && named > 0 {
        let are = if named == 1 { "is" } else { "are" };
        text.push_str(&format!(
            "; {named} of these {are} named with a mechanism above"
        ));
    }
    if !all {
        text.push_str("; --all shows every check");
    }
    text
}
