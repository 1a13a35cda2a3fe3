// SPDX-License-Identifier: GPL-2.0-or-later
//! Every message of the control socket, sent by the owner of the topmost app, by another user and
//! by root: what each sender may change. A message without an expected result here fails the test.

mod hostile;
mod no_logind;
mod sessions;
mod strangers;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{App, Client, Machine, Running};
use limelight_proto::{ErrorCode, Request, Response};

/// Owner of the topmost app and of a background app.
const OWNER: u32 = 54_321;
/// Another user, with one app.
const STRANGER: u32 = 54_322;

const FRONT: &str = "u/app-front-1.scope";
const BEHIND: &str = "u/app-behind-2.scope";
const STRANGE: &str = "u/app-strange-3.scope";

/// The effect of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comes {
    /// Accepted, and the state of the daemon or of the machine has changed.
    Changed,
    /// Answered; nothing has changed yet.
    Told,
    /// Refused, and nothing has changed.
    Refused,
}

use Comes::{Changed, Refused, Told};

/// A message, and its expected effect for each sender.
struct Case {
    message: String,
    owner: Comes,
    /// For another user: without logind, and also with logind while that user's session is
    /// inactive.
    stranger: Comes,
    root: Comes,
}

struct World {
    front: App,
    behind: App,
    strange: App,
    machine: Machine,
}

