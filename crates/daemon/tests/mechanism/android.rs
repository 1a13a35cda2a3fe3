// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine with Android's layout: the cpuset `top-app`, and cgroup v1.

use std::time::Duration;

use limelight_proto::{SourceStatus, State};

use super::common::{Machine, Running};
use super::{two_apps, A, B};

fn put(machine: &Machine, pids: &[i32]) {
    let list: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
    machine.write("top-app/cgroup.procs", &list);
    machine.write("top-app/tasks", &list);
}

fn source(daemon: &mut Running<'_>, name: &str) -> SourceStatus {
    let mut sources = daemon.status().sources.into_iter();
    sources.find(|source| source.name == name).unwrap()
}

/// Turns the loop several times.
fn turns(daemon: &mut Running<'_>) {
    for _ in 0..10 {
        daemon.daemon.turn(Some(Duration::from_millis(30))).unwrap();
    }
}

#[test]
fn process_in_top_app_is_foreground_whatever_the_scores_are() {
    let (machine, a, b) = two_apps();
    let score = |pid: i32, value: &str| machine.write(&format!("proc/{pid}/oom_score_adj"), value);
    for app in [&a, &b] {
        score(app.pid, "7");
    }
    std::fs::create_dir(machine.path("top-app")).unwrap();
    put(&machine, &[]);
    let mut daemon = machine.start();
    assert_eq!(source(&mut daemon, "top-app").state, State::Idle);
    score(a.pid, "0");
    daemon.until("a by its score", |_| {
        machine.mib(&format!("{A}/memory.min")) > 0
    });
    put(&machine, &[b.pid]);
    daemon.until("b by its cpuset", |_| {
        machine.mib(&format!("{B}/memory.min")) > 0
    });
    assert_eq!(daemon.status().topmost.unwrap().source, "top-app");
    assert_eq!(source(&mut daemon, "top-app").state, State::Active);
    let scores = source(&mut daemon, "oom_score_adj");
    assert!(
        scores.state == State::Idle && scores.detail.contains("top-app"),
        "{scores:?}"
    );
    score(a.pid, "7");
    turns(&mut daemon);
    score(a.pid, "0");
    turns(&mut daemon);
    assert_eq!(daemon.topmost(), Some(b.pid), "a runs a receiver");
    // An explicit claim outranks the cpuset.
    daemon.focus(a.pid);
    put(&machine, &[b.pid, a.pid]);
    put(&machine, &[b.pid]);
    turns(&mut daemon);
    assert_eq!(daemon.status().topmost.unwrap().source, "test");
    daemon.focus_none();
    put(&machine, &[b.pid, a.pid]);
    daemon.until("a", |_| machine.mib(&format!("{A}/memory.min")) > 0);
    put(&machine, &[]);
    turns(&mut daemon);
    let topmost = daemon.status().topmost.unwrap();
    assert!(
        topmost.demoted_in_ms.is_some(),
        "the cgroup is empty: a leaves after the gap"
    );
    daemon.stop();
}

#[test]
fn other_mechanisms_work_if_cgroup_v1_holds_the_memory_controller() {
    let (machine, a, _b) = two_apps();
    machine.write("cgroup/cgroup.controllers", "cpu\n");
    machine.write(
        "proc/cgroups",
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t9\t1\nmemory\t4\t9\t1\n",
    );
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let status = daemon.status();
    let protect = status.mechanisms.iter().find(|one| one.name == "protect");
    let protect = protect.unwrap();
    assert_eq!(protect.state, State::Unavailable);
    assert!(protect.detail.contains("cgroup v1 holds it"), "{protect:?}");
    assert_eq!(machine.read(&format!("cgroup/{A}/memory.min")), "0");
    assert_eq!(
        machine.read(&format!("proc/{}/oom_score_adj", a.pid)),
        "-500"
    );
    daemon.stop();
    assert_eq!(machine.read(&format!("proc/{}/oom_score_adj", a.pid)), "0");
}
