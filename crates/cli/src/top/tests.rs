// SPDX-License-Identifier: GPL-2.0-or-later
//! The screen at all sizes, and the effects of keys and clicks.

use limelight_proto::Class;
use limelight_proto::Level;
use limelight_proto::{
    AppLatency, AppReport, AppStatus, Change, DeviceStatus, HistoryEntry, KernelWindows,
    LatencyReport, MechanismId, MechanismStatus, MemoryAction, MemoryStatus, MemoryThen,
    OpenWindow, Outcome, Role, Stall, Stalls, State, Status, TopmostStatus, WindowStatus,
    WindowTallies, PROTOCOL,
};
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::Position;
use ratatui::style::Color;

use super::order::Order;
use super::view::Target;
use super::*;

#[path = "shot.rs"]
mod shot;

fn app(name: &str, pid: i32) -> AppStatus {
    AppStatus {
        name: name.to_owned(),
        pid: Some(pid),
        cgroup: Some(format!("/app.slice/app-{name}-{pid}.scope")),
        own_cgroup: true,
    }
}

fn report(name: &str, pid: i32, class: Class, used_ms: Option<u64>, mib: u64) -> AppReport {
    AppReport {
        app: app(name, pid),
        uid: 1000,
        class,
        why: "it is of the category Network".to_owned(),
        last_topmost_ms: used_ms,
        processes: 1,
        resident: mib << 20,
        swapped: (mib / 2) << 20,
        ..AppReport::default()
    }
}

fn knob(knob: &str, at_ms: u64) -> Change {
    Change {
        knob: knob.to_owned(),
        from: "0".to_owned(),
        to: "-500".to_owned(),
        rule: "protect: 500 points lower".to_owned(),
        at_ms,
        outcome: Outcome::Applied,
        undone_by: "focus".to_owned(),
    }
}

fn answers() -> AppLatency {
    AppLatency {
        name: "viewer".to_owned(),
        answers: 40,
        late: 1,
        unanswered: 0,
        p50_us: 850,
        p95_us: 12_400,
        p99_us: 730_000,
        max_us: 1_730_000,
        deadline_ms: 500,
        recent_us: vec![
            850, 1_900, 700, 3_800, 900, 12_400, 800, 40_000, 900, 700, 730_000, 900,
        ],
    }
}

fn picture() -> Picture {
    let mechanism = |id: MechanismId| MechanismStatus {
        name: id.name().to_owned(),
        state: State::Active,
        detail: "by memory.min of the app's cgroup; more".to_owned(),
        short: "memory.min of the app's cgroup".to_owned(),
        counters: match id {
            MechanismId::Swap => [
                ("killed".to_owned(), 3),
                ("killed_bytes".to_owned(), 1 << 30),
            ]
            .into(),
            _ => Default::default(),
        },
    };
    let mut viewer = report("viewer", 42, Class::Normal, Some(9), 300);
    viewer.role = Role::Topmost;
    let status = Status {
        version: "0.1.0".to_owned(),
        protocol: PROTOCOL,
        pid: 9,
        uptime_ms: 61_000,
        dry_run: false,
        paused: None,
        topmost: Some(TopmostStatus {
            app: app("viewer", 42),
            source: "sway".to_owned(),
            for_ms: 12_000,
            members: 3,
            demoted_in_ms: None,
        }),
        previous: None,
        agents: Vec::new(),
        sources: Vec::new(),
        mechanisms: MechanismId::ALL.map(mechanism).into(),
        window: WindowStatus {
            state: State::Active,
            detail: String::new(),
            open: Some(OpenWindow {
                app: "viewer".to_owned(),
                for_us: 4_100,
                ends_in_us: 1,
                inputs: 1,
            }),
            sources: Vec::new(),
            kernel: KernelWindows {
                state: State::Unavailable,
                detail: String::new(),
                opened: 0,
                closed: 0,
                failed: 0,
            },
            tallies: WindowTallies::default(),
            topmost: Some(answers()),
        },
        memory: MemoryStatus {
            total: 4 << 30,
            available: 1 << 30,
            swap_total: 2 << 30,
            swap_free: 1 << 30,
            protected: 700 << 20,
            level: Some(Level::Exhausted),
            ..MemoryStatus::default()
        },
        stalls: Stalls {
            cpu: Some(Stall {
                some: 100.0,
                full: None,
            }),
            memory: Some(Stall {
                some: 100.0,
                full: None,
            }),
            io: Some(Stall {
                some: 100.0,
                full: None,
            }),
        },
        device: DeviceStatus::Unused { why: String::new() },
        hidden: None,
        changes: vec![
            knob("/app.slice/app-viewer-42.scope/memory.min", 1_000),
            knob("/proc/42/oom_score_adj", 2_000),
            knob("/proc/43/oom_score_adj", 2_300),
        ],
    };
    let entry = HistoryEntry {
        unix_ms: 70_000,
        at_ms: 0,
        boot: String::new(),
        action: MemoryAction::Kill,
        app: Some(app("news", 7)),
        uid: None,
        class: Some(Class::Disposable),
        bytes: 34 << 20,
        took_us: Some(12_400),
        times: 1,
        for_ms: 0,
        reason: "memory is short".to_owned(),
        memory: MemoryThen::default(),
    };
    Picture {
        status,
        apps: vec![
            report("notes", 50, Class::Keep, Some(5), 40),
            viewer,
            report("mail", 51, Class::Normal, None, 400),
            report("chat\u{1b}[2J\n", 52, Class::Disposable, Some(7), 20),
        ],
        latency: LatencyReport {
            apps: vec![answers()],
            hidden: None,
        },
        history: vec![entry],
        counters: [("limelight_protect_kept".to_owned(), 24_577)].into(),
        at: Duration::from_secs(100),
        wall: Duration::from_secs(100),
    }
}

