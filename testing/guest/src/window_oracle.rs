// SPDX-License-Identifier: GPL-2.0-or-later
//! Compares the daemon's response times with those of an independent observer: a second client of
//! the X server, or an app that gets frame events from the kernel.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::gallery_real;
use crate::process::{set_policy, Process, Start};
use crate::response::quantile;
use crate::scenario::{OracleDisplay, Spin, WindowOracle};
use crate::window_sources::Desk;
use crate::windows::{latency, start, Seen, PHOTOS, SPACE};

/// Presses keys, and compares the daemon's response times with the oracle's.
pub fn run(stage: Stage, work: &WindowOracle) -> Result<()> {
    match work.display {
        OracleDisplay::X11 => oracle_of_x11(stage, work),
        OracleDisplay::Kms => oracle_of_kms(stage, work),
    }
}

/// The oracle is another X client with its own damage events.
fn oracle_of_x11(mut stage: Stage, work: &WindowOracle) -> Result<()> {
    let (session, daemon, agent) = start(&stage)?;
    // Shows every photo once, as in an app that has been running for a while.
    for _ in 0..PHOTOS {
        session.user.press(SPACE)?.context("feh does not answer")?;
    }
    let loads = loads(work)?;
    // A new daemon starts without the response times measured so far.
    let before = daemon.kill()?;
    let daemon = Daemon::start_after(before)?;
    gallery_real::wait_for_focus(session.viewer.pid())?;
    // The measuring process must not wait for a CPU.
    realtime(true)?;
    let (mut stamped, mut heard) = (Vec::new(), Vec::new());
    for _ in 0..work.keys {
        sleep(Duration::from_millis(work.pause_ms.into()));
        let answer = session.user.answer(SPACE)?.context("feh does not answer")?;
        let took = answer.stamped.as_secs_f64() * 1e6;
        stage.reporter.sample("oracle_us", took);
        stamped.push(took);
        heard.push(answer.last.as_secs_f64() * 1e6);
    }
    realtime(false)?;
    drop(loads);
    compare(&mut stage, &stamped, &heard, session.viewer.pid())?;
    drop(agent);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

/// Runs this process under SCHED_FIFO, or under the default policy again.
fn realtime(on: bool) -> Result<()> {
    let (policy, priority) = match on {
        true => (libc::SCHED_FIFO, 1),
        false => (libc::SCHED_OTHER, 0),
    };
    set_policy(0, policy, priority).context("cannot change the oracle's scheduling policy")
}

/// The oracle is the app itself. It uses the kernel's timestamps of the keyboard event and of the
/// frame's completion.
fn oracle_of_kms(mut stage: Stage, work: &WindowOracle) -> Result<()> {
    let mut desk = Desk::set_up(0)?;
    let daemon = Daemon::start(&[desk.pid()])?;
    focus(desk.pid())?;
    let seen = Seen::when(|seen| seen.source("display frames") == "active")?;
    if seen.source("evdev") != "active" {
        bail!(
            "limelightd does not read input devices: {}",
            seen.0["sources"]
        );
    }
    let loads = loads(work)?;
    let (mut stamped, mut heard) = (Vec::new(), Vec::new());
    for key in 0..work.keys {
        // The app's thinking time grows with each key and starts again at 0 after 20 keys, so that
        // the response times differ.
        desk.app.say(&format!("think {}", key % 20 * 3))?;
        sleep(Duration::from_millis(work.pause_ms.into()));
        let (pressed, shown) = desk.press()?;
        let took = shown.shown_us.saturating_sub(pressed) as f64;
        stage.reporter.sample("oracle_us", took);
        stamped.push(took);
        heard.push(shown.heard_us.saturating_sub(pressed) as f64);
    }
    drop(loads);
    compare(&mut stage, &stamped, &heard, desk.pid())?;
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

fn loads(work: &WindowOracle) -> Result<Vec<Process>> {
    (0..work.loads)
        .map(|_| Start::PLAIN.part("spin-load", &Spin::AddLoop))
        .collect()
}

/// The quantiles to compare.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p95", 0.95), ("max", 1.0)];

/// Reports the daemon's figures of an app next to the oracle's.
fn compare(stage: &mut Stage, oracle: &[f64], heard: &[f64], app: i32) -> Result<()> {
    let keys = oracle.len() as u64;
    let seen = Seen::when(|seen| seen.answers() >= keys)?;
    let reporter = &mut stage.reporter;
    reporter.value("keys", keys as f64);
    reporter.value("windows_opened", seen.tally("opened") as f64);
    let figures = latency(&app.to_string())?;
    let figure = |name: &str| figures[name].as_f64().unwrap_or(0.0);
    reporter.value("daemon_answers", figure("answers"));
    for (name, part) in QUANTILES {
        let reported = figure(&format!("{name}_us"));
        let truth = quantile(oracle, part);
        reporter.value(format!("daemon_{name}_us"), reported);
        reporter.value(format!("oracle_{name}_us"), truth);
        reporter.value(format!("heard_{name}_us"), quantile(heard, part));
        reporter.value(format!("off_{name}_us"), reported - truth);
    }
    Ok(())
}
