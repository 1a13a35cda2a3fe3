// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks that no user process keeps values that it got or inherited while its app was in the
//! foreground. The app has no privilege. It changes its own values and creates threads. It also
//! creates children that leave their parent, session or cgroup, hide their `/proc` files from their
//! user, or outlive the app.

mod app;

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_sys::sched;

use crate::boost::sleeper;
use crate::cgroup::Cgroup;
use crate::daemon::{focus, limelight, write_config, Daemon, LIMELIGHTD};
use crate::dispatch::Stage;
use crate::process::{run as run_program, send, Conversation, Start};
use crate::record::Reporter;

pub use self::app::app;
use self::app::{Order, Orphan};

/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of consecutive focus claims by which an app tries to lower its oom_score_adj further.
const CLAIMS: usize = 3;
/// Duration of the chain of processes that fork and exit, in milliseconds.
const CHAIN_MS: u64 = 2000;

/// Values of a thread. A process has the values of its main thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Values {
    score: i16,
    nice: i32,
    slice_ns: u64,
}

fn values(tid: i32) -> Result<Values> {
    let path = format!("/proc/{tid}/oom_score_adj");
    let score = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(Values {
        score: score.trim().parse()?,
        nice: sched::nice(tid)?,
        slice_ns: sched::Cpu::of(tid)?.slice_ns(),
    })
}

/// The app and its orphans, which are killed on drop.
struct App {
    talk: Conversation,
    orphans: Vec<i32>,
}

impl App {
    fn start() -> Result<App> {
        let start = Start {
            session: true,
            ..Start::PLAIN
        };
        Ok(App {
            talk: start.conversation("heirs-app", &())?,
            orphans: Vec::new(),
        })
    }

    fn pid(&self) -> i32 {
        self.talk.process.pid()
    }

    fn order(&mut self, order: Order) -> Result<i32> {
        self.talk.ask(&serde_json::to_string(&order)?)
    }

    fn orphan(&mut self, orphan: Orphan) -> Result<i32> {
        let pid = self.order(Order::Orphan(orphan))?;
        self.orphans.push(pid);
        Ok(pid)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        for pid in &self.orphans {
            // PID 1 reaps the orphan eventually; until then the PID is not reused.
            let _ = send(*pid, libc::SIGKILL);
        }
    }
}

/// A task of the app and its expected values.
struct Expected {
    what: &'static str,
    tid: i32,
    values: Values,
}

fn check_all(when: &str, all: &[Expected], reporter: &Reporter) -> Result<()> {
    for Expected {
        what,
        tid,
        values: wanted,
    } in all
    {
        let found = values(*tid)?;
        reporter.check(
            format!("{when}, {what} keeps no value from the foreground"),
            found == *wanted,
            format!("found {found:?}, expected {wanted:?}"),
        )?;
    }
    Ok(())
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    // The app stays without its own cgroup and thus without a weight: boost uses nice values.
    write_config("[protect]\nadopt = \"off\"\n")?;
    let mut app = App::start()?;
    let scope = Cgroup::create("app.slice/app-limelight-other-1.scope")?;
    let other = sleeper(Some(&scope), false)?;
    let elsewhere = Cgroup::create("app.slice/app-limelight-escaped-1.scope")?;
    let child = Cgroup::create("app.slice/app-limelight-child-1.scope")?;
    let before = values(app.pid())?;
    let daemon = Daemon::start(&[other.pid()])?;

    focus(app.pid())?;
    let front = values(app.pid())?;
    reporter.check(
        "the foreground app gets nice -20, oom_score_adj -500 and a slice of 300000 ns",
        front.nice == -20 && front.score == -500 && front.slice_ns == 300_000,
        format!("in the foreground {front:?}, before {before:?}"),
    )?;
    let all = everything(&mut app, before, &elsewhere)?;
    focus(other.pid())?;
    check_all("after the focus has left", &all, reporter)?;
    check_floors(&mut app, &all, reporter)?;
    check_claims(&mut app, other.pid(), before, reporter)?;
    check_escaped(&mut app, before, &child, reporter)?;
    check_chain(&mut app, other.pid(), before, reporter)?;

    focus(app.pid())?;
    let all = everything(&mut app, before, &elsewhere)?;
    let dead = daemon.kill()?;
    let (code, text) = run_program(LIMELIGHTD, &["--restore"])?;
    reporter.check(
        "limelightd --restore ends with exit code 0",
        code == 0,
        format!("exit code {code}: {text}"),
    )?;
    check_all("after kill -9 and limelightd --restore", &all, reporter)?;

    let daemon = Daemon::start_after(dead)?;
    focus(app.pid())?;
    let all = everything(&mut app, before, &elsewhere)?;
    daemon.stop(reporter)?;
    check_all("after SIGTERM", &all, reporter)?;
    drop(app);
    stage.reporter.finish()
}

