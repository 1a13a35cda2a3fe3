// SPDX-License-Identifier: GPL-2.0-or-later
//! A background app grows while memory is short, with and without `[swap] throttle`: a leak, or a
//! build that ends.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use limelight_proto::MemoryAction;

use crate::counters::Counters;
use crate::daemon::{self, focus, history, Daemon};
use crate::dispatch::Stage;
use crate::plan::Arm;
use crate::scenario::{Grower, Throttle};
use crate::swap_app::{App, Spec, Touched, CLASSES, DISPOSABLE, KEEP, NORMAL};

/// The other background apps: class, name and memory in MiB.
const OTHERS: [(&str, &str, u32); 4] = [
    (DISPOSABLE, "news", 12),
    (NORMAL, "mail", 16),
    (NORMAL, "chat", 16),
    (KEEP, "office", 16),
];
const FRONT_MIB: u32 = 24;
const GROWING_MIB: u32 = 8;
/// Memory of the foreground app next to a build, in MiB: memory must be short before the build
/// begins.
const FRONT_BESIDE_BUILD_MIB: u32 = 56;

/// Time after its start, and after it has left the foreground, from which on an app may be
/// throttled.
const SETTLE: Duration = Duration::from_secs(12);
/// Longest time that a leak is watched.
const WATCHED: Duration = Duration::from_secs(30);
/// Pause between two uses of the foreground app.
const USED_EVERY: Duration = Duration::from_secs(1);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Throttle) -> Result<()> {
    if !matches!(stage.arm, Arm::LimelightOnDebian | Arm::Limelight) {
        bail!("throttle does not support arm {:?}", stage.arm);
    }
    let seed = u64::from(stage.repetition);
    let start = |class, name, mib| {
        let spec = Spec {
            mib,
            leak_mib_per_s: work.mib_per_s,
            seed: seed ^ u64::from(mib),
        };
        App::start(class, name, &spec)
    };
    let leaks = work.grower == Grower::Leak;
    let mut grower = start(NORMAL, "grower", GROWING_MIB)?;
    let others = OTHERS.map(|(class, name, mib)| start(class, name, mib));
    let mut others = others.into_iter().collect::<Result<Vec<App>>>()?;
    let mut front = match leaks {
        true => start(NORMAL, "front", FRONT_MIB)?,
        false => start(NORMAL, "front", FRONT_BESIDE_BUILD_MIB)?,
    };
    let on = format!("{CLASSES}[swap]\nthrottle = {}\n", work.throttle);
    daemon::write_config(&on)?;
    let daemon = Daemon::start(&[])?;
    for app in others.iter().chain([&grower, &front]) {
        focus(app.pid())?;
    }
    // Until then the daemon does not throttle the growing app, which has just started and has just
    // left the foreground.
    sleep(SETTLE);
    let counters = Counters::now()?;
    let reporter = &mut stage.reporter;
    if leaks {
        let watched = watch(&mut grower, &mut front)?;
        reporter.value("leaker_dead", !grower.alive());
        reporter.value("leaked_us", watched.elapsed.as_micros() as f64);
        reporter.value("front_us", watched.front.elapsed_ns as f64 / 1000.0);
        reporter.value("front_faults", watched.front.major_faults as f64);
        reporter.value("leaked_mib_10s", (watched.after_10s >> 20) as f64);
    } else {
        if work.grower == Grower::TerminalBuild {
            grower.talk.say("terminal")?;
        }
        let built: Touched = grower.talk.ask("build")?;
        reporter.value("build_us", built.elapsed_ns as f64 / 1000.0);
        reporter.value("build_faults", built.major_faults as f64);
    }
    counters.report(&mut reporter.values)?;
    let entries = history()?;
    let count = |action| entries.iter().filter(|one| one.action == action).count();
    reporter.value("throttled", count(MemoryAction::Throttle));
    reporter.value("kills", count(MemoryAction::Kill));
    let mut sum = Touched {
        elapsed_ns: 0,
        major_faults: 0,
    };
    let mut dead = 0usize;
    for app in &mut others {
        if app.alive() {
            add(&mut sum, app.talk.ask("touch")?);
        } else {
            dead += 1;
        }
    }
    reporter.value("others_us", sum.elapsed_ns as f64 / 1000.0);
    reporter.value("others_faults", sum.major_faults as f64);
    reporter.value("others_dead", dead);
    let expected = work.throttle && work.grower == Grower::Leak;
    reporter.check(
        "a leak is throttled exactly if throttling is on, and a build in a terminal never is",
        match work.grower {
            Grower::Leak => (reporter.values["throttled"] > 0.0) == expected,
            Grower::HiddenBuild => true,
            Grower::TerminalBuild => reporter.values["throttled"] == 0.0,
        },
        daemon::log_tail(),
    )?;
    if grower.alive() && leaks {
        // The daemon lifts the app's limit as soon as the app is in the foreground.
        focus(grower.pid())?;
        let high = std::fs::read_to_string(grower.cgroup().path().join("memory.high"))?;
        let lifted = high.trim() == "max";
        reporter.check(
            "the focus lifts the leaking app's limit",
            lifted,
            format!("memory.high is {}", high.trim()),
        )?;
    }
    daemon.stop(reporter)?;
    stage.reporter.finish()
}

/// What happened while an app leaked.
struct Watched {
    /// From the start of the leak to the app's end, at most [`WATCHED`].
    elapsed: Duration,
    /// All uses of the foreground app together.
    front: Touched,
    /// Memory and swap of the leaking app in bytes, in the last sample of the leak's first 11 s.
    after_10s: u64,
}

/// Uses the foreground app while the other app leaks, until the leaking app has died or [`WATCHED`]
/// has passed.
fn watch(grower: &mut App, front: &mut App) -> Result<Watched> {
    let began = Instant::now();
    grower.talk.say("leak")?;
    let mut watched = Watched {
        elapsed: Duration::ZERO,
        front: Touched {
            elapsed_ns: 0,
            major_faults: 0,
        },
        after_10s: 0,
    };
    while grower.alive() && began.elapsed() < WATCHED {
        let group = grower.cgroup();
        let held = group.number("memory.current").unwrap_or(0)
            + group.number("memory.swap.current").unwrap_or(0);
        if held > 0 && began.elapsed() <= Duration::from_secs(11) {
            watched.after_10s = held;
        }
        sleep(USED_EVERY);
        add(&mut watched.front, front.talk.ask("touch")?);
    }
    watched.elapsed = began.elapsed();
    Ok(watched)
}

fn add(sum: &mut Touched, more: Touched) {
    sum.elapsed_ns += more.elapsed_ns;
    sum.major_faults += more.major_faults;
}
