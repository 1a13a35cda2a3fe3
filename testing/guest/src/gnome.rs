// SPDX-License-Identifier: GPL-2.0-or-later
//! A user's session with Debian's GNOME Shell, which has no display here, and the user's actions in
//! it. GNOME Shell executes scripts that it receives over D-Bus, because it was started with
//! `--unsafe-mode`.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde_json::Value;

use crate::handover::{NAME, USER};
use crate::systemd;

/// The service whose PAM stack opens the session.
const SERVICE: &str = "gnome.service";
/// The session's environment. On an emulated CPU, GNOME Shell crashed until Mesa was restricted to
/// SSE2. Switching off the JIT compiler of GNOME Shell's scripts alone did not suffice.
const ENVIRONMENT: &str = "XDG_SESSION_TYPE=wayland XDG_CURRENT_DESKTOP=GNOME LANG=C.UTF-8 \
    GJS_DISABLE_JIT=1 GALLIUM_OVERRIDE_CPU_CAPS=sse2";
/// Runs GNOME Shell as a unit of the user's service manager, as gnome-session does. Otherwise GNOME
/// Shell creates no scopes for apps.
const COMMAND: [&str; 16] = [
    "/usr/bin/systemd-run",
    "--user",
    "--wait",
    "--quiet",
    "--unit=gnome-shell.service",
    "--slice=session.slice",
    "--setenv=XDG_SESSION_TYPE",
    "--setenv=XDG_CURRENT_DESKTOP",
    "--setenv=GJS_DISABLE_JIT",
    "--setenv=GALLIUM_OVERRIDE_CPU_CAPS",
    "/usr/bin/gnome-shell",
    "--headless",
    "--no-x11",
    "--unsafe-mode",
    "--virtual-monitor",
    "1024x768",
];
/// Timeout; everything is slow on an emulated CPU.
const LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(500);

/// A running session.
pub struct Gnome;

impl Gnome {
    /// Logs the lab's user in on the first virtual terminal, through a service.
    pub fn start() -> Result<Gnome> {
        systemd::start_session(SERVICE, ENVIRONMENT, &COMMAND)?;
        let gnome = Gnome;
        gnome.until("GNOME Shell answers", |gnome| {
            // The overview, which GNOME opens at the start, would have the focus.
            Ok(gnome.ask("Main.overview.hide(); true").ok())
        })?;
        Ok(gnome)
    }

    /// Has GNOME Shell start the app of a desktop entry, which gets a scope of its own, and waits
    /// for its window. `class`: the app ID that the app sets. Returns the PID of the window's
    /// client.
    pub fn launch(&self, entry: &str, class: &str) -> Result<i32> {
        self.script(&format!(
            "imports.gi.Shell.AppSystem.get_default().lookup_app('{entry}').activate(); true"
        ))?;
        self.until(&format!("{class} shows a window"), |gnome| {
            let windows = gnome.script(&format!(
                "{WINDOWS}.filter(w => w.get_wm_class() == '{class}').map(w => w.get_pid())"
            ))?;
            Ok(windows[0].as_i64().map(|pid| pid as i32))
        })
    }

    /// Focuses the window of the client `pid`.
    pub fn focus(&self, pid: i32) -> Result<()> {
        self.script(&format!(
            "{WINDOWS}.find(w => w.get_pid() == {pid}).activate(global.get_current_time()); true"
        ))?;
        Ok(())
    }

    /// Ends the session.
    pub fn stop(self) -> Result<()> {
        systemd::stop_session(SERVICE)
    }

    fn until<T>(&self, what: &str, step: impl Fn(&Gnome) -> Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(found) = step(self)? {
                return Ok(found);
            }
            if Instant::now() > deadline {
                bail!(
                    "timed out after {LIMIT:?}: {what}\n{}",
                    systemd::session_log(SERVICE)?
                );
            }
            sleep(POLL);
        }
    }

    /// [`Gnome::ask`] with the session's log in an error.
    fn script(&self, code: &str) -> Result<Value> {
        self.ask(code).or_else(|error| {
            let log = systemd::session_log(SERVICE)?;
            Err(error.context(log))
        })
    }

    /// Has GNOME Shell execute JavaScript. Returns the value of its last expression.
    fn ask(&self, code: &str) -> Result<Value> {
        let bus = format!("unix:path=/run/user/{USER}/bus");
        let call = [
            "--user",
            "--json=short",
            "call",
            "org.gnome.Shell",
            "/org/gnome/Shell",
            "org.gnome.Shell",
            "Eval",
            "s",
        ];
        let output = Command::new("/usr/bin/busctl")
            .uid(USER)
            .gid(USER)
            .env("DBUS_SESSION_BUS_ADDRESS", bus)
            .args(call)
            .arg(code)
            .output()
            .with_context(|| format!("cannot start busctl as {NAME}"))?;
        if !output.status.success() {
            bail!(
                "busctl exited with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        result(&output.stdout).with_context(|| format!("GNOME Shell does not execute {code:?}"))
    }
}

/// GNOME Shell's windows.
const WINDOWS: &str = "global.get_window_actors().map(actor => actor.meta_window)";

/// The result of a script in busctl's output: `Eval` returns whether the script succeeded, and its
/// value as JSON, or the error.
fn result(output: &[u8]) -> Result<Value> {
    let answer: Value = serde_json::from_slice(output).context("busctl's output is not JSON")?;
    let text = answer["data"][1].as_str().unwrap_or_default();
    if answer["data"][0] != true {
        bail!("{text}");
    }
    serde_json::from_str(text).with_context(|| format!("its value {text:?} is not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_is_the_value_or_the_error() {
        let pids = result(br#"{"type":"bs","data":[true,"[118,120]"]}"#).unwrap();
        assert_eq!(pids[0].as_i64(), Some(118));
        let error = result(br#"{"type":"bs","data":[false,"ReferenceError: x"]}"#).unwrap_err();
        assert!(error.to_string().contains("ReferenceError"));
        assert!(result(b"").is_err());
    }
}
