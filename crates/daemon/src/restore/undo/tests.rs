// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::restore::{Lineage, Moment};
use crate::system::Roots;
use std::fs;
use std::os::unix::fs::MetadataExt;

struct Fixture {
    temp: tempfile::TempDir,
    system: System,
    ledger: Ledger,
}

impl Fixture {
    fn new() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup", "run"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let ledger = Ledger::open(&temp.path().join("run"), String::new());
        Fixture {
            temp,
            system,
            ledger,
        }
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.temp.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        let text = fs::read_to_string(self.temp.path().join(file)).unwrap();
        text.trim().to_owned()
    }

    fn cgroup(&self, path: &str) -> Place {
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.subtree_control", "memory"),
            ("memory.min", "0"),
            ("memory.low", "0"),
            ("memory.high", "max"),
            ("memory.max", "max"),
            ("memory.swap.max", "max"),
        ] {
            self.write(&format!("cgroup{path}/{file}"), text);
        }
        let metadata = fs::metadata(self.temp.path().join(format!("cgroup{path}"))).unwrap();
        Place {
            path: path.to_owned(),
            inode: metadata.ino(),
        }
    }

    fn limit(&self, cgroup: &Place) -> Entry {
        Entry::Limit {
            cgroup: cgroup.clone(),
            knob: "memory.min".into(),
            original: "4096".into(),
            ours: vec!["8192".into(), "12288".into()],
        }
    }

    fn process(&self, pid: i32, ppid: i32, value: i16) {
        let stat = format!("{pid} (x) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        self.write(&format!("proc/{pid}/stat"), &stat);
        self.write(&format!("proc/{pid}/oom_score_adj"), &value.to_string());
    }

    fn score(&self, pid: i32) -> i16 {
        self.read(&format!("proc/{pid}/oom_score_adj"))
            .parse()
            .unwrap()
    }

    fn undo(&mut self, entries: impl IntoIterator<Item = Entry>) -> Vec<Undone> {
        self.ledger.intend(entries).unwrap();
        let results = undo(&mut self.ledger, &self.system, |_| true);
        results.into_iter().map(|(_, undone)| undone).collect()
    }
}

fn lowered(pid: i32, original: i16, ours: i16, home: Option<Place>) -> Entry {
    Entry::OomScoreAdj {
        pid,
        starttime: 70,
        original,
        ours,
        home,
    }
}

/// Children of user 1000, created since `ticks`, may have inherited -500 instead of 0.
fn given(ticks: u64) -> Entry {
    let since = Moment {
        ticks,
        last_pid: None,
        forks: None,
    };
    let lineage = Lineage {
        uid: 1000,
        login: None,
        since,
    };
    Entry::ScoreGiven {
        lineage,
        original: 0,
        ours: -500,
    }
}

#[test]
fn limit_is_restored_only_while_its_value_is_ours() {
    let mut fixture = Fixture::new();
    let cgroup = fixture.cgroup("/a");
    let entry = fixture.limit(&cgroup);
    for (found, expected, left) in [
        ("8192", Undone::Restored, "4096"),
        ("12288", Undone::Restored, "4096"),
        // The change was recorded but never made.
        ("4096", Undone::Restored, "4096"),
        (
            "16384",
            Undone::Theirs {
                found: "16384".into(),
            },
            "16384",
        ),
        (
            "max",
            Undone::Theirs {
                found: "max".into(),
            },
            "max",
        ),
    ] {
        fixture.write("cgroup/a/memory.min", found);
        assert_eq!(fixture.undo([entry.clone()]), [expected]);
        assert_eq!(fixture.read("cgroup/a/memory.min"), left);
        assert!(fixture.ledger.entries().is_empty());
    }
}

#[test]
fn another_cgroup_of_the_same_name_is_left_alone() {
    let mut fixture = Fixture::new();
    let cgroup = fixture.cgroup("/a");
    let stranger = Place {
        inode: cgroup.inode + 1,
        ..cgroup
    };
    fixture.write("cgroup/a/memory.min", "8192");
    let entry = fixture.limit(&stranger);
    assert_eq!(fixture.undo([entry]), [Undone::Gone]);
    assert_eq!(fixture.read("cgroup/a/memory.min"), "8192");
}

