// SPDX-License-Identifier: GPL-2.0-or-later
//! What follows a change of focus: the cgroup of the app that got it, and of all apps' it alone, has protection
//! and boost.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cgroup;
use crate::process::run;
use crate::record::Reporter;
use crate::response::{median, quantile};

/// How long it may take until it counts as not following at all; the clock decides nothing else.
const LIMIT: Duration = Duration::from_secs(20);
/// How often [`check_round`] moves the focus, and how long it then stays.
const MOVES: usize = 24;
const REST: Duration = Duration::from_secs(1);
/// Time between two looks.
const LOOK: Duration = Duration::from_micros(200);

/// Times that one change of focus took.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    protect: Duration,
    boost: Duration,
}

/// Gives the app that `pid` belongs to the focus, and waits for what follows, as [`moved`] does.
pub fn follow(pid: i32, focus: impl FnOnce() -> Result<()>) -> Result<Option<Moved>> {
    let started = Instant::now();
    focus()?;
    moved(pid, started)
}

/// Moves the focus again and again between `apps`, checks that protection and boost move along, and reports the
/// times. `program` is the command line that tells how it stands where they do not.
pub fn check_round<App>(
    reporter: &mut Reporter,
    program: &str,
    apps: &[App],
    name: impl Fn(&App) -> &str,
    mut follow: impl FnMut(&App) -> Result<Option<Moved>>,
) -> Result<()> {
    reporter.progress("moving the focus")?;
    let (mut all, mut stuck) = (Vec::new(), None);
    for app in apps.iter().cycle().take(MOVES) {
        sleep(REST);
        match follow(app)? {
            Some(moved) => all.push(moved),
            None => {
                stuck = Some(name(app));
                break;
            }
        }
    }
    let (_, status) = run(program, &["status"])?;
    reporter.check(
        format!("each of {MOVES} changes of focus moves protection and boost along"),
        stuck.is_none(),
        format!("not moved to: {stuck:?}\n{status}"),
    )?;
    report(&all, reporter);
    Ok(())
}

/// Waits until the cgroup of the app that `pid` belongs to has both; `None` when it does not come to that.
fn moved(pid: i32, started: Instant) -> Result<Option<Moved>> {
    let (mut protect, mut boost) = (None, None);
    while started.elapsed() < LIMIT {
        // Where no systemd runs, an app is moved when it first comes to the front.
        let own = cgroup::of(pid)?;
        if protect.is_none() && alone(&own, protected)? {
            protect = Some(started.elapsed());
        }
        if boost.is_none() && alone(&own, boosted)? {
            boost = Some(started.elapsed());
        }
        if let (Some(protect), Some(boost)) = (protect, boost) {
            return Ok(Some(Moved { protect, boost }));
        }
        sleep(LOOK);
    }
    Ok(None)
}

/// Whether of all apps' scopes beside `own` only that has it.
fn alone(own: &Path, has: fn(&Path) -> bool) -> Result<bool> {
    if !has(own) {
        return Ok(false);
    }
    let slice = own.parent().context("an app's cgroup has a parent")?;
    for entry in fs::read_dir(slice)? {
        let path = entry?.path();
        let is_app = path.extension().is_some_and(|end| end == "scope");
        if is_app && path != own && has(&path) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn protected(cgroup: &Path) -> bool {
    ["memory.min", "memory.low"]
        .iter()
        .any(|file| !matches!(text(cgroup, file).as_str(), "" | "0"))
}

/// By its weight, or where systemd has not given the cgroup one by its processes' nice values.
fn boosted(cgroup: &Path) -> bool {
    let weight = text(cgroup, "cpu.weight");
    let procs = text(cgroup, "cgroup.procs");
    let mut pids = procs.lines().filter_map(|pid| pid.parse().ok());
    !matches!(weight.as_str(), "" | "100") || pids.any(|pid| nice(pid) < 0)
}

fn text(cgroup: &Path, file: &str) -> String {
    let text = fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    text.trim().to_owned()
}

/// A process's nice value.
pub fn nice(pid: i32) -> i32 {
    // SAFETY: getpriority has no preconditions.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, pid as libc::id_t) }
}

/// Reports the times of many changes of focus: median, what 19 of 20 do not exceed, and the longest.
fn report(all: &[Moved], reporter: &mut Reporter) {
    type Time = fn(&Moved) -> Duration;
    let both: [(&str, Time); 2] = [
        ("focus_protect", |moved| moved.protect),
        ("focus_boost", |moved| moved.boost),
    ];
    for (name, time) in both {
        let mut samples: Vec<f64> = all
            .iter()
            .map(|moved| time(moved).as_micros() as f64)
            .collect();
        if samples.is_empty() {
            continue;
        }
        reporter.value(format!("{name}_us"), median(&mut samples));
        reporter.value(format!("{name}_p95_us"), quantile(&samples, 0.95));
        reporter.value(format!("{name}_max_us"), quantile(&samples, 1.0));
        reporter.series.insert(format!("{name}_us"), samples);
    }
}
