// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the agent's reports of input and frames, with a real X server. Keys come through XTEST,
//! child processes of this program draw the frames, and the test simulates the daemon.
//!
//! Tests check the order of messages, never their timing.
//!
//! Without Xvfb, everything is skipped with a message.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

mod desktop;

use desktop::{is_installed, Client, Running, Server, Session, PATIENCE};
use limelight_proto::{FocusTarget, Request, Response, WindowEvent};
use x11rb::connection::Connection;
use x11rb::protocol::present::ConnectionExt as _;
use x11rb::protocol::xfixes::ConnectionExt as _;
use x11rb::protocol::xproto::{
    ConfigureWindowAux, ConnectionExt as _, CreateGCAux, CreateWindowAux, EventMask, Rectangle,
    StackMode, Window, WindowClass, BUTTON_PRESS_EVENT, BUTTON_RELEASE_EVENT, KEY_PRESS_EVENT,
    KEY_RELEASE_EVENT,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;

/// The client's keys, by the key codes of letters on a common keyboard.
const NOTHING: u8 = 24;
const DRAW: u8 = 25;
const DRAW_THREE_TIMES: u8 = 26;
const PRESENT: u8 = 27;
const MENU: u8 = 28;
const ANIMATION: u8 = 29;

const WIDTH: u16 = 100;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("client") {
        client();
    }
    if !is_installed("Xvfb") {
        eprintln!("SKIPPED: input and frames of X11, because Xvfb is missing;");
        eprintln!("SKIPPED: install it with: apt-get install xvfb");
        return ExitCode::SUCCESS;
    }
    let tests: [(&str, fn()); 5] = [
        (
            "input_is_followed_by_one_frame",
            input_is_followed_by_one_frame,
        ),
        (
            "modifiers_and_motion_are_not_reported",
            modifiers_and_motion_are_not_reported,
        ),
        (
            "animations_are_reported_only_after_input",
            animations_are_reported_only_after_input,
        ),
        (
            "only_the_focused_program_s_frames_count",
            only_the_focused_program_s_frames_count,
        ),
        ("focus_only_reports_no_input", focus_only_reports_no_input),
    ];
    for (name, test) in tests {
        println!("test {name} ...");
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

/// A daemon that accepts everything and passes on what it receives.
fn serve(socket: &Path) -> Receiver<Request> {
    let listener = UnixListener::bind(socket).unwrap();
    let (send, requests) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut answers = stream.try_clone().unwrap();
        let ok = Response::Ok {
            message: "done".into(),
        };
        let ok = serde_json::to_string(&ok).unwrap() + "\n";
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let request = serde_json::from_str(&line).unwrap();
            // Other tests cover visible apps and notices.
            let sent = match request {
                Request::InUse { .. } | Request::Listen { .. } | Request::Agent { .. } => Ok(()),
                request => send.send(request),
            };
            if sent.is_err() || answers.write_all(ok.as_bytes()).is_err() {
                return;
            }
        }
    });
    requests
}

/// A server with an agent and a client that has the focus.
struct Stage {
    // The fields are dropped in this order.
    _agent: Running,
    client: Client,
    server: Server,
    requests: Receiver<Request>,
    _session: Session,
}

impl Stage {
    fn new() -> Self {
        Stage::with(&[])
    }

    fn with(arguments: &[&str]) -> Self {
        let server = Server::start();
        let session = Session::new();
        let requests = serve(&session.socket());
        let client = server.open_client();
        server.set_focus(client.window);
        let agent = session.start_agent_with(&server, arguments);
        let stage = Stage {
            _agent: agent,
            client,
            server,
            requests,
            _session: session,
        };
        stage.expect_focus(&stage.client);
        stage
    }

    fn expect_focus(&self, client: &Client) {
        self.expect_claim(FocusTarget::Pid(client.pid()));
    }

    fn expect_claim(&self, wanted: FocusTarget) {
        let claims = |request: &Request| matches!(request, Request::Focus { target, .. } if *target == wanted);
        while !claims(&self.requests.recv_timeout(PATIENCE).expect("no claim")) {}
    }

    fn fake(&self, kind: u8, detail: u8) {
        self.server
            .conn
            .xtest_fake_input(kind, detail, 0, self.server.root, 0, 0, 0)
            .unwrap()
            .check()
            .unwrap();
    }

