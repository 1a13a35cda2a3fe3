// SPDX-License-Identifier: GPL-2.0-or-later
//! Which sessions count, and the rank of several users' claims.

use limelight_proto::{ErrorCode, Response};

use super::{World, OWNER, STRANGER};
use crate::common::{Client, Running};

fn claim(pid: i32, hold: bool) -> String {
    format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"test","hold":{hold}}}"#)
}

const NONE: &str = r#"{"op":"focus","target":"none","source":"test"}"#;

/// Writes logind's file of a session at a seat.
fn at_seat(world: &World, uid: u32, seat: &str, class: &str, active: bool) {
    let active = u8::from(active);
    let text = format!("UID={uid}\nACTIVE={active}\nSTATE=online\nSEAT={seat}\nCLASS={class}\n");
    world.machine.write(&format!("sessions/{uid}"), &text);
}

fn take(daemon: &mut Running, client: &mut Client, message: &str) {
    let answer = daemon.ask_over(client, message);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
}

fn refusal(daemon: &mut Running, client: &mut Client, message: &str) -> (ErrorCode, String) {
    match daemon.ask_over(client, message) {
        Response::Error { code, cure, .. } => (code, cure),
        other => panic!("{message}: {other:?}"),
    }
}

#[test]
fn session_without_a_seat_displaces_no_app_of_the_seat() {
    let Some(world) = World::new() else {
        return;
    };
    at_seat(&world, OWNER, "seat0", "user", true);
    for (name, rest) in [
        ("ssh", "REMOTE=1\nCLASS=user\nTYPE=tty\n"),
        ("cron", "REMOTE=0\nCLASS=background\n"),
        ("manager", "REMOTE=0\nCLASS=manager\n"),
        ("empty-seat", "SEAT=\nCLASS=user\n"),
        ("background", "SEAT=seat0\nCLASS=background\n"),
        // The value contains `SEAT=`, but the text of a value is never parsed as a key.
        ("forged", "CLASS=user\nDISPLAY=\\nSEAT=seat0\n"),
    ] {
        let text = format!("UID={STRANGER}\nACTIVE=1\nSTATE=active\n{rest}");
        world.machine.write(&format!("sessions/{STRANGER}"), &text);
        let mut daemon = world.start(true);
        let mut owner = daemon.connect_as(OWNER);
        take(&mut daemon, &mut owner, &claim(world.front.pid, true));
        let mut stranger = daemon.connect_as(STRANGER);
        for hold in [false, true] {
            let message = claim(world.strange.pid, hold);
            let (code, _) = refusal(&mut daemon, &mut stranger, &message);
            assert_eq!(code, ErrorCode::NotAllowed, "{name}");
            assert_eq!(daemon.topmost(), Some(world.front.pid), "{name}");
        }
        daemon.stop();
    }
}

#[test]
fn greeter_and_lock_screen_sessions_count() {
    let Some(world) = World::new() else {
        return;
    };
    at_seat(&world, STRANGER, "seat0", "user", false);
    for class in ["user", "greeter", "lock-screen"] {
        at_seat(&world, OWNER, "seat0", class, true);
        let mut daemon = world.start(true);
        let mut owner = daemon.connect_as(OWNER);
        take(&mut daemon, &mut owner, &claim(world.front.pid, true));
        assert_eq!(daemon.topmost(), Some(world.front.pid), "{class}");
        daemon.stop();
    }
}

#[test]
fn explicit_claim_ranks_no_higher_than_another_active_session() {
    let Some(world) = World::new() else {
        return;
    };
    at_seat(&world, OWNER, "seat0", "user", true);
    at_seat(&world, STRANGER, "seat1", "user", true);
    let mut daemon = world.start(true);
    let mut owner = daemon.connect_as(OWNER);
    let mut other = daemon.connect_as(STRANGER);
    take(&mut daemon, &mut owner, &claim(world.front.pid, true));
    take(&mut daemon, &mut other, &claim(world.strange.pid, false));
    assert_eq!(daemon.topmost(), Some(world.strange.pid), "the latest");
    // The owner switches windows: no claim of another user outranks the owner's session.
    take(&mut daemon, &mut owner, &claim(world.behind.pid, true));
    assert_eq!(daemon.topmost(), Some(world.behind.pid));
    // The owner's explicit claim does outrank the owner's agent.
    take(&mut daemon, &mut owner, &claim(world.front.pid, false));
    take(&mut daemon, &mut owner, &claim(world.behind.pid, true));
    assert_eq!(daemon.topmost(), Some(world.front.pid));
    daemon.stop();
}

#[test]
fn user_withdraws_no_claim_of_another_user() {
    let Some(world) = World::new() else {
        return;
    };
    at_seat(&world, OWNER, "seat0", "user", true);
    at_seat(&world, STRANGER, "seat1", "user", true);
    let mut daemon = world.start(true);
    let mut owner = daemon.connect_as(OWNER);
    let mut other = daemon.connect_as(STRANGER);
    take(&mut daemon, &mut owner, &claim(world.front.pid, false));
    take(&mut daemon, &mut other, NONE);
    assert_eq!(daemon.topmost(), Some(world.front.pid));
    // Root's claim ends all explicit claims.
    daemon.focus_none();
    assert_eq!(daemon.topmost(), None);
    daemon.stop();
}

#[test]
fn claim_that_waits_for_its_session_does_not_count_without_sessions() {
    let Some(world) = World::new() else {
        return;
    };
    at_seat(&world, OWNER, "seat0", "user", true);
    let mut daemon = world.start(true);
    let mut owner = daemon.connect_as(OWNER);
    let mut stranger = daemon.connect_as(STRANGER);
    take(&mut daemon, &mut owner, &claim(world.front.pid, true));
    refusal(&mut daemon, &mut stranger, &claim(world.strange.pid, true));
    // The owner logs out and no greeter starts: logind has no session at a seat any more.
    for uid in [OWNER, STRANGER] {
        std::fs::remove_file(world.machine.path(&format!("sessions/{uid}"))).unwrap();
    }
    for _ in 0..10 {
        let patience = Some(std::time::Duration::from_millis(20));
        daemon.daemon.turn(patience).unwrap();
    }
    assert_eq!(
        daemon.topmost(),
        Some(world.front.pid),
        "has an input device"
    );
    daemon.stop();
}

#[test]
fn explicit_claim_does_not_outlive_the_active_session() {
    let Some(world) = World::new() else {
        return;
    };
    at_seat(&world, OWNER, "seat0", "user", true);
    at_seat(&world, STRANGER, "seat0", "user", false);
    let mut daemon = world.start(true);
    let mut owner = daemon.connect_as(OWNER);
    let mut other = daemon.connect_as(STRANGER);
    take(&mut daemon, &mut owner, &claim(world.front.pid, false));
    let _ = daemon.ask_over(&mut other, &claim(world.strange.pid, true));
    assert_eq!(daemon.topmost(), Some(world.front.pid));
    at_seat(&world, OWNER, "seat0", "user", false);
    at_seat(&world, STRANGER, "seat0", "user", true);
    take(&mut daemon, &mut other, &claim(world.strange.pid, true));
    assert_eq!(daemon.topmost(), Some(world.strange.pid));
    daemon.stop();
}
