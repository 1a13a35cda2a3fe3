// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the promises of response windows, with a real X server, a real app and real key events.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde_json::Value;

use crate::boost::sleeper;
use crate::cgroup::Cgroup;
use crate::daemon::{focus, limelight, log_tail, Daemon, LIMELIGHT};
use crate::dispatch::Stage;
use crate::gallery_real::{self, Session, DISPLAY};
use crate::presenter;
use crate::process::{run, Process, Start};
use crate::record::Reporter;
use crate::store::Store;
use crate::x11::User;

/// Keysyms: feh's key for the next photo, a key that feh ignores, and a modifier.
pub(crate) const SPACE: u32 = 0x20;
const F12: u32 = 0xffc9;
const SHIFT: u32 = 0xffe1;

/// Timeout for an event that must happen. Emulated machines are slow.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Time after which the daemon has counted an answer: longer than the sum of an animation's frame,
/// the wait until the window stays unchanged, and the report to the daemon.
pub(crate) const QUIET: Duration = Duration::from_millis(1500);
/// Number of photos that the viewer cycles through.
pub(crate) const PHOTOS: u32 = 6;

/// Number of key presses that feh, and then the presenter, must answer.
const KEYS: u64 = 8;

/// The cgroup of an app that shows its frames through Present.
const PRESENTER: &str = "app.slice/app-limelight-presenter-1.scope";

/// The daemon's status of response windows.
pub(crate) struct Seen(pub(crate) Value);

impl Seen {
    /// Queries the daemon.
    pub(crate) fn now() -> Result<Seen> {
        let (code, text) = run(LIMELIGHT, &["--timeout", "120", "status", "--json"])?;
        if code != 0 {
            bail!(
                "limelight status exited with {code}: {text}\n{}",
                log_tail()
            );
        }
        let status: Value = serde_json::from_str(&text).context("status is not JSON")?;
        Ok(Seen(status["window"].clone()))
    }

    /// One of the daemon's counters of windows; `u64::MAX` if there is none of this name.
    pub(crate) fn tally(&self, name: &str) -> u64 {
        self.0["tallies"][name].as_u64().unwrap_or(u64::MAX)
    }

    /// Number of answers, in time or late. How many are late depends on the host's speed.
    pub(crate) fn answers(&self) -> u64 {
        self.tally("answered").saturating_add(self.tally("late"))
    }

    /// Whether a window is open.
    pub(crate) fn is_open(&self) -> bool {
        self.0["open"].is_object()
    }

    /// State of a source.
    pub(crate) fn source(&self, name: &str) -> &str {
        let mut sources = self.0["sources"].as_array().into_iter().flatten();
        let found = sources.find(|source| source["name"] == name);
        found.map_or("", |source| source["state"].as_str().unwrap_or_default())
    }

