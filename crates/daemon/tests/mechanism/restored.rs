// SPDX-License-Identifier: GPL-2.0-or-later
//! Random sequences of focus changes, forks, moves, shortages and changes by other programs, with
//! all mechanisms enabled that write to cgroups or processes. After the daemon is stopped or has
//! crashed, each value is the original one, or the one that another program has set since.

use std::collections::BTreeMap;

use limelight_daemon::restore;
use limelight_daemon::system::Roots;
use limelight_sys::sched::{Cpu, IoPriority};

use crate::common::{App, Machine, Running};
use crate::random::Random;

/// Sequences in one run; set `LIMELIGHT_RESTORED_SEQUENCES` for more.
const SEQUENCES: u64 = 6;
const STEPS: usize = 14;
const PROCESSES: usize = 8;
const USER: u32 = 54_341;

const GROUPS: [&str; 5] = [
    "u",
    "u/app-a-1.scope",
    "u/app-b-2.scope",
    "u/app-c-3.scope",
    "session",
];

/// The cgroup files that the daemon may change, each with possible original values.
const FILES: [(&str, &[&str]); 8] = [
    ("cgroup.freeze", &["0"]),
    ("cpu.weight", &["100", "50", "300"]),
    ("io.weight", &["default 100", "default 40"]),
    ("memory.high", &["max"]),
    ("memory.low", &["0", "8192"]),
    ("memory.max", &["max"]),
    ("memory.min", &["0", "4096"]),
    ("memory.swap.max", &["max", "1048576"]),
];

/// Values of a process: nice value, slice in nanoseconds, I/O priority and `oom_score_adj`.
type Values = (i32, u64, u16, i32);

struct Process {
    app: App,
    group: &'static str,
    /// The values that the process would have without the daemon.
    wanted: Values,
}

struct World<'a> {
    machine: &'a Machine,
    random: Random,
    processes: Vec<Process>,
    /// The values that the cgroup files would have without the daemon, by path.
    wanted: BTreeMap<String, String>,
    /// Number of steps after which a value differed from the wanted one, by the value's name.
    changed: &'a mut BTreeMap<&'static str, usize>,
    trail: Vec<String>,
}

