// SPDX-License-Identifier: GPL-2.0-or-later
//! limelight-bus on a bus of its own, with a simulated limelightd.

mod desktops;
mod world;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limelight_proto::{Class, HistoryEntry, Level, MemoryAction, MemoryThen, Notice, Request};
use world::{memory, viewer, Running, World, NAME, PATH, PATIENCE};
use zbus::blocking::{connection, Connection, MessageIterator};
use zbus::message::{Message, Type};
use zbus::zvariant::{OwnedValue, Value};

/// The user nobody, who may not pause. The bus accepts only users that it finds in /etc/passwd.
const USER: u32 = 65_534;
const MONITOR: &str = "org.freedesktop.LowMemoryMonitor";

type Properties = HashMap<String, OwnedValue>;

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED: {test}: calls as another user require root");
    }
    root
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The signals that a connection receives from limelight-bus, as member and body.
fn signals(bus: &Connection) -> Receiver<Message> {
    let messages = MessageIterator::from(bus);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for message in messages.flatten() {
            let of_bus = message
                .header()
                .sender()
                .is_some_and(|sender| sender.as_str() == "org.freedesktop.DBus");
            if message.message_type() == Type::Signal && !of_bus && sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

fn member(message: &Message) -> String {
    message.header().member().unwrap().to_string()
}

#[test]
fn calls_are_answered_by_limelightd() {
    let Some(world) = World::start("calls") else {
        return;
    };
    let bus = world.connect();
    let class: (String, String) = world.call(&bus, "GetClass", &4242i32).unwrap();
    assert_eq!(class, ("keep".into(), "of category Viewer".into()));
    let apps: Vec<Properties> = world.call(&bus, "ListApps", &()).unwrap();
    assert_eq!(apps.len(), 1);
    let name: &str = apps[0]["DesktopId"].downcast_ref().unwrap();
    assert_eq!(name, "org.example.Viewer");
    if own_uid() == 0 {
        let front: Properties = world.call(&bus, "GetForeground", &()).unwrap();
        let pid: i32 = front["Pid"].downcast_ref().unwrap();
        assert_eq!(pid, 4242);
        let said: String = world.call(&bus, "Pause", &600u32).unwrap();
        assert_eq!(said, "paused");
        let pause: (bool, u32) = world.call(&bus, "GetPause", &()).unwrap();
        assert_eq!(pause, (true, 600));
        let said: String = world.call(&bus, "SetClass", &(7i32, "auto")).unwrap();
        assert_eq!(said, "done");
        let (pid, class) = (7, None);
        let save = false;
        assert!(world
            .asked(0)
            .contains(&Request::Class { pid, class, save }));
    }
    let wrong = world.call::<_, String>(&bus, "SetClass", &(7i32, "best"));
    let text = wrong.unwrap_err().to_string();
    assert!(text.contains("InvalidArgs"), "{text}");
}

#[test]
fn calls_have_the_rights_of_their_caller() {
    if !is_root("rights") {
        return;
    }
    let Some(world) = World::start("rights") else {
        return;
    };
    let told = world.call_as(USER, &["org.limelight.Limelight1.GetForeground"]);
    let told = told.unwrap();
    assert!(
        told.contains("array [") && !told.contains("viewer"),
        "{told}"
    );
    assert_eq!(world.asked(USER), [Request::Status]);
    let become_user = Request::Become {
        uid: USER,
        groups: vec![USER],
    };
    let asked = |request: &Request| {
        let daemon = world.daemon.lock().unwrap();
        daemon.asked.iter().any(|(_, one)| one == request)
    };
    let without_groups = Request::Become {
        uid: USER,
        groups: Vec::new(),
    };
    // Older message buses do not know the groups.
    assert!(asked(&become_user) || asked(&without_groups));
    // Without polkit, limelightd's refusal stands.
    let refused = world.call_as(USER, &["org.limelight.Limelight1.Pause", "uint32:60"]);
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("AccessDenied") && refused.contains("you may not"),
        "{refused}"
    );
    assert!(!world.asked(0).iter().any(is_pause));
}

fn is_pause(request: &Request) -> bool {
    matches!(request, Request::Pause { .. })
}

/// A simulated polkit, which allows only some actions.
struct Authority {
    allowed: &'static [&'static str],
    asked: Arc<Mutex<Vec<(String, u32)>>>,
}

#[zbus::interface(name = "org.freedesktop.PolicyKit1.Authority")]
impl Authority {
    fn check_authorization(
        &self,
        subject: (String, HashMap<String, OwnedValue>),
        action: String,
        _details: HashMap<String, String>,
        flags: u32,
        _cancellation: String,
    ) -> (bool, bool, HashMap<String, String>) {
        assert_eq!(subject.0, "system-bus-name");
        assert!(subject.1.contains_key("name"));
        let allowed = self.allowed.contains(&action.as_str());
        self.asked.lock().unwrap().push((action, flags));
        (allowed, false, HashMap::new())
    }
}

