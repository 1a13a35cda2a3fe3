// SPDX-License-Identifier: GPL-2.0-or-later
//! A user's session: Debian's X server and limelight-agent. The chaos test kills both.

use std::time::Duration;

use anyhow::{Context, Result};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ConnectionExt as _, InputFocus};
use x11rb::rust_connection::RustConnection;

use crate::cgroup::Cgroup;
use crate::gallery_real::{start, start_agent, DISPLAY};
use crate::process::Process;
use crate::swap_app::App;
use crate::x11::connect;

/// Timeout for a killed process to exit.
const LIMIT: Duration = Duration::from_secs(60);

/// The session's processes, and the apps' windows.
pub struct Session {
    cgroup: Cgroup,
    /// `None` while the agent is dead.
    agent: Option<Process>,
    /// The X server, and this program's connection to it; `None` while the server is dead.
    server: Option<(Process, RustConnection)>,
    /// The apps' windows, by app index.
    windows: Vec<u32>,
}

impl Session {
    /// Starts the X server and the agent.
    pub fn start() -> Result<Session> {
        let mut session = Session {
            cgroup: Cgroup::create("session.slice/desktop.scope")?,
            agent: None,
            server: None,
            windows: Vec::new(),
        };
        session.start_server()?;
        session.start_agent()?;
        Ok(session)
    }

    /// Starts the X server.
    pub fn start_server(&mut self) -> Result<()> {
        let arguments = [
            DISPLAY,
            "-screen",
            "0",
            "320x240x24",
            "-ac",
            "-nolisten",
            "tcp",
        ];
        let server = start(Some(&self.cgroup), "Xvfb", &arguments)?;
        let (connection, _) = connect(DISPLAY)?;
        self.server = Some((server, connection));
        Ok(())
    }

    /// Starts the agent.
    pub fn start_agent(&mut self) -> Result<()> {
        self.agent = Some(start_agent()?);
        Ok(())
    }

    /// Makes every app show its window.
    pub fn show(&mut self, apps: &mut [App]) -> Result<()> {
        let windows = apps.iter_mut().map(|app| app.show(DISPLAY));
        self.windows = windows
            .collect::<Result<_>>()
            .context("an app has no window")?;
        Ok(())
    }

    /// Gives the focus to an app's window, or to none. A no-op without an X server.
    pub fn focus(&self, place: Option<usize>) -> Result<()> {
        let Some((_, connection)) = &self.server else {
            return Ok(());
        };
        let window = match place {
            Some(place) => self.windows[place],
            None => x11rb::NONE,
        };
        connection.set_input_focus(InputFocus::NONE, window, x11rb::CURRENT_TIME)?;
        Ok(connection.flush()?)
    }

    /// Kills the agent with SIGKILL.
    pub fn kill_agent(&mut self) -> Result<()> {
        kill(self.agent.take().context("the agent is dead")?)
    }

    /// Kills the X server with SIGKILL.
    pub fn kill_server(&mut self) -> Result<()> {
        let (server, _) = self.server.take().context("the X server is dead")?;
        kill(server)
    }

    /// PIDs of the server and the agent.
    pub fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        let server = self.server.iter().map(|(server, _)| server.pid());
        server.chain(self.agent.iter().map(Process::pid))
    }
}

fn kill(mut process: Process) -> Result<()> {
    process.signal(libc::SIGKILL)?;
    process.wait(LIMIT)?;
    Ok(())
}
