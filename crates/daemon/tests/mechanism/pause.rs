// SPDX-License-Identifier: GPL-2.0-or-later
//! A pause restores every value, and its end sets all of them again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use limelight_proto::{ErrorCode, MemoryAction, Response, State, PAUSE_MAX_MS};

use crate::common::{App, Machine, Running};

const A: &str = "u/app-a-1.scope";
const B: &str = "u/app-b-2.scope";
/// A user, and the group of `[access]`.
const USER: u32 = 54_321;
const GROUP: u32 = 54_400;

/// Two apps. Protect and boost are on, and act through files.
fn machine() -> (Machine, App, App) {
    let machine = Machine::new();
    let state = machine.path("state/coldstart");
    machine.write(
        "limelight.toml",
        &format!(
            "[protect]\ninterval_ms = 100\n[boost]\nhelpers = []\n\
             [sources]\noom_score_adj = \"off\"\n[access]\ngroup = {GROUP}\n\
             [readahead]\ndirectory = \"{}\"\n",
            state.display()
        ),
    );
    for cgroup in ["u", A, B] {
        machine.make_cgroup(cgroup);
        machine.write(&format!("cgroup/{cgroup}/cpu.weight"), "100\n");
    }
    machine.use_memory(A, 100);
    machine.use_memory(B, 40);
    let (a, b) = (machine.spawn(A), machine.spawn(B));
    (machine, a, b)
}

