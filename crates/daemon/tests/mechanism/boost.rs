// SPDX-License-Identifier: GPL-2.0-or-later
//! Boost on a machine of plain files, with real processes and actual changes of their scheduling.

use std::process::Command;

use crate::common::{names, App, Machine};
use limelight_proto::{Outcome, State};
use limelight_sys::sched::Cpu;

const A: &str = "u/app-a-1.scope";
const B: &str = "u/app-b-2.scope";
const SLICE_NS: u64 = 400_000;

/// A machine with boost enabled, and with the cpu controller in every cgroup.
fn machine() -> Machine {
    let machine = Machine::new();
    machine.write(
        "limelight.toml",
        "[protect]\nenabled = false\ninterval_ms = 100\n[boost]\nslice_us = 400\nhelpers = []\n[sources]\noom_score_adj = \"off\"\n",
    );
    for cgroup in ["u", A, B] {
        machine.make_cgroup(cgroup);
        machine.write(&format!("cgroup/{cgroup}/cpu.weight"), "100\n");
    }
    machine
}

/// Starts a process and lists its only thread.
fn spawn(machine: &Machine, cgroup: &str) -> App {
    let app = machine.spawn(cgroup);
    list_thread(machine, app.pid, app.pid);
    app
}

fn list_thread(machine: &Machine, pid: i32, tid: i32) {
    let directory = format!("proc/{pid}/task/{tid}");
    std::fs::create_dir_all(machine.path(&directory)).unwrap();
    let stat = machine.read(&format!("proc/{pid}/stat"));
    machine.write(&format!("{directory}/stat"), &stat);
}

fn weight(machine: &Machine, cgroup: &str) -> String {
    machine.read(&format!("cgroup/{cgroup}/cpu.weight"))
}

/// Nice value, and slice in nanoseconds. Kernels before 6.12 report no slice.
fn asking(app: &App) -> (i32, u64) {
    let cpu = Cpu::of(app.pid).unwrap();
    (cpu.nice(), cpu.slice_ns())
}

/// Expected slice of a boosted thread; 0 if this kernel reports none.
fn slice(kernel_s: u64) -> u64 {
    match kernel_s {
        0 => 0,
        _ => SLICE_NS,
    }
}

fn renice(app: &App, nice: i32) {
    let cpu = Cpu::of(app.pid).unwrap();
    cpu.set(app.pid, nice, 0).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Beside the foreground app's weight, an app could not save its state in time.
#[test]
fn app_that_is_asked_to_exit_has_the_weight_of_the_foreground_app() {
    let machine = machine();
    let config = machine.read("limelight.toml");
    let swap = "[swap]\ngrace_ms = 5000\nfreeze = false\n[class]\ndisposable = [\"*/app-b-*\"]";
    machine.write("limelight.toml", &format!("{config}\n{swap}\n"));
    let available = |mib: u64| {
        let kib = mib << 10;
        machine.write(
            "proc/meminfo",
            &format!(
                "MemTotal: 1024000 kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n\
                 SwapTotal: 512000 kB\nSwapFree: 512000 kB\n"
            ),
        );
    };
    available(900);
    let a = spawn(&machine, A);
    let mut program = Command::new("sh");
    let b = machine.run(B, program.args(["-c", "trap '' TERM; exec sleep 600"]));
    machine.open_device(&b, "dev-null");
    machine.use_memory(B, 40);
    machine.write(&format!("proc/{}/statm", b.pid), "20000 10240 0 0 0 0 0\n");
    machine.write(
        &format!("cgroup/{B}/cgroup.events"),
        "populated 1\nfrozen 0\n",
    );
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    daemon.until("app b runs", |_| {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", b.pid));
        comm.unwrap().trim() == "sleep"
    });
    assert_eq!(weight(&machine, B), "100");
    available(5);
    daemon.until("app b has the weight of app a", |_| {
        weight(&machine, B) == "10000"
    });
    assert_eq!(weight(&machine, A), "10000");
    available(900);
    daemon.until("app b has its own weight", |_| weight(&machine, B) == "100");
    daemon.stop();
    assert_eq!(weight(&machine, A), "100");
}

#[test]
fn weights_and_slices_follow_the_focus_and_are_restored() {
    let machine = machine();
    let (a, b) = (spawn(&machine, A), spawn(&machine, B));
    machine.write("cgroup/u/cpu.weight", "200\n");
    let before = (asking(&a), asking(&b));
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(weight(&machine, A), "10000");
    assert_eq!(weight(&machine, "u"), "10000");
    assert_eq!(asking(&a), (before.0 .0, slice(before.0 .1)));
    let explain = daemon.explain(a.pid);
    assert!(explain
        .changes
        .iter()
        .all(|change| change.outcome == Outcome::Applied));
    assert!(explain
        .notes
        .iter()
        .any(|note| note.contains("nice is not used: cpu.weight acts")));

    daemon.focus(b.pid);
    assert_eq!(
        (weight(&machine, A).as_str(), weight(&machine, B).as_str()),
        ("100", "10000")
    );
    assert_eq!((asking(&a), asking(&b).1), (before.0, slice(before.1 .1)));
    daemon.focus_none();
    assert_eq!(weight(&machine, B), "100");
    assert_eq!(weight(&machine, "u"), "200");
    assert_eq!((asking(&a), asking(&b)), before);
    daemon.stop();
    assert_eq!(names(&machine.path("run")), ["lock", "private"]);
    assert!(machine.recorded().is_empty());
}

#[test]
fn threads_get_nice_values_without_the_controller_and_status_says_why() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    std::fs::remove_file(machine.path("cgroup/u/cpu.weight")).unwrap();
    let before = asking(&a);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(asking(&a), ((before.0 - 20).max(-20), slice(before.1)));
    assert_eq!(weight(&machine, A), "100");
    let status = daemon.status();
    let boost = status
        .mechanisms
        .iter()
        .find(|m| m.name == "boost")
        .unwrap();
    assert_eq!(boost.state, State::Active);
    let told = "cpu.weight inert: the cpu controller is not enabled for /u";
    assert!(boost.detail.contains(told), "{}", boost.detail);
    daemon.stop();
    assert_eq!(asking(&a), before);
}