/// The text on the screen, and the colours of all cells.
fn drawn(
    picture: &Picture,
    view: &mut View,
    columns: u16,
    rows: u16,
    colour: bool,
) -> (String, Vec<Color>) {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let theme = Theme { colour };
    let done = terminal
        .draw(|frame| screen::draw(frame, picture, view, theme, None))
        .unwrap();
    let cells = done.buffer.content.iter();
    let colours = cells.flat_map(|cell| [cell.fg, cell.bg]);
    (lines(done.buffer), colours.collect())
}

fn screen_of(picture: &Picture, columns: u16, rows: u16) -> String {
    drawn(picture, &mut View::default(), columns, rows, false).0
}

#[test]
fn all_parts_fit_on_an_80x24_terminal() {
    let text = screen_of(&picture(), 80, 24);
    for part in [
        "viewer  pid 42, 3 processes, for 12 s, by sway",
        "p50 850 us  p95 12.4 ms  p99 730 ms",
        "▅▁▇▁▁█▁",
        "window 4.10 ms",
        "700 MiB protected, 1.00 GiB free of 4.00 GiB",
        "exhausted",
        "cpu 100%  mem 100%  disk 100%",
        "● protect    kept 24.6k",
        "● swap       killed 3 (1.00 GiB)",
        "class▾",
        "foreground",
        "news (pid 7) killed, disposable, 34.0 MiB in 12.4 ms",
        "oom_score_adj ×2: 0 -> -500",
        "Enter explain",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn every_size_is_drawn_and_the_foreground_app_is_left_out_last() {
    let mut empty = picture();
    empty.apps.clear();
    empty.history.clear();
    empty.status.changes.clear();
    empty.status.topmost = None;
    empty.status.window.topmost = None;
    empty.status.window.open = None;
    empty.status.stalls = Stalls::default();
    empty.status.memory = MemoryStatus::default();
    for picture in [picture(), empty] {
        for columns in [1, 20, 40, 79, 80, 120] {
            for rows in [1, 5, 10, 22, 40] {
                screen_of(&picture, columns, rows);
                let mut view = View::default();
                for popup in [
                    Popup::Help,
                    Popup::Explain {
                        title: "x".to_owned(),
                        text: "name  text ".repeat(50),
                        scroll: 99,
                    },
                    Popup::Class {
                        pid: 1,
                        name: "x".to_owned(),
                        chosen: 0,
                    },
                ] {
                    view.popup = popup;
                    drawn(&picture, &mut view, columns, rows, true);
                }
            }
        }
    }
    let small = screen_of(&picture(), 40, 10);
    assert!(small.contains("foreground viewer"), "{small}");
    assert!(small.contains("notes"), "{small}");
    let large = screen_of(&picture(), 120, 40);
    assert!(large.contains("max 1.73 s"), "{large}");
    // No gap below a short list of apps.
    let lines: Vec<&str> = large.lines().collect();
    let heading = lines
        .iter()
        .position(|line| line.starts_with(" recent"))
        .unwrap();
    assert!(lines[heading - 1].starts_with(" chat"), "{large}");
    assert!(large.contains("50 keep"), "{large}");
}

#[test]
fn no_colour_is_drawn_when_colours_are_off() {
    let (_, colours) = drawn(&picture(), &mut View::default(), 80, 24, false);
    assert!(colours.iter().all(|colour| *colour == Color::Reset));
    let (_, colours) = drawn(&picture(), &mut View::default(), 80, 24, true);
    assert!(colours.contains(&Color::Green));
}

#[test]
fn name_cannot_control_the_terminal() {
    let text = screen_of(&picture(), 120, 40);
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    assert!(text.contains("chat"), "{text}");
}

#[test]
fn text_form_leaves_nothing_out() {
    let mut picture = picture();
    for pid in 100..160 {
        let name = format!("app-{pid}");
        let one = report(&name, pid, Class::Normal, None, 1);
        picture.apps.push(one);
    }
    for columns in [40, 80, 100, 160] {
        let text = text(&picture, columns).unwrap();
        assert!((100..160).all(|pid| text.contains(&format!("app-{pid}"))));
        assert!(text.contains("memory is short") || columns < 100, "{text}");
        let width = |line: &str| line.chars().count();
        assert!(text.lines().all(|line| width(line) <= usize::from(columns)));
        assert!(!text.contains("Enter explain"));
    }
}

#[test]
fn apps_are_sorted_in_each_order() {
    let picture = picture();
    let names = |order: Order| -> Vec<&str> {
        let sorted = order.sorted(&picture);
        sorted.iter().map(|app| &app.app.name[..4]).collect()
    };
    assert_eq!(names(Order::Class), ["note", "view", "mail", "chat"]);
    assert_eq!(names(Order::Used), ["view", "chat", "note", "mail"]);
    assert_eq!(names(Order::Memory), ["mail", "view", "note", "chat"]);
    assert_eq!(names(Order::Swap), ["mail", "view", "note", "chat"]);
    assert_eq!(names(Order::Answer)[0], "view");
    assert_eq!(names(Order::Name), ["chat", "mail", "note", "view"]);
    let mut order = Order::Class;
    for _ in Order::ALL {
        order = order.next();
    }
    assert_eq!(order, Order::Class);
}

fn press(view: &mut View, code: KeyCode, picture: &Picture) -> Option<Wish> {
    let key = KeyEvent::new(code, KeyModifiers::NONE);
    view.event(&Event::Key(key), picture)
        .expect("keys are handled")
}

#[test]
fn keys_select_explain_and_set_the_class() {
    let picture = picture();
    let mut view = View::default();
    // Without a selection, the foreground app is used.
    let explain = |pid, name: &str| Wish::Explain {
        pid,
        name: name.to_owned(),
    };
    let wish = press(&mut view, KeyCode::Enter, &picture);
    assert_eq!(wish, Some(explain(42, "viewer")));
    assert_eq!(press(&mut view, KeyCode::Esc, &picture), None);
    assert_eq!(press(&mut view, KeyCode::Down, &picture), None);
    let wish = press(&mut view, KeyCode::Enter, &picture);
    assert_eq!(wish, Some(explain(50, "notes")));
    press(&mut view, KeyCode::End, &picture);
    press(&mut view, KeyCode::Up, &picture);
    // The selection stays with the app when the order changes.
    press(&mut view, KeyCode::Char('s'), &picture);
    press(&mut view, KeyCode::Char('c'), &picture);
    assert!(matches!(
        &view.popup,
        Popup::Class {
            pid: 51,
            chosen: 1,
            ..
        }
    ));
    press(&mut view, KeyCode::Down, &picture);
    let wish = press(&mut view, KeyCode::Enter, &picture);
    let class = Some(Class::Disposable);
    assert_eq!(wish, Some(Wish::SetClass { pid: 51, class }));
    assert_eq!(view.popup, Popup::None);
    press(&mut view, KeyCode::Char('?'), &picture);
    assert_eq!(press(&mut view, KeyCode::Char('q'), &picture), None);
    assert_eq!(
        press(&mut view, KeyCode::Char('q'), &picture),
        Some(Wish::Quit)
    );
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let wish = view.event(&Event::Key(interrupt), &picture);
    assert_eq!(wish, Some(Some(Wish::Quit)));
}

fn click(view: &mut View, at: Position, picture: &Picture) -> Option<Wish> {
    let mouse = MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: at.x,
        row: at.y,
        modifiers: KeyModifiers::NONE,
    };
    view.event(&Event::Mouse(mouse), picture)
        .expect("clicks are handled")
}

fn place(view: &View, target: Target) -> Position {
    let mut targets = view.targets.iter();
    let (place, _) = targets.find(|(_, known)| *known == target).expect("drawn");
    place.as_position()
}

#[test]
fn clicks_do_the_same_as_keys() {
    let picture = picture();
    let mut view = View::default();
    let redraw = |view: &mut View| drawn(&picture, view, 80, 24, true).0;
    redraw(&mut view);
    let second = place(&view, Target::App(1));
    assert_eq!(click(&mut view, second, &picture), None);
    assert!(matches!(
        click(&mut view, second, &picture),
        Some(Wish::Explain { pid: 42, .. })
    ));
    let head = place(&view, Target::Head(Order::Memory));
    click(&mut view, head, &picture);
    assert_eq!(view.order, Order::Memory);
    // The list moved under the mouse pointer, and the selection with it.
    assert!(redraw(&mut view).contains("memory▾"));
    let key = place(&view, Target::Press('c'));
    click(&mut view, key, &picture);
    redraw(&mut view);
    let keep = place(&view, Target::Class(0));
    let class = Some(Class::Keep);
    let wish = click(&mut view, keep, &picture);
    assert_eq!(wish, Some(Wish::SetClass { pid: 42, class }));
    // A click outside of a popup closes it.
    view.popup = Popup::Help;
    click(&mut view, Position::new(0, 0), &picture);
    assert_eq!(view.popup, Popup::None);
    let moved = MouseEvent {
        kind: MouseEventKind::Moved,
        column: 1,
        row: 1,
        modifiers: KeyModifiers::NONE,
    };
    assert_eq!(view.event(&Event::Mouse(moved), &picture), None);
}

#[test]
fn explanation_scrolls_only_to_its_end() {
    let picture = picture();
    let mut view = View {
        popup: Popup::Explain {
            title: "viewer".to_owned(),
            text: (1..=60).map(|at| format!("line {at}\n")).collect(),
            scroll: 0,
        },
        ..View::default()
    };
    let first = drawn(&picture, &mut view, 80, 24, false).0;
    assert!(
        first.contains("line 1 ") && first.contains("1 to 20 of 60"),
        "{first}"
    );
    for _ in 0..20 {
        press(&mut view, KeyCode::PageDown, &picture);
    }
    let last = drawn(&picture, &mut view, 80, 24, false).0;
    assert!(
        last.contains("line 60") && last.contains("41 to 60 of 60"),
        "{last}"
    );
    assert!(matches!(view.popup, Popup::Explain { scroll: 40, .. }));
}

#[test]
fn cut_text_ends_in_an_ellipsis() {
    let mut picture = picture();
    picture.apps[0].app.name = "a-very-long-name-of-an-app-that-does-not-fit-here".to_owned();
    picture.history[0].reason = "a reason that is longer than the screen ".repeat(5);
    let text = screen_of(&picture, 80, 24);
    assert!(text.contains("a-very-long-na"), "{text}");
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap();
    assert!(line("a reason").ends_with('…'), "{text}");
}

#[test]
fn app_without_answers_has_no_times() {
    let mut picture = picture();
    let none = AppLatency {
        answers: 0,
        p50_us: 0,
        p95_us: 0,
        ..answers()
    };
    picture.status.window.topmost = Some(none.clone());
    picture.latency.apps = vec![none];
    let text = screen_of(&picture, 120, 40);
    assert!(text.contains("no answers yet"), "{text}");
    assert!(!text.contains("0 us"), "{text}");
}
