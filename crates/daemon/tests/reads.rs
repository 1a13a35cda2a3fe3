// SPDX-License-Identifier: GPL-2.0-or-later
//! While the user waits for an app, the daemon reads few files, however many processes run. The
//! reads are those of the event loop: the kernel counts them per thread.

#[allow(dead_code)]
mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{App, Machine, Running};
use limelight_proto::Level;
use limelight_sys::inotify::Inotify;
use rustix::fs::inotify::{ReadFlags, WatchFlags};

/// Processes besides those of [`UNITS`]. Each of the first ones is an app.
const BYSTANDERS: i32 = 400;
const OTHERS: i32 = 40;
/// Pids that no real process has.
const FIRST_PID: i32 = 5_000_000;

/// Reads for one change of the foreground app, until a moment after the daemon's answer. Reading a
/// file takes two reads: the second one finds its end. The reservations of the other apps are read.
const READS_MOST: u64 = 180 + 2 * OTHERS as u64;

/// On a busy machine, readings that are due at fixed times fall into the changes, too.
const ROUNDS_MOST: usize = 50;

const UNITS: [&str; 2] = ["u/app-a-1.scope", "u/app-b-1.scope"];

/// Until then, the daemon takes the app to be responding, and postpones scans.
const SETTLED: Duration = Duration::from_millis(1000);

/// Reads of this thread so far; `None` if the kernel does not count them.
fn reads() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line?.parse().ok()
}

/// A machine with the apps of [`UNITS`], other apps and processes, and little memory.
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
    for place in 0..OTHERS {
        let pid = FIRST_PID + place;
        let unit = format!("u/app-other-{place}.scope");
        machine.make_cgroup(&unit);
        machine.write(&format!("cgroup/{unit}/cgroup.procs"), &format!("{pid}\n"));
        let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\n");
        machine.write(&format!("proc/{pid}/status"), &status);
    }
    // All of these processes are old.
    machine.write("proc/loadavg", "0.00 0.00 0.00 1/403 5010000\n");
    machine.write("proc/stat", "processes 5010000\n");
    machine.write("proc/sys/kernel/pid_max", "4194304\n");
    (machine, apps)
}

/// The daemon on this machine, when it has noticed that memory is short.
fn short(machine: &Machine) -> Running<'_> {
    let mut daemon = machine.start();
    for turn in 0.. {
        assert!(turn < 100, "memory is never short");
        if daemon.status().memory.level > Some(Level::Plenty) {
            break;
        }
        turn_for(&mut daemon, Duration::from_millis(20));
    }
    daemon
}

/// Turns the event loop for this time.
fn turn_for(daemon: &mut Running<'_>, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        daemon.daemon.turn(Some(Duration::from_millis(10))).unwrap();
    }
}

/// The event loop's reads for a change of the foreground app to this one.
fn reads_for(daemon: &mut Running<'_>, app: &App) -> Option<u64> {
    let before = reads()?;
    daemon.focus(app.pid);
    turn_for(daemon, Duration::from_millis(40));
    Some(reads()? - before)
}

/// Watches for opened files of the processes that belong to no app.
fn bystanders(machine: &Machine) -> Inotify {
    let queue = Inotify::new().unwrap();
    for pid in FIRST_PID + OTHERS..FIRST_PID + BYSTANDERS {
        let directory = machine.path(&format!("proc/{pid}"));
        queue.watch(&directory, WatchFlags::OPEN).unwrap();
    }
    queue
}

fn opened(queue: &Inotify) -> usize {
    let events = queue.events().unwrap();
    let opened = events
        .iter()
        .filter(|one| one.flags.contains(ReadFlags::OPEN));
    opened.count()
}

#[test]
fn change_of_the_foreground_app_reads_no_file_of_every_process() {
    let (machine, apps) = crowded();
    let mut daemon = short(&machine);
    daemon.focus(apps[0].pid);
    // The scan after the change is over.
    turn_for(&mut daemon, SETTLED);
    let bystanders = bystanders(&machine);
    let mut least = [u64::MAX; 2];
    for _ in 0..ROUNDS_MOST {
        for (least, app) in least.iter_mut().zip([&apps[1], &apps[0]]) {
            let Some(count) = reads_for(&mut daemon, app) else {
                return;
            };
            *least = count.min(*least);
        }
        if least.iter().all(|count| *count <= READS_MOST) {
            break;
        }
    }
    assert!(least.iter().all(|count| *count <= READS_MOST), "{least:?}");
    assert_eq!(opened(&bystanders), 0, "files of processes without an app");
    // The watch sees what it must.
    let stat = format!("proc/{}/stat", FIRST_PID + OTHERS);
    fs::read(machine.path(&stat)).unwrap();
    assert_eq!(opened(&bystanders), 1);
    daemon.stop();
}

#[test]
fn scan_for_a_new_unit_waits_until_the_foreground_app_has_settled() {
    let (machine, apps) = crowded();
    let mut daemon = short(&machine);
    for place in 0.. {
        assert!(place < 20, "this machine is too slow");
        daemon.focus(apps[place % 2].pid);
        turn_for(&mut daemon, SETTLED);
        let begun = Instant::now();
        daemon.focus(apps[(place + 1) % 2].pid);
        turn_for(&mut daemon, Duration::from_millis(40));
        machine.make_cgroup(&format!("u/app-new-{place}.scope"));
        let Some(before) = reads() else {
            return;
        };
        turn_for(&mut daemon, Duration::from_millis(200));
        let waiting = reads().unwrap_or_default() - before;
        if begun.elapsed() > Duration::from_millis(700) {
            continue;
        }
        turn_for(&mut daemon, SETTLED);
        let settled = reads().unwrap_or_default() - before - waiting;
        // A scan reads several files of each app.
        let scan = 4 * OTHERS as u64;
        assert!(waiting < scan, "{waiting} reads");
        assert!(settled > scan, "{settled} reads");
        break;
    }
    daemon.stop();
}
