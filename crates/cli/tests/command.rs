// SPDX-License-Identifier: GPL-2.0-or-later
//! The program as a whole, against a daemon that the test plays.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use assert_cmd::Command;
use limelight_core::control::{
    AppLatency, AppStatus, Change, DeviceStatus, ErrorCode, Explain, FocusTarget, KernelWindows,
    LatencyReport, MechanismStatus, MemoryStatus, OpenWindow, Outcome, Request, Response, Role,
    SourceStatus, State, Status, TopmostStatus, WindowEvent, WindowStatus, WindowTallies, PROTOCOL,
};

/// A daemon that answers one request, and what it was asked.
struct Daemon {
    dir: tempfile::TempDir,
    thread: JoinHandle<Request>,
}

impl Daemon {
    fn answering(response: Response) -> Self {
        Self::sending(serde_json::to_string(&response).unwrap() + "\n")
    }

    fn sending(answer: String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            serde_json::from_str(&line).unwrap()
        });
        Daemon { dir, thread }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("control.sock")
    }

    fn limelight(&self, args: &[&str]) -> assert_cmd::assert::Assert {
        limelight()
            .arg("--socket")
            .arg(self.socket())
            .args(args)
            .assert()
    }

    fn request(self) -> Request {
        self.thread.join().unwrap()
    }
}

