// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::system::Roots;
use std::fs;

/// A system with a fake procfs.
struct Fixture {
    temp: tempfile::TempDir,
    system: System,
    source: OomScoreAdj,
}

const MANAGER: i32 = 900_100;
const APP: i32 = 900_200;
const CHILD: i32 = 900_201;

impl Fixture {
    fn new() -> Fixture {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup", "run"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        let source = OomScoreAdj {
            way: Way::Scan {
                next: Some(Duration::from_secs(1)),
                retry: None,
            },
            interval: Duration::from_secs(1),
            rate: Rate::new(EVENTS_PER_SECOND, EVENTS_BURST, Duration::ZERO),
            detail: String::new(),
            known: HashMap::new(),
        };
        let fixture = Fixture {
            temp,
            system,
            source,
        };
        fixture.process(MANAGER, 1, 0);
        fixture.process(APP, 1, 0);
        fixture
    }

    fn process(&self, pid: i32, ppid: i32, value: i16) {
        let directory = self.temp.path().join(format!("proc/{pid}"));
        fs::create_dir(&directory).unwrap();
        let stat = format!("{pid} (x) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        fs::write(directory.join("stat"), stat).unwrap();
        let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\n");
        fs::write(directory.join("status"), status).unwrap();
        fs::write(directory.join("oom_score_adj"), format!("{value}\n")).unwrap();
    }

    /// Writes `status` of a process with all uids equal and these effective capabilities.
    fn status(&self, pid: i32, uid: u32, capabilities: u64) {
        let text = format!(
            "Tgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\n"
        );
        fs::write(self.temp.path().join(format!("proc/{pid}/status")), text).unwrap();
    }

    fn set(&self, pid: i32, value: i16) {
        let file = self.temp.path().join(format!("proc/{pid}/oom_score_adj"));
        fs::write(file, format!("{value}\n")).unwrap();
    }

    /// Simulates a write seen by the tracepoint. Returns whether it put the process in the
    /// foreground.
    fn wrote(&mut self, writer: i32, pid: i32, value: i16) -> bool {
        let front = self.source.written(&self.system, &[], writer, pid, value);
        assert!(front.is_none_or(|zeroed| zeroed.id.pid == pid));
        front.is_some()
    }
}

#[test]
fn value_set_to_0_by_another_process_counts() {
    let mut fixture = Fixture::new();
    fixture.source.resync(&fixture.system, &[]);
    assert!(!fixture.wrote(MANAGER, APP, 0), "the value was 0 before");
    assert!(!fixture.wrote(MANAGER, APP, 7));
    assert!(fixture.wrote(MANAGER, APP, 0));
    assert!(!fixture.wrote(MANAGER, APP, 0), "the value was 0 already");
    assert!(!fixture.wrote(MANAGER, APP, 900));
    assert!(!fixture.wrote(MANAGER, APP, 1), "not 0");
}

#[test]
fn writes_by_the_process_itself_and_by_the_daemon_do_not_count() {
    let mut fixture = Fixture::new();
    fixture.source.resync(&fixture.system, &[]);
    fixture.wrote(MANAGER, APP, 7);
    assert!(!fixture.wrote(APP, APP, 0));
    fixture.wrote(MANAGER, APP, 7);
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(!fixture.wrote(own, APP, 0));
    assert!(
        fixture.wrote(MANAGER, APP, 0),
        "the daemon's own write changed the known value"
    );
}

#[test]
fn writes_by_the_owner_and_by_unknown_writers_are_marked() {
    const USER: u32 = 12_345;
    let mut fixture = Fixture::new();
    let own = |pid: i32| {
        let directory = fixture.temp.path().join(format!("proc/{pid}"));
        let status = format!("Tgid:\t{pid}\nUid:\t{USER}\t{USER}\t{USER}\t{USER}\n");
        fs::write(directory.join("status"), status).unwrap();
        std::os::unix::fs::chown(directory, Some(USER), None)
    };
    if own(APP).is_err() {
        return eprintln!("SKIPPED: giving files to other users requires root");
    }
    fixture.process(CHILD, 1, 7);
    own(CHILD).unwrap();
    fixture.set(APP, 7);
    fixture.source.resync(&fixture.system, &[]);
    let mut by_owner = |writer| {
        fixture
            .source
            .written(&fixture.system, &[], MANAGER, APP, 7);
        let zeroed = fixture.source.written(&fixture.system, &[], writer, APP, 0);
        zeroed.map(|zeroed| zeroed.by_owner)
    };
    assert_eq!(by_owner(MANAGER), Some(false));
    assert_eq!(by_owner(CHILD), Some(true));
    assert_eq!(by_owner(900_999), Some(true), "a writer that has ended");
}

