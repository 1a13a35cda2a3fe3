// SPDX-License-Identifier: GPL-2.0-or-later
//! Another user of the machine, without a seat. The user has a service manager, and a login like
//! one through ssh. On newer systemd, both have a logind session, and both sessions are always
//! active.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::person::App;
use super::PROGRAM;
use crate::cgroup;
use crate::guest_setup;
use crate::process::run as run_program;
use crate::record::Reporter;
use crate::systemd::systemctl;

const NAME: &str = "stranger";
const UID: u32 = 1001;
const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
const SHADOW: &str = "/etc/shadow";
/// The service in which PAM opens the session.
const LOGIN: &str = "stranger-login.service";
const SESSIONS: &str = "/run/systemd/sessions";

/// Checks that the other user's claim to the foreground is refused while `front` has it.
pub fn check(reporter: &Reporter, front: &App) -> Result<()> {
    let home = format!("/home/{NAME}");
    let before = [PASSWD, GROUP, SHADOW].map(|path| (path, fs::read(path)));
    append(PASSWD, &format!("{NAME}:x:{UID}:{UID}::{home}:/bin/sh\n"))?;
    append(GROUP, &format!("{NAME}:x:{UID}:\n"))?;
    append(SHADOW, &format!("{NAME}:*:19000:0:99999:7:::\n"))?;
    fs::create_dir_all(&home)?;
    std::os::unix::fs::chown(&home, Some(UID), Some(UID))?;
    let manager = format!("user@{UID}.service");
    systemctl(&["start", "--no-block", &manager])?;

    let output_path = format!("{home}/told");
    let script = format!("{home}/claim");
    let claim =
        format!("{PROGRAM} focus $$ >{output_path} 2>&1; echo exit $? >>{output_path}; sleep 30\n");
    fs::write(&script, claim).with_context(|| format!("cannot write {script}"))?;
    let user = format!("User={NAME}");
    let login = [
        "--quiet",
        "--unit",
        LOGIN,
        "--property",
        &user,
        "--property",
        "PAMName=login",
    ];
    let mut arguments = login.to_vec();
    arguments.extend(["/bin/sh", &script]);
    let (code, started) = run_program("/usr/bin/systemd-run", &arguments)?;
    let read = || fs::read_to_string(&output_path).unwrap_or_default();
    guest_setup::wait(|| Ok(code != 0 || read().contains("exit ")))?;
    let output = format!("{started}{}", read());
    let sessions = sessions()?;
    let (_, status) = run_program(PROGRAM, &["status", "--json"])?;
    let status: Value = serde_json::from_str(&status).context("status is not JSON")?;
    let refused = output.contains("exit ") && !output.contains("exit 0");
    // Under GNOME the claim names the app's cgroup, and no process.
    let topmost = status["foreground"]["cgroup"].as_str().unwrap_or_default();
    let stays =
        cgroup::of(front.pid)? == Path::new(cgroup::ROOT).join(topmost.trim_start_matches('/'));
    reporter.check(
        "a user without a seat cannot claim the foreground",
        refused && stays,
        format!("{output}\n{}\n{sessions}", status["foreground"]),
    )?;
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    if release.contains("VERSION_ID=\"13\"") {
        reporter.check(
            "logind has a session of class manager for the user's service manager",
            sessions
                .lines()
                .any(|line| line.starts_with("CLASS=manager")),
            sessions,
        )?;
    }
    systemctl(&["stop", LOGIN, &manager])?;
    for (path, text) in before {
        let written = text.and_then(|text| fs::write(path, text));
        written.with_context(|| format!("cannot restore {path}"))?;
    }
    fs::remove_dir_all(&home).with_context(|| format!("cannot remove {home}"))
}

/// Contents of logind's session files. The FIFOs next to them are skipped.
fn sessions() -> Result<String> {
    let mut all = String::new();
    for entry in fs::read_dir(SESSIONS).with_context(|| format!("cannot list {SESSIONS}"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            all.push_str(&fs::read_to_string(entry.path()).unwrap_or_default());
        }
    }
    Ok(all)
}

fn append(path: &str, text: &str) -> Result<()> {
    let file = OpenOptions::new().append(true).open(Path::new(path));
    let mut file = file.with_context(|| format!("cannot open {path}"))?;
    let written = file.write_all(text.as_bytes());
    written.with_context(|| format!("cannot write {path}"))
}