impl<'a> World<'a> {
    fn new(
        machine: &'a Machine,
        seed: u64,
        changed: &'a mut BTreeMap<&'static str, usize>,
    ) -> World<'a> {
        let mut world = World {
            machine,
            random: Random::new(seed),
            processes: Vec::new(),
            wanted: BTreeMap::new(),
            changed,
            trail: vec![format!("seed {seed:#x}")],
        };
        // Without a `cpu.weight`, threads get nice values.
        let weighs = world.random.below(2) == 0;
        for group in GROUPS {
            machine.make_cgroup(group);
            machine.use_memory(group, 60);
            let control = format!("cgroup/{group}/cgroup.subtree_control");
            machine.write(&control, "cpu io memory\n");
            machine.write(&format!("cgroup/{group}/memory.swap.current"), "0\n");
            for (name, values) in FILES {
                if weighs || name != "cpu.weight" {
                    let value = world.random.one_of(values);
                    world.set(group, name, value);
                }
            }
        }
        for group in &GROUPS[1..] {
            world.start(group, None);
        }
        world
    }

    fn set(&mut self, group: &str, name: &str, value: &str) {
        let file = format!("cgroup/{group}/{name}");
        self.machine.write(&file, &format!("{value}\n"));
        self.wanted.insert(file, value.to_owned());
    }

    fn score(&self, pid: i32) -> i32 {
        let text = self.machine.read(&format!("proc/{pid}/oom_score_adj"));
        text.parse().unwrap()
    }

    fn set_score(&self, pid: i32, value: i32) {
        let file = format!("proc/{pid}/oom_score_adj");
        self.machine.write(&file, &format!("{value}\n"));
    }

    fn values(&self, pid: i32) -> Values {
        let cpu = Cpu::of(pid).unwrap();
        let disk = IoPriority::of(pid).unwrap().0;
        (cpu.nice(), cpu.slice_ns(), disk, self.score(pid))
    }

    /// Starts a process. `parent` is the index of its parent in `processes`.
    fn start(&mut self, group: &'static str, parent: Option<usize>) {
        if self.processes.len() == PROCESSES {
            return;
        }
        let app = self.machine.spawn(group);
        let pid = app.pid;
        self.machine.give(&app, USER);
        let task = format!("proc/{pid}/task/{pid}");
        std::fs::create_dir_all(self.machine.path(&task)).unwrap();
        let stat = self.machine.read(&format!("proc/{pid}/stat"));
        self.machine.write(&format!("{task}/stat"), &stat);
        let mut wanted = self.values(pid);
        if let Some(parent) = parent.map(|at| &self.processes[at]) {
            // A child inherits its parent's current values.
            let (nice, slice, disk, score) = self.values(parent.app.pid);
            Cpu::of(pid).unwrap().set(pid, nice, slice).unwrap();
            IoPriority(disk).set(pid).unwrap();
            self.set_score(pid, score);
            wanted = parent.wanted;
        }
        self.processes.push(Process { app, group, wanted });
    }

    fn list(&self, group: &str) {
        let inside = self.processes.iter().filter(|one| one.group == group);
        let text: String = inside.map(|one| format!("{}\n", one.app.pid)).collect();
        self.machine
            .write(&format!("cgroup/{group}/cgroup.procs"), &text);
    }

    fn memory(&self, available_mib: u64, swap_mib: u64) {
        let (kib, swap) = (available_mib << 10, swap_mib << 10);
        self.machine.write(
            "proc/meminfo",
            &format!(
                "MemTotal: 1024000 kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n\
                 SwapTotal: 512000 kB\nSwapFree: {swap} kB\n"
            ),
        );
    }

    /// One random event.
    fn step(&mut self, daemon: &mut Running) {
        let at = self.random.below(self.processes.len());
        let pid = self.processes[at].app.pid;
        let group = GROUPS[1 + self.random.below(GROUPS.len() - 1)];
        let what = self.random.below(12);
        self.trail.push(format!(
            "{what}: pid {pid} in {}, {group}",
            self.processes[at].group
        ));
        match what {
            0..=3 => daemon.focus(pid),
            4 => daemon.focus_none(),
            5 => self.start(group, Some(at)),
            6 if self.processes.len() > 2 => {
                let gone = self.processes.remove(at);
                self.machine.end(gone.app, gone.group);
                self.list(gone.group);
            }
            7 => {
                let before = std::mem::replace(&mut self.processes[at].group, group);
                let file = format!("proc/{pid}/cgroup");
                self.machine.write(&file, &format!("0::/{group}\n"));
                self.list(before);
                self.list(group);
            }
            8 => {
                let class = ["disposable", "normal", "keep"][self.random.below(3)];
                let line = format!(r#"{{"op":"class","pid":{pid},"class":"{class}"}}"#);
                daemon.ask(&line);
            }
            9 => {
                let (mib, swap) = [(20, 400), (5, 1), (900, 400)][self.random.below(3)];
                self.memory(mib, swap);
            }
            10 => {
                // Another program sets a value.
                let group = self.random.one_of(&GROUPS);
                let (name, value) = [
                    ("cpu.weight", "77"),
                    ("io.weight", "default 55"),
                    ("memory.low", "12288"),
                    ("memory.min", "20480"),
                    ("memory.swap.max", "7340032"),
                ][self.random.below(5)];
                if self.wanted.contains_key(&format!("cgroup/{group}/{name}")) {
                    self.trail.push(format!("  {group}/{name} = {value}"));
                    self.set(group, name, value);
                }
            }
            11 => {
                // The process itself raises its values.
                let (nice, slice, disk, score) = self.processes[at].wanted;
                let raised = (nice + 3).min(19);
                let cpu = Cpu::of(pid).unwrap();
                cpu.set(pid, raised, 0).unwrap();
                let higher = (score.max(0) + 70).min(1000);
                self.set_score(pid, higher);
                self.processes[at].wanted = (raised, slice, disk, higher);
            }
            _ => {}
        }
        for _ in 0..1 + self.random.below(3) {
            daemon
                .daemon
                .turn(Some(std::time::Duration::from_millis(60)))
                .unwrap();
        }
        self.count();
    }

    /// The values that differ from the wanted ones: the name, and a description.
    fn differences(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        for (file, wanted) in &self.wanted {
            let now = self.machine.read(file);
            let (name, _) = *FILES.iter().find(|(name, _)| file.ends_with(name)).unwrap();
            // `default 100` and `100` are the same weight.
            if now.trim_start_matches("default ") != wanted.trim_start_matches("default ") {
                all.push((name, format!("{file} is {now}, not {wanted}")));
            }
        }
        for one in &self.processes {
            let (pid, now) = (one.app.pid, self.values(one.app.pid));
            let parts = [
                ("nice", now.0 == one.wanted.0),
                ("slice", now.1 == one.wanted.1),
                ("ioprio", now.2 == one.wanted.2),
                ("oom_score_adj", now.3 == one.wanted.3),
            ];
            for (name, _) in parts.into_iter().filter(|(_, same)| !same) {
                let text = format!("{name} of pid {pid}: {now:?}, not {:?}", one.wanted);
                all.push((name, text));
            }
        }
        all
    }

    fn count(&mut self) {
        for (name, _) in self.differences() {
            *self.changed.entry(name).or_default() += 1;
        }
    }
}