fn limelight() -> Command {
    Command::cargo_bin("limelight").unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn app() -> AppStatus {
    AppStatus {
        name: "viewer".into(),
        pid: Some(4242),
        cgroup: Some("/user.slice/app-viewer.scope".into()),
        own_cgroup: true,
    }
}

fn change() -> Change {
    Change {
        knob: "/user.slice/app-viewer.scope/memory.min".into(),
        from: "0".into(),
        to: "104857600".into(),
        rule: "working set 80 MiB + a quarter".into(),
        at_ms: 0,
        outcome: Outcome::Applied,
        undone_by: "focus on another app".into(),
    }
}

fn latency() -> AppLatency {
    AppLatency {
        name: "viewer".into(),
        answers: 40,
        late: 1,
        unanswered: 2,
        p50_us: 850,
        p95_us: 12_400,
        p99_us: 730_000,
        max_us: 1_730_000,
        deadline_ms: 500,
    }
}

fn status() -> Status {
    Status {
        version: "0.1.0".into(),
        protocol: PROTOCOL,
        pid: 99,
        uptime_ms: 61_000,
        dry_run: false,
        topmost: Some(TopmostStatus {
            app: app(),
            source: "x11".into(),
            for_ms: 12_000,
            members: 3,
            demoted_in_ms: None,
        }),
        previous: None,
        sources: vec![SourceStatus {
            name: "explicit".into(),
            state: State::Idle,
            detail: "control socket".into(),
        }],
        mechanisms: ["protect", "boost", "readahead", "premap", "prezero", "swap"]
            .map(|name| MechanismStatus {
                name: name.into(),
                state: State::Active,
                detail: "memory.min on its cgroup".into(),
            })
            .into(),
        window: WindowStatus {
            state: State::Active,
            detail: "told by x11".into(),
            open: Some(OpenWindow {
                app: "viewer".into(),
                for_us: 12_000,
                ends_in_us: 488_000,
                inputs: 1,
            }),
            kernel: KernelWindows {
                state: State::Active,
                detail: "told through /dev/limelight".into(),
                opened: 40,
                closed: 38,
                failed: 0,
            },
            sources: vec![SourceStatus {
                name: "control socket".into(),
                state: State::Active,
                detail: "1 session agents".into(),
            }],
            tallies: WindowTallies {
                opened: 43,
                answered: 39,
                late: 1,
                unanswered: 2,
                ..WindowTallies::default()
            },
            topmost: Some(latency()),
        },
        memory: MemoryStatus {
            total: 8 << 30,
            budget: 4 << 30,
            ..MemoryStatus::default()
        },
        device: DeviceStatus::Unused {
            why: "absent".into(),
        },
        changes: vec![change()],
    }
}

#[test]
fn status_tells_who_is_in_front_and_what_protects_it() {
    let daemon = Daemon::answering(Response::Status(Box::new(status())));
    let out = daemon.limelight(&["status"]).success();
    let out = text(&out.get_output().stdout);
    assert!(
        out.contains("viewer (pid 4242), for 12 s, named by x11, 3 processes"),
        "{out}"
    );
    assert!(out.contains("memory.min: 0 -> 100 MiB"), "{out}");
    assert!(
        out.contains("because  working set 80 MiB + a quarter"),
        "{out}"
    );
    assert!(
        out.contains("viewer answers within p50 850 us, p95 12.4 ms, p99 730 ms (40 answers)"),
        "{out}"
    );
    assert!(out.contains("open for viewer for 12.0 ms"), "{out}");
    assert_eq!(daemon.request(), Request::Status);
}

#[test]
fn latency_lists_apps_or_one() {
    let report = LatencyReport {
        apps: vec![latency()],
    };
    let daemon = Daemon::answering(Response::Latency(report.clone()));
    let out = daemon.limelight(&["latency"]).success();
    let out = text(&out.get_output().stdout);
    let words: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
    let wanted = "viewer 40 850 us 12.4 ms 730 ms 1.73 s 1 2";
    assert_eq!(words.join(" "), wanted, "{out}");
    assert_eq!(daemon.request(), Request::Latency { app: None });

    let daemon = Daemon::answering(Response::Latency(report.clone()));
    let out = daemon.limelight(&["latency", "viewer", "--json"]).success();
    let told = serde_json::from_slice::<LatencyReport>(&out.get_output().stdout).unwrap();
    assert_eq!(told, report);
    let app = Some("viewer".to_owned());
    assert_eq!(daemon.request(), Request::Latency { app });

    let nobody = Daemon::answering(Response::Latency(LatencyReport { apps: vec![] }));
    let out = nobody.limelight(&["latency"]).success();
    assert!(text(&out.get_output().stdout).contains("no app has answered"));
}

#[test]
fn a_window_is_opened_and_closed_by_a_word() {
    for (args, event, pid) in [
        (&["window", "open"][..], WindowEvent::Open, None),
        (
            &["window", "close", "--pid", "7"],
            WindowEvent::Close,
            Some(7),
        ),
    ] {
        let daemon = Daemon::answering(Response::Ok {
            message: "noted".into(),
        });
        daemon.limelight(args).success().stdout("noted\n");
        let source = "cli".to_owned();
        assert_eq!(
            daemon.request(),
            Request::Window {
                event,
                at_us: None,
                pid,
                source
            }
        );
    }
}

#[test]
fn status_as_json_is_the_daemons_answer_with_the_kernels_counters() {
    let daemon = Daemon::answering(Response::Status(Box::new(status())));
    let out = daemon.limelight(&["--json", "status"]).success();
    let value: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(value["topmost"]["pid"], 4242);
    assert_eq!(value["topmost"]["source"], "x11");
    assert!(value["counters"].is_object());
    assert_eq!(serde_json::from_value::<Status>(value).unwrap(), status());
}

#[test]
fn focus_takes_a_pid_a_cgroup_or_none() {
    for (args, target) in [
        (vec!["focus", "4242"], FocusTarget::Pid(4242)),
        (
            vec!["focus", "--cgroup", "/a/b"],
            FocusTarget::Cgroup("/a/b".into()),
        ),
        (vec!["focus", "--none"], FocusTarget::None),
    ] {
        let daemon = Daemon::answering(Response::Ok {
            message: "so be it".into(),
        });
        daemon.limelight(&args).success().stdout("so be it\n");
        let source = "cli".to_owned();
        assert_eq!(
            daemon.request(),
            Request::Focus {
                target,
                source,
                hold: false
            }
        );
    }
}

#[test]
fn wrong_usage_is_told_before_anyone_is_asked() {
    for args in [
        &["focus"][..],
        &["focus", "0"],
        &["focus", "-5"],
        &["focus", "1", "--none"],
        &["explain"],
        &["explain", "x"],
        &["dance"],
        &["window"],
        &["window", "ajar"],
    ] {
        limelight().args(args).assert().code(2);
    }
}

#[test]
fn each_refusal_has_its_exit_code_and_its_cure() {
    for (code, exit) in [
        (ErrorCode::NotFound, 5),
        (ErrorCode::NotAllowed, 4),
        (ErrorCode::NotAnApp, 4),
        (ErrorCode::Busy, 4),
        (ErrorCode::BadRequest, 4),
        (ErrorCode::Internal, 1),
    ] {
        let daemon = Daemon::answering(Response::Error {
            code,
            message: "pid 4242: no".into(),
            cure: "ask nicely".into(),
        });
        let out = daemon.limelight(&["focus", "4242"]).code(exit);
        let err = text(&out.get_output().stderr);
        assert!(
            err.contains("pid 4242: no") && err.contains("ask nicely"),
            "{err}"
        );
    }
}

#[test]
fn without_a_daemon_the_cure_is_to_start_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    for command in [&["status"][..], &["focus", "--none"], &["explain", "1"]] {
        let out = limelight()
            .arg("--socket")
            .arg(&socket)
            .args(command)
            .assert()
            .code(3);
        let err = text(&out.get_output().stderr);
        assert!(
            err.contains("does not run") && err.contains("start it"),
            "{err}"
        );
    }
    // A dead daemon leaves its socket behind.
    drop(UnixListener::bind(&socket).unwrap());
    let out = limelight()
        .arg("--socket")
        .arg(&socket)
        .arg("status")
        .assert()
        .code(3);
    assert!(text(&out.get_output().stderr).contains("does not run"));
}

#[test]
fn a_daemon_of_another_version_is_suspected() {
    let daemon = Daemon::sending("{\"result\":\"riddle\"}\n".into());
    let out = daemon.limelight(&["status"]).code(1);
    assert!(text(&out.get_output().stderr).contains("same version"));
    let daemon = Daemon::sending(String::new());
    let out = daemon.limelight(&["status"]).code(1);
    assert!(text(&out.get_output().stderr).contains("without an answer"));
}

