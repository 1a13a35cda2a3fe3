// SPDX-License-Identifier: GPL-2.0-or-later
//! No process keeps a value that the daemon gave it, or that it inherited from such a process,
//! whatever the process does meanwhile.

use crate::common::{App, Machine};
use limelight_sys::clock::boottime;
use limelight_sys::sched::Cpu;

const A: &str = "u/app-a-1.scope";
const B: &str = "u/app-b-2.scope";
const USER: u32 = 1000;

/// A machine with two apps, with OOM score adjustments and nice values.
fn machine() -> Machine {
    let machine = Machine::new();
    machine.write(
        "limelight.toml",
        "[protect]\ninterval_ms = 100\n[boost]\nslice_us = 400\nhelpers = []\n\
         [sources]\noom_score_adj = \"off\"\n[foreground]\ngap_ms = 60000\n",
    );
    for cgroup in ["u", A, B] {
        machine.make_cgroup(cgroup);
        machine.use_memory(cgroup, 40);
    }
    machine
}

/// Starts a process of `USER` with the current time as its start time. [`Machine::spawn`] alone
/// would set a later one.
fn spawn(machine: &Machine, cgroup: &str) -> App {
    let app = machine.spawn(cgroup);
    machine.give(&app, USER);
    let ticks = boottime().as_millis() / 10 + 1;
    let pid = app.pid;
    let stat = format!("{pid} (app) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
    machine.write(&format!("proc/{pid}/stat"), &stat);
    let directory = format!("proc/{pid}/task/{pid}");
    std::fs::create_dir_all(machine.path(&directory)).unwrap();
    machine.write(&format!("{directory}/stat"), &stat);
    app
}

/// Starts a process with the values of `parent`, like a child that has left its parent and its
/// parent's cgroup.
fn escape(machine: &Machine, parent: &App, cgroup: &str) -> App {
    let child = spawn(machine, cgroup);
    set_score(machine, &child, score(machine, parent));
    let given = Cpu::of(parent.pid).unwrap();
    Cpu::of(child.pid)
        .unwrap()
        .set(child.pid, given.nice(), given.slice_ns())
        .unwrap();
    child
}

fn score(machine: &Machine, app: &App) -> i16 {
    let score = machine.read(&format!("proc/{}/oom_score_adj", app.pid));
    score.parse().unwrap()
}

fn set_score(machine: &Machine, app: &App, score: i16) {
    machine.write(
        &format!("proc/{}/oom_score_adj", app.pid),
        &score.to_string(),
    );
}

/// Nice value, and slice in nanoseconds.
fn asking(app: &App) -> (i32, u64) {
    let cpu = Cpu::of(app.pid).unwrap();
    (cpu.nice(), cpu.slice_ns())
}

fn renice(app: &App, nice: i32) {
    let cpu = Cpu::of(app.pid).unwrap();
    cpu.set(app.pid, nice, cpu.slice_ns()).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn raised_score_still_below_the_original_is_restored() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let (a, b) = (spawn(&machine, A), spawn(&machine, B));
    let mut daemon = machine.start();
    for _ in 0..3 {
        daemon.focus(a.pid);
        assert_eq!(score(&machine, &a), -500);
        set_score(&machine, &a, -499);
        daemon.focus(b.pid);
        assert_eq!(score(&machine, &a), 0);
    }
    daemon.focus(a.pid);
    set_score(&machine, &a, 300);
    daemon.focus_none();
    assert_eq!(score(&machine, &a), 300, "above the original");
    daemon.stop();
}

#[test]
fn raised_nice_value_still_below_the_original_is_restored() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    let before = asking(&a);
    let mut daemon = machine.start();
    for points in [1, 19] {
        daemon.focus(a.pid);
        assert_eq!(asking(&a).0, before.0 - 20);
        renice(&a, before.0 - 20 + points);
        daemon.focus_none();
        assert_eq!(asking(&a), before, "{points}");
    }
    daemon.focus(a.pid);
    renice(&a, before.0 - 17);
    daemon.stop();
    assert_eq!(asking(&a), before);
}

