// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests the texts, and the notifier against a simulated notification server on a bus of its own.
//! Without dbus-daemon, these tests are skipped with a message.

use super::testing::{app, memory, Desktop, TestServer};
use super::*;
use limelight_proto::{ErrorCode, Level, MemoryThen, State, Weighed};

fn entry(action: MemoryAction) -> HistoryEntry {
    HistoryEntry {
        unix_ms: 0,
        at_ms: 0,
        boot: String::new(),
        action,
        app: Some(app("<b>news</b>\n")),
        uid: Some(1000),
        class: None,
        bytes: 34 << 20,
        took_us: None,
        times: 1,
        for_ms: 0,
        reason: "it was used longest ago".to_owned(),
        memory: MemoryThen::default(),
    }
}

fn killed() -> Notice {
    Notice::Done(entry(MemoryAction::Kill))
}

fn decision(pid: i32) -> limelight_proto::Decision {
    let weighed = |name: &str, pid, chosen| Weighed {
        app: limelight_proto::AppStatus {
            pid: Some(pid),
            ..app(name)
        },
        uid: Some(1000),
        chosen,
        reason: "nothing & nobody needs it".to_owned(),
        class: Class::Disposable,
        used_ms: 0,
        uses: Vec::new(),
        allocated: 0,
    };
    limelight_proto::Decision {
        at_ms: 0,
        action: MemoryAction::Kill,
        level: Level::Kill,
        memory: MemoryThen {
            available: 50 << 20,
            ..MemoryThen::default()
        },
        kill_threshold: 60 << 20,
        swap_threshold: 0,
        weighed: vec![
            weighed("<b>news</b>\n", pid, true),
            weighed("bank", 9, false),
        ],
    }
}

#[test]
fn kills_are_shown_and_routine_actions_are_not() {
    let text = |action| text::of_notice(&Notice::Done(entry(action)));
    let killed = text(MemoryAction::Kill).unwrap();
    assert_eq!(killed.title, "<b>news</b>\\n was closed");
    assert!(killed.body.contains("34 MiB"), "{}", killed.body);
    assert!(text(MemoryAction::ForeignKill).unwrap().urgent);
    for action in [
        MemoryAction::Squeeze,
        MemoryAction::Freeze,
        MemoryAction::Thaw,
        MemoryAction::Return,
        MemoryAction::Ask,
    ] {
        assert_eq!(text(action), None, "{action}");
    }
    assert_eq!(text::of_notice(&memory(Level::Swap, Some(app("x")))), None);
    assert_eq!(text::of_notice(&memory(Level::Kill, None)), None);
    let warned = text::of_notice(&memory(Level::Kill, Some(app("x")))).unwrap();
    let starts = warned.body.starts_with("x will be closed next");
    assert!(starts, "{}", warned.body);
}

#[test]
fn kill_is_explained_by_its_own_decision_only() {
    let entry = entry(MemoryAction::Kill);
    let by_decision = text::why(&entry, Some(&decision(7)));
    for part in [
        "class is disposable",
        "50 MiB",
        "below 60 MiB",
        "Not closed: bank",
    ] {
        assert!(
            by_decision.body.contains(part),
            "{part}: {}",
            by_decision.body
        );
    }
    for other in [None, Some(&decision(8))] {
        assert_eq!(text::why(&entry, other).body, "it was used longest ago");
    }
}

#[test]
fn warnings_are_rate_limited() {
    let mut notifier = Notifier::on_bus(Some("unix:path=/nonexistent".to_owned())).unwrap();
    let start = Instant::now();
    for (at, warned) in [
        (start, start),
        (start + WARN_EVERY / 2, start),
        (start + WARN_EVERY, start + WARN_EVERY),
    ] {
        notifier.tell(&memory(Level::Kill, Some(app("x"))), at);
        assert_eq!(notifier.warned, Some(warned));
    }
}

#[test]
fn missing_bus_is_reported() {
    let mut notifier = Notifier::on_bus(Some("unix:path=/nonexistent".to_owned())).unwrap();
    notifier.tell(&killed(), Instant::now());
    testing::until("the failure", || {
        notifier.status().state == State::Unavailable
    });
    let status = notifier.status();
    assert!(status.detail.contains("session bus"), "{}", status.detail);
}

