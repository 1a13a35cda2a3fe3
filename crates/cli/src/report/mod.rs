// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelight report`: one file for a bug report, without private data.

mod machine;
mod scrub;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use limelight_daemon::config::{self, Origin, Value};
use limelight_proto::{
    AppReport, AppStatus, Decision, HistoryEntry, LatencyReport, Request, Response, Status,
};
use serde::Serialize;

use self::scrub::Scrubber;
use crate::client::Client;
use crate::exit::Failure;
use crate::format::{self, Paper};
use crate::{counters, decision, doctor, history, metrics, settings, status};

/// Number of past actions in the report.
const HISTORY: u16 = 40;
/// Paper for text in a file.
const PLAIN: Paper = Paper {
    width: None,
    colour: false,
};

/// What the user wants.
#[derive(Debug)]
pub struct Wish<'a> {
    /// The file to write; `None`: standard output.
    pub output: Option<&'a Path>,
    /// Whether apps are named by their ids.
    pub apps: bool,
    /// The daemon's control socket.
    pub socket: &'a Path,
    /// Timeout for each of the daemon's answers.
    pub patience: Duration,
    /// Whether to print JSON.
    pub json: bool,
}

/// The daemon's answers.
#[derive(Debug)]
struct Answers {
    status: Box<Status>,
    apps: Vec<AppReport>,
    latency: LatencyReport,
    history: Vec<HistoryEntry>,
    decision: Option<Box<Decision>>,
}

/// Everything that the report is made of, private data included.
#[derive(Debug)]
struct Facts {
    machine: Vec<String>,
    units: Vec<String>,
    config: Result<Vec<Value>, String>,
    doctor: String,
    answers: Result<Answers, String>,
    log: Result<String, String>,
}

/// A part of the report.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Section {
    /// Title.
    title: &'static str,
    /// Contents, without private data.
    text: String,
}

/// The report, as `limelight report --json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pages {
    /// What the report contains, and what it does not.
    about: String,
    sections: Vec<Section>,
}

/// Collects the facts, removes private data, and writes the report. Works without the daemon.
pub fn run(wish: &Wish, out: &mut Vec<u8>) -> Result<(), Failure> {
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut scrubber = Scrubber::new(wish.apps);
    machine::private_names(Path::new("/"), &environment, &mut scrubber);
    let machine = doctor::Machine::running(wish.socket, wish.patience, None);
    let mut doctor = Vec::new();
    doctor::print(&doctor::examine(&machine), true, false, &PLAIN, &mut doctor)?;
    let facts = Facts {
        machine: machine::facts(Path::new("/"), &environment),
        units: machine::units(),
        config: config::values(&Origin::Default).map_err(|errors| errors.to_string()),
        doctor: String::from_utf8_lossy(&doctor).into_owned(),
        answers: ask(wish).map_err(|failure| failure.to_string()),
        log: machine::log(),
    };
    let sections = sections(&facts, scrubber, wish.apps)?;
    let about = about(wish.apps);
    let mut text = Vec::new();
    match wish.json {
        true => {
            format::json(&Pages { about, sections }, &mut text)?;
        }
        false => {
            writeln!(text, "{about}")?;
            for section in &sections {
                writeln!(
                    text,
                    "\n== {}\n\n{}",
                    section.title,
                    section.text.trim_end()
                )?;
            }
        }
    }
    let Some(file) = wish.output else {
        return Ok(out.write_all(&text)?);
    };
    write(file, &text).map_err(|error| Failure::Curable {
        message: format!("cannot write {}: {error}", file.display()),
        cure: "name a file in a directory that you may write to".to_owned(),
    })?;
    let message = format!("{} written; read it before you post it", file.display());
    match wish.json {
        true => format::json(&format::Done { message }, out),
        false => Ok(writeln!(out, "{message}")?),
    }
}

/// Writes the file. Only its owner may read a new file.
fn write(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(file)?.write_all(text)
}

/// The text at the top: what the report contains.
fn about(apps: bool) -> String {
    let named = match apps {
        true => "It names apps by their ids (--apps).",
        false => "Apps are numbered, not named; --apps adds their ids.",
    };
    format!(
        "Report of limelight {} for a bug report.\n\
         \n\
         It contains: versions, the distribution, the kernel and its settings for memory; the\n\
         configuration with its origins; doctor's findings; the daemon's state, metrics and last\n\
         decisions about memory; facts about cgroups; the last lines of the daemon's log.\n\
         It contains no titles of windows, no names of documents, and no arguments of programs.\n\
         Names of users and of this machine, and paths of files, are replaced.\n\
         {named}\n\
         Read it before you post it.",
        env!("CARGO_PKG_VERSION")
    )
}

fn ask(wish: &Wish) -> Result<Answers, Failure> {
    let mut client = Client::connect(wish.socket, wish.patience)?;
    let mut ask = |request| match client.ask(&request)? {
        answer @ Response::Error { .. } => Err(Failure::unexpected(&answer)),
        answer => Ok(answer),
    };
    let Response::Status(status) = ask(Request::Status)? else {
        return Err(Failure::another_version());
    };
    let Response::Apps { apps, .. } = ask(Request::Apps { pid: None })? else {
        return Err(Failure::another_version());
    };
    let Response::Latency(latency) = ask(Request::Latency { app: None })? else {
        return Err(Failure::another_version());
    };
    let Response::History { entries, .. } = ask(Request::History { last: HISTORY })? else {
        return Err(Failure::another_version());
    };
    let Response::Decision { decision, .. } = ask(Request::Decision { action: None })? else {
        return Err(Failure::another_version());
    };
    Ok(Answers {
        status,
        apps,
        latency,
        history: entries,
        decision,
    })
}

