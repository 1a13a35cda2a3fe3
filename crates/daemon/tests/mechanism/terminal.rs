// SPDX-License-Identifier: GPL-2.0-or-later
//! An app with a terminal on a machine of plain files, with real processes.

use crate::common::{App, Machine};
use limelight_sys::sched::Cpu;

const A: &str = "u/app-foot-1.scope";
const SLICE_NS: u64 = 400_000;
/// Device number of `/dev/pts/0`.
const PTS: i32 = 136 << 8;

/// An emulator with a shell that runs make in the foreground, and make's compiler.
struct Terminal {
    machine: Machine,
    emulator: App,
    shell: App,
    make: App,
    compiler: App,
}

impl Terminal {
    fn new(settings: &str) -> Terminal {
        let machine = Machine::new();
        machine.write(
            "limelight.toml",
            &format!(
                "[protect]\nenabled = false\ninterval_ms = 100\n[boost]\nslice_us = 400\nhelpers = \
                 []\n{settings}\n[sources]\noom_score_adj = \"off\"\n"
            ),
        );
        for cgroup in ["u", A] {
            machine.make_cgroup(cgroup);
            machine.write(&format!("cgroup/{cgroup}/cpu.weight"), "100\n");
        }
        machine.write("dev-pts/0", "");
        let [emulator, shell, make, compiler] = [(); 4].map(|()| machine.spawn(A));
        let terminal = Terminal {
            machine,
            emulator,
            shell,
            make,
            compiler,
        };
        terminal.place(&terminal.emulator, (1, 'S'), 1, (1, 0));
        terminal.run_in_front(terminal.make.pid);
        terminal
    }

    /// Makes this process group the terminal's foreground group.
    fn run_in_front(&self, tty_group: i32) {
        let (shell, make) = (self.shell.pid, self.make.pid);
        let tab = (shell, PTS);
        self.place(&self.shell, (self.emulator.pid, 'S'), shell, tab);
        self.place(&self.make, (shell, 'S'), make, tab);
        self.place(&self.compiler, (make, 'R'), make, tab);
        for app in [&self.shell, &self.make, &self.compiler] {
            let stat = format!("proc/{}/stat", app.pid);
            let text = self.machine.read(&stat);
            let text = text.replacen(" 34816 0 ", &format!(" 34816 {tty_group} "), 1);
            self.machine.write(&stat, &format!("{text}\n"));
        }
    }

    /// Sets parent, state, group, session and terminal of a process, and lists its only thread.
    fn place(&self, app: &App, (parent, state): (i32, char), group: i32, tab: (i32, i32)) {
        let (pid, (session, tty)) = (app.pid, tab);
        let start = self.machine.start_of(app);
        let stat = format!(
            "{pid} (app{pid}) {state} {parent} {group} {session} {tty} 0 0 1 0 2 0 0 0 0 0 20 0 1 \
             0 {start} 0 0\n"
        );
        self.machine.write(&format!("proc/{pid}/stat"), &stat);
        self.machine
            .write(&format!("proc/{pid}/task/{pid}/stat"), &stat);
    }

    fn all(&self) -> [&App; 4] {
        [&self.emulator, &self.shell, &self.make, &self.compiler]
    }

    fn weight(&self, cgroup: &str) -> String {
        self.machine.read(&format!("cgroup/{cgroup}/cpu.weight"))
    }
}

/// Nice value, slice in nanoseconds, and whether children start without them.
fn asking(app: &App) -> (i32, u64, bool) {
    let cpu = Cpu::of(app.pid).unwrap();
    (cpu.nice(), cpu.slice_ns(), cpu.resets_on_fork())
}

/// The values of a boosted process; kernels before 6.12 report no slice.
fn boosted(before: (i32, u64, bool), resets: bool) -> (i32, u64, bool) {
    let slice = if before.1 == 0 { 0 } else { SLICE_NS };
    ((before.0 - 20).max(-20), slice, resets)
}

/// Whether the values that a tab gets can be observed: a nice value other than 0 is left alone.
fn observable() -> bool {
    let own = Cpu::of(0).unwrap();
    rustix::process::geteuid().is_root() && own.nice() == 0
}

#[test]
fn shell_and_command_are_boosted_and_a_build_is_not() {
    if !observable() {
        return;
    }
    let terminal = Terminal::new("");
    let before = terminal.all().map(asking);
    let mut daemon = terminal.machine.start();
    daemon.focus(terminal.emulator.pid);
    let expected = [
        boosted(before[0], false),
        boosted(before[1], true),
        boosted(before[2], true),
        before[3],
    ];
    assert_eq!(terminal.all().map(asking), expected);
    // The compiler is runnable.
    assert_eq!(
        (terminal.weight("u").as_str(), terminal.weight(A).as_str()),
        ("100", "100")
    );
    let notes = daemon.explain(terminal.compiler.pid).notes.join("\n");
    assert!(
        notes.contains("not boosted: it is a background job"),
        "{notes}"
    );
    let explain = daemon.explain(terminal.shell.pid);
    assert!(explain
        .changes
        .iter()
        .any(|change| change.rule.contains("answer keys")));
    daemon.focus_none();
    assert_eq!(terminal.all().map(asking), before);
    daemon.stop();
    assert!(terminal.machine.recorded().is_empty());
}

#[test]
fn command_that_leaves_the_foreground_loses_the_boost() {
    if !observable() {
        return;
    }
    let terminal = Terminal::new("");
    let before = asking(&terminal.make);
    let mut daemon = terminal.machine.start();
    daemon.focus(terminal.emulator.pid);
    assert_eq!(asking(&terminal.make), boosted(before, true));
    terminal.run_in_front(terminal.shell.pid);
    daemon.until("the job has lost the boost", |_| {
        asking(&terminal.make) == before
    });
    assert_eq!(asking(&terminal.shell), boosted(before, true));
    terminal.run_in_front(terminal.make.pid);
    daemon.until("the command is boosted again", |_| {
        asking(&terminal.make) != before
    });
    daemon.stop();
    assert_eq!(asking(&terminal.make), before);
}

#[test]
fn values_of_a_terminal_are_restored_after_a_crash() {
    if !observable() {
        return;
    }
    let terminal = Terminal::new("");
    let before = terminal.all().map(asking);
    let mut daemon = terminal.machine.start();
    daemon.focus(terminal.emulator.pid);
    assert_ne!(terminal.all().map(asking), before);
    daemon.crash();
    let daemon = terminal.machine.start();
    assert_eq!(terminal.all().map(asking), before);
    daemon.stop();
}

#[test]
fn setting_treats_all_processes_alike() {
    if !observable() {
        return;
    }
    let terminal = Terminal::new("terminal = false");
    let before = terminal.all().map(asking);
    let mut daemon = terminal.machine.start();
    daemon.focus(terminal.emulator.pid);
    assert_eq!(terminal.weight(A), "10000");
    let alike = before.map(|(nice, slice, _)| (nice, if slice == 0 { 0 } else { SLICE_NS }, false));
    assert_eq!(terminal.all().map(asking), alike);
    daemon.stop();
}
