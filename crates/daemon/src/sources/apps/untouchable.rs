// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that are never touched, by what runs in them: whatever the others need to be seen and heard,
//! and whatever the session itself is.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use limelight_core::model::apps::Found;
use limelight_core::model::unit::{self, Starter};
use limelight_core::model::AppKey;

use crate::doors::Doors;
use crate::gate::session::{self, is_multiplexer, leaders, locked_users, runs_installed};
use crate::sources::pressure::memory_now;

use super::sight::{Member, Sighted};

/// What is untouchable only by its unit's name may hold this part of memory for each user.
const NAMED_PART: u64 = 16;

/// Any user can name a unit as a service of the session. So of the apps that are untouchable only `by_name`,
/// each user's largest lose that until the rest holds no more than a part of memory.
pub fn limit_named(doors: &Doors, found: &mut [Found], by_name: &BTreeSet<AppKey>) {
    let mut named: Vec<&mut Found> = found
        .iter_mut()
        .filter(|one| by_name.contains(&one.app.key))
        .collect();
    let total = match named.is_empty() {
        true => 0,
        false => memory_now(doors).total,
    };
    if total == 0 {
        return;
    }
    let mut held: BTreeMap<u32, u64> = BTreeMap::new();
    for one in &named {
        let sum = held.entry(one.uid).or_default();
        *sum = sum.saturating_add(one.memory.allocated());
    }
    named.sort_by_key(|one| (Reverse(one.memory.allocated()), one.app.key));
    for one in named {
        let sum = held.entry(one.uid).or_default();
        if *sum > total / NAMED_PART {
            *sum = sum.saturating_sub(one.memory.allocated());
            let why = one.untouchable.take().unwrap_or_default();
            one.class.why.push_str(&format!(
                "; not exempt although {why}: those of uid {} hold more than 1/{NAMED_PART} of memory",
                one.uid
            ));
        }
    }
}

/// What is looked at once for all apps.
pub struct Untouchable<'a> {
    names: BTreeSet<&'a str>,
    /// First processes of logind's sessions.
    leaders: BTreeSet<i32>,
    /// Users whose session is locked.
    locked: BTreeSet<u32>,
}

impl<'a> Untouchable<'a> {
    /// `helpers` are the names of programs that serve whichever app is topmost.
    pub fn new(doors: &Doors, helpers: &'a [String]) -> Untouchable<'a> {
        let mut names: BTreeSet<&str> = helpers.iter().map(String::as_str).collect();
        for name in session::names() {
            names.insert(name);
        }
        Untouchable {
            names,
            leaders: leaders(doors),
            locked: locked_users(doors),
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
        if let Some(why) = in_terminal(doors, app) {
            return Some(why);
        }
        let login = !app.has_group && app.main().is_some_and(|main| is_login(doors, main));
        login.then(|| "it is a login shell".to_owned())
    }

    /// Why an app of this user that was never topmost is not touched now: it may be what locks the
    /// screen.
    pub fn why_locked(&self, uid: u32) -> Option<String> {
        let locked = self.locked.contains(&uid);
        locked.then(|| "its session is locked, and it may be what locks it".to_owned())
    }
}

/// Why what a terminal, or a command line, put into a scope of its own is not touched: a program of
/// root's or a multiplexer runs there.
fn in_terminal(doors: &Doors, app: &Sighted) -> Option<String> {
    let unit = app.unit_name().and_then(unit::parse)?;
    if unit.starter != Starter::Other {
        return None;
    }
    let uid = |id| {
        doors
            .same_process(id)
            .and_then(|process| process.owner_uid().ok())
    };
    let own = app.main().and_then(|main| uid(main.id));
    app.members.iter().find_map(|member| {
        let Member { id, comm } = member;
        if is_multiplexer(comm) {
            return Some(format!(
                "it holds {comm} (pid {}), which keeps other shells",
                id.pid
            ));
        }
        let root = own != Some(0) && uid(*id) == Some(0);
        root.then(|| format!("it holds {comm} (pid {}), which root runs", id.pid))
    })
}

/// Shells that a login started have a name that begins with a dash.
fn is_login(doors: &Doors, member: &Member) -> bool {
    let process = doors.same_process(member.id);
    let arguments = process.and_then(|process| process.cmdline().ok());
    let name = arguments.and_then(|arguments| arguments.into_iter().next());
    name.is_some_and(|name| name.starts_with('-'))
}
