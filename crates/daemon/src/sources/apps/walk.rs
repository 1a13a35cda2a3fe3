// SPDX-License-Identifier: GPL-2.0-or-later
//! Walks the cgroup hierarchy for the units of apps.
//!
//! Any user can make cgroups without limit below a delegated cgroup. So the walk stores only names,
//! holds one group open at a time, skips groups without processes, and has a budget for each
//! top-level subtree. The subtrees take turns, so a subtree that exceeds its budget or uses up the
//! total does not hide the groups of other subtrees.

use std::collections::{BTreeSet, VecDeque};

use limelight_core::model::unit;
use limelight_sys::cgroup::{Cgroup, CgroupPath};
use limelight_sys::Result;
use tracing::warn;

use crate::system::System;

/// Most groups that are read in one scan.
const GROUPS_MAX: usize = 8192;

/// Most groups that are read in one scan below one user's slice, or below another top-level group.
const SUBTREE_MAX: usize = 2048;

/// Deepest group that is read, counted from the top of its subtree.
const LEVELS_MAX: usize = 64;

/// Top-level groups without apps.
const NO_APPS: [&str; 3] = ["/system.slice", "/machine.slice", "/init.scope"];

/// The cgroup of the users' slices. Each slice is a subtree.
const USERS: &str = "/user.slice";

/// Name of the group in which desktops put apps; it is a nest even while it contains no app.
const NEST: &str = "app.slice";

/// Results of a scan besides the apps.
#[derive(Debug, Default)]
pub struct Places {
    /// Cgroups that contain, or are made to contain, units of apps.
    pub nests: BTreeSet<String>,
    /// Subtrees that had more groups than their budget in the last scan.
    crowded: BTreeSet<String>,
}

/// The cgroup of a unit that was made for an app.
#[derive(Debug)]
pub struct Unit {
    pub path: String,
    pub inode: u64,
    /// Index of the innermost unit around this one; always smaller than this one's own index.
    pub outer: Option<usize>,
    /// Processes in the unit, without the processes of inner units; not sorted.
    pub pids: Vec<i32>,
}

/// A group that has not been read yet.
#[derive(Debug)]
struct Group {
    path: CgroupPath,
    level: usize,
    /// Index of the innermost unit around it.
    outer: Option<usize>,
}

/// A part of the hierarchy that one user can fill.
#[derive(Debug)]
struct Subtree {
    path: String,
    /// Breadth first.
    queue: VecDeque<Group>,
    /// Groups that may still be queued.
    left: usize,
    crowded: bool,
}

impl Subtree {
    fn new(top: CgroupPath, outer: Option<usize>) -> Subtree {
        Subtree {
            path: top.as_str().to_owned(),
            queue: VecDeque::from([Group {
                path: top,
                level: 0,
                outer,
            }]),
            left: SUBTREE_MAX,
            crowded: false,
        }
    }

    /// Reads the next group. `false` if there is none.
    fn step(
        &mut self,
        system: &System,
        nests: &mut BTreeSet<String>,
        units: &mut Vec<Unit>,
    ) -> Result<bool> {
        let Some(Group { path, level, outer }) = self.queue.pop_front() else {
            return Ok(false);
        };
        if path.name() == NEST {
            nests.insert(path.as_str().to_owned());
        }
        let Some(group) = there(system.cgroups.open(&path))? else {
            return Ok(true);
        };
        if there(group.is_populated())? == Some(false) {
            return Ok(true);
        }
        let mut inside = outer;
        if unit::is_app(path.name()) {
            nests.extend(path.parent().map(|nest| nest.as_str().to_owned()));
            inside = Some(units.len());
            units.push(Unit {
                path: path.as_str().to_owned(),
                inode: group.id().0,
                outer,
                pids: Vec::new(),
            });
        }
        if let Some(unit) = inside.and_then(|place| units.get_mut(place)) {
            unit.pids.extend(there(group.procs())?.unwrap_or_default());
        }
        if level < LEVELS_MAX {
            let (names, more) = there(group.child_names(self.left))?.unwrap_or_default();
            self.left -= names.len();
            self.crowded |= more;
            self.queue.extend(names.iter().map(|name| Group {
                path: path.below(name),
                level: level + 1,
                outer: inside,
            }));
        }
        Ok(true)
    }
}

/// The units of apps, outer ones before inner ones. Stores the other results of the scan in
/// `places`. Fails if no descriptor or memory is left for the scan.
pub fn units(system: &System, places: &mut Places) -> Result<Vec<Unit>> {
    places.nests.clear();
    let root = CgroupPath::root();
    let mut tops = tops(system, &root)?;
    if let Some(users) = CgroupPath::parse(USERS) {
        tops.extend(self::tops(system, &users)?);
    }
    let apart = |top: &CgroupPath| top.as_str() == USERS || NO_APPS.contains(&top.as_str());
    let tops = tops.into_iter().filter(|top| !apart(top));
    let mut waiting: VecDeque<Subtree> = tops.map(|top| Subtree::new(top, None)).collect();
    let mut units = Vec::new();
    let mut crowded = BTreeSet::new();
    let mut read = 0;
    while let Some(mut subtree) = waiting.pop_front() {
        if read == GROUPS_MAX {
            crowded.insert(subtree.path);
            continue;
        }
        match subtree.step(system, &mut places.nests, &mut units)? {
            true => {
                read += 1;
                waiting.push_back(subtree);
            }
            false if subtree.crowded => _ = crowded.insert(subtree.path),
            false => {}
        }
    }
    for path in crowded.difference(&places.crowded) {
        warn!(
            "{path} has more cgroups than the {SUBTREE_MAX} that a scan reads: some of the apps there \
             are not found; apps elsewhere are"
        );
    }
    places.crowded = crowded;
    Ok(units)
}

/// The subtree that a path belongs to: a user's slice, else the top-level group.
pub fn subtree(path: &str) -> &str {
    let below = path.strip_prefix(USERS);
    let of_user = below.is_some_and(|below| below.starts_with('/'));
    let end = path.match_indices('/').nth(if of_user { 2 } else { 1 });
    end.map_or(path, |(end, _)| path.get(..end).unwrap_or(path))
}

/// Groups directly below this one. Only root can create such groups.
fn tops(system: &System, path: &CgroupPath) -> Result<Vec<CgroupPath>> {
    let Some(group) = there(system.cgroups.open(path))? else {
        return Ok(Vec::new());
    };
    let (names, _) = there(group.child_names(GROUPS_MAX))?.unwrap_or_default();
    Ok(names.iter().map(|name| path.below(name)).collect())
}

/// Processes in this group and below it, within one subtree's budget. Processes in inner units are
/// included until the next scan separates them.
pub fn procs_below(system: &System, group: &Cgroup) -> Result<Vec<i32>> {
    let mut units = vec![Unit {
        path: String::new(),
        inode: 0,
        outer: None,
        pids: Vec::new(),
    }];
    let mut subtree = Subtree::new(group.path().clone(), Some(0));
    while subtree.step(system, &mut BTreeSet::new(), &mut units)? {}
    Ok(units.into_iter().flat_map(|unit| unit.pids).collect())
}

/// `None` if the group is gone or cannot be read. Any user can make an unreadable cgroup, and it
/// must not stop the scan of other cgroups. Only a lack of descriptors or memory is an error.
pub fn there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.is_exhausted() => Err(error),
        other => Ok(other.ok()),
    }
}
