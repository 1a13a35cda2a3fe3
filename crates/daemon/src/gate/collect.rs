// SPDX-License-Identifier: GPL-2.0-or-later
//! Which processes are protected now.

use std::collections::BTreeSet;
use std::time::Duration;

use limelight_core::model::protected::{Why, PREVIOUS_FOR};
use limelight_core::model::{unit, App, AppKey, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::tree::ProcessTree;

use super::session::{self, leaders, runs_installed};
use crate::doors::Doors;
use crate::identify;

/// The session's processes are started with it, not with every app: how often they are scanned for.
const SCAN_EVERY: Duration = Duration::from_secs(10);

/// Most ancestors that are followed: pids are read at different moments, so that reuse could make a
/// loop of them.
const ANCESTORS_MAX: usize = 64;

/// Units of terminals for what runs in one of their tabs: part of the terminal's app.
pub const TAB: &str = "vte-spawn-";

/// A protected process, before it is open.
pub type Wanted = (ProcessId, Option<AppKey>, Why);

/// The session's processes as of the last scan.
#[derive(Debug, Default)]
pub struct Collector {
    /// The process that is claimed as topmost and the one before it, and when each was last: another
    /// window of the same app may be topmost now, and the process may have been moved away.
    claimed: Vec<(ProcessId, Duration)>,
    session: Vec<ProcessId>,
    scanned_at: Option<Duration>,
}

impl Collector {
    /// The next collection scans for the session's processes again.
    pub fn forget(&mut self) {
        self.scanned_at = None;
    }

    /// Lists the protected processes, the most important ones first: those of `front` with `members`,
    /// the session's, those of `previous`, and the ancestors of the first. `helpers` are the names of programs that
    /// serve every app. With `tree`, all processes of the machine, descendants in other cgroups count too.
    pub fn collect(
        &mut self,
        doors: &Doors,
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
            // Not every app of the last seconds.
            let older = self.claimed.len().saturating_sub(2);
            self.claimed.drain(..older);
            let own = of_app(doors, app, members, tree);
            above = ancestors(doors, &own, tree);
            wanted.extend(own.into_iter().map(|id| (id, Some(app.key), Why::Topmost)));
        }
        let limelight = doors.identify_all(&doors.vital_pids());
        wanted.extend(limelight.into_iter().map(|id| (id, None, Why::Limelight)));
        self.scan(doors, now, helpers, tree);
        let session = self.session.iter();
        wanted.extend(session.map(|id| (*id, None, Why::Session)));
        if let Some(app) = previous {
            let members = identify::members(doors, app);
            let all = of_app(doors, app, &members, tree);
            wanted.extend(all.into_iter().map(|id| (id, Some(app.key), Why::Previous)));
        }
        for (id, _) in &self.claimed {
            let all = with_descendants(doors, None, &[*id], tree);
            wanted.extend(all.into_iter().map(|id| (id, None, Why::Previous)));
        }
        // The weakest reason comes last: the first one of a process counts.
        wanted.extend(above.into_iter().map(|id| (id, None, Why::Ancestor)));
        wanted
    }

    fn scan(
        &mut self,
        doors: &Doors,
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
                read = doors.proc.tree().unwrap_or_default();
                &read
            }
        };
        let mut names: BTreeSet<&str> = helpers.iter().map(String::as_str).collect();
        for name in session::names() {
            names.insert(name);
        }
        let leaders = leaders(doors);
        let needed = tree.iter().filter_map(|stat| {
            let id = ProcessId {
                pid: stat.pid,
                starttime: stat.start_ticks,
            };
            let named = names.contains(stat.comm.as_str());
            let needed =
                leaders.contains(&stat.pid) || (named && runs_installed(doors, id, &stat.comm));
            needed.then_some(id)
        });
        self.session = needed.collect();
    }
}

/// The own cgroups of the topmost app and of the one before it.
pub fn homes(front: Option<&App>, previous: Option<&App>) -> Vec<(String, Why)> {
    let home = |app: &App| app.own_home().map(|home| home.path.clone());
    let front = front.and_then(home).map(|path| (path, Why::Topmost));
    let previous = previous.and_then(home).map(|path| (path, Why::Previous));
    front.into_iter().chain(previous).collect()
}

/// The app's processes: its members, the process that was claimed wherever it is now, and what
/// descends from them.
fn of_app(
    doors: &Doors,
    app: &App,
    members: &[ProcessId],
    tree: Option<&ProcessTree>,
) -> Vec<ProcessId> {
    let claimed = app.process.filter(|id| !doors.has_ended(*id));
    let mut all: Vec<ProcessId> = claimed.into_iter().collect();
    all.extend(members.iter().filter(|id| Some(**id) != claimed));
    with_descendants(
        doors,
        app.own_home().map(|home| home.path.as_str()),
        &all,
        tree,
    )
}

/// These processes and, with all processes at hand, those that descend from them and have no unit of
/// an app other than the one whose cgroup is `own`.
fn with_descendants(
    doors: &Doors,
    own: Option<&str>,
    roots: &[ProcessId],
    tree: Option<&ProcessTree>,
) -> Vec<ProcessId> {
    let mut all: Vec<ProcessId> = roots.to_vec();
    let Some(tree) = tree else {
        return all;
    };
    // A pid may have been given to another process.
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
        (!is_another_app(doors, own, id)).then_some(id)
    });
    all.extend(further);
    all
}

/// Whether a process has a unit that was made for an app other than this one: what a file manager
/// starts is no part of it, what runs in a terminal's tab is part of the terminal.
fn is_another_app(doors: &Doors, own: Option<&str>, id: ProcessId) -> bool {
    let process = doors.same_process(id);
    let path = process.and_then(|process| process.cgroup().ok().flatten());
    let Some(path) = path.and_then(|path| CgroupPath::parse(&path)) else {
        return false;
    };
    let chain = path.chain();
    let unit = chain.iter().rev().find(|path| unit::is_app(path.name()));
    unit.is_some_and(|unit| Some(unit.as_str()) != own && !unit.name().starts_with(TAB))
}

/// The processes from which these descend, init and the kernel's own left out.
/// Without all processes at hand, those of the first one only.
fn ancestors(doors: &Doors, own: &[ProcessId], tree: Option<&ProcessTree>) -> Vec<ProcessId> {
    let mut known: BTreeSet<i32> = own.iter().map(|id| id.pid).collect();
    let parent = |pid: i32| match tree {
        Some(tree) => tree.parent(pid),
        None => Some(doors.process(pid).ok()?.1.stat().ok()?.ppid),
    };
    let first = own.get(..1).unwrap_or_default();
    let mut found = Vec::new();
    for id in if tree.is_some() { own } else { first } {
        let mut next = parent(id.pid);
        while let Some(pid) = next.filter(|pid| *pid > 2) {
            if found.len() == ANCESTORS_MAX || !known.insert(pid) {
                break;
            }
            found.extend(doors.process(pid).ok().map(|(id, _)| id));
            next = parent(pid);
        }
    }
    found
}