impl World {
    /// Returns `None` and prints a message if not root, because speaking as other users needs root.
    fn new() -> Option<World> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: speaking as other users requires root");
            return None;
        }
        let machine = Machine::new();
        for cgroup in ["u", FRONT, BEHIND, STRANGE] {
            machine.make_cgroup(cgroup);
        }
        machine.use_memory(FRONT, 100);
        let world = World {
            front: machine.spawn(FRONT),
            behind: machine.spawn(BEHIND),
            strange: machine.spawn(STRANGE),
            machine,
        };
        world.machine.give(&world.front, OWNER);
        world.machine.give(&world.behind, OWNER);
        world.machine.give(&world.strange, STRANGER);
        world.machine.open_device(&world.front, "dev-input/event0");
        let sessions = [(OWNER, 1), (STRANGER, 0)];
        for (uid, active) in sessions {
            let text =
                format!("UID={uid}\nACTIVE={active}\nSTATE=online\nSEAT=seat0\nCLASS=user\n");
            world.machine.write(&format!("sessions/{uid}"), &text);
        }
        Some(world)
    }

    fn start(&self, logind: bool) -> Running<'_> {
        self.machine.start_with(|options| {
            if logind {
                options.roots.sessions = self.machine.path("sessions");
            }
        })
    }

    /// Every message, in every form that needs different permissions.
    fn cases(&self) -> Vec<Case> {
        let (front, behind, strange) = (self.front.pid, self.behind.pid, self.strange.pid);
        let mut cases = Vec::new();
        let mut case = |message: &str, owner, stranger, root| {
            cases.push(Case {
                message: message.to_owned(),
                owner,
                stranger,
                root,
            });
        };
        for hold in [false, true] {
            let claim = |target: String| {
                format!(r#"{{"op":"focus","target":{target},"source":"test","hold":{hold}}}"#)
            };
            let pid = |pid: i32| claim(format!(r#"{{"pid":{pid}}}"#));
            let cgroup = |path: &str| claim(format!(r#"{{"cgroup":"/{path}"}}"#));
            // With `hold` this is a session claim. It is recorded in addition to the owner's
            // explicit claim, so the state changes.
            let again = if hold { Changed } else { Told };
            case(&pid(front), again, Refused, again);
            case(&pid(behind), Changed, Refused, Changed);
            case(&pid(strange), Refused, Refused, Changed);
            case(&cgroup(BEHIND), Changed, Refused, Changed);
            case(&cgroup(STRANGE), Refused, Refused, Changed);
            case(&claim(r#""none""#.to_owned()), Changed, Refused, Changed);
        }
        for event in ["open", "close"] {
            let window = |rest: &str| {
                format!(r#"{{"op":"window","event":"{event}",{rest}"source":"test"}}"#)
            };
            case(&window(""), Changed, Refused, Changed);
            case(
                &window(&format!(r#""pid":{front},"#)),
                Changed,
                Refused,
                Changed,
            );
            // `open` then counts as input for another app, `close` as a frame without input.
            case(
                &window(&format!(r#""pid":{strange},"#)),
                Changed,
                Refused,
                Changed,
            );
        }
        for what in [r#""disposable""#, r#""normal""#, "null"] {
            let class = |pid: i32| format!(r#"{{"op":"class","pid":{pid},"class":{what}}}"#);
            let set = if what == "null" { Told } else { Changed };
            case(&class(front), set, Refused, set);
            case(&class(strange), Refused, Refused, set);
        }
        let keep = |pid: i32| format!(r#"{{"op":"class","pid":{pid},"class":"keep"}}"#);
        case(&keep(front), Refused, Refused, Changed);
        for what in ["visible", "audio", "unsaved"] {
            let word = |pid: i32, on: bool| {
                format!(r#"{{"op":"in-use","pid":{pid},"use":"{what}","on":{on}}}"#)
            };
            // Takes effect at the next scan for apps.
            case(&word(behind, true), Told, Refused, Told);
            case(&word(strange, true), Refused, Refused, Told);
            // A connection cannot remove another connection's announcement.
            case(&word(behind, false), Told, Told, Told);
        }
        // The status lists agents only of users who may make claims now.
        let agent = r#"{"op":"agent","source":"sway","detail":"test"}"#;
        case(agent, Changed, Told, Changed);
        // Exceptions apply only to apps of the user who sends them.
        let never = |text: &str| format!(r#"{{"op":"never","file":"/f","text":"{text}"}}"#);
        for rule in [
            r#"protect = [\"*/app-front-*\"]"#,
            r#"close = [\"*/app-behind-*\"]"#,
        ] {
            case(&never(&format!(r"[never]\n{rule}")), Changed, Told, Told);
        }
        for op in ["explain", "apps"] {
            let told = |pid: i32| format!(r#"{{"op":"{op}","pid":{pid}}}"#);
            case(&told(front), Told, Refused, Told);
            case(&told(strange), Refused, Told, Told);
        }
        case(
            r#"{"op":"become","uid":54323,"groups":[54323]}"#,
            Refused,
            Refused,
            Told,
        );
        case(r#"{"op":"pause"}"#, Refused, Refused, Changed);
        case(r#"{"op":"resume"}"#, Refused, Refused, Told);
        for told in [
            r#"{"op":"status"}"#.to_owned(),
            r#"{"op":"apps"}"#.to_owned(),
            r#"{"op":"latency"}"#.to_owned(),
            r#"{"op":"decision"}"#.to_owned(),
            r#"{"op":"history"}"#.to_owned(),
            r#"{"op":"listen"}"#.to_owned(),
        ] {
            case(&told, Told, Told, Told);
        }
        cases
    }
}

/// The names of all messages, from the error that the type reports for an unknown name.
fn all_ops() -> BTreeSet<String> {
    let error = serde_json::from_str::<Request>(r#"{"op":"?"}"#).unwrap_err();
    let text = error.to_string();
    let (_, list) = text.split_once("expected one of ").expect(&text);
    let names = list.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn every_message_is_tested() {
    let Some(world) = World::new() else {
        return;
    };
    let asked = world.cases().into_iter().map(|case| {
        let message: serde_json::Value = serde_json::from_str(&case.message).unwrap();
        message["op"].as_str().unwrap().to_owned()
    });
    assert_eq!(asked.collect::<BTreeSet<_>>(), all_ops());
}

#[test]
fn another_user_changes_nothing() {
    let Some(world) = World::new() else {
        return;
    };
    for logind in [false, true] {
        let mut daemon = world.start(logind);
        let mut owner = in_front(&mut daemon, &world);
        let mut stranger = daemon.connect_as(STRANGER);
        let before = state(&mut daemon, &world);
        for case in world.cases() {
            let came = ask(&mut daemon, &world, &mut stranger, &case.message, &before);
            assert_eq!(came, case.stranger, "logind {logind}: {}", case.message);
        }
        drop(stranger);
        // Disconnecting changes no state either.
        let after = state(&mut daemon, &world);
        assert_same(&before, &after);
        let answer = daemon.ask_over(&mut owner, r#"{"op":"status"}"#);
        assert!(matches!(answer, Response::Status(_)));
        daemon.stop();
    }
}

#[test]
fn inactive_user_changes_nothing_while_no_app_is_topmost() {
    let Some(world) = World::new() else {
        return;
    };
    let mut daemon = world.start(true);
    let mut stranger = daemon.connect_as(STRANGER);
    let before = state(&mut daemon, &world);
    for case in world.cases() {
        let came = ask(&mut daemon, &world, &mut stranger, &case.message, &before);
        assert_ne!(came, Changed, "{}", case.message);
    }
}

#[test]
fn each_message_has_its_effect_for_owner_and_root() {
    let Some(world) = World::new() else {
        return;
    };
    let mut wrong = Vec::new();
    for case in world.cases() {
        for (uid, expected) in [(OWNER, case.owner), (0, case.root)] {
            let mut daemon = world.start(true);
            let _owner = in_front(&mut daemon, &world);
            let mut client = daemon.connect_as(uid);
            let before = state(&mut daemon, &world);
            let came = ask(&mut daemon, &world, &mut client, &case.message, &before);
            if came != expected {
                wrong.push(format!("uid {uid}: {}: {came:?}", case.message));
            }
            daemon.stop();
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The owner claims the foreground for an app and announces unsaved work in it. The connection
/// stays open.
fn in_front(daemon: &mut Running, world: &World) -> Client {
    let mut owner = daemon.connect_as(OWNER);
    let pid = world.front.pid;
    for message in [
        format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"test"}}"#),
        format!(r#"{{"op":"in-use","pid":{pid},"use":"unsaved","on":true}}"#),
    ] {
        let answer = daemon.ask_over(&mut owner, &message);
        assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    }
    // The announcement takes effect at the next scan for apps.
    let deadline = Instant::now() + Duration::from_secs(60);
    let apps = format!(r#"{{"op":"apps","pid":{pid}}}"#);
    while !matches!(daemon.ask(&apps), Response::Apps { apps, .. } if !apps[0].uses.is_empty()) {
        assert!(Instant::now() < deadline, "the use is never seen");
        std::thread::sleep(Duration::from_millis(20));
    }
    owner
}

fn ask(
    daemon: &mut Running,
    world: &World,
    client: &mut Client,
    message: &str,
    before: &State,
) -> Comes {
    let answer = daemon.ask_over(client, message);
    let after = state(daemon, world);
    match answer {
        Response::Error {
            code: ErrorCode::NotAllowed,
            ..
        } => {
            assert_same(before, &after);
            Refused
        }
        Response::Error { code, message, .. } => {
            assert_same(before, &after);
            assert_eq!(code, ErrorCode::NotFound, "{message}");
            Told
        }
        _ if *before == after => Told,
        _ => Changed,
    }
}

/// The state that the daemon reports to root, and all files of the machine.
type State = BTreeMap<String, String>;

fn assert_same(before: &State, after: &State) {
    for name in before.keys().chain(after.keys()) {
        assert_eq!(before.get(name), after.get(name), "{name}");
    }
}

fn state(daemon: &mut Running, world: &World) -> State {
    let mut state = State::new();
    for op in ["status", "apps", "latency", "decision", "history"] {
        let answer = daemon.ask(&format!(r#"{{"op":"{op}"}}"#));
        let mut value = serde_json::to_value(answer).unwrap();
        forget_time(&mut value);
        state.insert(op.to_owned(), format!("{value:#}"));
    }
    for directory in ["cgroup", "proc", "run", "state"] {
        files(&world.machine.path(directory), &mut state);
    }
    state
}

/// Removes values that change with time.
fn forget_time(value: &mut serde_json::Value) {
    const PASSING: [&str; 5] = [
        "uptime_ms",
        "for_ms",
        "for_us",
        "ends_in_us",
        "demoted_in_ms",
    ];
    match value {
        serde_json::Value::Object(members) => {
            members.retain(|name, _| !PASSING.contains(&name.as_str()));
            members.values_mut().for_each(forget_time);
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(forget_time),
        _ => {}
    }
}

fn files(directory: &Path, state: &mut State) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), state);
        } else if kind.is_file() {
            let text = fs::read(entry.path()).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            state.insert(entry.path().display().to_string(), text);
        }
    }
}
