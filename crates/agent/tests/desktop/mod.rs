// SPDX-License-Identifier: GPL-2.0-or-later
//! A real X server and real window managers for tests: Xvfb, openbox and i3.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt as _, EventMask, InputFocus, Window,
};
use x11rb::rust_connection::RustConnection;

/// Only a hang takes this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A process that is killed on drop.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Running(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{command:?}: {error}")),
        )
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn first_line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An X server with its own display, and the test's connection to it.
pub struct Server {
    pub process: Running,
    pub display: String,
    pub conn: RustConnection,
    pub root: Window,
}

impl Server {
    pub fn start() -> Self {
        let mut command = Command::new("Xvfb");
        // Xvfb chooses the first free display, and prints its number once it accepts clients.
        command.args([
            "-displayfd",
            "1",
            "-screen",
            "0",
            "320x240x24",
            "-nolisten",
            "tcp",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running::start(&mut command);
        let display = format!(":{}", process.first_line());
        let (conn, screen) = RustConnection::connect(Some(&display)).unwrap();
        let root = conn.setup().roots[screen].root;
        Server {
            process,
            display,
            conn,
            root,
        }
    }

    /// Starts openbox and waits until it has announced itself.
    pub fn start_openbox(&self) -> Running {
        let mut command = Command::new("openbox");
        command.arg("--sm-disable").env("DISPLAY", &self.display);
        let openbox = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let supported = self.atom("_NET_SUPPORTED");
        let check = self.atom("_NET_SUPPORTING_WM_CHECK");
        wait_for("openbox to announce itself", || {
            self.has_property(self.root, supported) && self.has_property(self.root, check)
        });
        openbox
    }

    /// Starts i3 and waits until it has announced itself.
    pub fn start_i3(&self, session: &Session) -> Running {
        let configuration = session.dir.path().join("i3.conf");
        std::fs::write(&configuration, "# i3 config file (v4)\n").unwrap();
        let mut command = Command::new("i3");
        command.arg("-c").arg(configuration);
        command
            .env("DISPLAY", &self.display)
            .env("XDG_RUNTIME_DIR", session.dir.path());
        let i3 = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let socket = self.atom("I3_SOCKET_PATH");
        wait_for("i3 to announce itself", || {
            self.has_property(self.root, socket)
        });
        i3
    }

    pub fn atom(&self, name: &str) -> u32 {
        self.conn
            .intern_atom(false, name.as_bytes())
            .unwrap()
            .reply()
            .unwrap()
            .atom
    }

    pub fn has_property(&self, window: Window, name: u32) -> bool {
        let reply = self
            .conn
            .get_property(false, window, name, AtomEnum::ANY, 0, 1)
            .unwrap();
        reply.reply().is_ok_and(|reply| reply.type_ != x11rb::NONE)
    }

    /// Starts this test program again with the argument `client`: it shows a window and prints its
    /// id.
    pub fn open_client(&self) -> Client {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg("client")
            .env("DISPLAY", &self.display)
            .stdout(Stdio::piped());
        let mut process = Running::start(&mut command);
        let window = process.first_line().parse().expect("the client's window");
        Client { process, window }
    }

    /// Asks the window manager to activate a window, as a pager does.
    pub fn activate(&self, window: Window) {
        let kind = self.atom("_NET_ACTIVE_WINDOW");
        let event = ClientMessageEvent::new(32, window, kind, [2, x11rb::CURRENT_TIME, 0, 0, 0]);
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        self.conn.send_event(false, self.root, mask, event).unwrap();
        self.conn.flush().unwrap();
    }

    pub fn move_pointer(&self, x: i16, y: i16) {
        let moved = self
            .conn
            .warp_pointer(x11rb::NONE, self.root, 0, 0, 0, 0, x, y);
        moved.unwrap().check().unwrap();
    }

    pub fn set_focus(&self, window: Window) {
        self.conn
            .set_input_focus(InputFocus::POINTER_ROOT, window, x11rb::CURRENT_TIME)
            .unwrap()
            .check()
            .unwrap();
    }
}

/// A process with one mapped window.
pub struct Client {
    pub process: Running,
    pub window: Window,
}

impl Client {
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }
}

/// A directory with the control socket of a simulated daemon.
pub struct Session {
    pub dir: tempfile::TempDir,
}

impl Session {
    pub fn new() -> Self {
        Session {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    pub fn start_agent(&self, server: &Server) -> Running {
        self.start_agent_with(server, &[])
    }

    pub fn start_agent_with(&self, server: &Server, arguments: &[&str]) -> Running {
        let mut command = agent();
        command
            .args(arguments)
            .arg("--display")
            .arg(&server.display)
            .arg("--socket")
            .arg(self.socket());
        Running::start(&mut command)
    }
}

pub fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limelight-agent"));
    for name in ["DISPLAY", "WAYLAND_DISPLAY", "SWAYSOCK", "I3SOCK"] {
        command.env_remove(name);
    }
    command
}

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
