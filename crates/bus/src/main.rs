// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight-bus: limelightd on the system's message bus, for shells, indicators and other programs
//! that speak D-Bus.
//!
//! The daemon itself does not use the bus, so that it neither waits for it nor needs it. This
//! program is a client of the daemon's control socket. It passes each call on with the rights of
//! the caller ([`limelight_proto::Request::Become`]), so the daemon decides what the caller may see
//! and do. polkit can only allow more ([`polkit`]). While nothing happens, no thread wakes up.

mod caller;
mod daemon;
mod follow;
mod monitor;
mod polkit;
mod service;
mod subscribers;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use zbus::blocking::fdo::DBusProxy;
use zbus::blocking::{connection, Connection, MessageIterator};
use zbus::message::Type;

use monitor::{Monitor, MONITOR_PATH};
use service::{Service, NAME, PATH};
use subscribers::Subscribers;

/// Offer limelightd on the system's message bus, as org.limelight.Limelight1.
///
/// Shows the foreground app, the apps and their classes to their owner, and pauses and resumes
/// limelightd. Each call has the rights that its caller has with limelight(1); polkit may grant
/// more. Unless another program does so, it also sends the warnings of
/// org.freedesktop.LowMemoryMonitor when memory is short. limelightd works without this program.
#[derive(Debug, Parser)]
#[command(
    name = "limelight-bus",
    version,
    after_help = "Exit codes: 1 failed, or the bus closed the connection; 2 wrong usage."
)]
struct Args {
    /// The daemon's control socket.
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/limelight/control.sock"
    )]
    socket: PathBuf,

    /// Do not send the warnings of org.freedesktop.LowMemoryMonitor.
    #[arg(long)]
    no_memory_monitor: bool,

    /// Write the manual page into a directory, which must exist, and exit.
    #[arg(long, value_name = "DIR", hide = true)]
    man: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .init();
    if let Some(directory) = &args.man {
        return manual(directory);
    }
    match run(&args) {
        Ok(()) => tracing::error!("the bus closed the connection"),
        Err(error) => tracing::error!("cannot use the bus: {error}"),
    }
    ExitCode::FAILURE
}

/// Sections of the manual page that clap does not know.
const FURTHER_SECTIONS: &str = r#".SH EXAMPLES
.TP
\fBbusctl call org.limelight.Limelight1 /org/limelight/Limelight1 org.limelight.Limelight1 GetForeground\fR
Show the foreground app.
.TP
\fBbusctl monitor org.limelight.Limelight1\fR
Show calls and signals.
.SH "EXIT STATUS"
.TP
\fB0\fR
The manual page was written (\fB\-\-man\fR).
.TP
\fB1\fR
The bus cannot be used, or has closed the connection.
.TP
\fB2\fR
Wrong usage.
.SH FILES
.TP
\fI/run/limelight/control.sock\fR
The daemon's control socket.
.TP
\fI/usr/share/doc/limelight/docs/integrator/dbus.md\fR
Methods, signals and rights.
.SH "SEE ALSO"
\fBlimelight\fR(1), \fBlimelightd\fR(8)
"#;

fn manual(directory: &Path) -> ExitCode {
    let page = clap_mangen::Man::new(Args::command()).section("8");
    let path = directory.join("limelight-bus.8");
    let mut text = Vec::new();
    let written = page.render(&mut text).and_then(|()| {
        // clap_mangen's title for the text after the options is not one of manual pages.
        let text = String::from_utf8_lossy(&text).replace(".SH EXTRA\n", ".SH NOTES\n");
        std::fs::write(&path, text + FURTHER_SECTIONS)
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("cannot write {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Serves until the bus closes the connection.
fn run(args: &Args) -> zbus::Result<()> {
    let subscribers = Arc::new(Subscribers::new(args.socket.clone()));
    let service = Service::new(args.socket.clone(), Arc::clone(&subscribers));
    let bus = connection::Builder::system()?
        .serve_at(PATH, service)?
        .serve_at(MONITOR_PATH, Monitor)?
        .build()?;
    // Before the name is there, so that no subscriber can leave unnoticed.
    let messages = MessageIterator::from(&bus);
    let calls = DBusProxy::new(&bus)?;
    let mut monitor = match args.no_memory_monitor {
        true => None,
        false => monitor::start(&bus, &calls, &args.socket)?,
    };
    bus.request_name(NAME)?;
    tracing::info!("ready: {NAME}");
    for message in messages {
        let message = message?;
        let header = message.header();
        let from_bus = header
            .sender()
            .is_some_and(|sender| sender.as_str() == "org.freedesktop.DBus");
        if message.message_type() != Type::Signal || !from_bus {
            continue;
        }
        match header.member().map(|member| member.as_str()) {
            Some("NameOwnerChanged") => {
                let changed = message.body().deserialize::<(String, String, String)>();
                if let Some((name, _, _)) = changed.ok().filter(|(_, _, new)| new.is_empty()) {
                    leave(&bus, &subscribers, &name);
                }
            }
            Some("NameLost") => {
                let lost = message.body().deserialize::<String>();
                if lost.is_ok_and(|name| name == monitor::MONITOR) && monitor.take().is_some() {
                    tracing::info!("another program took {}", monitor::MONITOR);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn leave(bus: &Connection, subscribers: &Subscribers, name: &str) {
    if subscribers.remove(name) {
        subscribers::stop_watching(bus, name);
    }
}
