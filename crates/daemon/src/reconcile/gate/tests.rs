// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use crate::reconcile::gate::collect::{Collector, Request};
use crate::system::Roots;
use std::fs;
use std::time::Duration;

const APP: AppKey = AppKey::Cgroup { inode: 7 };

struct Machine {
    temp: tempfile::TempDir,
    system: System,
}

impl Machine {
    fn new() -> Machine {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc", "sys", "cgroup"] {
            fs::create_dir(temp.path().join(directory)).unwrap();
        }
        fs::write(temp.path().join("cgroup/cgroup.procs"), "").unwrap();
        let system = System::open(Roots::below(temp.path())).unwrap();
        Machine { temp, system }
    }

    fn process(&self, pid: i32, cgroup: &str) -> ProcessId {
        let directory = self.temp.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        fs::write(directory.join("stat"), stat).unwrap();
        self.place(pid, cgroup);
        ProcessId { pid, starttime: 70 }
    }

    fn place(&self, pid: i32, cgroup: &str) {
        let file = self.temp.path().join(format!("proc/{pid}/cgroup"));
        fs::write(file, format!("1:cpuset:/\n0::{cgroup}\n")).unwrap();
    }
}

#[test]
fn gate_follows_a_process_that_moves() {
    let machine = Machine::new();
    let gate = Gate::default();
    let id = machine.process(5, "/fg");
    let seen = gate.update(&machine.system, [(id, None, Why::Topmost)], Vec::new());
    assert_eq!(seen.0[0].cgroup, "/fg");
    let blocked = |path: &str| gate.group(path, Harm::Freeze, APP).is_some();
    assert!(blocked("/fg") && !blocked("/other"));
    machine.place(5, "/other/sub");
    assert!(!blocked("/fg") && blocked("/other") && blocked("/other/sub"));
    let seen = gate.update(&machine.system, [(id, None, Why::Topmost)], Vec::new());
    assert_eq!(seen.0[0].cgroup, "/other/sub");
}

#[test]
fn gate_counts_refusals_and_names_the_process() {
    let machine = Machine::new();
    let gate = Gate::default();
    let (id, other) = (machine.process(5, "/fg"), machine.process(6, "/bg"));
    gate.update(&machine.system, [(id, None, Why::Topmost)], Vec::new());
    assert_eq!(gate.refusals(), (0, None));
    assert_eq!(gate.process(other, None, Harm::Kill), None);
    let blocked = gate.process(id, None, Harm::Kill).unwrap();
    assert_eq!(gate.refusals(), (1, Some((Harm::Kill, blocked))));
    let text = "it holds pid 5, which belongs to the foreground app";
    assert_eq!(blocked.to_string(), text);
}

#[test]
fn only_the_last_list_counts_and_ended_processes_are_left_out() {
    let machine = Machine::new();
    let gate = Gate::default();
    let (first, second) = (machine.process(5, "/a"), machine.process(6, "/b"));
    let gone = ProcessId {
        pid: 6,
        starttime: 9,
    };
    gate.update(&machine.system, [(first, None, Why::Topmost)], Vec::new());
    gate.update(
        &machine.system,
        [(second, None, Why::Topmost), (gone, None, Why::Session)],
        Vec::new(),
    );
    assert_eq!(gate.len(), 1);
    assert!(gate.group("/a", Harm::Kill, APP).is_none());
    assert!(gate.group("/b", Harm::Kill, APP).is_some());
}

#[test]
fn list_is_bounded_and_keeps_the_first_entries() {
    let machine = Machine::new();
    let gate = Gate::default();
    let all: Vec<ProcessId> = (10..10 + GUARDED_MAX as i32 + 20)
        .map(|pid| machine.process(pid, "/fg"))
        .collect();
    gate.update(
        &machine.system,
        all.iter().map(|id| (*id, None, Why::Topmost)),
        Vec::new(),
    );
    assert_eq!(gate.len(), GUARDED_MAX);
    assert!(gate.process(all[0], None, Harm::Kill).is_some());
}

#[test]
fn process_that_was_moved_into_the_topmost_cgroup_is_protected() {
    let machine = Machine::new();
    let gate = Gate::default();
    let (front, moved) = (machine.process(5, "/fg"), machine.process(6, "/bg"));
    let homes = vec![("/fg".to_owned(), Why::Topmost)];
    gate.update(&machine.system, [(front, None, Why::Topmost)], homes);
    let process = machine.system.same_process(moved).unwrap();
    let place = PersistentFile::open(process.dir(), "cgroup").unwrap();
    assert_eq!(gate.process(moved, Some(&place), Harm::Kill), None);
    machine.place(6, "/fg/sub");
    assert!(gate.process(moved, Some(&place), Harm::Kill).is_some());
}

