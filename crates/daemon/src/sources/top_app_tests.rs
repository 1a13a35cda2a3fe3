// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::doors::Roots;
use std::fs;

/// A system with processes and a cpuset that exist on paper only.
struct Fixture {
    temp: tempfile::TempDir,
    doors: Doors,
    source: TopApp,
}

/// Numbers that no process has.
const A: i32 = 900_100;
const B: i32 = 900_200;
const HELPER: i32 = 900_300;

impl Fixture {
    fn new(has_group: bool) -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        if has_group {
            fs::create_dir(temp.path().join("top-app")).unwrap();
        }
        let roots = Roots {
            top_app: temp.path().join("top-app"),
            ..Roots::below(temp.path())
        };
        let doors = Doors::open(roots).unwrap();
        if has_group {
            for file in ["cgroup.procs", "tasks"] {
                fs::write(doors.roots.top_app.join(file), "").unwrap();
            }
        }
        let source = TopApp::start(&doors, true);
        Fixture {
            temp,
            doors,
            source,
        }
    }

    fn process(&self, pid: i32, started: u64, uid: u32) {
        let directory = self.temp.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {started} 0 0\n");
        fs::write(directory.join("stat"), stat).unwrap();
        let status = format!("Tgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        fs::write(directory.join("status"), status).unwrap();
    }

    /// Who is in the group: processes, and single threads of others.
    fn put(&mut self, processes: &[i32], threads: &[i32]) -> Option<Option<i32>> {
        let text = |all: &[i32]| all.iter().map(|n| format!("{n}\n")).collect::<String>();
        let group = &self.doors.roots.top_app;
        fs::write(group.join("cgroup.procs"), text(processes)).unwrap();
        fs::write(group.join("tasks"), text(threads)).unwrap();
        self.look()
    }

    fn look(&mut self) -> Option<Option<i32>> {
        let seen = self.source.look(&self.doors);
        seen.map(|front| front.map(|id| id.pid))
    }
}

#[test]
fn whoever_came_last_is_in_front() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    fixture.process(B, 50, 0);
    assert!(!fixture.source.speaks());
    assert_eq!(fixture.put(&[], &[]), None);
    assert!(!fixture.source.speaks(), "nobody was in it yet");
    assert_eq!(fixture.put(&[A], &[A, A + 1]), Some(Some(A)));
    assert!(fixture.source.speaks());
    assert_eq!(fixture.put(&[A], &[A]), None, "nothing new");
    assert_eq!(
        fixture.put(&[A, B], &[A, B]),
        Some(Some(B)),
        "though A is younger"
    );
    assert_eq!(fixture.put(&[A, B], &[A, B]), None);
    assert_eq!(fixture.put(&[A], &[A]), Some(Some(A)), "B has left");
    assert_eq!(fixture.put(&[], &[]), Some(None));
    assert!(
        fixture.source.speaks(),
        "that nobody is in front is its word too"
    );
}

#[test]
fn of_several_at_once_the_youngest_is_taken() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    fixture.process(B, 50, 0);
    assert_eq!(fixture.put(&[A, B], &[A, B]), Some(Some(A)));
}

#[test]
fn threads_that_draw_and_isolated_processes_are_not_apps() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    fixture.process(B, 80, 0);
    assert_eq!(fixture.put(&[A], &[A]), Some(Some(A)));
    // A thread of B, whose first thread is elsewhere.
    assert_eq!(fixture.put(&[A, B], &[A, B + 7]), None);
    // The 10th person's first isolated process.
    fixture.process(HELPER, 90, 1_099_000);
    assert_eq!(fixture.put(&[A, HELPER], &[A, HELPER]), None);
}

#[test]
fn a_process_that_took_over_a_number_is_another_one() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    assert_eq!(fixture.put(&[A], &[A]), Some(Some(A)));
    fixture.process(A, 90, 0);
    let seen = fixture.source.look(&fixture.doors);
    assert_eq!(seen.flatten().map(|id| id.starttime), Some(90));
}

#[test]
fn where_there_is_no_group_it_is_silent_and_says_why() {
    let mut fixture = Fixture::new(false);
    assert!(fixture.source.detail().contains("no Android"));
    assert_eq!(fixture.look(), None);
    let off = TopApp::start(&fixture.doors, false);
    assert!(off.group().is_none() && off.detail().contains("[sources] top_app"));
    let mut fixture = Fixture::new(true);
    fs::remove_dir_all(&fixture.doors.roots.top_app).unwrap();
    assert_eq!(fixture.look(), None);
    assert!(!fixture.source.speaks() && fixture.source.group().is_none());
}
