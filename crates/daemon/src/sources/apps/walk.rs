// SPDX-License-Identifier: GPL-2.0-or-later
//! Walks the cgroup hierarchy for the units of apps.
//!
//! Any user can make cgroups without limit below a delegated cgroup. So the walk stores only names,
//! holds one group open at a time, skips groups without processes, and has a budget for each
//! top-level subtree. The subtrees take turns, so a subtree that exceeds its budget or uses up the
//! total does not hide the groups of other subtrees.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use limelight_core::model::unit;
use limelight_sys::cgroup::{Cgroup, CgroupPath};
use limelight_sys::Result;
use tracing::warn;

use crate::system::System;

/// Maximum number of groups that one scan reads.
const GROUPS_MAX: usize = 8192;

/// Maximum number of groups that one scan reads below one user's slice, or below another top-level
/// group.
const SUBTREE_MAX: usize = 2048;

/// Maximum depth of the groups that are read, counted from the top of their subtree.
const LEVELS_MAX: usize = 64;

/// Top-level groups without apps.
const NO_APPS: [&str; 3] = ["/system.slice", "/machine.slice", "/init.scope"];

/// The cgroup of the users' slices. Each slice is a subtree.
const USERS: &str = "/user.slice";

/// Name of the group in which desktops put apps. Such a group belongs to [`Places::nests`] even
/// while it contains no app.
const NEST: &str = "app.slice";

/// Results of a scan besides the apps.
#[derive(Debug, Default)]
pub struct Places {
    /// Cgroups that contain, or are made to contain, units of apps.
    pub nests: BTreeSet<String>,
    /// Subtrees that the last scan did not read completely, and the budget that was exceeded.
    crowded: BTreeMap<String, Budget>,
}

/// A limit of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Budget {
    /// [`SUBTREE_MAX`].
    Subtree,
    /// [`GROUPS_MAX`].
    Total,
}

/// The warning about a subtree that was not read completely.
fn warning(path: &str, exceeded: Budget) -> String {
    let cause = match exceeded {
        Budget::Subtree => format!(
            "{path} has more cgroups than the {SUBTREE_MAX} that a scan reads in one subtree"
        ),
        Budget::Total => format!(
            "a scan reads at most {GROUPS_MAX} cgroups, and reached that limit before the end of \
             {path}"
        ),
    };
    format!("{cause}: some of the apps there are not found")
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
    /// Number of further groups that may be queued.
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
    walk(system, places, GROUPS_MAX)
}

/// [`units`], with a scan that reads at most `most` groups.
fn walk(system: &System, places: &mut Places, most: usize) -> Result<Vec<Unit>> {
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
    let mut crowded = BTreeMap::new();
    let mut read = 0;
    while let Some(mut subtree) = waiting.pop_front() {
        if read == most && !subtree.queue.is_empty() {
            crowded.insert(subtree.path, Budget::Total);
            continue;
        }
        match subtree.step(system, &mut places.nests, &mut units)? {
            true => {
                read += 1;
                waiting.push_back(subtree);
            }
            false if subtree.crowded => _ = crowded.insert(subtree.path, Budget::Subtree),
            false => {}
        }
    }
    let known = std::mem::take(&mut places.crowded);
    for (path, exceeded) in crowded
        .iter()
        .filter(|(path, _)| !known.contains_key(*path))
    {
        warn!("{}", warning(path, *exceeded));
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

/// Groups directly below the root or [`USERS`]. Only root can create groups there.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;

    #[test]
    fn warning_names_the_budget_that_was_exceeded() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        // Each slice has one group. In the second slice, that group has a child.
        for path in ["user-1.slice/a", "user-2.slice/a/b"] {
            fs::create_dir_all(temp.path().join("cgroup/user.slice").join(path)).unwrap();
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let crowded = |most: usize| {
            let mut places = Places::default();
            walk(&system, &mut places, most).unwrap();
            places.crowded.into_iter().collect::<Vec<_>>()
        };
        let second = "/user.slice/user-2.slice".to_owned();
        assert_eq!(crowded(5), []);
        assert_eq!(crowded(4), [(second.clone(), Budget::Total)]);
        let [own, total] = [Budget::Subtree, Budget::Total].map(|one| warning(&second, one));
        assert!(own.contains("2048") && !own.contains("8192"), "{own}");
        assert!(total.contains("8192") && !total.contains("2048"), "{total}");
    }
}
