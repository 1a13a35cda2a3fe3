// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks the promises about apps and their classes on a real kernel: where an app's class comes
//! from, which user may change it, which apps are never touched or closed, which apps count as in
//! use, that a saved class survives the daemon, and that the history records kills by other programs.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use serde_json::Value;

use crate::boost::sleeper;
use crate::cgroup::Cgroup;
use crate::daemon::{self, focus, limelight, log_tail, write_config, Daemon, Line, LIMELIGHT};
use crate::dispatch::Stage;
use crate::process::{run as run_program, Process, Start};

const BUSYBOX: &str = "/bin/busybox";
const HISTORY: &str = "/var/lib/limelight/history.jsonl";

/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = "[class]\ndisposable = [\"*/app-news-*\"]\n[boost]\nenabled = false\n\
                      [never]\nclose = [\"*/app-deep-*\"]\n";

const BANK: &str = "[Desktop Entry]\nType=Application\nName=Bank\nExec=bank\nCategories=Finance;\n";

/// An app in its own unit, as a desktop starts one.
struct App {
    process: Process,
    unit: Cgroup,
}

impl App {
    fn start(unit: &str) -> Result<App> {
        let unit = Cgroup::create(&format!("app.slice/{unit}"))?;
        let process = sleeper(Some(&unit), false)?;
        Ok(App { process, unit })
    }

    fn start_command(unit: &str, command: Command) -> Result<App> {
        let unit = Cgroup::create(&format!("app.slice/{unit}"))?;
        let start = Start::in_cgroup(&unit);
        let process = start.program(command, "app")?;
        Ok(App { process, unit })
    }

    fn pid(&self) -> i32 {
        self.process.pid()
    }
}

fn sleeping() -> Command {
    let mut command = Command::new(BUSYBOX);
    command.args(["sleep", "1000"]);
    command
}

/// JSON output of `limelight`, which must succeed.
fn json(arguments: &[&str]) -> Result<Value> {
    let (code, value) = daemon::json(arguments)?;
    if code != 0 {
        bail!(
            "limelight {arguments:?} exited with {code}:\n{value}\n{}",
            log_tail()
        );
    }
    Ok(value)
}

/// An app's entry in the output of `limelight class list`.
fn app(pid: i32) -> Result<Value> {
    let all = json(&["class", "list"])?;
    let all = all.as_array().context("no list")?;
    let found = all.iter().find(|app| app["pid"] == pid);
    found
        .cloned()
        .with_context(|| format!("pid {pid} is not in {all:?}"))
}

/// Polls an app's entry until it satisfies `wanted`, or until the timeout. Returns the last entry
/// that was read. The daemon scans every half second.
fn app_when(pid: i32, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = app(pid)?;
        if wanted(&seen) || Instant::now() > deadline {
            return Ok(seen);
        }
        sleep(Duration::from_millis(200));
    }
}

