// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the running apps: every unit that a desktop, a sandbox or a terminal made for an app,
//! anywhere in the hierarchy. Also finds every app that has been topmost and still runs.

use std::collections::{BTreeMap, BTreeSet};

use limelight_core::model::{App, AppKey, Home, ProcessId};
use limelight_sys::cgroup::Cgroup;
use limelight_sys::process::Stat;
use limelight_sys::tree::ProcessTree;
use limelight_sys::Result;

use crate::restore::undo::find_place;
use crate::restore::Place;
use crate::system::identify;
use crate::system::own_scope::root_of_scope;
use crate::system::System;

use crate::sources::apps::walk::{self, Places, Unit};

/// A process of an app.
#[derive(Debug)]
pub struct Member {
    pub id: ProcessId,
    pub comm: String,
    /// Processor time that it has used, in clock ticks.
    pub cpu_ticks: u64,
}

/// An app that has been found but not yet identified.
#[derive(Debug)]
pub struct Sighted {
    pub key: AppKey,
    pub home: Option<Home>,
    /// Whether `home` is the app's own cgroup, and no other app has processes in it.
    pub has_group: bool,
    /// Ascending by process id; never empty.
    pub members: Vec<Member>,
}

impl Sighted {
    /// The root of its process tree, else the process that started first.
    pub fn main(&self) -> Option<&Member> {
        let root = match self.key {
            AppKey::Tree(root) => self.members.iter().find(|member| member.id == root),
            AppKey::Cgroup { .. } => None,
        };
        root.or_else(|| {
            let all = self.members.iter();
            all.min_by_key(|member| (member.id.starttime, member.id.pid))
        })
    }

    /// Whether this process belongs to the app.
    pub fn has(&self, id: ProcessId) -> bool {
        let found = self.members.binary_search_by_key(&id, |member| member.id);
        found.is_ok()
    }

    /// Whether the process with this number belongs to the app.
    pub fn has_pid(&self, pid: i32) -> bool {
        let found = self
            .members
            .binary_search_by_key(&pid, |member| member.id.pid);
        found.is_ok()
    }

    /// Its own cgroup, if it has one that still exists. Opened for each use, because there may be
    /// more apps than descriptors.
    pub fn group(&self, system: &System) -> Option<Cgroup> {
        self.shared_group(system).filter(|_| self.has_group)
    }

    /// The cgroup that it is in, which may also hold other apps, if it still exists.
    pub fn shared_group(&self, system: &System) -> Option<Cgroup> {
        let home = self.home.as_ref()?;
        let place = Place {
            path: home.path.clone(),
            inode: home.inode,
        };
        find_place(system, &place).ok()?
    }

    /// Records that its cgroup also holds another app, so the cgroup's knobs belong to neither app.
    /// From then on this app is handled process by process.
    fn lose_group(&mut self) {
        self.has_group = false;
        if let Some(home) = &mut self.home {
            home.own = false;
        }
    }

    /// The name of its unit, unless this daemon made the unit.
    pub fn unit_name(&self) -> Option<&str> {
        let home = self
            .home
            .as_ref()
            .filter(|home| home.own && !home.adopted)?;
        home.path.rsplit('/').next()
    }
}

/// All apps: apps in units, and apps of `fronts` that still run. Fails if no descriptor or memory
/// is left for the scan.
pub fn all<'a>(
    system: &System,
    fronts: impl Iterator<Item = &'a App>,
    places: &mut Places,
) -> Result<Vec<Sighted>> {
    let mut found = of_units(system, walk::units(system, places)?)?;
    let keys: BTreeSet<AppKey> = found.iter().map(|app| app.key).collect();
    let fronts: Vec<&App> = fronts.filter(|app| !keys.contains(&app.key)).collect();
    let (own, trees): (Vec<&App>, Vec<&App>) =
        fronts.into_iter().partition(|app| app.own_home().is_some());
    for app in own {
        found.extend(one(system, app)?);
    }
    if !trees.is_empty() {
        let tree = system.proc.tree()?;
        divide(&tree, &trees, &mut found);
        found.extend(of_trees(&tree, &trees, &found));
    }
    Ok(found)
}

/// The app, if it has its own cgroup and still runs. No other app is scanned.
pub fn one(system: &System, app: &App) -> Result<Option<Sighted>> {
    let (Some(home), Some(group)) = (app.own_home(), identify::find_home(system, app)?) else {
        return Ok(None);
    };
    let members = members(system, walk::procs_below(system, &group)?)?;
    Ok((!members.is_empty()).then(|| Sighted {
        key: app.key,
        home: Some(home.clone()),
        has_group: true,
        members,
    }))
}

/// An app that no scan need have found, with only the process that stands for it; `None` if that
/// process has ended. `members`: the app's processes.
pub fn by_main(system: &System, app: &App, members: &[ProcessId]) -> Option<Sighted> {
    let main = match app.key {
        AppKey::Tree(root) => root,
        AppKey::Cgroup { .. } => *members.iter().min_by_key(|id| (id.starttime, id.pid))?,
    };
    let main = member(system, main.pid)
        .ok()?
        .filter(|found| found.id == main)?;
    Some(Sighted {
        key: app.key,
        home: app.home.clone(),
        has_group: false,
        members: vec![main],
    })
}

