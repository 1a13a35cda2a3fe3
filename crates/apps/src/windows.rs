// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows with a real X server, a real app and real key events: what they promise, how far
//! the daemon's figures are from what a second client of the X server sees, and what a window costs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde_json::Value;

use crate::boost::sleeper;
use crate::cell::Stage;
use crate::cgroup::Cgroup;
use crate::daemon::{focus, limelight, log_tail, Daemon, LIMELIGHT};
use crate::gallery_real::{self, Session};
use crate::memory::now_ns;
use crate::process::{run, Process, Start};
use crate::scenario::{Spin, WindowOracle};
use crate::store::Store;

/// feh's key for the next photo, one that it ignores, and one that is only held.
const SPACE: u32 = 0x20;
const F12: u32 = 0xffc9;
const SHIFT: u32 = 0xffe1;

/// How long anything may take that must happen. Emulated machines are slow.
const LIMIT: Duration = Duration::from_secs(60);
/// Longer than an animation's frame, a settled frame and the way to the daemon together.
const QUIET: Duration = Duration::from_millis(1500);
/// Photos that the viewer shows in turn.
const PHOTOS: u32 = 6;

/// Answers that the rules count.
const KEYS: u64 = 8;

/// Windows that the cost is averaged over, and some before them.
const WINDOWS: u64 = 500;
const WARM_UP: u64 = 50;

/// Where the daemon answers.
const SOCKET: &str = "/run/limelight/control.sock";

/// What the daemon says of windows.
struct Seen(Value);

impl Seen {
    /// Asks it.
    fn now() -> Result<Seen> {
        let (code, text) = run(LIMELIGHT, &["--timeout", "120", "status", "--json"])?;
        if code != 0 {
            bail!("limelight status exits with {code}: {text}\n{}", log_tail());
        }
        let status: Value = serde_json::from_str(&text).context("status is no JSON")?;
        Ok(Seen(status["window"].clone()))
    }

    /// How windows came and went.
    fn tally(&self, name: &str) -> u64 {
        self.0["tallies"][name].as_u64().unwrap_or(u64::MAX)
    }

    /// Answers in time and late ones: which of both depends on the host.
    fn answers(&self) -> u64 {
        self.tally("answered").saturating_add(self.tally("late"))
    }

    /// Whether one is open.
    fn is_open(&self) -> bool {
        self.0["open"].is_object()
    }

