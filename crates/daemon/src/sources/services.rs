// SPDX-License-Identifier: GPL-2.0-or-later
//! Cgroups that are no app and hold much memory: services, containers, a nightly build. Found only
//! while memory is short.

use limelight_core::model::apps::{AppMemory, Service};
use limelight_core::model::protected::contains;
use limelight_core::model::{App, AppKey, Home};
use limelight_sys::cgroup::{Cgroup, CgroupPath};

use crate::doors::Doors;

/// A service holds at least this part of memory.
const PART: u64 = 64;

/// Most cgroups that are read in one scan, and most services that are listed.
const GROUPS_MAX: usize = 1024;
const SERVICES_MAX: usize = 16;

/// Finds them, on a machine with `total` bytes of memory: the highest cgroups that hold neither an app nor
/// a protected process. `occupied` are the cgroups of those. The one with most anonymous memory first.
pub fn find(doors: &Doors, occupied: &[&str], total: u64) -> Vec<Service> {
    let Ok(root) = doors.cgroups.open(&CgroupPath::root()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut open = vec![root];
    let mut read = 0;
    while let Some(group) = open.pop() {
        for child in group.children().unwrap_or_default() {
            read += 1;
            if read > GROUPS_MAX {
                break;
            }
            // A child is charged to its parent too: below little memory there is no more.
            if child
                .memory_current()
                .is_ok_and(|bytes| bytes < total / PART)
            {
                continue;
            }
            let path = child.path().as_str();
            if occupied.contains(&path) {
                continue;
            }
            match occupied.iter().any(|inside| contains(path, inside)) {
                true => open.push(child),
                false => found.extend(service(&child).filter(|one| one.memory.anonymous > 0)),
            }
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.memory.anonymous));
    found.truncate(SERVICES_MAX);
    found
}

/// `None` where the memory controller does not count it.
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

/// Memory that is charged to a cgroup and all below it.
pub fn charged(group: &Cgroup) -> Option<AppMemory> {
    let stat = group.memory_stat().ok()?;
    Some(AppMemory {
        resident: group.memory_current().ok()?,
        // Neither has a file to be dropped to.
        anonymous: stat
            .get("anon")?
            .saturating_add(stat.get("shmem").unwrap_or(0)),
        swapped: group.swap_current().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::Roots;
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
        let doors = Doors::open(Roots::below(temp.path())).unwrap();
        let occupied = ["/user/app.scope", "/system.slice/dbus.service"];
        let found = find(&doors, &occupied, 256 * MIB);
        let names: Vec<&str> = found.iter().map(|one| one.app.name.as_str()).collect();
        assert_eq!(names, ["build", "db.service", "backup.service"]);
        assert_eq!(found[0].memory.anonymous, 50 * MIB);
    }
}
