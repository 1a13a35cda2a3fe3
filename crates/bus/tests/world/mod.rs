// SPDX-License-Identifier: GPL-2.0-or-later
//! A bus of its own, a simulated limelightd, and the real limelight-bus.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limelight_proto::{
    AppReport, AppStatus, Class, DeviceStatus, ErrorCode, KernelWindows, Level, MemoryStatus,
    MemoryThen, Notice, Pause, Request, Response, Role, Stalls, State, Status, TopmostStatus,
    WindowStatus, WindowTallies, PROTOCOL,
};
use zbus::blocking::{connection, Connection, Proxy};
use zbus::zvariant::DynamicDeserialize;

/// Only a hang takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const NAME: &str = "org.limelight.Limelight1";
pub const PATH: &str = "/org/limelight/Limelight1";

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed on drop.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the simulated limelightd was asked, each with the user of the connection.
#[derive(Default)]
pub struct Daemon {
    pub asked: Vec<(u32, Request)>,
    pub paused: Option<Pause>,
    listeners: Vec<(u32, UnixStream)>,
}

pub fn viewer() -> AppStatus {
    AppStatus {
        name: "viewer".into(),
        pid: Some(4242),
        cgroup: Some("/app-viewer.scope".into()),
        own_cgroup: true,
    }
}

fn status(uid: u32, paused: Option<Pause>) -> Status {
    let idle = || (State::Idle, String::new());
    let ((state, detail), (kernel, said)) = (idle(), idle());
    // Only root sees the foreground app.
    let topmost = (uid == 0).then(|| TopmostStatus {
        app: viewer(),
        source: "sway".into(),
        for_ms: 0,
        members: 1,
        demoted_in_ms: None,
    });
    Status {
        version: "0".into(),
        protocol: PROTOCOL,
        pid: 1,
        uptime_ms: 0,
        dry_run: false,
        paused,
        topmost,
        previous: None,
        sources: Vec::new(),
        agents: Vec::new(),
        mechanisms: Vec::new(),
        window: WindowStatus {
            state,
            detail,
            open: None,
            sources: Vec::new(),
            kernel: KernelWindows {
                state: kernel,
                detail: said,
                opened: 0,
                closed: 0,
                failed: 0,
            },
            tallies: WindowTallies::default(),
            topmost: None,
        },
        memory: MemoryStatus::default(),
        stalls: Stalls::default(),
        device: DeviceStatus::Unused { why: "-".into() },
        changes: Vec::new(),
        hidden: None,
    }
}

fn report() -> AppReport {
    AppReport {
        app: viewer(),
        uid: 1000,
        role: Role::Topmost,
        class: Class::Keep,
        why: "of category Viewer".into(),
        processes: 1,
        resident: 7,
        desktop_id: Some("org.example.Viewer".into()),
        ..AppReport::default()
    }
}

impl Daemon {
    fn answer(&mut self, uid: u32, request: Request) -> Response {
        self.asked.push((uid, request.clone()));
        let ok = |message: &str| Response::Ok {
            message: message.to_owned(),
        };
        let change = matches!(
            request,
            Request::Pause { .. } | Request::Resume | Request::Class { .. }
        );
        if change && uid != 0 {
            return Response::Error {
                code: ErrorCode::NotAllowed,
                message: "you may not".into(),
                cure: "ask root".into(),
                retry_ms: None,
            };
        }
        match request {
            Request::Status => Response::Status(Box::new(status(uid, self.paused))),
            Request::Apps { .. } => Response::Apps {
                apps: vec![report()],
                hidden: None,
            },
            Request::Pause { for_ms } => {
                self.paused = Some(Pause {
                    for_ms: 0,
                    left_ms: for_ms,
                });
                ok("paused")
            }
            Request::Resume => {
                self.paused = None;
                ok("resumed")
            }
            _ => ok("done"),
        }
    }

    /// Sends a notice to all listeners of these users.
    fn tell(&mut self, to: impl Fn(u32) -> bool, notice: &Notice) {
        let answer = Response::Notice(notice.clone());
        let line = serde_json::to_string(&answer).unwrap() + "\n";
        let told = self.listeners.iter_mut().filter(|(uid, _)| to(*uid));
        told.for_each(|(_, stream)| _ = stream.write_all(line.as_bytes()));
    }
}

