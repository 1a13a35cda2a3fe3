// SPDX-License-Identifier: GPL-2.0-or-later
//! Without a free descriptor, scans and writes fail. The daemon then takes no app for ended, and
//! restores values later that it could not restore at once. This is a separate test program,
//! because the limit applies to the whole process.

#[allow(dead_code)]
mod common;

use std::fs::File;
use std::time::Duration;

use common::Machine;
use limelight_proto::Response;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

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

#[test]
fn no_state_is_lost_while_no_descriptor_is_left() {
    const A: &str = "u/app-a-1.scope";
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
    let front = status.topmost.and_then(|topmost| topmost.app.pid);
    assert_eq!(front, Some(a.pid));
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
