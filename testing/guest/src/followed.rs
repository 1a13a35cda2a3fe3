// SPDX-License-Identifier: GPL-2.0-or-later
//! Measures how fast protection and boost follow a focus change. Protection has followed when the
//! newly focused app's cgroup is the only protected app cgroup; the same holds for boost.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::cgroup;
use crate::process::run;
use crate::record::Reporter;
use crate::response::{median, quantile};

/// Timeout after which protection or boost counts as not moved. No other check depends on time.
const LIMIT: Duration = Duration::from_secs(20);
/// Number of focus moves in [`check_round`], and time between them.
const MOVES: usize = 24;
const REST: Duration = Duration::from_secs(1);
/// Polling interval.
const POLL: Duration = Duration::from_micros(200);

/// Latencies of one focus change.
#[derive(Debug, Clone, Copy)]
pub struct Moved {
    protect: Duration,
    boost: Duration,
}

/// Moves the focus, by calling `focus`, to the app that `pid` belongs to. Returns the latencies of
/// protection and boost; `None` on timeout.
pub fn follow(pid: i32, focus: impl FnOnce() -> Result<()>) -> Result<Option<Moved>> {
    let started = Instant::now();
    focus()?;
    moved(pid, started)
}

/// Moves the focus between `apps` repeatedly, checks that protection and boost follow, and reports
/// the latencies. `program` is the path of `limelight`; the check's details contain the output of
/// `limelight status`.
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
        format!("protection and boost follow each of {MOVES} focus changes"),
        stuck.is_none(),
        format!("app that they did not follow: {stuck:?}\n{status}"),
    )?;
    report(&all, reporter);
    Ok(())
}

/// Waits until the cgroup of `pid` is the only app cgroup with protection, and the only one with
/// boost. Returns the time that each took since `started`; `None` on timeout.
fn moved(pid: i32, started: Instant) -> Result<Option<Moved>> {
    let (mut protect, mut boost) = (None, None);
    while started.elapsed() < LIMIT {
        // Without systemd, the daemon moves an app to its own cgroup when the app first comes to
        // the foreground.
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
        sleep(POLL);
    }
    Ok(None)
}

/// Whether `has` holds for the scope `own`, and for no other scope in its slice.
fn alone(own: &Path, has: fn(&Path) -> bool) -> Result<bool> {
    if !has(own) {
        return Ok(false);
    }
    let slice = own.parent().context("an app's cgroup has no parent")?;
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

/// Whether the cgroup has a boosted weight or, where systemd has not enabled cpu.weight, a process
/// with a negative nice value.
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

/// Reports the latencies of all focus changes: median, 95th percentile and maximum.
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
