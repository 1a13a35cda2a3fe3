// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests of the control socket's wire format.

use super::*;

fn request(line: &str) -> Result<Request, serde_json::Error> {
    serde_json::from_str(line)
}

#[test]
fn example_requests_are_parsed() {
    assert_eq!(
        request(r#"{"op":"focus","target":{"pid":4242},"source":"cli"}"#).unwrap(),
        Request::Focus {
            target: FocusTarget::Pid(4242),
            source: "cli".into(),
            hold: false
        }
    );
    assert_eq!(
        request(r#"{"op":"focus","target":"none","source":"sway","hold":true}"#).unwrap(),
        Request::Focus {
            target: FocusTarget::None,
            source: "sway".into(),
            hold: true
        }
    );
    assert_eq!(request(r#"{"op":"status"}"#).unwrap(), Request::Status);
    assert_eq!(
        request(r#"{"op":"explain","pid":1}"#).unwrap(),
        Request::Explain { pid: 1 }
    );
    assert_eq!(
        request(r#"{"op":"window","event":"open","at_us":5,"pid":7,"source":"sway"}"#).unwrap(),
        Request::Window {
            event: WindowEvent::Open,
            at_us: Some(5),
            pid: Some(7),
            source: "sway".into()
        }
    );
    assert_eq!(
        request(r#"{"op":"window","event":"close","source":"cli"}"#).unwrap(),
        Request::Window {
            event: WindowEvent::Close,
            at_us: None,
            pid: None,
            source: "cli".into()
        }
    );
    assert_eq!(
        request(r#"{"op":"history","last":3}"#).unwrap(),
        Request::History { last: 3 }
    );
    assert_eq!(
        request(r#"{"op":"history"}"#).unwrap(),
        Request::History { last: HISTORY_MAX }
    );
    assert_eq!(
        request(r#"{"op":"apps"}"#).unwrap(),
        Request::Apps { pid: None }
    );
    assert_eq!(
        request(r#"{"op":"class","pid":7,"class":"keep"}"#).unwrap(),
        Request::Class {
            pid: 7,
            class: Some(Class::Keep),
            save: false
        }
    );
    assert_eq!(
        request(r#"{"op":"class","pid":7,"class":null,"save":true}"#).unwrap(),
        Request::Class {
            pid: 7,
            class: None,
            save: true
        }
    );
    assert_eq!(
        request(r#"{"op":"in-use","pid":7,"use":"unsaved","on":true}"#).unwrap(),
        Request::InUse {
            pid: 7,
            what: Use::Unsaved,
            on: true
        }
    );
    assert_eq!(
        request(r#"{"op":"never","file":"/f","text":"[never]"}"#).unwrap(),
        Request::Never {
            file: "/f".into(),
            text: "[never]".into()
        }
    );
    assert_eq!(
        request(r#"{"op":"decision","action":"kill"}"#).unwrap(),
        Request::Decision {
            action: Some(MemoryAction::Kill)
        }
    );
    assert_eq!(
        request(r#"{"op":"listen"}"#).unwrap(),
        Request::Listen { foreground: false }
    );
    assert_eq!(
        request(r#"{"op":"become","uid":7}"#).unwrap(),
        Request::Become {
            uid: 7,
            groups: Vec::new()
        }
    );
    assert_eq!(
        request(r#"{"op":"pause"}"#).unwrap(),
        Request::Pause { for_ms: None }
    );
    assert_eq!(request(r#"{"op":"resume"}"#).unwrap(), Request::Resume);
    assert_eq!(
        request(r#"{"op":"latency"}"#).unwrap(),
        Request::Latency { app: None }
    );
}

#[test]
fn missing_unknown_and_mistyped_fields_are_refused() {
    assert!(request(r#"{"op":"window"}"#).is_err());
    assert!(request(r#"{"op":"window","event":"half-open","source":"cli"}"#).is_err());
    assert!(request(r#"{"op":"explain","pid":1,"verbose":true}"#).is_err());
    assert!(request(r#"{"op":"focus","target":{"pid":"1"},"source":"cli"}"#).is_err());
}

#[test]
fn responses_round_trip_through_json() {
    let error = Response::Error {
        code: ErrorCode::NotAllowed,
        message: "pid 1 belongs to uid 0".into(),
        cure: "claim a process of your own".into(),
        retry_ms: None,
    };
    let line = serde_json::to_string(&error).unwrap();
    assert!(
        line.starts_with(r#"{"result":"error","code":"not-allowed""#),
        "{line}"
    );
    assert_eq!(serde_json::from_str::<Response>(&line).unwrap(), error);

    let latency = Response::Latency(LatencyReport {
        apps: vec![AppLatency {
            name: "viewer".into(),
            answers: 3,
            late: 1,
            unanswered: 0,
            p50_us: 1,
            p95_us: 2,
            p99_us: 3,
            max_us: 4,
            deadline_ms: 500,
            recent_us: vec![900, 12_000],
        }],
        hidden: None,
    });
    let line = serde_json::to_string(&latency).unwrap();
    assert!(
        line.starts_with(r#"{"result":"latency","apps":["#),
        "{line}"
    );
    assert_eq!(serde_json::from_str::<Response>(&line).unwrap(), latency);

    let explain = Response::Explain(Box::new(Explain {
        pid: 7,
        name: "viewer".into(),
        role: Role::Topmost,
        app: None,
        source: Some("cli".into()),
        changes: vec![Change {
            knob: "/a/memory.min".into(),
            from: "0".into(),
            to: "1048576".into(),
            rule: "protect".into(),
            at_ms: 5,
            outcome: Outcome::Inert {
                why: "no memory controller".into(),
            },
            undone_by: "focus".into(),
        }],
        notes: vec![],
    }));
    let line = serde_json::to_string(&explain).unwrap();
    assert!(line.starts_with(r#"{"result":"explain","pid":7"#), "{line}");
    assert_eq!(serde_json::from_str::<Response>(&line).unwrap(), explain);
}

#[test]
fn foreground_is_the_only_word_in_output_and_topmost_is_still_accepted() {
    let roles = [Role::Topmost, Role::Previous, Role::Background];
    let words = r#"["foreground","previous","background"]"#;
    assert_eq!(serde_json::to_string(&roles).unwrap(), words);
    let old: Role = serde_json::from_str(r#""topmost""#).unwrap();
    assert_eq!(old, Role::Topmost);

    let app = AppReport {
        role: Role::Topmost,
        last_topmost_ms: Some(7),
        ..AppReport::default()
    };
    let line = serde_json::to_string(&app).unwrap();
    assert!(line.contains(r#""last_foreground_ms":7"#), "{line}");
    assert!(!line.contains("topmost"), "{line}");
    let old = line.replace("foreground", "topmost");
    assert_eq!(serde_json::from_str::<AppReport>(&old).unwrap(), app);
}
