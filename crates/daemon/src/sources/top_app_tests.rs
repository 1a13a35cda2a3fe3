// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::system::Roots;
use std::fs;

/// A system with a fake procfs and cpuset.
struct Fixture {
    temp: tempfile::TempDir,
    system: System,
    source: TopApp,
}

/// Process ids that no real process is expected to have.
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
        let system = System::open(roots).unwrap();
        if has_group {
            for file in ["cgroup.procs", "tasks"] {
                fs::write(system.roots.top_app.join(file), "").unwrap();
            }
        }
        let source = TopApp::start(&system, true);
        Fixture {
            temp,
            system,
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

    /// Sets the members of the group: processes, and single threads of others.
    fn put(&mut self, processes: &[i32], threads: &[i32]) -> Option<Option<i32>> {
        let text = |all: &[i32]| all.iter().map(|n| format!("{n}\n")).collect::<String>();
        let group = &self.system.roots.top_app;
        fs::write(group.join("cgroup.procs"), text(processes)).unwrap();
        fs::write(group.join("tasks"), text(threads)).unwrap();
        self.look()
    }

    fn look(&mut self) -> Option<Option<i32>> {
        let seen = self.source.look(&self.system);
        seen.map(|front| front.map(|id| id.pid))
    }
}

#[test]
fn latest_arrival_is_in_the_foreground() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    fixture.process(B, 50, 0);
    assert!(!fixture.source.speaks());
    assert_eq!(fixture.put(&[], &[]), None);
    assert!(!fixture.source.speaks(), "no process was in the group yet");
    assert_eq!(fixture.put(&[A], &[A, A + 1]), Some(Some(A)));
    assert!(fixture.source.speaks());
    assert_eq!(
        fixture.put(&[A], &[A]),
        None,
        "the foreground has not changed"
    );
    assert_eq!(
        fixture.put(&[A, B], &[A, B]),
        Some(Some(B)),
        "the latest arrival is not the youngest process"
    );
    assert_eq!(fixture.put(&[A, B], &[A, B]), None);
    assert_eq!(
        fixture.put(&[A], &[A]),
        Some(Some(A)),
        "the latest arrival has left"
    );
    assert_eq!(fixture.put(&[], &[]), Some(None));
    assert!(
        fixture.source.speaks(),
        "an empty group means that no app is in the foreground"
    );
}

#[test]
fn of_several_arrivals_the_youngest_counts() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    fixture.process(B, 50, 0);
    assert_eq!(fixture.put(&[A, B], &[A, B]), Some(Some(A)));
}

#[test]
fn drawing_threads_and_isolated_processes_are_not_apps() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    fixture.process(B, 80, 0);
    assert_eq!(fixture.put(&[A], &[A]), Some(Some(A)));
    // A thread of B, whose first thread is in another group.
    assert_eq!(fixture.put(&[A, B], &[A, B + 7]), None);
    // The first isolated process of Android's user 10.
    fixture.process(HELPER, 90, 1_099_000);
    assert_eq!(fixture.put(&[A, HELPER], &[A, HELPER]), None);
}

#[test]
fn reused_process_id_is_another_process() {
    let mut fixture = Fixture::new(true);
    fixture.process(A, 70, 0);
    assert_eq!(fixture.put(&[A], &[A]), Some(Some(A)));
    fs::remove_dir_all(fixture.temp.path().join(format!("proc/{A}"))).unwrap();
    fixture.process(A, 90, 0);
    let seen = fixture.source.look(&fixture.system);
    assert_eq!(seen.flatten().map(|id| id.starttime), Some(90));
}

#[test]
fn without_the_cpuset_the_source_reports_only_the_reason() {
    let mut fixture = Fixture::new(false);
    assert!(fixture.source.detail().contains("not Android"));
    assert_eq!(fixture.look(), None);
    let off = TopApp::start(&fixture.system, false);
    assert!(off.group().is_none() && off.detail().contains("[sources] top_app"));
    let mut fixture = Fixture::new(true);
    fs::remove_dir_all(&fixture.system.roots.top_app).unwrap();
    assert_eq!(fixture.look(), None);
    assert!(!fixture.source.speaks() && fixture.source.group().is_none());
}
