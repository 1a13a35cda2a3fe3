// SPDX-License-Identifier: GPL-2.0-or-later

use std::fs;
use std::path::Path;

use limelight_core::model::terminal::Part;

use super::*;
use crate::system::Roots;

/// Device number of `/dev/pts/0`.
const PTS: i32 = 136 << 8;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        for directory in ["proc", "sys", "cgroup", "pts"] {
            fs::create_dir(machine.0.path().join(directory)).unwrap();
        }
        machine
    }

    fn system(&self) -> System {
        let roots = Roots {
            pts: self.0.path().join("pts"),
            ..Roots::below(self.0.path())
        };
        System::open(roots).unwrap()
    }

    fn write(&self, path: impl AsRef<Path>, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process that started `pid` clock ticks after boot.
    fn process(&self, (pid, parent): (i32, i32), (group, session): (i32, i32), tty: (i32, i32)) {
        let (tty, tty_group) = tty;
        self.write(
            format!("proc/{pid}/stat"),
            &format!(
                "{pid} (a b) S {parent} {group} {session} {tty} {tty_group} 0 0 0 0 0 0 0 0 0 20 0 \
                 1 0 {pid} 0 0\n"
            ),
        );
        self.write(
            format!("proc/{pid}/status"),
            &format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\nRssAnon:\t 10 kB\nRssFile:\t 6 kB\n"),
        );
    }

    /// An emulator (10) and a shell (20) that runs make (30) and its compiler (31).
    fn terminal() -> Machine {
        let machine = Machine::new();
        machine.process((10, 1), (10, 10), (0, -1));
        machine.process((20, 10), (20, 20), (PTS, 30));
        machine.process((30, 20), (30, 20), (PTS, 30));
        machine.process((31, 30), (30, 20), (PTS, 30));
        machine.write("pts/0", "");
        machine
    }
}

fn id(pid: i32) -> ProcessId {
    ProcessId {
        pid,
        starttime: pid as u64,
    }
}

fn app() -> App {
    App {
        key: AppKey::Tree(id(10)),
        name: "foot".to_owned(),
        process: Some(id(10)),
        home: None,
    }
}

fn look(machine: &Machine, pids: &[i32]) -> Option<Terminal> {
    let members: Vec<ProcessId> = pids.iter().map(|pid| id(*pid)).collect();
    let mut source = TerminalSource::default();
    source.look(&machine.system(), &app(), &members, Duration::from_secs(60))
}

#[test]
fn processes_of_a_terminal_have_parts_and_those_in_front_a_size() {
    let terminal = look(&Machine::terminal(), &[10, 20, 30, 31]).unwrap();
    let parts: Vec<Part> = [10, 20, 30, 31]
        .into_iter()
        .filter_map(|pid| terminal.part(id(pid)))
        .collect();
    assert_eq!(parts, [Part::Window, Part::Shell, Part::Command, Part::Job]);
    assert_eq!(terminal.front_bytes, Some(48 << 10));
    let alone = look(&Machine::terminal(), &[10, 20]).unwrap();
    assert_eq!(alone.front_bytes, None);
}

#[test]
fn tab_in_another_cgroup_belongs_to_the_window() {
    let machine = Machine::terminal();
    machine.write("proc/10/task/10/children", "20 99 \n");
    machine.write("proc/20/task/20/children", "30 \n");
    machine.write("proc/30/task/30/children", "31 \n");
    machine.write("proc/31/task/31/children", "\n");
    let terminal = look(&machine, &[10]).unwrap();
    assert_eq!(terminal.part(id(20)), Some(Part::Shell));
    assert_eq!(terminal.part(id(31)), Some(Part::Job));
}

#[test]
fn missing_and_malformed_files_leave_the_app_undivided() {
    for broken in ["proc/20/stat", "pts"] {
        let machine = Machine::terminal();
        match broken {
            "pts" => fs::remove_dir_all(machine.0.path().join(broken)).unwrap(),
            _ => machine.write(broken, "20 (sh) S x y"),
        }
        let terminal = look(&machine, &[10, 20, 30, 31]);
        // Without the time of the last read, the only tab is in front.
        let shell = terminal.as_ref().and_then(|terminal| terminal.part(id(20)));
        let expected = (broken == "pts").then_some(Part::Shell);
        assert_eq!(shell, expected, "{broken}");
    }
    assert_eq!(look(&Machine::new(), &[10, 20]), None);
    // A reused pid is another process.
    let machine = Machine::terminal();
    let other = ProcessId {
        pid: 20,
        starttime: 7,
    };
    let mut source = TerminalSource::default();
    let found = source.look(&machine.system(), &app(), &[other], Duration::from_secs(60));
    assert_eq!(found, None);
}

#[test]
fn processes_without_a_terminal_are_read_once() {
    let machine = Machine::new();
    machine.process((10, 1), (10, 10), (0, -1));
    let system = machine.system();
    let mut source = TerminalSource::default();
    let mut look = |at_s| source.look(&system, &app(), &[id(10)], Duration::from_secs(at_s));
    // Too young to be sure.
    assert_eq!(look(1), None);
    machine.process((10, 1), (10, 10), (PTS, 10));
    assert!(look(1).is_some());
    machine.process((10, 1), (10, 10), (0, -1));
    assert_eq!(look(60), None);
    machine.process((10, 1), (10, 10), (PTS, 10));
    assert_eq!(look(60), None);
}
