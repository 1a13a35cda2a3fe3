// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps come to the foreground in random order for a long time, with regular leaks and process
//! storms. Measures the daemon's resource usage, and whether it keeps running.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_proto::{MemoryAction, HISTORY_MAX};

use crate::counters::Counters;
use crate::daemon::{self, focus, history, Daemon, Footprint};
use crate::dispatch::Stage;
use crate::memory::now_ns;
use crate::process::Conversation;
use crate::random::{seed, Random};
use crate::scenario::SwapSoak;
use crate::storm::{self, Stormer};
use crate::swap_app::{App, Spec, Touched, CLASSES, DISPOSABLE, KEEP, NORMAL};

/// The user's apps: class, name and memory in MiB. Together they exceed the machine's free memory.
const APPS: [(&str, &str, u32); 8] = [
    (KEEP, "office", 20),
    (KEEP, "maps", 20),
    (NORMAL, "chat", 20),
    (NORMAL, "mail", 20),
    (NORMAL, "browser", 32),
    (NORMAL, "notes", 12),
    (DISPOSABLE, "news", 20),
    (DISPOSABLE, "feed", 20),
];

/// Memory of an app before it leaks, and the leak's rate, which exhausts free memory in less than
/// half a second. Without a rate limit, a leak would take less than a tenth of a second, because
/// exact mode clears a page in one instruction. The guard assumes that filling all of a machine's
/// memory takes at least 160 ms.
const LEAKING_MIB: u32 = 8;
const LEAKS_MIB_PER_S: u32 = 400;
/// Timeout for a leak; length of a storm, and its processes per second.
const LEAK_END: Duration = Duration::from_secs(60);
const STORM: Duration = Duration::from_secs(2);
const STORM_PER_S: u32 = 200;

/// Number of equal parts of the run. Descriptor counts of the first and the last are compared.
const PARTS: u32 = 10;

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &SwapSoak) -> Result<()> {
    stage.need_daemon("swap-soak")?;
    let mut random = Random::new(seed(0x50ac, stage.repetition));
    let home = storm::home()?;
    daemon::write_config(CLASSES)?;
    let mut apps: Vec<App> = (0..APPS.len()).map(start).collect::<Result<_>>()?;
    let mut daemon = Daemon::start(&[])?;
    let counters = Counters::now()?;
    let (cpu_before, began_ns) = (daemon.cpu_ns()?, now_ns());
    let mut seen: Vec<Footprint> = Vec::new();
    let (mut leaks, mut storms, mut restarted, mut keep_lost) = (0u64, 0u64, 0u64, 0u64);
    for switch in 0..work.switches {
        if switch % (work.switches / PARTS).max(1) == 0 {
            stage
                .reporter
                .progress(format!("switch {switch} of {}", work.switches))?;
        }
        let place = random.below(APPS.len() as u64) as usize;
        if bring_to_front(&mut apps, place)? {
            restarted += 1;
            keep_lost += u64::from(APPS[place].0 == KEEP);
        }
        if switch % work.leak_every == work.leak_every - 1 {
            leak(leaks)?;
            leaks += 1;
        }
        if switch % work.storm_every == work.storm_every - 1 {
            let stormer = Stormer::start(&home, STORM_PER_S)?;
            sleep(STORM);
            stormer.stop()?;
            storms += 1;
        }
        sleep(Duration::from_millis(work.pause_ms.into()));
        if !daemon.alive() {
            bail!("limelightd has ended; it wrote:\n{}", daemon::log_tail());
        }
        seen.push(daemon.footprint()?);
    }
    let cpu_ns = daemon.cpu_ns()? - cpu_before;
    let elapsed_ns = now_ns() - began_ns;
    counters.report(&mut stage.reporter.values)?;
    let entries = history()?;
    let kills = entries
        .iter()
        .filter(|entry| entry.action == MemoryAction::Kill);
    let part = seen.len().div_ceil(PARTS as usize);
    let fewest = |seen: Option<&[Footprint]>| seen?.iter().map(|now| now.descriptors).min();
    let first = fewest(seen.chunks(part).next()).context("nothing was measured")?;
    let last = fewest(seen.chunks(part).next_back()).context("nothing was measured")?;
    let largest = seen.iter().map(|now| now.rss_kib).max().unwrap_or(0);
    for (app, (class, ..)) in apps.iter_mut().zip(APPS) {
        keep_lost += u64::from(class == KEEP && !app.alive());
    }
    let reporter = &mut stage.reporter;
    // The oldest history entries may have been dropped by now.
    let counted = kills.count();
    if entries.len() < usize::from(HISTORY_MAX) {
        reporter.value("kills", counted);
    }
    for (name, count) in [
        ("switches", u64::from(work.switches)),
        ("leaks", leaks),
        ("storms", storms),
        ("restarted", restarted),
        ("daemon_rss_kib", largest),
        ("daemon_fds_first", first),
        ("daemon_fds_last", last),
        ("keep_lost", keep_lost),
    ] {
        reporter.value(name, count);
    }
    reporter.value(
        "daemon_cpu_percent",
        cpu_ns as f64 * 100.0 / elapsed_ns.max(1) as f64,
    );
    drop(apps);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

fn start(place: usize) -> Result<App> {
    let (class, name, mib) = APPS[place];
    App::start(class, name, &Spec::new(mib, place as u64))
}

/// Gives the focus to an app and has it touch all its memory. Returns whether the app had to be
/// restarted.
fn bring_to_front(apps: &mut [App], place: usize) -> Result<bool> {
    let use_it = |app: &mut App| -> Result<bool> {
        let given = focus(app.pid());
        let touched = |talk: &mut Conversation| talk.ask::<Touched>("touch");
        match given.and_then(|()| touched(&mut app.talk)) {
            Ok(_) => Ok(true),
            // The app was killed, now or before.
            Err(_) if app.talk.process.wait(Duration::from_secs(5)).is_ok() => Ok(false),
            Err(error) => Err(error),
        }
    };
    if apps[place].alive() && use_it(&mut apps[place])? {
        return Ok(false);
    }
    apps[place] = start(place)?;
    use_it(&mut apps[place])?;
    Ok(true)
}

/// Starts a background app that leaks, and waits until it has died.
fn leak(number: u64) -> Result<()> {
    let spec = Spec {
        mib: LEAKING_MIB,
        leak_mib_per_s: LEAKS_MIB_PER_S,
        seed: number,
    };
    let mut app = App::start(NORMAL, &format!("leak{number}"), &spec)?;
    app.talk.say("leak")?;
    let began = Instant::now();
    while app.alive() {
        if began.elapsed() > LEAK_END {
            bail!("the leaking app is still alive after {LEAK_END:?}");
        }
        sleep(Duration::from_millis(20));
    }
    let cgroup = app.cgroup().clone();
    drop(app);
    cgroup.remove()
}
