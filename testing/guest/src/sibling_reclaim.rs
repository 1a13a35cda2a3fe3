// SPDX-License-Identifier: GPL-2.0-or-later
//! While memory is short, the reservation for an app that returns from swap protects no other
//! cgroup, so that reclaim can take the siblings' memory.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_core::model::shortage::Level;
use limelight_sys::cgroup::{CgroupPath, Hierarchy};

use crate::cgroup::{Cgroup, ROOT};
use crate::counters::Counters;
use crate::daemon::{self, focus, Daemon};
use crate::dispatch::Stage;
use crate::guest_setup::{memory_kib, mglru};
use crate::memory::{Mapping, MIB, PAGE};
use crate::process::Start;
use crate::swap_app::{App, Spec, Touched, KEEP};

const APP_MIB: u32 = 32;
const OTHER_MIB: u32 = 40;
/// Memory that is allocated beyond the free memory, and the minimum of it that must come from the
/// sibling, in MiB. The sibling has nearly all reclaimable memory. If the unused part of the app's
/// reservation protected the sibling, little could be reclaimed.
const WANTED_MIB: usize = 24;
const GIVEN_MIB: u64 = 8;
/// Page cache to evict at the start, in MiB: more than the guest has cached by then.
const FILES_MIB: u64 = 32;
/// Maximum protection of the ancestors beyond the app's memory usage, in MiB: twice the spare
/// memory that the daemon adds on a machine of this size, plus memory that the app may have freed
/// since the daemon measured the app.
const BEYOND_MIB: u64 = 20;

/// Step in which memory is taken until it is short, in bytes.
const STEP: usize = 2 * MIB;
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time within which the ancestors' protection follows the app.
const FOLLOWED: Duration = Duration::from_secs(2);

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    let spec = |mib| Spec::new(mib, u64::from(mib));
    // With page cache left, the kernel would reclaim file pages instead of the sibling's memory.
    reclaim(Path::new(ROOT), FILES_MIB)?;
    let mut app = App::start(KEEP, "returning", &spec(APP_MIB))?;
    // The sibling is a service, not an app, so that only the kernel's reclaim takes its memory.
    let beside = Cgroup::create("app.slice/beside.service")?;
    let start = Start::in_cgroup(&beside);
    let mut other = start.conversation("swap-app", &spec(OTHER_MIB))?;
    other.ask::<Touched>("touch")?;
    reclaim(app.cgroup().path(), u64::from(APP_MIB))?;
    // The daemon leaves the service's memory to the kernel's reclaim.
    daemon::write_config("[swap]\nservices = false\n")?;
    let daemon = Daemon::start(&[app.pid()])?;
    let taken = take_until_short()?;
    let counters = Counters::now()?;

    focus(app.pid())?;
    sleep(FOLLOWED);
    let knob = if mglru() { "memory.min" } else { "memory.low" };
    // On a busy host the guest may stall, and the daemon then lowers protection for some seconds.
    let covers = u64::from(APP_MIB) * MIB as u64;
    let deadline = Instant::now() + PATIENCE;
    let mut own = app.cgroup().number(knob)?;
    while own < covers && Instant::now() < deadline {
        sleep(FOLLOWED / 4);
        own = app.cgroup().number(knob)?;
    }
    reporter.check(
        "the app's reservation covers its memory in swap",
        own >= covers,
        format!("{} MiB reserved", own / MIB as u64),
    )?;
    let used = app.cgroup().number("memory.current")?;
    let carried = Cgroup::create("app.slice")?.number(knob)?;
    reporter.check(
        "while memory is short, the slice's protection is the app's usage plus at most 20 MiB",
        carried >= used && carried <= used + BEYOND_MIB * MIB as u64,
        format!("{carried} bytes protected, {used} used"),
    )?;
    let before = beside.number("memory.current")?;
    // memory.reclaim cannot be used: under MGLRU only kswapd determines which cgroups are protected
    // (kswapd_age_node()).
    let free = memory_kib("MemFree")? as usize;
    let wanted = Mapping::locked((free << 10) / PAGE * PAGE + WANTED_MIB * MIB)?;
    let given = before.saturating_sub(beside.number("memory.current")?);
    reporter.check(
        "reclaim takes memory from the sibling",
        given >= GIVEN_MIB * MIB as u64,
        format!("{given} of the sibling's {before} bytes reclaimed"),
    )?;
    let dead = !app.alive() || !other.process.alive();
    let mut values = stage.reporter.values.clone();
    counters.report(&mut values)?;
    reporter.check(
        "no app dies",
        !dead && values["oom_kills"] == 0.0,
        format!("an app died: {dead}; {} OOM kills", values["oom_kills"]),
    )?;
    drop((taken, wanted));
    daemon.stop(&stage.reporter)?;
    drop((app, other));
    stage.reporter.finish()
}

/// Has the kernel reclaim this many MiB from a cgroup, or as many as it can.
fn reclaim(cgroup: &Path, mib: u64) -> Result<()> {
    let below = Path::new("/").join(cgroup.strip_prefix(ROOT)?);
    let path = below.to_str().and_then(CgroupPath::parse);
    let path = path.with_context(|| format!("{} is not a cgroup", cgroup.display()))?;
    let cgroup = Hierarchy::at(ROOT)?.open(&path)?;
    cgroup.reclaim(mib * MIB as u64, None)?;
    Ok(())
}

/// Locks memory until the daemon reports that memory is short.
fn take_until_short() -> Result<Vec<Mapping>> {
    let deadline = Instant::now() + PATIENCE;
    let mut taken = Vec::new();
    while Instant::now() < deadline {
        let (_, status) = daemon::json(&["status"])?;
        let level: Option<Level> = serde_json::from_value(status["memory"]["level"].clone())?;
        if level.context("the guard is not running")? > Level::Plenty {
            return Ok(taken);
        }
        taken.push(Mapping::locked(STEP)?);
    }
    bail!(
        "memory is not short after {} MiB were taken: {}",
        taken.len() * STEP / MIB,
        daemon::log_tail()
    )
}