fn configure(machine: &Machine) {
    let state = machine.path("state/coldstart");
    machine.write(
        "limelight.toml",
        &format!(
            "[protect]\ninterval_ms = 100\n[boost]\nslice_us = 400\nhelpers = []\n\
             [sources]\noom_score_adj = \"off\"\n[foreground]\ngap_ms = 60000\n\
             [swap]\nkill = false\n[readahead]\ndirectory = \"{}\"\n",
            state.display()
        ),
    );
    machine.write("cgroup/cgroup.subtree_control", "cpu io memory\n");
    machine.write("cgroup/cgroup.controllers", "cpu io memory\n");
    machine.write(
        "proc/swaps",
        "Filename Type Size Used Priority\n/dev/x partition 512000 112000 -2\n",
    );
}

/// Ends the daemon in one of three ways.
fn end(machine: &Machine, daemon: Running, how: u64) {
    match how % 3 {
        0 => daemon.stop(),
        1 => {
            daemon.crash();
            machine.start().stop();
        }
        _ => {
            daemon.crash();
            let roots = Roots {
                proc: machine.path("proc"),
                sys: machine.path("sys"),
                cgroup: Some(machine.path("cgroup")),
                runtime: machine.path("run"),
                ..Roots::default()
            };
            restore::put_back(roots).unwrap();
        }
    }
}

#[test]
fn no_value_stays_changed_after_the_daemons_end() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: lowering nice values requires root");
    }
    let sequences = std::env::var("LIMELIGHT_RESTORED_SEQUENCES");
    let sequences = sequences.map_or(SEQUENCES, |text| text.parse().unwrap());
    let mut changed = BTreeMap::new();
    for number in 0..sequences {
        let machine = Machine::new();
        configure(&machine);
        let seed = 0x6b1d_27c5_e09a_4f33 ^ (number + 1).wrapping_mul(0x9e37_79b9);
        let mut world = World::new(&machine, seed, &mut changed);
        // A shortage can only exist from the start, because no kernel reports a later one to the
        // guard here.
        match number % 2 {
            0 => world.memory(900, 400),
            _ => world.memory(5, 1),
        }
        let mut daemon = machine.start();
        for _ in 0..STEPS {
            world.step(&mut daemon);
        }
        end(&machine, daemon, number);
        let left = world.differences();
        assert!(left.is_empty(), "{left:#?}\n{number}: {:#?}", world.trail);
        assert!(machine.recorded().is_empty(), "{:?}", machine.recorded());
    }
    // A run in which nothing was changed proves nothing.
    for name in [
        "cgroup.freeze",
        "cpu.weight",
        "memory.min",
        "memory.swap.max",
        "nice",
        "oom_score_adj",
    ] {
        assert!(changed.contains_key(name), "{name}: {changed:?}");
    }
    println!("{changed:?}");
}
