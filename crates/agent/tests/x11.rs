// SPDX-License-Identifier: GPL-2.0-or-later
//! The agent against a real X server and a real window manager: Xvfb and openbox. The daemon is
//! played by the test; the X clients are further processes of this program.
//!
//! Without Xvfb or openbox everything is skipped, and says so.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use limelight_core::control::{FocusTarget, Request, Response};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, InputFocus,
    Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("client") {
        client();
    }
    for program in ["Xvfb", "openbox"] {
        if !is_installed(program) {
            eprintln!("SKIPPED: all X11 tests of limelight-agent, because {program} is missing;");
            eprintln!("SKIPPED: install it with: apt-get install xvfb openbox");
            return ExitCode::SUCCESS;
        }
    }
    let tests: [(&str, fn()); 9] = [
        (
            "the_window_manager_tells_the_focus",
            the_window_manager_tells_the_focus,
        ),
        (
            "the_server_tells_the_focus_without_one",
            the_server_tells_the_focus_without_one,
        ),
        (
            "the_focus_may_be_on_the_pointer",
            the_focus_may_be_on_the_pointer,
        ),
        (
            "a_window_manager_may_come_and_go",
            a_window_manager_may_come_and_go,
        ),
        (
            "a_restarted_daemon_is_told_again",
            a_restarted_daemon_is_told_again,
        ),
        ("once_prints_what_is_in_front", once_prints_what_is_in_front),
        (
            "no_display_has_its_own_exit_code",
            no_display_has_its_own_exit_code,
        ),
        ("the_manual_page_is_written", the_manual_page_is_written),
        (
            "a_display_that_dies_ends_the_claim",
            a_display_that_dies_ends_the_claim,
        ),
    ];
    for (name, test) in tests {
        println!("test {name} ...");
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A process that ends with its owner.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Running(
            command
                .spawn()
                .unwrap_or_else(|error| panic!("{command:?}: {error}")),
        )
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn first_line(&mut self) -> String {
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

/// An X server on a display of its own, and the test's own connection to it.
struct Server {
    process: Running,
    display: String,
    conn: RustConnection,
    root: Window,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new("Xvfb");
        // It takes the first free display itself, and prints its number once it serves.
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
    fn start_openbox(&self) -> Running {
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

    fn atom(&self, name: &str) -> u32 {
        self.conn
            .intern_atom(false, name.as_bytes())
            .unwrap()
            .reply()
            .unwrap()
            .atom
    }

    fn has_property(&self, window: Window, name: u32) -> bool {
        let reply = self
            .conn
            .get_property(false, window, name, AtomEnum::ANY, 0, 1)
            .unwrap();
        reply.reply().is_ok_and(|reply| reply.type_ != x11rb::NONE)
    }

    fn open_client(&self) -> Client {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .arg("client")
            .env("DISPLAY", &self.display)
            .stdout(Stdio::piped());
        let mut process = Running::start(&mut command);
        let window = process.first_line().parse().expect("the client's window");
        Client { process, window }
    }

    /// Asks the window manager to bring a window to the front, as a pager does.
    fn activate(&self, window: Window) {
        let kind = self.atom("_NET_ACTIVE_WINDOW");
        let event = ClientMessageEvent::new(32, window, kind, [2, x11rb::CURRENT_TIME, 0, 0, 0]);
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        self.conn.send_event(false, self.root, mask, event).unwrap();
        self.conn.flush().unwrap();
    }

    fn move_pointer(&self, x: i16, y: i16) {
        let moved = self
            .conn
            .warp_pointer(x11rb::NONE, self.root, 0, 0, 0, 0, x, y);
        moved.unwrap().check().unwrap();
    }

    fn set_focus(&self, window: Window) {
        self.conn
            .set_input_focus(InputFocus::POINTER_ROOT, window, x11rb::CURRENT_TIME)
            .unwrap()
            .check()
            .unwrap();
    }
}

/// A process with one mapped window.
struct Client {
    process: Running,
    window: Window,
}

impl Client {
    fn pid(&self) -> i32 {
        self.process.pid()
    }
}

/// What the further processes do: show a window, print its number, and wait to be killed.
fn client() -> ! {
    let (conn, screen) = RustConnection::connect(None).unwrap();
    let screen = &conn.setup().roots[screen];
    let window = conn.generate_id().unwrap();
    let events = CreateWindowAux::new()
        .event_mask(EventMask::STRUCTURE_NOTIFY)
        .background_pixel(screen.white_pixel);
    conn.create_window(
        x11rb::COPY_DEPTH_FROM_PARENT,
        window,
        screen.root,
        0,
        0,
        100,
        100,
        0,
        WindowClass::INPUT_OUTPUT,
        screen.root_visual,
        &events,
    )
    .unwrap();
    // A lie, which must not be believed: the server knows better.
    let lie = conn
        .intern_atom(false, b"_NET_WM_PID")
        .unwrap()
        .reply()
        .unwrap()
        .atom;
    conn.change_property32(
        x11rb::protocol::xproto::PropMode::REPLACE,
        window,
        lie,
        AtomEnum::CARDINAL,
        &[1],
    )
    .unwrap();
    // A window manager that is just starting may let the wish to be mapped fall: repeat it.
    let mut is_mapped = false;
    wait_for("the window to be mapped", || {
        conn.map_window(window).unwrap();
        conn.flush().unwrap();
        while let Some(event) = conn.poll_for_event().unwrap() {
            is_mapped |= matches!(event, x11rb::protocol::Event::MapNotify(_));
        }
        is_mapped
    });
    println!("{window}");
    std::io::stdout().flush().unwrap();
    // Ends with the server at the latest.
    while conn.wait_for_event().is_ok() {}
    std::process::exit(0)
}

/// A daemon that agrees to everything and passes on what it was told.
struct Daemon {
    claims: Receiver<FocusTarget>,
}

impl Daemon {
    /// Serves one connection. When that closes, the channel does.
    fn serve(socket: &Path) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (send, claims) = channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            drop(listener);
            let mut answers = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                let request = serde_json::from_str(&line).unwrap();
                let Request::Focus {
                    target,
                    source,
                    hold,
                } = request
                else {
                    panic!("unexpected {request:?}");
                };
                assert_eq!((source.as_str(), hold), ("x11", true));
                if send.send(target).is_err() {
                    // The test wants this daemon dead.
                    return;
                }
                let ok = Response::Ok {
                    message: "so be it".into(),
                };
                let ok = serde_json::to_string(&ok).unwrap() + "\n";
                if answers.write_all(ok.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Daemon { claims }
    }

    /// Waits until it is told this. Other claims before it are passed over: windows that open take
    /// the focus one after the other.
    fn expect(&self, wanted: FocusTarget) {
        self.expect_of(|| {}, wanted);
    }

    /// The same, repeating an action until it works: a window manager that is just starting lets
    /// requests fall.
    fn expect_of(&self, mut action: impl FnMut(), wanted: FocusTarget) {
        let deadline = Instant::now() + PATIENCE;
        let mut told = Vec::new();
        while Instant::now() < deadline {
            action();
            match self.claims.recv_timeout(Duration::from_millis(500)) {
                Ok(claim) if claim == wanted => return,
                Ok(claim) => told.push(claim),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        panic!("never told {wanted:?}, but {told:?}");
    }
}

/// A directory for the socket, and an agent on it.
struct Session {
    dir: tempfile::TempDir,
}

impl Session {
    fn new() -> Self {
        Session {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    fn start_agent(&self, server: &Server) -> Running {
        let mut command = agent();
        command
            .arg("--display")
            .arg(&server.display)
            .arg("--socket")
            .arg(self.socket());
        Running::start(&mut command)
    }
}

fn agent() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limelight-agent"));
    command.env_remove("DISPLAY");
    command
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn the_window_manager_tells_the_focus() {
    let server = Server::start();
    let _openbox = server.start_openbox();
    let session = Session::new();
    let daemon = Daemon::serve(&session.socket());
    let _agent = session.start_agent(&server);
    let (first, second) = (server.open_client(), server.open_client());
    for client in [&first, &second, &first, &second] {
        daemon.expect_of(
            || server.activate(client.window),
            FocusTarget::Pid(client.pid()),
        );
    }
    // With the app that is in front gone openbox goes back to the other one, then to none.
    drop(second);
    daemon.expect(FocusTarget::Pid(first.pid()));
    drop(first);
    daemon.expect(FocusTarget::None);
}

fn the_server_tells_the_focus_without_one() {
    let server = Server::start();
    let session = Session::new();
    let daemon = Daemon::serve(&session.socket());
    let before = server.open_client();
    let _agent = session.start_agent(&server);
    let after = server.open_client();
    for client in [&before, &after, &before] {
        server.set_focus(client.window);
        daemon.expect(FocusTarget::Pid(client.pid()));
    }
    server.move_pointer(50, 50);
    // The focus reverts to the pointer, which is over the window that is left.
    drop(before);
    daemon.expect(FocusTarget::Pid(after.pid()));
    server.set_focus(x11rb::NONE);
    daemon.expect(FocusTarget::None);
}

fn the_focus_may_be_on_the_pointer() {
    let server = Server::start();
    let session = Session::new();
    let daemon = Daemon::serve(&session.socket());
    let client = server.open_client();
    let _agent = session.start_agent(&server);
    server.set_focus(InputFocus::POINTER_ROOT.into());
    for _ in 0..2 {
        server.move_pointer(300, 200);
        daemon.expect(FocusTarget::None);
        server.move_pointer(50, 50);
        daemon.expect(FocusTarget::Pid(client.pid()));
    }
}

fn a_window_manager_may_come_and_go() {
    let server = Server::start();
    let session = Session::new();
    let daemon = Daemon::serve(&session.socket());
    let _agent = session.start_agent(&server);
    let (first, second) = (server.open_client(), server.open_client());
    server.set_focus(first.window);
    daemon.expect(FocusTarget::Pid(first.pid()));
    let openbox = server.start_openbox();
    for client in [&second, &first] {
        daemon.expect_of(
            || server.activate(client.window),
            FocusTarget::Pid(client.pid()),
        );
    }
    // Killed, so its properties stay behind and must not be believed.
    drop(openbox);
    for client in [&second, &first] {
        server.set_focus(client.window);
        daemon.expect(FocusTarget::Pid(client.pid()));
    }
}

fn a_restarted_daemon_is_told_again() {
    let server = Server::start();
    let session = Session::new();
    let client = server.open_client();
    server.set_focus(client.window);
    // The agent is first, the daemon comes later, ends, and comes again.
    let _agent = session.start_agent(&server);
    let daemon = Daemon::serve(&session.socket());
    daemon.expect(FocusTarget::Pid(client.pid()));
    drop(daemon);
    server.set_focus(x11rb::NONE);
    let daemon = Daemon::serve(&session.socket());
    daemon.expect(FocusTarget::None);
}

fn once_prints_what_is_in_front() {
    let server = Server::start();
    let _openbox = server.start_openbox();
    let once = || -> serde_json::Value {
        let out = agent()
            .arg("--once")
            .env("DISPLAY", &server.display)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let nothing = once();
    assert!(nothing["pid"].is_null(), "{nothing}");
    let client = server.open_client();
    let mut seen = nothing;
    wait_for("the window to be in front", || {
        server.activate(client.window);
        seen = once();
        seen["pid"] == client.pid()
    });
    assert_eq!(seen["focus_by"], "window-manager");
    assert_eq!(seen["pid_by"], "server");
    assert_eq!(seen["window"], format!("{:#x}", client.window));
}

fn no_display_has_its_own_exit_code() {
    let unset = agent().output().unwrap();
    assert_eq!(unset.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&unset.stderr).contains("$DISPLAY"),
        "{unset:?}"
    );
    let wrong = agent()
        .args(["--display", ":4000", "--once"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains(":4000"),
        "{wrong:?}"
    );
}

fn the_manual_page_is_written() {
    let dir = tempfile::tempdir().unwrap();
    assert!(agent()
        .arg("--man")
        .arg(dir.path())
        .status()
        .unwrap()
        .success());
    let page = std::fs::read_to_string(dir.path().join("limelight-agent.1")).unwrap();
    assert!(page.contains("Exit codes"), "{page}");
    assert_eq!(
        agent()
            .arg("--man")
            .arg("/nonexistent")
            .status()
            .unwrap()
            .code(),
        Some(1)
    );
}

fn a_display_that_dies_ends_the_claim() {
    let server = Server::start();
    let session = Session::new();
    let daemon = Daemon::serve(&session.socket());
    let client = server.open_client();
    let mut agent = session.start_agent(&server);
    server.set_focus(client.window);
    daemon.expect(FocusTarget::Pid(client.pid()));
    drop(server.process);
    daemon.expect(FocusTarget::None);
    assert_eq!(agent.0.wait().unwrap().code(), Some(3));
}
