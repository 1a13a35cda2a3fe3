// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that are never touched, by what runs in them: whatever the others need to be seen and heard,
//! and whatever the session itself is.

use std::collections::BTreeSet;

use crate::doors::Doors;
use crate::gate::session::{leaders, runs_installed, LOGIN};

use super::sight::{Member, Sighted};

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
        let names = helpers.iter().map(String::as_str).chain(LOGIN);
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
            if self.names.contains(member.comm.as_str())
                && runs_installed(doors, member.id, &member.comm)
            {
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

/// Shells that a login started have a name that begins with a dash.
fn is_login(doors: &Doors, member: &Member) -> bool {
    let process = doors.same_process(member.id);
    let arguments = process.and_then(|process| process.cmdline().ok());
    let name = arguments.and_then(|arguments| arguments.into_iter().next());
    name.is_some_and(|name| name.starts_with('-'))
}
