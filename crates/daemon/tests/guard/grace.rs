// SPDX-License-Identifier: GPL-2.0-or-later
//! A victim is asked to exit before it is killed, unless memory is exhausted. Memory is short in all
//! of these, but much swap is free.

use std::os::unix::process::ExitStatusExt;

use limelight_core::model::protected::Why;
use limelight_daemon::mechanisms::swap::guard::Spared;
use rustix::process::Signal;

use super::*;

/// Longer than any wait of these tests.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(200);
/// The program answers the request and the test acts within this time, also on a busy machine. The
/// guard decides at its end.
const AMPLE: Duration = Duration::from_secs(5);
/// Free swap in MiB, so that memory is not exhausted.
const SWAP: u64 = 4096;
/// Anonymous memory of the app, in pages: enough to be worth a kill.
const PAGES: u64 = 2000;

/// A machine with an armed disposable app, which has one process.
struct Armed {
    machine: Machine,
    app: App,
    process: Process,
    guard: Guard,
}

impl Armed {
    fn new(program: &str, gate: &Gate, grace: Duration) -> Armed {
        let machine = Machine::new(None);
        machine.has_with_swap(200, SWAP);
        let directory = machine.temp.path();
        let mut shell = Command::new("sh");
        let process = machine.run(shell.args(["-c", program]).current_dir(directory), PAGES);
        wait_for("the program runs", || directory.join("ready").exists());
        let app = app(process.id, None);
        let mut guard = Guard::start(&machine.system, thresholds(), gate.clone()).unwrap();
        guard.set_grace(grace);
        let victim = Victim {
            candidate: candidate(&app, Class::Disposable, PAGES * 4096),
            app: &app,
            members: &[process.id],
        };
        assert_eq!(guard.arm(&machine.system, [victim]), 1);
        machine.has_with_swap(4, SWAP);
        Armed {
            machine,
            app,
            process,
            guard,
        }
    }

    fn wait_until_asked(&self) {
        let asked = self.machine.temp.path().join("asked");
        wait_for("the app was not asked", || asked.exists());
    }

    fn exit_signal(&mut self) -> Option<i32> {
        self.process.child.wait().unwrap().signal()
    }

    /// Waits until the guard spares the app.
    fn spared(&self) -> Vec<(AppKey, Spared)> {
        let mut spared = Vec::new();
        wait_for("no app was spared", || {
            spared = self.guard.spared();
            !spared.is_empty()
        });
        assert!(self.guard.reports().is_empty());
        spared
    }
}

const OBEYS: &str = "echo > ready; exec sleep 600";
const STAYS: &str = "trap 'echo > asked' TERM; echo > ready; while :; do sleep 0.05; done";

pub fn victim_that_exits_when_asked_is_not_killed() {
    let mut armed = Armed::new(OBEYS, &Gate::default(), LONG);
    let report = next_report(&armed.guard);
    assert!(report.asked.is_some() && report.how.is_none(), "{report:?}");
    assert_eq!(armed.exit_signal(), Some(Signal::TERM.as_raw()));
}

pub fn victim_that_does_not_exit_is_killed_after_the_grace() {
    let mut armed = Armed::new(STAYS, &Gate::default(), SHORT);
    COUNTS.store(true, Ordering::SeqCst);
    let report = next_report(&armed.guard);
    COUNTS.store(false, Ordering::SeqCst);
    assert_eq!(COUNTED.load(Ordering::SeqCst), 0, "the guard took memory");
    assert!(report.killed - report.asked.unwrap() >= SHORT);
    assert_eq!(report.how.unwrap().processes, 1);
    assert_eq!(armed.exit_signal(), Some(Signal::KILL.as_raw()));
}

