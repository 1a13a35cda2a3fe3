// SPDX-License-Identifier: GPL-2.0-or-later
//! Permission to claim the foreground without logind: root, the group of `[access]`, and the user
//! of a process that has the screen or an input device open.

use std::time::{Duration, Instant};

use limelight_proto::{ErrorCode, Response};

use super::{World, OWNER, STRANGER};
use crate::common::{App, Client, Running};

const GROUP: u32 = 60_123;

fn claim(pid: i32, hold: bool) -> String {
    format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"test","hold":{hold}}}"#)
}

fn refusal(daemon: &mut Running, client: &mut Client, message: &str) -> (String, String) {
    match daemon.ask_over(client, message) {
        Response::Error {
            code: ErrorCode::NotAllowed,
            message,
            cure,
            ..
        } => (message, cure),
        other => panic!("{message}: {other:?}"),
    }
}

fn is_taken(daemon: &mut Running, client: &mut Client, app: &App) {
    let answer = daemon.ask_over(client, &claim(app.pid, true));
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    assert_eq!(daemon.topmost(), Some(app.pid));
}

#[test]
fn user_without_display_or_group_is_refused_and_told_the_cure() {
    let Some(world) = World::new() else {
        return;
    };
    world
        .machine
        .write("group", &format!("root:x:0:\nlimelight:x:{GROUP}:ada\n"));
    let mut daemon = world.start(false);
    let mut stranger = daemon.connect_as(STRANGER);
    for hold in [false, true] {
        let message = claim(world.strange.pid, hold);
        let (message, cure) = refusal(&mut daemon, &mut stranger, &message);
        assert!(message.contains(&STRANGER.to_string()), "{message}");
        assert!(cure.contains("limelight"), "{cure}");
    }
    assert_eq!(daemon.topmost(), None);
    daemon.stop();
}

#[test]
fn refused_user_does_not_lock_out_others() {
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = world.start(false);
    let mut stranger = daemon.connect_as(STRANGER);
    let _ = daemon.ask_over(&mut stranger, &claim(world.strange.pid, true));
    let mut owner = daemon.connect_as(OWNER);
    is_taken(&mut daemon, &mut owner, &world.front);
    daemon.stop();
}

#[test]
fn later_user_of_the_display_is_not_locked_out_by_an_earlier_one() {
    let Some(world) = World::new() else {
        return;
    };
    world.machine.open_device(&world.strange, "dev-dri/card0");
    let mut daemon = world.start(false);
    let mut owner = daemon.connect_as(OWNER);
    is_taken(&mut daemon, &mut owner, &world.front);
    let mut other = daemon.connect_as(STRANGER);
    is_taken(&mut daemon, &mut other, &world.strange);
    daemon.stop();
}

#[test]
fn file_named_like_a_device_is_not_a_display() {
    let Some(world) = World::new() else {
        return;
    };
    // Any user can have files with these names in a directory of their own.
    for path in ["home/dev-input/event0", "home/dev/dri/card0"] {
        let file = world.machine.path(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        world.machine.open_file(&world.strange, &file, "0100002");
    }
    let mut daemon = world.start(false);
    let mut stranger = daemon.connect_as(STRANGER);
    let message = claim(world.strange.pid, true);
    refusal(&mut daemon, &mut stranger, &message);
    daemon.stop();
}

/// Any user can open any device with `O_PATH`.
#[test]
fn descriptor_that_only_names_a_device_is_not_a_display() {
    let Some(world) = World::new() else {
        return;
    };
    let device = world.machine.path("dev-input/event0");
    assert!(device.exists());
    world
        .machine
        .open_file(&world.strange, &device, "012000000");
    let mut daemon = world.start(false);
    let mut stranger = daemon.connect_as(STRANGER);
    let message = claim(world.strange.pid, true);
    refusal(&mut daemon, &mut stranger, &message);
    daemon.stop();
}

#[test]
fn group_is_accepted_by_name_and_by_number() {
    let Some(world) = World::new() else {
        return;
    };
    world
        .machine
        .write("group", &format!("root:x:0:\nlimelight:x:{GROUP}:\n"));
    for (access, members) in [
        ("", GROUP),
        ("[access]\ngroup = \"limelight\"\n", GROUP),
        ("[access]\ngroup = \"60999\"\n", 60_999),
        ("[access]\ngroup = 60999\n", 60_999),
    ] {
        world.machine.configure(access);
        let mut daemon = world.start(false);
        let mut member = daemon.connect_in_group(STRANGER, members);
        is_taken(&mut daemon, &mut member, &world.strange);
        let mut other = daemon.connect_in_group(STRANGER, 60_001);
        let message = claim(world.strange.pid, false);
        refusal(&mut daemon, &mut other, &message);
        daemon.stop();
    }
    world.machine.configure("[access]\ngroup = \"\"\n");
    let mut daemon = world.start(false);
    let mut member = daemon.connect_in_group(STRANGER, GROUP);
    let message = claim(world.strange.pid, false);
    refusal(&mut daemon, &mut member, &message);
    daemon.stop();
}

#[test]
fn session_without_a_seat_gives_no_permission() {
    let Some(world) = World::new() else {
        return;
    };
    for uid in [OWNER, STRANGER] {
        let text = format!("UID={uid}\nACTIVE=1\nSTATE=active\nREMOTE=1\nCLASS=user\n");
        world.machine.write(&format!("sessions/{uid}"), &text);
    }
    let mut daemon = world.start(true);
    let mut stranger = daemon.connect_as(STRANGER);
    let message = claim(world.strange.pid, true);
    refusal(&mut daemon, &mut stranger, &message);
    let mut owner = daemon.connect_as(OWNER);
    is_taken(&mut daemon, &mut owner, &world.front);
    daemon.stop();
}

/// In procfs, the files of such a process belong to root. A score of 0 may still have been written
/// by the process's user, so that user needs permission.
#[test]
fn process_that_is_not_dumpable_needs_its_users_permission() {
    let Some(world) = World::new() else {
        return;
    };
    let score = |app: &App, value: &str| {
        world
            .machine
            .write(&format!("proc/{}/oom_score_adj", app.pid), value);
    };
    for app in [&world.front, &world.strange] {
        let directory = world.machine.path(&format!("proc/{}", app.pid));
        std::os::unix::fs::chown(directory, Some(0), None).unwrap();
        score(app, "7");
    }
    let mut daemon = world.start(false);
    score(&world.strange, "0");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        daemon
            .daemon
            .turn(Some(Duration::from_millis(100)))
            .unwrap();
        assert_eq!(daemon.topmost(), None);
    }
    score(&world.front, "0");
    let begun = Instant::now();
    while daemon.topmost() != Some(world.front.pid) {
        assert!(begun.elapsed() < Duration::from_secs(30), "never topmost");
        daemon.daemon.turn(Some(Duration::from_millis(20))).unwrap();
    }
    daemon.stop();
}
