// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests that a service of root passes on for users, and notices of the foreground app.

use limelight_proto::{ErrorCode, Notice, Response};

use crate::common::{App, Client, Machine, Running};
use crate::{two_apps, A};

/// Two users, each with one app, and the group of `[access]`.
const ADA: u32 = 54_321;
const BOB: u32 = 54_322;
const GROUP: u32 = 54_400;

/// `None`, with a message, if not root.
fn users() -> Option<(Machine, App, App)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: passing on other users' requests requires root");
        return None;
    }
    let (machine, a, b) = two_apps();
    machine.configure(&format!("[access]\ngroup = {GROUP}\n"));
    machine.give(&a, ADA);
    machine.give(&b, BOB);
    machine.open_device(&a, "dev-dri/card0");
    machine.open_device(&b, "dev-dri/card0");
    Some((machine, a, b))
}

/// A connection of root that has become a user's.
fn passed_on(daemon: &mut Running, uid: u32, groups: &[u32]) -> Client {
    let mut client = daemon.connect();
    let line = format!(r#"{{"op":"become","uid":{uid},"groups":{groups:?}}}"#);
    let answer = daemon.ask_over(&mut client, &line);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    client
}

fn code(answer: Response) -> Option<ErrorCode> {
    match answer {
        Response::Error { code, .. } => Some(code),
        _ => None,
    }
}

#[test]
fn passed_on_requests_have_the_rights_of_their_user() {
    let Some((machine, a, b)) = users() else {
        return;
    };
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let mut bob = passed_on(&mut daemon, BOB, &[BOB]);
    let refused = Some(ErrorCode::NotAllowed);
    let class =
        |pid: i32, class: &str| format!(r#"{{"op":"class","pid":{pid},"class":"{class}"}}"#);
    for (request, expected) in [
        (r#"{"op":"pause"}"#.to_owned(), refused),
        (r#"{"op":"become","uid":0}"#.to_owned(), refused),
        (format!(r#"{{"op":"explain","pid":{}}}"#, a.pid), refused),
        (class(a.pid, "disposable"), refused),
        (class(b.pid, "keep"), refused),
        (class(b.pid, "disposable"), None),
    ] {
        let answer = daemon.ask_over(&mut bob, &request);
        assert_eq!(code(answer), expected, "{request}");
    }
    match daemon.ask_over(&mut bob, r#"{"op":"status"}"#) {
        Response::Status(status) => assert!(status.topmost.is_none() && status.hidden.is_some()),
        other => panic!("{other:?}"),
    }
    let mut member = passed_on(&mut daemon, BOB, &[BOB, GROUP]);
    match daemon.ask_over(&mut member, r#"{"op":"status"}"#) {
        Response::Status(status) => assert!(status.topmost.is_some()),
        other => panic!("{other:?}"),
    }
    let answer = daemon.ask_over(&mut member, r#"{"op":"pause","for_ms":60000}"#);
    assert_eq!(code(answer), None);
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    daemon.stop();
}

#[test]
fn connection_that_holds_something_stays_roots() {
    let Some((machine, _a, _b)) = users() else {
        return;
    };
    let mut daemon = machine.start();
    let mut client = daemon.connect();
    daemon.ask_over(&mut client, r#"{"op":"listen"}"#);
    let line = format!(r#"{{"op":"become","uid":{BOB}}}"#);
    let answer = daemon.ask_over(&mut client, &line);
    assert_eq!(code(answer), Some(ErrorCode::BadRequest));
    daemon.stop();
}

#[test]
fn user_has_no_more_connections_through_a_service() {
    let Some((machine, _a, _b)) = users() else {
        return;
    };
    let mut daemon = machine.start();
    let mut clients = Vec::new();
    let line = format!(r#"{{"op":"become","uid":{BOB}}}"#);
    let refused = loop {
        let mut client = daemon.connect();
        match code(daemon.ask_over(&mut client, &line)) {
            None => clients.push(client),
            refused => break refused,
        }
        assert!(clients.len() < 64);
    };
    assert_eq!((refused, clients.len()), (Some(ErrorCode::Busy), 16));
    daemon.stop();
}

#[test]
fn only_owners_hear_of_foreground_changes() {
    let Some((machine, a, b)) = users() else {
        return;
    };
    let mut daemon = machine.start();
    const LISTEN: &str = r#"{"op":"listen","foreground":true}"#;
    let mut listeners = [
        passed_on(&mut daemon, ADA, &[]),
        passed_on(&mut daemon, BOB, &[]),
        daemon.connect(),
    ];
    for listener in &mut listeners {
        daemon.ask_over(listener, LISTEN);
    }
    let mut plain = daemon.connect();
    daemon.ask_over(&mut plain, r#"{"op":"listen"}"#);
    daemon.focus(a.pid);
    daemon.focus(b.pid);
    daemon.focus_none();
    // Sent to all listeners, so that each of them has heard everything before.
    daemon.ask(r#"{"op":"pause"}"#);
    let mut heard = |client: &mut Client| {
        let mut all = Vec::new();
        loop {
            let line = daemon.hear(client);
            match serde_json::from_str(&line).unwrap() {
                Response::Notice(Notice::Foreground { app }) => {
                    all.push(app.map(|app| app.pid.unwrap()));
                }
                Response::Notice(Notice::Done(_)) => return all,
                other => panic!("{other:?}"),
            }
        }
    };
    let [ada, bob, root] = &mut listeners;
    assert_eq!(heard(ada), [Some(a.pid), None]);
    assert_eq!(heard(bob), [Some(b.pid), None]);
    assert_eq!(heard(root), [Some(a.pid), None, Some(b.pid), None]);
    assert_eq!(heard(&mut plain), []);
    daemon.stop();
}
