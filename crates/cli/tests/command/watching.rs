// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands that show the whole state: metrics, top and doctor.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;

use limelight_proto::Class;
use limelight_proto::{
    AgentStatus, LatencyReport, MechanismId, Response, SourceStatus, State, Status, NOTIFICATIONS,
    SOUND, VIDEO,
};
use rustix::process::{kill_process, Pid, Signal};
use rustix::pty::{openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, LocalModes, Winsize};

use crate::daemon::{app_report, facility, latency, limelight, status, text, TestDaemon};

#[test]
fn metrics_are_in_prometheus_format() {
    let daemon = || {
        let answers = [
            Response::Status(Box::new(status())),
            Response::Apps {
                apps: vec![app_report(Class::Normal), app_report(Class::Normal)],
                hidden: None,
            },
            Response::Latency(LatencyReport {
                apps: vec![latency()],
                hidden: None,
            }),
        ];
        let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
        TestDaemon::sending_each(answers.iter().map(line).collect())
    };
    let out = daemon().limelight(&["metrics"]).success();
    let told = text(&out.get_output().stdout);
    for line in [
        "# TYPE limelight_swap_killed_total counter",
        "limelight_swap_killed_total 3",
        "limelight_protected_bytes 104857600",
        "limelight_memory_level 1",
        "limelight_apps{class=\"normal\"} 2",
        "limelight_apps_resident_bytes{class=\"normal\"} 83886080",
        "limelight_response_seconds{app=\"viewer\",quantile=\"0.95\"} 0.0124",
        "limelight_responses_total{app=\"viewer\"} 40",
        "limelight_windows_opened_total 43",
        "limelight_mechanism_acts{mechanism=\"protect\"} 1",
        "limelight_knobs{knob=\"memory.min\",outcome=\"applied\"} 1",
        "limelight_stalled_ratio{resource=\"io\",kind=\"some\"} 0.125",
    ] {
        assert!(told.lines().any(|one| one == line), "{line}:\n{told}");
    }
    // Every line is a comment or a sample, and a TYPE line announces each sample's name.
    let announced: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for line in told.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(announced.contains(&name), "{line}");
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap();
    }

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limelight.prom");
    let path = file.to_str().unwrap();
    daemon()
        .limelight(&["metrics", "--output", path])
        .success()
        .stdout("");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), told);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let out = daemon().limelight(&["metrics", "--json"]).success();
    let value: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(value["limelight_swap_killed_total"], 3.0);
    let out = daemon()
        .limelight(&["metrics", "--output", "/no/such/place.prom"])
        .code(1);
    assert!(text(&out.get_output().stderr).contains("/no/such/place.prom"));
}

#[test]
fn top_prints_text_without_a_terminal() {
    let daemon = || {
        let answers = [
            Response::Status(Box::new(status())),
            Response::Apps {
                apps: vec![app_report(Class::Keep)],
                hidden: None,
            },
            Response::Latency(LatencyReport {
                apps: vec![latency()],
                hidden: None,
            }),
            Response::History {
                entries: vec![],
                paused: None,
                hidden: None,
            },
        ];
        let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
        TestDaemon::sending_each(answers.iter().map(line).collect())
    };
    let out = daemon().limelight(&["top"]).success();
    let told = text(&out.get_output().stdout);
    for part in [
        "viewer  pid 4242",
        "100 MiB protected",
        "killed 3",
        "keep",
        "12.4 ms",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains('\u{1b}'), "{told:?}");
    let out = daemon().limelight(&["top", "--json"]).success();
    let value: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(value["apps"][0]["class"], "keep");
    assert_eq!(value["latency"]["apps"][0]["p95_us"], 12_400);
    limelight()
        .args(["--socket", "/no/such.sock", "top"])
        .assert()
        .code(3);
}

/// Whether the terminal is in line mode with echo, as a shell expects it.
fn is_for_lines(terminal: &impl std::os::fd::AsFd) -> bool {
    let modes = tcgetattr(terminal).unwrap().local_modes;
    modes.contains(LocalModes::ICANON | LocalModes::ECHO)
}

