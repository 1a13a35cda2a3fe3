// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight: the command line of limelightd.

mod args;
mod class;
mod client;
mod configuration_manual;
mod counters;
mod decision;
mod doctor;
mod exit;
mod explain;
mod format;
mod history;
mod latency;
mod library;
mod listen;
mod manual;
mod metrics;
mod report;
mod run;
#[cfg(test)]
mod schemas;
mod selftest;
mod settings;
mod status;
mod top;

#[cfg(test)]
#[path = "../../../testing/docs/commands.rs"]
mod shown_commands;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use limelight_daemon::config::{self, Origin};
use limelight_proto::{FocusTarget, Request, Response, WindowEvent};

use args::{Args, Command, ConfigCommand, DecisionWord, WindowWord};
use client::Client;
use exit::Failure;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let mut out = Vec::new();
    let result = run(&args, &mut out);
    // A closed output (`limelight status | head -1`) is not a failure.
    let written = io::stdout()
        .write_all(&out)
        .and_then(|()| io::stdout().flush());
    match (result, written) {
        (Ok(code), _) => code,
        (Err(failure), _) => {
            match args.json {
                true => eprintln!("{}", failure.as_json()),
                false => eprintln!("limelight: {failure}"),
            }
            failure.code()
        }
    }
}

/// Prints help, the version or a usage error. A usage error is JSON if the command line asks for
/// it.
fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().skip(1).take_while(|one| one != "--");
    let json = json.into_iter().any(|one| one == "--json");
    if !error.use_stderr() || !json {
        error.exit();
    }
    let report = exit::Report::of_usage(&error.to_string());
    eprintln!("{}", serde_json::json!(report));
    ExitCode::from(exit::USAGE)
}

/// The source name of this program in requests.
const SOURCE: &str = "cli";

/// Prints the daemon's confirmation of a request.
fn acknowledged(answer: Response, json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
    match answer {
        Response::Ok { message } if json => format::json(&format::Done { message }, out),
        Response::Ok { message } => Ok(writeln!(out, "{}", format::printable(&message))?),
        other => Err(Failure::unexpected(&other)),
    }
}

/// The configuration that a command reads. A file that the user names must exist.
fn origin(file: Option<&Path>) -> Result<Origin, Failure> {
    match file {
        None => Ok(Origin::Default),
        Some(file) if file.exists() => Ok(Origin::File(file.to_owned())),
        Some(file) => Err(Failure::NotFound {
            message: format!("{} does not exist", file.display()),
            cure: "name a configuration file, or none for the one of the daemon".to_owned(),
        }),
    }
}

/// Turns the daemon's refusal into a failure.
fn expected(answer: Response) -> Result<Response, Failure> {
    match answer {
        Response::Error { .. } => Err(Failure::unexpected(&answer)),
        answer => Ok(answer),
    }
}