#[test]
fn polkit_allows_what_limelightd_refuses() {
    if !is_root("polkit") {
        return;
    }
    let Some(world) = World::start("polkit") else {
        return;
    };
    let asked = Arc::new(Mutex::new(Vec::new()));
    let authority = Authority {
        allowed: &["org.limelight.Limelight1.pause"],
        asked: Arc::clone(&asked),
    };
    let _polkit = connection::Builder::address(world.address.as_str())
        .and_then(|builder| builder.serve_at("/org/freedesktop/PolicyKit1/Authority", authority))
        .and_then(|builder| builder.name("org.freedesktop.PolicyKit1"))
        .and_then(connection::Builder::build)
        .unwrap();
    let told = world.call_as(USER, &["org.limelight.Limelight1.Pause", "uint32:60"]);
    assert!(told.unwrap().contains("paused"));
    let pause = Request::Pause {
        for_ms: Some(60_000),
    };
    // First as the user, then, because polkit allows it, as root.
    assert_eq!(world.asked(USER), std::slice::from_ref(&pause));
    assert!(world.asked(0).contains(&pause));
    let class = [
        "org.limelight.Limelight1.SetClass",
        "int32:7",
        "string:keep",
    ];
    let refused = world.call_as(USER, &class).unwrap_err();
    assert!(refused.contains("AccessDenied"), "{refused}");
    let (pid, class) = (7, Some(Class::Keep));
    let save = false;
    assert!(!world
        .asked(0)
        .contains(&Request::Class { pid, class, save }));
    let actions = [
        ("org.limelight.Limelight1.pause".to_owned(), 0),
        ("org.limelight.Limelight1.set-class".to_owned(), 0),
    ];
    assert_eq!(*asked.lock().unwrap(), actions);
}

fn closed() -> Notice {
    Notice::Done(HistoryEntry {
        unix_ms: 0,
        at_ms: 0,
        boot: String::new(),
        action: MemoryAction::Kill,
        app: Some(viewer()),
        uid: None,
        class: None,
        bytes: 0,
        took_us: None,
        times: 1,
        for_ms: 0,
        reason: "memory was short".into(),
        memory: MemoryThen::default(),
    })
}

#[test]
fn only_subscribers_receive_signals() {
    let Some(world) = World::start("signals") else {
        return;
    };
    let (bus, other) = (world.connect(), world.connect());
    let (heard, overheard) = (signals(&bus), signals(&other));
    // The other connection asks the bus for all signals.
    let rule = zbus::MatchRule::builder().msg_type(Type::Signal).build();
    let names = zbus::blocking::fdo::DBusProxy::new(&other).unwrap();
    names.add_match_rule(rule).unwrap();
    world.call::<_, ()>(&bus, "Subscribe", &()).unwrap();
    let next = || heard.recv_timeout(PATIENCE).unwrap();
    // The present state comes first.
    assert_eq!(member(&next()), "ForegroundChanged");
    let pause = next();
    assert_eq!(member(&pause), "PauseChanged");
    assert_eq!(
        pause.body().deserialize::<(bool, u32)>().unwrap(),
        (false, 0)
    );
    let own = |uid: u32| uid == own_uid();
    world.tell(1, own, &Notice::Foreground { app: None });
    if own_uid() == 0 {
        let front = next();
        let app: Properties = front.body().deserialize().unwrap();
        assert!(member(&front) == "ForegroundChanged" && app.is_empty());
    }
    world.tell(1, own, &closed());
    let message = next();
    let (app, reason): (Properties, String) = message.body().deserialize().unwrap();
    let name: &str = app["Name"].downcast_ref().unwrap();
    assert_eq!((name, reason.as_str()), ("viewer", "memory was short"));

    world.call::<_, ()>(&bus, "Unsubscribe", &()).unwrap();
    world.call::<_, ()>(&bus, "Subscribe", &()).unwrap();
    assert_eq!(member(&next()), "ForegroundChanged");
    // A signal to all follows the signals to the subscriber.
    let nobody = None::<&str>;
    bus.emit_signal(nobody, PATH, NAME, "Marker", &()).unwrap();
    assert_eq!(member(&overheard.recv_timeout(PATIENCE).unwrap()), "Marker");
}

