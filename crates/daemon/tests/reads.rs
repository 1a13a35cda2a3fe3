// SPDX-License-Identifier: GPL-2.0-or-later
//! While the user waits for an app, the daemon reads few files, however many processes run. The
//! reads are those of the event loop: the kernel counts them per thread.

#[allow(dead_code)]
mod common;

use std::fs;
use std::time::Duration;

use common::{App, Machine, Running};
use limelight_proto::Level;

/// Processes besides the apps'.
const BYSTANDERS: i32 = 400;
/// Pids that no real process has.
const FIRST_PID: i32 = 5_000_000;

/// Reads for one change of the foreground app, until a moment after the daemon's answer. Reading a
/// file takes two reads: the second one finds its end.
const READS_MOST: u64 = 180;

const UNITS: [&str; 2] = ["u/app-a-1.scope", "u/app-b-1.scope"];

/// Reads of this thread so far; `None` if the kernel does not count them.
fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line?.parse().ok()
}

/// A machine with these apps, other processes and little memory.
fn crowded() -> (Machine, [App; 2]) {
    let machine = Machine::new();
    machine.write(
        "proc/meminfo",
        "MemTotal: 1024000 kB\nMemFree: 60000 kB\nMemAvailable: 70000 kB\nSwapTotal: 0 kB\n\
         SwapFree: 0 kB\n",
    );
    machine.make_cgroup("u");
    let apps = UNITS.map(|unit| {
        machine.make_cgroup(unit);
        machine.use_memory(unit, 100);
        let app = machine.spawn(unit);
        let children = format!("proc/{pid}/task/{pid}/children", pid = app.pid);
        machine.write(&children, "");
        app
    });
    for pid in FIRST_PID..FIRST_PID + BYSTANDERS {
        let stat = format!("{pid} (other) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 7 0 0\n");
        machine.write(&format!("proc/{pid}/stat"), &stat);
    }
    // All of these processes are old.
    machine.write("proc/loadavg", "0.00 0.00 0.00 1/403 5010000\n");
    machine.write("proc/stat", "processes 5010000\n");
    machine.write("proc/sys/kernel/pid_max", "4194304\n");
    (machine, apps)
}

/// The event loop's reads for a change of the foreground app to this one.
fn reads_for(daemon: &mut Running<'_>, app: &App) -> Option<u64> {
    let before = reads()?;
    daemon.focus(app.pid);
    for _ in 0..4 {
        daemon.daemon.turn(Some(Duration::from_millis(10))).unwrap();
    }
    Some(reads()? - before)
}

#[test]
fn change_of_the_foreground_app_reads_no_file_of_every_process() {
    let (machine, apps) = crowded();
    let mut daemon = machine.start();
    daemon.focus(apps[0].pid);
    for level in 0.. {
        assert!(level < 100, "memory is never short");
        if daemon.status().memory.level > Some(Level::Plenty) {
            break;
        }
        daemon.daemon.turn(Some(Duration::from_millis(20))).unwrap();
    }
    // The first scan for the session's processes is over.
    for app in [&apps[1], &apps[0], &apps[1], &apps[0]] {
        let Some(count) = reads_for(&mut daemon, app) else {
            return;
        };
        println!("{count} reads");
        assert!(count <= READS_MOST, "{count} reads");
    }
    daemon.stop();
}
