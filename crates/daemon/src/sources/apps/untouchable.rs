// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that are never touched, by what runs in them: whatever the others need to be seen and heard,
//! and whatever the session itself is.

use std::collections::BTreeSet;

use limelight_sys::dir::Dir;
use limelight_sys::keyed::Keyed;

use crate::doors::Doors;

use super::sight::{Member, Sighted};

/// Limelight's own programs, and those that a login stands on.
const SESSION: [&str; 10] = [
    "limelightd",
    "limelight-agent",
    "systemd",
    "(sd-pam)",
    "sshd",
    "login",
    "gdm-session-wor",
    "gdm-x-session",
    "sddm-helper",
    "lightdm",
];

/// What is looked at once for all apps.
pub struct Untouchable<'a> {
    names: BTreeSet<&'a str>,
    /// First processes of logind's sessions.
    leaders: BTreeSet<i32>,
    /// Cgroups that apps have.
    homes: BTreeSet<String>,
}

impl<'a> Untouchable<'a> {
    /// `helpers` are the names of programs that serve whichever app is topmost.
    pub fn new(doors: &Doors, helpers: &'a [String], apps: &[Sighted]) -> Untouchable<'a> {
        let names = helpers.iter().map(String::as_str).chain(SESSION);
        let own = apps.iter().filter(|app| app.group.is_some());
        let homes = own.filter_map(|app| Some(app.home.as_ref()?.path.clone()));
        Untouchable {
            names: names.collect(),
            leaders: leaders(doors),
            homes: homes.collect(),
        }
    }

    /// Why this app is never touched, if it is not.
    pub fn why(&self, doors: &Doors, app: &Sighted) -> Option<String> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        for member in &app.members {
            let pid = member.id.pid;
            if pid == 1 || pid == own {
                return Some(format!("it holds {} (pid {pid})", member.comm));
            }
            if self.leaders.contains(&pid) {
                return Some(format!(
                    "it holds a session's leader, {} (pid {pid})",
                    member.comm
                ));
            }
            if self.names.contains(member.comm.as_str()) && is_installed(doors, member) {
                let comm = &member.comm;
                return Some(format!("it holds {comm} (pid {pid}), which others need"));
            }
        }
        if app.group.is_none() && app.main().is_some_and(|main| is_login(doors, main)) {
            return Some("it is a login shell".to_owned());
        }
        self.inner(app)
            .map(|inner| format!("it holds another app's cgroup, {inner}"))
    }

    /// A cgroup of another app below this one's.
    fn inner(&self, app: &Sighted) -> Option<&str> {
        let home = app.home.as_ref().filter(|_| app.group.is_some())?;
        let below = format!("{}/", home.path);
        let next = self.homes.range(below.clone()..).next()?;
        next.starts_with(&below).then_some(next.as_str())
    }
}

/// Whether a process runs a program of the system's. Any program can take any name.
fn is_installed(doors: &Doors, member: &Member) -> bool {
    let process = doors.same_process(member.id);
    match process.map(|process| process.program()) {
        Some(Ok((program, _))) => program.owner == 0,
        // Not even we may look: it is no ordinary program.
        Some(Err(_)) => true,
        None => false,
    }
}

/// Shells that a login started have a name that begins with a dash.
fn is_login(doors: &Doors, member: &Member) -> bool {
    let process = doors.same_process(member.id);
    let arguments = process.and_then(|process| process.cmdline().ok());
    let name = arguments.and_then(|arguments| arguments.into_iter().next());
    name.is_some_and(|name| name.starts_with('-'))
}

/// Leaders of all sessions that logind keeps.
fn leaders(doors: &Doors) -> BTreeSet<i32> {
    let Ok(sessions) = Dir::open(&doors.roots.sessions) else {
        return BTreeSet::new();
    };
    let names = sessions.names().unwrap_or_default();
    let files = names.iter().filter(|name| !name.ends_with(".ref"));
    files
        .filter_map(|name| {
            let text = sessions.read_text(name).ok()?;
            let leader = Keyed::parse(&text.replace('=', " ")).get("LEADER")?;
            i32::try_from(leader).ok()
        })
        .collect()
}
