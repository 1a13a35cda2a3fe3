// SPDX-License-Identifier: GPL-2.0-or-later
//! A bus with a simulated notification server, for tests.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use limelight_proto::{AppReport, AppStatus, Level, MemoryThen, Notice, Role};
use zbus::blocking::{connection, Connection};
use zbus::zvariant::OwnedValue;

use super::{Notifier, Question};

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn app(name: &str) -> AppStatus {
    AppStatus {
        name: name.to_owned(),
        pid: Some(7),
        cgroup: None,
        own_cgroup: true,
    }
}

pub fn running(name: &str, pid: i32) -> AppReport {
    AppReport {
        app: AppStatus {
            pid: Some(pid),
            ..app(name)
        },
        uid: rustix::process::getuid().as_raw(),
        role: Role::Topmost,
        processes: 1,
        ..AppReport::default()
    }
}

pub fn memory(level: Level, next: Option<AppStatus>) -> Notice {
    Notice::Memory {
        level,
        memory: MemoryThen::default(),
        next,
    }
}

/// The next question that follows from a button.
pub fn question(notifier: &mut Notifier) -> Question {
    let mut questions = Vec::new();
    until("a question", || {
        questions = notifier.turn();
        !questions.is_empty()
    });
    assert_eq!(questions.len(), 1);
    questions.remove(0)
}

/// A bus of its own.
pub struct Desktop {
    daemon: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Desktop {
    /// `None`, with a message, if there is no dbus-daemon.
    pub fn start(test: &str) -> Option<Desktop> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let address = format!("unix:path={}", socket.display());
        let configuration = dir.path().join("bus.conf");
        // The session's configuration without its services, so that none is started.
        let text = format!(
            "<busconfig><type>session</type><listen>{address}</listen>\
             <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
             <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>"
        );
        std::fs::write(&configuration, text).unwrap();
        let daemon = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg(format!("--config-file={}", configuration.display()))
            .stdin(Stdio::null())
            .spawn();
        let daemon = match daemon {
            Ok(daemon) => daemon,
            Err(error) => {
                eprintln!("SKIPPED: {test}: dbus-daemon: {error}");
                return None;
            }
        };
        let desktop = Desktop {
            daemon,
            address,
            _dir: dir,
        };
        // The socket exists before the bus listens.
        until("the bus", || UnixStream::connect(&socket).is_ok());
        Some(desktop)
    }

    pub fn notifier(&self) -> Notifier {
        Notifier::on_bus(Some(self.address.clone())).unwrap()
    }

    pub fn stop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A notification that the server was asked to show.
#[derive(Debug)]
pub struct Shown {
    pub id: u32,
    pub title: String,
    pub body: String,
    pub actions: Vec<String>,
}

/// A lock that stops the server's answers.
type Gate = Arc<(Mutex<bool>, Condvar)>;

struct Server {
    capabilities: Vec<String>,
    shown: Mutex<(u32, Sender<Shown>)>,
    gate: Gate,
}

#[zbus::interface(name = "org.freedesktop.Notifications")]
impl Server {
    fn get_capabilities(&self) -> Vec<String> {
        self.capabilities.clone()
    }

    fn get_server_information(&self) -> (&str, &str, &str, &str) {
        ("test", "nobody", "1.0", "1.2")
    }

    #[allow(clippy::too_many_arguments)]
    fn notify(
        &self,
        app_name: &str,
        replaces_id: u32,
        _app_icon: &str,
        summary: String,
        body: String,
        actions: Vec<String>,
        hints: HashMap<String, OwnedValue>,
        _expire_timeout: i32,
    ) -> u32 {
        let (hangs, changed) = &*self.gate;
        let hangs = hangs.lock().unwrap();
        drop(changed.wait_while(hangs, |hangs| *hangs).unwrap());
        assert_eq!((app_name, replaces_id), ("Limelight", 0));
        assert!(hints.contains_key("urgency"));
        let mut shown = self.shown.lock().unwrap();
        shown.0 += 1;
        let (id, sender) = (shown.0, &shown.1);
        let _ = sender.send(Shown {
            id,
            title: summary,
            body,
            actions,
        });
        id
    }
}

/// A simulated notification server. It leaves the bus on drop.
pub struct TestServer {
    bus: Connection,
    shown: Receiver<Shown>,
    gate: Gate,
}

impl TestServer {
    pub fn start(desktop: &Desktop, capabilities: &[&str]) -> TestServer {
        let (sender, shown) = channel();
        let gate = Gate::default();
        let server = Server {
            capabilities: capabilities.iter().map(ToString::to_string).collect(),
            shown: Mutex::new((0, sender)),
            gate: Arc::clone(&gate),
        };
        let bus = connection::Builder::address(desktop.address.as_str())
            .and_then(|builder| builder.serve_at("/org/freedesktop/Notifications", server))
            .and_then(|builder| builder.name("org.freedesktop.Notifications"))
            .and_then(connection::Builder::build)
            .unwrap();
        TestServer { bus, shown, gate }
    }

    /// The next notification.
    pub fn next(&self) -> Shown {
        self.shown.recv_timeout(PATIENCE).expect("a notification")
    }

    /// Whether no further notification has arrived.
    pub fn is_silent(&self) -> bool {
        self.shown.try_recv().is_err()
    }

    /// Reports that the user pressed a button.
    pub fn press(&self, id: u32, action: &str) {
        let path = "/org/freedesktop/Notifications";
        let interface = "org.freedesktop.Notifications";
        self.bus
            .emit_signal(
                None::<&str>,
                path,
                interface,
                "ActionInvoked",
                &(id, action),
            )
            .unwrap();
    }

    /// Answers no call until [`TestServer::resume`].
    pub fn hang(&self) {
        *self.gate.0.lock().unwrap() = true;
    }

    pub fn resume(&self) {
        *self.gate.0.lock().unwrap() = false;
        self.gate.1.notify_all();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.resume();
        let _ = self.bus.clone().close();
    }
}
