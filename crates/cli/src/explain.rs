// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight explain PID`.

use std::io::Write;

use limelight_proto::{Explain, Role};

use crate::exit::Failure;
use crate::format::{self, printable, Table};
use crate::status;

/// Prints a process's role and app, and the changes that were made for it.
pub fn print(explain: &Explain, json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        return format::json(explain, out);
    }
    let mut table = Table::default();
    table.line(
        "process",
        format!("{} (pid {})", printable(&explain.name), explain.pid),
    );
    let role = match explain.role {
        Role::Topmost => "in the foreground",
        Role::Previous => "was in the foreground before",
        Role::Background => "in the background",
    };
    let by = explain
        .source
        .as_deref()
        .map(|source| format!(", reported by {}", printable(source)));
    table.line("role", format!("{role}{}", by.unwrap_or_default()));
    if let Some(app) = &explain.app {
        table.line("app", format::app(app));
        if let Some(cgroup) = &app.cgroup {
            let shared = if app.own_cgroup {
                ""
            } else {
                " (shared with other programs)"
            };
            table.line("cgroup", format!("{}{shared}", printable(cgroup)));
        }
    }
    for (at, note) in explain.notes.iter().enumerate() {
        table.line(if at == 0 { "note" } else { "" }, printable(note));
    }
    table.print(out)?;
    match explain.changes.is_empty() {
        true => writeln!(out, "\nnothing was changed for it")?,
        false => {
            writeln!(out)?;
            status::changes(&explain.changes, out)?;
        }
    }
    Ok(())
}