/// The processes of an app are known as of the last plan.
pub fn process_that_is_found_during_the_grace_is_asked_too() {
    let mut armed = Armed::new(STAYS, &Gate::default(), LONG);
    armed.wait_until_asked();
    let asked = armed.machine.temp.path().join("asked");
    fs::remove_file(&asked).unwrap();
    let mut shell = Command::new("sleep");
    let mut young = armed.machine.run(shell.arg("600"), PAGES);
    let mut members = [armed.process.id, young.id];
    members.sort_unstable();
    let victim = Victim {
        candidate: candidate(&armed.app, Class::Disposable, PAGES * 4096),
        app: &armed.app,
        members: &members,
    };
    assert_eq!(armed.guard.arm(&armed.machine.system, [victim]), 1);
    wait_for("the young process was not asked", || !young.is_alive());
    let signal = young.child.wait().unwrap().signal();
    assert_eq!(signal, Some(Signal::TERM.as_raw()));
    // The older process was asked only once.
    std::thread::sleep(SHORT);
    assert!(!asked.exists() && armed.process.is_alive());
    armed.machine.has_with_swap(4, 0);
    assert!(next_report(&armed.guard).how.is_some());
}

pub fn exhausted_memory_ends_the_grace() {
    let mut armed = Armed::new(STAYS, &Gate::default(), LONG);
    armed.wait_until_asked();
    armed.machine.has_with_swap(4, 0);
    let report = next_report(&armed.guard);
    assert!(report.asked.is_some() && report.how.is_some(), "{report:?}");
    assert_eq!(armed.exit_signal(), Some(Signal::KILL.as_raw()));
}

pub fn victim_is_spared_if_memory_is_no_longer_short() {
    let mut armed = Armed::new(STAYS, &Gate::default(), AMPLE);
    armed.wait_until_asked();
    let key = armed.app.key;
    assert_eq!(armed.guard.closing(), Some(key));
    armed.machine.has_with_swap(200, SWAP);
    assert_eq!(armed.spared(), [(key, Spared::NoShortage)]);
    wait_for("the app is not being closed", || {
        armed.guard.closing().is_none()
    });
    assert!(armed.process.is_alive());
}

pub fn victim_is_spared_if_the_daemon_is_paused() {
    let mut armed = Armed::new(STAYS, &Gate::default(), LONG);
    armed.wait_until_asked();
    armed.guard.set_paused(true);
    let key = armed.app.key;
    assert_eq!(armed.spared(), [(key, Spared::Paused)]);
    assert!(armed.process.is_alive());
    // It may be killed again after the pause.
    armed.guard.set_paused(false);
    armed.guard.set_grace(SHORT);
    let victim = Victim {
        candidate: candidate(&armed.app, Class::Disposable, PAGES * 4096),
        app: &armed.app,
        members: &[armed.process.id],
    };
    assert_eq!(armed.guard.arm(&armed.machine.system, [victim]), 1);
    assert!(next_report(&armed.guard).how.is_some());
}

pub fn paused_guard_kills_no_app() {
    let machine = Machine::new(None);
    machine.has(200);
    let mut shell = Command::new("sleep");
    let mut process = machine.run(shell.arg("600"), PAGES);
    let app = app(process.id, None);
    let mut guard = Guard::start(&machine.system, thresholds(), Gate::default()).unwrap();
    guard.set_paused(true);
    let members = [process.id];
    let mut arm = || {
        let victim = Victim {
            candidate: candidate(&app, Class::Disposable, PAGES * 4096),
            app: &app,
            members: &members,
        };
        assert_eq!(guard.arm(&machine.system, [victim]), 1);
        guard.shortage().level()
    };
    arm();
    machine.has(4);
    wait_for("memory is not short", || arm() >= Level::Kill);
    // Further readings of the gauge.
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(2));
        assert!(process.is_alive());
    }
    assert!(guard.reports().is_empty());
    guard.set_paused(false);
    assert!(next_report(&guard).how.is_some());
    assert!(!process.is_alive());
}

pub fn victim_that_comes_to_the_foreground_is_spared() {
    let gate = Gate::default();
    let mut armed = Armed::new(STAYS, &gate, AMPLE);
    armed.wait_until_asked();
    let wanted = (armed.process.id, Some(armed.app.key), Why::Topmost);
    gate.update(&armed.machine.system, [wanted], Vec::new());
    let key = armed.app.key;
    assert_eq!(armed.spared(), [(key, Spared::Refused)]);
    assert!(armed.process.is_alive());
}
