// SPDX-License-Identifier: GPL-2.0-or-later
//! Where apps are: every unit that a desktop, a sandbox or a terminal made for one, anywhere in the
//! hierarchy, and everything that was ever in front and still lives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use limelight_core::model::{unit, App, AppKey, Home, ProcessId};
use limelight_sys::cgroup::{Cgroup, CgroupPath};
use limelight_sys::process::Stat;
use limelight_sys::tree::ProcessTree;
use limelight_sys::Result;

use crate::actuators::adopt::root_of_scope;
use crate::doors::Doors;
use crate::identify;

/// Whoever owns a cgroup can nest and multiply without end: so many are looked at, so deep.
const GROUPS_MAX: usize = 8192;
const CHILDREN_MAX: usize = 1024;
const LEVELS_MAX: usize = 16;

/// Where no app lives, below the root.
const NO_APPS: [&str; 3] = ["/system.slice", "/machine.slice", "/init.scope"];

/// A process of an app.
#[derive(Debug)]
pub struct Member {
    pub id: ProcessId,
    pub comm: String,
}

/// An app, before it is known what it is.
#[derive(Debug)]
pub struct Sighted {
    pub key: AppKey,
    pub home: Option<Home>,
    /// Its cgroup, if it has one of its own.
    pub group: Option<Cgroup>,
    /// Ascending; never empty.
    pub members: Vec<Member>,
}

impl Sighted {
    /// The root of its tree, or what was started first.
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

    /// Whether this process belongs to it.
    pub fn has(&self, id: ProcessId) -> bool {
        let found = self.members.binary_search_by_key(&id, |member| member.id);
        found.is_ok()
    }

    /// Whether the process with this number belongs to it.
    pub fn has_pid(&self, pid: i32) -> bool {
        let found = self
            .members
            .binary_search_by_key(&pid, |member| member.id.pid);
        found.is_ok()
    }

    /// The name of its unit, unless that is one of ours.
    pub fn unit_name(&self) -> Option<&str> {
        let home = self
            .home
            .as_ref()
            .filter(|home| home.own && !home.adopted)?;
        home.path.rsplit('/').next()
    }
}

/// Where desktops put apps, whether any is there or not.
const NEST: &str = "app.slice";

/// All apps: units, and of `fronts` what still lives. `nests` becomes the cgroups that have, or are
/// made to have, units of apps. An error where nothing is left to look with.
pub fn all<'a>(
    doors: &Doors,
    fronts: impl Iterator<Item = &'a App>,
    nests: &mut BTreeSet<String>,
) -> Result<Vec<Sighted>> {
    let mut found = units(doors, nests)?;
    let keys: BTreeSet<AppKey> = found.iter().map(|app| app.key).collect();
    let fronts: Vec<&App> = fronts.filter(|app| !keys.contains(&app.key)).collect();
    let (own, trees): (Vec<&App>, Vec<&App>) =
        fronts.into_iter().partition(|app| app.own_home().is_some());
    for app in own {
        found.extend(one(doors, app)?);
    }
    if !trees.is_empty() {
        let tree = doors.proc.tree()?;
        divide(&tree, &trees, &mut found);
        found.extend(of_trees(&tree, &trees, &found));
    }
    Ok(found)
}

/// An app that has a cgroup of its own, without a look at any other.
pub fn one(doors: &Doors, app: &App) -> Result<Option<Sighted>> {
    match (app.own_home(), identify::find_home(doors, app)?) {
        (Some(home), Some(group)) => sighted(doors, app.key, Some(home.clone()), group),
        _ => Ok(None),
    }
}

fn units(doors: &Doors, nests: &mut BTreeSet<String>) -> Result<Vec<Sighted>> {
    let root = doors.cgroups.open(&CgroupPath::root())?;
    nests.clear();
    // Broad before deep, so that no one's nest hides what others have.
    let mut open = VecDeque::from([(root, 0)]);
    let mut seen = 0;
    let mut found = Vec::new();
    while let Some((group, level)) = open.pop_front() {
        let children = match level < LEVELS_MAX {
            true => there(group.children())?.unwrap_or_default(),
            false => Vec::new(),
        };
        if group.path().name() == NEST {
            nests.insert(group.path().as_str().to_owned());
        }
        if unit::is_app(group.path().name()) {
            let nest = group.path().parent();
            nests.extend(nest.map(|nest| nest.as_str().to_owned()));
            found.extend(unit_app(doors, group)?);
        }
        let children = children.into_iter().take(CHILDREN_MAX);
        for child in children.filter(|child| !NO_APPS.contains(&child.path().as_str())) {
            seen += 1;
            if seen > GROUPS_MAX {
                return Ok(found);
            }
            open.push_back((child, level + 1));
        }
    }
    Ok(found)
}

/// `None` where it is gone meanwhile, or of a kind that tells nothing: anybody may make such a
/// cgroup, and nobody is to keep the others from being seen.
fn there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.is_exhausted() => Err(error),
        other => Ok(other.ok()),
    }
}

/// The app in a unit's cgroup, if anybody lives there.
fn unit_app(doors: &Doors, group: Cgroup) -> Result<Option<Sighted>> {
    let inode = group.id().0;
    let adopted = root_of_scope(group.path().as_str());
    let home = Home {
        path: group.path().as_str().to_owned(),
        inode,
        own: true,
        adopted: adopted.is_some(),
    };
    let key = adopted.map_or(AppKey::Cgroup { inode }, AppKey::Tree);
    sighted(doors, key, Some(home), group)
}

fn sighted(
    doors: &Doors,
    key: AppKey,
    home: Option<Home>,
    group: Cgroup,
) -> Result<Option<Sighted>> {
    let mut members = Vec::new();
    for pid in there(group.procs_below())?.unwrap_or_default() {
        members.extend(member(doors, pid)?);
    }
    Ok((!members.is_empty()).then_some(Sighted {
        key,
        home,
        group: Some(group),
        members,
    }))
}

/// A process that has not ended.
fn member(doors: &Doors, pid: i32) -> Result<Option<Member>> {
    // There may be thousands: one file each, and no directory.
    let text = there(doors.proc.dir().read_text(format!("{pid}/stat")))?;
    let stat = text.and_then(|text| Stat::parse(&text));
    let stat = stat.filter(|stat| !matches!(stat.state, 'Z' | 'X'));
    Ok(stat.map(|stat| Member {
        id: ProcessId {
            pid,
            starttime: stat.start_ticks,
        },
        comm: stat.comm,
    }))
}

/// Takes the trees of `fronts` out of the apps in whose cgroups they live. Such a cgroup holds two apps,
/// so its knobs are neither's: what is left of the outer app is handled process by process.
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
        app.group = None;
        if let Some(home) = &mut app.home {
            home.own = false;
        }
    }
    found.retain(|app| !app.members.is_empty());
}

/// Process trees without a cgroup of their own. What lives in one of the `others` belongs there, and
/// of two trees of which one is in the other each has its own: whoever starts apps is not them.
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
    // The inner one was started later.
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
                })
            })
            .collect();
        let lives = members.iter().any(|member| member.id == root);
        if let Some(app) = roots.get(&root).filter(|_| lives) {
            found.push(Sighted {
                key: app.key,
                home: app.home.clone(),
                group: None,
                members,
            });
        }
    }
    found
}

/// How many ancestors a process has.
fn depth(tree: &ProcessTree, pid: i32) -> usize {
    // Numbers are read at different moments, so reuse could make a loop of them.
    const MOST: usize = 4096;
    let parents = std::iter::successors(Some(pid), |pid| tree.parent(*pid));
    parents.take(MOST).count()
}
