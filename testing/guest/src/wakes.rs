// SPDX-License-Identifier: GPL-2.0-or-later
//! The wake graph's guess of the foreground app, in a session without an agent. Debian's X server
//! has a keyboard, two terminals between which the focus moves, an idle terminal, and a client that
//! draws all the time. The wake graph is the daemon's only source, and its guess is compared with
//! the focused window.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_proto::WAKE_GRAPH;
use serde_json::Value;
use x11rb::protocol::xproto::Window;

use crate::cgroup::Cgroup;
use crate::daemon::{focus, json, limelight, main_wakeups, Daemon};
use crate::dispatch::Stage;
use crate::gallery_real::{log_path, start, DISPLAY};
use crate::guest_setup::{mount, wait, ROOTFS};
use crate::keyboard::Keyboard;
use crate::presenter;
use crate::process::{Conversation, Process, Start};
use crate::record::Reporter;
use crate::x11::User;

/// Codes of the letters A, S and D.
const KEYS: [u16; 3] = [30, 31, 32];
/// Number of focus moves, and of key presses after each.
const MOVES: usize = 24;
const STROKES: usize = 6;
/// Time that a key is held, pause until the next key (both as in human typing), and time for the
/// daemon to update its guess.
const HELD: Duration = Duration::from_millis(70);
const PAUSE: Duration = Duration::from_millis(110);
const SETTLED: Duration = Duration::from_millis(400);
/// Time without a key press: longer than the daemon traces after a key press.
const QUIET: Duration = Duration::from_secs(5);

/// The daemon's trace instance, the switch of the instance's event, and the restore record.
const INSTANCE: &str = "/sys/kernel/tracing/instances/limelight-wakes";
const TRACED: &str = "events/sched/sched_waking/enable";
const RECORD: &str = "/run/limelight/private/record/restore.json";
/// The X server binary; Debian's `Xorg` is a wrapper script.
const XORG: &str = "/usr/lib/xorg/Xorg";
const LAYOUT: &str = "/etc/X11/limelight-lab.conf";

/// A session with a keyboard.
struct Session {
    keyboard: Keyboard,
    user: User,
    manager: Process,
    /// The apps that get the focus, with their windows.
    apps: [(Process, Window); 2],
    idle: (Process, Window),
    animation: Conversation,
    _server: Process,
}

impl Session {
    fn start() -> Result<Session> {
        let keyboard = Keyboard::plug_in(&KEYS)?;
        let layout = layout(&keyboard.node);
        let path = format!("{ROOTFS}{LAYOUT}");
        fs::create_dir_all(format!("{ROOTFS}/etc/X11"))?;
        fs::write(&path, layout).with_context(|| format!("cannot write {path}"))?;
        let desktop = Cgroup::create("session.slice/desktop.scope")?;
        let options = ["-config", LAYOUT, "-ac", "-nolisten", "tcp", "-noreset"];
        let mut arguments = vec![DISPLAY];
        arguments.extend(options);
        arguments.extend(["-logfile", "/tmp/Xorg.log"]);
        let server = start(Some(&desktop), XORG, &arguments)?;
        let user = User::connect(DISPLAY).with_context(|| log_of("Xorg"))?;
        let manager = start(Some(&desktop), "openbox", &[])?;
        user.wait_for_window_manager()?;
        // Each terminal needs a pseudo-terminal.
        mount(
            "devpts",
            &format!("{ROOTFS}/dev/pts"),
            "devpts",
            "ptmxmode=666",
        )?;
        let mut known = Vec::new();
        let mut terminal = |name: &str| -> Result<(Process, Window)> {
            let scope = Cgroup::create(&format!("app.slice/app-{name}-1.scope"))?;
            let process = start(Some(&scope), "xterm", &["-e", "cat"])?;
            let window = user
                .another_window(&known)
                .with_context(|| log_of("xterm"))?;
            known.push(window);
            Ok((process, window))
        };
        let apps = [terminal("first")?, terminal("second")?];
        let idle = terminal("idle")?;
        let scope = Cgroup::create("app.slice/app-animation-1.scope")?;
        let spec = presenter::Spec {
            display: DISPLAY.to_owned(),
            animates: true,
        };
        let start = Start::in_cgroup(&scope);
        let mut animation = start.conversation("presenter", &spec)?;
        let _shown: presenter::Said = animation.hear()?;
        Ok(Session {
            keyboard,
            user,
            manager,
            apps,
            idle,
            animation,
            _server: server,
        })
    }

