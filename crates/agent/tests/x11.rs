// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the agent with a real X server and a real window manager: Xvfb and openbox. The test
//! simulates the daemon; the X clients are child processes of this program.
//!
//! Without Xvfb or openbox, everything is skipped with a message.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod desktop;

use desktop::{agent, is_installed, wait_for, Client, Server, Session, PATIENCE};
use limelight_proto::Use;
use limelight_proto::{FocusTarget, Request, Response};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, CreateWindowAux,
    EventMask, InputFocus, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

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
    let tests: [(&str, fn()); 11] = [
        ("i3_reports_the_focus", i3_reports_the_focus),
        ("visible_windows_are_in_use", visible_windows_are_in_use),
        (
            "the_window_manager_reports_the_focus",
            the_window_manager_reports_the_focus,
        ),
        (
            "the_server_reports_the_focus_without_a_window_manager",
            the_server_reports_the_focus_without_a_window_manager,
        ),
        (
            "the_focus_can_follow_the_pointer",
            the_focus_can_follow_the_pointer,
        ),
        (
            "a_window_manager_can_start_and_end",
            a_window_manager_can_start_and_end,
        ),
        (
            "a_restarted_daemon_receives_the_claim",
            a_restarted_daemon_receives_the_claim,
        ),
        (
            "once_prints_the_foreground_app",
            once_prints_the_foreground_app,
        ),
        (
            "no_display_has_its_own_exit_code",
            no_display_has_its_own_exit_code,
        ),
        ("the_manual_page_is_written", the_manual_page_is_written),
        (
            "the_end_of_the_display_ends_the_claim",
            the_end_of_the_display_ends_the_claim,
        ),
    ];
    for (name, test) in tests {
        println!("test {name} ...");
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// The child processes show a window, print its id, and wait to be killed.
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
    // A wrong pid: the agent must use the pid that the server returns instead.
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
    // A starting window manager may drop the map request, so it is repeated.
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
    // The loop ends when the server ends.
    while conn.wait_for_event().is_ok() {}
    std::process::exit(0)
}

/// A daemon that accepts everything and passes on what it receives.
struct TestDaemon {
    claims: Receiver<FocusTarget>,
    /// Processes reported as visible.
    visible: Arc<Mutex<BTreeSet<i32>>>,
}

impl TestDaemon {
    /// Serves one connection. The channel closes when the connection ends.
    fn serve(socket: &Path) -> Self {
        TestDaemon::serve_source(socket, "x11")
    }

    /// Serves one connection of an agent with another source than X11.
    fn serve_source(socket: &Path, expected: &'static str) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (send, claims) = channel();
        let visible = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = Arc::clone(&visible);
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            drop(listener);
            let mut answers = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { return };
                let request = serde_json::from_str(&line).unwrap();
                match request {
                    Request::Focus {
                        target,
                        source,
                        hold,
                    } => {
                        // After a source has gone away, the agent itself claims that nothing has
                        // the focus.
                        let by_none = target == FocusTarget::None && source == "agent";
                        assert!(hold && (source == expected || by_none), "{source}");
                        if send.send(target).is_err() {
                            // The test has dropped this daemon.
                            return;
                        }
                    }
                    Request::InUse {
                        pid,
                        what: Use::Visible,
                        on,
                    } => {
                        let mut seen = seen.lock().unwrap();
                        let changed = match on {
                            true => seen.insert(pid),
                            false => seen.remove(&pid),
                        };
                        assert!(changed, "{pid} was reported twice");
                    }
                    Request::Listen { .. } | Request::Agent { .. } => {}
                    other => panic!("unexpected {other:?}"),
                }
                let ok = Response::Ok {
                    message: "done".into(),
                };
                let ok = serde_json::to_string(&ok).unwrap() + "\n";
                if answers.write_all(ok.as_bytes()).is_err() {
                    return;
                }
            }
        });
        TestDaemon { claims, visible }
    }

    /// Waits until exactly the windows of these clients are reported as visible.
    fn expect_visible(&self, mut action: impl FnMut(), wanted: &[&Client]) {
        let wanted: BTreeSet<i32> = wanted.iter().map(|client| client.pid()).collect();
        wait_for("the right windows to be visible", || {
            action();
            *self.visible.lock().unwrap() == wanted
        });
    }

    /// Waits for this claim and skips earlier ones: windows that open take the focus in turn.
    fn expect(&self, wanted: FocusTarget) {
        self.expect_of(|| {}, wanted);
    }

    /// Waits for this claim and repeats an action until it has an effect: a starting window manager
    /// drops requests.
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
        panic!("expected {wanted:?}, received {told:?}");
    }
}

fn the_window_manager_reports_the_focus() {
    let server = Server::start();
    let _openbox = server.start_openbox();
    let session = Session::new();
    let daemon = TestDaemon::serve(&session.socket());
    let _agent = session.start_agent(&server);
    let (first, second) = (server.open_client(), server.open_client());
    for client in [&first, &second, &first, &second] {
        daemon.expect_of(
            || server.activate(client.window),
            FocusTarget::Pid(client.pid()),
        );
    }
    // When the active app ends, openbox activates the other one, then none.
    drop(second);
    daemon.expect(FocusTarget::Pid(first.pid()));
    drop(first);
    daemon.expect(FocusTarget::None);
}

