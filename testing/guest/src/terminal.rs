// SPDX-License-Identifier: GPL-2.0-or-later
//! A terminal with a build in it. A compositor sends keys to a terminal emulator; the shell, a
//! command or the kernel echoes them; the emulator draws a frame, and the compositor shows it.

pub mod parts;

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;

use crate::cgroup::Cgroup;
use crate::daemon::{self, focus, Daemon, CONFIG};
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::guest_setup::mount;
use crate::memory::now_ns;
use crate::plan::Arm;
use crate::process::{Conversation, Start};
use crate::record::Reporter;
use crate::response::quantile;
use crate::scenario::{Place, Session, Typing};

use parts::{built, Part, Program, Tab, FRAME_NS};

/// Delay before the measurement: deferred work after boot takes CPU time.
const BOOTED: Duration = Duration::from_secs(3);
/// Time for the daemon to find the tabs and their commands.
const SETTLE: Duration = Duration::from_secs(3);
/// The compositor's cgroup, and the cgroup of a background terminal.
const DISPLAY: &str = "session.slice/limelight-display.service";
const OTHER: &str = "app.slice/app-limelight-other-1.scope";
/// Nice value of builds in the arm `BestStock`, as a user would set it.
const BY_HAND: i32 = 10;

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Typing) -> Result<()> {
    sleep(BOOTED);
    fs::create_dir_all("/dev/pts")?;
    mount(
        "devpts",
        "/dev/pts",
        "devpts",
        "gid=5,mode=620,ptmxmode=666",
    )?;
    let own = work.place != Place::Root;
    daemon::write_config(if own {
        ""
    } else {
        "[protect]\nadopt = \"off\"\n"
    })?;
    let cgroup = |path| own.then(|| Cgroup::create(path)).transpose();
    let (app, display, other) = (cgroup(APP)?, cgroup(DISPLAY)?, cgroup(OTHER)?);

    let mut compositor = part(&Part::Compositor, display.as_ref())?;
    // The compositor answers once terminals can connect.
    compositor.ask::<bool>("listen")?;
    let front = Part::Emulator {
        tabs: tabs(&stage, work),
        front: true,
    };
    let terminal = part(&front, app.as_ref())?;
    let background = match work.session {
        Session::OtherWindow => {
            let behind = Part::Emulator {
                tabs: vec![tab(&stage, Program::Build)],
                front: false,
            };
            Some(part(&behind, other.as_ref())?)
        }
        _ => None,
    };
    let mut pids = vec![compositor.process.pid(), terminal.process.pid()];
    pids.extend(background.iter().map(|one| one.process.pid()));
    let daemon = match stage.arm {
        Arm::LimelightOnDebian | Arm::Limelight => {
            let daemon = Daemon::start(&pids)?;
            focus(terminal.process.pid())?;
            Some(daemon)
        }
        _ => None,
    };
    sleep(SETTLE);
    let spent = daemon.as_ref().map_or(Ok(0), Daemon::cpu_ns)?;
    let (since, units) = (now_ns(), built()?);
    let times: Vec<u64> = compositor.ask(&format!("type {}", work.keys))?;
    let (elapsed, units) = (now_ns() - since, built()? - units);
    report(&times, &mut stage.reporter);
    let seconds = elapsed as f64 / 1e9;
    stage
        .reporter
        .value("compiled_per_s", units as f64 / seconds);
    if let Some(daemon) = &daemon {
        let share = (daemon.cpu_ns()? - spent) as f64 * 100.0 / elapsed as f64;
        stage.reporter.value("daemon_percent", share);
    }
    drop((terminal, background, compositor));
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    fs::remove_file(CONFIG)?;
    stage.reporter.finish()
}

fn part(part: &Part, cgroup: Option<&Cgroup>) -> Result<Conversation> {
    let start = Start {
        session: true,
        ..Start::in_cgroup(cgroup)
    };
    start.conversation("terminal-part", part)
}

/// A tab with this program. The idle arm builds nothing.
fn tab(stage: &Stage, program: Program) -> Tab {
    let nice = match stage.arm {
        Arm::BestStock => BY_HAND,
        _ => 0,
    };
    let idle = stage.arm == Arm::Idle;
    Tab {
        program,
        nice,
        builds: !idle,
    }
}

/// The tabs of the foreground terminal; the user types into the first tab.
fn tabs(stage: &Stage, work: &Typing) -> Vec<Tab> {
    let programs: &[Program] = match work.session {
        Session::Build => &[Program::Build],
        Session::Editor => &[Program::Editor, Program::Build],
        Session::Agent => &[Program::Agent],
        Session::OtherWindow => &[Program::Editor],
    };
    programs
        .iter()
        .map(|program| tab(stage, *program))
        .collect()
}

fn report(times_ns: &[u64], reporter: &mut Reporter) {
    let us: Vec<f64> = times_ns.iter().map(|ns| *ns as f64 / 1000.0).collect();
    for (label, part) in [("p50", 0.50), ("p95", 0.95), ("p99", 0.99)] {
        reporter.value(format!("key_{label}_us"), quantile(&us, part));
    }
    let missed = times_ns.iter().filter(|ns| **ns > FRAME_NS).count();
    let percent = missed as f64 * 100.0 / times_ns.len().max(1) as f64;
    reporter.value("missed_frames_percent", percent);
}