    /// Waits until something holds; what is seen then, or at last.
    fn when(holds: impl Fn(&Seen) -> bool) -> Result<Seen> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let seen = Seen::now()?;
            if holds(&seen) || Instant::now() > deadline {
                return Ok(seen);
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// For people.
    fn text(&self) -> String {
        format!("{}, open {}", self.0["tallies"], self.is_open())
    }
}

/// The app's response times by the daemon.
fn latency(app: &str) -> Result<Value> {
    let (code, text) = run(LIMELIGHT, &["latency", app, "--json"])?;
    if code != 0 {
        bail!("limelight latency {app} exits with {code}: {text}");
    }
    let report: Value = serde_json::from_str(&text).context("latency is no JSON")?;
    Ok(report["apps"][0].clone())
}

/// The X session with feh in front, as the agent has told the daemon.
fn start(stage: &Stage) -> Result<(Session, Daemon, Process)> {
    if stage.machine.rootfs.is_none() {
        bail!("windows need a root file system, and the plan's machine has none");
    }
    let store = stage.store()?;
    let Store::Directory(data) = &store else {
        bail!("windows need a data disk with a file system");
    };
    gallery_real::photos(data, PHOTOS)?;
    stage.reporter.progress("starting the X session")?;
    let session = Session::start(true)?;
    let daemon = Daemon::start(&[session.viewer.pid()])?;
    let agent = gallery_real::start_agent()?;
    gallery_real::wait_for_focus(session.viewer.pid())?;
    Ok((session, daemon, agent))
}

/// Runs all checks.
pub fn rules(stage: Stage) -> Result<()> {
    let (session, daemon, agent) = start(&stage)?;
    let other = sleeper(None, false)?;
    let reporter = &stage.reporter;
    let check = |what: &str, held: bool, seen: &Seen| reporter.check(what, held, seen.text());
    let user = &session.user;

    sleep(QUIET);
    let seen = Seen::now()?;
    let none = seen.tally("opened") == 0 && seen.tally("frames_unasked") == 0;
    check(
        "without input no window opens and no frame is told",
        none,
        &seen,
    )?;

    for _ in 0..KEYS {
        user.press(SPACE)?.context("feh does not answer")?;
        sleep(QUIET);
    }
    let seen = Seen::when(|seen| seen.answers() >= KEYS)?;
    let each = seen.tally("opened") == KEYS && seen.answers() == KEYS && !seen.is_open();
    check(
        "each key opens one window, which its photo closes",
        each,
        &seen,
    )?;
    let figures = latency("feh")?;
    let figure = |name: &str| figures[name].as_u64().unwrap_or(0);
    let names = ["p50_us", "p95_us", "p99_us", "max_us"].map(figure);
    reporter.check(
        "limelight latency has all answers, and figures in order",
        figure("answers") == KEYS && names[0] > 0 && names.windows(2).all(|two| two[0] <= two[1]),
        figures.to_string(),
    )?;

    user.tap(SHIFT)?;
    sleep(QUIET);
    let seen = Seen::now()?;
    let unchanged = seen.tally("opened") == KEYS;
    check("a modifier alone opens none", unchanged, &seen)?;

    user.tap(F12)?;
    let seen = Seen::when(|seen| seen.tally("expired") > seen.tally("late"))?;
    let ended = seen.tally("opened") == KEYS + 1 && seen.answers() == KEYS && !seen.is_open();
    check(
        "a key that shows nothing opens one that ends at its deadline",
        ended,
        &seen,
    )?;

    limelight(&["window", "open"])?;
    limelight(&["window", "close"])?;
    let seen = Seen::now()?;
    let told = seen.tally("opened") == KEYS + 2 && seen.answers() == KEYS + 1;
    check("limelight window open and close are one, too", told, &seen)?;
    limelight(&["window", "open"])?;
    let expired = seen.tally("expired");
    let seen = Seen::when(|seen| seen.tally("expired") > expired)?;
    let ended = seen.tally("expired") == expired + 1 && !seen.is_open();
    check(
        "one that is never closed ends at its deadline",
        ended,
        &seen,
    )?;

    let answers = seen.answers();
    limelight(&["window", "open"])?;
    focus(other.pid())?;
    limelight(&["window", "close"])?;
    let seen = Seen::now()?;
    let moved = seen.tally("moved") == 1 && seen.answers() == answers;
    check(
        "the focus takes the window along, and its time is no response",
        moved,
        &seen,
    )?;
    let opened = seen.tally("opened");
    user.press(SPACE)?.context("feh does not answer")?;
    let seen = Seen::when(|seen| seen.tally("inputs_elsewhere") > 0)?;
    let ignored = seen.tally("opened") == opened && seen.tally("inputs_elsewhere") > 0;
    check(
        "input for an app that is not topmost opens none",
        ignored,
        &seen,
    )?;
    limelight(&["focus", "--none"])?;

    let dead = daemon.kill()?;
    let successor = Daemon::start_after(dead)?;
    gallery_real::wait_for_focus(session.viewer.pid())?;
    user.press(SPACE)?.context("feh does not answer")?;
    let seen = Seen::when(|seen| seen.answers() >= 1)?;
    let again = seen.tally("opened") == 1 && seen.answers() == 1;
    check(
        "a daemon that was killed and started again is told again",
        again,
        &seen,
    )?;
    drop(agent);
    successor.stop(reporter)?;
    stage.reporter.finish()
}

/// Presses keys, and compares what the daemon says afterwards with what the user saw: the X server's
/// damage, as another client is told of it.
pub fn oracle(mut stage: Stage, work: &WindowOracle) -> Result<()> {
    let (session, daemon, agent) = start(&stage)?;
    // Every photo once, as in an app that has been used for a while.
    for _ in 0..PHOTOS {
        session.user.press(SPACE)?.context("feh does not answer")?;
    }
    let loads = loads(work)?;
    // What came before is forgotten with the daemon.
    let before = daemon.kill()?;
    let daemon = Daemon::start_after(before)?;
    gallery_real::wait_for_focus(session.viewer.pid())?;
    let (mut whole, mut first) = (Vec::new(), Vec::new());
    for _ in 0..work.keys {
        sleep(Duration::from_millis(work.pause_ms.into()));
        let answer = session.user.answer(SPACE)?.context("feh does not answer")?;
        let last = answer.last.as_secs_f64() * 1e6;
        stage.reporter.sample("oracle_us", last);
        whole.push(last);
        first.push(answer.first.as_secs_f64() * 1e6);
    }
    drop(loads);
    for (name, quantile) in QUANTILES {
        let begun = at_quantile(&mut first, quantile);
        let name = format!("first_damage_{name}_us");
        stage.reporter.value(name, begun);
    }
    compare(&mut stage, whole, session.viewer.pid())?;
    drop(agent);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

fn loads(work: &WindowOracle) -> Result<Vec<Process>> {
    (0..work.loads)
        .map(|_| Start::PLAIN.part("spin-load", &Spin::AddLoop))
        .collect()
}

/// Figures that are compared.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.50), ("p95", 0.95), ("max", 1.0)];

/// Reports the daemon's figures of an app beside the oracle's.
fn compare(stage: &mut Stage, mut oracle: Vec<f64>, app: i32) -> Result<()> {
    let keys = oracle.len() as u64;
    let seen = Seen::when(|seen| seen.answers() >= keys)?;
    let reporter = &mut stage.reporter;
    reporter.value("keys", keys as f64);
    reporter.value("windows_opened", seen.tally("opened") as f64);
    let figures = latency(&app.to_string())?;
    let figure = |name: &str| figures[name].as_f64().unwrap_or(0.0);
    reporter.value("daemon_answers", figure("answers"));
    for (name, quantile) in QUANTILES {
        let told = figure(&format!("{name}_us"));
        let truth = at_quantile(&mut oracle, quantile);
        reporter.value(format!("daemon_{name}_us"), told);
        reporter.value(format!("oracle_{name}_us"), truth);
        reporter.value(format!("off_{name}_us"), told - truth);
    }
    Ok(())
}

/// The smallest sample that so large a part of all does not exceed, as a histogram counts it.
fn at_quantile(samples: &mut [f64], quantile: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let rank = (samples.len() as f64 * quantile).ceil() as usize;
    samples.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// What it costs the daemon to open and to close a window over a connection that stays.
pub fn cost(mut stage: Stage) -> Result<()> {
    let cgroup = Cgroup::create("app.slice/app-limelight-waiter-1.scope")?;
    let app = sleeper(Some(&cgroup), false)?;
    let daemon = Daemon::start(&[app.pid()])?;
    focus(app.pid())?;
    let mut socket = UnixStream::connect(SOCKET)?;
    let mut answers = BufReader::new(socket.try_clone()?);
    let mut tell = |event: &str| -> Result<()> {
        let at_us = now_ns() / 1000;
        let pid = app.pid();
        let line = format!(
            r#"{{"op":"window","event":"{event}","at_us":{at_us},"pid":{pid},"source":"lab"}}"#
        );
        writeln!(socket, "{line}")?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        if !answer.contains(r#""result":"ok""#) {
            bail!("limelightd answered {answer:?} to {line}");
        }
        Ok(())
    };
    let mut windows = |count: u64| -> Result<()> {
        for _ in 0..count {
            tell("open")?;
            tell("close")?;
        }
        Ok(())
    };
    windows(WARM_UP)?;
    let (spent, since) = (daemon.cpu_ns()?, now_ns());
    windows(WINDOWS)?;
    let (spent, took) = (daemon.cpu_ns()? - spent, now_ns() - since);
    // What the daemon does anyway in as much time is not the windows'.
    let idle = daemon.cpu_ns()?;
    sleep(Duration::from_nanos(took));
    let idle = daemon.cpu_ns()? - idle;
    let each = |ns: u64| ns as f64 / 1e3 / WINDOWS as f64;
    stage
        .reporter
        .value("daemon_us_per_window", each(spent.saturating_sub(idle)));
    stage.reporter.value("elapsed_us_per_window", each(took));
    let seen = Seen::now()?;
    let counted = seen.tally("answered");
    stage.reporter.check(
        "each window that was told is counted",
        counted == WARM_UP + WINDOWS,
        seen.text(),
    )?;
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

#[cfg(test)]
mod tests {
    use super::at_quantile;

    #[test]
    fn quantiles_are_counted_as_a_histogram_counts_them() {
        let mut samples = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(at_quantile(&mut samples, 0.5), 2.0);
        assert_eq!(at_quantile(&mut samples, 0.95), 4.0);
        assert_eq!(at_quantile(&mut samples, 1.0), 4.0);
        assert_eq!(at_quantile(&mut [], 0.5), 0.0);
    }
}
