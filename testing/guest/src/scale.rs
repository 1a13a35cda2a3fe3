// SPDX-License-Identifier: GPL-2.0-or-later
//! The daemon's cost beside many apps and many other cgroups. Two apps take turns in the
//! foreground while all others rest, and then nothing happens for some minutes.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_proto::Response;
use limelight_sys::inotify::Inotify;
use rustix::fs::inotify::WatchFlags;

use crate::cgroup::Cgroup;
use crate::daemon::{self, wakeups, Daemon, Line};
use crate::dispatch::Stage;
use crate::guest_setup::memory_kib;
use crate::memory::now_ns;
use crate::process::{set_policy, Process, Start};
use crate::response::median;
use crate::scenario::Scale;

/// Focus changes that are measured, and those before them, in which the daemon gets to know the
/// two apps.
const CHANGES: usize = 10;
const WARM_UP: usize = 4;
/// Time from one focus change to the next. It covers the work that the daemon postpones until the
/// user no longer waits: a scan of all apps, and the ticks before the daemon backs off.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after the last focus change until the daemon is at rest, and the measured time at rest.
const SETTLE: Duration = Duration::from_secs(120);
const REST_MINUTES: u32 = 2;
/// Longest wait for the reservation of an app that comes to the foreground.
const PROTECTED_WITHIN_MS: i32 = 30_000;
/// Knobs that hold an app's reservation: the first one under MGLRU, else the second one.
const RESERVATIONS: [&str; 2] = ["memory.min", "memory.low"];

/// A cgroup, and the idle process in it.
struct Resting {
    cgroup: Cgroup,
    process: Process,
}

impl Resting {
    fn start(path: &str) -> Result<Resting> {
        let cgroup = Cgroup::create(path)?;
        let mut command = Command::new("/bin/busybox");
        command.args(["sleep", "1000000"]);
        let process = Start::in_cgroup(&cgroup).program(command, "sleep")?;
        Ok(Resting { cgroup, process })
    }

    fn app(name: &str) -> Result<Resting> {
        Resting::start(&format!("app.slice/app-limelight-{name}-1.scope"))
    }

    /// The app's reservation, in bytes.
    fn reserved(&self) -> Result<u64> {
        let values = RESERVATIONS.map(|knob| self.cgroup.number(knob));
        values.into_iter().sum()
    }
}

/// Resources that the daemon has used so far.
struct Used {
    cpu_ns: u64,
    /// `read()` calls.
    reads: u64,
    /// Voluntary context switches of all threads.
    wakeups: u64,
}

impl Used {
    fn now(daemon: &Daemon) -> Result<Used> {
        let wakeups = wakeups(daemon.pid())?;
        Ok(Used {
            cpu_ns: daemon.cpu_ns()?,
            reads: reads(daemon.pid())?,
            wakeups: wakeups.values().map(|(_, count)| count).sum(),
        })
    }
}

