// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the apps that lost processes to the kernel's OOM killer.
//!
//! `/proc/vmstat` counts all kills, and each cgroup counts the kills of its own processes. A
//! cgroup's counter disappears with the cgroup, which may be removed as soon as it is empty. So an
//! app that ended between two calls is reported as a possible victim, unless the other counters
//! explain all kills.

use std::collections::BTreeMap;

use limelight_core::model::apps::Known;
use limelight_core::model::AppKey;

use crate::system::identify::{is_alive, open_home};
use crate::system::System;

/// Kill counters of the kernel's OOM killer as of the last call.
#[derive(Debug, Default)]
pub struct OomKills {
    total: Option<u64>,
    /// Number of processes killed so far in each cgroup with kills, by inode number.
    groups: BTreeMap<u64, u64>,
}

/// Kills since the previous call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Number of processes killed.
    pub processes: u64,
    /// The apps and the number of their processes killed; `None` if the app ended meanwhile and its
    /// counter is gone.
    pub apps: Vec<(AppKey, Option<u64>)>,
}

impl OomKills {
    /// Finds the apps with kills since the last call. `total` is the number of processes killed
    /// since boot; `apps` are the apps known so far. `None` if `total` has not grown, and at the
    /// first call.
    pub fn observe<'a>(
        &mut self,
        system: &System,
        total: u64,
        apps: impl IntoIterator<Item = &'a Known>,
    ) -> Option<Seen> {
        let last = self.total.replace(total)?;
        let processes = total.saturating_sub(last);
        if processes == 0 {
            return None;
        }
        let mut seen = Seen {
            processes,
            apps: Vec::new(),
        };
        let mut ended = Vec::new();
        let mut told = 0;
        for known in apps {
            let app = &known.found.app;
            let Some(group) = open_home(system, app) else {
                ended.extend((!is_alive(system, app)).then_some(app.key));
                continue;
            };
            let events = group.memory_events().ok();
            let Some(killed) = events.and_then(|events| events.get("oom_kill")) else {
                continue;
            };
            let before = match killed {
                0 => 0,
                killed => self.groups.insert(group.id().0, killed).unwrap_or(0),
            };
            let more = killed.saturating_sub(before).min(processes);
            if more > 0 {
                told += more;
                seen.apps.push((app.key, Some(more)));
            }
        }
        if told < processes {
            seen.apps.extend(ended.into_iter().map(|key| (key, None)));
        }
        Some(seen)
    }
}

impl Seen {
    /// Explains why an app ended; `count` as in [`Seen::apps`].
    pub fn reason(count: Option<u64>) -> String {
        match count {
            Some(count) => format!(
                "the kernel's OOM killer killed {} of its processes",
                match count {
                    1 => "one".to_owned(),
                    count => count.to_string(),
                }
            ),
            None => "it ended when the kernel's OOM killer killed a process; the kernel's log says which"
                .to_owned(),
        }
    }

    /// The message about kills that were not attributed to an app.
    pub fn without_app(&self) -> String {
        let processes = match self.processes {
            1 => "a process".to_owned(),
            more => format!("{more} processes"),
        };
        format!(
            "the kernel's OOM killer killed {processes} of no known app; the kernel's log says \
             which"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use limelight_core::model::apps::{Apps, Found};
    use limelight_core::model::{App, Home};
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    fn found(root: &std::path::Path, name: &str) -> Found {
        let directory = root.join("cgroup").join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("cgroup.procs"), "7\n").unwrap();
        fs::write(directory.join("memory.events"), "oom 0\noom_kill 0\n").unwrap();
        let inode = fs::metadata(&directory).unwrap().ino();
        let app = App {
            key: AppKey::Cgroup { inode },
            name: name.to_owned(),
            process: None,
            home: Some(Home {
                path: format!("/{name}"),
                inode,
                own: true,
                adopted: false,
            }),
        };
        Found::new(app, 1000)
    }

    #[test]
    fn victims_are_found_by_cgroup_and_ended_apps_are_possible_victims() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        for directory in ["proc", "sys", "cgroup", "run"] {
            fs::create_dir(root.join(directory)).unwrap();
        }
        fs::write(root.join("cgroup/cgroup.procs"), "").unwrap();
        let system = System::open(Roots {
            runtime: root.join("run"),
            ..Roots::below(root)
        })
        .unwrap();
        let names = ["app-a-1.scope", "app-b-1.scope", "app-c-1.scope"];
        let all = names.map(|name| found(root, name));
        let [a, _, c] = all.each_ref().map(|found| found.app.key);
        let mut apps = Apps::default();
        apps.observe(all.to_vec(), Duration::from_secs(1));
        let mut kills = OomKills::default();
        let mut observe = |total| kills.observe(&system, total, apps.by_use());
        assert_eq!(observe(4), None, "kills before the first call are reported");
        assert_eq!(observe(4), None);

        let events = root.join("cgroup/app-a-1.scope/memory.events");
        fs::write(&events, "oom 1\noom_kill 2\n").unwrap();
        let seen = observe(6).unwrap();
        assert_eq!((seen.processes, &seen.apps[..]), (2, &[(a, Some(2))][..]));

        fs::remove_dir_all(root.join("cgroup/app-c-1.scope")).unwrap();
        let seen = observe(7).unwrap();
        assert_eq!(seen.apps, [(c, None)]);
        fs::write(&events, "oom 2\noom_kill 3\n").unwrap();
        let seen = observe(8).unwrap();
        assert_eq!(
            seen.apps,
            [(a, Some(1))],
            "an ended app is suspected although the counters explain the kill"
        );

        let nobody = OomKills {
            total: Some(1),
            ..OomKills::default()
        }
        .observe(&system, 2, []);
        let nobody = nobody.unwrap();
        assert!(nobody.apps.is_empty());
        assert!(nobody.without_app().contains("a process of no known app"));
    }
}