#[test]
fn failed_restore_stays_in_the_record() {
    let mut fixture = Fixture::new();
    let cgroup = fixture.cgroup("/a");
    fixture.write("cgroup/a/memory.min", "nonsense");
    let entry = fixture.limit(&cgroup);
    let undone = fixture.undo([entry.clone()]);
    assert!(
        matches!(undone.as_slice(), [Undone::Failed { .. }]),
        "{undone:?}"
    );
    assert_eq!(fixture.ledger.entries(), [entry]);
}

#[test]
fn controller_stays_where_another_program_relies_on_it() {
    let mut fixture = Fixture::new();
    let parent = fixture.cgroup("/a");
    fixture.cgroup("/a/b");
    let entry = Entry::Controller {
        cgroup: parent,
        controller: "memory".into(),
    };
    fixture.write("cgroup/a/b/memory.max", "1048576");
    let undone = fixture.undo([entry.clone()]);
    assert!(
        matches!(undone.as_slice(), [Undone::Theirs { found }] if found.contains("/a/b memory.max")),
        "{undone:?}"
    );
    assert_eq!(fixture.read("cgroup/a/cgroup.subtree_control"), "memory");
    fixture.write("cgroup/a/b/memory.max", "max");
    assert_eq!(fixture.undo([entry]), [Undone::Restored]);
    assert_eq!(fixture.read("cgroup/a/cgroup.subtree_control"), "-memory");
}

#[test]
fn controller_for_weights_stays_where_a_weight_was_set() {
    let mut fixture = Fixture::new();
    let parent = fixture.cgroup("/a");
    fixture.cgroup("/a/b");
    for (controller, file, untouched, theirs) in [
        ("cpu", "cpu.weight", "100", "300"),
        ("cpu", "cpu.max", "max 100000", "50000 100000"),
        ("io", "io.weight", "default 100", "default 50"),
        ("io", "io.bfq.weight", "default 100", "default 1000"),
        ("io", "io.max", "", "8:0 rbps=1048576 wbps=max"),
    ] {
        let entry = Entry::Controller {
            cgroup: parent.clone(),
            controller: controller.into(),
        };
        let (control, file) = (
            "cgroup/a/cgroup.subtree_control",
            format!("cgroup/a/b/{file}"),
        );
        fixture.write(control, controller);
        fixture.write(&file, theirs);
        let undone = fixture.undo([entry.clone()]);
        assert!(
            matches!(undone.as_slice(), [Undone::Theirs { found }] if found.contains(theirs.trim_start_matches("default "))),
            "{file}: {undone:?}"
        );
        assert_eq!(fixture.read(control), controller);
        fixture.write(&file, untouched);
        assert_eq!(fixture.undo([entry]), [Undone::Restored], "{file}");
        assert_eq!(fixture.read(control), format!("-{controller}"));
    }
}

#[test]
fn scores_are_restored_for_processes_and_children_that_inherited_them() {
    let mut fixture = Fixture::new();
    fixture.process(10, 1, -500);
    fixture.process(11, 10, -500); // inherited
    fixture.process(12, 11, -500); // a grandchild
    fixture.process(13, 10, 300); // set its own since
    fixture.process(14, 1, -500); // no descendant: another program chose it
    let undone = fixture.undo([lowered(10, 0, -500, None)]);
    assert_eq!(undone, [Undone::Restored]);
    let scores: Vec<i16> = (10..=14).map(|pid| fixture.score(pid)).collect();
    assert_eq!(scores, [0, 0, 0, 300, -500]);
}

#[test]
fn value_between_ours_and_the_original_is_restored() {
    let mut fixture = Fixture::new();
    for (pid, ppid, value) in [(10, 1, -499), (11, 10, -1), (12, 10, 0)] {
        fixture.process(pid, ppid, value);
    }
    let undone = fixture.undo([lowered(10, 100, -500, None)]);
    assert_eq!(undone, [Undone::Restored]);
    let scores: Vec<i16> = (10..=12).map(|pid| fixture.score(pid)).collect();
    assert_eq!(scores, [100, 100, 100]);
}