#[test]
fn explain_tells_each_knob_and_the_way_back() {
    let explain = Explain {
        pid: 4242,
        name: "view\u{1b}er".into(),
        role: Role::Topmost,
        app: Some(app()),
        source: Some("cli".into()),
        changes: vec![change()],
        notes: vec!["shared pages are not reached".into()],
    };
    let daemon = Daemon::answering(Response::Explain(Box::new(explain)));
    let out = daemon.limelight(&["explain", "4242"]).success();
    let out = text(&out.get_output().stdout);
    assert!(out.contains("in front, named by cli"), "{out}");
    assert!(out.contains("undo     focus on another app"), "{out}");
    assert!(out.contains("shared pages are not reached"), "{out}");
    assert!(
        !out.contains('\u{1b}'),
        "a name must not drive the terminal: {out:?}"
    );
    assert_eq!(daemon.request(), Request::Explain { pid: 4242 });
}

fn doctor(daemon: &Daemon, args: &[&str]) -> std::process::Output {
    // No machine has the library there, so that there is something to be strict about.
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
    let daemon = Daemon::answering(Response::Status(Box::new(status())));
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
    assert_eq!(state("response windows"), "acts");
    assert_eq!(state("window source control socket"), "acts");
    assert_eq!(state("mechanism windows"), "acts");
    assert_eq!(state("premap library"), "missing");
    assert_eq!(finding("boost nice")["part"], "boost");
    // The daemon that the test plays does not use the device.
    assert_ne!(state("kernel support"), "acts");
    for name in ["protect", "boost", "readahead", "premap", "prezero", "swap"] {
        assert_ne!(*state(&format!("mechanism {name}")), "ready", "{name}");
    }
}

#[test]
fn doctor_without_a_daemon_says_what_the_machine_could_do() {
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
    assert!(!text.contains('\u{1b}'), "no colours but on a terminal");
}

#[test]
fn each_value_is_shown_with_where_it_comes_from() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("limelight.toml");
    std::fs::write(&file, "[boost]\nio_level = 3\n").unwrap();
    let shown = Command::cargo_bin("limelight")
        .unwrap()
        .args(["config", "show"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(shown.status.success());
    let text = String::from_utf8(shown.stdout).unwrap();
    let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap();
    assert!(
        line("io_level").ends_with(&format!("3  ({}:2)", file.display())),
        "{text}"
    );
    assert!(line("cpu_weight").ends_with("10000  (default)"), "{text}");
    assert!(
        line("block_device").ends_with("not set  (default)"),
        "{text}"
    );
}

#[test]
fn a_wrong_configuration_is_told_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limelight.toml");
    std::fs::write(&file, "").unwrap();
    limelight()
        .args(["config", "check"])
        .arg(&file)
        .assert()
        .success()
        .stdout("no mistake\n");
    std::fs::write(&file, "[protect]\nbugdet_percent = 3\n").unwrap();
    let out = limelight()
        .args(["config", "check"])
        .arg(&file)
        .assert()
        .code(1);
    let err = text(&out.get_output().stderr);
    assert!(
        err.contains("limelight.toml:2:") && err.contains("bugdet_percent"),
        "{err}"
    );
}

#[test]
fn manual_and_completions_cover_every_command() {
    let dir = tempfile::tempdir().unwrap();
    limelight().arg("man").arg(dir.path()).assert().success();
    for page in [
        "limelight.1",
        "limelight-status.1",
        "limelight-focus.1",
        "limelight-doctor.1",
    ] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let out = limelight().args(["completions", shell]).assert().success();
        assert!(
            text(&out.get_output().stdout).contains("explain"),
            "{shell}"
        );
    }
    let missing = dir.path().join("none");
    limelight().arg("man").arg(missing).assert().code(1);
}

#[test]
fn run_without_the_library_says_where_it_looked() {
    let output = limelight()
        .env("LIMELIGHT_PREMAP_LIBRARY", "/no/such/library.so")
        .args(["run", "--premap", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/no/such/library.so"), "{said}");
    assert!(said.contains("LIMELIGHT_PREMAP_LIBRARY"), "{said}");
}

#[test]
fn run_becomes_the_program_with_the_library_before_others() {
    // The dynamic linker passes over a library that is none.
    let library = tempfile::NamedTempFile::new().unwrap();
    let run = |program: &[&str]| {
        limelight()
            .env("LIMELIGHT_PREMAP_LIBRARY", library.path())
            .env("LD_PRELOAD", "/other.so")
            .args(["run", "--premap", "--"])
            .args(program)
            .output()
            .unwrap()
    };
    let output = run(&["sh", "-c", "echo $LD_PRELOAD; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let expected = format!("{}:/other.so\n", library.path().display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);

    let output = run(&["no-such-program-anywhere"]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no-such-program-anywhere"), "{said}");
}