    fn pids(&self) -> Vec<i32> {
        let [first, second] = &self.apps;
        let terminals = [first, second, &self.idle];
        let mut pids: Vec<i32> = terminals.iter().map(|(app, _)| app.pid()).collect();
        pids.push(self.animation.process.pid());
        pids
    }

    /// Types a few letters.
    fn type_letters(&mut self) -> Result<()> {
        for key in KEYS.iter().cycle().take(STROKES) {
            self.keyboard.hold(*key, HELD)?;
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Gives an app the focus, types, and returns the PID that the daemon considers topmost.
    fn work_with(&mut self, app: usize) -> Result<Option<i32>> {
        self.user.activate_and_wait(self.apps[app].1)?;
        self.type_letters()?;
        sleep(SETTLED);
        Ok(Front::now()?.pid)
    }
}

/// The daemon's view of the foreground app.
struct Front {
    pid: Option<i32>,
    source: String,
    status: Value,
}

impl Front {
    fn now() -> Result<Front> {
        let (code, status) = json(&["status"])?;
        if code != 0 {
            bail!("limelight status exited with {code}: {status}");
        }
        let front = &status["foreground"];
        Ok(Front {
            pid: front["pid"].as_i64().and_then(|pid| pid.try_into().ok()),
            source: front["source"].as_str().unwrap_or_default().to_owned(),
            status,
        })
    }

    /// State and detail of the wake graph source.
    fn wake_graph(&self) -> (&str, &str) {
        let mut sources = self.status["sources"].as_array().into_iter().flatten();
        let found = sources.find(|source| source["name"] == WAKE_GRAPH);
        let word = |name: &str| found.and_then(|found| found[name].as_str()).unwrap_or("");
        (word("state"), word("detail"))
    }
}

/// Runs all checks.
pub fn run(mut stage: Stage) -> Result<()> {
    if stage.machine.rootfs.is_none() {
        bail!("the wake graph needs a root file system, and the plan's machine has none");
    }
    stage.reporter.progress("starting the X session")?;
    let mut session = Session::start()?;
    let daemon = Daemon::start(&session.pids())?;
    let reporter = &mut stage.reporter;

    sleep(QUIET);
    let before = main_wakeups(daemon.pid())?;
    sleep(QUIET);
    reporter.value("quiet_wakeups", main_wakeups(daemon.pid())? - before);
    let seen = Front::now()?;
    reporter.check(
        "while no key is pressed, no app is inferred and nothing is traced",
        seen.pid.is_none() && seen.wake_graph().0 == "idle" && !Path::new(INSTANCE).exists(),
        seen.wake_graph().1,
    )?;

    let (mut right, mut none) = (0u64, 0u64);
    let mut wrong = Vec::new();
    for turn in 0..MOVES {
        let app = turn % 2;
        match session.work_with(app)? {
            Some(pid) if pid == session.apps[app].0.pid() => right += 1,
            Some(pid) => wrong.push(pid),
            None => none += 1,
        }
    }
    let of = |pid: i32| wrong.iter().filter(|&&guess| guess == pid).count();
    let idle = of(session.idle.0.pid());
    let animation = of(session.animation.process.pid());
    for (name, count) in [
        ("moves", MOVES),
        ("wrong", wrong.len()),
        ("wrong_idle", idle),
        ("wrong_animation", animation),
        ("wrong_manager", of(session.manager.pid())),
    ] {
        reporter.value(name, count);
    }
    reporter.value("right", right);
    reporter.value("none", none);
    let seen = Front::now()?;
    reporter.check(
        "at least 20 of 24 guesses are right, and none is a background app",
        right >= 20 && idle == 0 && animation == 0,
        format!(
            "{right} right, {none} none, {} wrong, of them {idle} the idle and {animation} the \
             drawing app; {}",
            wrong.len(),
            seen.wake_graph().1
        ),
    )?;
    explained(&seen, reporter)?;

    sleep(QUIET);
    let traced = fs::read_to_string(Path::new(INSTANCE).join(TRACED))?;
    let record = fs::read_to_string(RECORD).unwrap_or_default();
    reporter.check(
        "after 5 s without a key press, nothing is traced and the foreground app stays",
        traced.trim() == "0" && Front::now()?.pid == seen.pid,
        format!("the event's switch is {}", traced.trim()),
    )?;
    reporter.check(
        "the trace instance is in the restore record",
        record.contains(INSTANCE),
        record,
    )?;

    focus(session.idle.0.pid())?;
    let gone = wait(|| Ok(!Path::new(INSTANCE).exists()))?;
    session.type_letters()?;
    let reported = Front::now()?;
    reporter.check(
        "once another source reports, nothing is traced and no app is inferred",
        gone && reported.pid == Some(session.idle.0.pid()) && reported.wake_graph().0 == "idle",
        format!(
            "trace instance gone: {gone}; foreground PID {:?}; wake graph: {}",
            reported.pid,
            reported.wake_graph().1
        ),
    )?;
    limelight(&["focus", "--none"])?;
    let again = session.work_with(0)?;
    reporter.check(
        "when no other source reports any more, the foreground app is inferred again",
        again == Some(session.apps[0].0.pid()),
        format!("inferred PID {again:?}"),
    )?;

    let daemon = daemon.replace_killed(Path::new(INSTANCE), reporter)?;
    let again = session.work_with(1)?;
    reporter.check(
        "the successor infers the foreground app",
        again == Some(session.apps[1].0.pid()),
        format!("inferred PID {again:?}"),
    )?;
    daemon.stop(reporter)?;
    reporter.check(
        "a stopped daemon leaves no trace instance",
        !Path::new(INSTANCE).exists(),
        format!("{INSTANCE} exists: {}", Path::new(INSTANCE).exists()),
    )?;
    stage.reporter.finish()
}

/// Checks that `status`, `explain` and `doctor` call the app a guess and name the guess's basis.
fn explained(seen: &Front, reporter: &Reporter) -> Result<()> {
    let pid = seen.pid.context("no app is in the foreground")?.to_string();
    let (_, explained) = json(&["explain", &pid])?;
    let (_, examined) = json(&["doctor"])?;
    let note = |text: &Value| {
        text.as_str()
            .is_some_and(|text| text.contains("a guess: Xorg"))
    };
    let notes = explained["notes"].as_array();
    let doubted = notes.is_some_and(|notes| notes.iter().any(note));
    let findings = examined.as_array().into_iter().flatten();
    let doubts = findings
        .filter(|one| one["check"] == "foreground app")
        .count();
    let (state, detail) = seen.wake_graph();
    reporter.check(
        "status, explain and doctor call the app a guess and name its basis",
        seen.source == WAKE_GRAPH
            && state == "active"
            && note(&detail.into())
            && doubted
            && doubts == 1,
        format!(
            "source {}; wake graph {state}: {detail}; notes of explain: {}; {doubts} findings of \
             doctor",
            seen.source, explained["notes"]
        ),
    )
}

/// An X configuration with this keyboard and a dummy screen.
fn layout(keyboard: &Path) -> String {
    format!(
        r#"Section "InputDevice"
    Identifier "keyboard"
    Driver "evdev"
    Option "Device" "{}"
EndSection
Section "Device"
    Identifier "card"
    Driver "dummy"
EndSection
Section "Screen"
    Identifier "screen"
    Device "card"
EndSection
Section "ServerLayout"
    Identifier "lab"
    Screen "screen"
    InputDevice "keyboard" "CoreKeyboard"
EndSection
"#,
        keyboard.display()
    )
}

fn log_of(program: &str) -> String {
    let text = fs::read_to_string(log_path(program)).unwrap_or_default();
    format!("{program} wrote: {}", text.trim())
}
