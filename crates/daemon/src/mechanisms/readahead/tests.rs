// SPDX-License-Identifier: GPL-2.0-or-later
//! Tests with real processes, real files and a real fanotify queue. They are skipped where this
//! user may not watch opens, or where temporary files are not on a disk.

use super::*;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use limelight_core::model::app::AppKey;
use limelight_core::model::never::Exceptions;
use limelight_core::model::pressure::Memory;
use limelight_core::model::snapshot::Measured;
use limelight_sys::pagecache::cached;

use crate::system::{now, Roots};

/// Longest wait for an expected state; a test fails after it.
const PATIENCE: Duration = Duration::from_secs(30);

struct Machine {
    temp: tempfile::TempDir,
    system: System,
    readahead: Readahead,
}

/// A process that waits for lines on its standard input.
struct App(Child);

impl App {
    fn say(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    fn new() -> Option<Machine> {
        let temp = tempfile::tempdir().unwrap();
        let cgroup = temp.path().join("cgroup");
        fs::create_dir(&cgroup).unwrap();
        let roots = Roots {
            cgroup: Some(cgroup),
            ..Roots::default()
        };
        let system = System::open(roots).unwrap();
        let settings = ReadaheadSettings {
            record: Duration::from_secs(1),
            ..ReadaheadSettings::default()
        };
        let directory = temp.path().join("records");
        let mut readahead = Readahead::start(&system, &settings, &directory, false, now());
        match &mut readahead.eyes {
            Eyes::Open(opens) => opens.never_pause(now()),
            Eyes::Shut(_) => return None,
        }
        Some(Machine {
            temp,
            system,
            readahead,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// A file with no cached page; `None` where that is impossible.
    fn uncached(&self, name: &str, mib: usize) -> Option<fs::File> {
        let path = self.path(name);
        fs::write(&path, vec![7; mib << 20]).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        (cached_bytes(&file) == 0).then_some(file)
    }

    /// Runs a shell script with a copy of the shell, so that its start gets a record of its own.
    fn start(&self, script: &str) -> App {
        let program = self.path("app");
        if !program.exists() {
            fs::copy("/bin/sh", &program).unwrap();
        }
        let child = Command::new(&program)
            .args(["-c", script])
            .current_dir(self.temp.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        App(child)
    }

    fn focus(&mut self, app: &App) {
        let (id, _) = self.system.process(app.0.id() as i32).unwrap();
        let snapshot = Snapshot {
            memory: Memory {
                free: 0,
                total: 1 << 40,
                available: 1 << 40,
                reachable: 1 << 40,
                compressed: 0,
                anonymous: None,
                swap_total: 0,
                swap_free: 0,
            },
            topmost: Some(Measured {
                app: limelight_core::model::App {
                    key: AppKey::Tree(id),
                    name: "app".into(),
                    process: Some(id),
                    home: None,
                },
                members: vec![id],
                footprint: None,
                terminal: None,
                exceptions: Exceptions::default(),
            }),
            ..Snapshot::default()
        };
        self.readahead.observe(&snapshot, &self.system, now());
    }

    /// Runs the event loop's steps until `holds` returns true.
    fn until(&mut self, what: &str, holds: impl Fn(&Readahead) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.readahead) {
            assert!(Instant::now() < deadline, "timed out before {what}");
            self.readahead.take_execs(&self.system, now());
            self.readahead.notice_opens(now());
            self.readahead.take_opens(&self.system, now());
            self.readahead.take_answers();
            self.readahead.pass_time(&self.system, now());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn cached_bytes(file: &fs::File) -> u64 {
    let size = file.metadata().unwrap().len();
    let ranges = cached(file, size).unwrap();
    ranges.iter().map(|range| range.len).sum()
}

#[test]
fn stream_that_stood_still_is_read_ahead_when_it_moves_again() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    let Some(file) = machine.uncached("film", 16) else {
        return;
    };
    let mut app = machine.start("exec 3<film; read x; dd bs=64k count=3 <&3; read x");
    machine.focus(&app);
    machine.until("the stream is found and rests", |all| {
        all.streams.resting() == 1
    });
    assert_eq!(machine.readahead.streams.bytes(), 0);
    app.say();
    machine.until("windows are read", |all| all.streams.bytes() > 0);
    let deadline = Instant::now() + PATIENCE;
    while cached_bytes(&file) < 1 << 20 {
        assert!(Instant::now() < deadline, "{}", cached_bytes(&file));
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn start_is_recorded_and_the_next_one_is_read_ahead() {
    let Some(mut machine) = Machine::new() else {
        return;
    };
    // Its inode is lower than the library's, but the app opens it later.
    let Some(_) = machine.uncached("settings", 1) else {
        return;
    };
    let Some(file) = machine.uncached("library", 2) else {
        return;
    };
    // The shell itself opens the files: a child process that ended before the daemon scans would
    // leave no trace.
    let script = "exec 3<library; cat <&3; exec 4<settings; cat <&4; read x";
    let app = machine.start(script);
    machine.until("the start is seen", |all| all.coldstart.young() > 0);
    machine.focus(&app);
    machine.until("the start is recorded", |all| all.totals.recordings == 1);
    drop(app);
    let records = fs::read_dir(machine.path("records")).unwrap();
    let record = records.map(|entry| entry.unwrap().path()).next().unwrap();
    let files = replay::load(&record).unwrap().files;
    let at = |name: &str| files.iter().position(|file| file.path.ends_with(name));
    assert!(at("/library") < at("/settings"), "{files:?}");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(cached_bytes(&file), 0);

    // The same program, but this time it does not read the library.
    std::thread::sleep(Duration::from_millis(1));
    let _app = machine.start("read x");
    machine.until("the start is replayed", |all| all.totals.replays == 1);
    let deadline = Instant::now() + PATIENCE;
    while cached_bytes(&file) < 2 << 20 {
        assert!(Instant::now() < deadline, "{}", cached_bytes(&file));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(machine.readahead.coldstart.records(), 1);
}