/// A process that is not dumpable belongs to root in procfs. Its user may have opened the file
/// before, and writes into it from a process of its own.
#[test]
fn write_by_the_user_of_an_undumpable_process_does_not_count_as_roots() {
    const USER: u32 = 12_345;
    let mut fixture = Fixture::new();
    fixture.process(CHILD, 1, 0);
    for (pid, uid) in [(APP, USER), (CHILD, USER)] {
        fixture.status(pid, uid, 0);
    }
    fixture.set(APP, 7);
    fixture.source.resync(&fixture.system, &[]);
    let written = fixture.source.written(&fixture.system, &[], CHILD, APP, 0);
    assert!(written.unwrap().by_owner);
}

/// Android's lmkd writes the values. It has a uid of its own and the capability.
#[test]
fn privileged_writer_with_another_uid_counts_as_root() {
    const APP_UID: u32 = 10_077;
    const LMKD_UID: u32 = 1069;
    const SYS_RESOURCE: u64 = 1 << 24;
    let by_owner = |uid, capabilities, uid_map: Option<&str>| {
        let mut fixture = Fixture::new();
        fixture.status(APP, APP_UID, 0);
        fixture.set(APP, 7);
        fixture.source.resync(&fixture.system, &[]);
        fixture.status(MANAGER, uid, capabilities);
        if let Some(map) = uid_map {
            let file = fixture.temp.path().join(format!("proc/{MANAGER}/uid_map"));
            fs::write(file, map).unwrap();
        }
        let written = fixture
            .source
            .written(&fixture.system, &[], MANAGER, APP, 0);
        written.unwrap().by_owner
    };
    let whole = "         0          0 4294967295\n";
    assert!(
        !by_owner(LMKD_UID, SYS_RESOURCE, None),
        "a kernel without user namespaces"
    );
    assert!(!by_owner(LMKD_UID, SYS_RESOURCE, Some(whole)));
    assert!(by_owner(LMKD_UID, 0, Some(whole)));
    assert!(
        by_owner(APP_UID, SYS_RESOURCE, Some(whole)),
        "a privileged helper that runs as the app's user"
    );
    // In a user namespace that the user made, every process may have all capabilities.
    assert!(by_owner(1001, SYS_RESOURCE, Some("0 1001 1\n")));
    assert!(!by_owner(0, 0, Some(whole)));
}

#[test]
fn new_process_starts_with_its_parents_value() {
    let mut fixture = Fixture::new();
    fixture.set(APP, 200);
    fixture.source.resync(&fixture.system, &[]);
    fixture.process(CHILD, APP, 0);
    assert!(fixture.wrote(MANAGER, CHILD, 0));
    let other = CHILD + 1;
    fixture.process(other, MANAGER, 0);
    assert!(
        !fixture.wrote(MANAGER, other, 0),
        "the inherited value was 0"
    );
}

#[test]
fn boosted_process_is_compared_by_its_original_value() {
    let mut fixture = Fixture::new();
    let id = ProcessId {
        pid: APP,
        starttime: 70,
    };
    fixture.set(APP, -500);
    fixture.source.resync(&fixture.system, &[(id, 0, -500)]);
    assert!(!fixture.wrote(MANAGER, APP, 0), "the original value was 0");
    fixture.set(APP, -300);
    fixture.source.resync(&fixture.system, &[(id, 0, -500)]);
    assert!(fixture.wrote(MANAGER, APP, 0), "-300 is not ours");
}

#[test]
fn due_scan_compares_with_the_previous_one() {
    let mut fixture = Fixture::new();
    fixture.set(APP, 7);
    fixture.source.resync(&fixture.system, &[]);
    fixture.set(APP, 0);
    let scan = |fixture: &mut Fixture, ms| {
        let at = Duration::from_millis(ms);
        let found = fixture.source.take_scanned(&fixture.system, &[], true, at);
        found.iter().map(|zeroed| zeroed.id.pid).collect::<Vec<_>>()
    };
    assert_eq!(scan(&mut fixture, 999), [0; 0]);
    assert_eq!(scan(&mut fixture, 1000), [APP]);
    assert_eq!(scan(&mut fixture, 2000), [0; 0]);
    // A new process with 0 never had another value.
    fixture.process(CHILD, APP, 0);
    assert_eq!(scan(&mut fixture, 3000), [0; 0]);
}

