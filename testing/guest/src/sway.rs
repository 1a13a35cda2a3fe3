// SPDX-License-Identifier: GPL-2.0-or-later
//! A user's session with Debian's sway, started as by a display manager or a login, and the user's
//! actions in it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde_json::Value;

use crate::handover::{NAME, USER};
use crate::process::{named, send, Process, Start};
use crate::systemd::{self, TERMINAL};

/// The service whose PAM stack opens the session.
const SERVICE: &str = "sway.service";
/// Log of sway and of the programs that it starts, if `su` opened the session.
const LOG: &str = "/home/lab/sway.log";
/// sway's environment: it runs without a display and without input devices.
const ENVIRONMENT: &str = "XDG_SESSION_TYPE=wayland XDG_CURRENT_DESKTOP=sway LANG=C.UTF-8 \
    WLR_BACKENDS=headless WLR_RENDERER=pixman WLR_LIBINPUT_NO_DEVICES=1";
/// Timeout; everything is slow on an emulated CPU.
const LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Constants of sway's IPC protocol.
const MAGIC: &[u8] = b"i3-ipc";
const RUN_COMMAND: u32 = 0;
const GET_TREE: u32 = 4;

/// A running session.
pub struct Sway {
    socket: UnixStream,
    /// The process of `su` that opened the session; `None` if a service opened it.
    login: Option<Process>,
}

/// A window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// sway's container ID.
    pub id: u64,
    /// The app ID that the client has set.
    pub app: String,
    /// PID of the client.
    pub pid: i32,
}

impl Sway {
    /// Logs the lab's user in on the first virtual terminal, through a service.
    pub fn start() -> Result<Sway> {
        systemd::start_session(SERVICE, ENVIRONMENT, &["/usr/bin/sway"])?;
        Sway::connect(None)
    }

    /// Logs the lab's user in with `su`; its PAM modules open the session.
    pub fn start_by_su() -> Result<Sway> {
        let mut command = Command::new("/bin/su");
        let session = format!("exec env {ENVIRONMENT} sway >{LOG} 2>&1");
        command.args(["-l", NAME, "-c", &session]);
        // elogind rejects a session on the console, which is not a virtual terminal.
        let terminal = File::open(TERMINAL).with_context(|| format!("cannot open {TERMINAL}"))?;
        command.stdin(terminal);
        Sway::connect(Some(Start::PLAIN.program(command, "su")?))
    }

    fn connect(login: Option<Process>) -> Result<Sway> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(path) = socket() {
                if let Ok(socket) = UnixStream::connect(&path) {
                    return Ok(Sway { socket, login });
                }
            }
            if Instant::now() > deadline {
                let log = log(login.is_some())?;
                bail!("sway has created no socket after {LIMIT:?}:\n{log}");
            }
            sleep(POLL);
        }
    }

    /// Has sway start a program, and waits for its window. With systemd, the program starts in its
    /// own scope, as from a launcher.
    pub fn launch(&mut self, name: &str, command: &str) -> Result<Window> {
        let scope = match self.login {
            Some(_) => String::new(),
            None => format!(
                "systemd-run --user --scope --quiet --slice=app.slice --unit=app-{name}-1.scope "
            ),
        };
        self.command(&format!("exec {scope}{command}"))?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let windows = self.windows()?;
            if let Some(window) = windows.iter().find(|window| window.app == name) {
                return Ok(window.clone());
            }
            if Instant::now() > deadline {
                bail!(
                    "{name} shows no window after {LIMIT:?}; there are {windows:?}:\n{}",
                    log(self.login.is_some())?
                );
            }
            sleep(POLL);
        }
    }

    /// Focuses a window.
    pub fn focus(&mut self, window: &Window) -> Result<()> {
        self.command(&format!("[con_id={}] focus", window.id))
    }

    /// Stops the clock in sway's bar: Debian's configuration starts two programs a second for it.
    pub fn stop_clock(&self) -> Result<()> {
        let bar = named("swaybar")?.context("sway has no bar")?;
        let path = format!("/proc/{bar}/task/{bar}/children");
        let children = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        for child in children.split_ascii_whitespace() {
            let pid = child
                .parse()
                .with_context(|| format!("{path} holds {child:?}"))?;
            send(pid, libc::SIGSTOP).context("cannot stop the clock in sway's bar")?;
        }
        Ok(())
    }

    /// Ends the session.
    pub fn stop(mut self) -> Result<()> {
        // sway may exit before it answers.
        let _ = self.command("exit");
        match &mut self.login {
            Some(login) => login.wait(LIMIT).map(drop),
            // The service may have ended with sway.
            None => systemd::stop_session(SERVICE),
        }
    }

    fn command(&mut self, command: &str) -> Result<()> {
        let answer = self.ask(RUN_COMMAND, command)?;
        let done = answer.as_array().is_some_and(|results| {
            results
                .iter()
                .all(|result| result["success"] == Value::Bool(true))
        });
        if !done {
            bail!("sway answered {answer} to {command:?}");
        }
        Ok(())
    }

    fn windows(&mut self) -> Result<Vec<Window>> {
        fn visit(node: &Value, found: &mut Vec<Window>) {
            if let (Some(id), Some(app), Some(pid)) = (
                node["id"].as_u64(),
                node["app_id"].as_str(),
                node["pid"].as_i64(),
            ) {
                found.push(Window {
                    id,
                    app: app.to_owned(),
                    pid: pid as i32,
                });
            }
            for key in ["nodes", "floating_nodes"] {
                for child in node[key].as_array().into_iter().flatten() {
                    visit(child, found);
                }
            }
        }
        let mut found = Vec::new();
        visit(&self.ask(GET_TREE, "")?, &mut found);
        Ok(found)
    }

    fn ask(&mut self, kind: u32, payload: &str) -> Result<Value> {
        let mut message = MAGIC.to_vec();
        message.extend((payload.len() as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(payload.as_bytes());
        let mut answer = Vec::new();
        (|| {
            self.socket.write_all(&message)?;
            let mut header = [0; 14];
            self.socket.read_exact(&mut header)?;
            let length = u32::from_ne_bytes([header[6], header[7], header[8], header[9]]);
            answer.resize(length as usize, 0);
            self.socket.read_exact(&mut answer)
        })()
        .with_context(|| format!("sway does not answer {payload:?}"))?;
        serde_json::from_slice(&answer).context("sway's answer is not JSON")
    }
}

/// Path of sway's IPC socket, if it exists.
fn socket() -> Option<PathBuf> {
    let runtime = format!("/run/user/{USER}");
    let entries = fs::read_dir(Path::new(&runtime)).ok()?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("sway-ipc.")
        })
}

/// The session's log.
fn log(by_su: bool) -> Result<String> {
    if by_su {
        return Ok(fs::read_to_string(LOG).unwrap_or_default());
    }
    systemd::session_log(SERVICE)
}
