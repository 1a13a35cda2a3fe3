// SPDX-License-Identifier: GPL-2.0-or-later
//! Cgroups that are not apps and hold much memory: services, containers, a nightly build. The
//! search runs only during memory shortages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::apps::{AppMemory, Service, LEAK_WITHIN};
use limelight_core::model::protected::contains;
use limelight_core::model::{App, AppKey, Home};
use limelight_core::policy::swap::culprit;
use limelight_sys::cgroup::{Cgroup, CgroupPath};

use crate::system::System;

/// Reciprocal of the smallest share of memory with which a cgroup counts as a service.
const PART: u64 = 64;

/// Maximum number of cgroups that one scan reads in one top-level subtree, and of services in the
/// result.
const GROUPS_MAX: usize = 1024;
const SERVICES_MAX: usize = 16;

/// The cgroup of the users' slices, and the maximum number of slices that are read.
const USERS: &str = "/user.slice";
const USERS_MAX: usize = 256;

/// Each child of these cgroups is a subtree with its own budget, so one user can use up only one
/// budget.
const SHARED: [&str; 2] = ["/", USERS];

/// Growth of services. For each service: when its memory was lowest, and that memory in bytes. A
/// minimum older than a minute is replaced by the current value.
#[derive(Debug, Default)]
pub struct ServiceGrowth(BTreeMap<AppKey, (Duration, u64)>);

impl ServiceGrowth {
    /// Sets `grown` of each service: its growth since the recorded minimum, in bytes.
    pub fn follow(&mut self, mut found: Vec<Service>, at: Duration) -> Vec<Service> {
        let keys: BTreeSet<AppKey> = found.iter().map(|service| service.app.key).collect();
        self.0.retain(|key, _| keys.contains(key));
        for service in &mut found {
            let now = service.memory.allocated();
            let low = self.0.entry(service.app.key).or_insert((at, now));
            if now <= low.1 || at.saturating_sub(low.0) > LEAK_WITHIN {
                *low = (at, now);
            }
            service.grown = now - low.1;
        }
        found
    }
}

/// Finds services on a machine with `total` bytes of memory: the highest cgroups that use at least
/// 1/64 of it and hold neither an app nor a protected process. `occupied` are the cgroups of apps
/// and of protected processes. The result is sorted by anonymous memory, largest first.
pub fn find(system: &System, occupied: &[&str], total: u64) -> Vec<Service> {
    let mut found = Vec::new();
    // Remaining budget of each subtree.
    let mut left = vec![GROUPS_MAX];
    // Groups whose children are to be read, and the index of their subtree in `left`.
    let mut waiting = vec![(CgroupPath::root(), 0)];
    while let Some((path, subtree)) = waiting.pop() {
        let Ok(group) = system.cgroups.open(&path) else {
            continue;
        };
        let Some(budget) = left.get_mut(subtree) else {
            continue;
        };
        let (names, _) = group.child_names(*budget).unwrap_or_default();
        *budget -= names.len();
        for name in names {
            // A child is charged to its parent too: no group below holds more than this one.
            let current = group.dir().read_text(format!("{name}/memory.current"));
            let bytes = current.ok().and_then(|text| text.trim().parse().ok());
            if bytes.is_some_and(|bytes: u64| bytes < total / PART) {
                continue;
            }
            let child = path.below(&name);
            if occupied.contains(&child.as_str()) {
                continue;
            }
            if occupied
                .iter()
                .any(|inside| contains(child.as_str(), inside))
            {
                let own = SHARED.contains(&path.as_str());
                let subtree = if own { left.len() } else { subtree };
                if own {
                    left.push(GROUPS_MAX);
                }
                waiting.push((child, subtree));
            } else if let Ok(child) = group.open_child(&name) {
                found.extend(service(&child).filter(|one| one.memory.anonymous > 0));
            }
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.memory.anonymous));
    found.truncate(SERVICES_MAX);
    found
}

/// The service in this group; `None` if the memory controller does not account for the group.
fn service(group: &Cgroup) -> Option<Service> {
    let inode = group.id().0;
    Some(Service {
        memory: charged(group)?,
        grown: 0,
        app: App {
            key: AppKey::Cgroup { inode },
            name: group.path().name().to_owned(),
            process: None,
            home: Some(Home {
                path: group.path().as_str().to_owned(),
                inode,
                own: true,
                adopted: false,
            }),
        },
    })
}

/// Anonymous, shared and swapped memory charged to each user's slice, in bytes, without page cache.
pub fn users(system: &System) -> Vec<(u32, u64)> {
    let Some(path) = CgroupPath::parse(USERS) else {
        return Vec::new();
    };
    let Ok(all) = system.cgroups.open(&path) else {
        return Vec::new();
    };
    let (names, _) = all.child_names(USERS_MAX).unwrap_or_default();
    let held = names.iter().filter_map(|name| {
        let user = culprit::user_of(path.below(name).as_str())?;
        Some((user, charged(&all.open_child(name).ok()?)?.allocated()))
    });
    held.collect()
}

/// The cgroup of a user's slice; `None`: there is none.
pub fn user_slice(system: &System, uid: u32) -> Option<Cgroup> {
    let path = CgroupPath::parse(USERS)?.below(&format!("user-{uid}.slice"));
    system.cgroups.open(&path).ok()
}

/// Memory that is charged to a cgroup and all below it; `None` without the memory controller.
pub fn charged(group: &Cgroup) -> Option<AppMemory> {
    let stat = group.memory_stat().ok()?;
    Some(AppMemory {
        resident: group.memory_current().ok()?,
        // Neither kind is backed by a file on disk.
        anonymous: stat
            .get("anon")?
            .saturating_add(stat.get("shmem").unwrap_or(0)),
        swapped: group.swap_current().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;

    const MIB: u64 = 1 << 20;

    #[test]
    fn highest_cgroups_without_apps_and_protected_processes_are_services() {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        let group = |path: &str, mib: u64| {
            let directory = temp.path().join("cgroup").join(path);
            fs::create_dir_all(&directory).unwrap();
            let bytes = mib * MIB;
            for (file, text) in [
                ("cgroup.procs", String::new()),
                ("memory.current", format!("{bytes}\n")),
                ("memory.stat", format!("anon {}\nshmem 0\n", bytes / 2)),
            ] {
                fs::write(directory.join(file), text).unwrap();
            }
        };
        group("", 0);
        group("build", 100);
        group("system.slice", 90);
        group("system.slice/db.service", 60);
        group("system.slice/dbus.service", 20);
        group("system.slice/tiny.service", 1);
        group("user", 200);
        group("user/app.scope", 150);
        group("user/app.scope/renderer", 140);
        group("user/backup.service", 40);
        let system = System::open(Roots::below(temp.path())).unwrap();
        let occupied = ["/user/app.scope", "/system.slice/dbus.service"];
        let found = find(&system, &occupied, 256 * MIB);
        let names: Vec<&str> = found.iter().map(|one| one.app.name.as_str()).collect();
        assert_eq!(names, ["build", "db.service", "backup.service"]);
        assert_eq!(found[0].memory.anonymous, 50 * MIB);
    }
}
