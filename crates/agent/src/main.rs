// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight-agent: reports to limelightd the session's foreground app, the times when the user
//! waits for it, and which other apps are visible or audible.
//!
//! One thread with one `poll()` does all the work, except that zbus receives bus messages in a
//! thread of its own, and that notifications are shown by threads of their own. A [`sources::Source`] knows what has the focus; [`sources::pick`] selects one
//! that works here; [`daemon_client::Link`] keeps a connection to the daemon and sends reports. The
//! claim ends with that connection, so an ended session claims nothing. The agent needs no
//! privilege: the daemon accepts claims only for the caller's own processes.

mod daemon_client;
mod notify;
mod own_rules;
mod questions;
mod report;
mod scopes;
mod session;
mod sources;
mod uses;

use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{CommandFactory, Parser};
use tracing::level_filters::LevelFilter;

use sources::environment::{self, Environment};
use sources::pick::{self, Pick};

/// Exit code if no source of the focus works, or if the source went away.
const NO_DISPLAY: u8 = 3;

/// Report to limelightd which app of this session is in the foreground, when the user waits for it,
/// and which other apps are visible or audible.
///
/// Queries the session's compositor or X server, and the sound server, and keeps a connection to
/// the daemon. Runs until the session's display is gone. Reports the time of input,
/// never its content.
#[derive(Debug, Parser)]
#[command(
    name = "limelight-agent",
    version,
    after_help = "Exit codes: 0 done (--once, --explain); 1 failed; 2 wrong usage; 3 no display."
)]
struct Args {
    /// Use this X11 display, such as `:0`, and no compositor. Default: the displays that the
    /// environment names.
    #[arg(long, value_name = "DISPLAY")]
    display: Option<String>,

    /// Use only this source, instead of the first one that works.
    #[arg(long, value_name = "NAME", value_parser = source_names())]
    source: Option<String>,

    /// The daemon's control socket.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/limelight/control.sock"
    )]
    socket: PathBuf,

    /// Print the foreground app as one line of JSON, and exit without a report to the daemon.
    #[arg(long)]
    once: bool,

    /// Print which source would be used here and why the sources before it were skipped, and exit
    /// without a report to the daemon.
    #[arg(long, conflicts_with = "once")]
    explain: bool,

    /// Wait for a display without a time limit, and for the next one when a display goes away.
    #[arg(long)]
    stay: bool,

    /// Write the manual page into a directory, which must exist, and exit.
    #[arg(long, value_name = "DIR", hide = true)]
    man: Option<PathBuf>,

    /// Report only the focus. Without input and frames, the daemon knows no response times; visible
    /// and audible background apps are not reported either.
    #[arg(long)]
    focus_only: bool,

    /// Leave apps that share a cgroup where they are, whatever the daemon's configuration says.
    #[arg(long)]
    no_own_scopes: bool,

    /// Show no desktop notification when an app is killed, or will be killed, because memory is
    /// short.
    #[arg(long)]
    no_notifications: bool,

    /// Log every change of focus.
    #[arg(long, short)]
    verbose: bool,
}

fn source_names() -> clap::builder::PossibleValuesParser {
    pick::KINDS.map(|kind| kind.name).into()
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
    // A display given on the command line selects the source x11.
    let wanted = match (&args.source, &args.display) {
        (None, Some(_)) => Some("x11".to_owned()),
        (source, _) => source.clone(),
    };
    let (responses, display) = (
        !args.once && !args.explain && !args.focus_only,
        args.display,
    );
    let stay = args.stay;
    let find = move || {
        let search = |mut environment: Environment| {
            environment.responses = responses;
            if display.is_some() {
                environment.wayland = None;
            }
            let pick = pick::pick(&environment, wanted.as_deref());
            (environment, pick)
        };
        let named = Environment::of_process(display.as_deref());
        let (named, pick) = search(named);
        if pick.source.is_some() || display.is_some() {
            return (named, pick);
        }
        if stay {
            restart_with_news();
        }
        let (found, other) = search(named.clone().look_around());
        match other.source {
            Some(_) => (found, other),
            None => (named, pick),
        }
    };
    let (environment, pick) = find();
    if args.explain {
        return explain(&environment, pick);
    }
    if pick.source.is_none() && (args.once || !args.stay) {
        for one in &pick.passed_over {
            tracing::error!("skipped {}: {}", one.name, one.why);
        }
        return ExitCode::from(NO_DISPLAY);
    }
    if args.once {
        return once(pick);
    }
    let session = session::Session {
        find: Box::new(find),
        stay: args.stay,
        watch_uses: !args.focus_only,
        notifier: notifier(args.no_notifications),
        scopes: (!args.no_own_scopes).then(scopes::Scopes::default),
        rules: own_rules::OwnRules::new(limelight_sys::user_config::path()),
        link: daemon_client::Link::new(args.socket),
    };
    match session::run(session, environment, pick) {
        session::End::SourceGone => {
            tracing::error!("no source of the focus appeared in time");
            ExitCode::from(NO_DISPLAY)
        }
        session::End::Failed(error) => {
            tracing::error!("cannot wait for events: {error}");
            ExitCode::FAILURE
        }
    }
}

