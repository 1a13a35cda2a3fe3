// SPDX-License-Identifier: GPL-2.0-or-later
//! The real event loop on a machine of plain files. The tests send requests over the socket and
//! check the values that the daemon writes.

#[path = "mechanism/agents.rs"]
mod agents;
#[path = "mechanism/android.rs"]
mod android;
#[path = "mechanism/apps.rs"]
mod apps;
mod authority;
#[path = "mechanism/boost.rs"]
mod boost;
mod common;
#[path = "mechanism/display.rs"]
mod display;
#[path = "mechanism/inherited.rs"]
mod inherited;
#[path = "mechanism/own_tree.rs"]
mod own_tree;
#[path = "mechanism/passed_on.rs"]
mod passed_on;
#[path = "mechanism/pause.rs"]
mod pause;
#[path = "common/random.rs"]
mod random;
#[path = "mechanism/restored.rs"]
mod restored;
#[path = "mechanism/terminal.rs"]
mod terminal;
#[path = "mechanism/throttle.rs"]
mod throttle;
#[path = "mechanism/window.rs"]
mod window;

use std::time::{Duration, Instant};

use common::{names, Machine};
use limelight_daemon::restore::Entry;
use limelight_proto::{ErrorCode, MechanismId, Outcome, Response, Role, State};

/// Two apps, each in a cgroup of its own two levels below the root.
fn two_apps() -> (Machine, common::App, common::App) {
    let machine = Machine::new();
    for cgroup in ["u", "u/app-a-1.scope", "u/app-b-2.scope"] {
        machine.make_cgroup(cgroup);
    }
    machine.use_memory("u/app-a-1.scope", 100);
    machine.use_memory("u/app-b-2.scope", 40);
    let a = machine.spawn("u/app-a-1.scope");
    let b = machine.spawn("u/app-b-2.scope");
    (machine, a, b)
}

const A: &str = "u/app-a-1.scope";
const B: &str = "u/app-b-2.scope";

#[test]
fn focus_reserves_in_the_app_and_its_ancestors_and_none_restores_them() {
    let (machine, a, _b) = two_apps();
    machine.write("cgroup/u/memory.min", "4096\n");
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
    assert_eq!(machine.mib("u/memory.min"), 125);
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.low")), "0");
    assert_eq!(
        machine.read(&format!("proc/{}/oom_score_adj", a.pid)),
        "-500"
    );

    let explain = daemon.explain(a.pid);
    assert_eq!(explain.role, Role::Topmost);
    assert_eq!(explain.changes.len(), 3, "{explain:?}");
    let chain = explain
        .changes
        .iter()
        .find(|change| change.knob.ends_with("/u/memory.min"))
        .unwrap();
    assert_eq!(
        (chain.from.as_str(), &chain.outcome),
        ("4096", &Outcome::Applied)
    );

    daemon.focus_none();
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(machine.read("cgroup/u/memory.min"), "4096");
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    assert_eq!(daemon.explain(a.pid).changes, []);
    daemon.stop();
    assert_eq!(names(&machine.path("run")), ["lock", "private"]);
    assert!(machine.recorded().is_empty());
}

