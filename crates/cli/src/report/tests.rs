// SPDX-License-Identifier: GPL-2.0-or-later
//! The report of a machine whose facts are full of private data.

use serde_json::json;
use std::fs;

use super::*;

/// Texts that must not be in a report.
const PRIVATE: [&str; 12] = [
    "Divorce",
    "lawyer",
    "Tax return",
    "2025.ods",
    "anna",
    "Annabel",
    "thinkpad",
    "people",
    "gimp",
    "Telegram",
    "--private-window",
    "bank.example",
];

fn app(name: &str) -> serde_json::Value {
    json!({
        "name": name, "pid": 42, "own_cgroup": true,
        "cgroup": "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gimp-42.scope",
    })
}

/// A daemon's status as JSON.
pub(crate) fn status() -> serde_json::Value {
    let mut topmost = app("Divorce - gimp");
    topmost["source"] = json!("sway");
    topmost["for_ms"] = json!(12_000);
    topmost["members"] = json!(3);
    json!({
        "version": "0.1.0", "protocol": 1, "pid": 99, "uptime_ms": 61_000, "dry_run": false,
        "foreground": topmost,
        "previous": app("Tax return 2025.ods"),
        "sources": [{
            "name": "session", "state": "active",
            "detail": "uid 1000, agent of anna: focus on \"Letter to my lawyer\"",
        }],
        "mechanisms": [{
            "name": "protect", "state": "active",
            "detail": "reads /home/anna/Tax return 2025.ods (EACCES)",
        }],
        "window": {
            "state": "active", "detail": "input", "sources": [],
            "open": null,
            "kernel": {
                "state": "unavailable", "detail": "no", "opened": 0, "closed": 0, "failed": 0,
            },
            "tallies": {
                "opened": 0, "answered": 0, "expired": 0, "late": 0, "unanswered": 0, "moved": 0,
                "abandoned": 0, "inputs_joined": 0, "inputs_elsewhere": 0, "frames_unasked": 0,
                "frames_elsewhere": 0,
            },
            "foreground": null,
        },
        "memory": {
            "total": 8_u64 << 30, "available": 1 << 30, "swap_total": 0, "swap_free": 0,
            "psi_full_avg10": 0.0, "lru": "mglru", "budget": 0, "protected_by_others": 0,
            "protected": 0, "lowered_steps": 0,
        },
        "device": { "state": "unused", "why": "no such file: /dev/limelight" },
        "changes": [{
            "knob": "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gimp-42.scope/\
                     memory.min",
            "from": "0", "to": "104857600", "at_ms": 0, "outcome": { "state": "applied" },
            "rule": "working set of Divorce - gimp (pid 42)",
            "undone_by": "focus on another app",
        }],
    })
}

fn answers() -> Answers {
    let apps = json!([{
        "name": "Divorce - gimp", "pid": 42, "own_cgroup": true, "cgroup": "/app.slice/x.scope",
        "uid": 1000, "role": "foreground", "class": "normal", "why": "category", "set_by": null,
        "last_foreground_ms": 1, "started_ms": 1, "uses": ["unsaved"],
        "untouchable": "Telegram (pid 43) shares /home/anna/my cgroup",
        "processes": 1, "resident": 10, "anonymous": 5, "swapped": 0, "frozen": false,
        "exempt": false, "desktop_id": "org.example.Draw",
        "executable": "/usr/bin/gimp", "package": null, "categories": [],
    }]);
    let latency = json!({ "apps": [{
        "name": "Letter \"to\" my lawyer", "answers": 1, "late": 0, "unanswered": 0, "p50_us": 1,
        "p95_us": 1, "p99_us": 1, "max_us": 1, "deadline_ms": 500,
    }] });
    let history = json!([{
        "unix_ms": 1, "at_ms": 1, "boot": "", "action": "kill", "app": app("Telegram"),
        "uid": 1000, "class": "normal", "bytes": 4096, "took_us": 5,
        "reason": "Telegram (pid 42) --private-window https://bank.example/ is used longest ago",
        "memory": {
            "available": 1, "free": 1, "swap_total": 0, "swap_free": 0, "some_ms": 0, "full_ms": 0,
        },
    }]);
    Answers {
        status: serde_json::from_value(status()).unwrap(),
        apps: serde_json::from_value(apps).unwrap(),
        latency: serde_json::from_value(latency).unwrap(),
        history: serde_json::from_value(history).unwrap(),
        decision: None,
    }
}

fn report(apps: bool) -> String {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\nanna:x:1000:1000:Annabel Smith,,,:/srv/people/anna:/bin/sh\n",
    );
    write("proc/sys/kernel/hostname", "thinkpad\n");
    write(
        "proc/cmdline",
        "root=/dev/mapper/thinkpad-root psi=1 quiet\n",
    );
    write(
        "proc/swaps",
        "Filename Type\n/dev/mapper/thinkpad-swap partition 1048576 0 -2\n",
    );
    let environment = vec![
        ("HOME".to_owned(), "/srv/people/anna".to_owned()),
        ("XDG_SESSION_TYPE".to_owned(), "wayland".to_owned()),
    ];
    let mut scrubber = Scrubber::new(apps);
    machine::private_names(root.path(), &environment, &mut scrubber);
    let value = Value {
        section: "class",
        key: "keep",
        value: Some("[\"gimp\", \"org.example.Draw\"]".to_owned()),
        origin: Some(("/srv/people/anna/limelight.toml".into(), 3)),
        profile: None,
    };
    let facts = Facts {
        machine: machine::facts(root.path(), &environment),
        units: vec!["Id=limelightd.service ActiveState=active".to_owned()],
        config: Ok(vec![value]),
        doctor: "note  killers  earlyoom (pid 7) runs beside gimp, in /home/anna/a b".to_owned(),
        answers: Ok(answers()),
        log: Ok(
            "2026-11-24T10:00:00 limelightd[9]: start of /home/anna/Tax return 2025.ods --page 3: \
             2 KiB\n2026-11-24T10:00:01 limelightd[9]: Letter to my lawyer (pid 77) is frozen"
                .to_owned(),
        ),
    };
    let sections = sections(&facts, scrubber, apps).unwrap();
    let text = |section: &Section| format!("== {}\n{}\n", section.title, section.text);
    sections.iter().map(text).collect()
}

#[test]
fn private_data_is_removed_and_facts_stay() {
    let report = report(false);
    for private in PRIVATE {
        assert!(!report.contains(private), "{private}: {report}");
    }
    assert!(!report.contains("org.example.Draw"), "{report}");
    for fact in [
        "psi=1",
        "swap: <path>, partition, 1048576, 0, -2",
        "XDG_SESSION_TYPE: wayland",
        "keep     2 entries",
        "earlyoom (pid 7) runs",
        "limelightd 0.1.0, pid 99",
        "app-1 (pid 42), for 12 s, reported by sway, 3 processes",
        "memory.min: 0 -> 100 MiB",
        "app-1 (pid 42): normal",
        "killed, normal, 4.00 KiB",
        "has unsaved work",
        "limelight_uptime_seconds 61",
        "<app> (pid 77) is frozen",
    ] {
        assert!(report.contains(fact), "{fact}: {report}");
    }
}

#[test]
fn apps_are_named_by_their_ids_on_request() {
    let report = report(true);
    assert!(
        report.contains("app-1<org.example.Draw> (pid 42)"),
        "{report}"
    );
    for private in PRIVATE.iter().filter(|one| **one != "gimp") {
        assert!(!report.contains(private), "{private}: {report}");
    }
}
