// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelightd`'s command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use limelight_daemon::config::{self, Origin};
use limelight_daemon::event_loop::{Daemon, Options};
use limelight_daemon::exit::{Failure, TABLE};
use limelight_daemon::log;
use limelight_daemon::restore::put_back;
use limelight_daemon::restore::watcher::{self, watch};
use limelight_daemon::system::Roots;

/// Keeps the foreground app fast while memory runs short.
///
/// Does not detach from the terminal. Logs to standard error or the journal. When it is stopped, it
/// puts back everything that it changed. SIGHUP reloads the configuration.
#[derive(Debug, Parser)]
#[command(name = "limelightd", version, after_help = TABLE)]
struct Arguments {
    /// Read this configuration and no drop-ins, instead of /etc/limelight/limelight.toml and
    /// /etc/limelight/limelight.toml.d/*.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Plan and explain, but change nothing
    #[arg(long)]
    dry_run: bool,

    /// Check the configuration and exit
    #[arg(long, conflicts_with_all = ["dry_run", "restore"])]
    check_config: bool,

    /// Put back what a dead limelightd left changed, and exit
    #[arg(long, conflicts_with = "dry_run")]
    restore: bool,

    /// Directory of the control socket, the restore record and the lock
    #[arg(long, value_name = "DIR", default_value = limelight_proto::RUNTIME_DIR)]
    runtime_dir: PathBuf,
}

fn main() -> ExitCode {
    // The watcher lives as long as the daemon, so it branches off before the process uses more
    // memory.
    let ended = match watcher::runtime_of(std::env::args_os()) {
        Some(runtime) => watch(roots(runtime)),
        None => {
            let arguments = Arguments::parse();
            log::start();
            run(arguments)
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::error_lines(&failure.to_string());
            ExitCode::from(&failure)
        }
    }
}

fn roots(runtime: PathBuf) -> Roots {
    Roots {
        runtime,
        ..Roots::default()
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let origin = arguments.config.map_or(Origin::Default, Origin::File);
    let roots = roots(arguments.runtime_dir);
    if arguments.check_config {
        let (_, warnings) = config::load_with_warnings(&origin)?;
        for warning in warnings {
            println!("warning: {warning}");
        }
        println!("the configuration is valid");
        return Ok(());
    }
    if arguments.restore {
        return put_back(roots);
    }
    let options = Options {
        config: origin,
        dry_run: arguments.dry_run,
        watcher: Some(watcher::SELF.into()),
        roots,
    };
    Daemon::start(options)?.run()
}

#[cfg(test)]
#[path = "../../../testing/docs/commands.rs"]
mod shown_commands;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_lines_in_the_documentation_are_valid() {
        shown_commands::assert_valid(&Arguments::command(), 10);
    }

    #[test]
    fn completions_have_every_option() {
        let scripts = [
            include_str!("../../../packaging/completions/limelightd.bash"),
            include_str!("../../../packaging/completions/limelightd.zsh"),
            include_str!("../../../packaging/completions/limelightd.fish"),
        ];
        for option in Arguments::command().get_arguments() {
            let name = option.get_long().expect("every option has a long name");
            for script in scripts {
                let known = [format!("--{name}"), format!("-l {name} ")];
                assert!(
                    known.iter().any(|known| script.contains(known)),
                    "{name}: {script}"
                );
            }
        }
    }
}
