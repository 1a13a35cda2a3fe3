// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that are never touched because of the processes in them: programs that other apps need for
//! display and sound, and programs of the session itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use limelight_core::model::apps::Found;
use limelight_core::model::unit::{self, Starter};
use limelight_core::model::{AppKey, ProcessId};

use crate::reconcile::gate::session::{
    self, is_multiplexer, leaders, locked_users, runs_installed,
};
use crate::sources::pressure::memory_now;
use crate::system::{own_memory, System};

use crate::sources::apps::sight::{Member, Sighted};

/// Reciprocal of the share of memory that one user's units may exempt by their names alone.
const NAMED_PART: u64 = 16;

/// Limits the memory that is exempt by unit names alone, because any user can name a unit like a
/// service of the session. Each user's largest apps in `by_name` lose the exemption, until the
/// user's remaining apps in `by_name` hold no more than `NAMED_PART` allows.
pub fn limit_named(system: &System, found: &mut [Found], by_name: &BTreeSet<AppKey>) {
    let mut named: Vec<&mut Found> = found
        .iter_mut()
        .filter(|one| by_name.contains(&one.app.key))
        .collect();
    let total = match named.is_empty() {
        true => 0,
        false => memory_now(system).total,
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
                "; not exempt although {why}: the exempt apps of uid {} use more than \
                 1/{NAMED_PART} of memory",
                one.uid
            ));
        }
    }
}

/// State that is read once for each scan of all apps.
pub struct Untouchable<'a> {
    helpers: &'a [String],
    /// Display servers.
    servers: BTreeSet<ProcessId>,
    /// Leaders of logind's sessions.
    leaders: BTreeSet<i32>,
    /// Users whose session is locked.
    locked: BTreeSet<u32>,
}

impl<'a> Untouchable<'a> {
    /// `helpers` are the names of programs that serve the topmost app, `servers` the processes that
    /// serve a display.
    pub fn new(
        system: &System,
        helpers: &'a [String],
        servers: BTreeSet<ProcessId>,
    ) -> Untouchable<'a> {
        Untouchable {
            helpers,
            servers,
            leaders: leaders(system),
            locked: locked_users(system),
        }
    }

    /// Why this app is never touched; `None` if it may be touched.
    pub fn why(&self, system: &System, app: &Sighted) -> Option<String> {
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
            let known = self.helpers.contains(&member.comm) || session::is_needed(&member.comm);
            let named = known && runs_installed(system, member.id, &member.comm);
            let serves = || session::is_python_engine(system, member.id, &member.comm);
            if named || self.servers.contains(&member.id) || serves() {
                let comm = &member.comm;
                return Some(format!(
                    "it holds {comm} (pid {pid}), which other apps need"
                ));
            }
        }
        if let Some(why) = in_terminal(system, app) {
            return Some(why);
        }
        let login = !app.has_group && app.main().is_some_and(|main| is_login(system, main));
        login.then(|| "it is a login shell".to_owned())
    }

    /// Why an app of this user that was never topmost is not touched now: it may be the screen
    /// locker.
    pub fn why_locked(&self, uid: u32) -> Option<String> {
        let locked = self.locked.contains(&uid);
        locked.then(|| "its session is locked, and it may be the screen locker".to_owned())
    }
}

/// Why the scope of a terminal or of a command line is not touched: a program of root or a
/// multiplexer runs there.
fn in_terminal(system: &System, app: &Sighted) -> Option<String> {
    let unit = app.unit_name().and_then(unit::parse)?;
    if unit.starter != Starter::Other {
        return None;
    }
    let uid = |id| {
        system
            .same_process(id)
            .and_then(|process| process.owner_uid().ok())
    };
    let own = app.main().and_then(|main| uid(main.id));
    app.members.iter().find_map(|member| {
        let Member { id, comm, .. } = member;
        if is_multiplexer(comm) && runs_installed(system, *id, program_of(comm)) {
            return Some(format!(
                "it holds {comm} (pid {}), which runs other shells",
                id.pid
            ));
        }
        let root = own != Some(0) && uid(*id) == Some(0);
        root.then(|| format!("it holds {comm} (pid {}), which runs as root", id.pid))
    })
}

/// The program of a process with this name. For example, tmux calls its server "tmux: server".
fn program_of(comm: &str) -> &str {
    comm.split(':').next().unwrap_or(comm)
}

/// Whether a login started this shell: its first argument then begins with a dash.
fn is_login(system: &System, member: &Member) -> bool {
    let process = system.same_process(member.id);
    let arguments = process.and_then(|process| own_memory::arguments(&process));
    let name = arguments.and_then(|arguments| arguments.into_iter().next());
    name.is_some_and(|name| name.starts_with('-'))
}
