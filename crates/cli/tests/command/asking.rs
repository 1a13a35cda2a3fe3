// SPDX-License-Identifier: GPL-2.0-or-later
//! Commands that send one request to the daemon.

use std::os::unix::net::UnixListener;

use limelight_proto::{
    AppLatency, ErrorCode, Explain, FocusTarget, LatencyReport, Pause, Request, Response, Role,
    Status, WindowEvent,
};

use crate::daemon::{app, change, latency, limelight, status, text, TestDaemon};
#[test]
fn status_shows_the_foreground_app_and_its_protection() {
    let daemon = TestDaemon::answering(Response::Status(Box::new(status())));
    let out = daemon.limelight(&["status"]).success();
    let out = text(&out.get_output().stdout);
    assert!(
        out.contains("viewer (pid 4242), for 12 s, reported by x11, 3 processes"),
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

const HIDDEN: &str = "the activity of other users' apps is shown only to their owners and root";

#[test]
fn name_with_a_newline_forges_no_line() {
    const NAME: &str = "viewer\nprevious  bank (pid 1)\u{1b}[2J";
    let mut forged = status();
    if let Some(topmost) = &mut forged.topmost {
        topmost.app.name = NAME.to_owned();
    }
    forged.changes[0].rule = format!("protect: {NAME}");
    let message = format!("{NAME} is in the foreground");
    let refused = Response::Error {
        code: ErrorCode::NotAllowed,
        message: format!("{NAME} belongs to another user"),
        cure: format!("ask {NAME}"),
        retry_ms: None,
    };
    for (arguments, answer, code) in [
        (&["status"][..], Response::Status(Box::new(forged)), 0),
        (&["focus", "7"], Response::Ok { message }, 0),
        (&["focus", "7"], refused, 4),
    ] {
        let daemon = TestDaemon::answering(answer);
        let out = daemon.limelight(arguments).code(code);
        let out = out.get_output();
        let out = text(&out.stdout) + &text(&out.stderr);
        assert!(out.contains("viewer\\nprevious"), "{out}");
        let forged = |line: &str| line.starts_with("previous") || line.contains('\u{1b}');
        assert!(!out.lines().any(forged), "{out}");
    }
}

#[test]
fn hidden_data_is_mentioned() {
    let hidden = || Some(HIDDEN.to_owned());
    let foreign = Status {
        topmost: None,
        changes: Vec::new(),
        hidden: hidden(),
        ..status()
    };
    for (arguments, answer) in [
        (&["status"][..], Response::Status(Box::new(foreign))),
        (
            &["class", "list"],
            Response::Apps {
                apps: Vec::new(),
                hidden: hidden(),
            },
        ),
        (
            &["latency"],
            Response::Latency(LatencyReport {
                apps: Vec::new(),
                hidden: hidden(),
            }),
        ),
        (
            &["history"],
            Response::History {
                entries: Vec::new(),
                paused: None,
                hidden: hidden(),
            },
        ),
    ] {
        let daemon = TestDaemon::answering(answer);
        let out = daemon.limelight(arguments).success();
        let out = text(&out.get_output().stdout);
        assert!(out.contains(HIDDEN), "{arguments:?}: {out}");
    }
}

#[test]
fn pause_has_a_length_in_words_and_resume_has_none() {
    let paused = || Response::Ok {
        message: "paused for 600 s: all changes are undone".to_owned(),
    };
    for (arguments, for_ms) in [
        (&["pause", "10m"][..], Some(600_000)),
        (&["pause", "90"], Some(90_000)),
        (&["pause"], None),
    ] {
        let daemon = TestDaemon::answering(paused());
        let out = daemon.limelight(arguments).success();
        let out = text(&out.get_output().stdout);
        assert_eq!(out, "paused for 600 s: all changes are undone\n");
        assert_eq!(daemon.request(), Request::Pause { for_ms });
    }
    let message = "resumed".to_owned();
    let daemon = TestDaemon::answering(Response::Ok { message });
    daemon.limelight(&["resume"]).success();
    assert_eq!(daemon.request(), Request::Resume);
    limelight().args(["pause", "10x"]).assert().code(2);
}

#[test]
fn every_view_says_that_the_daemon_is_paused() {
    let pause = Pause {
        for_ms: 10_000,
        left_ms: Some(290_000),
    };
    let status = || {
        let paused = Some(pause);
        let state = Status { paused, ..status() };
        Response::Status(Box::new(state))
    };
    let history = || Response::History {
        entries: Vec::new(),
        paused: Some(pause),
        hidden: None,
    };
    let apps = || Response::Apps {
        apps: Vec::new(),
        hidden: None,
    };
    let latency = || {
        Response::Latency(LatencyReport {
            apps: Vec::new(),
            hidden: None,
        })
    };
    const WORDS: &str = "paused, 4 min 50 s left";
    for (arguments, answers, expected) in [
        (&["status"][..], vec![status()], WORDS),
        (&["history"], vec![history()], WORDS),
        (&["doctor"], vec![status()], WORDS),
        (
            &["top", "--once"],
            vec![status(), apps(), latency(), history()],
            WORDS,
        ),
        (
            &["metrics"],
            vec![status(), apps(), latency()],
            "limelight_paused 1\n",
        ),
        (
            &["metrics"],
            vec![status(), apps(), latency()],
            "limelight_pause_left_seconds 290.0\n",
        ),
    ] {
        let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
        let daemon = TestDaemon::sending_each(answers.iter().map(line).collect());
        let assert = limelight()
            .arg("--socket")
            .arg(daemon.socket())
            .args(arguments)
            .assert();
        let out = text(&assert.get_output().stdout);
        assert!(out.contains(expected), "{arguments:?}: {out}");
    }
}

#[test]
fn latency_lists_apps_or_one() {
    let report = LatencyReport {
        apps: vec![latency()],
        hidden: None,
    };
    let daemon = TestDaemon::answering(Response::Latency(report.clone()));
    let out = daemon.limelight(&["latency"]).success();
    let out = text(&out.get_output().stdout);
    let words: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
    let wanted = "viewer 40 850 us 12.4 ms 730 ms 1.73 s 1 2";
    assert_eq!(words.join(" "), wanted, "{out}");
    assert_eq!(daemon.request(), Request::Latency { app: None });

    let daemon = TestDaemon::answering(Response::Latency(report.clone()));
    let out = daemon.limelight(&["latency", "viewer", "--json"]).success();
    let printed = serde_json::from_slice::<LatencyReport>(&out.get_output().stdout).unwrap();
    assert_eq!(printed, report);
    let app = Some("viewer".to_owned());
    assert_eq!(daemon.request(), Request::Latency { app });

    let without_answers = TestDaemon::answering(Response::Latency(LatencyReport {
        apps: vec![],
        hidden: None,
    }));
    let out = without_answers.limelight(&["latency"]).success();
    assert!(text(&out.get_output().stdout).contains("no app has answered"));
}

#[test]
fn window_show_sends_no_event() {
    let daemon = TestDaemon::answering(Response::Status(Box::new(status())));
    let out = daemon.limelight(&["window", "show"]).success();
    let told = text(&out.get_output().stdout);
    assert!(told.contains("open for viewer for 12.0 ms"), "{told}");
    assert!(told.contains("control socket"), "{told}");
    assert_eq!(daemon.request(), Request::Status);
}

#[test]
fn window_commands_send_events() {
    for (args, event, pid) in [
        (&["window", "open"][..], WindowEvent::Open, None),
        (
            &["window", "close", "--pid", "7"],
            WindowEvent::Close,
            Some(7),
        ),
    ] {
        let daemon = TestDaemon::answering(Response::Ok {
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
    let daemon = TestDaemon::answering(Response::Status(Box::new(status())));
    let out = daemon.limelight(&["--json", "status"]).success();
    let value: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!(value["foreground"]["pid"], 4242);
    assert_eq!(value["foreground"]["source"], "x11");
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
        let daemon = TestDaemon::answering(Response::Ok {
            message: "done".into(),
        });
        daemon.limelight(&args).success().stdout("done\n");
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
fn wrong_usage_is_reported_before_the_daemon_is_asked() {
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
        let daemon = TestDaemon::answering(Response::Error {
            code,
            message: "pid 4242: no".into(),
            cure: "ask nicely".into(),
            retry_ms: None,
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
fn cure_without_a_daemon_is_to_start_it() {
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
            err.contains("is not running") && err.contains("start it"),
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
    assert!(text(&out.get_output().stderr).contains("is not running"));
}

#[test]
fn unparsable_answer_suggests_another_version() {
    let daemon = TestDaemon::sending("{\"result\":\"riddle\"}\n".into());
    let out = daemon.limelight(&["status"]).code(1);
    assert!(text(&out.get_output().stderr).contains("same version"));
    let daemon = TestDaemon::sending(String::new());
    let out = daemon.limelight(&["status"]).code(1);
    assert!(text(&out.get_output().stderr).contains("without an answer"));
}

#[test]
fn explain_shows_each_knob_and_its_undo() {
    let explain = Explain {
        pid: 4242,
        name: "view\u{1b}er".into(),
        role: Role::Topmost,
        app: Some(app()),
        source: Some("cli".into()),
        changes: vec![change()],
        notes: vec!["shared pages are not reached".into()],
    };
    let daemon = TestDaemon::answering(Response::Explain(Box::new(explain)));
    let out = daemon.limelight(&["explain", "4242"]).success();
    let out = text(&out.get_output().stdout);
    assert!(out.contains("in the foreground, reported by cli"), "{out}");
    assert!(out.contains("undo     focus on another app"), "{out}");
    assert!(out.contains("shared pages are not reached"), "{out}");
    assert!(
        !out.contains('\u{1b}'),
        "a name must not control the terminal: {out:?}"
    );
    assert_eq!(daemon.request(), Request::Explain { pid: 4242 });
}

#[test]
fn failure_with_json_is_json_with_its_cure() {
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
fn busy_daemon_is_asked_again_after_its_retry_time() {
    let busy = Response::Error {
        code: ErrorCode::Busy,
        message: "uid 1000 sends too many requests".into(),
        cure: "ask again in 30 ms".into(),
        retry_ms: Some(30),
    };
    let line = |answer: &Response| serde_json::to_string(answer).unwrap() + "\n";
    let answers = vec![line(&busy), line(&Response::Status(Box::new(status())))];
    let daemon = TestDaemon::sending_each(answers);
    let out = daemon.limelight(&["status"]).success();
    assert!(text(&out.get_output().stdout).contains("viewer"));

    let busy = Response::Error {
        code: ErrorCode::Busy,
        message: "uid 1000 sends too many requests".into(),
        cure: "ask again in 9000 ms".into(),
        retry_ms: Some(9000),
    };
    let daemon = TestDaemon::answering(busy);
    let out = daemon.limelight(&["--timeout", "1", "status"]).code(4);
    assert!(text(&out.get_output().stderr).contains("ask again in 9000 ms"));
}

#[test]
fn app_without_answers_is_said_so() {
    let none = AppLatency {
        answers: 0,
        p50_us: 0,
        p95_us: 0,
        p99_us: 0,
        max_us: 0,
        ..latency()
    };
    let mut known = status();
    known.window.topmost = Some(none.clone());
    let report = LatencyReport {
        apps: vec![none],
        hidden: None,
    };
    let nothing = LatencyReport {
        apps: Vec::new(),
        hidden: None,
    };
    for (arguments, answer, part) in [
        (
            &["status"][..],
            Response::Status(Box::new(known)),
            "viewer: no answers yet",
        ),
        (&["latency"], Response::Latency(report), "-"),
        (
            &["latency", "viewer"],
            Response::Latency(nothing),
            "viewer: no answers yet",
        ),
    ] {
        let daemon = TestDaemon::answering(answer);
        let out = daemon.limelight(arguments).success();
        let out = text(&out.get_output().stdout);
        assert!(out.contains(part) && !out.contains("0 us"), "{out}");
    }
}

#[test]
fn number_of_entries_has_one_name_and_its_old_one() {
    for argument in ["--entries", "-n", "--last"] {
        let daemon = TestDaemon::answering(Response::History {
            entries: Vec::new(),
            paused: None,
            hidden: None,
        });
        daemon.limelight(&["history", argument, "3"]).success();
        assert_eq!(daemon.request(), Request::History { last: 3 });
    }
}