#[test]
fn orphan_in_the_cgroup_of_the_app_is_found() {
    let mut fixture = Fixture::new();
    let home = fixture.cgroup("/app");
    fixture.write("cgroup/app/cgroup.procs", "21\n");
    fixture.process(21, 1, -300); // its parent, 20, has ended
    fixture.undo([lowered(20, 200, -300, Some(home))]);
    assert_eq!(fixture.score(21), 200);
}

#[test]
fn newcomer_in_the_cgroup_of_the_app_keeps_its_own_score() {
    let mut fixture = Fixture::new();
    let home = fixture.cgroup("/app");
    fixture.write("cgroup/app/cgroup.procs", "20\n21\n");
    fixture.process(20, 1, -430);
    fixture.process(21, 1, 0); // its parent is not in the app
    fixture.undo([lowered(20, 70, -430, Some(home))]);
    assert_eq!((fixture.score(20), fixture.score(21)), (70, 0));
}

#[test]
fn reused_pid_and_foreign_value_are_left_alone() {
    let mut fixture = Fixture::new();
    fixture.process(30, 1, -500);
    let stranger = Entry::OomScoreAdj {
        pid: 30,
        starttime: 71,
        original: 0,
        ours: -500,
        home: None,
    };
    assert_eq!(fixture.undo([stranger]), [Undone::Gone]);
    for foreign in [17, -501] {
        fixture.process(31, 1, foreign);
        let undone = fixture.undo([lowered(31, 0, -500, None)]);
        let found = foreign.to_string();
        assert_eq!(undone, [Undone::Theirs { found }]);
        assert_eq!((fixture.score(30), fixture.score(31)), (-500, foreign));
    }
}

#[test]
fn process_that_cannot_be_read_stays_in_the_record() {
    let mut fixture = Fixture::new();
    fixture.process(32, 1, -500);
    let stat = fixture.temp.path().join("proc/32/stat");
    let whole = std::fs::read(&stat).unwrap();
    // An unreadable file stands for a lack of descriptors: it cannot be determined whether this is
    // the same process.
    std::fs::write(&stat, "32").unwrap();
    let undone = fixture.undo([lowered(32, 0, -500, None)]);
    assert!(matches!(undone[..], [Undone::Failed { .. }]), "{undone:?}");
    assert_eq!(fixture.ledger.entries().len(), 1);
    std::fs::write(&stat, whole).unwrap();
    assert_eq!(fixture.undo([]), [Undone::Restored]);
    assert_eq!(fixture.score(32), 0);
}

#[test]
fn autogroup_is_restored_through_any_of_its_processes() {
    let mut fixture = Fixture::new();
    let entry = |number, original| Entry::Autogroup {
        pid: 7,
        starttime: 70,
        number,
        original,
        ours: -20,
    };
    for pid in [7, 8] {
        fixture.process(pid, 1, 0);
    }
    fixture.write("proc/7/autogroup", "/autogroup-30 nice 0\n");
    fixture.write("proc/8/autogroup", "/autogroup-25 nice -20\n");
    // Process 7 is in another session now, and no process is left in session 24.
    assert_eq!(
        fixture.undo([entry(25, 3), entry(24, 0)]),
        [Undone::Gone, Undone::Restored]
    );
    assert_eq!(fixture.read("proc/8/autogroup"), "3");
    assert_eq!(fixture.read("proc/7/autogroup"), "/autogroup-30 nice 0");

    fixture.write("proc/8/autogroup", "/autogroup-25 nice 5\n");
    let theirs = Undone::Theirs {
        found: "nice 5".to_owned(),
    };
    assert_eq!(fixture.undo([entry(25, 3)]), [theirs]);
    assert!(fixture.ledger.entries().is_empty());
}

#[test]
fn swap_max_is_restored_only_while_its_value_is_ours() {
    let mut fixture = Fixture::new();
    let cgroup = fixture.cgroup("/a");
    let entry = Entry::SwapMax {
        cgroup,
        original: "max".into(),
    };
    fixture.write("cgroup/a/memory.swap.max", "0");
    assert_eq!(fixture.undo([entry.clone()]), [Undone::Restored]);
    assert_eq!(fixture.read("cgroup/a/memory.swap.max"), "max");
    fixture.write("cgroup/a/memory.swap.max", "8192");
    let theirs = Undone::Theirs {
        found: "8192".into(),
    };
    assert_eq!(fixture.undo([entry]), [theirs]);
    assert_eq!(fixture.read("cgroup/a/memory.swap.max"), "8192");
}

