// SPDX-License-Identifier: GPL-2.0-or-later
//! The limit on leaking apps (`memory.high`), through the real event loop.

use std::time::Duration;

use limelight_daemon::restore;
use limelight_daemon::system::Roots;

use crate::common::{self, Machine, Running};
use crate::{two_apps, B};

const HIGH: &str = "cgroup/u/app-b-2.scope/memory.high";

/// A machine without available memory, on which no app is killed. App b started long ago, and its
/// open files can be checked.
fn short() -> (Machine, common::App, common::App) {
    let (machine, a, b) = two_apps();
    machine.write(
        "proc/meminfo",
        "MemTotal: 1024000 kB\nMemFree: 5120 kB\nMemAvailable: 5120 kB\n\
         SwapTotal: 512000 kB\nSwapFree: 1024 kB\n",
    );
    machine.write(
        "limelight.toml",
        "[sources]\noom_score_adj = \"off\"\n[swap]\nkill = false\nfreeze = false\n\
         throttle = true\n",
    );
    let stat = format!(
        "{} (app) S 1 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 7 0 0\n",
        b.pid
    );
    machine.write(&format!("proc/{}/stat", b.pid), &stat);
    machine.open_device(&b, "dev-null");
    (machine, a, b)
}

/// Has app b grow until it is limited. Returns the limit in MiB.
fn leak(machine: &Machine, daemon: &mut Running) -> u64 {
    let mut mib = 40;
    daemon.until("memory.high", |_| {
        mib += 1;
        machine.use_memory(B, mib);
        machine.read(HIGH) != "max"
    });
    // The app may have grown a little since the scan.
    let limit = machine.mib("u/app-b-2.scope/memory.high");
    assert!((40..mib + 9).contains(&limit), "{limit} {mib}");
    limit
}

#[test]
fn leaking_app_is_limited_until_it_is_in_the_foreground() {
    let (machine, a, b) = short();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    let limit = leak(&machine, &mut daemon);
    let text = format!("{:?}", daemon.explain(b.pid));
    assert!(text.contains("memory.high"), "{text}");
    // The limit follows the app's use.
    machine.use_memory(B, limit);
    daemon.until("a higher limit", |_| {
        machine.mib("u/app-b-2.scope/memory.high") > limit
    });
    daemon.focus(b.pid);
    assert_eq!(machine.read(HIGH), "max");
    daemon.stop();
    assert!(machine.recorded().is_empty());
}

#[test]
fn limit_is_lifted_when_the_daemon_ends() {
    for crashes in [false, true] {
        let (machine, a, _b) = short();
        let mut daemon = machine.start();
        daemon.focus(a.pid);
        leak(&machine, &mut daemon);
        match crashes {
            false => daemon.stop(),
            true => {
                daemon.crash();
                assert_ne!(machine.read(HIGH), "max");
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
        assert_eq!(machine.read(HIGH), "max");
    }
}

#[test]
fn app_in_a_terminal_and_app_limited_by_another_program_are_not_limited() {
    let (machine, a, b) = short();
    let fd = format!("proc/{}/fd", b.pid);
    std::os::unix::fs::symlink("/dev/pts/3", machine.path(&fd).join("9")).unwrap();
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    refused(&machine, &mut daemon, b.pid, "a terminal");
    assert_eq!(machine.read(HIGH), "max");
    daemon.stop();
    let (machine, a, b) = short();
    machine.write(HIGH, "4096\n");
    let mut daemon = machine.start();
    daemon.focus(a.pid);
    refused(&machine, &mut daemon, b.pid, "another program limits it");
    assert_eq!(machine.read(HIGH), "4096");
    daemon.stop();
    assert_eq!(machine.read(HIGH), "4096");
}

/// Has app b grow until `explain` says that it is not limited, for this reason.
fn refused(machine: &Machine, daemon: &mut Running, pid: i32, why: &str) {
    let mut mib = 40;
    loop {
        mib += 1;
        assert!(mib < 900, "never refused");
        machine.use_memory(B, mib);
        let text = format!("{:?}", daemon.explain(pid));
        if text.contains("not throttled") && text.contains(why) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
