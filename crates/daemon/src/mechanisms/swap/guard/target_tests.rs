// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::system::Roots;
use limelight_core::model::Home;
use limelight_sys::cgroup::CgroupPath;
use std::fs;
use std::path::PathBuf;

#[test]
fn small_processes_do_not_hide_a_large_one() {
    let temp = tempfile::tempdir().unwrap();
    for directory in ["cgroup", "sys"] {
        fs::create_dir(temp.path().join(directory)).unwrap();
    }
    let process = |pid: i32, anonymous: u64, swapped: u64| {
        let directory = temp.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        fs::write(directory.join("stat"), stat).unwrap();
        let status = format!(
            "Tgid:\t{pid}\nUid:\t1\t1\t1\t1\nRssAnon:\t{anonymous} kB\nVmSwap:\t{swapped} kB\n"
        );
        fs::write(directory.join("status"), status).unwrap();
        ProcessId { pid, starttime: 70 }
    };
    let (small, tiny) = (process(5, 20, 0), process(6, 10, 0));
    let (large, swapped) = (process(7, 900, 0), process(8, 0, 800));
    let system = System::open(Roots::below(temp.path())).unwrap();
    let members = [small, tiny, large, swapped];
    assert_eq!(largest(&system, &members, 2), [large, swapped]);
    assert_eq!(largest(&system, &members, 3), [small, large, swapped]);
    assert_eq!(largest(&system, &members, 4), members);
}

/// An app that consists of this process, in a cgroup of plain files.
struct Fixture {
    /// The directory of the cgroup.
    group: PathBuf,
    system: System,
    id: ProcessId,
    app: App,
    _temp: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        let own = std::process::id() as i32;
        let group = temp.path().join("cgroup/app");
        let process = temp.path().join(format!("proc/{own}"));
        for directory in [&group, &process, &temp.path().join("sys")] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(group.join("cgroup.events"), "populated 1\n").unwrap();
        let stat = format!("{own} (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        for (file, text) in [
            ("stat", stat.as_str()),
            ("statm", "9 5 3 0 0 0 0\n"),
            (
                "status",
                "Name:\tx\nVmRSS:\t  20 kB\nVmSwap:\t      12 kB\nThreads:\t1\n",
            ),
        ] {
            fs::write(process.join(file), text).unwrap();
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let path = CgroupPath::parse("/app").unwrap();
        let inode = system.cgroups.open(&path).unwrap().id().0;
        let app = App {
            key: AppKey::Cgroup { inode },
            name: "x".to_owned(),
            process: None,
            home: Some(Home {
                path: "/app".to_owned(),
                inode,
                own: true,
                adopted: false,
            }),
        };
        Fixture {
            group,
            system,
            id: ProcessId {
                pid: own,
                starttime: 70,
            },
            app,
            _temp: temp,
        }
    }

    fn open(&self) -> Target {
        Target::open(&self.system, &self.app, &[self.id]).unwrap()
    }
}

#[test]
fn swap_is_counted_by_process_where_no_cgroup_counts_it() {
    let fixture = Fixture::new();
    let held = || fixture.open().held();
    let anonymous = 2 * page_bytes();
    let without = Held {
        anonymous,
        swapped: 12 << 10,
    };
    assert_eq!(held(), without);
    fs::write(fixture.group.join("memory.swap.current"), "4096\n").unwrap();
    let with = Held {
        anonymous,
        swapped: 4096,
    };
    assert_eq!(held(), with);
}

#[test]
fn target_is_outdated_once_a_child_cgroup_appears_or_disappears() {
    let fixture = Fixture::new();
    let stat = fixture.group.join("cgroup.stat");
    let part = fixture.group.join("part");
    let current = |target: &Target| target.is_of(&fixture.app, &[fixture.id]);
    fs::write(fixture.group.join("cgroup.procs"), "").unwrap();
    fs::write(&stat, "nr_descendants 0\n").unwrap();
    let alone = fixture.open();
    assert!(current(&alone));
    fs::create_dir(&part).unwrap();
    fs::write(part.join("cgroup.procs"), "").unwrap();
    fs::write(&stat, "nr_descendants 1\n").unwrap();
    assert!(!current(&alone));
    let divided = fixture.open();
    assert!(current(&divided));
    fs::remove_dir_all(&part).unwrap();
    fs::write(&stat, "nr_descendants 0\n").unwrap();
    assert!(!current(&divided) && current(&alone));
}

#[test]
fn target_is_outdated_once_the_app_gains_loses_or_changes_its_cgroup() {
    let mut fixture = Fixture::new();
    let with = fixture.open();
    let home = fixture.app.home.take();
    assert!(!with.is_of(&fixture.app, &[fixture.id]));
    let without = fixture.open();
    assert!(without.is_of(&fixture.app, &[fixture.id]));
    fixture.app.home = home;
    assert!(!without.is_of(&fixture.app, &[fixture.id]));
    assert!(with.is_of(&fixture.app, &[fixture.id]));
    fixture.app.home.as_mut().unwrap().inode += 1;
    assert!(!with.is_of(&fixture.app, &[fixture.id]));
}

#[test]
fn app_with_too_many_cgroups_is_not_opened_again_at_each_plan() {
    let fixture = Fixture::new();
    let stat = fixture.group.join("cgroup.stat");
    fs::write(fixture.group.join("cgroup.procs"), "").unwrap();
    for number in 0..GROUPS_MAX {
        let part = fixture.group.join(format!("part{number}"));
        fs::create_dir(&part).unwrap();
        fs::write(part.join("cgroup.procs"), "").unwrap();
    }
    fs::write(&stat, format!("nr_descendants {GROUPS_MAX}\n")).unwrap();
    let target = fixture.open();
    assert!(target.is_of(&fixture.app, &[fixture.id]));
    fs::write(&stat, "nr_descendants 9\n").unwrap();
    assert!(!target.is_of(&fixture.app, &[fixture.id]));
}
