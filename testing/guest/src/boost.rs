// SPDX-License-Identifier: GPL-2.0-or-later
//! The EIMOS paper's CPU experiments: an app runs beside ten loads or a build. Some variants
//! measure a helper process of the app, or the time of a focus change.

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::daemon::{self, focus, Daemon, Line, CONFIG};
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::memory::now_ns;
use crate::plan::Arm;
use crate::process::{Conversation, Process, Start};
use crate::record::Reporter;
use crate::response::{median, quantile};
use crate::scenario::{Boost, Helper, Place, Spin};
use crate::spin::{linpack_flops, Done, Spec};

/// Delay before each measurement: deferred work after boot takes up to a third of the CPU for the
/// first seconds and would distort the machine's first cell.
const BOOTED: Duration = Duration::from_secs(4);
/// Time for the loads to be balanced across CPUs, and for the daemon to scan the app.
const SETTLE: Duration = Duration::from_millis(600);
/// The cgroup of the app's helper.
const DISPLAY: &str = "session.slice/limelight-display.service";
/// Cgroup of the second app when focus changes are timed.
const OTHER: &str = "app.slice/app-limelight-other-1.scope";
/// Number of timed focus changes.
const SWITCHES: usize = 20;

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Boost) -> Result<()> {
    sleep(BOOTED);
    write_config(work)?;
    let own = work.place != Place::Root;
    let app_cgroup = own.then(|| Cgroup::create(APP)).transpose()?;
    let other_cgroup = match work.switches && own {
        true => Some(Cgroup::create(OTHER)?),
        false => None,
    };
    let display_cgroup = match work.helper.is_some() && own {
        true => Some(Cgroup::create(DISPLAY)?),
        false => None,
    };
    let loads = background(&stage, work)?;

    let mut app = start(
        work.app,
        None,
        app_cgroup.as_ref(),
        by_hand_nice(&stage, own),
    )?;
    let mut display = match work.helper {
        Some(_) => Some(start(
            Spin::Frames,
            Some("Xorg"),
            display_cgroup.as_ref(),
            0,
        )?),
        None => None,
    };
    let other = match work.switches {
        true => Some(start(work.app, None, other_cgroup.as_ref(), 0)?),
        false => None,
    };
    if let (Arm::BestStock, Some(cgroup)) = (stage.arm, &app_cgroup) {
        cgroup.set_chain("cpu.weight", "10000")?;
    }
    let pids: Vec<i32> = [Some(&app), display.as_ref(), other.as_ref()]
        .into_iter()
        .flatten()
        .map(|talk| talk.process.pid())
        .collect();
    let daemon = match stage.arm {
        Arm::LimelightOnDebian | Arm::Limelight => {
            let daemon = Daemon::start(&pids)?;
            focus(app.process.pid())?;
            Some(daemon)
        }
        _ => None,
    };
    let loads: Vec<Process> = loads
        .iter()
        .map(|load| load.start())
        .collect::<Result<_>>()?;
    sleep(SETTLE);

    let spent = daemon_ns(daemon.as_ref())?;
    let since = now_ns();
    if let Some(other) = &other {
        let pids = [app.process.pid(), other.process.pid()];
        if daemon.is_some() {
            time_switches(pids, &mut stage.reporter)?;
        }
    } else if let Some(display) = &mut display {
        // The app runs without a pause while the helper is measured.
        let busy = stage.arm != Arm::Idle;
        if busy {
            app.say(&format!("go {}", u32::MAX))?;
        }
        let done: Done = display.ask(&format!("go {}", work.runs))?;
        report(&done, Spin::Frames, &mut stage.reporter);
    } else {
        let done: Done = app.ask(&format!("go {}", work.runs))?;
        report(&done, work.app, &mut stage.reporter);
    }
    if daemon.is_some() {
        let spent = daemon_ns(daemon.as_ref())? - spent;
        let share = spent as f64 * 100.0 / (now_ns() - since) as f64;
        stage.reporter.value("daemon_percent", share);
    }
    drop(loads);
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    remove_config()?;
    stage.reporter.finish()
}

fn daemon_ns(daemon: Option<&Daemon>) -> Result<u64> {
    daemon.map_or(Ok(0), Daemon::cpu_ns)
}

fn start(
    spin: Spin,
    name: Option<&str>,
    cgroup: Option<&Cgroup>,
    nice: i32,
) -> Result<Conversation> {
    let spec = Spec {
        spin,
        name: name.map(str::to_owned),
    };
    Start {
        cgroup,
        nice,
        session: false,
    }
    .conversation("spinner", &spec)
}

/// Nice value of the app at its start. In the arm `BestStock`, it is -20 if the app has no cgroup
/// of its own: the best manual setting for such an app. Otherwise it is 0.
fn by_hand_nice(stage: &Stage, own: bool) -> i32 {
    match stage.arm {
        Arm::BestStock if !own => -20,
        _ => 0,
    }
}

/// A load with its cgroup, not started yet.
struct Prepared {
    spin: Spin,
    cgroup: Option<Cgroup>,
}

impl Prepared {
    fn start(&self) -> Result<Process> {
        Start::in_cgroup(self.cgroup.as_ref()).part("spin-load", &self.spin)
    }
}