    /// Waits until a condition holds; returns the status at that time, or at the timeout.
    pub(crate) fn when(holds: impl Fn(&Seen) -> bool) -> Result<Seen> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let seen = Seen::now()?;
            if holds(&seen) || Instant::now() > deadline {
                return Ok(seen);
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Text for a check's message.
    pub(crate) fn text(&self) -> String {
        format!("{}, open {}", self.0["tallies"], self.is_open())
    }
}

/// The app's response times as measured by the daemon.
pub(crate) fn latency(app: &str) -> Result<Value> {
    let (code, text) = run(LIMELIGHT, &["latency", app, "--json"])?;
    if code != 0 {
        bail!("limelight latency {app} exited with {code}: {text}");
    }
    let report: Value = serde_json::from_str(&text).context("latency is not JSON")?;
    Ok(report["apps"][0].clone())
}

/// Starts the X session with feh in the foreground, as reported by the agent.
pub(crate) fn start(stage: &Stage) -> Result<(Session, Daemon, Process)> {
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
    // Created before the daemon starts: a cgroup created later would count as left behind by the
    // daemon.
    Cgroup::create(PRESENTER)?;
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

    let counted = KernelCount::now()?;
    sleep(QUIET);
    let seen = Seen::now()?;
    let none = seen.tally("opened") == 0 && seen.tally("frames_unasked") == 0;
    check(
        "without input, no window opens and no frame is reported",
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
        "limelight latency counts all answers, and its quantiles ascend",
        figure("answers") == KEYS && names[0] > 0 && names.windows(2).all(|two| two[0] <= two[1]),
        figures.to_string(),
    )?;

    user.tap(SHIFT)?;
    sleep(QUIET);
    let seen = Seen::now()?;
    let unchanged = seen.tally("opened") == KEYS;
    check("a modifier key alone opens no window", unchanged, &seen)?;

    user.tap(F12)?;
    let seen = Seen::when(|seen| seen.tally("expired") > seen.tally("late"))?;
    let ended = seen.tally("opened") == KEYS + 1 && seen.answers() == KEYS && !seen.is_open();
    check(
        "a key without a frame opens a window that expires at its deadline",
        ended,
        &seen,
    )?;

    presented(user, reporter)?;
    user.activate_watched()?;
    gallery_real::wait_for_focus(session.viewer.pid())?;

    let before = Seen::now()?;
    let (opened, answers) = (before.tally("opened"), before.answers());
    limelight(&["window", "open"])?;
    limelight(&["window", "close"])?;
    let seen = Seen::now()?;
    let one = seen.tally("opened") == opened + 1 && seen.answers() == answers + 1;
    check(
        "limelight window open and close count as one answered window",
        one,
        &seen,
    )?;
    limelight(&["window", "open"])?;
    let expired = seen.tally("expired");
    let seen = Seen::when(|seen| seen.tally("expired") > expired)?;
    let ended = seen.tally("expired") == expired + 1 && !seen.is_open();
    check(
        "a window that is never closed expires at its deadline",
        ended,
        &seen,
    )?;

    in_kernel(&counted, reporter)?;

    let answers = seen.answers();
    limelight(&["window", "open"])?;
    focus(other.pid())?;
    limelight(&["window", "close"])?;
    let seen = Seen::now()?;
    let moved = seen.tally("moved") == 1 && seen.answers() == answers;
    check(
        "a window during which the focus moves is not an answer",
        moved,
        &seen,
    )?;
    let opened = seen.tally("opened");
    user.press(SPACE)?.context("feh does not answer")?;
    let seen = Seen::when(|seen| seen.tally("inputs_elsewhere") > 0)?;
    let ignored = seen.tally("opened") == opened && seen.tally("inputs_elsewhere") > 0;
    check(
        "input for an app that is not in the foreground opens no window",
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
        "the agent reports to a daemon that was killed and started again",
        again,
        &seen,
    )?;
    drop(agent);
    successor.stop(reporter)?;
    stage.reporter.finish()
}

/// The kernel's own counters of response windows.
struct KernelCount {
    opened: u64,
    expired: u64,
}

impl KernelCount {
    fn now() -> Result<KernelCount> {
        let count = |name: &str| -> Result<u64> {
            let text = std::fs::read_to_string(format!("/sys/kernel/mm/limelight/{name}"))?;
            Ok(text.trim().parse()?)
        };
        Ok(KernelCount {
            opened: count("windows_opened")?,
            expired: count("windows_expired")?,
        })
    }
}

/// Checks that the kernel has counted the same windows as the daemon. No window may be open.
fn in_kernel(before: &KernelCount, reporter: &Reporter) -> Result<()> {
    // The kernel's timer may be slightly late.
    sleep(QUIET);
    let seen = Seen::now()?;
    let after = KernelCount::now()?;
    let (opened, expired) = (after.opened - before.opened, after.expired - before.expired);
    let reported = |name: &str| seen.0["kernel"][name].as_u64().unwrap_or(u64::MAX);
    // On a busy machine, the kernel may close a window just before the daemon does. Both count it.
    let closed = reported("closed");
    reporter.check(
        "the kernel counts each window, and closes windows at their deadlines",
        opened > 0
            && opened == reported("opened")
            && expired > 0
            && closed < opened
            && closed.saturating_add(expired) >= opened
            && reported("failed") == 0,
        format!(
            "the kernel counted {opened} windows opened, {expired} expired; the daemon counted {}",
            seen.0["kernel"]
        ),
    )
}

/// Checks that frames without damage, which only Present reports, close windows.
fn presented(user: &User, reporter: &Reporter) -> Result<()> {
    let cgroup = Cgroup::create(PRESENTER)?;
    let spec = presenter::Spec {
        display: DISPLAY.to_owned(),
        animates: false,
    };
    let start = Start::in_cgroup(&cgroup);
    let mut app = start.conversation("presenter", &spec)?;
    let begun: presenter::Said = app.hear()?;
    user.activate(begun.window)?;
    gallery_real::wait_for_focus(app.process.pid())?;
    sleep(QUIET);
    let before = Seen::now()?;
    for _ in 0..KEYS {
        user.tap(SPACE)?;
        let _: presenter::Said = app.hear()?;
        sleep(QUIET);
    }
    let answers = before.answers() + KEYS;
    let seen = Seen::when(|seen| seen.answers() >= answers)?;
    let opened = before.tally("opened") + KEYS;
    reporter.check(
        "a frame that only Present reports closes a window",
        seen.tally("opened") == opened && seen.answers() == answers && !seen.is_open(),
        format!("{}, before {}", seen.text(), before.text()),
    )
}
