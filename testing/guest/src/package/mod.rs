// SPDX-License-Identifier: GPL-2.0-or-later
//! The Debian package, installed with `apt install`, with or without a user who is logged in under
//! sway or GNOME. It must work without configuration, survive an upgrade, and leave nothing behind.

mod before;
pub mod kernel;
mod person;
mod stranger;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde_json::Value;

use crate::daemon::wakeups;
use crate::dispatch::Stage;
use crate::followed::{self, Moved};
use crate::guest_setup;
use crate::memory::cpu_ns;
use crate::plan::PACKAGES;
use crate::pool::Windows;
use crate::process::run as run_program;
use crate::record::Reporter;
use crate::scenario::{Desktop, Package};
use crate::systemd::systemctl;

use before::Before;
pub use person::APPS;
use person::{agent, App, Person};

/// Names of the package, its units, its configuration and its command line program.
const PACKAGE: &str = "limelight";
const SERVICE: &str = "limelightd.service";
const AGENT: &str = "limelight-agent.service";
const CONFIG: &str = "/etc/limelight/limelight.toml";
const PROGRAM: &str = "/usr/bin/limelight";
/// Mechanisms that cannot act on a machine without a display and an input device.
const NO_DEVICE: [&str; 1] = ["windows"];
/// The agent's unit file, as installed.
const AGENT_UNIT: &str = "/usr/lib/systemd/user/limelight-agent.service";
/// Highest allowed exposure of a unit in `systemd-analyze security`, in tenths, as documented in
/// docs/integrator/packaging.md.
const DAEMON_EXPOSURE: u32 = 30;
const AGENT_EXPOSURE: u32 = 61;
/// Maximum resident memory of the daemon, and of the agent, in KiB as measured by [`own_kib`].
const DAEMON_KIB: u64 = 10 << 10;
const AGENT_KIB: u64 = 15 << 10;
/// Idle time after which the daemon samples the foreground app at its lowest rate. Before that, the
/// daemon samples at four intervals each of 0.5 s, 2 s and 16 s; the rest is a margin.
const SETTLED: Duration = Duration::from_secs(80);
/// Duration of the idle period in which wakeups are counted.
const QUIET: Duration = Duration::from_secs(120);
/// Maximum number of idle periods.
const RESTS: usize = 3;
/// Maximum number of wakeups in [`QUIET`], over all threads of a process: below 0.1 a second. The
/// daemon's timers cause 6: four for the guard and the watchdog's keep-alive (one a minute each),
/// one to sample the foreground app, and one to sample the pages that it shares. The guard's other
/// wakeups are caused by work of other programs.
const WAKEUPS: u64 = 11;
/// The limit beside GNOME Shell, whose own work wakes the daemon's guard in an idle session.
const WAKEUPS_GNOME: u64 = 60;

