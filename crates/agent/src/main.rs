// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight-agent: tells limelightd which app of this session is in front, when the user waits for
//! it, and which others are seen or heard.
//!
//! One thread, one `poll()`. A [`sources::Source`] knows what the session's display server shows;
//! [`link::Link`] keeps a connection to the daemon and says it there. The claim lives as long as
//! that connection, so that a session that ends, however that happens, claims nothing any more.
//! The agent needs no privilege: the daemon takes a claim only for the caller's own processes.

mod link;
mod notify;
mod session;
mod sources;
mod uses;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tracing::level_filters::LevelFilter;

use sources::x11::X11;
use sources::Source;

/// No display server, or it went away and did not come back.
const NO_DISPLAY: u8 = 3;

/// Tell limelightd which app of this session is in front, when the user waits for it, and which
/// others are seen or heard.
///
/// Watches an X11 display, and the sound server through pactl, and keeps a connection to the
/// daemon. Runs until the display is gone. Of input it tells that there was some and when, never
/// what.
#[derive(Debug, Parser)]
#[command(
    name = "limelight-agent",
    version,
    after_help = "Exit codes: 0 done (--once); 1 failed; 2 wrong usage; 3 no display."
)]
struct Args {
    /// The X11 display, such as `:0`; without it $DISPLAY.
    #[arg(long, value_name = "DISPLAY")]
    display: Option<String>,

    /// The daemon's control socket.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/limelight/control.sock"
    )]
    socket: PathBuf,

    /// Print what is in front now as one line of JSON, and exit. The daemon is not told.
    #[arg(long)]
    once: bool,

    /// Write the manual page into a directory, which must exist, and exit.
    #[arg(long, value_name = "DIR", hide = true)]
    man: Option<PathBuf>,

    /// Tell the daemon of the focus only, not of input and frames, by which it knows response times,
    /// nor of apps that can be seen or heard beside the one in front.
    #[arg(long)]
    focus_only: bool,

    /// Show nothing on the desktop when an app is killed because memory ran short, or will be.
    #[arg(long)]
    no_notifications: bool,

    /// Log every change of focus.
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(if args.verbose {
            LevelFilter::DEBUG
        } else {
            LevelFilter::INFO
        })
        .with_target(false)
        .without_time()
        .init();
    if let Some(directory) = &args.man {
        return manual(directory);
    }
    let Some(display) = args.display.or_else(|| std::env::var("DISPLAY").ok()) else {
        tracing::error!("no display: neither --display nor $DISPLAY names an X server");
        return ExitCode::from(NO_DISPLAY);
    };
    let responses = !args.once && !args.focus_only;
    let source = match X11::connect(&display, responses) {
        Ok(source) => source,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(NO_DISPLAY);
        }
    };
    if args.once {
        return once(source);
    }
    match session::run(
        source,
        || X11::connect(&display, responses),
        match args.focus_only {
            true => uses::Uses::default(),
            false => uses::Uses::watch(&display),
        },
        (!args.no_notifications).then(notify::Notifier::default),
        link::Link::new(args.socket),
    ) {
        session::End::DisplayGone(error) => {
            tracing::error!("{error}");
            ExitCode::from(NO_DISPLAY)
        }
        session::End::Failed(error) => {
            tracing::error!("cannot wait for events: {error}");
            ExitCode::FAILURE
        }
    }
}

fn manual(directory: &Path) -> ExitCode {
    match clap_mangen::generate_to(Args::command(), directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(
                "cannot write the manual page to {}: {error}",
                directory.display()
            );
            ExitCode::FAILURE
        }
    }
}

fn once(mut source: X11) -> ExitCode {
    let seen = match source.observe() {
        Ok(seen) => seen,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(NO_DISPLAY);
        }
    };
    match serde_json::to_string(&seen) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!("cannot write JSON: {error}");
            ExitCode::FAILURE
        }
    }
}