#[test]
fn scans_stop_while_their_results_do_not_count() {
    let mut fixture = Fixture::new();
    fixture.set(APP, 7);
    fixture.source.resync(&fixture.system, &[]);
    let scan = |fixture: &mut Fixture, heard, s| {
        let at = Duration::from_secs(s);
        let found = fixture.source.take_scanned(&fixture.system, &[], heard, at);
        found.len()
    };
    fixture.set(APP, 0);
    assert_eq!(scan(&mut fixture, false, 5), 0);
    assert_eq!(fixture.source.next_scan(), None);
    assert!(!fixture.source.sees_own_writes());
    // Another source reported the change meanwhile.
    assert_eq!(scan(&mut fixture, true, 9), 0);
    assert_eq!(fixture.source.next_scan(), Some(Duration::from_secs(10)));
    assert_eq!(scan(&mut fixture, true, 10), 0);
    fixture.set(APP, 7);
    assert_eq!(scan(&mut fixture, true, 11), 0);
    fixture.set(APP, 0);
    assert_eq!(scan(&mut fixture, true, 12), 1);
}

#[test]
fn failed_tracepoint_is_retried_while_its_results_count() {
    let mut fixture = Fixture::new();
    let mut ledger = Ledger::open(&fixture.temp.path().join("run"), String::new());
    let due = |source: &OomScoreAdj| match source.way {
        Way::Scan { retry, .. } => retry,
        _ => None,
    };
    let mut retry = |source: &mut OomScoreAdj, s| {
        // There is no tracefs, so each attempt fails.
        assert!(!source.retry(&fixture.system, &mut ledger, Duration::from_secs(s)));
    };
    let source = &mut fixture.source;
    retry(source, 1000);
    assert_eq!(due(source), None, "only scans are configured");
    if let Way::Scan { retry, .. } = &mut source.way {
        *retry = Some(RETRY);
    }
    retry(source, 59);
    assert_eq!(due(source), Some(RETRY));
    retry(source, 61);
    assert_eq!(due(source), Some(RETRY + Duration::from_secs(61)));
}

#[test]
fn without_tracefs_the_source_scans_or_is_off() {
    let fixture = Fixture::new();
    let start = |wanted| {
        let mut ledger = Ledger::open(&fixture.temp.path().join("run"), String::new());
        let zero = Duration::ZERO;
        let source = OomScoreAdj::start(&fixture.system, &mut ledger, wanted, zero, zero);
        assert!(ledger.entries().is_empty());
        source
    };
    let auto = start(OomScoreAdjSource::Auto);
    assert!(auto.is_on() && auto.detail().contains("scan"), "{auto:?}");
    assert!(!start(OomScoreAdjSource::Tracepoint).is_on());
    assert!(!start(OomScoreAdjSource::Off).is_on());
}

/// Any process may write its own value in a loop.
#[test]
fn flood_of_writes_replaces_the_trace_by_scans() {
    let mut fixture = Fixture::new();
    let mut ledger = Ledger::open(&fixture.temp.path().join("run"), String::new());
    fixture.set(APP, 7);
    fixture.source.resync(&fixture.system, &[]);
    let head = format!("{:>16}-{MANAGER:<7} [000] d..2.   1.000000: {EVENT}: ", "x");
    let line = |pid: i32, value: i16| format!("{head}pid={pid} comm=x oom_score_adj={value}");
    let (source, system) = (&mut fixture.source, &fixture.system);
    let at = Duration::from_secs(1);
    let own = vec![line(CHILD, 7); EVENTS_BURST as usize - 1];
    assert_eq!(source.evaluate(&own, system, &ledger, at), (vec![], true));
    let more = [line(APP, 0), line(CHILD, 7)];
    let (fronts, within_budget) = source.evaluate(&more, system, &ledger, at);
    assert_eq!(fronts.len(), 1, "the last event within the budget counts");
    assert!(!within_budget);
    source.flooded(system, &mut ledger, at);
    assert_eq!(source.next_scan(), Some(Duration::from_secs(2)));
    assert!(source.detail().contains("too often"), "{}", source.detail());
    // A later foreground app is found by a scan.
    fixture.set(APP, 7);
    let scan = |fixture: &mut Fixture, s| {
        let at = Duration::from_secs(s);
        let found = fixture.source.take_scanned(&fixture.system, &[], true, at);
        found.len()
    };
    assert_eq!(scan(&mut fixture, 2), 0);
    fixture.set(APP, 0);
    assert_eq!(scan(&mut fixture, 3), 1);
    let source = &mut fixture.source;
    assert!(
        source
            .evaluate(&own[..200], &fixture.system, &ledger, at * 2)
            .1
    );
}

#[test]
fn after_lost_events_all_values_are_read_again() {
    let mut fixture = Fixture::new();
    let ledger = Ledger::open(&fixture.temp.path().join("run"), String::new());
    fixture.source.resync(&fixture.system, &[]);
    fixture.set(APP, 7);
    let lines = vec!["CPU:1 [LOST 42 EVENTS]".to_owned(); 2];
    let (source, system) = (&mut fixture.source, &fixture.system);
    source.evaluate(&lines, system, &ledger, Duration::ZERO);
    assert!(fixture.wrote(MANAGER, APP, 0), "the value was 7 before");
}
