// SPDX-License-Identifier: GPL-2.0-or-later
//! Without a free descriptor, scans and writes fail. The daemon then takes no app for ended, and
//! restores values later that it could not restore at once. The gate then refuses actions on
//! processes that it cannot find. This is a separate test program, because the limit applies to the
//! whole process.

#[allow(dead_code)]
mod common;

use std::fs::{self, File};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::Machine;
use limelight_core::model::protected::Why;
use limelight_core::model::{App, AppKey, Harm, ProcessId};
use limelight_daemon::reconcile::gate::collect::{Collector, Request};
use limelight_daemon::reconcile::gate::Gate;
use limelight_daemon::system::{identify, Roots, System};
use limelight_proto::Response;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use tempfile::TempDir;

/// Descriptor limit during the shortage: higher than the number that the test has open before.
const MOST: u64 = 256;

/// Keeps all descriptors in use until it is dropped.
struct Exhausted {
    before: Rlimit,
    _all: Vec<File>,
}

impl Exhausted {
    fn new() -> Exhausted {
        let before = getrlimit(Resource::Nofile);
        let few = Rlimit {
            current: Some(MOST),
            ..before
        };
        setrlimit(Resource::Nofile, few).unwrap();
        let all = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        Exhausted { before, _all: all }
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

/// A machine without processes.
fn empty_machine() -> (TempDir, System) {
    let temp = tempfile::tempdir().unwrap();
    for directory in ["proc", "sys", "cgroup"] {
        fs::create_dir(temp.path().join(directory)).unwrap();
    }
    let system = System::open(Roots {
        proc: temp.path().join("proc"),
        sys: temp.path().join("sys"),
        cgroup: Some(temp.path().join("cgroup")),
        ..Roots::default()
    });
    (temp, system.unwrap())
}

/// Makes a process in such a machine.
fn make_process(temp: &TempDir, pid: i32, parent: i32) -> ProcessId {
    let directory = temp.path().join(format!("proc/{pid}"));
    fs::create_dir(&directory).unwrap();
    let stat = format!("{pid} (x) S {parent} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
    fs::write(directory.join("stat"), stat).unwrap();
    ProcessId { pid, starttime: 70 }
}

/// Held by each test, because the limit applies to all of them.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn no_state_is_lost_while_no_descriptor_is_left() {
    const A: &str = "u/app-a-1.scope";
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = Machine::new();
    machine.make_cgroup("u");
    machine.make_cgroup(A);
    machine.use_memory(A, 100);
    let a = machine.spawn(A);
    let mut daemon = machine.start();
    let mut client = daemon.connect();
    let claim = format!(
        r#"{{"op":"focus","target":{{"pid":{}}},"source":"test"}}"#,
        a.pid
    );
    let answer = daemon.ask_over(&mut client, &claim);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    let score = format!("proc/{}/oom_score_adj", a.pid);
    let reserved = format!("cgroup/{A}/memory.min");
    assert_eq!(machine.read(&score), "-500");

    let exhausted = Exhausted::new();
    // Enough time for several ticks.
    for _ in 0..10 {
        daemon.daemon.turn(Some(Duration::from_millis(50))).unwrap();
    }
    let Response::Status(status) = daemon.ask_over(&mut client, r#"{"op":"status"}"#) else {
        panic!("no status");
    };
    let front = status.topmost.unwrap();
    assert_eq!((front.app.pid, front.members), (Some(a.pid), 1));
    let none = r#"{"op":"focus","target":"none","source":"test"}"#;
    let answer = daemon.ask_over(&mut client, none);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    // Some values may be restored already: ending the claim freed the daemon's descriptors of the
    // app.
    drop(exhausted);

    daemon.until("put back", |_| {
        machine.read(&score) == "0" && machine.read(&reserved) == "0"
    });
    assert_eq!(machine.recorded(), []);
    daemon.stop();
}

#[test]
fn gate_refuses_actions_on_processes_that_it_cannot_open() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (temp, system) = empty_machine();
    let process = |pid: i32, cgroup: &str| {
        let id = make_process(&temp, pid, 1);
        let file = temp.path().join(format!("proc/{pid}/cgroup"));
        fs::write(file, format!("0::{cgroup}\n")).unwrap();
        id
    };
    let (known, new) = (process(5, "/known"), process(6, "/new"));
    let gate = Gate::default();
    let update = |wanted: &[(ProcessId, Why)]| {
        let wanted = wanted.iter().map(|(id, why)| (*id, None, *why));
        gate.update(&system, wanted, Vec::new());
    };
    let refused = |path: &str| {
        let app = AppKey::Cgroup { inode: 7 };
        gate.group(path, Harm::Freeze, app).is_some()
    };
    update(&[(known, Why::Topmost)]);
    let exhausted = Exhausted::new();
    // The reason changes, so that the process is examined again.
    update(&[(known, Why::Previous)]);
    assert!(refused("/known") && !refused("/other"));
    // The cgroup of the new process is unknown, so that it may be any.
    update(&[(known, Why::Previous), (new, Why::Topmost)]);
    assert!(refused("/known") && refused("/new") && refused("/other"));
    drop(exhausted);
    update(&[(known, Why::Previous), (new, Why::Topmost)]);
    assert!(refused("/known") && refused("/new") && !refused("/other"));
}

/// An app whose processes cannot be read is not without processes.
#[test]
fn app_keeps_its_processes_while_they_cannot_be_read() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (temp, system) = empty_machine();
    let root = make_process(&temp, 5, 1);
    let child = make_process(&temp, 6, 5);
    let app = App {
        key: AppKey::Tree(root),
        name: "x".into(),
        process: None,
        home: None,
    };
    let mut collector = Collector::default();
    let mut previous = |seconds: u64| -> Vec<ProcessId> {
        let request = Request {
            previous: Some(&app),
            ..Request::default()
        };
        let wanted = collector.collect(&system, Duration::from_secs(seconds), request);
        let of_app = wanted.iter().filter(|(_, key, _)| *key == Some(app.key));
        of_app.map(|(id, _, _)| *id).collect()
    };
    assert_eq!(previous(1), [root, child]);
    let exhausted = Exhausted::new();
    assert!(identify::members(&system, &app).is_err());
    assert_eq!(previous(2), [root, child]);
    drop(exhausted);
    fs::remove_dir_all(temp.path().join("proc/6")).unwrap();
    assert_eq!(previous(3), [root]);
}