#[test]
fn top_restores_the_terminal_when_terminated() {
    let answers = [
        Response::Status(Box::new(status())),
        Response::Apps {
            apps: vec![],
            hidden: None,
        },
        Response::Latency(LatencyReport {
            apps: vec![],
            hidden: None,
        }),
        Response::History {
            entries: vec![],
            paused: None,
            hidden: None,
        },
    ];
    let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
    let daemon = TestDaemon::sending_each(answers.iter().map(line).collect());

    let shown = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&shown).unwrap();
    let name = ptsname(&shown, Vec::new()).unwrap();
    let terminal = std::fs::File::options()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    assert!(is_for_lines(&terminal));
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let stdio = || std::process::Stdio::from(terminal.try_clone().unwrap());
    let mut top = std::process::Command::new(assert_cmd::cargo::cargo_bin("limelight"))
        .arg("--socket")
        .arg(daemon.socket())
        .args(["top", "--interval", "60"])
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio())
        .spawn()
        .unwrap();
    let mut drawn = Vec::new();
    let mut screen = std::fs::File::from(shown);
    let mut read = |until: &[u8]| {
        let mut buffer = [0; 4096];
        while !drawn.windows(until.len()).any(|part| part == until) {
            let count = screen.read(&mut buffer).unwrap();
            drawn.extend_from_slice(&buffer[..count]);
        }
    };
    // top enters the alternate screen after it has switched the terminal to raw mode.
    read(b"\x1b[?1049h");
    assert!(!is_for_lines(&terminal));
    let pid = Pid::from_raw(top.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    read(b"\x1b[?1049l");
    assert_eq!(top.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    assert!(is_for_lines(&terminal));
}

fn doctor(daemon: &TestDaemon, args: &[&str]) -> std::process::Output {
    // The library does not exist at this path, so --strict has something to report.
    limelight()
        .env("LIMELIGHT_PREMAP_LIBRARY", "/no/such/library.so")
        .arg("--socket")
        .arg(daemon.socket())
        .arg("doctor")
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn doctor_reports_the_daemon_and_fails_when_something_is_missing() {
    let daemon = TestDaemon::answering(Response::Status(Box::new(status())));
    let output = doctor(&daemon, &["--json", "--strict"]);
    assert_eq!(output.status.code(), Some(1));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = |check: &str| {
        let all = findings.as_array().unwrap();
        let mut all = all.iter();
        all.find(|finding| finding["check"] == check).expect(check)
    };
    let state = |check: &str| &finding(check)["state"];
    assert_eq!(state("daemon"), "acts");
    assert_eq!(state("knobs"), "acts");
    let agent = finding("agent 77")["detail"].as_str().unwrap();
    assert!(agent.contains("sway (pid 70) reports the focus"), "{agent}");
    assert_eq!(state("response windows"), "acts");
    assert_eq!(state("window source control socket"), "acts");
    assert_eq!(state("mechanism windows"), "acts");
    assert_eq!(state("premap library"), "missing");
    assert_eq!(finding("boost nice")["part"], "boost");
    // The daemon of this test does not use the device.
    assert_ne!(state("kernel support"), "acts");
    for name in MechanismId::ALL.map(MechanismId::name) {
        assert_ne!(*state(&format!("mechanism {name}")), "ready", "{name}");
    }
}

#[test]
fn missing_source_is_a_note_while_others_work() {
    let mut status = status();
    let waiting = |pid| AgentStatus {
        pid,
        uid: 1000,
        source: None,
        detail: "waiting for a compositor".into(),
        passed_over: Vec::new(),
        facilities: Vec::new(),
    };
    status.agents.push(waiting(78));
    status.window.sources.push(SourceStatus {
        name: "evdev".into(),
        state: State::Unavailable,
        detail: "no /dev/input".into(),
    });
    let states = |status: Status| {
        let daemon = TestDaemon::answering(Response::Status(Box::new(status)));
        let output = doctor(&daemon, &["--json"]);
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        move |check: &str| {
            let mut all = findings.iter();
            let found = all.find(|one| one["check"] == check).expect(check);
            found["state"].as_str().unwrap().to_owned()
        }
    };
    let state = states(status.clone());
    assert_eq!(state("agent 77"), "acts");
    assert_eq!(state("agent 78"), "note");
    assert_eq!(state("window source evdev"), "note");
    status.agents = vec![waiting(78)];
    assert_eq!(states(status)("agent 78"), "inert");
}

#[test]
fn doctor_has_a_line_for_each_facility_of_the_agent() {
    let lines = |status: Status| {
        let daemon = TestDaemon::answering(Response::Status(Box::new(status)));
        let output = doctor(&daemon, &["--json"]);
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        [NOTIFICATIONS, SOUND, VIDEO].map(|check| {
            let mut all = findings.iter().filter(|one| one["check"] == check);
            let one = all.next().expect(check);
            assert!(all.next().is_none(), "{check}");
            (
                one["state"].as_str().unwrap().to_owned(),
                one["detail"].to_string(),
            )
        })
    };
    let [notifications, sound, video] = lines(status());
    let states = [&*notifications.0, &*sound.0, &*video.0];
    assert_eq!(states, ["acts", "acts", "note"]);
    assert!(notifications.1.contains("mako"), "{}", notifications.1);

    let mut without = status();
    without.agents[0].facilities = vec![
        facility(NOTIFICATIONS, State::Off, "--no-notifications"),
        facility(
            SOUND,
            State::Unavailable,
            "PipeWire runs without pipewire-pulse",
        ),
        facility(VIDEO, State::Unavailable, "PipeWire does not answer"),
    ];
    let [notifications, sound, video] = lines(without.clone());
    let states = [&*notifications.0, &*sound.0, &*video.0];
    assert_eq!(states, ["off", "inert", "inert"]);
    assert!(sound.1.contains("closed first"), "{}", sound.1);
    assert!(video.1.contains("records the screen"), "{}", video.1);

    without.agents[0].facilities.clear();
    assert_eq!(
        lines(without.clone()).map(|(state, _)| state),
        ["note", "note", "note"]
    );
    without.agents.clear();
    let [notifications, sound, video] = lines(without);
    let states = [&*notifications.0, &*sound.0, &*video.0];
    assert_eq!(states, ["inert", "inert", "inert"]);
    assert!(sound.1.contains("no session agent"), "{}", sound.1);
}

#[test]
fn doctor_marks_a_guess_as_guessed() {
    let finding = |source: &str| {
        let mut status = status();
        let topmost = status.topmost.as_mut().expect("a foreground app");
        topmost.source = source.into();
        let daemon = TestDaemon::answering(Response::Status(Box::new(status)));
        let output = doctor(&daemon, &["--json"]);
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        findings
            .into_iter()
            .find(|one| one["check"] == "foreground app")
    };
    assert_eq!(finding("sway"), None);
    let guess = finding("wake-graph").expect("a finding");
    assert_eq!(guess["state"], "note");
    assert!(
        guess["detail"].as_str().unwrap().contains("inferred"),
        "{guess}"
    );
    assert!(
        guess["cure"].as_str().unwrap().contains("limelight-agent"),
        "{guess}"
    );
}

#[test]
fn doctor_without_a_daemon_reports_what_the_machine_supports() {
    let dir = tempfile::tempdir().unwrap();
    let output = limelight()
        .arg("--socket")
        .arg(dir.path().join("control.sock"))
        .arg("doctor")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = text(&output.stdout);
    assert!(text.contains("limelightd does not answer"), "{text}");
    assert!(text.contains("ready    readahead"), "{text}");
    assert!(text.contains("start it with"), "{text}");
    assert!(!text.contains('\u{1b}'), "colours are only for terminals");
}