fn run(args: &Args, out: &mut Vec<u8>) -> Result<ExitCode, Failure> {
    let ask = |request| Client::connect(&args.socket, args.patience())?.ask(&request);
    match &args.command {
        Command::Status => match ask(Request::Status)? {
            Response::Status(status) => status::print(&status, args.json, out)?,
            other => return Err(Failure::unexpected(&other)),
        },
        Command::Explain { pid, last } => match (pid, last) {
            (Some(pid), _) => match ask(Request::Explain { pid: *pid })? {
                Response::Explain(explain) => explain::print(&explain, args.json, out)?,
                other => return Err(Failure::unexpected(&other)),
            },
            (None, last) => {
                let action = last.and_then(DecisionWord::action);
                match ask(Request::Decision { action })? {
                    Response::Decision { decision, hidden } => {
                        let hidden = hidden.as_deref();
                        decision::print(decision.as_deref(), hidden, args.json, out)?;
                    }
                    other => return Err(Failure::unexpected(&other)),
                }
            }
        },
        Command::Focus {
            pid,
            cgroup,
            none: _,
        } => {
            let target = match (pid, cgroup) {
                (Some(pid), _) => FocusTarget::Pid(*pid),
                (None, Some(path)) => FocusTarget::Cgroup(path.clone()),
                (None, None) => FocusTarget::None,
            };
            let claim = Request::Focus {
                target,
                source: SOURCE.to_owned(),
                hold: false,
            };
            acknowledged(ask(claim)?, args.json, out)?;
        }
        Command::Pause { time } => {
            let for_ms = time.map(|time| time.as_millis() as u64);
            acknowledged(ask(Request::Pause { for_ms })?, args.json, out)?;
        }
        Command::Resume => acknowledged(ask(Request::Resume)?, args.json, out)?,
        Command::Latency { app } => {
            let app = match app.as_ref().map(|word| (word, word.parse())) {
                Some((_, Ok(pid))) => match ask(Request::Explain { pid })? {
                    Response::Explain(explain) => explain.app.map(|app| app.name),
                    other => return Err(Failure::unexpected(&other)),
                },
                Some((name, Err(_))) => Some(name.clone()),
                None => None,
            };
            let name = app.clone();
            match ask(Request::Latency { app })? {
                Response::Latency(report) => {
                    latency::print(&report, name.as_deref(), args.json, out)?;
                }
                other => return Err(Failure::unexpected(&other)),
            }
        }
        Command::Class(command) => class::run(command, ask, args.json, out)?,
        Command::Listen { foreground } => {
            let client = Client::connect(&args.socket, args.patience())?;
            listen::run(client, *foreground, args.json, &mut io::stdout().lock())?;
        }
        Command::History { entries, last } => match ask(Request::History {
            last: last.unwrap_or(*entries),
        })? {
            Response::History {
                entries,
                paused,
                hidden,
            } => {
                let hidden = hidden.as_deref();
                history::print(&entries, paused.as_ref(), hidden, args.json, out)?;
            }
            other => return Err(Failure::unexpected(&other)),
        },
        Command::Window {
            event: WindowWord::Show,
            ..
        } => match ask(Request::Status)? {
            Response::Status(status) => status::print_window(&status.window, args.json, out)?,
            other => return Err(Failure::unexpected(&other)),
        },
        Command::Window { event, pid } => {
            let report = Request::Window {
                event: match event {
                    WindowWord::Open | WindowWord::Show => WindowEvent::Open,
                    WindowWord::Close => WindowEvent::Close,
                },
                at_us: None,
                pid: *pid,
                source: SOURCE.to_owned(),
            };
            acknowledged(ask(report)?, args.json, out)?;
        }
        Command::Top {
            once,
            interval,
            no_mouse,
        } => {
            let wishes = top::Wishes {
                once: *once,
                interval: Duration::from_secs(*interval),
                mouse: !no_mouse,
            };
            let paper = format::Paper::stdout(args.no_color);
            let patience = args.patience();
            top::run(&args.socket, patience, &wishes, args.json, &paper, out)?;
        }
        Command::Doctor { pid, all, strict } => {
            let proc = |pid: &i32| !Path::new(&format!("/proc/{pid}")).exists();
            if let Some(pid) = pid.filter(proc) {
                return Err(Failure::NotFound {
                    message: format!("there is no process {pid}"),
                    cure: "limelight class list shows the apps and their pids".to_owned(),
                });
            }
            let machine = doctor::Machine::running(&args.socket, args.patience(), *pid);
            let report = doctor::examine(&machine);
            let paper = format::Paper::stdout(args.no_color);
            doctor::print(&report, *all, args.json, &paper, out)?;
            return Ok(ExitCode::from(report.exit_code(*strict)));
        }
        Command::Run {
            premap,
            class,
            no_scope,
            inside,
            program,
        } => {
            let wish = run::Wish {
                premap: *premap,
                class: *class,
                scope: !no_scope && !inside,
                socket: &args.socket,
            };
            if let (Some(class), true) = (class, *inside) {
                let pid = std::process::id() as i32;
                let class = Some(*class);
                match ask(Request::Class {
                    pid,
                    class,
                    save: false,
                })? {
                    Response::Ok { .. } => {}
                    other => return Err(Failure::unexpected(&other)),
                }
            }
            run::become_program(&wish, program)?;
        }
        Command::Selftest {
            directory,
            limit,
            role,
            argument,
        } => {
            let wish = selftest::Wish {
                directory: directory.as_deref(),
                socket: &args.socket,
                patience: args.patience(),
                limit: Duration::from_secs(*limit),
                json: args.json,
            };
            let shown = selftest::run(&wish, *role, argument.as_deref(), out)?;
            return Ok(ExitCode::from(if shown { 0 } else { exit::TROUBLE }));
        }
        Command::Report { output, apps } => {
            let wish = report::Wish {
                output: output.as_deref(),
                apps: *apps,
                socket: &args.socket,
                patience: args.patience(),
                json: args.json,
            };
            report::run(&wish, out)?;
        }
        Command::Metrics { output } => {
            let mut client = Client::connect(&args.socket, args.patience())?;
            let mut ask = |request| client.ask(&request);
            let Response::Status(status) = expected(ask(Request::Status)?)? else {
                return Err(Failure::another_version());
            };
            let Response::Apps { apps, .. } = expected(ask(Request::Apps { pid: None })?)? else {
                return Err(Failure::another_version());
            };
            let Response::Latency(latency) = expected(ask(Request::Latency { app: None })?)? else {
                return Err(Failure::another_version());
            };
            let seen = metrics::Seen {
                status: &status,
                apps: &apps,
                latency: &latency,
                kernel: &counters::kernel(),
            };
            metrics::print(&seen, output.as_deref(), args.json, out)?;
        }
        Command::Config(ConfigCommand::Check { file }) => {
            let origin = origin(file.as_deref())?;
            let (mut mistakes, warnings) = match config::load_with_warnings(&origin) {
                Ok((_, warnings)) => (Vec::new(), warnings),
                Err(errors) => (errors.0, Vec::new()),
            };
            if file.is_none() {
                mistakes.extend(settings::of_user().err().map_or(Vec::new(), |all| all.0));
            }
            settings::mistakes(&mistakes, &warnings, args.json, out)?;
        }
        Command::Config(ConfigCommand::Show { file }) => {
            let origin = origin(file.as_deref())?;
            let values = config::values(&origin);
            let mut values = values.map_err(|errors| Failure::Other(errors.to_string()))?;
            if file.is_none() {
                let own = settings::of_user();
                values.extend(own.map_err(|errors| Failure::Other(errors.to_string()))?);
            }
            settings::print(&values, args.json, out)?;
        }
        Command::Completions { shell } => manual::completions(*shell, out),
        Command::Man {
            configuration,
            directory,
        } => match configuration {
            true => configuration_manual::write(directory)?,
            false => manual::write(directory)?,
        },
    }
    Ok(ExitCode::SUCCESS)
}