fn reads(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/io");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let reads = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    let reads = reads.and_then(|count| count.parse().ok());
    reads.with_context(|| format!("{path} has no syscr"))
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Scale) -> Result<()> {
    stage.need_daemon("scale")?;
    let apps = ["first", "second"].map(Resting::app);
    let [first, second] = apps;
    let apps = [first?, second?];
    let others = (0..work.apps).map(|number| Resting::app(&format!("other{number}")));
    let others: Vec<Resting> = others.collect::<Result<_>>()?;
    let services =
        (0..work.cgroups).map(|number| Resting::start(&format!("system.slice/n{number}.service")));
    let services: Vec<Resting> = services.collect::<Result<_>>()?;
    stage.reporter.progress("all processes run")?;
    let pids = [&apps[0], &apps[1]].map(|app| app.process.pid());
    let daemon = Daemon::start(&pids)?;
    // The runner measures times, so it runs before the daemon as soon as it is woken.
    set_policy(0, libc::SCHED_FIFO, 1)?;
    let mut line = Line::connect()?;
    for change in 0..WARM_UP {
        to_front(&apps[change % 2], &mut line)?;
        sleep(PAUSE);
    }
    let before = Used::now(&daemon)?;
    let (mut protected, mut answered) = (Vec::new(), Vec::new());
    for change in 0..CHANGES {
        let times = to_front(&apps[change % 2], &mut line)?;
        protected.push(times.protected_us);
        answered.push(times.answered_us);
        sleep(PAUSE);
    }
    let after = Used::now(&daemon)?;
    let found = listed(&mut line)?;
    sleep(SETTLE);
    let rest = Used::now(&daemon)?;
    sleep(Duration::from_secs(60) * REST_MINUTES);
    let rested = Used::now(&daemon)?;
    let available = memory_kib("MemAvailable")?;
    let rss = daemon.footprint()?.rss_kib;
    set_policy(0, libc::SCHED_OTHER, 0)?;

    let reporter = &mut stage.reporter;
    let expected = apps.len() + others.len();
    reporter.check(
        "limelightd finds every app, and takes no service for an app",
        found == expected,
        format!("{found} apps found, {expected} running"),
    )?;
    let each = |before: u64, after: u64, of: u32| (after - before) as f64 / f64::from(of);
    let changes = CHANGES as u32;
    for (name, value) in [
        ("daemon_rss_kib", rss as f64),
        ("available_kib", available as f64),
        ("protected_us", median(&mut protected)),
        ("answered_us", median(&mut answered)),
        (
            "daemon_us_per_change",
            each(before.cpu_ns, after.cpu_ns, changes) / 1e3,
        ),
        (
            "daemon_reads_per_change",
            each(before.reads, after.reads, changes),
        ),
        (
            "rest_us_per_minute",
            each(rest.cpu_ns, rested.cpu_ns, REST_MINUTES) / 1e3,
        ),
        (
            "rest_reads_per_minute",
            each(rest.reads, rested.reads, REST_MINUTES),
        ),
        (
            "rest_wakeups_per_minute",
            each(rest.wakeups, rested.wakeups, REST_MINUTES),
        ),
    ] {
        reporter.value(name, value);
    }
    daemon.stop(&stage.reporter)?;
    drop(services);
    stage.reporter.finish()
}

/// Number of apps that the daemon lists.
fn listed(line: &mut Line) -> Result<usize> {
    line.send(r#"{"op":"apps"}"#)?;
    let answer = line.answer()?;
    match serde_json::from_str(&answer) {
        Ok(Response::Apps { apps, .. }) => Ok(apps.len()),
        _ => bail!("limelightd answered {answer:?} to a request for its apps"),
    }
}

/// Times after a focus request.
struct Times {
    /// Until the app has its reservation.
    protected_us: f64,
    /// Until the app has its reservation and the daemon has answered.
    answered_us: f64,
}

/// Brings an app to the foreground, and waits until it has its reservation.
fn to_front(app: &Resting, line: &mut Line) -> Result<Times> {
    let before = app.reserved()?;
    if before > 0 {
        bail!("an app in the background has a reservation of {before} bytes");
    }
    let written = Inotify::new()?;
    for knob in RESERVATIONS {
        written.watch(&app.cgroup.path().join(knob), WatchFlags::MODIFY)?;
    }
    let pid = app.process.pid();
    let request = format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"lab"}}"#);
    let asked = now_ns();
    line.send(&request)?;
    let protected = loop {
        await_readable(&written)?;
        let now = now_ns();
        written.events()?;
        if app.reserved()? > 0 {
            break now;
        }
    };
    line.hear(&request)?;
    let since = |at: u64| (at - asked) as f64 / 1e3;
    Ok(Times {
        protected_us: since(protected),
        answered_us: since(now_ns()),
    })
}

fn await_readable(queue: &Inotify) -> Result<()> {
    let mut poll = libc::pollfd {
        fd: queue.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid entry.
    match unsafe { libc::poll(&mut poll, 1, PROTECTED_WITHIN_MS) } {
        1 => Ok(()),
        0 => bail!(
            "the app has no reservation after {PROTECTED_WITHIN_MS} ms; limelightd wrote:\n{}",
            daemon::log_tail()
        ),
        _ => Err(std::io::Error::last_os_error()).context("poll failed"),
    }
}