#[test]
fn next_topmost_app_takes_over_reservation_and_score() {
    let (machine, a, b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    daemon.focus(b.pid);
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(machine.mib(&format!("{B}/memory.min")), 50);
    assert_eq!(machine.mib("u/memory.min"), 50);
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    assert_eq!(
        machine.read(&format!("proc/{}/oom_score_adj", b.pid)),
        "-500"
    );
    let status = daemon.status();
    assert_eq!(status.topmost.unwrap().app.pid, Some(b.pid));
    assert_eq!(status.previous.unwrap().pid, Some(a.pid));
    assert_eq!(status.memory.protected, 50 << 20);
    assert_eq!(daemon.explain(a.pid).role, Role::Previous);
    daemon.stop();
    assert_eq!(machine.read("cgroup/u/memory.min"), "0");
}

/// Without events, a turn of the loop takes 20 ms, and the next tick comes in the five hundredth.
#[test]
fn reservation_follows_the_app_between_ticks_while_memory_is_short() {
    let (machine, a, _b) = two_apps();
    machine.write(
        "proc/meminfo",
        "MemTotal: 1024000 kB\nMemFree: 81920 kB\nMemAvailable: 81920 kB\n\
         SwapTotal: 512000 kB\nSwapFree: 512000 kB\n",
    );
    machine.write(
        "limelight.toml",
        "[protect]\ninterval_ms = 10000\n[sources]\noom_score_adj = \"off\"\n\
         [swap]\nkill = false\nfreeze = false\n",
    );
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let mut turns = 0;
    for used in [200, 350, 550] {
        machine.use_memory(A, used);
        daemon.until("growth", |_| {
            turns += 1;
            assert!(turns < 400, "only a tick finds {used} MiB");
            machine.mib(&format!("{A}/memory.min")) > used
        });
    }
    daemon.stop();
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
}

#[test]
fn reservation_grows_with_the_app_up_to_the_budget() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.use_memory(A, 300);
    daemon.until("growth", |_| machine.mib(&format!("{A}/memory.min")) > 300);
    machine.use_memory(A, 900);
    daemon.until("the budget", |_| {
        machine.mib(&format!("{A}/memory.min")) == 600
    });
    assert_eq!(machine.mib("u/memory.min"), 600);
    // Reservations of other cgroups reduce the budget.
    machine.make_cgroup("other");
    machine.use_memory("other", 100);
    machine.write("cgroup/other/memory.min", "max\n");
    daemon.until("others", |_| machine.mib(&format!("{A}/memory.min")) == 500);
    daemon.stop();
    assert_eq!(machine.read("cgroup/other/memory.min"), "max");
}

#[test]
fn siblings_keep_their_reservation_in_the_ancestor() {
    let (machine, a, _b) = two_apps();
    machine.write(
        &format!("cgroup/{B}/memory.min"),
        &format!("{}\n", 30 << 20),
    );
    machine.write("cgroup/u/memory.min", &format!("{}\n", 30 << 20));
    machine.use_memory("u", 140);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
    assert_eq!(machine.mib("u/memory.min"), 155);
    daemon.stop();
    assert_eq!(machine.mib("u/memory.min"), 30);
    assert_eq!(machine.mib(&format!("{B}/memory.min")), 30);
}

#[test]
fn limit_of_the_parent_cgroup_bounds_the_apps_reservation() {
    let (machine, a, _b) = two_apps();
    machine.write("cgroup/u/memory.max", &format!("{}\n", 120 << 20));
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(machine.mib(&format!("{A}/memory.min")), 72);
    daemon.stop();
}

#[test]
fn reservation_moves_to_memory_low_when_mglru_is_turned_off() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.write("sys/kernel/mm/lru_gen/enabled", "0x0000\n");
    daemon.until("memory.low", |_| {
        machine.mib(&format!("{A}/memory.low")) == 125
    });
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(machine.read("cgroup/u/memory.min"), "0");
    assert_eq!(machine.mib("u/memory.low"), 125);
    daemon.stop();
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.low")), "0");
}

#[test]
fn next_start_restores_after_a_crash_and_keeps_other_programs_changes() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    daemon.crash();
    assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
    machine.write("cgroup/u/memory.min", "777\n");
    let daemon = machine.start();
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(machine.read("cgroup/u/memory.min"), "777");
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    daemon.stop();
}

#[test]
fn restore_command_restores_everything() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    let mut roots = None;
    daemon.focus(a.pid);
    let record = machine.read("run/private/record/restore.json");
    daemon.crash();
    machine
        .start_with(|options| roots = Some(options.roots.clone()))
        .stop();
    // Brings the record and a changed value back, as if the service manager ran the stop hook.
    machine.write("run/private/record/restore.json", &record);
    machine.write(
        &format!("cgroup/{A}/memory.min"),
        &format!("{}\n", 125 << 20),
    );
    limelight_daemon::restore::put_back(roots.unwrap()).unwrap();
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(names(&machine.path("run")), ["lock", "private"]);
    assert!(machine.recorded().is_empty());
}

#[test]
fn corrupt_record_does_not_prevent_the_start() {
    let (machine, a, _b) = two_apps();
    std::fs::create_dir(machine.path("run")).unwrap();
    machine.write("run/private/record/restore.json", "{\"version\":1,");
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(
        machine.read("run/private/record/restore.json.corrupt"),
        "{\"version\":1,"
    );
    daemon.stop();
}

