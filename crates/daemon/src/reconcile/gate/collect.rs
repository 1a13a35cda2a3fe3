// SPDX-License-Identifier: GPL-2.0-or-later
//! Collects the processes that are protected now.

use std::collections::BTreeSet;
use std::time::Duration;

use limelight_core::model::protected::{Why, PREVIOUS_FOR};
use limelight_core::model::{unit, App, AppKey, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::tree::ProcessTree;
use tracing::debug;

use crate::reconcile::gate::session::{self, leaders, runs_installed};
use crate::sources::display_servers::ServingProcesses;
use crate::system::identify;
use crate::system::System;

/// Interval between scans for the session's processes, which start with the session and not with
/// every app. A scan reads the names of all processes, so it is made a little earlier while no app
/// is waited for.
const SCAN_EVERY: Duration = Duration::from_secs(10);
const SCAN_WHEN_CALM: Duration = Duration::from_secs(8);

/// Maximum number of ancestors to follow. Pids are read at different moments, so a reused pid could
/// form a loop.
const ANCESTORS_MAX: usize = 64;

/// Prefix of the units that terminals make for the programs in their tabs. Such a unit is part of
/// the terminal's app.
pub const TAB: &str = "vte-spawn-";

/// A process to protect, its app, and the reason. Its files are not open yet.
pub type Wanted = (ProcessId, Option<AppKey>, Why);

/// What to collect.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request<'a> {
    /// The topmost app and its processes.
    pub front: Option<(&'a App, &'a [ProcessId])>,
    /// The app that left the foreground a moment ago.
    pub previous: Option<&'a App>,
    /// Names of programs that serve every app.
    pub helpers: &'a [String],
    /// Whether to include descendants in other cgroups.
    pub descendants: bool,
    /// Whether the topmost app has settled.
    pub settled: bool,
}

/// Some processes, with all their descendants.
#[derive(Debug)]
struct Family {
    roots: BTreeSet<i32>,
    /// [`Proc::population`](limelight_sys::proc::Proc::population) when the tree was read.
    population: (u64, i32),
    tree: ProcessTree,
}

/// The session's processes as of the last scan, and the processes claimed last.
#[derive(Debug, Default)]
pub struct Collector {
    family: Option<Family>,
    /// The process claimed as topmost and the process claimed before it, each with the time of its
    /// last claim. They are kept because another window of the same app may be topmost now, and the
    /// process may have been moved out of the app's cgroup.
    claimed: Vec<(ProcessId, Duration)>,
    /// The processes of the topmost app and of the previous one as of the last successful read.
    members: Vec<(AppKey, Vec<ProcessId>)>,
    /// Limelight's own processes as of the last successful read.
    own: Vec<ProcessId>,
    session: Vec<ProcessId>,
    servers: ServingProcesses,
    scanned_at: Option<Duration>,
}

impl Collector {
    /// Makes the next collection scan for the session's processes again.
    pub fn forget(&mut self) {
        self.scanned_at = None;
    }

    /// The display servers, as of the last scan.
    pub fn display_servers(&self) -> &BTreeSet<ProcessId> {
        self.servers.known()
    }

    /// Lists the protected processes, the most important ones first: the topmost app's, Limelight's
    /// own, the session's, those of the previous app, and the topmost app's ancestors.
    pub fn collect(&mut self, system: &System, now: Duration, request: Request<'_>) -> Vec<Wanted> {
        self.claimed
            .retain(|(_, at)| now.saturating_sub(*at) < PREVIOUS_FOR);
        if let Some((app, _)) = request.front {
            let claimed = app.process.map(|id| (id, now));
            self.claimed.retain(|(id, _)| Some(*id) != app.process);
            self.claimed.extend(claimed);
            // Keep the last two claims, not every app of the last seconds.
            let older = self.claimed.len().saturating_sub(2);
            self.claimed.drain(..older);
        }
        let front = request
            .front
            .map(|(app, members)| (app, with_claimed(system, app, members)));
        let previous = request.previous.map(|app| {
            let members = self.members_of(system, app);
            (app, with_claimed(system, app, &members))
        });
        let known = [&front, &previous].into_iter().flatten();
        self.members = known
            .map(|(app, members)| (app.key, members.clone()))
            .collect();
        let claimed: Vec<ProcessId> = self.claimed.iter().map(|(id, _)| *id).collect();
        self.scan(system, now, request);
        let known = [&front, &previous].into_iter().flatten();
        let roots = known.flat_map(|(_, members)| members).chain(&claimed);
        let roots = roots.map(|id| id.pid).collect();
        let tree = match request.descendants {
            true => family(&mut self.family, system, roots),
            false => None,
        };

        let mut wanted = Vec::new();
        let mut above = Vec::new();
        if let Some((app, members)) = front {
            let own = of_app(system, app, &members, tree);
            above = ancestors(system, &own, tree);
            wanted.extend(own.into_iter().map(|id| (id, Some(app.key), Why::Topmost)));
        }
        match system.identify_all(&system.vital_pids()) {
            Ok(own) => self.own = own,
            Err(error) => debug!("cannot read Limelight's own processes: {error}"),
        }
        wanted.extend(self.own.iter().map(|id| (*id, None, Why::Limelight)));
        let session = self.session.iter();
        wanted.extend(session.map(|id| (*id, None, Why::Session)));
        if let Some((app, members)) = previous {
            let all = of_app(system, app, &members, tree);
            wanted.extend(all.into_iter().map(|id| (id, Some(app.key), Why::Previous)));
        }
        for id in claimed {
            let all = with_descendants(system, None, &[id], tree);
            wanted.extend(all.into_iter().map(|id| (id, None, Why::Previous)));
        }
        // The weakest reason comes last, because the first one listed for a process counts.
        wanted.extend(above.into_iter().map(|id| (id, None, Why::Ancestor)));
        wanted
    }

