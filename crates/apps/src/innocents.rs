// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that did nothing wrong while memory runs short, on stock Linux and beside the daemon: what
//! becomes of them must be no worse.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use crate::cell::Stage;
use crate::cgroup::Cgroup;
use crate::counters::Counters as Kernel;
use crate::daemon::{self, focus, history, Daemon};
use crate::gate::{start_load, Counters, Seen, Started, LOAD, LOAD_MIB};
use crate::plan::Arm;
use crate::process::{Conversation, Process, Start};
use crate::scenario::{Innocents, Plight};
use crate::swap_app::{App, Spec, Touched, CLASSES, NORMAL};

/// The greedy app's memory at first, in MiB, and how fast it grows.
const GREEDY_MIB: u32 = 16;
const GREEDY_MIB_PER_S: u32 = 8;
/// Idle apps beside it, and the memory of each, in MiB.
const IDLE: usize = 8;
const IDLE_MIB: u32 = 6;
/// Only a hang takes this long.
const END: Duration = Duration::from_secs(90);
/// What dies of the shortage has died by then.
const AFTERMATH: Duration = Duration::from_secs(3);

/// A build takes so much in all, in MiB, as fast as the greedy app.
const BUILD_MIB: u32 = 200;

/// How long a load presses on memory.
const PRESSED: Duration = Duration::from_secs(12);
const SAMPLE: Duration = Duration::from_millis(20);

/// A screen locker's program, as its process is called.
const LOCKER: &str = "/tmp/i3lock";

/// Runs one situation.
pub fn run(stage: Stage, work: &Innocents) -> Result<()> {
    let daemon = match stage.arm {
        Arm::Stock => false,
        Arm::LimelightOnDebian | Arm::Limelight => true,
        arm => bail!("innocents knows no arm {arm:?}"),
    };
    Cgroup::create(LOAD)?;
    daemon::write_config(CLASSES)?;
    match work.plight {
        Plight::Greedy => greedy(stage, daemon),
        Plight::Build => build(stage, daemon),
        Plight::Tab => tab(stage, daemon),
        Plight::Server => server(stage, daemon),
        Plight::Locker => locker(stage, daemon),
    }
}

fn start_daemon(wanted: bool) -> Result<Option<Daemon>> {
    wanted.then(|| Daemon::start(&[])).transpose()
}

/// Reports how many innocents died, and stops the daemon.
fn finish(mut stage: Stage, daemon: Option<Daemon>, kernel: &Kernel, dead: usize) -> Result<()> {
    kernel.report(&mut stage.reporter.values)?;
    stage.reporter.value("innocent_dead", dead);
    if let Some(daemon) = daemon {
        stage.reporter.check(
            "every innocent app lives",
            dead == 0,
            format!("{dead} died: {:?}\n{}", history()?, daemon::log_tail()),
        )?;
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// The foreground app takes memory without end, without swap: what dies is that app.
fn greedy(mut stage: Stage, daemon: bool) -> Result<()> {
    let spec = |mib, leak_mib_per_s| Spec {
        mib,
        leak_mib_per_s,
        seed: u64::from(mib),
    };
    let idle = (0..IDLE).map(|number| {
        let name = format!("idle{number}");
        App::start(NORMAL, &name, &spec(IDLE_MIB, 0))
    });
    let mut idle: Vec<App> = idle.collect::<Result<_>>()?;
    let mut greedy = App::start(NORMAL, "greedy", &spec(GREEDY_MIB, GREEDY_MIB_PER_S))?;
    let daemon = start_daemon(daemon)?;
    if daemon.is_some() {
        for app in idle.iter().chain([&greedy]) {
            focus(app.pid())?;
        }
    }
    let kernel = Kernel::now()?;
    greedy.talk.say("leak")?;
    let begun = Instant::now();
    while greedy.alive() && begun.elapsed() < END {
        sleep(SAMPLE);
    }
    let ended = !greedy.alive();
    sleep(AFTERMATH);
    let dead = idle
        .iter_mut()
        .filter_map(|app| (!app.alive()).then_some(()))
        .count();
    stage.reporter.value("greedy_dead", ended);
    if daemon.is_some() {
        stage.reporter.check(
            "the app that takes the memory is the one that dies",
            ended,
            daemon::log_tail(),
        )?;
    }
    drop((idle, greedy));
    finish(stage, daemon, &kernel, dead)
}

/// A build in a terminal takes memory for a while, with swap free.
fn build(mut stage: Stage, daemon: bool) -> Result<()> {
    let front = App::start(
        NORMAL,
        "front",
        &Spec {
            mib: 24,
            leak_mib_per_s: 0,
            seed: 1,
        },
    )?;
    let scope = Cgroup::create("app.slice/vte-spawn-7.scope")?;
    let start = Start {
        cgroup: Some(&scope),
        ..Start::PLAIN
    };
    let spec = Spec {
        mib: 8,
        leak_mib_per_s: GREEDY_MIB_PER_S,
        seed: 2,
    };
    let mut build: Conversation = start.conversation("swap-app", &spec)?;
    build.ask::<Touched>("touch")?;
    let daemon = start_daemon(daemon)?;
    if daemon.is_some() {
        focus(front.pid())?;
    }
    let kernel = Kernel::now()?;
    build.say("leak")?;
    let begun = Instant::now();
    let grown = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            number.unwrap_or(0)
        };
        (kib("RssAnon:") + kib("VmSwap:")) >> 10
    };
    let pid = build.process.pid();
    while build.process.alive() && grown(pid) < u64::from(BUILD_MIB) && begun.elapsed() < END {
        sleep(SAMPLE);
    }
    let finished = build.process.alive();
    stage.reporter.value("built_mib", grown(pid) as f64);
    drop((build, front));
    finish(stage, daemon, &kernel, usize::from(!finished))
}