#[test]
fn change_that_cannot_be_recorded_is_not_made() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    // The daemon writes a new record to this path first. A directory there prevents that.
    std::fs::create_dir_all(machine.path("run/private/record/restore.json.new")).unwrap();
    daemon.focus(a.pid);
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(machine.read("cgroup/u/memory.min"), "0");
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    let changes = daemon.explain(a.pid).changes;
    assert!(!changes.is_empty());
    for change in changes {
        assert!(
            matches!(&change.outcome, Outcome::Failed { why } if why.contains("restore.json")),
            "{change:?}"
        );
    }
    // The next tick retries.
    std::fs::remove_dir(machine.path("run/private/record/restore.json.new")).unwrap();
    daemon.until("the reservation", |_| {
        machine.mib(&format!("{A}/memory.min")) == 125
    });
    daemon.stop();
}

#[test]
fn value_set_by_another_process_meanwhile_is_kept() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.write("cgroup/u/memory.min", "12345\n");
    machine.use_memory(A, 200);
    daemon.until("growth", |_| machine.mib(&format!("{A}/memory.min")) >= 250);
    assert_eq!(machine.read("cgroup/u/memory.min"), "12345");
    let explain = daemon.explain(a.pid);
    let leaf = explain
        .changes
        .iter()
        .find(|c| c.knob.ends_with("scope/memory.min"))
        .unwrap();
    assert!(
        matches!(&leaf.outcome, Outcome::Inert { why } if why.contains("/u reserves only 12345")),
        "{leaf:?}"
    );
    daemon.focus_none();
    assert_eq!(machine.read("cgroup/u/memory.min"), "12345");
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    daemon.stop();
}

#[test]
fn reservation_lost_to_a_reload_is_set_again_three_times() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let leaf = format!("cgroup/{A}/memory.min");
    for _ in 0..3 {
        machine.write(&leaf, "0\n");
        daemon.until("the reservation", |_| {
            machine.mib(&format!("{A}/memory.min")) == 125
        });
    }
    // After the third time, the other program's value is kept.
    machine.write(&leaf, "0\n");
    daemon.until("it is theirs", |_| {
        !machine.recorded().iter().any(|entry| {
            matches!(entry, Entry::Limit { cgroup, knob, .. }
                if knob == "memory.min" && cgroup.path == format!("/{A}"))
        })
    });
    assert_eq!(machine.read(&leaf), "0");
    let explain = daemon.explain(a.pid);
    let change = explain
        .changes
        .iter()
        .find(|change| change.knob.ends_with("scope/memory.min"))
        .unwrap();
    assert!(
        matches!(&change.outcome, Outcome::Inert { why } if why.contains("another program")),
        "{change:?}"
    );
    daemon.stop();
}

/// A reload of systemd resets the slices above an app, but not the app's scope, which belongs to
/// the user's own service manager.
#[test]
fn reservation_of_an_app_ends_with_its_focus_although_a_slice_was_reset() {
    for next in ["another app", "no app"] {
        let (machine, a, b) = two_apps();
        let mut daemon = machine.start();
        daemon.focus(a.pid);
        assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
        machine.write("cgroup/u/memory.min", "0\n");
        let expected = match next {
            "another app" => {
                daemon.focus(b.pid);
                50
            }
            _ => {
                daemon.focus_none();
                0
            }
        };
        assert_eq!(machine.mib(&format!("{A}/memory.min")), 0, "{next}");
        assert_eq!(machine.mib(&format!("{B}/memory.min")), expected);
        assert_eq!(machine.mib("u/memory.min"), expected, "{next}");
        daemon.stop();
    }
}

#[test]
fn ended_app_leaves_nothing_behind() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.end(a, A);
    daemon.until("the end", |_| machine.read("cgroup/u/memory.min") == "0");
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(daemon.topmost(), None);
    assert!(daemon.status().changes.is_empty());
    daemon.stop();
}