#[test]
fn buttons_explain_and_keep() {
    let Some(mut desktop) = Desktop::start("buttons_explain_and_keep") else {
        return;
    };
    let server = TestServer::start(&desktop, &["actions", "body-markup"]);
    let mut notifier = desktop.notifier();
    notifier.tell(&killed(), Instant::now());
    let shown = server.next();
    // A title has no markup, so that it is not escaped.
    assert_eq!(shown.title, "<b>news</b>\\n was closed");
    assert_eq!(shown.actions, ["why", "Why?", "keep", "Keep next time"]);
    // An id that the agent does not know, and an action that it did not offer.
    server.press(shown.id + 77, "why");
    server.press(shown.id, "default");
    server.press(shown.id, "why");
    let (request, purpose) = testing::question(&mut notifier);
    assert!(matches!(
        request,
        Request::Decision {
            action: Some(MemoryAction::Kill)
        }
    ));
    let answer = Response::Decision {
        decision: Some(Box::new(decision(7))),
        hidden: None,
    };
    assert_eq!(notifier.answer(purpose, &answer), None);
    let why = server.next();
    assert_eq!(why.title, "Why <b>news</b>\\n was closed");
    let escaped = "nothing &amp; nobody";
    assert!(why.body.contains(escaped), "{}", why.body);

    server.press(shown.id, "keep");
    let (request, purpose) = testing::question(&mut notifier);
    assert_eq!(request, Request::Apps { pid: None });
    let apps = Response::Apps {
        apps: Vec::new(),
        hidden: None,
    };
    assert_eq!(notifier.focused(55), None);
    assert_eq!(notifier.answer(purpose, &apps), None);
    assert!(server.next().title.ends_with("does not run yet"));
    // The app runs again.
    let (request, purpose) = notifier.focused(55).unwrap();
    assert_eq!(request, Request::Apps { pid: Some(55) });
    let apps = Response::Apps {
        apps: vec![testing::running("<b>news</b>\n", 55)],
        hidden: None,
    };
    let (request, purpose) = notifier.answer(purpose, &apps).unwrap();
    let class = Some(Class::Keep);
    let save = false;
    assert_eq!(
        request,
        Request::Class {
            pid: 55,
            class,
            save
        }
    );
    let refusal = Response::Error {
        code: ErrorCode::NotAllowed,
        message: "only root may raise it".to_owned(),
        cure: "set it as root".to_owned(),
        retry_ms: None,
    };
    assert_eq!(notifier.answer(purpose, &refusal), None);
    let refused = server.next();
    assert!(refused.title.ends_with("may still be closed"));
    assert!(refused.body.contains("only root may raise it"));
    assert_eq!(notifier.focused(55), None);
    desktop.stop();
}

#[test]
fn app_that_is_closed_next_is_kept_at_once() {
    let Some(desktop) = Desktop::start("app_that_is_closed_next_is_kept_at_once") else {
        return;
    };
    let server = TestServer::start(&desktop, &["actions"]);
    let mut notifier = desktop.notifier();
    notifier.tell(&memory(Level::Kill, Some(app("a<b"))), Instant::now());
    let shown = server.next();
    // Without body-markup, nothing is escaped.
    assert!(shown.body.starts_with("a<b will be"), "{}", shown.body);
    server.press(shown.id, "keep");
    let (request, purpose) = testing::question(&mut notifier);
    let class = Some(Class::Keep);
    let save = false;
    assert_eq!(
        request,
        Request::Class {
            pid: 7,
            class,
            save
        }
    );
    let message = "a<b is keep: you set it".to_owned();
    assert_eq!(notifier.answer(purpose, &Response::Ok { message }), None);
    assert_eq!(server.next().title, "a<b is kept until it ends");
}

#[test]
fn server_without_actions_gets_none() {
    let Some(desktop) = Desktop::start("server_without_actions_gets_none") else {
        return;
    };
    let server = TestServer::start(&desktop, &["body"]);
    let mut notifier = desktop.notifier();
    notifier.tell(&killed(), Instant::now());
    let shown = server.next();
    assert!(shown.actions.is_empty());
    assert!(shown.body.contains("limelight explain --last=kill"));
}

#[test]
fn server_may_come_and_go() {
    let Some(desktop) = Desktop::start("server_may_come_and_go") else {
        return;
    };
    let mut notifier = desktop.notifier();
    let becomes = |notifier: &Notifier, state| {
        testing::until("another state", || notifier.status().state == state)
    };
    becomes(&notifier, State::Unavailable);
    notifier.tell(&killed(), Instant::now());
    let server = TestServer::start(&desktop, &["actions"]);
    becomes(&notifier, State::Active);
    let detail = notifier.status().detail;
    assert_eq!(detail, "shown by test 1.0");
    drop(server);
    becomes(&notifier, State::Unavailable);
    let server = TestServer::start(&desktop, &["actions"]);
    becomes(&notifier, State::Active);
    notifier.tell(&killed(), Instant::now());
    // The notification from before was not kept.
    assert!(server.next().title.ends_with("was closed"));
    assert!(server.is_silent());
}

#[test]
fn hanging_server_neither_blocks_nor_fills_memory() {
    let Some(desktop) = Desktop::start("hanging_server_neither_blocks_nor_fills_memory") else {
        return;
    };
    let server = TestServer::start(&desktop, &["actions"]);
    let mut notifier = desktop.notifier();
    server.hang();
    for _ in 0..1000 {
        notifier.tell(&killed(), Instant::now());
    }
    assert!(notifier.bus.dropped >= 900, "{}", notifier.bus.dropped);
    assert!(notifier.subjects.len() <= SUBJECTS_MAX);
    assert_eq!(notifier.turn(), []);
    server.resume();
    assert!(server.next().title.ends_with("was closed"));
}

#[test]
fn end_of_the_bus_is_reported() {
    let Some(mut desktop) = Desktop::start("end_of_the_bus_is_reported") else {
        return;
    };
    let _server = TestServer::start(&desktop, &["actions"]);
    let mut notifier = desktop.notifier();
    testing::until("the server", || notifier.status().state == State::Active);
    desktop.stop();
    testing::until("the end", || notifier.status().state == State::Unavailable);
    notifier.tell(&killed(), Instant::now());
    assert_eq!(notifier.turn(), []);
}
