// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight config show`: what is in force when the daemon reads its configuration, and where it
//! comes from.

use limelight_daemon::config::Value;
use serde_json::json;

use crate::exit::Failure;
use crate::format::{self, Table};

/// Prints all values, by section.
pub fn print(values: &[Value], json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        let values: Vec<_> = values.iter().map(as_json).collect();
        return format::json(&values, out);
    }
    let mut table = Table::default();
    let mut section = "";
    for value in values {
        if value.section != section {
            section = value.section;
            table.line(&format!("[{section}]"), " ");
        }
        let origin = match &value.origin {
            Some((file, line)) => format!("{}:{line}", file.display()),
            None => "default".to_owned(),
        };
        let text = value.value.as_deref().unwrap_or("not set");
        // A list may have been written over several lines.
        let text: Vec<&str> = text.split_whitespace().collect();
        table.line(value.key, format!("{}  ({origin})", text.join(" ")));
    }
    table.print(out)
}

fn as_json(value: &Value) -> serde_json::Value {
    let (file, line) = value
        .origin
        .as_ref()
        .map(|(file, line)| (file, line))
        .unzip();
    json!({
        "section": value.section,
        "key": value.key,
        "value": value.value,
        "file": file,
        "line": line,
    })
}
