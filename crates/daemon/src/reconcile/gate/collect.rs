// SPDX-License-Identifier: GPL-2.0-or-later
//! Collects the processes that are protected now.

use std::collections::BTreeSet;
use std::time::Duration;

use limelight_core::model::protected::{Why, PREVIOUS_FOR};
use limelight_core::model::{unit, App, AppKey, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::tree::ProcessTree;

use crate::reconcile::gate::session::{self, leaders, runs_installed};
use crate::system::identify;
use crate::system::System;

/// Interval between scans for the session's processes, which start with the session and not with
/// every app.
const SCAN_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of ancestors to follow. Pids are read at different moments, so a reused pid could
/// form a loop.
const ANCESTORS_MAX: usize = 64;

/// Prefix of the units that terminals make for the programs in their tabs. Such a unit is part of
/// the terminal's app.
pub const TAB: &str = "vte-spawn-";

/// A process to protect, its app, and the reason. Its files are not open yet.
pub type Wanted = (ProcessId, Option<AppKey>, Why);

/// The session's processes as of the last scan, and the processes claimed last.
#[derive(Debug, Default)]
pub struct Collector {
    /// The process claimed as topmost and the process claimed before it, each with the time of its
    /// last claim. They are kept because another window of the same app may be topmost now, and the
    /// process may have been moved out of the app's cgroup.
    claimed: Vec<(ProcessId, Duration)>,
    session: Vec<ProcessId>,
    scanned_at: Option<Duration>,
}

impl Collector {
    /// Makes the next collection scan for the session's processes again.
    pub fn forget(&mut self) {
        self.scanned_at = None;
    }

    /// Lists the protected processes, the most important ones first: the topmost app's (`front`
    /// with `members`), Limelight's own, the session's, those of the app `previous`, and the
    /// topmost app's ancestors. `helpers` are the names of programs that serve every app. `tree`
    /// lists all processes of the machine. If it is given, descendants in other cgroups are
    /// included.
    pub fn collect(
        &mut self,
        system: &System,
        now: Duration,
        front: Option<(&App, &[ProcessId])>,
        previous: Option<&App>,
        helpers: &[String],
        tree: Option<&ProcessTree>,
    ) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let mut above = Vec::new();
        self.claimed
            .retain(|(_, at)| now.saturating_sub(*at) < PREVIOUS_FOR);
        if let Some((app, members)) = front {
            let claimed = app.process.map(|id| (id, now));
            self.claimed.retain(|(id, _)| Some(*id) != app.process);
            self.claimed.extend(claimed);
            // Keep the last two claims, not every app of the last seconds.
            let older = self.claimed.len().saturating_sub(2);
            self.claimed.drain(..older);
            let own = of_app(system, app, members, tree);
            above = ancestors(system, &own, tree);
            wanted.extend(own.into_iter().map(|id| (id, Some(app.key), Why::Topmost)));
        }
        let limelight = system.identify_all(&system.vital_pids());
        wanted.extend(limelight.into_iter().map(|id| (id, None, Why::Limelight)));
        self.scan(system, now, helpers, tree);
        let session = self.session.iter();
        wanted.extend(session.map(|id| (*id, None, Why::Session)));
        if let Some(app) = previous {
            let members = identify::members(system, app);
            let all = of_app(system, app, &members, tree);
            wanted.extend(all.into_iter().map(|id| (id, Some(app.key), Why::Previous)));
        }
        for (id, _) in &self.claimed {
            let all = with_descendants(system, None, &[*id], tree);
            wanted.extend(all.into_iter().map(|id| (id, None, Why::Previous)));
        }
        // The weakest reason comes last, because the first one listed for a process counts.
        wanted.extend(above.into_iter().map(|id| (id, None, Why::Ancestor)));
        wanted
    }

    fn scan(
        &mut self,
        system: &System,
        now: Duration,
        helpers: &[String],
        tree: Option<&ProcessTree>,
    ) {
        let fresh = |then: Duration| now.saturating_sub(then) < SCAN_EVERY;
        if self.scanned_at.is_some_and(fresh) {
            return;
        }
        self.scanned_at = Some(now);
        let read;
        let tree = match tree {
            Some(tree) => tree,
            None => {
                read = system.proc.tree().unwrap_or_default();
                &read
            }
        };
        let mut names: BTreeSet<&str> = helpers.iter().map(String::as_str).collect();
        for name in session::names() {
            names.insert(name);
        }
        let leaders = leaders(system);
        let needed = tree.iter().filter_map(|stat| {
            let id = ProcessId {
                pid: stat.pid,
                starttime: stat.start_ticks,
            };
            let named = names.contains(stat.comm.as_str());
            let needed =
                leaders.contains(&stat.pid) || (named && runs_installed(system, id, &stat.comm));
            needed.then_some(id)
        });
        self.session = needed.collect();
    }
}

