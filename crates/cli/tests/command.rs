// SPDX-License-Identifier: GPL-2.0-or-later
//! The program as a whole, against a daemon that the test plays.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread::JoinHandle;

use assert_cmd::Command;
use limelight_core::control::{
    AgentStatus, AppLatency, AppReport, AppStatus, Change, DeviceStatus, ErrorCode, Explain,
    FocusTarget, KernelWindows, LatencyReport, MechanismStatus, MemoryStatus, OpenWindow, Outcome,
    Request, Response, Role, SourceStatus, Stall, Stalls, State, Status, TopmostStatus,
    WindowEvent, WindowStatus, WindowTallies, PROTOCOL,
};
use limelight_core::model::class::Class;
use limelight_core::model::shortage::Level;

/// A daemon that answers requests, and what it was asked.
struct Daemon {
    dir: tempfile::TempDir,
    thread: JoinHandle<Request>,
}

impl Daemon {
    fn answering(response: Response) -> Self {
        Self::sending(serde_json::to_string(&response).unwrap() + "\n")
    }

    fn sending(answer: String) -> Self {
        Self::sending_each(vec![answer])
    }

    /// Answers the requests of one connection in order, and keeps the last of them.
    fn sending_each(answers: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            let mut last = String::new();
            for answer in answers {
                last = lines.next().unwrap().unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
            }
            serde_json::from_str(&last).unwrap()
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
        agents: vec![AgentStatus {
            pid: 77,
            uid: 1000,
            source: Some("sway".into()),
            detail: "sway (pid 70) says it".into(),
            passed_over: Vec::new(),
        }],
        mechanisms: ["protect", "boost", "readahead", "premap", "prezero", "swap"]
            .map(|name| MechanismStatus {
                name: name.into(),
                state: State::Active,
                detail: "memory.min on its cgroup".into(),
                counters: match name {
                    "swap" => [
                        ("killed".to_owned(), 3),
                        ("killed_bytes".to_owned(), 1 << 30),
                    ]
                    .into(),
                    _ => BTreeMap::new(),
                },
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
            protected: 100 << 20,
            level: Some(Level::Swap),
            ..MemoryStatus::default()
        },
        stalls: Stalls {
            io: Some(Stall {
                some: 12.5,
                full: None,
            }),
            ..Stalls::default()
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

fn app_report(class: Class) -> AppReport {
    AppReport {
        app: app(),
        uid: 1000,
        role: Role::Background,
        class,
        why: "so it is".into(),
        set_by: None,
        last_topmost_ms: Some(1),
        started_ms: 0,
        uses: vec![],
        untouchable: None,
        processes: 1,
        resident: 40 << 20,
        anonymous: 30 << 20,
        swapped: 1 << 20,
        frozen: false,
        exempt: false,
        desktop_id: None,
        executable: None,
        package: None,
        categories: vec![],
    }
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let daemon = || {
        let answers = [
            Response::Status(Box::new(status())),
            Response::Apps {
                apps: vec![app_report(Class::Normal), app_report(Class::Normal)],
            },
            Response::Latency(LatencyReport {
                apps: vec![latency()],
            }),
        ];
        let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
        Daemon::sending_each(answers.iter().map(line).collect())
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
    // Each sample's name has been announced, and nothing but comments and samples is there.
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
fn top_is_a_text_where_nobody_can_look() {
    let daemon = || {
        let answers = [
            Response::Status(Box::new(status())),
            Response::Apps {
                apps: vec![app_report(Class::Keep)],
            },
            Response::Latency(LatencyReport {
                apps: vec![latency()],
            }),
            Response::History { entries: vec![] },
        ];
        let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
        Daemon::sending_each(answers.iter().map(line).collect())
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

#[test]
fn the_window_is_shown_and_not_touched() {
    let daemon = Daemon::answering(Response::Status(Box::new(status())));
    let out = daemon.limelight(&["window", "show"]).success();
    let told = text(&out.get_output().stdout);
    assert!(told.contains("open for viewer for 12.0 ms"), "{told}");
    assert!(told.contains("control socket"), "{told}");
    assert_eq!(daemon.request(), Request::Status);
}

#[test]
fn with_json_a_failure_is_json_with_its_cure() {
    let output = limelight()
        .args(["--socket", "/no/such.sock", "status", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let told: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(told["code"], 3);
    assert!(told["error"].as_str().unwrap().contains("/no/such.sock"));
    assert!(told["cure"].as_str().unwrap().contains("start it"));
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
        &["run"],
        &["run", "--class=royal", "--", "true"],
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
    let out = limelight()
        .args(["config", "check", "--json"])
        .arg(&file)
        .assert()
        .code(1);
    let told: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(told["mistakes"][0]["line"], 2);
}

#[test]
fn manual_and_completions_cover_every_command() {
    let dir = tempfile::tempdir().unwrap();
    limelight().arg("man").arg(dir.path()).assert().success();
    for command in [
        "",
        "-status",
        "-top",
        "-explain",
        "-doctor",
        "-focus",
        "-window",
        "-class",
        "-class-list",
        "-class-set",
        "-class-why",
        "-history",
        "-latency",
        "-listen",
        "-run",
        "-config",
        "-config-check",
        "-config-show",
        "-metrics",
        "-completions",
    ] {
        let page = format!("limelight{command}.1");
        let text = std::fs::read_to_string(dir.path().join(&page)).expect(&page);
        assert!(
            text.contains(".SH SYNOPSIS") && text.contains(".SH DESCRIPTION"),
            "{page}"
        );
    }
    // What is for packagers alone has none.
    assert!(!dir.path().join("limelight-man.1").exists());
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
fn a_class_needs_a_scope_to_be_an_app_s() {
    let output = limelight()
        .env("PATH", "/nowhere")
        .args(["run", "--class=disposable", "--", "/bin/sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("systemd-run") && said.contains("leave out --class"),
        "{said}"
    );
    // Without a wish that needs one, the program runs all the same.
    let output = limelight()
        .env("PATH", "/nowhere")
        .args(["run", "--", "/bin/sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("no scope of its own"));
    limelight()
        .args(["run", "--class=keep", "--no-scope", "--", "true"])
        .assert()
        .code(2);
}

#[test]
fn inside_its_scope_a_program_is_given_its_class_and_becomes_itself() {
    let daemon = Daemon::answering(Response::Ok {
        message: "done".into(),
    });
    daemon
        .limelight(&[
            "run",
            "--inside",
            "--class=keep",
            "--",
            "/bin/sh",
            "-c",
            "exit 7",
        ])
        .code(7);
    let Request::Class { pid, class } = daemon.request() else {
        panic!("no class was set");
    };
    assert!(pid > 1 && class == Some(Class::Keep));
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