fn serve(stream: UnixStream, daemon: &Mutex<Daemon>) {
    let mut uid = 0;
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let Ok(line) = line else { return };
        let request: Request = serde_json::from_str(&line).unwrap();
        let mut daemon = daemon.lock().unwrap();
        if let Request::Become { uid: user, .. } = request {
            uid = user;
        }
        if let Request::Listen { .. } = request {
            daemon.listeners.push((uid, stream.try_clone().unwrap()));
        }
        let answer = daemon.answer(uid, request);
        let line = serde_json::to_string(&answer).unwrap() + "\n";
        if (&stream).write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

/// A bus with the real limelight-bus and a simulated limelightd.
pub struct World {
    pub address: String,
    pub daemon: Arc<Mutex<Daemon>>,
    socket: PathBuf,
    service: Option<Running>,
    _bus: Running,
    _directory: tempfile::TempDir,
}

impl World {
    /// `None`, with a message, if there is no dbus-daemon.
    pub fn start(test: &str) -> Option<World> {
        let mut world = World::without_service(test)?;
        world.start_service();
        Some(world)
    }

    /// Like [`World::start`], before limelight-bus was started.
    pub fn without_service(test: &str) -> Option<World> {
        let directory = tempfile::tempdir().unwrap();
        // Other users connect, too.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let path = directory.path().join("bus");
        let address = format!("unix:path={}", path.display());
        let configuration = directory.path().join("bus.conf");
        let text = format!(
            "<busconfig><type>session</type><listen>{address}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow user=\"*\"/><allow send_destination=\"*\"/>\
             <allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>"
        );
        std::fs::write(&configuration, text).unwrap();
        let bus = Command::new("dbus-daemon")
            .arg("--nofork")
            .arg(format!("--config-file={}", configuration.display()))
            .stdin(Stdio::null())
            .spawn();
        let bus = match bus {
            Ok(bus) => Running(bus),
            Err(error) => {
                eprintln!("SKIPPED: {test}: dbus-daemon: {error}");
                return None;
            }
        };
        // The socket exists before the bus listens.
        until("the bus", || UnixStream::connect(&path).is_ok());
        let socket = directory.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = Arc::new(Mutex::new(Daemon::default()));
        let served = Arc::clone(&daemon);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), daemon) = (stream, Arc::clone(&served)) else {
                    return;
                };
                std::thread::spawn(move || serve(stream, &daemon));
            }
        });
        Some(World {
            address,
            daemon,
            socket,
            service: None,
            _bus: bus,
            _directory: directory,
        })
    }

    /// Starts limelight-bus, and waits until it is on the bus.
    pub fn start_service(&mut self) {
        let service = Command::new(env!("CARGO_BIN_EXE_limelight-bus"))
            .arg("--socket")
            .arg(&self.socket)
            .env("DBUS_SYSTEM_BUS_ADDRESS", &self.address)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.service = Some(Running(service));
        let bus = self.connect();
        let names = zbus::blocking::fdo::DBusProxy::new(&bus).unwrap();
        until("limelight-bus", || {
            names.name_has_owner(NAME.try_into().unwrap()).unwrap()
        });
    }

    /// Ends limelight-bus.
    pub fn stop_service(&mut self) {
        self.service = None;
    }

    pub fn connect(&self) -> Connection {
        let builder = connection::Builder::address(self.address.as_str()).unwrap();
        builder.build().unwrap()
    }

    /// Calls a method of the interface.
    pub fn call<A, R>(&self, bus: &Connection, method: &str, arguments: &A) -> zbus::Result<R>
    where
        A: zbus::export::serde::Serialize + zbus::zvariant::DynamicType,
        R: for<'d> DynamicDeserialize<'d>,
    {
        Proxy::new(bus, NAME, PATH, NAME)?.call(method, arguments)
    }

    /// Calls a method as another user; the text that dbus-send prints.
    pub fn call_as(&self, uid: u32, arguments: &[&str]) -> Result<String, String> {
        use std::os::unix::process::CommandExt;
        let out = Command::new("dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--print-reply", "--dest=org.limelight.Limelight1", PATH])
            .args(arguments)
            .uid(uid)
            .gid(uid)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match out.status.success() {
            true => Ok(text(&out.stdout)),
            false => Err(text(&out.stderr)),
        }
    }

    /// Sends a notice to the listeners of these users, once there are `count` of them.
    pub fn tell(&self, count: usize, to: impl Fn(u32) -> bool, notice: &Notice) {
        until("the listeners", || {
            let daemon = self.daemon.lock().unwrap();
            let there = daemon.listeners.iter().filter(|(uid, _)| to(*uid));
            there.count() >= count
        });
        self.daemon.lock().unwrap().tell(to, notice);
    }

    /// The requests of this user that are not about becoming a user.
    pub fn asked(&self, uid: u32) -> Vec<Request> {
        let daemon = self.daemon.lock().unwrap();
        let asked = daemon
            .asked
            .iter()
            .filter(|(user, request)| *user == uid && !matches!(request, Request::Become { .. }));
        asked.map(|(_, request)| request.clone()).collect()
    }
}

pub fn memory(level: Level) -> Notice {
    Notice::Memory {
        level,
        memory: MemoryThen::default(),
        next: None,
    }
}