fn set_attribute(path: &Path, name: &str, value: &str) -> Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    // SAFETY: all pointers are valid for their lengths.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("cannot set a cgroup's attribute"),
    }
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    write_config(CONFIG)?;
    fs::create_dir_all("/usr/share/applications")?;
    fs::write("/usr/share/applications/org.x.Bank.desktop", BANK)?;

    let bank = App::start("app-gnome-org.x.Bank-7.scope")?;
    let news = App::start("app-news-1.scope")?;
    let nested = App::start("user.slice/user@0.service/app.slice/app-deep-1.scope")?;
    let game = App::start_command("app-game-1.scope", {
        let mut command = sleeping();
        command.env("LIMELIGHT_CLASS", "disposable");
        command
    })?;
    std::fs::copy(BUSYBOX, "/run/Xorg")?;
    let display = App::start_command("app-display-1.scope", {
        let mut command = Command::new("/run/Xorg");
        command.arg0("sleep").arg("1000");
        command
    })?;
    let bare = sleeper(None, false)?;
    let limited = Cgroup::create("background.slice/hog.scope")?;
    limited.set("memory.max", "8388608")?;
    limited.set("memory.swap.max", "0")?;
    let pids = [bank.pid(), news.pid(), nested.pid(), game.pid(), bare.pid()];
    let daemon = Daemon::start(&pids)?;

    for (what, seen, class, why) in [
        (
            "the category of its desktop entry",
            app(bank.pid())?,
            "keep",
            "Finance",
        ),
        (
            "the administrator's list",
            app(news.pid())?,
            "disposable",
            "limelight.toml:2",
        ),
        (
            "its own environment variable",
            app(game.pid())?,
            "disposable",
            "LIMELIGHT_CLASS",
        ),
        (
            "the default",
            app(nested.pid())?,
            "normal",
            "no rule applies",
        ),
    ] {
        let held =
            seen["class"] == class && seen["why"].as_str().is_some_and(|text| text.contains(why));
        reporter.check(
            format!("{what} makes an app {class}"),
            held,
            seen.to_string(),
        )?;
    }
    let seen = app(display.pid())?;
    let spared = seen["untouchable"]
        .as_str()
        .is_some_and(|why| why.contains("Xorg"));
    reporter.check("a display server is untouchable", spared, seen.to_string())?;

    let unit = Cgroup::create("app.slice/app-news-2.scope")?;
    let limit = unit.path().join("memory.swap.max");
    let limit_when = |wanted: &str| -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = fs::read_to_string(&limit).unwrap_or_default();
            if seen.trim() == wanted || Instant::now() > deadline {
                return Ok(seen);
            }
            sleep(Duration::from_millis(10));
        }
    };
    let seen = limit_when("0")?;
    reporter.check(
        "a disposable app's new unit gets memory.swap.max 0 before its first process",
        seen.trim() == "0",
        format!("memory.swap.max is {:?}", seen.trim()),
    )?;
    let seen = limit_when("max")?;
    reporter.check(
        "a unit that stays empty gets its memory.swap.max back",
        seen.trim() == "max",
        format!("memory.swap.max is {:?}", seen.trim()),
    )?;
    unit.remove()?;

    let attribute =
        |app: &App, class: &str| set_attribute(app.unit.path(), "user.limelight.class", class);
    attribute(&bank, "normal")?;
    let seen = app_when(bank.pid(), |seen| seen["class"] == "normal")?;
    let held = seen["class"] == "normal";
    reporter.check(
        "an app may lower its own class at any time",
        held,
        seen.to_string(),
    )?;
    attribute(&nested, "keep")?;
    let asked = |seen: &Value| {
        seen["why"]
            .as_str()
            .is_some_and(|why| why.contains("asks for keep"))
    };
    let seen = app_when(nested.pid(), asked)?;
    let held = seen["class"] == "normal" && asked(&seen);
    reporter.check("an app may not raise its own class", held, seen.to_string())?;

    limelight(&["class", "set", &game.pid().to_string(), "keep"])?;
    let seen = app(game.pid())?;
    reporter.check(
        "root may raise an app's class",
        seen["class"] == "keep",
        seen.to_string(),
    )?;
    limelight(&["class", "set", &game.pid().to_string(), "auto"])?;
    let seen = app(game.pid())?;
    let held = seen["class"] == "disposable" && seen["set_by"].is_null();
    reporter.check(
        "root may return an app to its automatic class",
        held,
        seen.to_string(),
    )?;

    let mut editor = Line::connect()?;
    editor.tell(&format!(
        r#"{{"op":"in-use","pid":{},"use":"unsaved","on":true}}"#,
        nested.pid()
    ))?;
    let uses = |seen: &Value| seen["uses"].as_array().map_or(0, Vec::len);
    let seen = app_when(nested.pid(), |seen| uses(seen) == 1)?;
    reporter.check(
        "an app with unsaved work counts as in use",
        uses(&seen) == 1,
        seen.to_string(),
    )?;
    drop(editor);
    let seen = app_when(nested.pid(), |seen| uses(seen) == 0)?;
    let ended = uses(&seen) == 0;
    reporter.check(
        "unsaved work no longer counts after the connection closes",
        ended,
        seen.to_string(),
    )?;

    focus(bare.pid())?;
    let seen = app(bare.pid())?;
    let held = seen["own_cgroup"] == false
        || seen["cgroup"]
            .as_str()
            .is_some_and(|path| path.contains("limelight.slice"));
    reporter.check(
        "a foreground program without a unit counts as an app",
        held,
        seen.to_string(),
    )?;

    exceptions(&stage, nested.pid(), news.pid())?;
    oom_preference(&stage, &news)?;
    limelight(&["class", "set", "--save", "app-game-1.scope", "keep"])?;
    foreign_kill(&stage, &limited)?;
    let dead = daemon.kill()?;
    let successor = Daemon::start_after(dead)?;
    let entries = json(&["history"])?;
    let kept = entries.as_array().is_some_and(|all| !all.is_empty());
    reporter.check(
        "the history survives kill -9 of limelightd",
        kept,
        entries.to_string(),
    )?;
    let seen = app(game.pid())?;
    let saved = |why: &str| why.contains("uid 0 saved it");
    reporter.check(
        "a saved class survives kill -9 of limelightd",
        seen["class"] == "keep" && seen["why"].as_str().is_some_and(saved),
        seen.to_string(),
    )?;
    let (code, text) = run_program(LIMELIGHT, &["explain", "--last"])?;
    reporter.check(
        "without a decision, explain --last reports that there is none",
        code == 0 && text.starts_with("nothing"),
        text,
    )?;
    successor.stop(reporter)?;
    drop((bank, news, nested, game, display, bare));
    stage.reporter.finish()
}