/// Prepares the loads; the idle arm has none.
fn background(stage: &Stage, work: &Boost) -> Result<Vec<Prepared>> {
    let count = match stage.arm {
        Arm::Idle => 0,
        _ => work.loads,
    };
    (0..count)
        .map(|index| {
            let cgroup = match work.place {
                Place::Root => None,
                Place::Background => Some(Cgroup::background(&format!("load-{index}"))?),
                Place::Siblings => {
                    let path = format!("app.slice/app-limelight-load-{index}.scope");
                    Some(Cgroup::create(&path)?)
                }
            };
            Ok(Prepared {
                spin: work.load,
                cgroup,
            })
        })
        .collect()
}

/// Writes the daemon's configuration. In the root cgroup, the daemon must not move apps to their
/// own cgroups; for an unknown helper, the list of known helpers is empty.
fn write_config(work: &Boost) -> Result<()> {
    let mut text = String::new();
    if work.place == Place::Root {
        text.push_str("[protect]\nadopt = \"off\"\n");
    }
    if work.helper == Some(Helper::Unknown) {
        text.push_str("[boost]\nhelpers = []\n");
    }
    daemon::write_config(&text)
}

fn remove_config() -> Result<()> {
    fs::remove_file(CONFIG).with_context(|| format!("cannot remove {CONFIG}"))
}

/// Reports an app's measurements. For frames they are wake-up latency, frame time and missed
/// frames; for other work, run time and CPU share.
fn report(done: &Done, spin: Spin, reporter: &mut Reporter) {
    let us = |all: &[u64]| -> Vec<f64> { all.iter().map(|ns| *ns as f64 / 1000.0).collect() };
    if spin == Spin::Frames {
        for (name, all) in [("wake", us(&done.wake_ns)), ("frame", us(&done.frame_ns))] {
            for (label, part) in [("p50", 0.50), ("p99", 0.99)] {
                reporter.value(format!("{name}_{label}_us"), quantile(&all, part));
            }
        }
        let missed = done.missed as f64 * 100.0 / done.frame_ns.len().max(1) as f64;
        reporter.value("missed_frames_percent", missed);
        return;
    }
    let mut runs = us(&done.runs_ns);
    let mean = runs.iter().sum::<f64>() / runs.len().max(1) as f64;
    reporter.value("run_us", mean);
    let spent = done.runs_ns.iter().sum::<u64>().max(1) as f64;
    reporter.value("cpu_percent", done.cpu_ns as f64 * 100.0 / spent);
    reporter.value("run_median_us", median(&mut runs));
    if spin == Spin::Linpack {
        reporter.value("mflops", linpack_flops() / mean);
    }
}

/// Moves the focus back and forth. The daemon answers after it has set every value, so the time to
/// its answer is the time until the boost has moved.
fn time_switches(pids: [i32; 2], reporter: &mut Reporter) -> Result<()> {
    // The measuring process must not wait for a CPU.
    // SAFETY: no pointers are passed.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } != 0 {
        bail!("the runner cannot lower its nice value");
    }
    let mut line = Line::connect()?;
    let mut all = Vec::new();
    for turn in 0..SWITCHES {
        let pid = pids[(turn + 1) % 2];
        let request = format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"lab"}}"#);
        let start = now_ns();
        line.tell(&request)?;
        let us = (now_ns() - start) as f64 / 1000.0;
        reporter.sample("switch_us", us);
        all.push(us);
        sleep(Duration::from_millis(50));
    }
    reporter.value("switch_p50_us", quantile(&all, 0.50));
    reporter.value("switch_max_us", quantile(&all, 1.0));
    Ok(())
}

/// Values of a process that boost may change, as text: nice value, slice, weights and I/O priority.
/// If `cgroup` is given, some disk must use the BFQ scheduler.
pub fn standing(pid: i32, cgroup: Option<&Cgroup>) -> Result<String> {
    let cpu = limelight_sys::sched::Cpu::of(pid)?;
    let mut text = format!("nice {}, slice {} ns", cpu.nice(), cpu.slice_ns());
    let group = format!("/proc/{pid}/autogroup");
    let group = fs::read_to_string(&group).with_context(|| format!("cannot read {group}"))?;
    if let Some((_, nice)) = group.trim().split_once(' ') {
        text.push_str(&format!(", session {nice}"));
    }
    if let Some(cgroup) = cgroup {
        text.push_str(&format!(", cpu.weight {}", cgroup.number("cpu.weight")?));
        let path = cgroup.path().join("io.bfq.weight");
        let weight =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.push_str(&format!(", io.bfq.weight {}", weight.trim()));
    }
    let io = limelight_sys::sched::IoPriority::of(pid)?;
    text.push_str(&format!(", I/O {io}"));
    Ok(text)
}

/// Sets a process's nice value.
pub fn renice(pid: i32, nice: i32) -> Result<()> {
    // SAFETY: no pointers are passed.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as libc::id_t, nice) } != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot renice pid {pid}"));
    }
    Ok(())
}

/// Starts a process that sleeps, in its own session if `session` is set.
pub fn sleeper(cgroup: Option<&Cgroup>, session: bool) -> Result<Process> {
    let mut command = Command::new("/bin/busybox");
    command.args(["sleep", "1000"]);
    Start {
        cgroup,
        nice: 0,
        session,
    }
    .program(command, "sleep")
}
