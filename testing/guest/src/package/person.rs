// SPDX-License-Identifier: GPL-2.0-or-later
//! The user who moves the focus, and the user's apps.

use std::path::Path;
use std::process::Command;

use anyhow::{bail, Result};

use super::{AGENT, PROGRAM};
use crate::cgroup;
use crate::gnome::Gnome;
use crate::guest_setup;
use crate::handover::USER;
use crate::process::{named, run as run_program, Process, Start};
use crate::record::Reporter;
use crate::scenario::Desktop;
use crate::sway::{Sway, Window};

/// The apps: app ID in the compositor, and command.
pub const APPS: [(&str, &str); 3] = [
    ("foot", "foot"),
    ("galculator", "galculator"),
    ("mousepad", "mousepad --disable-server"),
];
/// The desktop entries of [`APPS`].
const ENTRIES: [&str; 3] = [
    "foot.desktop",
    "galculator.desktop",
    "org.xfce.mousepad.desktop",
];

/// The user who moves the focus.
pub(super) enum Person {
    /// A user in a sway session; the agent reports the focus.
    Sway(Box<Sway>),
    /// A user in a GNOME session; the agent reports the focus.
    Gnome(Gnome),
    /// Root without a session, who reports the focus with `limelight focus`. Holds the apps'
    /// processes.
    Root(Vec<Process>),
}

/// An app that can get the focus.
#[derive(Debug, Clone)]
pub(super) struct App {
    pub(super) pid: i32,
    pub(super) name: String,
    /// The app's window in a sway session.
    window: Option<Window>,
}

impl Person {
    pub(super) fn start(desktop: Option<Desktop>) -> Result<(Person, Vec<App>)> {
        match desktop {
            None => Person::start_root(),
            Some(Desktop::Sway) => Person::start_sway(),
            Some(Desktop::Gnome) => Person::start_gnome(),
        }
    }

    fn start_sway() -> Result<(Person, Vec<App>)> {
        let mut sway = Sway::start()?;
        let mut apps = Vec::new();
        for (name, command) in APPS {
            let window = sway.launch(name, command)?;
            apps.push(App {
                pid: window.pid,
                name: name.to_owned(),
                window: Some(window),
            });
        }
        Ok((Person::Sway(Box::new(sway)), apps))
    }

    fn start_gnome() -> Result<(Person, Vec<App>)> {
        let gnome = Gnome::start()?;
        let mut apps = Vec::new();
        for ((name, _), entry) in APPS.into_iter().zip(ENTRIES) {
            apps.push(App {
                pid: gnome.launch(entry, name)?,
                name: name.to_owned(),
                window: None,
            });
        }
        Ok((Person::Gnome(gnome), apps))
    }

    fn start_root() -> Result<(Person, Vec<App>)> {
        let (mut processes, mut apps) = (Vec::new(), Vec::new());
        for (name, _) in APPS {
            let mut command = Command::new("/usr/bin/systemd-run");
            command
                .args(["--quiet", "--scope", "--slice=app.slice"])
                .arg(format!("--unit=app-{name}-1.scope"))
                .args(["/bin/sleep", "infinity"]);
            let process = Start::PLAIN.program(command, name)?;
            let scope = Path::new(cgroup::ROOT).join(format!("app.slice/app-{name}-1.scope"));
            // systemd-run moves to the scope and executes the program there, with the same PID.
            if !guest_setup::wait(|| Ok(cgroup::of(process.pid())? == scope))? {
                bail!("{} has not appeared", scope.display());
            }
            apps.push(App {
                pid: process.pid(),
                name: name.to_owned(),
                window: None,
            });
            processes.push(process);
        }
        Ok((Person::Root(processes), apps))
    }

    pub(super) fn focus(&mut self, app: &App) -> Result<()> {
        match (self, &app.window) {
            (Person::Sway(sway), Some(window)) => sway.focus(window),
            (Person::Gnome(gnome), _) => gnome.focus(app.pid),
            _ => {
                let (code, text) = run_program(PROGRAM, &["focus", &app.pid.to_string()])?;
                if code != 0 {
                    bail!("limelight focus {} exited with {code}: {text}", app.pid);
                }
                Ok(())
            }
        }
    }

    /// Stops the session's own periodic activity, so that the machine is idle.
    pub(super) fn rest(&self) -> Result<()> {
        match self {
            Person::Sway(sway) => sway.stop_clock(),
            Person::Gnome(_) | Person::Root(_) => Ok(()),
        }
    }

    pub(super) fn check_agent(&self, reporter: &Reporter, when: &str) -> Result<()> {
        let (_, enabled) = run_program("/bin/systemctl", &["--global", "is-enabled", AGENT])?;
        reporter.check(
            format!("{when}, the agent is enabled for all users' sessions"),
            enabled.trim() == "enabled",
            enabled.trim(),
        )?;
        if matches!(self, Person::Root(_)) {
            return Ok(());
        }
        let running = guest_setup::wait(|| Ok(agent()?.is_some()))?;
        let user = format!("_UID={USER}");
        let arguments = ["--no-pager", "--lines=20", "--output=cat", &user];
        let (_, log) = run_program("/bin/journalctl", &arguments)?;
        reporter.check(
            format!("{when}, the agent runs in the open session"),
            running,
            log,
        )
    }

    pub(super) fn stop(self) -> Result<()> {
        match self {
            Person::Sway(sway) => sway.stop(),
            Person::Gnome(gnome) => gnome.stop(),
            Person::Root(processes) => {
                drop(processes);
                Ok(())
            }
        }
    }
}

/// PID of the agent, if it runs.
pub(super) fn agent() -> Result<Option<i32>> {
    named("limelight-agent")
}