#[test]
fn subscribers_that_leave_at_once_leave_nothing_behind() {
    let Some(world) = World::start("leaving") else {
        return;
    };
    // They leave at different moments of the request, and are many more than there may be.
    for step in 0..200 {
        let bus = world.connect();
        let message = Message::method_call(PATH, "Subscribe").unwrap();
        let message = message.destination(NAME).unwrap();
        let message = message.interface(NAME).unwrap().build(&()).unwrap();
        bus.send(&message).unwrap();
        std::thread::sleep(Duration::from_micros(step * 20));
        bus.close().unwrap();
    }
    let bus = world.connect();
    let begun = Instant::now();
    // The requests of the connections that have left are handled first.
    while let Err(error) = world.call::<_, ()>(&bus, "Subscribe", &()) {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn warnings_of_low_memory_are_sent_to_all() {
    let Some(world) = World::start("low memory") else {
        return;
    };
    let bus = world.connect();
    let heard = signals(&bus);
    let rule = zbus::MatchRule::builder()
        .sender(MONITOR)
        .unwrap()
        .member("LowMemoryWarning")
        .unwrap()
        .build();
    let names = zbus::blocking::fdo::DBusProxy::new(&bus).unwrap();
    names.add_match_rule(rule).unwrap();
    for level in [Level::Swap, Level::Plenty, Level::Crowded, Level::Kill] {
        world.tell(1, |uid| uid == 0, &memory(level));
    }
    let mut levels = Vec::new();
    while levels.len() < 3 {
        let message = heard.recv_timeout(PATIENCE).unwrap();
        assert_eq!(member(&message), "LowMemoryWarning");
        levels.push(message.body().deserialize::<u8>().unwrap());
    }
    assert_eq!(levels, [50, 100, 255]);
}

#[test]
fn another_memory_monitor_is_left_alone() {
    let Some(mut world) = World::without_service("another monitor") else {
        return;
    };
    let bus = world.connect();
    bus.request_name(MONITOR).unwrap();
    world.start_service();
    let names = zbus::blocking::fdo::DBusProxy::new(&bus).unwrap();
    let owner = || names.get_name_owner(MONITOR.try_into().unwrap());
    let own = bus.unique_name().unwrap().as_str();
    assert_eq!(owner().unwrap().as_str(), own);
    // No connection to limelightd waits for notices.
    assert!(!world
        .asked(0)
        .contains(&Request::Listen { foreground: false }));
    bus.release_name(MONITOR).unwrap();
    assert!(owner().is_err());
}

#[test]
fn another_memory_monitor_takes_over() {
    let Some(world) = World::start("takeover") else {
        return;
    };
    let bus = world.connect();
    let names = zbus::blocking::fdo::DBusProxy::new(&bus).unwrap();
    let flags = zbus::fdo::RequestNameFlags::ReplaceExisting.into();
    let reply = names.request_name(MONITOR.try_into().unwrap(), flags);
    assert_eq!(reply.unwrap(), zbus::fdo::RequestNameReply::PrimaryOwner);
    // limelight-bus still serves its own interface.
    let apps: Vec<Properties> = world.call(&bus, "ListApps", &()).unwrap();
    assert_eq!(apps.len(), 1);
}

fn example(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("examples").join(name)
}

/// The pages of the documentation show the examples without their first line, the licence.
#[test]
fn page_shows_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/integrator/dbus.md")).unwrap();
    let examples = [
        ("indicator.py", 2),
        ("watch.rs", 1),
        ("gnome-shell/extension.js", 1),
        ("plasma-tray.py", 1),
    ];
    for (name, skipped) in examples {
        let text = std::fs::read_to_string(example(name)).unwrap();
        let shown = text.splitn(skipped + 1, '\n').last().unwrap();
        assert!(page.contains(shown), "{name}");
    }
}

#[test]
fn indicator_shows_and_toggles_the_pause() {
    let Some(world) = World::start("indicator") else {
        return;
    };
    for program in ["python3", "busctl"] {
        if Command::new(program).arg("--version").output().is_err() {
            return eprintln!("SKIPPED: indicator: no {program}");
        }
    }
    let run = |word: &str| {
        let out = Command::new("python3")
            .arg(example("indicator.py"))
            .arg(word)
            .env("DBUS_SYSTEM_BUS_ADDRESS", &world.address)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout).trim().to_owned()
    };
    let shown = run("");
    if own_uid() != 0 {
        assert_eq!(shown, "no app");
        return eprintln!("SKIPPED: indicator: a pause requires root");
    }
    assert_eq!(shown, "viewer");
    assert_eq!(run("toggle"), "paused");
    assert_eq!(run(""), "paused, 600 s left");
    assert_eq!(run("toggle"), "resumed");
    assert_eq!(run(""), "viewer");
}

#[test]
fn watcher_prints_what_happens() {
    let Some(world) = World::start("watch") else {
        return;
    };
    // cargo builds the examples of a package before it runs the package's tests.
    let program = Path::new(env!("CARGO_BIN_EXE_limelight-bus"));
    let program = program.with_file_name("examples").join("watch");
    let child = Command::new(program)
        .env("DBUS_SYSTEM_BUS_ADDRESS", &world.address)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Running(child.unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().starts_with("foreground: "));
    world.tell(1, |uid| uid == own_uid(), &closed());
    let line = next();
    assert!(
        line.starts_with("closed: ") && line.contains("memory was short"),
        "{line}"
    );
}

#[test]
fn value_of_a_property_is_readable() {
    let Some(world) = World::start("property") else {
        return;
    };
    let bus = world.connect();
    let proxy = zbus::blocking::Proxy::new(&bus, NAME, PATH, NAME).unwrap();
    let version: Value = proxy.get_property::<OwnedValue>("Version").unwrap().into();
    assert_eq!(version, Value::from(env!("CARGO_PKG_VERSION")));
}