/// Watches processes while a load presses on memory: the knobs that stopped or limited each, and how
/// many have died.
fn pressed(counters: &Counters, watched: &[&Seen]) -> Result<(Vec<String>, usize)> {
    let (spec, _counter) = counters.spec(LOAD_MIB, false)?;
    let load: Process = start_load(&spec)?;
    let begun = Instant::now();
    let mut limits = Vec::new();
    while begun.elapsed() < PRESSED {
        for seen in watched {
            for line in seen.limited().unwrap_or_default() {
                if !limits.contains(&line) {
                    limits.push(line);
                }
            }
        }
        sleep(SAMPLE);
    }
    drop(load);
    let dead = watched.iter().filter(|seen| !seen.is_alive()).count();
    Ok((limits, dead))
}

/// The tab in which the user types, while its terminal has the window: the shell has a scope of its own.
fn tab(stage: Stage, daemon: bool) -> Result<()> {
    let counters = Counters::new(stage.index);
    let window = Cgroup::create("app.slice/app-org.gnome.Terminal.service")?;
    let scope = Cgroup::create("app.slice/vte-spawn-8.scope")?;
    let mut terminal = Started::start(&counters, 12, &window, false)?;
    let shell = terminal.start_child(&counters, 24)?;
    scope.set("cgroup.procs", &shell.pid.to_string())?;
    let daemon = start_daemon(daemon)?;
    if daemon.is_some() {
        focus(terminal.pid())?;
    }
    let kernel = Kernel::now()?;
    let (limits, dead) = pressed(&counters, &[&shell])?;
    if daemon.is_some() {
        stage.reporter.check(
            "the tab of the foreground terminal is never stopped and never limited",
            limits.is_empty(),
            format!("{limits:?}\n{}", daemon::log_tail()),
        )?;
    }
    drop(terminal);
    finish(stage, daemon, &kernel, dead)
}

/// A background app that answers the foreground app through a pipe.
fn server(stage: Stage, daemon: bool) -> Result<()> {
    let counters = Counters::new(stage.index);
    let client = Cgroup::create("app.slice/app-client-1.scope")?;
    let group = Cgroup::create("app.slice/app-server-1.scope")?;
    let mut front = Started::start(&counters, 24, &client, false)?;
    // Its child has a pipe from the foreground app for its input.
    let server = front.start_server(&counters, 24)?;
    group.set("cgroup.procs", &server.pid.to_string())?;
    let daemon = start_daemon(daemon)?;
    if daemon.is_some() {
        // It was in the foreground once, so it is an app like any other.
        focus(server.pid)?;
        focus(front.pid())?;
        // It is protected for 10 s after that.
        sleep(Duration::from_secs(11));
    }
    let kernel = Kernel::now()?;
    let (limits, dead) = pressed(&counters, &[&server])?;
    let stopped: Vec<&String> = limits
        .iter()
        .filter(|line| line.contains("freeze"))
        .collect();
    if daemon.is_some() {
        stage.reporter.check(
            "an app with a pipe to the foreground app is never stopped",
            stopped.is_empty(),
            format!("{limits:?}\n{}", daemon::log_tail()),
        )?;
    }
    drop(front);
    finish(stage, daemon, &kernel, dead)
}

/// A screen locker in a scope of its own, the largest and oldest app of all, without swap.
fn locker(stage: Stage, daemon: bool) -> Result<()> {
    let scope = Cgroup::create("app.slice/app-disposable.lock-1.scope")?;
    let taken = Cgroup::create("app.slice/app-normal.taker-1.scope")?;
    fs::copy("/proc/self/exe", LOCKER)?;
    let start = Start {
        cgroup: Some(&scope),
        ..Start::PLAIN
    };
    let spec = Spec {
        mib: 32,
        leak_mib_per_s: 0,
        seed: 3,
    };
    let mut locker = start.conversation_of(Path::new(LOCKER), "swap-app", &spec)?;
    locker.ask::<Touched>("touch")?;
    let front = App::start(
        NORMAL,
        "front",
        &Spec {
            mib: 24,
            leak_mib_per_s: 0,
            seed: 4,
        },
    )?;
    let other = App::start(
        "disposable",
        "news",
        &Spec {
            mib: 24,
            leak_mib_per_s: 0,
            seed: 5,
        },
    )?;
    let daemon = start_daemon(daemon)?;
    if daemon.is_some() {
        focus(front.pid())?;
    }
    let kernel = Kernel::now()?;
    let mut command = Command::new("/proc/self/exe");
    let taker = Spec {
        mib: 1,
        leak_mib_per_s: GREEDY_MIB_PER_S,
        seed: 6,
    };
    command
        .args(["swap-app", &serde_json::to_string(&taker)?])
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let start = Start {
        cgroup: Some(&taken),
        ..Start::PLAIN
    };
    let mut taker = start.program(command, "taker")?;
    taker.tell("leak")?;
    let begun = Instant::now();
    while taker.alive() && locker.process.alive() && begun.elapsed() < END {
        sleep(SAMPLE);
    }
    sleep(AFTERMATH);
    let dead = usize::from(!locker.process.alive());
    drop((taker, locker, front, other));
    fs::remove_file(LOCKER)?;
    finish(stage, daemon, &kernel, dead)
}