/// Runs the test.
pub fn run(mut stage: Stage, work: &Package) -> Result<()> {
    let [first, next] = stage.machine.packages.as_slice() else {
        bail!("the package's test needs two packages");
    };
    let (first, next) = (format!("{PACKAGES}/{first}"), format!("{PACKAGES}/{next}"));
    stage.reporter.progress("logging in")?;
    let (mut person, apps) = Person::start(work.desktop)?;
    run_weighted_service()?;
    let before = Before::now(apps.iter().map(|app| app.pid).collect())?;

    stage.reporter.progress("installing")?;
    apt(&["install", &first])?;
    let daemon = check_daemon(&stage.reporter, "installed")?;
    check_exposure(&stage.reporter)?;
    person.check_agent(&stage.reporter, "installed")?;
    let follow_in_turn = |app: &App| follow(&mut person, app);
    followed::check_round(
        &mut stage.reporter,
        PROGRAM,
        &apps,
        |app| &app.name,
        follow_in_turn,
    )?;
    check_doctor(&stage.reporter)?;
    if let (true, Some(app)) = (work.desktop.is_some(), apps.first()) {
        stage.reporter.progress("a user without a seat")?;
        follow(&mut person, app)?;
        stranger::check(&stage.reporter, app)?;
    }
    // With a desktop, a terminal rests in the foreground, after the user has used it.
    let mut window = Windows::connect()?;
    window.open()?;
    window.close()?;
    drop(window);
    person.rest()?;
    let wakeups_most = match work.desktop {
        Some(Desktop::Gnome) => WAKEUPS_GNOME,
        Some(Desktop::Sway) | None => WAKEUPS,
    };
    check_size(&mut stage.reporter, daemon, wakeups_most)?;

    stage.reporter.progress("upgrading")?;
    let configured = "[foreground]\ngap_ms = 1500\n";
    fs::write(CONFIG, configured).with_context(|| format!("cannot write {CONFIG}"))?;
    apt(&["install", &next])?;
    let upgraded = check_daemon(&stage.reporter, "upgraded")?;
    stage.reporter.check(
        "an upgrade starts the new daemon",
        upgraded != daemon,
        format!("pid {daemon}, then {upgraded}"),
    )?;
    let kept = fs::read_to_string(CONFIG)?;
    stage.reporter.check(
        "an upgrade keeps the configuration",
        kept == configured,
        kept,
    )?;
    person.check_agent(&stage.reporter, "upgraded")?;
    let moved = follow(&mut person, &apps[0])?;
    stage.reporter.check(
        "after an upgrade, the app that gets the focus is protected and boosted",
        moved.is_some(),
        format!("times until the app was protected and boosted: {moved:?}"),
    )?;

    stage.reporter.progress("removing")?;
    apt(&["remove", PACKAGE])?;
    check_gone(&stage.reporter, &before)?;
    let kept = Path::new(CONFIG).exists();
    stage.reporter.check(
        "removal keeps the configuration",
        kept,
        format!("{CONFIG} exists: {kept}"),
    )?;
    apt(&["purge", PACKAGE])?;
    before.check_files(&stage.reporter)?;
    check_units(&stage.reporter)?;
    person.stop()?;
    stage.reporter.finish()
}

/// Enables, starts, stops and removes a service with limelightd's weight and slice. systemd enables
/// the CPU controller in the root cgroup for such a service, and systemd 257 leaves it enabled: a
/// stopped unit that is enabled stays loaded until a reload drops it, and a reload updates no
/// controllers. Called before the values for the comparison are recorded, so that the controller
/// does not count as limelightd's change.
fn run_weighted_service() -> Result<()> {
    let unit = "weighted.service";
    let path = Path::new("/run/systemd/system").join(unit);
    let text = "[Service]\nExecStart=/bin/sleep infinity\nSlice=-.slice\nCPUWeight=10000\n\
                [Install]\nWantedBy=multi-user.target\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "--runtime", "--now", unit])?;
    systemctl(&["stop", unit])?;
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    systemctl(&["daemon-reload"])?;
    // The unit file is gone, so `systemctl disable` would refuse the unit.
    let link = path.with_file_name("multi-user.target.wants").join(unit);
    fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
    systemctl(&["daemon-reload"])
}

fn apt(arguments: &[&str]) -> Result<()> {
    std::env::set_var("DEBIAN_FRONTEND", "noninteractive");
    let mut all = vec!["--quiet", "--yes"];
    all.extend(arguments);
    let (code, text) = run_program("/usr/bin/apt-get", &all)?;
    if code != 0 {
        bail!(
            "apt-get {} exited with {code}:\n{text}",
            arguments.join(" ")
        );
    }
    Ok(())
}

/// A property of a unit of the system manager.
fn property(unit: &str, name: &str) -> Result<String> {
    let (_, text) = run_program("/bin/systemctl", &["show", "--value", "-p", name, unit])?;
    Ok(text.trim().to_owned())
}

/// Checks that the daemon runs, answers, and starts at boot. Returns its PID.
fn check_daemon(reporter: &Reporter, when: &str) -> Result<i32> {
    let running = guest_setup::wait(|| Ok(run_program(PROGRAM, &["status"])?.0 == 0))?;
    let state = property(SERVICE, "ActiveState")?;
    let (_, log) = run_program(
        "/bin/journalctl",
        &["--no-pager", "--lines=30", "--output=cat", "-u", SERVICE],
    )?;
    reporter.check(
        format!("{when}, the daemon runs and answers"),
        running && state == "active",
        format!("{state}\n{log}"),
    )?;
    let (_, enabled) = run_program("/bin/systemctl", &["is-enabled", SERVICE])?;
    reporter.check(
        format!("{when}, the daemon is enabled at boot"),
        enabled.trim() == "enabled",
        enabled.trim(),
    )?;
    // A refused operation means that the daemon's unit is too strict.
    let refused: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("not permitted") || line.contains("denied"))
        .collect();
    reporter.check(
        format!("{when}, the daemon's unit denies no operation that the daemon attempts"),
        refused.is_empty(),
        refused.join("\n"),
    )?;
    property(SERVICE, "MainPID")?
        .parse()
        .context("the daemon has no pid")
}