fn i3_reports_the_focus() {
    if !is_installed("i3") {
        eprintln!("SKIPPED: i3 is missing; install it with: apt-get install i3-wm");
        return;
    }
    let server = Server::start();
    let session = Session::new();
    let _i3 = server.start_i3(&session);
    let daemon = TestDaemon::serve_source(&session.socket(), "i3");
    // A property of the root window names i3's socket.
    let _agent = session.start_agent_with(&server, &["--source", "i3"]);
    let (first, second) = (server.open_client(), server.open_client());
    for client in [&first, &second, &first] {
        daemon.expect_of(
            || server.activate(client.window),
            FocusTarget::Pid(client.pid()),
        );
    }
    drop(first);
    daemon.expect(FocusTarget::Pid(second.pid()));
    drop(second);
    daemon.expect(FocusTarget::None);
}

fn visible_windows_are_in_use() {
    let server = Server::start();
    let _openbox = server.start_openbox();
    let session = Session::new();
    let daemon = TestDaemon::serve(&session.socket());
    let _agent = session.start_agent(&server);
    let (below, above) = (server.open_client(), server.open_client());
    let place = |client: &Client, x: i32, side: u32| {
        let place = ConfigureWindowAux::new().x(x).y(0).width(side).height(side);
        server.conn.configure_window(client.window, &place).unwrap();
        server.conn.flush().unwrap();
    };
    let front = || server.activate(above.window);
    // The windows are apart, then one covers the other, then one is half covered.
    daemon.expect_visible(
        || {
            place(&below, 0, 60);
            place(&above, 200, 100);
        },
        &[&below, &above],
    );
    daemon.expect_visible(
        || {
            front();
            place(&above, 0, 220);
        },
        &[&above],
    );
    daemon.expect_visible(
        || {
            place(&below, 0, 60);
            place(&above, 40, 220);
        },
        &[&below, &above],
    );
    // The lower window is hidden, without being covered.
    let state = server.atom("WM_CHANGE_STATE");
    let iconify = ClientMessageEvent::new(32, below.window, state, [3u32, 0, 0, 0, 0]);
    let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
    daemon.expect_visible(
        || {
            let sent = server.conn.send_event(false, server.root, mask, iconify);
            sent.unwrap();
            server.conn.flush().unwrap();
        },
        &[&above],
    );
    drop(above);
    daemon.expect_visible(|| {}, &[]);
}

fn the_server_reports_the_focus_without_a_window_manager() {
    let server = Server::start();
    let session = Session::new();
    let daemon = TestDaemon::serve(&session.socket());
    let before = server.open_client();
    let _agent = session.start_agent(&server);
    let after = server.open_client();
    for client in [&before, &after, &before] {
        server.set_focus(client.window);
        daemon.expect(FocusTarget::Pid(client.pid()));
    }
    server.move_pointer(50, 50);
    // The focus reverts to the window under the pointer, which is the remaining one.
    drop(before);
    daemon.expect(FocusTarget::Pid(after.pid()));
    server.set_focus(x11rb::NONE);
    daemon.expect(FocusTarget::None);
}

fn the_focus_can_follow_the_pointer() {
    let server = Server::start();
    let session = Session::new();
    let daemon = TestDaemon::serve(&session.socket());
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

fn a_window_manager_can_start_and_end() {
    let server = Server::start();
    let session = Session::new();
    let daemon = TestDaemon::serve(&session.socket());
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
    // openbox was killed, so its properties remain and must be ignored.
    drop(openbox);
    for client in [&second, &first] {
        server.set_focus(client.window);
        daemon.expect(FocusTarget::Pid(client.pid()));
    }
}

fn a_restarted_daemon_receives_the_claim() {
    let server = Server::start();
    let session = Session::new();
    let client = server.open_client();
    server.set_focus(client.window);
    // The agent starts first; the daemon starts later, ends, and starts again.
    let _agent = session.start_agent(&server);
    let daemon = TestDaemon::serve(&session.socket());
    daemon.expect(FocusTarget::Pid(client.pid()));
    drop(daemon);
    server.set_focus(x11rb::NONE);
    let daemon = TestDaemon::serve(&session.socket());
    daemon.expect(FocusTarget::None);
}

fn once_prints_the_foreground_app() {
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
    wait_for("the window to have the focus", || {
        server.activate(client.window);
        seen = once();
        seen["pid"] == client.pid()
    });
    assert_eq!(seen["focus_by"], "window-manager");
    assert_eq!(seen["pid_by"], "server");
    assert_eq!(seen["window"], format!("{:#x}", client.window));
}

fn no_display_has_its_own_exit_code() {
    let nowhere = tempfile::tempdir().unwrap();
    let unset = agent()
        .args(["--source", "x11", "--once"])
        .env("XDG_RUNTIME_DIR", nowhere.path())
        .env("DISPLAY", ":4001")
        .output()
        .unwrap();
    assert_eq!(unset.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&unset.stderr).contains(":4001"),
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

fn the_end_of_the_display_ends_the_claim() {
    let server = Server::start();
    let session = Session::new();
    let daemon = TestDaemon::serve(&session.socket());
    let client = server.open_client();
    let mut agent = session.start_agent(&server);
    server.set_focus(client.window);
    daemon.expect(FocusTarget::Pid(client.pid()));
    drop(server.process);
    daemon.expect(FocusTarget::None);
    assert_eq!(agent.0.wait().unwrap().code(), Some(3));
}
