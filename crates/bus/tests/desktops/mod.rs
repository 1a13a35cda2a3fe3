// SPDX-License-Identifier: GPL-2.0-or-later
//! The examples for GNOME Shell and Plasma, each run without its desktop: the extension by gjs with
//! a replacement of the Shell's modules, the tray icon by Qt with a simulated Plasma.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Mutex};

use limelight_proto::{HistoryEntry, MemoryAction, Notice, Request};
use zbus::blocking::{connection, Connection, Proxy};

use super::world::{until, Running, World, PATIENCE};
use super::{closed, example, is_pause, is_root, own_uid, USER};

/// Stands for the modules of GNOME Shell, of which gjs has none.
const SHELL: &str = include_str!("shell.js");
const MAIN: &str = include_str!("main.js");

/// The lines that a program prints.
fn lines(out: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Whether a program can be run; says so if not.
fn has(test: &str, program: &str, arguments: &[&str]) -> bool {
    let run = Command::new(program).args(arguments).output();
    let has = run.is_ok_and(|run| run.status.success());
    if !has {
        eprintln!("SKIPPED: {test}: {program} {arguments:?} fails; see scripts/deps.sh");
    }
    has
}

/// limelightd's report that it was paused or resumed.
fn pause(action: MemoryAction) -> Notice {
    match closed() {
        Notice::Done(entry) => Notice::Done(HistoryEntry { action, ..entry }),
        other => other,
    }
}

/// The extension, run by gjs.
struct Extension {
    commands: ChildStdin,
    shown: Receiver<String>,
    _process: Running,
    _directory: tempfile::TempDir,
}

impl Extension {
    /// Runs the extension for this user. The Shell's modules are replaced.
    fn start(world: &World, uid: u32) -> Extension {
        let directory = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let read = |name: &str| std::fs::read_to_string(example("gnome-shell").join(name)).unwrap();
        let replaced = |line: &str| {
            let shell = ["gi://Clutter", "gi://St", "resource:///org/gnome/shell/"];
            match shell.iter().any(|module| line.contains(module)) {
                true => format!(
                    "{} from './shell.js';\n",
                    line.split(" from ").next().unwrap()
                ),
                false => format!("{line}\n"),
            }
        };
        let extension: String = read("extension.js").lines().map(replaced).collect();
        let files = [
            ("extension.js", extension),
            ("metadata.json", read("metadata.json")),
            ("shell.js", SHELL.to_owned()),
            ("main.js", MAIN.to_owned()),
        ];
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let mut command = Command::new("gjs");
        command
            .arg("-m")
            .arg(directory.path().join("main.js"))
            .env("DBUS_SYSTEM_BUS_ADDRESS", &world.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if uid != own_uid() {
            command.uid(uid).gid(uid);
        }
        let mut process = command.spawn().unwrap();
        Extension {
            commands: process.stdin.take().unwrap(),
            shown: lines(process.stdout.take().unwrap()),
            _process: Running(process),
            _directory: directory,
        }
    }

    /// Waits for the next things that the user sees.
    fn shows(&self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.shown.recv_timeout(PATIENCE).unwrap(), *expected);
        }
    }

    fn command(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }
}

const ADDED: [&str; 2] = ["button Limelight", "added limelight@limelight.invalid"];

#[test]
fn gnome_shell_extension_shows_the_app_and_pauses() {
    let test = "GNOME Shell extension";
    if !is_root(test) || !has(test, "gjs", &["--version"]) {
        return;
    }
    let Some(mut world) = World::start(test) else {
        return;
    };
    let root = |uid: u32| uid == 0;
    let mut extension = Extension::start(&world, own_uid());
    extension.shows(&ADDED);
    extension.shows(&["label viewer", "switch false"]);
    extension.command("click");
    until("a pause", || world.asked(0).iter().any(is_pause));
    world.tell(1, root, &pause(MemoryAction::Pause));
    extension.shows(&["switch true"]);
    extension.command("click");
    until("the end", || world.asked(0).contains(&Request::Resume));
    world.tell(1, root, &pause(MemoryAction::Resume));
    extension.shows(&["switch false"]);
    world.tell(1, root, &Notice::Foreground { app: None });
    extension.shows(&["label "]);
    // It subscribes again to a new limelight-bus.
    world.stop_service();
    extension.shows(&["label "]);
    world.start_service();
    extension.shows(&["label viewer", "switch false"]);
    extension.command("disable");
    extension.shows(&["destroyed"]);
}