/// The cgroups of the topmost app and of the previous app, if they have their own.
pub fn homes(front: Option<&App>, previous: Option<&App>) -> Vec<(String, Why)> {
    let home = |app: &App| app.own_home().map(|home| home.path.clone());
    let front = front.and_then(home).map(|path| (path, Why::Topmost));
    let previous = previous.and_then(home).map(|path| (path, Why::Previous));
    front.into_iter().chain(previous).collect()
}

/// The app's processes: its members, the claimed process wherever it is now, and their descendants.
fn of_app(
    system: &System,
    app: &App,
    members: &[ProcessId],
    tree: Option<&ProcessTree>,
) -> Vec<ProcessId> {
    let claimed = app.process.filter(|id| !system.has_ended(*id));
    let mut all: Vec<ProcessId> = claimed.into_iter().collect();
    all.extend(members.iter().filter(|id| Some(**id) != claimed));
    with_descendants(
        system,
        app.own_home().map(|home| home.path.as_str()),
        &all,
        tree,
    )
}

/// These processes and, given `tree`, their descendants. Descendants in the unit of another app are
/// left out; `own` is the cgroup of this app.
fn with_descendants(
    system: &System,
    own: Option<&str>,
    roots: &[ProcessId],
    tree: Option<&ProcessTree>,
) -> Vec<ProcessId> {
    let mut all: Vec<ProcessId> = roots.to_vec();
    let Some(tree) = tree else {
        return all;
    };
    // The pid may have been reused.
    let lives = |id: &ProcessId| {
        tree.get(id.pid)
            .is_some_and(|stat| stat.start_ticks == id.starttime)
    };
    all.retain(lives);
    let known: BTreeSet<i32> = all.iter().map(|id| id.pid).collect();
    let mut below: BTreeSet<i32> = BTreeSet::new();
    for pid in &known {
        below.extend(tree.descendants(*pid));
    }
    let further = below.difference(&known).filter_map(|pid| {
        let stat = tree.get(*pid)?;
        let id = ProcessId {
            pid: *pid,
            starttime: stat.start_ticks,
        };
        (!is_another_app(system, own, id)).then_some(id)
    });
    all.extend(further);
    all
}

/// Whether a process is in a unit that was made for another app. A program that a file manager
/// started is not part of the file manager. A program in a terminal's tab is part of the terminal.
fn is_another_app(system: &System, own: Option<&str>, id: ProcessId) -> bool {
    let process = system.same_process(id);
    let path = process.and_then(|process| process.cgroup().ok().flatten());
    let Some(path) = path.and_then(|path| CgroupPath::parse(&path)) else {
        return false;
    };
    let chain = path.chain();
    let unit = chain.iter().rev().find(|path| unit::is_app(path.name()));
    unit.is_some_and(|unit| Some(unit.as_str()) != own && !unit.name().starts_with(TAB))
}

/// The ancestors of these processes, without init and kernel threads. Without `tree`, only the
/// ancestors of the first process.
fn ancestors(system: &System, own: &[ProcessId], tree: Option<&ProcessTree>) -> Vec<ProcessId> {
    let mut known: BTreeSet<i32> = own.iter().map(|id| id.pid).collect();
    let parent = |pid: i32| match tree {
        Some(tree) => tree.parent(pid),
        None => Some(system.process(pid).ok()?.1.stat().ok()?.ppid),
    };
    let first = own.get(..1).unwrap_or_default();
    let mut found = Vec::new();
    for id in if tree.is_some() { own } else { first } {
        let mut next = parent(id.pid);
        while let Some(pid) = next.filter(|pid| *pid > 2) {
            if found.len() == ANCESTORS_MAX || !known.insert(pid) {
                break;
            }
            found.extend(system.process(pid).ok().map(|(id, _)| id));
            next = parent(pid);
        }
    }
    found
}
