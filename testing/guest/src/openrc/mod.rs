// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight on a Debian without systemd. OpenRC starts the daemon, the desktop's autostart starts
//! the agent, elogind opens the session, and the daemon creates the apps' cgroups.

mod guest;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::cgroup;
use crate::daemon::{Before, CONFIG, LIMELIGHT};
use crate::dispatch::Stage;
use crate::followed::{self, Moved};
use crate::guest_setup::wait;
use crate::package::APPS;
use crate::process::{named, run as run_program};
use crate::record::Reporter;
use crate::sway::{Sway, Window};

pub use guest::furnish;

const RC_SERVICE: &str = "/sbin/rc-service";
const RC_UPDATE: &str = "/sbin/rc-update";
const SERVICE: &str = "limelightd";
/// Link in the default runlevel that starts the service at boot.
pub const ENABLED: &str = "/etc/runlevels/default/limelightd";
/// The oom_score_adj that the service script sets.
const OOM_SCORE_ADJ: &str = "-900";

/// Runs the test.
pub fn run(mut stage: Stage) -> Result<()> {
    check_boot(&stage.reporter)?;
    stage.reporter.progress("logging in")?;
    let mut sway = Sway::start_by_su()?;
    let mut windows = Vec::new();
    for (name, command) in APPS {
        windows.push(sway.launch(name, command)?);
    }
    let agent = wait(|| Ok(named("limelight-agent")?.is_some()))?;
    stage.reporter.check(
        "the desktop's autostart starts the agent",
        agent,
        format!("limelight-agent runs: {agent}"),
    )?;
    let pids: Vec<i32> = windows.iter().map(|window| window.pid).collect();
    let before = Before::now(&pids)?;

    let first = start(&stage.reporter)?;
    let follow_in_turn = |window: &Window| follow(&mut sway, window);
    followed::check_round(
        &mut stage.reporter,
        LIMELIGHT,
        &windows,
        |window| &window.app,
        follow_in_turn,
    )?;
    check_reload(&stage.reporter, first)?;
    stage.reporter.progress("restarting")?;
    expect(&stage.reporter, "restart", true)?;
    let second = running(&stage.reporter, "restarted")?;
    stage.reporter.check(
        "a restart starts a new daemon process",
        second != first,
        format!("pid {first}, then {second}"),
    )?;
    check_one(&stage.reporter, &mut sway, &windows[0], "after a restart")?;
    // SAFETY: `second` is the PID of the running daemon.
    unsafe { libc::kill(second, libc::SIGKILL) };
    let third = wait(|| Ok(named(SERVICE)?.is_some_and(|pid| pid != second)))?;
    stage.reporter.check(
        "the supervisor restarts a killed daemon",
        third && running(&stage.reporter, "killed")? != second,
        format!("PID {second}, then {:?}", named(SERVICE)?),
    )?;
    check_one(&stage.reporter, &mut sway, &windows[1], "after a kill")?;

    stage.reporter.progress("stopping")?;
    check_stop(&stage.reporter)?;
    before.check_restored("after the service stopped", &stage.reporter)?;
    sway.stop()?;
    check_runlevel(&stage.reporter)?;
    stage.reporter.finish()
}

/// Checks that OpenRC has started the daemon at boot, and stops it.
fn check_boot(reporter: &Reporter) -> Result<()> {
    let (_, services) = run_program("/bin/rc-status", &["--all"])?;
    reporter.check(
        "OpenRC has started the daemon",
        run_program(RC_SERVICE, &[SERVICE, "status"])?.0 == 0,
        services,
    )?;
    running(reporter, "booted")?;
    check_stop(reporter)
}

/// Checks that the service can be removed from the runlevel and added again.
fn check_runlevel(reporter: &Reporter) -> Result<()> {
    let update = |command: &str| run_program(RC_UPDATE, &[command, SERVICE, "default"]);
    let (removed, mut text) = update("del")?;
    let without = !Path::new(ENABLED).exists();
    let (added, more) = update("add")?;
    text += &more;
    reporter.check(
        "rc-update removes the service from the runlevel and adds it again",
        removed == 0 && without && added == 0 && Path::new(ENABLED).exists(),
        text,
    )
}

/// Runs a command of the service script; checks that it succeeds or, if `!success`, is refused.
fn expect(reporter: &Reporter, command: &str, success: bool) -> Result<()> {
    let (code, text) = run_program(RC_SERVICE, &[SERVICE, command])?;
    reporter.check(
        format!(
            "rc-service {SERVICE} {command} {}",
            if success { "succeeds" } else { "is refused" }
        ),
        (code == 0) == success,
        format!("exit code {code}: {text}"),
    )
}

fn start(reporter: &Reporter) -> Result<i32> {
    expect(reporter, "start", true)?;
    let pid = running(reporter, "started")?;
    let adjusted = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?;
    reporter.check(
        "the daemon has the oom_score_adj that the service script sets",
        adjusted.trim() == OOM_SCORE_ADJ,
        format!("oom_score_adj {}", adjusted.trim()),
    )?;
    Ok(pid)
}

/// Checks that the daemon answers; returns its PID.
fn running(reporter: &Reporter, when: &str) -> Result<i32> {
    let answers = wait(|| Ok(run_program(LIMELIGHT, &["status"])?.0 == 0))?;
    let log = fs::read_to_string("/var/log/limelightd.log").unwrap_or_default();
    reporter.check(format!("{when}, the daemon answers"), answers, log)?;
    named(SERVICE)?.context("the daemon is not running")
}

fn check_stop(reporter: &Reporter) -> Result<()> {
    expect(reporter, "stop", true)?;
    let gone = wait(|| Ok(named(SERVICE)?.is_none()))?;
    reporter.check(
        "no daemon runs after the service has stopped",
        gone,
        format!("PID of the daemon: {:?}", named(SERVICE)?),
    )
}

/// Checks that the service reloads a valid configuration and refuses an invalid one.
fn check_reload(reporter: &Reporter, pid: i32) -> Result<()> {
    let kept = fs::read_to_string(CONFIG).with_context(|| format!("cannot read {CONFIG}"))?;
    fs::write(CONFIG, "[foreground]\ngap_ms = 1500\n")?;
    expect(reporter, "reload", true)?;
    fs::write(CONFIG, "[foreground]\ngap_ms = \"soon\"\n")?;
    expect(reporter, "reload", false)?;
    fs::write(CONFIG, kept)?;
    reporter.check(
        "a reload does not restart the daemon",
        named(SERVICE)? == Some(pid),
        format!("PID {pid}, then {:?}", named(SERVICE)?),
    )
}

fn check_one(reporter: &Reporter, sway: &mut Sway, window: &Window, when: &str) -> Result<()> {
    let moved = follow(sway, window)?;
    reporter.check(
        format!("{when}, the app that gets the focus is protected and boosted"),
        moved.is_some(),
        format!("{moved:?} in {}", cgroup::of(window.pid)?.display()),
    )
}

fn follow(sway: &mut Sway, window: &Window) -> Result<Option<Moved>> {
    followed::follow(window.pid, || sway.focus(window))
}