    fn press(&self, key: u8) {
        self.fake(KEY_PRESS_EVENT, key);
        self.fake(KEY_RELEASE_EVENT, key);
    }

    /// The next event, which must belong to this program.
    fn next(&self, client: &Client) -> (WindowEvent, u64) {
        let told = self.requests.recv_timeout(PATIENCE);
        match told.expect("no event") {
            Request::Window {
                event,
                at_us: Some(at),
                pid,
                source,
            } => {
                assert_eq!((pid, source.as_str()), (Some(client.pid()), "x11"));
                (event, at)
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Expects exactly these events next, with ascending times.
    fn expect(&self, client: &Client, wanted: &[WindowEvent]) {
        let told: Vec<_> = wanted.iter().map(|_| self.next(client)).collect();
        let events: Vec<_> = told.iter().map(|(event, _)| *event).collect();
        assert_eq!(events, wanted);
        assert!(told.windows(2).all(|two| two[0].1 <= two[1].1), "{told:?}");
    }

    /// Gives the agent enough time to send all pending messages.
    fn settle(&self) {
        std::thread::sleep(Duration::from_millis(300));
    }
}

const ANSWERED: &[WindowEvent] = &[WindowEvent::Open, WindowEvent::Close];

fn input_is_followed_by_one_frame() {
    let stage = Stage::new();
    for key in [DRAW, DRAW_THREE_TIMES, PRESENT, MENU, MENU, DRAW] {
        stage.press(key);
        stage.expect(&stage.client, ANSWERED);
        // A second report of the frame would arrive before the next key's input.
        stage.settle();
    }
}

fn modifiers_and_motion_are_not_reported() {
    let stage = Stage::new();
    let mapping = stage.server.conn.get_modifier_mapping().unwrap();
    let modifiers: Vec<u8> = mapping.reply().unwrap().keycodes;
    let held: Vec<u8> = modifiers.into_iter().filter(|&key| key != 0).collect();
    assert!(!held.is_empty());
    for key in held {
        stage.press(key);
    }
    stage.server.move_pointer(40, 40);
    stage.settle();
    stage.press(DRAW);
    stage.expect(&stage.client, ANSWERED);
    // A key that the program ignores is input, but no frame follows.
    stage.press(NOTHING);
    stage.expect(&stage.client, &[WindowEvent::Open]);
    stage.settle();
    stage.press(DRAW);
    stage.expect(&stage.client, ANSWERED);
    // Press and release of a button both count as input; the pointer is over the client.
    stage.fake(BUTTON_PRESS_EVENT, 1);
    stage.fake(BUTTON_RELEASE_EVENT, 1);
    stage.expect(&stage.client, &[WindowEvent::Open, WindowEvent::Open]);
}

fn animations_are_reported_only_after_input() {
    let stage = Stage::new();
    stage.press(ANIMATION);
    stage.expect(&stage.client, ANSWERED);
    for _ in 0..3 {
        stage.settle();
        stage.press(NOTHING);
        stage.expect(&stage.client, ANSWERED);
    }
}

fn only_the_focused_program_s_frames_count() {
    let stage = Stage::new();
    let other = stage.server.open_client();
    stage.server.set_focus(other.window);
    stage.expect_focus(&other);
    // The drawing client no longer has the focus.
    stage.press(ANIMATION);
    stage.expect(&other, ANSWERED);
    // Drawing in a covered window is not visible.
    let above = ConfigureWindowAux::new().stack_mode(StackMode::ABOVE);
    let raised = stage
        .server
        .conn
        .configure_window(stage.client.window, &above);
    raised.unwrap().check().unwrap();
    stage.server.set_focus(stage.client.window);
    stage.expect_focus(&stage.client);
    stage.settle();
    stage.press(NOTHING);
    stage.expect(&stage.client, &[WindowEvent::Open]);
    stage.settle();
    stage.press(DRAW);
    stage.expect(&stage.client, ANSWERED);
    // If no window has the focus, input belongs to no app.
    stage.server.set_focus(x11rb::NONE);
    stage.expect_claim(FocusTarget::None);
    stage.press(DRAW);
    stage.settle();
    assert!(stage.requests.try_recv().is_err());
}

fn focus_only_reports_no_input() {
    let stage = Stage::with(&["--focus-only"]);
    stage.press(DRAW);
    stage.settle();
    assert!(stage.requests.try_recv().is_err());
}

/// A program with a window that acts on keys.
struct Program {
    conn: RustConnection,
    root: Window,
    window: Window,
    gc: u32,
    menu: Option<Window>,
    serial: u32,
}

impl Program {
    fn draw(&self) {
        let whole = Rectangle {
            x: 0,
            y: 0,
            width: WIDTH,
            height: WIDTH,
        };
        self.conn
            .poly_fill_rectangle(self.window, self.gc, &[whole])
            .unwrap();
        self.conn.flush().unwrap();
    }

    /// Presents an unchanged pixmap: a frame without damage.
    fn present(&mut self) {
        let pixmap = self.conn.generate_id().unwrap();
        let depth = self.conn.get_geometry(self.window).unwrap();
        let depth = depth.reply().unwrap().depth;
        self.conn
            .create_pixmap(depth, pixmap, self.window, WIDTH, WIDTH)
            .unwrap();
        let nothing = self.conn.generate_id().unwrap();
        self.conn.xfixes_create_region(nothing, &[]).unwrap();
        self.serial += 1;
        let none = x11rb::NONE;
        self.conn
            .present_pixmap(
                self.window,
                pixmap,
                self.serial,
                none,
                nothing,
                0,
                0,
                none,
                none,
                none,
                0,
                0,
                0,
                0,
                &[],
            )
            .unwrap();
        self.conn.xfixes_destroy_region(nothing).unwrap();
        self.conn.free_pixmap(pixmap).unwrap();
        self.conn.flush().unwrap();
    }

    /// Opens a menu, or closes it and redraws the window.
    fn menu(&mut self) {
        if let Some(menu) = self.menu.take() {
            self.conn.destroy_window(menu).unwrap();
            return self.draw();
        }
        // Next to the window, so that the window itself is not damaged.
        let menu = open_window(&self.conn, self.root, 200, true);
        self.conn.map_window(menu).unwrap();
        self.conn.flush().unwrap();
        self.menu = Some(menu);
    }
}

fn open_window(conn: &RustConnection, root: Window, x: i16, menu: bool) -> Window {
    let window = conn.generate_id().unwrap();
    let events = EventMask::KEY_PRESS | EventMask::STRUCTURE_NOTIFY;
    let aux = CreateWindowAux::new()
        .event_mask(events)
        .background_pixel(conn.setup().roots[0].white_pixel)
        .override_redirect(u32::from(menu));
    conn.create_window(
        x11rb::COPY_DEPTH_FROM_PARENT,
        window,
        root,
        x,
        0,
        WIDTH,
        WIDTH,
        0,
        WindowClass::INPUT_OUTPUT,
        x11rb::COPY_FROM_PARENT,
        &aux,
    )
    .unwrap();
    window
}

fn client() -> ! {
    let (conn, screen) = RustConnection::connect(None).unwrap();
    let root = conn.setup().roots[screen].root;
    conn.present_query_version(1, 0).unwrap().reply().unwrap();
    conn.xfixes_query_version(5, 0).unwrap().reply().unwrap();
    let window = open_window(&conn, root, 0, false);
    let gc = conn.generate_id().unwrap();
    conn.create_gc(gc, window, &CreateGCAux::new()).unwrap();
    conn.map_window(window).unwrap();
    conn.flush().unwrap();
    while !matches!(conn.wait_for_event().unwrap(), Event::MapNotify(_)) {}
    println!("{window}");
    std::io::stdout().flush().unwrap();
    let mut program = Program {
        conn,
        root,
        window,
        gc,
        menu: None,
        serial: 0,
    };
    let mut animated = false;
    loop {
        // The loop ends when the server ends.
        let event = match animated {
            true => program.conn.poll_for_event(),
            false => program.conn.wait_for_event().map(Some),
        };
        match event {
            Err(_) => std::process::exit(0),
            Ok(Some(Event::KeyPress(key))) => match key.detail {
                DRAW => program.draw(),
                DRAW_THREE_TIMES => {
                    for _ in 0..3 {
                        program.draw();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                PRESENT => program.present(),
                MENU => program.menu(),
                ANIMATION => animated = !animated,
                _ => {}
            },
            Ok(Some(_)) => {}
            Ok(None) => {
                program.draw();
                std::thread::sleep(Duration::from_millis(16));
            }
        }
    }
}