#[test]
fn gnome_shell_extension_takes_a_refused_pause_back() {
    let test = "GNOME Shell extension, refused";
    if !has(test, "gjs", &["--version"]) {
        return;
    }
    let Some(world) = World::start(test) else {
        return;
    };
    let user = match own_uid() {
        0 => USER,
        own => own,
    };
    let mut extension = Extension::start(&world, user);
    extension.shows(&ADDED);
    extension.shows(&["label ", "switch false"]);
    extension.command("click");
    extension.shows(&["switch false"]);
    assert!(world.asked(user).iter().any(is_pause));
}

/// A simulated Plasma: the tray in which programs register their icons.
struct Tray {
    items: Arc<Mutex<Vec<String>>>,
}

#[zbus::interface(name = "org.kde.StatusNotifierWatcher")]
impl Tray {
    fn register_status_notifier_item(&self, item: String) {
        self.items.lock().unwrap().push(item);
    }

    #[zbus(property)]
    fn is_status_notifier_host_registered(&self) -> bool {
        true
    }

    #[zbus(property)]
    fn protocol_version(&self) -> i32 {
        0
    }
}

/// Makes a theme with empty icons of these names. Qt knows no icon that it does not find.
fn icon_theme(data: &Path, names: &[&str]) {
    let theme = data.join("icons/hicolor");
    std::fs::create_dir_all(theme.join("16x16")).unwrap();
    let index = "[Icon Theme]\nName=Hicolor\nComment=\nDirectories=16x16\n[16x16]\nSize=16\n";
    std::fs::write(theme.join("index.theme"), index).unwrap();
    for name in names {
        std::fs::write(theme.join(format!("16x16/{name}.png")), []).unwrap();
    }
}

/// An icon's tooltip and the name of its picture.
fn icon(bus: &Connection, item: &str) -> Option<(String, String)> {
    let item = Proxy::new(
        bus,
        item,
        "/StatusNotifierItem",
        "org.kde.StatusNotifierItem",
    )
    .ok()?;
    type Picture = (i32, i32, Vec<u8>);
    let tip: (String, Vec<Picture>, String, String) = item.get_property("ToolTip").ok()?;
    Some((tip.2, item.get_property("IconName").ok()?))
}

#[test]
fn plasma_tray_icon_names_the_app_and_pauses() {
    let test = "Plasma's tray";
    let has_qt = || has(test, "/usr/bin/python3", &["-c", "import PyQt6.QtWidgets"]);
    if !is_root(test) || !has_qt() || !has(test, "Xvfb", &["-help"]) {
        return;
    }
    let Some(world) = World::start(test) else {
        return;
    };
    let items = Arc::new(Mutex::new(Vec::new()));
    let tray = Tray {
        items: Arc::clone(&items),
    };
    let bus = connection::Builder::address(world.address.as_str())
        .and_then(|builder| builder.serve_at("/StatusNotifierWatcher", tray))
        .and_then(|builder| builder.name("org.kde.StatusNotifierWatcher"))
        .and_then(connection::Builder::build)
        .unwrap();
    let mut server = Command::new("Xvfb")
        .args(["-displayfd", "1", "-nolisten", "tcp"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let display = lines(server.stdout.take().unwrap()).recv_timeout(PATIENCE);
    let _server = Running(server);
    let data = tempfile::tempdir().unwrap();
    icon_theme(
        data.path(),
        &["media-playback-start", "media-playback-pause"],
    );
    let program = Command::new("/usr/bin/python3")
        .arg(example("plasma-tray.py"))
        .env("DISPLAY", format!(":{}", display.unwrap()))
        .env("QT_QPA_PLATFORM", "xcb")
        .env("XDG_DATA_DIRS", data.path())
        .env("DBUS_SYSTEM_BUS_ADDRESS", &world.address)
        .env("DBUS_SESSION_BUS_ADDRESS", &world.address)
        .spawn()
        .unwrap();
    let _program = Running(program);
    until("the icon", || !items.lock().unwrap().is_empty());
    let item = items.lock().unwrap()[0].clone();
    let shows = |tip: &str, name: &str| {
        let expected = Some((tip.to_owned(), format!("media-playback-{name}")));
        until(name, || icon(&bus, &item) == expected);
    };
    let click = || {
        let item = Proxy::new(
            &bus,
            item.as_str(),
            "/StatusNotifierItem",
            "org.kde.StatusNotifierItem",
        );
        item.unwrap()
            .call_method("Activate", &(0i32, 0i32))
            .unwrap();
    };
    shows("viewer", "start");
    click();
    until("a pause", || world.asked(0).iter().any(is_pause));
    world.tell(1, |uid| uid == 0, &pause(MemoryAction::Pause));
    shows("viewer", "pause");
    click();
    until("the end", || world.asked(0).contains(&Request::Resume));
    world.tell(1, |uid| uid == 0, &pause(MemoryAction::Resume));
    shows("viewer", "start");
    world.tell(1, |uid| uid == 0, &Notice::Foreground { app: None });
    shows("no app", "start");
}
