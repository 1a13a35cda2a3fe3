// SPDX-License-Identifier: GPL-2.0-or-later
//! What the commands print with `--json` is valid by the published schemas.

use std::path::Path;

use limelight_proto::{
    AppReport, Avoid, Class, Decision, Exception, Explain, HistoryEntry, LatencyReport, Level,
    MemoryAction, MemoryThen, Never, Notice, Response, Role, Use, Weighed,
};
use serde_json::Value;

use crate::daemon::{app, app_report, change, latency, limelight, status, TestDaemon};

/// Asserts that a text is valid by a schema.
fn assert_valid(schema: &str, text: &[u8]) {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/integrator/schema");
    let file = Path::new(directory).join(schema).with_extension("json");
    let rules: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&rules).unwrap();
    let value: Value = serde_json::from_slice(text).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{schema}: {errors:#?}\n{value:#}");
    // The schema refuses something else.
    let other = match value {
        Value::String(_) => Value::Bool(true),
        _ => Value::String("other".to_owned()),
    };
    assert!(!validator.is_valid(&other), "{schema} allows any text");
}

fn memory() -> MemoryThen {
    MemoryThen {
        available: 5 << 20,
        ..MemoryThen::default()
    }
}

fn entry() -> HistoryEntry {
    HistoryEntry {
        unix_ms: 1_700_000_000_000,
        at_ms: 7,
        boot: String::new(),
        action: MemoryAction::Kill,
        app: Some(app()),
        uid: Some(1000),
        class: Some(Class::Normal),
        bytes: 34 << 20,
        took_us: Some(900),
        times: 2,
        for_ms: 3,
        reason: "memory is short".to_owned(),
        memory: memory(),
    }
}

fn apps() -> Vec<AppReport> {
    let marked = AppReport {
        uses: vec![Use::Audio, Use::Video],
        never: vec![Exception {
            never: Never::Close,
            why: "a rule".to_owned(),
            by_owner: true,
        }],
        avoid: Some(Avoid {
            why: "a wish".to_owned(),
            by_owner: false,
        }),
        desktop_id: Some("org.x.Viewer".to_owned()),
        ..app_report(Class::Disposable)
    };
    vec![app_report(Class::Keep), marked]
}

/// Answers of the daemon.
struct Answers {
    status: Response,
    apps: Response,
    latency: Response,
    history: Response,
    explain: Response,
    decision: Response,
    done: Response,
}

fn answers() -> Answers {
    Answers {
        status: Response::Status(Box::new(status())),
        apps: Response::Apps {
            apps: apps(),
            hidden: None,
        },
        latency: Response::Latency(LatencyReport {
            apps: vec![latency()],
            hidden: Some("other users' apps are not shown".to_owned()),
        }),
        history: Response::History {
            entries: vec![entry()],
            paused: None,
            hidden: None,
        },
        explain: Response::Explain(Box::new(Explain {
            pid: 4242,
            name: "viewer".to_owned(),
            role: Role::Topmost,
            app: Some(app()),
            source: Some("sway".to_owned()),
            notes: vec!["a note".to_owned()],
            changes: vec![change()],
        })),
        decision: Response::Decision {
            decision: Some(Box::new(Decision {
                action: MemoryAction::Kill,
                at_ms: 7,
                level: Level::Kill,
                memory: memory(),
                kill_threshold: 1,
                swap_threshold: 2,
                weighed: vec![Weighed {
                    app: app(),
                    uid: None,
                    chosen: true,
                    reason: "used longest ago".to_owned(),
                    class: Class::Normal,
                    used_ms: 3,
                    uses: vec![Use::Unsaved],
                    allocated: 4,
                }],
            })),
            hidden: None,
        },
        done: Response::Ok {
            message: "done".to_owned(),
        },
    }
}

#[test]
fn answers_of_the_daemon_are_valid() {
    let all = answers();
    let none = Response::Decision {
        decision: None,
        hidden: None,
    };
    let top = vec![&all.status, &all.apps, &all.latency, &all.history];
    let metrics = vec![&all.status, &all.apps, &all.latency];
    for (schema, arguments, answers) in [
        ("status", &["status"][..], vec![&all.status]),
        ("top", &["top"], top),
        ("explain", &["explain", "4242"], vec![&all.explain]),
        ("explain-last", &["explain", "--last"], vec![&all.decision]),
        ("explain-last", &["explain", "--last"], vec![&none]),
        ("latency", &["latency"], vec![&all.latency]),
        ("class-list", &["class", "list"], vec![&all.apps]),
        ("class-list", &["class", "why", "4242"], vec![&all.apps]),
        ("history", &["history"], vec![&all.history]),
        ("window-show", &["window", "show"], vec![&all.status]),
        ("metrics", &["metrics"], metrics),
        ("done", &["focus", "4242"], vec![&all.done]),
        ("done", &["pause"], vec![&all.done]),
        ("done", &["resume"], vec![&all.done]),
        ("done", &["class", "set", "4242", "keep"], vec![&all.done]),
        ("done", &["window", "open"], vec![&all.done]),
    ] {
        let line = |answer| serde_json::to_string(answer).unwrap() + "\n";
        let daemon = TestDaemon::sending_each(answers.into_iter().map(line).collect());
        let out = daemon
            .limelight(&[&["--json"], arguments].concat())
            .success();
        assert_valid(schema, &out.get_output().stdout);
    }
}

#[test]
fn each_notice_is_valid() {
    let notices = [
        Notice::Memory {
            level: Level::Kill,
            memory: memory(),
            next: Some(app()),
        },
        Notice::Growing {
            app: app(),
            grown: 7,
        },
        Notice::Done(entry()),
        Notice::Foreground { app: None },
    ];
    let line = |answer: &Response| serde_json::to_string(answer).unwrap() + "\n";
    let mut lines = line(&answers().done);
    lines.extend(notices.into_iter().map(|one| line(&Response::Notice(one))));
    let daemon = TestDaemon::sending(lines);
    // The daemon ends after its last notice.
    let out = daemon.limelight(&["listen", "--json"]).failure();
    let out = out.get_output();
    let lines = out.stdout.split(|byte| *byte == b'\n');
    let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        assert_valid("listen", line);
    }
    assert_valid("failure", &out.stderr);
}

#[test]
fn answers_about_this_machine_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limelight.toml");
    std::fs::write(&file, "profile = \"phone\"\n[readahead]\nfactor = 4\n").unwrap();
    let file = file.to_str().unwrap();
    for (schema, arguments) in [
        ("config-show", &["config", "show"][..]),
        ("config-show", &["config", "show", file]),
        ("config-check", &["config", "check", file]),
        ("doctor", &["doctor"]),
        ("report", &["report"]),
    ] {
        let mut command = limelight();
        command.args(["--socket", "/no/such.sock", "--json"]);
        let out = command.args(arguments).assert();
        assert_valid(schema, &out.get_output().stdout);
    }
    let check = ["--json", "config", "check", file];
    std::fs::write(file, "[protect]\nbugdet_percent = 3\n").unwrap();
    let out = limelight().args(check).assert().failure();
    assert_valid("config-check", &out.get_output().stdout);
    assert_valid("failure", &out.get_output().stderr);
    let out = limelight().args(["--json", "nonsense"]).assert().failure();
    assert_valid("failure", &out.get_output().stderr);
}
