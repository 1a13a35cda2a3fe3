// SPDX-License-Identifier: GPL-2.0-or-later
//! Session agents: their reports about themselves, and which of their claims count.

use super::apps::{app, until_used};
use super::{report, two_apps};
use crate::common::{App, Machine};
use limelight_core::model::apps::Use;
use limelight_proto::{ErrorCode, Response};

const FIRST: u32 = 54_321;
const SECOND: u32 = 54_322;

/// logind's file of a session.
fn session(uid: u32, active: bool) -> String {
    let active = u8::from(active);
    format!("UID={uid}\nACTIVE={active}\nSTATE=online\nSEAT=seat0\nCLASS=user\n")
}

/// Marks a session as active or inactive, as logind does.
fn set_active(machine: &Machine, name: &str, uid: u32, active: bool) {
    machine.write("sessions/.tmp", &session(uid, active));
    let to = machine.path("sessions").join(name);
    std::fs::rename(machine.path("sessions/.tmp"), to).unwrap();
}

/// Two users with an app each; the first user's session is active. `None` if not root, because
/// connecting as these users needs root.
fn two_sessions() -> Option<(Machine, App, App)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: connecting as other users requires root");
        return None;
    }
    let (machine, a, b) = two_apps();
    machine.give(&a, FIRST);
    machine.give(&b, SECOND);
    machine.write("sessions/1", &session(FIRST, true));
    machine.write("sessions/2", &session(SECOND, false));
    Some((machine, a, b))
}

#[test]
fn session_switch_brings_that_users_app_to_the_foreground() {
    let Some((machine, a, b)) = two_sessions() else {
        return;
    };
    let sessions = machine.path("sessions");
    let mut daemon = machine.start_with(|options| options.roots.sessions = sessions);
    let mut first = daemon.connect_as(FIRST);
    let mut second = daemon.connect_as(SECOND);
    let claim = |pid: i32| report(&super::pid(pid));
    let answer = daemon.ask_over(&mut first, &claim(a.pid));
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    daemon.ask_over(&mut second, SWAY);
    let explicit = claim(b.pid).replace(r#""hold":true"#, r#""hold":false"#);
    for refused in [claim(b.pid), explicit] {
        match daemon.ask_over(&mut second, &refused) {
            Response::Error { code, .. } => assert_eq!(code, ErrorCode::NotAllowed),
            other => panic!("{other:?}"),
        }
    }
    let status = daemon.status();
    assert_eq!(
        status.topmost.and_then(|topmost| topmost.app.pid),
        Some(a.pid)
    );
    assert!(status.agents.is_empty());
    // The seat switches to the other session; no new claim is made.
    let switch = |name, uid, active| set_active(&machine, name, uid, active);
    switch("1", FIRST, false);
    switch("2", SECOND, true);
    daemon.until("the switch", |_| {
        machine.mib(&format!("{}/memory.min", super::B)) > 0
    });
    assert_eq!(daemon.topmost(), Some(b.pid));
    assert_eq!(daemon.status().agents[0].uid, SECOND);
    switch("2", SECOND, false);
    switch("1", FIRST, true);
    daemon.until("the way back", |_| {
        machine.mib(&format!("{}/memory.min", super::A)) > 0
    });
    assert_eq!(daemon.topmost(), Some(a.pid));
    daemon.stop();
}

#[test]
fn use_announced_by_an_inactive_session_counts_once_it_is_active() {
    let Some((machine, a, b)) = two_sessions() else {
        return;
    };
    let sessions = machine.path("sessions");
    let mut daemon = machine.start_with(|options| options.roots.sessions = sessions);
    let mut first = daemon.connect_as(FIRST);
    let mut second = daemon.connect_as(SECOND);
    let unsaved = |pid: i32| format!(r#"{{"op":"in-use","pid":{pid},"use":"unsaved","on":true}}"#);
    let taken = daemon.ask_over(&mut first, &unsaved(a.pid));
    assert!(matches!(taken, Response::Ok { .. }), "{taken:?}");
    match daemon.ask_over(&mut second, &unsaved(b.pid)) {
        Response::Error { code, .. } => assert_eq!(code, ErrorCode::NotAllowed),
        other => panic!("{other:?}"),
    }
    // One scan covers both announcements.
    until_used(&mut daemon, a.pid, &[Use::Unsaved]);
    assert_eq!(app(&mut daemon, b.pid).uses, []);
    set_active(&machine, "1", FIRST, false);
    set_active(&machine, "2", SECOND, true);
    until_used(&mut daemon, b.pid, &[Use::Unsaved]);
    // a's work is still unsaved: a session switch saves nothing.
    until_used(&mut daemon, a.pid, &[Use::Unsaved]);
    daemon.stop();
}

const SWAY: &str = r#"{"op":"agent","source":"sway","detail":"sway (pid 8) says it","passed_over":[{"name":"x","why":"none"}]}"#;

#[test]
fn agent_is_listed_while_it_is_connected() {
    let (machine, _a, _b) = two_apps();
    let mut daemon = machine.start();
    let mut agent = daemon.connect();
    let answer = daemon.ask_over(&mut agent, SWAY);
    assert_eq!(answer, Response::Agent { own_scopes: true });
    let agents = daemon.status().agents;
    assert_eq!(agents.len(), 1);
    assert_eq!(agents[0].source.as_deref(), Some("sway"));
    assert_eq!(agents[0].passed_over[0].why, "none");
    // A changed configuration is sent to agents.
    let mut text = std::fs::read_to_string(machine.path("limelight.toml")).unwrap();
    text = text.replace("[protect]\n", "[protect]\nown_scopes = false\n");
    machine.write("limelight.toml", &text);
    daemon.daemon.reload();
    let told = daemon.hear(&mut agent);
    assert_eq!(
        serde_json::from_str::<Response>(&told).unwrap(),
        Response::Agent { own_scopes: false }
    );
    drop(agent);
    daemon.until("the agent's end", |_| true);
    daemon.daemon.turn(Some(std::time::Duration::ZERO)).unwrap();
    daemon.daemon.turn(Some(std::time::Duration::ZERO)).unwrap();
    assert!(daemon.status().agents.is_empty());
    daemon.stop();
}

#[test]
fn texts_of_an_agent_are_bounded() {
    let (machine, _a, _b) = two_apps();
    let mut daemon = machine.start();
    let long = "x".repeat(513);
    let many = r#"{"name":"x","why":"y"},"#.repeat(17);
    for (detail, passed_over) in [
        (long.as_str(), String::new()),
        ("\\u001b[31m", String::new()),
        ("fine", many.trim_end_matches(',').to_owned()),
        ("fine", format!(r#"{{"name":"x","why":"{long}"}}"#)),
    ] {
        let request = format!(
            r#"{{"op":"agent","source":null,"detail":"{detail}","passed_over":[{passed_over}]}}"#
        );
        match daemon.ask(&request) {
            Response::Error { code, .. } => assert_eq!(code, ErrorCode::BadRequest),
            other => panic!("{request}: {other:?}"),
        }
    }
    daemon.stop();
}
