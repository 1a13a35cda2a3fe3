// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight config`: the configuration as the daemon would read it now. Prints each value with
//! its origin, and all errors.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use limelight_daemon::config::{never, ConfigError, ConfigErrors, Value};
use limelight_sys::user_config;
use serde::Serialize;

use crate::exit::Failure;
use crate::format::{self, Table};

/// The values of the user's own configuration, which the session agent sends to the daemon; none
/// without such a file.
pub fn of_user() -> Result<Vec<Value>, ConfigErrors> {
    let Some(file) = user_config::path() else {
        return Ok(Vec::new());
    };
    match fs::read_to_string(&file) {
        Ok(text) => never::of_user(&file, &text).map(|(_, values)| values),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(ConfigErrors(vec![ConfigError {
            file,
            line: 0,
            message: format!("cannot read your own configuration: {error}"),
        }])),
    }
}

/// Prints all values, by section.
pub fn print(values: &[Value], json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    if json {
        let values: Vec<_> = values.iter().map(Shown::of).collect();
        return format::json(&values, out);
    }
    let mut table = Table::default();
    let mut section = "";
    for value in values {
        if value.section != section {
            section = value.section;
            table.line(&format!("[{section}]"), " ");
        }
        let origin = match (&value.origin, value.profile) {
            (Some((file, line)), Some(profile)) => {
                format!("profile {profile}, {}:{line}", file.display())
            }
            (Some((file, line)), None) => format!("{}:{line}", file.display()),
            (None, _) => "default".to_owned(),
        };
        let text = value.value.as_deref().unwrap_or("not set");
        // A list may span several lines.
        let text: Vec<&str> = text.split_whitespace().collect();
        table.line(value.key, format!("{}  ({origin})", text.join(" ")));
    }
    table.print(out)
}

/// Prints all errors of a configuration, and fails if there are any. `warnings`: old names of keys
/// and values.
pub fn mistakes(
    found: &[ConfigError],
    warnings: &[ConfigError],
    json: bool,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    if json {
        let mistakes = found.iter().map(Mistake::of).collect();
        let warnings = warnings.iter().map(Mistake::of).collect();
        format::json(&Checked { mistakes, warnings }, out)?;
    } else {
        for warning in warnings {
            writeln!(out, "warning: {warning}")?;
        }
        if found.is_empty() {
            writeln!(out, "no errors")?;
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(Failure::Other(ConfigErrors(found.to_vec()).to_string())),
    }
}

/// A value in TOML syntax as JSON: a boolean, a number, a text or a list.
fn typed(text: &str) -> serde_json::Value {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"));
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    let typed = value.and_then(|value| serde_json::to_value(value).ok());
    // The configuration was valid TOML, so this cannot fail.
    typed.unwrap_or_else(|| text.into())
}

/// A key of the configuration, as `limelight config show --json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Shown<'a> {
    /// Its section.
    section: &'a str,
    /// Its name.
    key: &'a str,
    /// Its value: a boolean, a number, a text or a list; null: not set.
    value: Option<serde_json::Value>,
    /// The profile that sets it, if one does.
    profile: Option<&'a str>,
    /// The file that sets it; null: it has its default.
    file: Option<&'a Path>,
    /// The line there; for a value of a profile, the line that chooses the profile.
    line: Option<usize>,
}

impl Shown<'_> {
    fn of(value: &Value) -> Shown<'_> {
        let (file, line) = value
            .origin
            .as_ref()
            .map(|(file, line)| (file.as_path(), *line))
            .unzip();
        Shown {
            section: value.section,
            key: value.key,
            value: value.value.as_deref().map(typed),
            profile: value.profile,
            file,
            line,
        }
    }
}

/// Result of `limelight config check --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Checked<'a> {
    /// Errors; the daemon refuses a configuration that has any.
    mistakes: Vec<Mistake<'a>>,
    /// Old names of keys and values, which still work.
    warnings: Vec<Mistake<'a>>,
}

/// An error in the configuration, or a warning about it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mistake<'a> {
    /// The file.
    file: &'a Path,
    /// The line; 0: the whole file.
    line: usize,
    /// What is wrong.
    message: &'a str,
}

impl Mistake<'_> {
    fn of(error: &ConfigError) -> Mistake<'_> {
        Mistake {
            file: &error.file,
            line: error.line,
            message: &error.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_have_the_types_of_the_configuration() {
        for (text, expected) in [
            ("true", json!(true)),
            ("0x1f4", json!(500)),
            ("1_000", json!(1000)),
            ("\"auto\"", json!("auto")),
            ("[\"a\",\n \"b\"]", json!(["a", "b"])),
            ("[]", json!([])),
        ] {
            assert_eq!(typed(text), expected, "{text}");
        }
        let unset = Value {
            section: "expert",
            key: "prezero_block_mib",
            value: None,
            origin: None,
            profile: None,
        };
        assert!(json!(Shown::of(&unset))["value"].is_null());
    }
}