#[test]
fn memory_high_is_restored_only_while_its_value_is_ours() {
    let mut fixture = Fixture::new();
    let entry = Entry::High {
        cgroup: fixture.cgroup("/a"),
        original: "max".into(),
        ours: vec!["65536".into(), "131072".into()],
    };
    for (found, after, undone) in [
        ("65536", "max", Undone::Restored),
        ("131072", "max", Undone::Restored),
        (
            "262144",
            "262144",
            Undone::Theirs {
                found: "262144".into(),
            },
        ),
    ] {
        fixture.write("cgroup/a/memory.high", found);
        assert_eq!(fixture.undo([entry.clone()]), [undone]);
        assert_eq!(fixture.read("cgroup/a/memory.high"), after);
    }
}

#[test]
fn frozen_processes_run_again() {
    let mut fixture = Fixture::new();
    let cgroup = fixture.cgroup("/a");
    fixture.write("cgroup/a/cgroup.freeze", "1");
    let stranger = Place {
        inode: cgroup.inode + 1,
        ..cgroup.clone()
    };
    let undone = fixture.undo([Entry::Frozen { cgroup: stranger }]);
    assert_eq!(undone, [Undone::Gone]);
    assert_eq!(fixture.read("cgroup/a/cgroup.freeze"), "1");
    let undone = fixture.undo([Entry::Frozen { cgroup }]);
    assert_eq!(undone, [Undone::Restored]);
    assert_eq!(fixture.read("cgroup/a/cgroup.freeze"), "0");
}

#[test]
fn search_ends_when_a_pass_finds_and_misses_nothing() {
    let passes = |results: &[(usize, bool)]| {
        let mut search = Search::default();
        let mut results = results.iter().copied();
        while search.goes_on() {
            search.pass(Ok(results.next().unwrap_or((1, false))));
        }
        (search.passes, search.found)
    };
    assert_eq!(passes(&[(0, false)]), (1, 0));
    assert_eq!(passes(&[(2, false), (1, false), (0, false)]), (3, 3));
    // A process that ended may have left a child.
    assert_eq!(passes(&[(0, true), (0, true), (0, false)]), (3, 0));
    assert_eq!(passes(&[]), (PASSES, PASSES));
}

#[test]
fn children_forked_too_fast_stay_in_the_record() {
    let process = lowered(10, 0, -500, None);
    let mut results = [(given(0), Undone::Gone), (process, Undone::Restored)];
    let mut search = Search::default();
    for _ in 0..PASSES {
        search.pass(Ok((1, false)));
    }
    finish_given(&mut results, search);
    assert!(matches!(results[0].1, Undone::Failed { .. }));
    assert_eq!(results[1].1, Undone::Restored);
}

#[test]
fn lineage_is_dropped_when_a_later_search_finds_none_of_its_processes() {
    let mut fixture = Fixture::new();
    let child = |fixture: &Fixture| {
        fixture.process(11, 1, -500);
        fixture.write("proc/11/status", "Tgid:\t11\nUid:\t1000\t1000\t0\t0\n");
        fixture.write("proc/11/cgroup", "0::/x\n");
    };
    child(&fixture);
    fixture.ledger.intend([given(60)]).unwrap();
    let search = |fixture: &mut Fixture, again: bool| {
        let put_back = if again { undo_again } else { undo };
        put_back(&mut fixture.ledger, &fixture.system, Entry::is_score);
        (fixture.score(11), fixture.ledger.owed().len())
    };
    assert_eq!(search(&mut fixture, false), (0, 1));
    // This child's fork was in progress during the first search, so its start time is the present.
    fs::remove_dir_all(fixture.temp.path().join("proc/11")).unwrap();
    child(&fixture);
    let ticks = crate::system::now().as_millis() / 10;
    let stat = format!("11 (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
    fixture.write("proc/11/stat", &stat);
    fixture.write("proc/11/oom_score_adj", "-500");
    assert_eq!(search(&mut fixture, true), (0, 1));
    assert_eq!(search(&mut fixture, true), (0, 0));
    assert!(fixture.ledger.entries().is_empty());
}