fn notifier(off: bool) -> Option<notify::Notifier> {
    if off {
        return None;
    }
    let started = notify::Notifier::start();
    if let Err(error) = &started {
        tracing::error!("no notifications are shown: cannot start a thread: {error}");
    }
    started.ok()
}

/// The sections of the manual page that the definition of the command line does not give.
const FURTHER_SECTIONS: &str = r#".SH EXAMPLES
.TP
\fBlimelight\-agent \-\-explain\fR
Print which source of the focus works in this session, and why others do not.
.TP
\fBlimelight\-agent \-\-once\fR
Print the foreground app as JSON.
.TP
\fBsystemctl \-\-user enable \-\-now limelight\-agent\fR
Start the agent now and with each session.
.SH "EXIT STATUS"
.TP
\fB0\fR
Done (\fB\-\-once\fR, \fB\-\-explain\fR).
.TP
\fB1\fR
Failed.
.TP
\fB2\fR
Wrong usage.
.TP
\fB3\fR
No display.
.SH FILES
.TP
\fI/run/limelight/control.sock\fR
The daemon's control socket.
.TP
\fI~/.config/limelight/limelight.toml\fR
The user's own exceptions (section [never]), which the agent sends to the daemon. They are read again
when the focus changes.
.TP
\fI/usr/share/doc/limelight/docs/integrator/agent.md\fR
The sources of the focus, several sessions, one scope per app.
.SH "SEE ALSO"
\fBlimelight\fR(1), \fBlimelightd\fR(8)
"#;

fn manual(directory: &Path) -> ExitCode {
    let page = directory.join("limelight-agent.1");
    let write = || -> std::io::Result<()> {
        clap_mangen::generate_to(Args::command(), directory)?;
        // clap_mangen's title for the text after the options is not one of manual pages.
        let text = std::fs::read_to_string(&page)?.replace(".SH EXTRA\n", ".SH NOTES\n");
        std::fs::write(&page, text + FURTHER_SECTIONS)
    };
    match write() {
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

/// Restarts this program with the display variables that desktops have set in the user's systemd
/// since this program was started, if there are any. There is no state to lose.
fn restart_with_news() {
    let news = environment::news_of_manager();
    if news.is_empty() {
        return;
    }
    let arguments = std::env::args_os().skip(1);
    let error = Command::new("/proc/self/exe")
        .args(arguments)
        .envs(news)
        .exec();
    tracing::warn!("cannot restart with the session's environment: {error}; going on without it");
}

fn explain(environment: &Environment, pick: Pick) -> ExitCode {
    let origin = match environment.found {
        true => "found in the runtime directory",
        false => "named by the environment",
    };
    println!("displays {origin}");
    for one in &pick.passed_over {
        println!("skipped {}: {}", one.name, one.why);
    }
    match pick.source {
        Some(source) => {
            println!("{}: {}", source.name(), source.detail());
            ExitCode::SUCCESS
        }
        None => ExitCode::from(NO_DISPLAY),
    }
}

fn once(pick: Pick) -> ExitCode {
    let Some(mut source) = pick.source else {
        return ExitCode::from(NO_DISPLAY);
    };
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

#[cfg(test)]
#[path = "../../../testing/docs/commands.rs"]
mod shown_commands;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_in_the_documentation_are_valid() {
        shown_commands::assert_valid(&Args::command(), 5);
    }

    #[test]
    fn manual_has_all_sections() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(manual(dir.path()), ExitCode::SUCCESS);
        let page = std::fs::read_to_string(dir.path().join("limelight-agent.1")).unwrap();
        for section in [
            "OPTIONS",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "FILES",
            "\"SEE ALSO\"",
        ] {
            assert!(
                page.contains(&format!(".SH {section}\n")),
                "{section}: {page}"
            );
        }
    }

    #[test]
    fn completions_have_every_option() {
        let scripts = [
            include_str!("../../../packaging/completions/limelight-agent.bash"),
            include_str!("../../../packaging/completions/limelight-agent.zsh"),
            include_str!("../../../packaging/completions/limelight-agent.fish"),
        ];
        for option in Args::command()
            .get_arguments()
            .filter(|one| !one.is_hide_set())
        {
            let name = option.get_long().expect("every option has a long name");
            for script in scripts {
                let known = [format!("--{name}"), format!("-l {name} ")];
                assert!(
                    known.iter().any(|known| script.contains(known)),
                    "{name}: {script}"
                );
            }
        }
        for kind in pick::KINDS {
            assert!(
                scripts.iter().all(|script| script.contains(kind.name)),
                "{}",
                kind.name
            );
        }
    }
}
