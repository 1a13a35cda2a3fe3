// SPDX-License-Identifier: GPL-2.0-or-later
//! JSON schemas of what the commands print with `--json`, in `docs/integrator/schema`. `make schemas`
//! writes them again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use limelight_proto::{
    AppReport, Decision, Explain, HistoryEntry, LatencyReport, Notice, WindowStatus,
};
use schemars::generate::SchemaSettings;
use schemars::JsonSchema;
use serde_json::Value;

use crate::args::Args;
use crate::doctor::findings::Finding;
use crate::format::Done;
use crate::selftest::report::Outcome;
use crate::settings::{Checked, Shown};
use crate::top::feed::Picture;
use crate::{exit, metrics, report, status};

/// Set to write the schemas instead of comparing them.
const WRITE: &str = "LIMELIGHT_SCHEMAS";

/// The commands that print no JSON.
const WITHOUT: [&str; 3] = ["run", "completions", "man"];

fn directory() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/integrator/schema"
    ))
}

fn of<T: JsonSchema>(title: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}

/// The schemas by file name.
fn schemas() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        (
            "class-list",
            of::<Vec<AppReport>>("limelight class list --json, limelight class why --json"),
        ),
        (
            "config-check",
            of::<Checked<'_>>("limelight config check --json"),
        ),
        (
            "config-show",
            of::<Vec<Shown<'_>>>("limelight config show --json"),
        ),
        ("doctor", of::<Vec<Finding>>("limelight doctor --json")),
        (
            "done",
            of::<Done>("Commands that change something, with --json"),
        ),
        ("explain", of::<Explain>("limelight explain PID --json")),
        (
            "explain-last",
            of::<Option<Decision>>("limelight explain --last --json"),
        ),
        (
            "failure",
            of::<exit::Report>("Failure of any command with --json, on standard error"),
        ),
        (
            "history",
            of::<Vec<HistoryEntry>>("limelight history --json"),
        ),
        ("latency", of::<LatencyReport>("limelight latency --json")),
        (
            "listen",
            of::<Notice>("Each line of limelight listen --json"),
        ),
        (
            "metrics",
            of::<metrics::Samples>("limelight metrics --json"),
        ),
        ("report", of::<report::Pages>("limelight report --json")),
        ("selftest", of::<Outcome<'_>>("limelight selftest --json")),
        (
            "status",
            of::<status::Report<'_>>("limelight status --json"),
        ),
        ("top", of::<Picture>("limelight top --json")),
        (
            "window-show",
            of::<WindowStatus>("limelight window show --json"),
        ),
    ])
}

/// Asserts that a value is valid by a schema.
pub fn assert_valid(name: &str, value: &Value) {
    let validator = jsonschema::draft202012::new(&schemas()[name]).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|one| one.to_string())
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
}

#[test]
fn published_schemas_are_those_of_the_types() {
    let all = schemas();
    for (name, schema) in &all {
        let text = serde_json::to_string_pretty(schema).unwrap() + "\n";
        let file = directory().join(format!("{name}.json"));
        if std::env::var_os(WRITE).is_some() {
            fs::create_dir_all(directory()).unwrap();
            fs::write(&file, &text).unwrap();
        }
        let published = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(published, text, "{name}: run make schemas");
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{name}");
    }
    let published = fs::read_dir(directory()).unwrap();
    assert_eq!(published.count(), all.len(), "a schema without a type");
}

/// The table of commands and schemas in the documentation names each command and each schema.
#[test]
fn every_command_has_a_documented_schema() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/user/cli.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("\n## JSON\n").expect("a section JSON");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    for name in schemas().keys() {
        let link = format!("(../integrator/schema/{name}.json)");
        assert!(
            rows.iter().any(|row| row.contains(&link)),
            "no row for {name}"
        );
    }
    for command in Args::command().get_subcommands() {
        let name = command.get_name();
        let inner = command
            .get_subcommands()
            .filter(|one| one.get_name() != "help");
        let mut names: Vec<String> = inner
            .map(|one| format!("{name} {}", one.get_name()))
            .collect();
        if names.is_empty() && !WITHOUT.contains(&name) {
            names.push(name.to_owned());
        }
        for name in names {
            let cell = format!("`{name}");
            assert!(
                rows.iter().any(|row| row.contains(&cell)),
                "no row for {name}"
            );
        }
    }
}