#[test]
fn nice_value_set_by_another_process_is_kept() {
    if !is_root() {
        return;
    }
    let machine = machine();
    let a = spawn(&machine, A);
    std::fs::remove_file(machine.path("cgroup/u/cpu.weight")).unwrap();
    let higher = asking(&a).0 + 5;
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    renice(&a, higher);
    let status = daemon.status();
    assert_eq!(status.topmost.unwrap().app.pid, Some(a.pid));
    daemon.focus_none();
    assert_eq!(asking(&a).0, higher);
    daemon.stop();
}

#[test]
fn next_start_restores_processes_and_children_after_a_crash() {
    let machine = machine();
    let (a, b) = (spawn(&machine, A), spawn(&machine, B));
    let before = asking(&a);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    assert_eq!(weight(&machine, A), "10000");
    daemon.crash();
    assert_eq!(weight(&machine, A), "10000");
    // A child forked after the last scan, with its parent's values.
    let child = spawn(&machine, A);
    let given = Cpu::of(a.pid).unwrap();
    Cpu::of(child.pid)
        .unwrap()
        .set(child.pid, given.nice(), given.slice_ns())
        .unwrap();
    machine.write(&format!("cgroup/{B}/cpu.weight"), "300\n");
    let daemon = machine.start();
    assert_eq!(weight(&machine, A), "100");
    assert_eq!((asking(&a), asking(&child)), (before, before));
    assert_eq!(weight(&machine, B), "300", "never ours");
    daemon.stop();
    drop(b);
}

#[test]
fn weight_set_by_another_process_is_kept() {
    let machine = machine();
    let a = spawn(&machine, A);
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    machine.write(&format!("cgroup/{A}/cpu.weight"), "77\n");
    daemon.until("a poll", |_| true);
    daemon.focus_none();
    assert_eq!(weight(&machine, A), "77");
    assert_eq!(weight(&machine, "u"), "100");
    daemon.stop();
}

#[test]
fn dry_run_plans_weights_and_threads() {
    let machine = machine();
    let a = spawn(&machine, A);
    let before = asking(&a);
    let mut daemon = machine.start_with(|options| options.dry_run = true);
    daemon.focus(a.pid);
    let explain = daemon.explain(a.pid);
    let planned = |end: &str| {
        let mut changes = explain.changes.iter();
        changes.any(|c| c.knob.ends_with(end) && c.outcome == Outcome::Planned)
    };
    assert!(planned("u/cpu.weight"), "{explain:?}");
    assert!(before.1 == 0 || planned("task scheduling"), "{explain:?}");
    assert_eq!((weight(&machine, A).as_str(), asking(&a)), ("100", before));
    daemon.stop();
}

#[test]
fn dry_run_does_not_restore_a_dead_daemons_changes() {
    let machine = machine();
    let config = machine
        .read("limelight.toml")
        .replace("enabled = false", "");
    machine.write("limelight.toml", &config);
    machine.use_memory(A, 100);
    let (a, b) = (spawn(&machine, A), spawn(&machine, B));
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    daemon.crash();
    let left = || {
        let memory = machine.mib(&format!("{A}/memory.min"));
        let score = machine.read(&format!("proc/{}/oom_score_adj", a.pid));
        let weights = [A, B, "u"].map(|cgroup| weight(&machine, cgroup));
        (machine.recorded(), memory, score, weights, asking(&a))
    };
    let before = left();
    assert_eq!((before.1, before.2.as_str()), (125, "-500"));
    assert_eq!(before.3, ["10000", "100", "10000"]);
    let mut daemon = machine.start_with(|options| options.dry_run = true);
    for pid in [b.pid, a.pid] {
        daemon.focus(pid);
        assert_eq!(left(), before);
    }
    daemon.focus_none();
    daemon.stop();
    assert_eq!(left(), before);
}