/// The apps in units. An app has all processes of its cgroup except the processes of inner apps.
/// The cgroup counts as its own while no inner app has processes.
fn of_units(system: &System, units: Vec<Unit>) -> Result<Vec<Sighted>> {
    let mut shared = BTreeSet::new();
    let mut found = Vec::new();
    let outer: Vec<Option<usize>> = units.iter().map(|unit| unit.outer).collect();
    // Inner units come after the outer ones.
    for (place, unit) in units.into_iter().enumerate().rev() {
        let members = members(system, unit.pids)?;
        if members.is_empty() {
            continue;
        }
        let mut next = outer.get(place).copied().flatten();
        while let Some(around) = next {
            shared.insert(around);
            next = outer.get(around).copied().flatten();
        }
        let adopted = root_of_scope(&unit.path);
        let mut app = Sighted {
            key: adopted.map_or(AppKey::Cgroup { inode: unit.inode }, AppKey::Tree),
            home: Some(Home {
                path: unit.path,
                inode: unit.inode,
                own: true,
                adopted: adopted.is_some(),
            }),
            has_group: true,
            members,
        };
        if shared.contains(&place) {
            app.lose_group();
        }
        found.push(app);
    }
    found.reverse();
    Ok(found)
}

fn members(system: &System, mut pids: Vec<i32>) -> Result<Vec<Member>> {
    pids.sort_unstable();
    pids.dedup();
    let mut members = Vec::new();
    for pid in pids {
        members.extend(member(system, pid)?);
    }
    Ok(members)
}

/// A process that has not ended; `None` for a zombie.
fn member(system: &System, pid: i32) -> Result<Option<Member>> {
    // There may be thousands of processes: open one file each, and no directory.
    let text = walk::there(system.proc.dir().read_text(format!("{pid}/stat")))?;
    let stat = text.and_then(|text| Stat::parse(&text));
    let stat = stat.filter(|stat| !matches!(stat.state, 'Z' | 'X'));
    Ok(stat.map(|stat| Member {
        id: ProcessId {
            pid,
            starttime: stat.start_ticks,
        },
        comm: stat.comm,
        cpu_ticks: stat.cpu_ticks,
    }))
}

/// Removes the trees of `fronts` from the apps in whose cgroups they run.
fn divide(tree: &ProcessTree, fronts: &[&App], found: &mut Vec<Sighted>) {
    for app in found.iter_mut() {
        let inner = fronts.iter().filter_map(|front| match front.key {
            AppKey::Tree(root) if app.key != front.key && app.has(root) => Some(root.pid),
            _ => None,
        });
        let mut inside: BTreeSet<i32> = BTreeSet::new();
        for root in inner {
            inside.insert(root);
            inside.extend(tree.descendants(root));
        }
        if inside.is_empty() {
            continue;
        }
        app.members
            .retain(|member| !inside.contains(&member.id.pid));
        app.lose_group();
    }
    found.retain(|app| !app.members.is_empty());
}

/// Apps that are process trees without their own cgroup. Processes that belong to `others` are left
/// out. A tree inside another tree is a separate app, because a program that starts apps does not
/// include them.
fn of_trees(tree: &ProcessTree, trees: &[&App], others: &[Sighted]) -> Vec<Sighted> {
    let mut taken: BTreeSet<i32> = others
        .iter()
        .flat_map(|app| app.members.iter().map(|member| member.id.pid))
        .collect();
    let mut roots: BTreeMap<ProcessId, &App> = BTreeMap::new();
    for app in trees {
        if let AppKey::Tree(root) = app.key {
            let lives = tree
                .get(root.pid)
                .is_some_and(|stat| stat.start_ticks == root.starttime);
            if lives {
                roots.insert(root, app);
            }
        }
    }
    let mut order: Vec<ProcessId> = roots.keys().copied().collect();
    // Deepest first: the inner tree takes its processes before the outer one.
    order.sort_unstable_by_key(|root| std::cmp::Reverse((depth(tree, root.pid), *root)));
    let mut found = Vec::new();
    for root in order {
        let mut pids = tree.descendants(root.pid);
        pids.push(root.pid);
        pids.sort_unstable();
        pids.retain(|pid| taken.insert(*pid));
        let members: Vec<Member> = pids
            .iter()
            .filter_map(|pid| {
                let stat = tree.get(*pid)?;
                (!matches!(stat.state, 'Z' | 'X')).then(|| Member {
                    id: ProcessId {
                        pid: *pid,
                        starttime: stat.start_ticks,
                    },
                    comm: stat.comm.clone(),
                    cpu_ticks: stat.cpu_ticks,
                })
            })
            .collect();
        let lives = members.iter().any(|member| member.id == root);
        if let Some(app) = roots.get(&root).filter(|_| lives) {
            found.push(Sighted {
                key: app.key,
                home: app.home.clone(),
                has_group: false,
                members,
            });
        }
    }
    found
}

/// Depth of a process in the tree: the number of its ancestors, plus one.
fn depth(tree: &ProcessTree, pid: i32) -> usize {
    // Process ids are read at different moments, so reuse could form a loop.
    const MOST: usize = 4096;
    let parents = std::iter::successors(Some(pid), |pid| tree.parent(*pid));
    parents.take(MOST).count()
}
