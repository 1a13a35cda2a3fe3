// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight config`: the configuration as the daemon would read it now. Prints each value with
//! its origin, and all errors.

use std::io::Write;

use limelight_daemon::config::{ConfigError, ConfigErrors, Value};
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
        // A list may span several lines.
        let text: Vec<&str> = text.split_whitespace().collect();
        table.line(value.key, format!("{}  ({origin})", text.join(" ")));
    }
    table.print(out)
}

/// Prints all errors of a configuration, and fails if there are any.
pub fn mistakes(found: &[ConfigError], json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        let each = found.iter().map(|mistake| {
            json!({ "file": mistake.file, "line": mistake.line, "message": mistake.message })
        });
        format::json(&json!({ "mistakes": each.collect::<Vec<_>>() }), out)?;
    } else if found.is_empty() {
        writeln!(out, "no errors")?;
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::Other(ConfigErrors(found.to_vec()).to_string())),
    }
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
