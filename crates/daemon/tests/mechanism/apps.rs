// SPDX-License-Identifier: GPL-2.0-or-later
//! Requests about apps over the control socket: listing apps, setting their class, announcing that
//! they are in use, and who may do each.

use std::time::{Duration, Instant};

use limelight_core::model::apps::Use;
use limelight_core::model::class::Class;
use limelight_proto::{AppReport, ErrorCode, Never, Response, Role};

use crate::common::{Client, Running};
use crate::{two_apps, A, B};

/// A user that owns only what a test gives it.
const USER: u32 = 54_321;

fn apps(daemon: &mut Running) -> Vec<AppReport> {
    match daemon.ask(r#"{"op":"apps"}"#) {
        Response::Apps { apps, .. } => apps,
        other => panic!("{other:?}"),
    }
}

/// Waits until an app is listed with these uses. If the last scan is stale, a request makes the
/// daemon scan again.
pub fn until_used(daemon: &mut Running, pid: i32, wanted: &[Use]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while app(daemon, pid).uses != wanted {
        assert!(
            Instant::now() < deadline,
            "pid {pid} was never listed with the uses {wanted:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn app(daemon: &mut Running, pid: i32) -> AppReport {
    match daemon.ask(&format!(r#"{{"op":"apps","pid":{pid}}}"#)) {
        Response::Apps { mut apps, .. } if apps.len() == 1 => apps.remove(0),
        other => panic!("{other:?}"),
    }
}

fn set(
    daemon: &mut Running,
    client: &mut Client,
    pid: i32,
    class: &str,
) -> Result<String, ErrorCode> {
    let line = format!(r#"{{"op":"class","pid":{pid},"class":{class}}}"#);
    match daemon.ask_over(client, &line) {
        Response::Ok { message } => Ok(message),
        Response::Error { code, .. } => Err(code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn apps_are_listed_with_class_use_and_place() {
    let (machine, a, b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(b.pid);
    let all = apps(&mut daemon);
    assert_eq!(all.len(), 2, "{all:?}");
    // The most recently used app comes first.
    assert_eq!(all[0].app.pid, Some(b.pid));
    assert_eq!(
        (all[0].role, all[1].role),
        (Role::Topmost, Role::Background)
    );
    assert_eq!(all[1].app.name, "a");
    assert_eq!(all[1].anonymous, 100 << 20);
    assert_eq!((all[1].class, all[1].processes), (Class::Normal, 1));
    assert_eq!(app(&mut daemon, a.pid), all[1]);
    let answer = daemon.ask(r#"{"op":"apps","pid":1}"#);
    assert!(
        matches!(
            &answer,
            Response::Error {
                code: ErrorCode::NotAnApp,
                ..
            }
        ),
        "{answer:?}"
    );
}

#[test]
fn class_set_by_root_holds_while_the_app_lives() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    let mut root = daemon.connect();
    let said = set(&mut daemon, &mut root, a.pid, r#""keep""#).unwrap();
    assert!(
        said.contains("a is keep") && said.contains("uid 0 set it"),
        "{said}"
    );
    assert_eq!(app(&mut daemon, a.pid).set_by, Some(0));
    set(&mut daemon, &mut root, a.pid, "null").unwrap();
    let after = app(&mut daemon, a.pid);
    assert_eq!((after.class, after.set_by), (Class::Normal, None));
    assert_eq!(
        set(&mut daemon, &mut root, 1, "null"),
        Err(ErrorCode::NotAnApp)
    );
}

/// Sends a user's own configuration.
fn never(daemon: &mut Running, client: &mut Client, text: &str) -> Response {
    let line = serde_json::json!({ "op": "never", "file": "/home/u/limelight.toml", "text": text });
    daemon.ask_over(client, &line.to_string())
}

#[test]
fn rule_of_the_system_ends_the_protection_of_an_app_at_a_reload() {
    let (machine, a, b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(b.pid);
    assert_ne!(machine.mib(&format!("{B}/memory.min")), 0);
    assert!(app(&mut daemon, a.pid).never.is_empty());
    machine.configure("[never]\nprotect = [\"*/app-b-*\"]\nclose = [\"*/app-a-*\"]\n");
    daemon.daemon.reload();
    assert_eq!(machine.mib(&format!("{B}/memory.min")), 0);
    let explained = daemon.explain(b.pid).notes.join("; ");
    assert!(
        explained.contains("protect: this app is never protected: its cgroup")
            && explained.contains("limelight.toml:"),
        "{explained}"
    );
    let rules = app(&mut daemon, a.pid).never;
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert!(rules[0].never == Never::Close && !rules[0].by_owner);
    let explained = daemon.explain(a.pid).notes.join("; ");
    assert!(
        explained.contains("swap: this app is never closed by limelightd: its cgroup"),
        "{explained}"
    );
}

#[test]
fn rules_of_a_user_apply_to_own_apps_only_and_end_with_the_connection() {
    let (machine, a, b) = two_apps();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    machine.give(&a, USER);
    let mut daemon = machine.start();
    daemon.focus(b.pid);
    let mut user = daemon.connect_as(USER);
    let all = "[never]\nboost = [\"*\"]\nprotect = [\"*\"]\nclose = [\"*\"]\n";
    let answer = never(&mut daemon, &mut user, all);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    let own = app(&mut daemon, a.pid).never;
    assert_eq!(own.len(), 3, "{own:?}");
    assert!(own.iter().all(|one| one.by_owner));
    assert!(own[2].why.contains("/home/u/limelight.toml:4"), "{own:?}");
    // The other app belongs to another user, and could be closed instead.
    assert!(app(&mut daemon, b.pid).never.is_empty());
    assert_ne!(machine.mib(&format!("{B}/memory.min")), 0);
    let explained = daemon.explain(a.pid).notes.join("; ");
    assert!(
        explained.contains("not in force while another user"),
        "{explained}"
    );
    // A mistake leaves the rules as they are, and names its place.
    let answer = never(&mut daemon, &mut user, "[never]\nclsoe = []\n");
    let Response::Error { code, message, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(code, ErrorCode::BadRequest);
    assert!(
        message.starts_with("/home/u/limelight.toml:2: unknown key `clsoe` in [never]")
            && message.contains("did you mean `close`?"),
        "{message}"
    );
    assert_eq!(app(&mut daemon, a.pid).never.len(), 3);
    drop(user);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !app(&mut daemon, a.pid).never.is_empty() {
        assert!(
            Instant::now() < deadline,
            "the rules outlive their connection"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A request that saves the class of an app; `class` is a JSON value.
fn save(pid: i32, class: &str) -> String {
    format!(r#"{{"op":"class","pid":{pid},"class":{class},"save":true}}"#)
}

#[test]
fn saved_class_survives_app_and_daemon() {
    let (machine, a, b) = two_apps();
    let root = rustix::process::geteuid().is_root();
    if root {
        machine.give(&a, USER);
        machine.open_device(&a, "dev-dri/card0");
    }
    let mut daemon = machine.start();
    let mut client = match root {
        true => daemon.connect_as(USER),
        false => daemon.connect(),
    };
    let uid = if root { USER } else { 0 };
    let answer = daemon.ask_over(&mut client, &save(a.pid, r#""disposable""#));
    let Response::Ok { message } = answer else {
        panic!("{answer:?}");
    };
    assert!(
        message.contains(&format!("a is disposable: uid {uid} saved it")),
        "{message}"
    );
    drop(client);
    daemon.stop();
    // The app is started again, as is the daemon.
    machine.end(a, A);
    let a = machine.spawn(A);
    if root {
        machine.give(&a, USER);
    }
    let mut daemon = machine.start();
    let seen = app(&mut daemon, a.pid);
    assert_eq!((seen.class, seen.set_by), (Class::Disposable, Some(uid)));
    assert_eq!(app(&mut daemon, b.pid).class, Class::Normal);
    if root {
        // Root's class wins over the user's, also where it is higher, and the user may not change
        // it.
        assert!(matches!(
            daemon.ask(&save(a.pid, r#""keep""#)),
            Response::Ok { .. }
        ));
        let seen = app(&mut daemon, a.pid);
        assert_eq!((seen.class, seen.set_by), (Class::Keep, Some(0)));
        machine.open_device(&a, "dev-dri/card0");
        let mut user = daemon.connect_as(USER);
        let refused = daemon.ask_over(&mut user, &save(a.pid, r#""disposable""#));
        assert!(
            matches!(&refused, Response::Error { code: ErrorCode::NotAllowed, message, .. }
                if message.contains("root set the class")),
            "{refused:?}"
        );
        daemon.ask(&save(a.pid, "null"));
        assert_eq!(app(&mut daemon, a.pid).class, Class::Disposable);
        daemon.ask_over(&mut user, &save(a.pid, "null"));
        assert_eq!(app(&mut daemon, a.pid).class, Class::Normal);
    }
}

#[test]
fn saved_class_of_a_user_never_raises_an_app() {
    let (machine, a, _b) = two_apps();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    machine.give(&a, USER);
    machine.open_device(&a, "dev-dri/card0");
    let mut daemon = machine.start();
    let mut user = daemon.connect_as(USER);
    let refused = daemon.ask_over(&mut user, &save(a.pid, r#""keep""#));
    let code = ErrorCode::NotAllowed;
    assert!(
        matches!(&refused, Response::Error { code: found, .. } if *found == code),
        "{refused:?}"
    );
    // The class that the app has anyway, saved, does not hold up a lower one.
    assert!(matches!(
        daemon.ask_over(&mut user, &save(a.pid, r#""normal""#)),
        Response::Ok { .. }
    ));
    machine.configure("[class]\ndisposable = [\"*/app-a-*\"]\n");
    daemon.daemon.reload();
    assert_eq!(app(&mut daemon, a.pid).class, Class::Disposable);
}

#[test]
fn owner_may_only_lower_the_class_and_other_users_may_not_change_it() {
    let (machine, a, b) = two_apps();
    if !rustix::process::geteuid().is_root() {
        return;
    }
    machine.give(&a, USER);
    machine.open_device(&a, "dev-dri/card0");
    let mut daemon = machine.start();
    let mut user = daemon.connect_as(USER);
    let mut root = daemon.connect();
    assert!(set(&mut daemon, &mut user, a.pid, r#""disposable""#).is_ok());
    assert_eq!(app(&mut daemon, a.pid).class, Class::Disposable);
    // The owner may go back up to the class that the app has when no class was set.
    assert!(set(&mut daemon, &mut user, a.pid, r#""normal""#).is_ok());
    let refused = Err(ErrorCode::NotAllowed);
    assert_eq!(set(&mut daemon, &mut user, a.pid, r#""keep""#), refused);
    assert_eq!(
        set(&mut daemon, &mut user, b.pid, r#""disposable""#),
        refused
    );
    set(&mut daemon, &mut root, a.pid, r#""keep""#).unwrap();
    assert_eq!(set(&mut daemon, &mut user, a.pid, "null"), refused);
    let strange = format!(
        r#"{{"op":"in-use","pid":{},"use":"unsaved","on":true}}"#,
        b.pid
    );
    let answer = daemon.ask_over(&mut user, &strange);
    assert!(
        matches!(
            &answer,
            Response::Error {
                code: ErrorCode::NotAllowed,
                ..
            }
        ),
        "{answer:?}"
    );
}

#[test]
fn announcement_holds_until_removed_or_disconnected() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    let mut editor = daemon.connect();
    let said = |what: &str, on: bool| {
        format!(
            r#"{{"op":"in-use","pid":{},"use":"{what}","on":{on}}}"#,
            a.pid
        )
    };
    let until_used = |daemon: &mut Running, wanted: &[Use]| until_used(daemon, a.pid, wanted);
    daemon.ask_over(&mut editor, &said("unsaved", true));
    daemon.ask_over(&mut editor, &said("visible", true));
    until_used(&mut daemon, &[Use::Visible, Use::Unsaved]);
    daemon.ask_over(&mut editor, &said("visible", false));
    until_used(&mut daemon, &[Use::Unsaved]);
    drop(editor);
    until_used(&mut daemon, &[]);
}

#[test]
fn listening_client_receives_actions() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    let mut listener = daemon.connect();
    let answer = daemon.ask_over(&mut listener, r#"{"op":"listen"}"#);
    assert!(matches!(answer, Response::Ok { .. }), "{answer:?}");
    daemon.focus(a.pid);
    machine.write("proc/vmstat", "oom_kill 1\n");
    let told = daemon.hear(&mut listener);
    assert!(told.contains(r#""event":"done""#), "{told}");
    assert!(told.contains(r#""action":"foreign-kill""#), "{told}");
    let Response::History { entries, .. } = daemon.ask(r#"{"op":"history"}"#) else {
        panic!("no history");
    };
    assert_eq!(entries.len(), 1);
    assert!(machine.read("state/history.jsonl").contains("foreign-kill"));
}

#[test]
fn classes_follow_the_configuration() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    assert_eq!(app(&mut daemon, a.pid).class, Class::Normal);
    let text = machine.read("limelight.toml");
    machine.write(
        "limelight.toml",
        &format!("{text}\n[class]\nkeep = [\"a\"]\n"),
    );
    daemon.daemon.reload();
    let seen = app(&mut daemon, a.pid);
    assert_eq!(seen.class, Class::Keep);
    assert!(seen.why.contains("limelight.toml:"), "{}", seen.why);
}

#[test]
fn disposable_app_is_kept_out_of_swap_before_it_is_topmost() {
    let (machine, _a, _b) = two_apps();
    machine.write(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/sda2 partition 524284 0 -2\n",
    );
    let text = machine.read("limelight.toml");
    let rule = "[class]\ndisposable = [\"*/app-news-*\"]\n";
    machine.write("limelight.toml", &format!("{text}\n{rule}"));
    let mut daemon = machine.start();
    // The news app must appear after the first scan.
    assert_eq!(
        apps(&mut daemon).len(),
        2,
        "the first scan must have found both apps"
    );
    machine.make_cgroup("u/app-news-1.scope");
    machine.write("cgroup/u/app-news-1.scope/memory.swap.max", "max\n");
    let news = machine.spawn("u/app-news-1.scope");
    daemon.until("memory.swap.max", |_| {
        machine.read("cgroup/u/app-news-1.scope/memory.swap.max") == "0"
    });
    // The daemon sets memory.swap.max when it sees the new cgroup. It lists the app only after the
    // next scan.
    let deadline = Instant::now() + Duration::from_secs(60);
    let known = loop {
        let all = apps(&mut daemon);
        let known = all.into_iter().find(|app| app.app.pid == Some(news.pid));
        if known.is_some() || Instant::now() > deadline {
            break known;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(known.map(|app| app.class), Some(Class::Disposable));
    daemon.stop();
    assert_eq!(
        machine.read("cgroup/u/app-news-1.scope/memory.swap.max"),
        "max"
    );
}