/// Adds the names of all apps to the scrubber. `ids`: apps are named by their ids where they have
/// one, instead of by numbers.
fn name_apps(answers: &Answers, ids: bool, scrubber: &mut Scrubber) {
    let mut number = 0;
    let mut next = || {
        number += 1;
        format!("app-{number}")
    };
    for app in &answers.apps {
        let id = app.desktop_id.clone().or_else(|| app.package.clone());
        let replacement = match id.filter(|_| ids) {
            Some(id) => format!("{}<{}>", next(), format::printable(&id)),
            None => next(),
        };
        let file = app
            .executable
            .as_deref()
            .and_then(|path| path.rsplit('/').next());
        let names = [Some(app.app.name.as_str()), file];
        names
            .into_iter()
            .flatten()
            .for_each(|name| scrubber.name(name, &replacement));
        if !ids {
            let names = [&app.desktop_id, &app.package];
            names
                .into_iter()
                .flatten()
                .for_each(|name| scrubber.name(name, &replacement));
        }
    }
    let status = &answers.status;
    let front = status.topmost.as_ref().map(|topmost| &topmost.app);
    let ended = answers
        .history
        .iter()
        .filter_map(|entry| entry.app.as_ref());
    let weighed = answers
        .decision
        .iter()
        .flat_map(|decision| &decision.weighed);
    let named = front.into_iter().chain(&status.previous).chain(ended);
    let named = named.chain(weighed.map(|weighed| &weighed.app));
    let named = named.map(|app: &AppStatus| app.name.as_str());
    let answering = answers.latency.apps.iter().map(|app| app.name.as_str());
    let answering = answering.chain(status.window.topmost.iter().map(|app| app.name.as_str()));
    let waiting = status.window.open.iter().map(|open| open.app.as_str());
    for name in named.chain(answering).chain(waiting) {
        scrubber.name(name, &next());
    }
}

/// The metrics, without quotes around the values of labels, because the scrubber removes quoted
/// texts. Only labels contain names, and Prometheus escapes them: they are removed beforehand.
fn counted(answers: &Answers) -> Result<String, Failure> {
    let mut status = answers.status.clone();
    status.topmost = None;
    let mut latency = answers.latency.clone();
    for (number, app) in latency.apps.iter_mut().enumerate() {
        app.name = (number + 1).to_string();
    }
    let seen = metrics::Seen {
        status: &status,
        apps: &answers.apps,
        latency: &latency,
        kernel: &counters::kernel(),
    };
    Ok(metrics::text(&seen)?.replace('"', ""))
}

/// The sections of the report, without private data.
fn sections(facts: &Facts, mut scrubber: Scrubber, apps: bool) -> Result<Vec<Section>, Failure> {
    if let Ok(answers) = &facts.answers {
        name_apps(answers, apps, &mut scrubber);
    }
    let mut machine = facts.machine.clone();
    machine.extend(facts.units.iter().cloned());
    let mut sections = Vec::new();
    let mut add = |title, text: &str| {
        let text = scrubber.text(text);
        sections.push(Section { title, text });
    };
    add("machine", &machine.join("\n"));
    add("configuration", &configuration(&facts.config, apps)?);
    add("doctor", &facts.doctor);
    match &facts.answers {
        Err(why) => add("daemon", why),
        Ok(answers) => {
            let mut text = Vec::new();
            status::print(&answers.status, false, &mut text)?;
            add("status", &String::from_utf8_lossy(&text));
            add("apps", &listed(&answers.apps));
            let mut text = Vec::new();
            history::print(&answers.history, None, None, false, &mut text)?;
            add("history", &String::from_utf8_lossy(&text));
            let mut text = Vec::new();
            decision::print(answers.decision.as_deref(), None, false, &mut text)?;
            add("last decision", &String::from_utf8_lossy(&text));
            add("metrics", &counted(answers)?);
        }
    }
    match &facts.log {
        Ok(log) => add("log of limelightd", log),
        Err(why) => add("log of limelightd", why),
    }
    Ok(sections)
}

/// The configuration. Lists, which name apps, are counted unless apps are named.
fn configuration(values: &Result<Vec<Value>, String>, apps: bool) -> Result<String, Failure> {
    let values = match values {
        Ok(values) => values,
        Err(why) => return Ok(why.clone()),
    };
    let shown = |value: &Value| {
        let mut value = value.clone();
        let list = value.value.as_ref().filter(|text| text.starts_with('['));
        if let (Some(list), false) = (list, apps) {
            let entries = list.matches('"').count() / 2;
            value.value = Some(format::count(entries as u64, "entry", "entries"));
        }
        // The scrubber removes quoted texts.
        value.value = value.value.map(|text| text.replace('"', ""));
        value
    };
    let values: Vec<Value> = values.iter().map(shown).collect();
    let mut text = Vec::new();
    settings::print(&values, false, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One line for each app: its name, its class and its memory.
fn listed(apps: &[AppReport]) -> String {
    let line = |app: &AppReport| {
        let uses: Vec<&str> = app.uses.iter().map(|what| what.clause()).collect();
        format!(
            "{}: {}, {}, swapped {}, {}, used: {}, own cgroup: {}, untouchable: {}",
            format::app(&app.app),
            app.class,
            format::bytes(app.resident),
            format::bytes(app.swapped),
            format::count(app.processes.into(), "process", "processes"),
            match uses.is_empty() {
                true => "no".to_owned(),
                false => uses.join(" and "),
            },
            app.app.own_cgroup,
            app.untouchable.as_deref().unwrap_or("no"),
        )
    };
    apps.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(crate) mod tests;
