// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows over the control socket.

use limelight_proto::{AppLatency, ErrorCode, Response, State};

use crate::common::Running;
use crate::two_apps;

/// Microseconds on `CLOCK_MONOTONIC`, this long ago.
fn ago(us: u64) -> u64 {
    limelight_sys::clock::monotonic().as_micros() as u64 - us
}

fn line(event: &str, at_us: u64, pid: i32) -> String {
    format!(r#"{{"op":"window","event":"{event}","at_us":{at_us},"pid":{pid},"source":"x11"}}"#)
}

fn message(answer: Response) -> String {
    match answer {
        Response::Ok { message } => message,
        other => panic!("{other:?}"),
    }
}

fn code(answer: Response) -> ErrorCode {
    match answer {
        Response::Error { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

fn latency(daemon: &mut Running, app: i32) -> Option<AppLatency> {
    match daemon.ask(&format!(r#"{{"op":"latency","app":"app{app}"}}"#)) {
        Response::Latency(report) => report.apps.into_iter().next(),
        Response::Error { code, .. } => {
            assert_eq!(code, ErrorCode::NotFound);
            None
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn window_opens_over_the_socket_with_the_events_own_times() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let mut agent = daemon.connect();
    let start = ago(300_000);
    let said = message(daemon.ask_over(&mut agent, &line("open", start, a.pid)));
    assert!(said.starts_with("open for at most"), "{said}");
    let status = daemon.status().window;
    assert_eq!(status.state, State::Active);
    let kernel = &status.kernel;
    assert_eq!((kernel.state, kernel.opened), (State::Unavailable, 0));
    assert!(
        kernel.detail.contains("only limelightd knows"),
        "{kernel:?}"
    );
    let open = status.open.unwrap();
    assert!(open.for_us >= 300_000, "{open:?}");
    assert_eq!(status.sources[0].state, State::Active);
    let said = message(daemon.ask_over(&mut agent, &line("close", start + 12_300, a.pid)));
    assert_eq!(said, "answered after 12.3 ms");
    let status = daemon.status().window;
    assert_eq!((status.state, status.open), (State::Idle, None));
    let seen = latency(&mut daemon, a.pid).unwrap();
    assert_eq!(status.topmost.as_ref(), Some(&seen));
    assert_eq!((seen.answers, seen.late, seen.unanswered), (1, 0, 0));
    assert!(seen.p50_us.abs_diff(12_300) <= 123, "{seen:?}");
    let notes = daemon.explain(a.pid).notes;
    assert!(
        notes.iter().any(|note| note.contains("answered 1 times")),
        "{notes:?}"
    );
    daemon.stop();
}

#[test]
fn window_expires_at_its_deadline() {
    let (machine, a, _b) = two_apps();
    machine.write(
        "limelight.toml",
        "[window]\ndeadline_ms = 50\ndeadline_max_ms = 100\n",
    );
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    message(daemon.ask(r#"{"op":"window","event":"open","source":"cli"}"#));
    assert_eq!(daemon.status().window.tallies.opened, 1);
    // No message arrives meanwhile.
    let end = std::time::Instant::now() + std::time::Duration::from_millis(60);
    daemon.until("the deadline", |_| std::time::Instant::now() > end);
    let status = daemon.status().window;
    assert_eq!((status.open, status.tallies.expired), (None, 1));
    daemon.stop();
}

#[test]
fn events_of_other_apps_are_ignored_and_the_window_follows_the_focus() {
    let (machine, a, b) = two_apps();
    let mut daemon = machine.start();
    let early = r#"{"op":"window","event":"open","source":"cli"}"#;
    assert_eq!(
        code(daemon.ask(early)),
        ErrorCode::NotFound,
        "no app is in the foreground"
    );
    daemon.focus(a.pid);
    let mut agent = daemon.connect();
    let said = message(daemon.ask_over(&mut agent, &line("open", ago(0), b.pid)));
    assert!(said.starts_with("not opened"), "{said}");
    message(daemon.ask_over(&mut agent, &line("open", ago(0), a.pid)));
    let said = message(daemon.ask_over(&mut agent, &line("close", ago(0), b.pid)));
    assert!(said.contains("belongs to another app"), "{said}");
    daemon.focus(b.pid);
    assert!(daemon.status().window.open.is_some());
    let said = message(daemon.ask_over(&mut agent, &line("close", ago(0), b.pid)));
    assert!(said.contains("the focus had moved"), "{said}");
    let tallies = daemon.status().window.tallies;
    assert_eq!((tallies.moved, tallies.inputs_elsewhere), (1, 2));
    assert_eq!(tallies.frames_elsewhere, 1);
    assert_eq!(latency(&mut daemon, b.pid), None);
    daemon.stop();
}

#[test]
fn invalid_messages_are_refused() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let old = line("open", ago(20_000_000), a.pid);
    assert_eq!(code(daemon.ask(&old)), ErrorCode::BadRequest);
    let ahead = line("open", ago(0) + 5_000_000, a.pid);
    assert!(
        message(daemon.ask(&ahead)).starts_with("open for"),
        "a clock ahead is now"
    );
    let nameless = r#"{"op":"window","event":"open","source":""}"#;
    assert_eq!(code(daemon.ask(nameless)), ErrorCode::BadRequest);
    let nobody = line("close", ago(0), i32::MAX);
    assert_eq!(code(daemon.ask(&nobody)), ErrorCode::NotFound);
    daemon.stop();
}

#[test]
fn disabled_windows_never_open_and_status_says_so() {
    let (machine, a, _b) = two_apps();
    machine.write("limelight.toml", "[window]\nenabled = false\n");
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let said = message(daemon.ask(&line("open", ago(0), a.pid)));
    assert!(said.contains("[window] enabled"), "{said}");
    let status = daemon.status().window;
    assert_eq!((status.state, status.tallies.opened), (State::Off, 0));
    machine.write("limelight.toml", "[window]\nenabled = true\n");
    daemon.daemon.reload();
    message(daemon.ask(&line("open", ago(0), a.pid)));
    assert_eq!(daemon.status().window.tallies.opened, 1);
    daemon.stop();
}

#[test]
fn without_reports_devices_are_opened_and_a_failure_is_named() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    let source = |daemon: &mut Running, name: &str| {
        let sources = daemon.status().window.sources;
        let found = sources.into_iter().find(|source| source.name == name);
        let source = found.expect(name);
        (source.state, source.detail)
    };
    let (state, why) = source(&mut daemon, "evdev");
    assert_eq!(state, State::Idle);
    assert!(why.contains("no app is in the foreground"), "{why}");
    daemon.focus(a.pid);
    for (name, lack) in [("evdev", "dev-input"), ("display frames", "mountinfo")] {
        let (state, why) = source(&mut daemon, name);
        assert_eq!(state, State::Unavailable);
        assert!(why.contains(lack), "{name}: {why}");
    }
    // A client that reports repeatedly makes the daemon's own sources unnecessary until it
    // disconnects.
    let mut agent = daemon.connect();
    for event in ["open", "close"] {
        message(daemon.ask_over(&mut agent, &line(event, ago(0), a.pid)));
    }
    let (state, why) = source(&mut daemon, "evdev");
    assert_eq!(state, State::Idle);
    assert!(why.contains("another source reports"), "{why}");
    drop(agent);
    let mut left = State::Idle;
    for _ in 0..50 {
        left = source(&mut daemon, "evdev").0;
        if left == State::Unavailable {
            break;
        }
    }
    assert_eq!(left, State::Unavailable);
    daemon.stop();
}

#[test]
fn devices_stay_closed_if_so_configured() {
    let (machine, a, _b) = two_apps();
    machine.write("limelight.toml", "[sources]\nevdev = \"off\"\n");
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let sources = daemon.status().window.sources;
    for source in &sources[1..] {
        assert_eq!(source.state, State::Off, "{source:?}");
        assert!(source.detail.contains("[sources] evdev"), "{source:?}");
    }
    daemon.stop();
}

#[test]
fn without_foreground_reports_input_is_monitored_until_one_arrives() {
    let (machine, a, _b) = two_apps();
    for directory in ["dev-input", "tracing/events/sched/sched_waking"] {
        std::fs::create_dir_all(machine.path(directory)).unwrap();
    }
    let tracefs = machine.path("tracing");
    let mut daemon = machine.start_with(|options| options.roots.tracefs = Some(tracefs));
    let states = |daemon: &mut Running| {
        let status = daemon.status();
        let all = status.sources.into_iter().chain(status.window.sources);
        let state = |name: &str| {
            let found = all.clone().find(|source| source.name == name);
            found
                .map(|source| (source.state, source.detail))
                .expect(name)
        };
        [state("wake-graph"), state("evdev"), state("display frames")]
    };
    // The source tries to open devices, in vain: there is none. Frames are not useful yet.
    let listening = |daemon: &mut Running| {
        let [(guess, why), (input, lack), (frames, _)] = states(daemon);
        assert!(why.contains("no input is received"), "{why}");
        assert!(lack.contains("no device with keys"), "{lack}");
        assert_eq!(
            [guess, input, frames],
            [State::Unavailable, State::Unavailable, State::Idle]
        );
    };
    listening(&mut daemon);

    // A report that nothing has the focus counts too.
    let mut agent = daemon.connect();
    let none = r#"{"op":"focus","target":"none","hold":true,"source":"sway"}"#;
    message(daemon.ask_over(&mut agent, none));
    let [(guess, why), (input, _), _] = states(&mut daemon);
    assert_eq!((guess, input), (State::Idle, State::Idle));
    assert!(why.contains("a source reports"), "{why}");
    drop(agent);
    for _ in 0..50 {
        if states(&mut daemon)[0].0 == State::Unavailable {
            break;
        }
    }
    listening(&mut daemon);

    daemon.focus(a.pid);
    let [(guess, _), (input, _), _] = states(&mut daemon);
    assert_eq!(guess, State::Idle);
    assert_eq!(input, State::Unavailable, "asked for its response windows");
    daemon.focus_none();
    listening(&mut daemon);

    machine.write("limelight.toml", "[sources]\nwake_graph = false\n");
    daemon.daemon.reload();
    let [(guess, why), (input, _), _] = states(&mut daemon);
    assert_eq!((guess, input), (State::Off, State::Idle));
    assert!(why.contains("[sources] wake_graph"), "{why}");
    machine.write("limelight.toml", "[sources]\nevdev = \"off\"\n");
    daemon.daemon.reload();
    let [(guess, why), (input, _), _] = states(&mut daemon);
    assert_eq!((guess, input), (State::Off, State::Off));
    assert!(why.contains("[sources] evdev"), "{why}");
    daemon.stop();
}

#[test]
fn without_the_tracepoint_nothing_is_guessed_and_no_device_is_opened() {
    let (machine, _a, _b) = two_apps();
    let mut daemon = machine.start();
    let status = daemon.status();
    let find = |sources: &[limelight_proto::SourceStatus], name: &str| {
        let found = sources.iter().find(|source| source.name == name);
        found.cloned().expect(name)
    };
    let guess = find(&status.sources, "wake-graph");
    assert_eq!(guess.state, State::Unavailable);
    assert!(guess.detail.contains("mountinfo"), "{guess:?}");
    assert_eq!(find(&status.window.sources, "evdev").state, State::Idle);
    daemon.stop();
}