/// Everything that the daemon may change.
fn values(machine: &Machine) -> BTreeMap<String, String> {
    fn add(directory: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => add(&path, found),
                false => {
                    let text = fs::read_to_string(&path).unwrap();
                    found.insert(path.display().to_string(), text.trim().to_owned());
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    add(&machine.path("cgroup"), &mut found);
    add(&machine.path("proc"), &mut found);
    // The PSI trigger is written into this file.
    found.retain(|path, _| !path.contains("/proc/pressure/"));
    found
}

fn ask(daemon: &mut Running, request: &str) -> String {
    match daemon.ask(request) {
        Response::Ok { message } => message,
        other => panic!("{other:?}"),
    }
}

fn history(daemon: &mut Running) -> Vec<(MemoryAction, String)> {
    match daemon.ask(r#"{"op":"history"}"#) {
        Response::History { entries, .. } => entries
            .into_iter()
            .map(|entry| (entry.action, entry.reason))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pause_restores_all_values_and_resume_sets_them_again() {
    let (machine, a, _b) = machine();
    let before = values(&machine);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let favoured = values(&machine);
    assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
    assert_eq!(machine.read(&format!("cgroup/{A}/cpu.weight")), "10000");
    assert_ne!(before, favoured);

    let said = ask(&mut daemon, r#"{"op":"pause","for_ms":3600000}"#);
    assert_eq!(said, "paused for 3600 s: all changes are undone");
    assert_eq!(values(&machine), before);
    let status = daemon.status();
    assert!(status.changes.is_empty(), "{:?}", status.changes);
    let left = status.paused.unwrap().left_ms.unwrap();
    assert!(0 < left && left <= 3_600_000, "{left}");
    assert!(status.topmost.is_some());
    for mechanism in status.mechanisms {
        assert_eq!(mechanism.state, State::Idle, "{mechanism:?}");
        assert!(mechanism.detail.starts_with("paused, "), "{mechanism:?}");
    }
    let notes = daemon.explain(a.pid).notes;
    assert!(
        notes.iter().any(|note| note.contains("paused")),
        "{notes:?}"
    );

    assert_eq!(ask(&mut daemon, r#"{"op":"resume"}"#), "resumed");
    assert_eq!(values(&machine), favoured);
    assert_eq!(daemon.status().paused, None);
    assert_eq!(ask(&mut daemon, r#"{"op":"resume"}"#), "not paused");
    let uid = rustix::process::getuid().as_raw();
    let expected = [
        (
            MemoryAction::Pause,
            format!("uid {uid} asked for it, for 3600 s"),
        ),
        (MemoryAction::Resume, format!("uid {uid} asked for it")),
    ];
    assert_eq!(history(&mut daemon), expected);
    daemon.stop();
    assert_eq!(values(&machine), before);
    assert!(machine.recorded().is_empty());
}

#[test]
fn nothing_is_changed_during_a_pause() {
    let (machine, a, b) = machine();
    let before = values(&machine);
    let mut daemon = machine.start();
    ask(&mut daemon, r#"{"op":"pause"}"#);
    assert_eq!(daemon.status().paused.unwrap().left_ms, None);
    // Focus changes, growth, a reload and ticks.
    daemon.focus(a.pid);
    daemon.focus(b.pid);
    daemon.daemon.reload();
    let started = daemon.status().uptime_ms;
    while daemon.status().uptime_ms < started + 500 {
        daemon.daemon.turn(Some(Duration::from_millis(20))).unwrap();
    }
    assert_eq!(values(&machine), before);
    assert_eq!(daemon.topmost(), Some(b.pid));
    // The app that has the focus now is favoured afterwards.
    ask(&mut daemon, r#"{"op":"resume"}"#);
    assert_eq!(machine.mib(&format!("{B}/memory.min")), 50);
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    daemon.stop();
}

#[test]
fn pause_ends_with_its_time() {
    let (machine, a, _b) = machine();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    ask(&mut daemon, r#"{"op":"pause","for_ms":1}"#);
    daemon.until("the end of the pause", |_| {
        machine.mib(&format!("{A}/memory.min")) == 125
    });
    assert_eq!(daemon.status().paused, None);
    let last = history(&mut daemon).pop();
    let over = "the time of the pause is over".to_owned();
    assert_eq!(last, Some((MemoryAction::Resume, over)));
    daemon.stop();
}

#[test]
fn second_pause_replaces_the_time_and_a_restart_ends_it() {
    let (machine, a, _b) = machine();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    ask(&mut daemon, r#"{"op":"pause","for_ms":1000000}"#);
    ask(&mut daemon, r#"{"op":"pause"}"#);
    assert_eq!(daemon.status().paused.unwrap().left_ms, None);
    daemon.stop();
    let mut daemon = machine.start();
    assert_eq!(daemon.status().paused, None);
    daemon.focus(a.pid);
    assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
    daemon.stop();
}

#[test]
fn lengths_out_of_range_are_refused() {
    let (machine, _a, _b) = machine();
    let mut daemon = machine.start();
    for ms in [0, PAUSE_MAX_MS + 1] {
        let answer = daemon.ask(&format!(r#"{{"op":"pause","for_ms":{ms}}}"#));
        assert!(
            matches!(
                answer,
                Response::Error {
                    code: ErrorCode::BadRequest,
                    ..
                }
            ),
            "{answer:?}"
        );
    }
    assert_eq!(daemon.status().paused, None);
    daemon.stop();
}

#[test]
fn only_root_and_the_group_may_pause() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: speaking as other users requires root");
        return;
    }
    let (machine, a, _b) = machine();
    machine.give(&a, USER);
    let mut daemon = machine.start();
    let mut owner = daemon.connect_as(USER);
    for request in [r#"{"op":"pause"}"#, r#"{"op":"resume"}"#] {
        let answer = daemon.ask_over(&mut owner, request);
        let Response::Error { code, message, .. } = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(code, ErrorCode::NotAllowed, "{message}");
    }
    assert_eq!(daemon.status().paused, None);
    let mut member = daemon.connect_in_group(USER, GROUP);
    let answer = daemon.ask_over(&mut member, r#"{"op":"pause"}"#);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    assert!(daemon.status().paused.is_some());
    let answer = daemon.ask_over(&mut member, r#"{"op":"resume"}"#);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    daemon.stop();
}