#[test]
fn orphans_that_left_the_cgroup_are_restored() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    let before = asking(&a);
    let older = spawn(&machine, B);
    set_score(&machine, &older, -300);
    renice(&older, -7);
    let mut daemon = machine.start();
    std::thread::sleep(std::time::Duration::from_millis(50));
    daemon.focus(a.pid);
    let same = escape(&machine, &a, B);
    let other = escape(&machine, &a, B);
    set_score(&machine, &other, -1);
    renice(&other, before.0 - 19);
    let above = escape(&machine, &a, B);
    set_score(&machine, &above, 7);
    renice(&above, before.0 + 5);
    let stranger = escape(&machine, &a, B);
    machine.give(&stranger, USER + 1);
    daemon.focus_none();
    assert_eq!((score(&machine, &same), asking(&same)), (0, before));
    assert_eq!((score(&machine, &other), asking(&other)), (0, before));
    assert_eq!(
        (score(&machine, &above), asking(&above).0),
        (7, before.0 + 5)
    );
    assert_eq!(
        (score(&machine, &stranger), asking(&stranger).0),
        (-500, before.0 - 20)
    );
    assert_eq!((score(&machine, &older), asking(&older).0), (-300, -7));
    daemon.stop();
}

#[test]
fn children_of_an_ended_process_are_restored() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    let before = asking(&a);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let orphan = escape(&machine, &a, B);
    let successor = escape(&machine, &a, A);
    machine.end(a, A);
    machine.write(
        &format!("cgroup/{A}/cgroup.procs"),
        &format!("{}\n", successor.pid),
    );
    let mut looks = 0;
    daemon.until("some polls", |_| {
        looks += 1;
        looks > 20
    });
    daemon.stop();
    assert_eq!((score(&machine, &orphan), asking(&orphan)), (0, before));
    assert_eq!(
        (score(&machine, &successor), asking(&successor)),
        (0, before)
    );
}

#[test]
fn escaped_child_in_the_foreground_is_not_lowered_twice() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let (a, none) = (spawn(&machine, A), spawn(&machine, "u"));
    let before = asking(&a);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let child = escape(&machine, &a, B);
    set_score(&machine, &child, -499);
    daemon.focus(child.pid);
    let boosted = (-500, before.0 - 20);
    assert_eq!((score(&machine, &child), asking(&child).0), boosted);
    daemon.focus_none();
    assert_eq!((score(&machine, &child), asking(&child)), (0, before));
    daemon.stop();
    assert_eq!((score(&machine, &child), asking(&child)), (0, before));
    drop(none);
}

#[test]
fn values_already_lowered_by_others_are_not_lowered_further() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    set_score(&machine, &a, -500);
    renice(&a, -10);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!((score(&machine, &a), asking(&a).0), (-500, -10));
    daemon.stop();
    assert_eq!((score(&machine, &a), asking(&a).0), (-500, -10));
}

#[test]
fn next_daemon_restores_escaped_children() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    let before = asking(&a);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    daemon.crash();
    let orphan = escape(&machine, &a, B);
    set_score(&machine, &a, -499);
    machine.start().stop();
    assert_eq!((score(&machine, &orphan), asking(&orphan)), (0, before));
    assert_eq!((score(&machine, &a), asking(&a)), (0, before));
}

#[test]
fn newcomer_in_the_cgroup_of_the_app_keeps_its_own_values() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    renice(&a, 3);
    set_score(&machine, &a, 70);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    daemon.crash();
    // Another program has moved this process into the cgroup.
    let newcomer = spawn(&machine, A);
    let own = asking(&newcomer);
    machine.start().stop();
    assert_eq!((score(&machine, &a), asking(&a).0), (70, 3));
    assert_eq!((score(&machine, &newcomer), asking(&newcomer)), (0, own));
}