/// Checks the exposure of the daemon's unit, and of the agent's. The agent's unit is read from its
/// file, because a machine without a desktop has no user's manager.
fn check_exposure(reporter: &Reporter) -> Result<()> {
    let units: [(&str, u32, &[&str]); 2] = [
        ("daemon", DAEMON_EXPOSURE, &[SERVICE]),
        (
            "agent",
            AGENT_EXPOSURE,
            &["--offline=yes", "--user", AGENT_UNIT],
        ),
    ];
    for (who, most, unit) in units {
        let threshold = format!("--threshold={most}");
        // systemd-analyze --user needs a runtime directory, whose contents do not matter here.
        let mut arguments = vec!["XDG_RUNTIME_DIR=/run", "/usr/bin/systemd-analyze"];
        arguments.extend(["security", "--no-pager", &threshold]);
        arguments.extend(unit);
        let (code, text) = run_program("/usr/bin/env", &arguments)?;
        reporter.check(
            format!("the exposure of the {who}'s unit is within the documented limit"),
            code == 0,
            text.lines().last().unwrap_or_default(),
        )?;
    }
    Ok(())
}

/// Focuses an app, and waits until the app is protected and boosted; `None` on timeout.
fn follow(person: &mut Person, app: &App) -> Result<Option<Moved>> {
    followed::follow(app.pid, || person.focus(app))
}

/// Checks that every mechanism is active, except those in [`NO_DEVICE`], for which the machine has
/// no device.
fn check_doctor(reporter: &Reporter) -> Result<()> {
    let findings = doctor()?;
    let mechanisms: Vec<(&str, &str)> = findings
        .iter()
        .filter_map(|finding| {
            let name = finding["check"].as_str()?.strip_prefix("mechanism ")?;
            Some((name, finding["state"].as_str()?))
        })
        .collect();
    let idle: Vec<&str> = mechanisms
        .iter()
        .filter(|(name, state)| ["inert", "missing"].contains(state) && !NO_DEVICE.contains(name))
        .map(|(name, _)| *name)
        .collect();
    reporter.check(
        "limelight doctor finds no inert or missing mechanism, except without a device",
        !mechanisms.is_empty() && idle.is_empty(),
        format!("state of each mechanism: {mechanisms:?}"),
    )
}

/// Findings of `limelight doctor`.
fn doctor() -> Result<Vec<Value>> {
    let (code, text) = run_program(PROGRAM, &["doctor", "--json"])?;
    serde_json::from_str(&text)
        .with_context(|| format!("limelight doctor --json exited with {code} and printed {text}"))
}

/// Checks the memory of daemon and agent, and their wakeups in the quietest of up to [`RESTS`] times
/// of rest.
fn check_size(reporter: &mut Reporter, daemon: i32, wakeups_most: u64) -> Result<()> {
    let agent = agent()?.map(|pid| ("agent", pid, AGENT_KIB));
    for (who, pid, most) in [("daemon", daemon, DAEMON_KIB)].into_iter().chain(agent) {
        let kib = own_kib(pid)?;
        reporter.value(format!("{who}_own_kib"), kib);
        reporter.check(
            format!("the {who} uses less than {} MiB of memory", most >> 10),
            kib < most,
            format!("{kib} KiB resident"),
        )?;
    }
    let all = [
        ("daemon", Some(daemon)),
        ("agent", agent.map(|(_, pid, _)| pid)),
    ];
    sleep(SETTLED);
    // The guard wakes after a certain running time of all tasks, so its wakeups count only while the
    // machine rests. Something else may work during one time of rest, such as compaction.
    let mut rests = Vec::new();
    for _ in 0..RESTS {
        let rest = rest(&all)?;
        let rested = rest.iter().all(|(_, woken, _)| *woken <= wakeups_most);
        rests.push(rest);
        if rested {
            break;
        }
    }
    let most = |rest: &Vec<(&str, u64, String)>| rest.iter().map(|(_, woken, _)| *woken).max();
    let quietest = rests.into_iter().min_by_key(most).unwrap_or_default();
    for (who, woken, seen) in quietest {
        reporter.value(
            format!("{who}_switches_per_s"),
            woken as f64 / QUIET.as_secs_f64(),
        );
        reporter.check(
            format!("the {who} wakes up at most {wakeups_most} times in {QUIET:?} of idle time"),
            woken <= wakeups_most,
            seen,
        )?;
    }
    Ok(())
}