    /// The app's processes now, or those of the last collection if they cannot be read.
    fn members_of(&self, system: &System, app: &App) -> Vec<ProcessId> {
        let former = |error| {
            debug!("cannot read the processes of {}: {error}", app.name);
            let known = self.members.iter().find(|(key, _)| *key == app.key);
            known.map_or_else(Vec::new, |(_, members)| members.clone())
        };
        identify::members(system, app).unwrap_or_else(former)
    }

    fn scan(&mut self, system: &System, now: Duration, request: Request<'_>) {
        let every = match request.settled {
            true => SCAN_WHEN_CALM,
            false => SCAN_EVERY,
        };
        let fresh = |then: Duration| now.saturating_sub(then) < every;
        if self.scanned_at.is_some_and(fresh) {
            return;
        }
        // Until a scan succeeds, the result of the last one counts and each collection scans.
        self.scanned_at = None;
        let helper = |name: &str| request.helpers.iter().any(|helper| helper == name);
        let needed = |name: &str| helper(name) || session::is_needed(name);
        let leaders = leaders(system);
        let servers = self.servers.refresh(system);
        let serving: BTreeSet<i32> = servers.iter().map(|id| id.pid).collect();
        let listed = |pid: i32| leaders.contains(&pid) || serving.contains(&pid);
        let wanted = |pid: i32, name: &str| listed(pid) || needed(name) || session::is_python(name);
        let found = system.proc.named(wanted);
        let found = match found {
            Ok(found) => found,
            Err(error) => return debug!("cannot scan for the session's processes: {error}"),
        };
        // Only children of ibus are examined further: a user may run many Python programs.
        let ibus = found.iter().filter(|stat| session::is_ibus(&stat.comm));
        let ibus: BTreeSet<i32> = ibus.map(|stat| stat.pid).collect();
        let session = found.iter().filter_map(|stat| {
            let id = ProcessId {
                pid: stat.pid,
                starttime: stat.start_ticks,
            };
            let needed = leaders.contains(&stat.pid)
                || servers.contains(&id)
                || (needed(&stat.comm) && runs_installed(system, id, &stat.comm))
                || (ibus.contains(&stat.ppid) && session::is_python_engine(system, id, &stat.comm));
            needed.then_some(id)
        });
        self.session = session.collect();
        self.scanned_at = Some(now);
    }
}

/// The tree of these processes and their descendants: `known` if no process or thread was created or
/// has exited since, else read again into `known`. `None` if it cannot be read.
fn family<'a>(
    known: &'a mut Option<Family>,
    system: &System,
    roots: BTreeSet<i32>,
) -> Option<&'a ProcessTree> {
    // Read before the tree, so that a process created meanwhile makes the tree stale.
    let population = system.proc.population().ok();
    let fresh = known.as_ref().is_some_and(|family| {
        Some(family.population) == population && roots.is_subset(&family.roots)
    });
    if !fresh {
        let all: Vec<i32> = roots.iter().copied().collect();
        let tree = system.tree_below(&all).ok()?;
        *known = Some(Family {
            roots,
            population: population.unwrap_or_default(),
            tree,
        });
    }
    known.as_ref().map(|family| &family.tree)
}

/// The cgroups of the topmost app and of the previous app, if they have their own.
pub fn homes(front: Option<&App>, previous: Option<&App>) -> Vec<(String, Why)> {
    let home = |app: &App| app.own_home().map(|home| home.path.clone());
    let front = front.and_then(home).map(|path| (path, Why::Topmost));
    let previous = previous.and_then(home).map(|path| (path, Why::Previous));
    front.into_iter().chain(previous).collect()
}

/// The app's members, and its claimed process wherever that is now.
fn with_claimed(system: &System, app: &App, members: &[ProcessId]) -> Vec<ProcessId> {
    let lives = |id: &ProcessId| members.contains(id) || !system.has_ended(*id);
    let claimed = app.process.filter(lives);
    let others = members.iter().filter(|id| Some(**id) != claimed);
    claimed.into_iter().chain(others.copied()).collect()
}

/// The app's processes: `members` and their descendants.
fn of_app(
    system: &System,
    app: &App,
    members: &[ProcessId],
    tree: Option<&ProcessTree>,
) -> Vec<ProcessId> {
    with_descendants(
        system,
        app.own_home().map(|home| home.path.as_str()),
        members,
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

/// The ancestors of these processes, without init and kernel threads. Without `tree`, which holds
/// these processes, only the ancestors of the first process.
fn ancestors(system: &System, own: &[ProcessId], tree: Option<&ProcessTree>) -> Vec<ProcessId> {
    let mut known: BTreeSet<i32> = own.iter().map(|id| id.pid).collect();
    let read = |pid: i32| Some(system.proc.stat(pid).ok()??.ppid);
    let parent = |pid: i32| tree.and_then(|tree| tree.parent(pid)).or_else(|| read(pid));
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