/// A user decides how many processes the topmost app has.
#[test]
fn many_processes_of_the_topmost_app_do_not_displace_the_session() {
    let machine = Machine::new();
    let gate = Gate::default();
    let app: Vec<ProcessId> = (100..100 + GUARDED_MAX as i32 + 9)
        .map(|pid| machine.process(pid, "/fg"))
        .collect();
    let compositor = machine.process(5, "/session");
    let wanted = app.iter().map(|id| (*id, Some(APP), Why::Topmost));
    let wanted = wanted.chain([(compositor, None, Why::Session)]);
    gate.update(&machine.system, wanted, Vec::new());
    assert_eq!(gate.len(), GUARDED_MAX);
    assert!(gate.process(app[0], None, Harm::Kill).is_some());
    assert!(gate.process(compositor, None, Harm::Kill).is_some());
    assert!(gate.group("/session", Harm::Freeze, APP).is_some());
}

/// The kernel accepts any bytes as a cgroup's name.
#[test]
fn process_in_a_cgroup_whose_name_is_not_utf8_is_protected() {
    let machine = Machine::new();
    let gate = Gate::default();
    let id = machine.process(5, "/fg");
    gate.update(&machine.system, [(id, None, Why::Topmost)], Vec::new());
    let file = machine.temp.path().join("proc/5/cgroup");
    fs::write(file, b"0::/other/\xff/sub\n").unwrap();
    let blocked = |path: &str| gate.group(path, Harm::Freeze, APP).is_some();
    assert!(blocked("/other") && !blocked("/fg"));
}

/// Processes that the session needs, as of a collection at this time.
fn session(machine: &Machine, collector: &mut Collector, at_s: u64) -> Vec<i32> {
    let helpers = ["sh".to_owned()];
    let request = Request {
        helpers: &helpers,
        ..Request::default()
    };
    let wanted = collector.collect(&machine.system, Duration::from_secs(at_s), request);
    let session = wanted.iter().filter(|(_, _, why)| *why == Why::Session);
    session.map(|(id, _, _)| id.pid).collect()
}

#[test]
fn failed_scan_keeps_the_session_and_is_repeated_at_once() {
    let machine = Machine::new();
    let shell = |pid: i32| {
        machine.process(pid, "/session");
        let proc = machine.temp.path().join(format!("proc/{pid}"));
        let stat = format!("{pid} (sh) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        fs::write(proc.join("stat"), stat).unwrap();
        fs::write(proc.join("comm"), "sh\n").unwrap();
        std::os::unix::fs::symlink("/bin/sh", proc.join("exe")).unwrap();
    };
    let mut collector = Collector::default();
    shell(5);
    assert_eq!(session(&machine, &mut collector, 100), [5]);
    // The name of a process cannot be read.
    machine.process(6, "/bg");
    let unreadable = machine.temp.path().join("proc/6/comm");
    fs::create_dir(&unreadable).unwrap();
    shell(7);
    assert_eq!(session(&machine, &mut collector, 120), [5]);
    fs::remove_dir(unreadable).unwrap();
    assert_eq!(session(&machine, &mut collector, 121), [5, 7]);
}

/// ibus starts an engine that is written in Python as a script of the interpreter.
#[test]
fn ibus_engine_in_python_belongs_to_the_session() {
    let machine = Machine::new();
    let root = machine.temp.path();
    let run = |pid: i32, parent: i32, comm: &str, program: &str| {
        machine.process(pid, "/session");
        let proc = root.join(format!("proc/{pid}"));
        let stat = format!("{pid} ({comm}) S {parent} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 70 0 0\n");
        fs::write(proc.join("stat"), stat).unwrap();
        fs::write(proc.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(root.join(program), "").unwrap();
        std::os::unix::fs::symlink(root.join(program), proc.join("exe")).unwrap();
        let arguments = format!("{comm}\0{}\0", root.join("ibus-anthy/main.py").display());
        fs::write(proc.join("cmdline"), arguments).unwrap();
    };
    fs::create_dir(root.join("ibus-anthy")).unwrap();
    fs::write(root.join("ibus-anthy/main.py"), "").unwrap();
    run(5, 1, "ibus-daemon", "ibus-daemon");
    run(6, 5, "python3", "python3.13");
    run(7, 1, "python3", "python3.13");
    assert_eq!(session(&machine, &mut Collector::default(), 100), [5, 6]);
}
