// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps leak one after the other until they are killed, on a busy machine. Measures the time from
//! the daemon's last sample at which no kill was due until the memory is free.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use limelight_proto::{HistoryEntry, MemoryAction};

use crate::counters::Counters;
use crate::daemon::{self, focus, history, Daemon};
use crate::dispatch::Stage;
use crate::gallery::Prepared;
use crate::response::quantile;
use crate::scenario::KillLatency;
use crate::swap_app::{App, Spec, CLASSES, DISPOSABLE, KEEP, NORMAL};

/// Memory of the foreground app, of a background app that must survive, and of each victim when it
/// begins to leak, in MiB.
const FRONT_MIB: u32 = 24;
const KEPT_MIB: u32 = 16;
const VICTIM_MIB: u32 = 32;

/// Timeouts for an app to be killed, and for its kill to appear in the history.
const END: Duration = Duration::from_secs(60);
const NOTED: Duration = Duration::from_secs(10);
/// Time for the daemon to scan an app and for the last kill's rate limit to expire.
const SETTLE: Duration = Duration::from_millis(1500);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &KillLatency) -> Result<()> {
    stage.need_daemon("kill-latency")?;
    let mut store = stage.store()?;
    let prepared = Prepared::new(&work.loads, &mut store, true, 0, stage.repetition)?;
    crate::guest_setup::drop_caches()?;
    let spec = |mib| Spec::new(mib, u64::from(mib));
    let mut kept = App::start(KEEP, "kept", &spec(KEPT_MIB))?;
    let mut front = App::start(NORMAL, "front", &spec(FRONT_MIB))?;
    daemon::write_config(CLASSES)?;
    let daemon = Daemon::start(&[])?;
    focus(kept.pid())?;
    focus(front.pid())?;
    let loads = prepared.start()?;
    let counters = Counters::now()?;
    let cpu_before = daemon.cpu_by_thread()?;

    let mut kills: Vec<HistoryEntry> = Vec::new();
    let mut survived = 0u64;
    for number in 0..work.kills {
        stage
            .reporter
            .progress(format!("kill {number} of {}", work.kills))?;
        let name = format!("hog{number}");
        let mut victim = App::start(DISPOSABLE, &name, &spec(VICTIM_MIB))?;
        sleep(SETTLE);
        victim.talk.say("leak")?;
        let began = Instant::now();
        while victim.alive() && began.elapsed() < END {
            sleep(Duration::from_millis(10));
        }
        match victim.alive() {
            true => survived += 1,
            false => kills.extend(noted(&name)?),
        }
        let cgroup = victim.cgroup().clone();
        drop(victim);
        cgroup.remove()?;
    }
    let cpu = daemon.cpu_by_thread()?;
    counters.report(&mut stage.reporter.values)?;
    drop(loads);
    let dead = u64::from(!kept.alive()) + u64::from(!front.alive());
    report(&mut stage, &kills);
    let reporter = &mut stage.reporter;
    reporter.value("survived", survived);
    reporter.value("innocent_dead", dead);
    let mut all = 0;
    for (thread, time) in &cpu {
        let used = time - cpu_before.get(thread).unwrap_or(&0);
        reporter.value(format!("daemon_cpu_{thread}_us"), used / 1000);
        all += used / 1000;
    }
    reporter.value("daemon_cpu_us", all);
    drop((kept, front));
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

/// The history entry of the daemon's kill of the app `name`. `None` if there is none after
/// [`NOTED`], for example because the kernel killed the app first.
fn noted(name: &str) -> Result<Option<HistoryEntry>> {
    let group = format!(".{name}-");
    let began = Instant::now();
    while began.elapsed() < NOTED {
        let kill = history()?.into_iter().rev().find(|entry| {
            let cgroup = entry.app.as_ref().and_then(|app| app.cgroup.as_deref());
            entry.action == MemoryAction::Kill
                && cgroup.is_some_and(|cgroup| cgroup.contains(&group))
        });
        if kill.is_some() {
            return Ok(kill);
        }
        sleep(Duration::from_millis(50));
    }
    Ok(None)
}

fn report(stage: &mut Stage, kills: &[HistoryEntry]) {
    let reporter = &mut stage.reporter;
    let took: Vec<f64> = kills
        .iter()
        .filter_map(|kill| Some(kill.took_us? as f64))
        .collect();
    let freed: Vec<f64> = kills.iter().map(|kill| (kill.bytes >> 10) as f64).collect();
    for us in &took {
        reporter.sample("kill_us", *us);
    }
    reporter.value("kills", took.len());
    if took.is_empty() {
        return;
    }
    for (name, part) in [("p50", 0.50), ("p99", 0.99), ("max", 1.0)] {
        reporter.value(format!("kill_{name}_us"), quantile(&took, part));
    }
    reporter.value("freed_p50_kib", quantile(&freed, 0.50));
}