/// Creates every kind of task by which an app might keep a value from the foreground. Returns each
/// task with the values that it must have when the app has left the foreground.
fn everything(app: &mut App, before: Values, elsewhere: &Cgroup) -> Result<Vec<Expected>> {
    let same = |what, tid| Expected {
        what,
        tid,
        values: before,
    };
    let mut all = vec![
        same("a thread", app.order(Order::Thread { idle: false })?),
        same("an orphan", app.orphan(Orphan::default())?),
    ];
    let idle = app.order(Order::Thread { idle: true })?;
    all.push(Expected {
        what: "a SCHED_IDLE thread",
        tid: idle,
        values: Values {
            slice_ns: 0,
            ..before
        },
    });
    let raised = Orphan {
        score: Some(-499),
        nice: Some(-19),
        ..Orphan::default()
    };
    all.push(same(
        "an orphan that raised its values a little",
        app.orphan(raised)?,
    ));
    let hidden = Orphan {
        hidden: true,
        ..raised
    };
    all.push(same("an orphan with hidden files", app.orphan(hidden)?));
    let moved = app.orphan(Orphan::default())?;
    elsewhere.set("cgroup.procs", &moved.to_string())?;
    all.push(same("an orphan in another cgroup", moved));
    let above = Orphan {
        score: Some(300),
        nice: Some(5),
        later: true,
        ..Orphan::default()
    };
    all.push(Expected {
        what: "an orphan that raised its values above the original ones",
        tid: app.orphan(above)?,
        values: Values {
            score: 300,
            nice: 5,
            ..before
        },
    });
    for order in [Order::Score(-499), Order::Nice(-19)] {
        let error = app.order(order)?;
        if error != 0 {
            bail!("the app cannot carry out {order:?}: error {error}");
        }
    }
    all.push(same("the app, which raised its values a little", app.pid()));
    Ok(all)
}

/// Checks that no process may lower its oom_score_adj again without privilege.
fn check_floors(app: &mut App, all: &[Expected], reporter: &Reporter) -> Result<()> {
    let error = app.order(Order::Score(-400))?;
    reporter.check(
        "the app may not lower its oom_score_adj again",
        error == libc::EACCES,
        format!("error {error}"),
    )?;
    let above = all.iter().find(|expected| expected.values.score == 300);
    let above = above.context("no orphan with oom_score_adj 300")?;
    send(above.tid, libc::SIGUSR1)?;
    // Long enough for a signal handler on a busy machine.
    sleep(Duration::from_millis(500));
    check_all(
        "after an attempt to lower its oom_score_adj again",
        std::slice::from_ref(above),
        reporter,
    )
}

/// Checks that each focus claim of an app starts from the same values as the previous claim.
fn check_claims(app: &mut App, other: i32, before: Values, reporter: &Reporter) -> Result<()> {
    let mut lowest = 0;
    for _ in 0..CLAIMS {
        focus(app.pid())?;
        lowest = lowest.min(values(app.pid())?.score);
        app.order(Order::Score(-499))?;
        focus(other)?;
    }
    let after = values(app.pid())?;
    reporter.check(
        "repeated focus claims do not lower an app's values further",
        lowest == -500 && after == before,
        format!("lowest oom_score_adj {lowest}; values at the end {after:?}"),
    )
}

/// Checks a child that leaves its app's cgroup while the app is in the foreground, and then comes
/// to the foreground itself. Its oom_score_adj must be lowered only once, and restored afterwards.
fn check_escaped(app: &mut App, before: Values, scope: &Cgroup, reporter: &Reporter) -> Result<()> {
    focus(app.pid())?;
    let child = app.orphan(Orphan {
        score: Some(-499),
        ..Orphan::default()
    })?;
    scope.set("cgroup.procs", &child.to_string())?;
    focus(child)?;
    let front = values(child)?;
    reporter.check(
        "the oom_score_adj of an escaped child in the foreground is not lowered twice",
        front.score == -500,
        format!("in the foreground {front:?}"),
    )?;
    limelight(&["focus", "--none"])?;
    let expected = Expected {
        what: "the escaped child",
        tid: child,
        values: before,
    };
    check_all("after the focus has left", &[expected], reporter)
}

/// Checks that processes that fork and exit faster than the daemon can scan have their original
/// values once they stop.
fn check_chain(app: &mut App, other: i32, before: Values, reporter: &Reporter) -> Result<()> {
    focus(app.pid())?;
    app.order(Order::Chain { ms: CHAIN_MS })?;
    sleep(Duration::from_millis(CHAIN_MS / 4));
    focus(other)?;
    let last = app.order(Order::Chained)?;
    app.orphans.push(last);
    let deadline = Instant::now() + PATIENCE;
    while values(last)? != before && Instant::now() < deadline {
        sleep(Duration::from_millis(100));
    }
    let expected = Expected {
        what: "the last process of a chain of forks",
        tid: last,
        values: before,
    };
    check_all("after the chain has ended", &[expected], reporter)
}