/// A report of a session agent, bound to its connection.
fn report(target: &str) -> String {
    format!(r#"{{"op":"focus","target":{target},"source":"x11","hold":true}}"#)
}

fn pid(pid: i32) -> String {
    format!(r#"{{"pid":{pid}}}"#)
}

#[test]
fn app_stays_topmost_for_the_gap_after_its_session_reports_none() {
    let (machine, a, b) = two_apps();
    let mut daemon = machine.start();
    let mut agent = daemon.connect();
    daemon.ask_over(&mut agent, &report(&pid(a.pid)));
    assert_eq!(daemon.topmost(), Some(a.pid));
    daemon.ask_over(&mut agent, &report(r#""none""#));
    let topmost = daemon.status().topmost.unwrap();
    assert_eq!(topmost.app.pid, Some(a.pid));
    assert!(topmost.demoted_in_ms.is_some());
    daemon.ask_over(&mut agent, &report(&pid(b.pid)));
    let topmost = daemon.status().topmost.unwrap();
    assert_eq!(topmost.app.pid, Some(b.pid));
    assert_eq!(topmost.demoted_in_ms, None);
    daemon.stop();
}

#[test]
fn sessions_claim_holds_until_its_connection_closes() {
    let (machine, a, _b) = two_apps();
    machine.write("limelight.toml", "[foreground]\ngap_ms = 0\n");
    let mut daemon = machine.start();
    let mut agent = daemon.connect();
    daemon.ask_over(&mut agent, &report(&pid(a.pid)));
    assert_eq!(daemon.topmost(), Some(a.pid));
    drop(agent);
    daemon.until("the agent's end", |_| {
        machine.read("cgroup/u/memory.min") == "0"
    });
    assert_eq!(daemon.topmost(), None);
    daemon.stop();
}

#[test]
fn score_that_becomes_0_claims_the_foreground_unless_the_daemon_wrote_it() {
    let (machine, a, b) = two_apps();
    let score = |pid: i32, value: &str| machine.write(&format!("proc/{pid}/oom_score_adj"), value);
    score(a.pid, "7");
    score(b.pid, "7");
    let mut daemon = machine.start();
    score(a.pid, "0");
    daemon.until("a", |_| machine.mib(&format!("{A}/memory.min")) > 0);
    assert_eq!(daemon.status().topmost.unwrap().source, "oom_score_adj");
    score(b.pid, "0");
    daemon.until("b", |_| machine.mib(&format!("{B}/memory.min")) > 0);
    // The daemon itself wrote a's 0 when it restored the score, so b stays topmost.
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    for _ in 0..20 {
        daemon
            .daemon
            .turn(Some(std::time::Duration::from_millis(30)))
            .unwrap();
    }
    assert_eq!(daemon.topmost(), Some(b.pid));
    // An explicit claim is accepted, and outranks an inferred one.
    daemon.focus(a.pid);
    score(b.pid, "7");
    daemon
        .daemon
        .turn(Some(std::time::Duration::from_millis(150)))
        .unwrap();
    score(b.pid, "0");
    for _ in 0..20 {
        daemon
            .daemon
            .turn(Some(std::time::Duration::from_millis(30)))
            .unwrap();
    }
    assert_eq!(daemon.topmost(), Some(a.pid));
    daemon.stop();
}

#[test]
fn children_that_inherited_a_lowered_score_are_restored_too() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let child = machine.spawn(A);
    machine.write(&format!("proc/{}/oom_score_adj", child.pid), "-500");
    let late = std::cell::Cell::new(0);
    daemon.until("the child is a member", |_| {
        late.set(late.get() + 1);
        let of_child = |entry: &Entry| entry.process().is_some_and(|id| id.pid == child.pid);
        machine.recorded().iter().any(of_child)
    });
    daemon.focus_none();
    assert_eq!(
        machine.read(&format!("proc/{}/oom_score_adj", child.pid)),
        "0"
    );
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    daemon.stop();
}

#[test]
fn status_lists_every_mechanism() {
    let (machine, ..) = two_apps();
    let mut daemon = machine.start();
    let status = daemon.status();
    let listed = status.mechanisms.iter().map(|one| one.name.as_str());
    let mut listed: Vec<&str> = listed.collect();
    let mut all = MechanismId::ALL.map(MechanismId::name);
    listed.sort_unstable();
    all.sort_unstable();
    assert_eq!(listed, all);
    daemon.stop();
}

#[test]
fn dry_run_reports_everything_and_changes_nothing() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start_with(|options| options.dry_run = true);
    daemon.focus(a.pid);
    let status = daemon.status();
    assert!(status.dry_run);
    assert_eq!(status.changes.len(), 4, "{:?}", status.changes);
    assert!(status
        .changes
        .iter()
        .all(|change| change.outcome == Outcome::Planned));
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    // Later plans repeat the changes, which keep their age.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        daemon.daemon.turn(Some(Duration::from_millis(50))).unwrap();
    }
    assert_eq!(daemon.status().changes, status.changes);
    daemon.focus_none();
    assert!(daemon.status().changes.is_empty());
    daemon.stop();
}

#[test]
fn cgroup_may_be_claimed_and_a_session_scope_may_not() {
    let (machine, _a, _b) = two_apps();
    machine.make_cgroup("u/session-2.scope");
    let mut daemon = machine.start();
    let claim =
        |path: &str| format!(r#"{{"op":"focus","target":{{"cgroup":"{path}"}},"source":"test"}}"#);
    let full = machine.path("cgroup").join(A);
    for path in [A, "/u/app-a-1.scope", full.to_str().unwrap()] {
        assert!(
            matches!(daemon.ask(&claim(path)), Response::Ok { .. }),
            "{path}"
        );
        assert_eq!(machine.mib(&format!("{A}/memory.min")), 125);
    }
    for (path, expected) in [
        ("/", ErrorCode::NotAnApp),
        ("u/session-2.scope", ErrorCode::NotAnApp),
        ("u/none", ErrorCode::NotFound),
        ("../../etc", ErrorCode::NotFound),
    ] {
        match daemon.ask(&claim(path)) {
            Response::Error { code, cure, .. } => {
                assert_eq!(code, expected, "{path}");
                assert!(!cure.is_empty());
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    daemon.stop();
}

#[test]
fn invalid_requests_are_refused_and_the_connection_stays_open() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    let mut client = daemon.connect();
    for line in [
        "",
        "{}",
        "[1]",
        "\u{0}",
        r#"{"op":"focus","target":{"pid":-5},"source":"x"}"#,
        r#"{"op":"focus","target":{"pid":1},"source":"x"}"#,
        r#"{"op":"focus","target":"none","source":""}"#,
        r#"{"op":"explain","pid":999999999}"#,
    ] {
        let answer = daemon.ask_over(&mut client, line);
        assert!(
            matches!(answer, Response::Error { .. }),
            "{line}: {answer:?}"
        );
    }
    let answer = daemon.ask_over(&mut client, r#"{"op":"status"}"#);
    assert!(matches!(answer, Response::Status(_)));
    assert_eq!(daemon.explain(a.pid).role, Role::Background);
    daemon.stop();
}

#[test]
fn invalid_configuration_leaves_the_old_one_in_force() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.write("limelight.toml", "[protect]\nbudget_percent = 900\n");
    daemon.daemon.reload();
    assert_eq!(daemon.status().memory.budget, 600 << 20);
    machine.write("limelight.toml", "[protect]\nenabled = false\n");
    daemon.daemon.reload();
    assert_eq!(daemon.status().mechanisms[0].state, State::Off);
    assert_eq!(machine.read("cgroup/u/memory.min"), "0");
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
    daemon.stop();
}

#[test]
fn protection_yields_when_no_other_memory_is_left() {
    let (machine, a, _b) = two_apps();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.write(
        "proc/meminfo",
        "MemTotal: 1024000 kB\nMemAvailable: 1000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n",
    );
    let mut stalled = 0u64;
    daemon.until("no reservation left", |_| {
        stalled += 1_000_000;
        machine.write(
            "proc/pressure/memory",
            &format!("some avg10=90.00 avg60=0.00 avg300=0.00 total={stalled}\nfull avg10=90.00 avg60=0.00 avg300=0.00 total={stalled}\n"),
        );
        machine.read(&format!("cgroup/{A}/memory.min")) == "0"
    });
    assert_eq!(daemon.status().memory.lowered_steps, 4);
    let notes = daemon.explain(a.pid).notes;
    assert!(
        notes.iter().any(|note| note.contains("lowered by 4/4")),
        "{notes:?}"
    );
    assert_eq!(
        machine.read(&format!("proc/{}/oom_score_adj", a.pid)),
        "-500",
        "the shield stays"
    );
    daemon.stop();
}

#[test]
fn explain_says_why_an_app_without_its_own_cgroup_is_not_protected() {
    let machine = Machine::new();
    machine.make_cgroup("session-1.scope");
    let a = machine.spawn("session-1.scope");
    // As if systemd ran here, so the daemon moves no process.
    let mut daemon = machine.start_with(|options| options.roots.systemd = machine.path("proc"));
    daemon.focus(a.pid);
    let explain = daemon.explain(a.pid);
    assert!(!explain.app.unwrap().own_cgroup);
    assert_eq!(explain.changes.len(), 1, "oom_score_adj only");
    assert!(
        explain
            .notes
            .iter()
            .any(|note| note.contains("[protect] adopt")),
        "{:?}",
        explain.notes
    );
    daemon.stop();
}
