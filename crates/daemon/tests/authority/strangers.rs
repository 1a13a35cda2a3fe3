// SPDX-License-Identifier: GPL-2.0-or-later
//! Visibility of a user's apps in the answers to every request: none for other users, their own for
//! the owner, all apps for root and the group of `[access]`.

use limelight_proto::{ErrorCode, Response};
use serde_json::Value;

use super::{forget_time, in_front, Case, World, OWNER, STRANGER};
use crate::common::{Client, Running};

const GROUP: u32 = 60_123;

/// Session of the other user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    NoLogind,
    Inactive,
    /// At another seat of the same machine.
    OtherSeat,
}

use Place::{Inactive, NoLogind, OtherSeat};

fn start(world: &World, place: Place) -> Running<'_> {
    let (seat, active) = match place {
        OtherSeat => ("seat1", 1),
        NoLogind | Inactive => ("seat0", 0),
    };
    let text = format!("UID={STRANGER}\nACTIVE={active}\nSEAT={seat}\nCLASS=user\n");
    world.machine.write(&format!("sessions/{STRANGER}"), &text);
    let group = format!("limelight:x:{GROUP}:\n");
    world.machine.write("group", &group);
    world.start(place != NoLogind)
}

fn say(daemon: &mut Running, client: &mut Client, message: &str) -> String {
    let answer = daemon.ask_over(client, message);
    serde_json::to_string(&answer).unwrap()
}

/// Text that would reveal the owner's apps.
fn marks(world: &World) -> Vec<String> {
    let pids = [world.front.pid, world.behind.pid];
    let by_pid = pids
        .iter()
        .flat_map(|pid| [pid.to_string(), format!("app{pid}")]);
    let more = ["app-front", "app-behind", "\"unsaved\""];
    let more = more.into_iter().map(str::to_owned);
    by_pid.chain(more).chain([OWNER.to_string()]).collect()
}

