// SPDX-License-Identifier: GPL-2.0-or-later
//! A daemon that SIGSTOP or a debugger suspends keeps `/dev/limelight` open. When its lease has run
//! out, the kernel empties the topmost set. When the daemon resumes, it sets the topmost app again.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::guest_setup::{number_in, wait};
use crate::swap_app::{App, Spec, KEEP};

const SYSFS: &str = "/sys/kernel/mm/limelight";
/// Length of the lease: `LIMELIGHT_LEASE_MS` in mm/limelight.
const LEASE: Duration = Duration::from_secs(300);
/// The kernel's timers expire late by up to an eighth of their duration (kernel/time/timer.c).
const LATE: Duration = Duration::from_secs(300 / 8);
/// Memory of the foreground app, in MiB.
const APP_MIB: u32 = 16;

/// The kernel's topmost set: its generation (0 if there is no set), and its number of processes.
#[derive(Debug, PartialEq, Eq)]
struct Topmost {
    generation: u64,
    members: u64,
}

impl Topmost {
    fn now() -> Result<Topmost> {
        let value = |name: &str| number_in(&Path::new(SYSFS).join(name));
        Ok(Topmost {
            generation: value("generation")?,
            members: value("members")?,
        })
    }

    fn is_set(&self) -> bool {
        self.generation > 0 && self.members > 0
    }
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    let spec = Spec {
        mib: APP_MIB,
        leak_mib_per_s: 0,
        seed: 1,
    };
    let app = App::start(KEEP, "topmost", &spec)?;
    let daemon = Daemon::start(&[])?;
    focus(app.talk.process.pid())?;
    let running = Topmost::now()?;
    reporter.check(
        "after the focus change, the kernel's topmost set has members",
        running.is_set(),
        format!("{running:?}"),
    )?;

    daemon.signal(libc::SIGSTOP)?;
    sleep(LEASE / 3);
    let stopped = Topmost::now()?;
    reporter.check(
        "the topmost set stays while the lease of the suspended daemon runs",
        stopped == running,
        format!("{stopped:?} after {} s", LEASE.as_secs() / 3),
    )?;
    sleep(LEASE * 2 / 3 + LATE);
    let ended = Topmost::now()?;
    reporter.check(
        "the topmost set is empty after the lease of the suspended daemon has run out",
        ended.generation == 0 && ended.members == 0,
        format!("{ended:?} after {} s", (LEASE + LATE).as_secs()),
    )?;

    daemon.signal(libc::SIGCONT)?;
    let again = wait(|| Ok(Topmost::now()?.is_set()))?;
    reporter.check(
        "the resumed daemon sets the topmost app again",
        again,
        format!("{:?}", Topmost::now()?),
    )?;
    daemon.stop(reporter)?;
    let after = Topmost::now()?;
    reporter.check(
        "the topmost set is empty after the daemon has ended",
        !after.is_set(),
        format!("{after:?}"),
    )?;
    stage.reporter.finish()
}
