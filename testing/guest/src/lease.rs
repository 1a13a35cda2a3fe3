// SPDX-License-Identifier: GPL-2.0-or-later
//! A stopped daemon (SIGSTOP, a debugger) keeps `/dev/limelight` open. When its lease has run out,
//! the kernel drops the topmost set; when the daemon runs again, it sets it again.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::guest_setup::wait;
use crate::swap_app::{App, Spec, KEEP};

const SYSFS: &str = "/sys/kernel/mm/limelight";
/// `LIMELIGHT_LEASE_MS` in mm/limelight.
const LEASE: Duration = Duration::from_secs(300);
/// The kernel's timer and this process may be late by this much.
const LATE: Duration = Duration::from_secs(5);
const MIB: u32 = 16;

/// The kernel's topmost set: its number and its members.
#[derive(Debug, PartialEq, Eq)]
struct Topmost {
    generation: u64,
    members: u64,
}

impl Topmost {
    fn now() -> Result<Topmost> {
        let value = |name: &str| -> Result<u64> {
            let path = format!("{SYSFS}/{name}");
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            text.trim()
                .parse()
                .with_context(|| format!("{path} holds {text:?}"))
        };
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
        mib: MIB,
        leak_mib_per_s: 0,
        seed: 1,
    };
    let app = App::start(KEEP, "topmost", &spec)?;
    let daemon = Daemon::start(&[])?;
    focus(app.talk.process.pid())?;
    let running = Topmost::now()?;
    reporter.check(
        "the kernel knows the topmost app",
        running.is_set(),
        format!("{running:?}"),
    )?;

    daemon.signal(libc::SIGSTOP)?;
    sleep(LEASE / 3);
    let stopped = Topmost::now()?;
    reporter.check(
        "a daemon that is stopped for a moment keeps its topmost set",
        stopped == running,
        format!("{stopped:?} after {} s", LEASE.as_secs() / 3),
    )?;
    sleep(LEASE * 2 / 3 + LATE);
    let ended = Topmost::now()?;
    reporter.check(
        "a daemon that stays stopped loses its topmost set with its lease",
        ended.generation == 0 && ended.members == 0,
        format!("{ended:?} after {} s", (LEASE + LATE).as_secs()),
    )?;

    daemon.signal(libc::SIGCONT)?;
    let again = wait(|| Ok(Topmost::now()?.is_set()))?;
    reporter.check(
        "the daemon sets it again when it runs again",
        again,
        format!("{:?}", Topmost::now()?),
    )?;
    daemon.stop(reporter)?;
    let after = Topmost::now()?;
    reporter.check(
        "nothing is left when the daemon has stopped",
        !after.is_set(),
        format!("{after:?}"),
    )?;
    stage.reporter.finish()
}