/// The owner presses a key and receives a response.
fn press(daemon: &mut Running, owner: &mut Client) {
    for event in ["open", "close"] {
        let message = format!(r#"{{"op":"window","event":"{event}","source":"test"}}"#);
        let answer = daemon.ask_over(owner, &message);
        assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    }
}

#[test]
fn no_answer_names_another_user_s_app() {
    let Some(world) = World::new() else {
        return;
    };
    for place in [NoLogind, Inactive, OtherSeat] {
        let mut daemon = start(&world, place);
        let mut owner = in_front(&mut daemon, &world);
        press(&mut daemon, &mut owner);
        let mut stranger = daemon.connect_as(STRANGER);
        let mut wrong = Vec::new();
        for Case { message, .. } in world.cases() {
            let answer = say(&mut daemon, &mut stranger, &message);
            // The caller may receive its own text back.
            let told = marks(&world)
                .into_iter()
                .find(|mark| answer.contains(mark) && !message.contains(mark));
            if let Some(mark) = told {
                wrong.push(format!("{message}: {mark:?} in {answer}"));
            }
        }
        assert!(wrong.is_empty(), "{place:?}: {wrong:#?}");
        drop(owner);
        daemon.stop();
    }
}

/// All requests that change nothing.
fn questions(world: &World) -> Vec<String> {
    let (front, strange) = (world.front.pid, world.strange.pid);
    vec![
        r#"{"op":"status"}"#.to_owned(),
        r#"{"op":"apps"}"#.to_owned(),
        format!(r#"{{"op":"apps","pid":{strange}}}"#),
        format!(r#"{{"op":"apps","pid":{front}}}"#),
        format!(r#"{{"op":"explain","pid":{strange}}}"#),
        format!(r#"{{"op":"explain","pid":{front}}}"#),
        r#"{"op":"latency"}"#.to_owned(),
        format!(r#"{{"op":"latency","app":"app{front}"}}"#),
        r#"{"op":"decision"}"#.to_owned(),
        r#"{"op":"history"}"#.to_owned(),
    ]
}

fn answers(daemon: &mut Running, world: &World, client: &mut Client) -> Vec<Value> {
    let ask = |question: String| {
        let answer = daemon.ask_over(client, &question);
        let mut value = serde_json::to_value(answer).unwrap();
        forget_time(&mut value);
        value
    };
    questions(world).into_iter().map(ask).collect()
}

#[test]
fn polling_reveals_neither_input_nor_a_foreground_change() {
    let Some(world) = World::new() else {
        return;
    };
    for place in [NoLogind, Inactive, OtherSeat] {
        let mut daemon = start(&world, place);
        let mut owner = in_front(&mut daemon, &world);
        let mut stranger = daemon.connect_as(STRANGER);
        let before = answers(&mut daemon, &world, &mut stranger);
        let open = r#"{"op":"window","event":"open","source":"test"}"#;
        daemon.ask_over(&mut owner, open);
        assert_eq!(
            answers(&mut daemon, &world, &mut stranger),
            before,
            "{place:?}: input"
        );
        press(&mut daemon, &mut owner);
        assert_eq!(
            answers(&mut daemon, &world, &mut stranger),
            before,
            "{place:?}: frame"
        );
        let behind = world.behind.pid;
        let moved = format!(r#"{{"op":"focus","target":{{"pid":{behind}}},"source":"test"}}"#);
        daemon.ask_over(&mut owner, &moved);
        let after = answers(&mut daemon, &world, &mut stranger);
        assert_eq!(after, before, "{place:?}: another app");
        drop(owner);
        daemon.stop();
    }
}

#[test]
fn answers_say_that_something_is_hidden() {
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = start(&world, Inactive);
    let _owner = in_front(&mut daemon, &world);
    let mut stranger = daemon.connect_as(STRANGER);
    for op in ["status", "apps", "latency", "decision", "history"] {
        let answer = say(&mut daemon, &mut stranger, &format!(r#"{{"op":"{op}"}}"#));
        let value: Value = serde_json::from_str(&answer).unwrap();
        let why = value["hidden"].as_str().unwrap_or_default();
        assert!(why.contains("group limelight"), "{op}: {answer}");
    }
    let pid = world.front.pid;
    for question in [
        format!(r#"{{"op":"explain","pid":{pid}}}"#),
        format!(r#"{{"op":"apps","pid":{pid}}}"#),
    ] {
        match daemon.ask_over(&mut stranger, &question) {
            Response::Error { code, cure, .. } => {
                assert_eq!(code, ErrorCode::NotAllowed, "{question}");
                assert!(cure.contains("group limelight"), "{cure}");
            }
            other => panic!("{question}: {other:?}"),
        }
    }
    daemon.stop();
}

#[test]
fn stranger_still_sees_the_machine_and_own_apps() {
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = start(&world, Inactive);
    let _owner = in_front(&mut daemon, &world);
    let mut stranger = daemon.connect_as(STRANGER);
    let Response::Status(status) = daemon.ask_over(&mut stranger, r#"{"op":"status"}"#) else {
        panic!("no status");
    };
    assert_eq!(status.topmost, None);
    assert_eq!(status.memory.total, 1000 << 20);
    assert_eq!(status.mechanisms.len(), 6);
    let names = |answer| match answer {
        Response::Apps { apps, .. } => apps.into_iter().map(|app| app.uid).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    let apps = daemon.ask_over(&mut stranger, r#"{"op":"apps"}"#);
    assert_eq!(names(apps), [STRANGER]);
    let explain = format!(r#"{{"op":"explain","pid":{}}}"#, world.strange.pid);
    let answer = daemon.ask_over(&mut stranger, &explain);
    assert!(matches!(answer, Response::Explain(_)), "{answer:?}");
    daemon.stop();
}

#[test]
fn owner_sees_own_apps_and_root_and_the_group_see_all() {
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = start(&world, Inactive);
    let mut owner = in_front(&mut daemon, &world);
    press(&mut daemon, &mut owner);
    let root = daemon.connect();
    let member = daemon.connect_in_group(STRANGER, GROUP);
    let mut everything: Option<Vec<Value>> = None;
    for (who, mut client, all) in [
        ("owner", owner, false),
        ("root", root, true),
        ("member", member, true),
    ] {
        let Response::Status(status) = daemon.ask_over(&mut client, r#"{"op":"status"}"#) else {
            panic!("no status");
        };
        let front = status.topmost.and_then(|topmost| topmost.app.pid);
        assert_eq!(front, Some(world.front.pid), "{who}");
        assert!(!status.changes.is_empty(), "{who}");
        assert_eq!(status.window.tallies.opened, 1, "{who}");
        let latency = daemon.ask_over(&mut client, r#"{"op":"latency"}"#);
        assert!(
            matches!(latency, Response::Latency(report) if report.apps.len() == 1),
            "{who}"
        );
        let Response::Apps { apps, .. } = daemon.ask_over(&mut client, r#"{"op":"apps"}"#) else {
            panic!("no apps");
        };
        let foreign = apps.iter().filter(|app| app.uid == STRANGER).count();
        assert_eq!(foreign, usize::from(all), "{who}");
        if all {
            let mut seen = answers(&mut daemon, &world, &mut client);
            // The detail changes with time, as in "last report by test, 7 ms ago".
            seen[0]["window"]["detail"].take();
            for answer in &mut seen {
                assert!(answer["hidden"].is_null(), "{who}: {answer}");
            }
            let known = everything.get_or_insert_with(|| seen.clone());
            assert_eq!(&seen, known, "{who}");
        }
        // Closing the connection would end its claims.
        std::mem::forget(client);
    }
    daemon.stop();
}

#[test]
fn restore_record_is_readable_by_root_only() {
    use std::os::unix::fs::PermissionsExt;
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = start(&world, Inactive);
    let _owner = in_front(&mut daemon, &world);
    let record = world.machine.path("run/private/record/restore.json");
    let mode = std::fs::metadata(record).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it names the foreground app");
    daemon.stop();
}

/// Collects the timestamps of all files below `directory` that another user may stat.
fn times(directory: &std::path::Path, found: &mut Vec<(std::path::PathBuf, [i64; 4])>) {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::metadata(directory).unwrap();
    let times = [
        data.mtime(),
        data.mtime_nsec(),
        data.ctime(),
        data.ctime_nsec(),
    ];
    found.push((directory.to_owned(), times));
    if data.is_dir() && data.mode() & 0o001 != 0 {
        for entry in std::fs::read_dir(directory).unwrap() {
            self::times(&entry.unwrap().path(), found);
        }
    }
}

#[test]
fn file_timestamps_do_not_reveal_foreground_changes() {
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = start(&world, Inactive);
    let run = world.machine.path("run");
    let (mut before, mut after) = (Vec::new(), Vec::new());
    times(&run, &mut before);
    let mut owner = in_front(&mut daemon, &world);
    press(&mut daemon, &mut owner);
    let behind = world.behind.pid;
    let moved = format!(r#"{{"op":"focus","target":{{"pid":{behind}}},"source":"test"}}"#);
    daemon.ask_over(&mut owner, &moved);
    assert!(!world.machine.recorded().is_empty());
    times(&run, &mut after);
    assert_eq!(before, after);
    daemon.stop();
}
