// SPDX-License-Identifier: GPL-2.0-or-later
//! The watcher process: the real program, next to a daemon on a machine of plain files or alone.

#[allow(dead_code)]
mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Machine, Running};
use limelight_core::model::protected::Why;
use limelight_daemon::reconcile::gate::collect::{Collector, Request};
use limelight_daemon::restore::{Entry, Ledger};
use limelight_daemon::system::lock;
use limelight_daemon::system::{Roots, System};
use rustix::process::{kill_process, Pid, Signal};

const PROGRAM: &str = env!("CARGO_BIN_EXE_limelightd");

/// Maximum resident memory of a waiting watcher, in KiB.
const RSS_KIB_MAX: u64 = 3 * 1024;

/// A watcher without a daemon, and changes left by a dead daemon.
struct Alone {
    temp: tempfile::TempDir,
    child: Child,
}

impl Alone {
    /// Creates a directory and a restore record that lists it for removal, and starts a watcher.
    fn start() -> Alone {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("instance")).unwrap();
        fs::create_dir(temp.path().join("run")).unwrap();
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let mut ledger = Ledger::open(&temp.path().join("run"), boot_id.trim().to_owned());
        let path = temp.path().join("instance");
        ledger.intend([Entry::TraceInstance { path }]).unwrap();
        let child = Command::new(PROGRAM)
            .arg("--watch")
            .arg(temp.path().join("run"))
            .env_remove("JOURNAL_STREAM")
            .env_remove("LIMELIGHT_LOG")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let alone = Alone { temp, child };
        wait_for("the watcher to wait", || is_reading(alone.child.id()));
        alone
    }

    fn run(&self) -> PathBuf {
        self.temp.path().join("run")
    }

    fn is_restored(&self) -> bool {
        !self.temp.path().join("instance").exists()
    }

    /// Waits for the watcher's end; returns its exit code and its log.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        pipe.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the process has set its name to that of a watcher and sleeps.
fn is_reading(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("(limelight-watch) S")
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.split_whitespace().next());
    value.unwrap().parse().unwrap()
}

/// Starts a daemon with a real watcher.
fn start(machine: &Machine) -> Running<'_> {
    let daemon = machine.start_with(|options| options.watcher = Some(PROGRAM.into()));
    let pid = daemon.daemon.watcher_pid().unwrap();
    wait_for("the watcher to wait", || is_reading(pid as u32));
    daemon
}

#[test]
fn end_of_the_pipe_restores_everything() {
    let mut watcher = Alone::start();
    let own = std::process::id();
    drop(watcher.child.stdin.take());
    let (code, log) = watcher.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(watcher.is_restored(), "{log}");
    let line = format!("limelightd (pid {own}) died unexpectedly");
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    assert!(!watcher.run().join("private/record/restore.json").exists());
}

#[test]
fn nothing_is_restored_after_an_orderly_stop() {
    let mut watcher = Alone::start();
    let mut pipe = watcher.child.stdin.take().unwrap();
    pipe.write_all(b".").unwrap();
    assert_eq!(watcher.end(), (Some(0), String::new()));
    assert!(!watcher.is_restored());
}

#[test]
fn watcher_leaves_restoring_to_a_successor_that_holds_the_lock() {
    let mut watcher = Alone::start();
    let _lock = lock::take(&watcher.run()).unwrap();
    drop(watcher.child.stdin.take());
    let (code, log) = watcher.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!watcher.is_restored());
    let line = format!(
        "its successor (pid {}) restores everything",
        std::process::id()
    );
    assert!(log.contains(&line), "{log}");
}

#[test]
fn signals_to_the_process_group_do_not_end_the_watcher() {
    let mut watcher = Alone::start();
    let pid = watcher.child.id() as i32;
    for number in [Signal::TERM, Signal::INT, Signal::HUP, Signal::ABORT] {
        signal(pid, number);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(watcher.child.try_wait().unwrap(), None);
    drop(watcher.child.stdin.take());
    assert_eq!(watcher.end().0, Some(0));
    assert!(watcher.is_restored());
}

#[test]
fn waiting_watcher_is_small_and_holds_only_its_pipe() {
    let machine = Machine::new();
    let daemon = start(&machine);
    let pid = daemon.daemon.watcher_pid().unwrap() as u32;
    let rss = field(pid, "VmRSS:");
    println!("VmRSS {rss} KiB, RssAnon {} KiB", field(pid, "RssAnon:"));
    assert_eq!(field(pid, "Threads:"), 1);
    // Debug builds are larger.
    if !cfg!(debug_assertions) {
        assert!(rss <= RSS_KIB_MAX, "{rss} KiB");
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let held: Vec<PathBuf> = open
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|path| path.starts_with(machine.path("")) || path.starts_with("/dev/limelight"))
        .collect();
    assert!(held.is_empty(), "{held:?}");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    let session = fields.split(' ').nth(3).unwrap();
    assert_eq!(session, pid.to_string(), "a session of its own");
    daemon.daemon.stop();
}

#[test]
fn normal_stop_ends_the_watcher() {
    let machine = Machine::new();
    let daemon = start(&machine);
    let pid = daemon.daemon.watcher_pid().unwrap();
    daemon.daemon.stop();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn stopped_watcher_does_not_delay_a_stop() {
    let machine = Machine::new();
    let daemon = start(&machine);
    let pid = daemon.daemon.watcher_pid().unwrap();
    signal(pid, Signal::STOP);
    let began = Instant::now();
    daemon.daemon.stop();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn killed_watcher_is_replaced() {
    let machine = Machine::new();
    let mut daemon = start(&machine);
    let mut before = daemon.daemon.watcher_pid().unwrap();
    for _ in 0..2 {
        signal(before, Signal::KILL);
        daemon.until("another watcher", |daemon| {
            daemon.watcher_pid().is_some_and(|pid| pid != before)
        });
        before = daemon.daemon.watcher_pid().unwrap();
        wait_for("the watcher to wait", || is_reading(before as u32));
    }
    daemon.daemon.stop();
    assert!(!Path::new(&format!("/proc/{before}")).exists());
}

#[test]
fn gate_protects_the_watcher() {
    let watcher = Alone::start();
    let pid = watcher.child.id() as i32;
    let mut system = System::open(Roots::default()).unwrap();
    system.watcher = Some(pid);
    let mut collector = Collector::default();
    let wanted = collector.collect(&system, Duration::ZERO, Request::default());
    let found = wanted.iter().find(|(id, _, _)| id.pid == pid);
    assert_eq!(found.map(|(_, _, why)| *why), Some(Why::Limelight));
}

#[test]
fn dry_run_has_no_watcher() {
    let machine = Machine::new();
    let daemon = machine.start_with(|options| {
        options.watcher = Some(PROGRAM.into());
        options.dry_run = true;
    });
    assert_eq!(daemon.daemon.watcher_pid(), None);
}