/// Checks the rules that make exceptions for apps: the system's, and those of a connection.
fn exceptions(stage: &Stage, listed: i32, other: i32) -> Result<()> {
    let rules = |seen: &Value| seen["never"].as_array().map_or(0, Vec::len);
    let seen = app(listed)?;
    let why = seen["never"][0]["why"].as_str().unwrap_or_default();
    stage.reporter.check(
        "a rule of the configuration says that an app is never closed",
        seen["never"][0]["never"] == "close" && why.contains("limelight.toml:6"),
        seen.to_string(),
    )?;
    let (code, text) = run_program(LIMELIGHT, &["explain", &listed.to_string()])?;
    stage.reporter.check(
        "explain names the rule",
        code == 0 && text.contains("never closed by limelightd"),
        text,
    )?;
    let mut session = Line::connect()?;
    session.tell(
        r#"{"op":"never","file":"/root/limelight.toml","text":"[never]\nboost = [\"*/app-news-*\"]"}"#,
    )?;
    let seen = app_when(other, |seen| rules(seen) == 1)?;
    stage.reporter.check(
        "a user's own rule applies while its connection lasts",
        rules(&seen) == 1 && seen["never"][0]["by_owner"] == true,
        seen.to_string(),
    )?;
    drop(session);
    let seen = app_when(other, |seen| rules(seen) == 0)?;
    stage.reporter.check(
        "a user's own rule ends with its connection",
        rules(&seen) == 0,
        seen.to_string(),
    )
}

/// Checks that the attributes with which systemd passes `ManagedOOMPreference` to systemd-oomd are
/// respected on a real cgroup.
fn oom_preference(stage: &Stage, app: &App) -> Result<()> {
    let wishes = |seen: &Value| {
        let never = seen["never"][0]["why"].as_str().unwrap_or_default();
        let avoid = seen["avoid"]["why"].as_str().unwrap_or_default();
        (never.contains("=omit"), avoid.contains("=avoid"))
    };
    set_attribute(app.unit.path(), "user.oomd_avoid", "1")?;
    let seen = app_when(app.pid(), |seen| wishes(seen) == (false, true))?;
    stage.reporter.check(
        "an app with ManagedOOMPreference=avoid is closed last of its class",
        wishes(&seen) == (false, true),
        seen.to_string(),
    )?;
    set_attribute(app.unit.path(), "user.oomd_omit", "1")?;
    let seen = app_when(app.pid(), |seen| wishes(seen) == (true, false))?;
    let (code, text) = run_program(LIMELIGHT, &["explain", &app.pid().to_string()])?;
    stage.reporter.check(
        "an app with ManagedOOMPreference=omit is never closed",
        wishes(&seen) == (true, false) && code == 0 && text.contains("never closed by limelightd"),
        format!("{seen}\n{text}"),
    )
}

/// Makes the kernel's OOM killer kill a process that exceeds this cgroup's memory limit. Checks
/// that the daemon records the kill.
fn foreign_kill(stage: &Stage, unit: &Cgroup) -> Result<()> {
    let mut command = Command::new(BUSYBOX);
    command.args(["dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"]);
    let start = Start::in_cgroup(unit);
    let mut hog = start.program(command, "hog")?;
    hog.wait(PATIENCE)?;
    let deadline = Instant::now() + PATIENCE;
    let mut entries = json(&["history"])?;
    while !entries.to_string().contains("foreign-kill") && Instant::now() < deadline {
        sleep(Duration::from_millis(200));
        entries = json(&["history"])?;
    }
    stage.reporter.check(
        "limelight history lists a kill by the kernel's OOM killer",
        entries.to_string().contains("foreign-kill"),
        entries.to_string(),
    )?;
    let written = fs::read_to_string(HISTORY).unwrap_or_default();
    stage.reporter.check(
        "the history file contains a kill by the kernel's OOM killer",
        written.contains("foreign-kill"),
        written.clone(),
    )
}