/// How often each program woke during [`QUIET`], with details for the report.
fn rest<'a>(all: &[(&'a str, Option<i32>)]) -> Result<Vec<(&'a str, u64, String)>> {
    let running = all.iter().filter_map(|(who, pid)| Some((*who, (*pid)?)));
    let before: Vec<_> = running
        .map(|(who, pid)| Ok((who, pid, wakeups(pid)?)))
        .collect::<Result<_>>()?;
    let cpu_before = cpu_times()?;
    sleep(QUIET);
    let busy = busiest(&cpu_before, &cpu_times()?);
    let woken = before.into_iter().map(|(who, pid, before)| {
        let after = wakeups(pid)?;
        let threads: Vec<(&str, u64)> = after
            .iter()
            .map(|(thread, (name, count))| {
                let before = before.get(thread).map_or(0, |(_, count)| *count);
                (name.as_str(), count - before)
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        let sum = threads.iter().map(|(_, count)| count).sum();
        let seconds = QUIET.as_secs();
        let seen = format!(
            "woken {sum} times in {seconds} s: {threads:?}; busiest processes, in ms: {busy:?}"
        );
        Ok((who, sum, seen))
    });
    woken.collect()
}

/// CPU time of each process, in nanoseconds, by PID.
fn cpu_times() -> Result<BTreeMap<i32, u64>> {
    let mut times = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        if let Ok(pid) = entry?.file_name().to_string_lossy().parse() {
            times.insert(pid, cpu_ns(pid));
        }
    }
    Ok(times)
}

/// The processes that ran longest between two calls of [`cpu_times`]: name and milliseconds. They
/// tell who woke the daemon.
fn busiest(before: &BTreeMap<i32, u64>, after: &BTreeMap<i32, u64>) -> Vec<(String, u64)> {
    let mut ran: Vec<(i32, u64)> = after
        .iter()
        .map(|(pid, time)| {
            (
                *pid,
                time - before.get(pid).copied().unwrap_or(0).min(*time),
            )
        })
        .filter(|(_, ran)| *ran > 0)
        .collect();
    ran.sort_by_key(|(_, ran)| std::cmp::Reverse(*ran));
    ran.truncate(8);
    let named = ran.into_iter().map(|(pid, ran)| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (name.trim().to_owned(), ran / 1_000_000)
    });
    named.collect()
}

/// A process's resident memory in KiB, without shared mappings. The daemon's shared mappings are
/// files of the foreground app, which it keeps in memory.
fn own_kib(pid: i32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let (mut sum, mut shared) = (0, false);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Rss:"), Some(kib)) if !shared => {
                sum += kib
                    .parse::<u64>()
                    .with_context(|| format!("{path} has no number in the line {line:?}"))?;
            }
            (Some(range), Some(permissions)) if range.contains('-') => {
                shared = permissions.ends_with('s');
            }
            _ => {}
        }
    }
    Ok(sum)
}

/// Checks that neither daemon nor agent runs, and that every value is restored.
fn check_gone(reporter: &Reporter, before: &Before) -> Result<()> {
    let gone = guest_setup::wait(|| {
        Ok(agent()?.is_none()
            && property(SERVICE, "MainPID")? == "0"
            && before.changes()?.is_empty())
    })?;
    reporter.check(
        "after removal, neither daemon nor agent runs, and every value is restored",
        gone,
        format!(
            "agent {:?}, daemon {}, {} values, changed: {}",
            agent()?,
            property(SERVICE, "MainPID")?,
            before.values.len(),
            before.changes()?.join("; "),
        ),
    )
}

/// Checks that systemd has no unit of the daemon any more.
fn check_units(reporter: &Reporter) -> Result<()> {
    systemctl(&["daemon-reload"])?;
    let list = [
        "list-units",
        "--all",
        "--plain",
        "--no-legend",
        "limelightd*",
    ];
    let (_, units) = run_program("/bin/systemctl", &list)?;
    reporter.check(
        "after a purge, systemd lists no unit of the daemon",
        units.trim().is_empty(),
        units.trim(),
    )
}
