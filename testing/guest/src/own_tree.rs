// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine without systemd: all processes of a session share one cgroup, as with elogind.
//! limelightd creates its own tree with a cgroup for each app, and removes the tree at its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_sys::proc::Proc;

use crate::boost::sleeper;
use crate::cgroup::{self, Cgroup};
use crate::daemon::{self, focus, limelight, write_config, Before, Daemon};
use crate::dispatch::Stage;
use crate::followed::nice;
use crate::process::{run as run_program, send, Process, Start};
use crate::record::Reporter;
use crate::scenario::OwnTree;

/// elogind's name for a session's cgroup.
const SESSION: &str = "c1";
/// The daemon's cgroup tree.
const TREE: &str = "limelight.slice";
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Indices of the apps in the order in which they come to the foreground: each app twice.
const ORDER: [usize; 6] = [0, 1, 2, 1, 0, 2];

/// A program and its helper.
struct App {
    process: Process,
    helper: i32,
}

impl App {
    fn start(session: &Cgroup) -> Result<App> {
        let mut command = Command::new("/bin/busybox");
        command.args(["sh", "-c", "sleep 1000 & exec sleep 1000"]);
        let start = Start::in_cgroup(session);
        let process = start.program(command, "app")?;
        let path = format!("/proc/{0}/task/{0}/children", process.pid());
        let deadline = Instant::now() + PATIENCE;
        loop {
            let children = fs::read_to_string(&path).unwrap_or_default();
            if let Ok(helper) = children.trim().parse() {
                return Ok(App { process, helper });
            }
            if Instant::now() > deadline {
                bail!("the app has no helper: {path} holds {children:?}");
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn pids(&self) -> [i32; 2] {
        [self.process.pid(), self.helper]
    }

    /// The cgroup that limelightd creates for the app.
    fn scope(&self) -> Result<PathBuf> {
        let pid = self.process.pid();
        let stat = Proc::open("/proc")?.process(pid)?.stat()?;
        Ok(tree().join(format!("app-{pid}-{}.scope", stat.start_ticks)))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // The helper sleeps until it is killed, so its PID has not been reused.
        let _ = send(self.helper, libc::SIGKILL);
    }
}

fn tree() -> PathBuf {
    Path::new(cgroup::ROOT).join(TREE)
}

/// Protection and boost of an app: values of its cgroup, and its nice value.
#[derive(Debug)]
struct Standing {
    min: String,
    low: String,
    weight: String,
    nice: i32,
}

impl Standing {
    fn of(app: &App) -> Result<Standing> {
        let scope = app.scope()?;
        let value = |file: &str| match fs::read_to_string(scope.join(file)) {
            Ok(text) => text.trim().to_owned(),
            Err(_) => "absent".into(),
        };
        Ok(Standing {
            min: value("memory.min"),
            low: value("memory.low"),
            weight: value("cpu.weight"),
            nice: nice(app.process.pid()),
        })
    }

    fn is_protected(&self) -> bool {
        let reserved = |value: &str| !["0", "absent"].contains(&value);
        reserved(&self.min) || reserved(&self.low)
    }

    /// Whether cpu.weight boosts the app; its nice value must then be 0.
    fn is_boosted(&self) -> bool {
        !["100", "absent"].contains(&self.weight.as_str()) && self.nice == 0
    }

    fn has_nothing(&self) -> bool {
        !self.is_protected() && self.weight == "100" && self.nice == 0
    }
}

/// Runs all checks.
pub fn run(stage: Stage, work: &OwnTree) -> Result<()> {
    let reporter = &stage.reporter;
    cgroup::remove_all()?;
    // The test is about the cgroup, not about which disposable app is worth swapping.
    write_config("[swap]\nby_cost = false\n")?;
    match work.handed_down {
        // Enables the root's controllers, as OpenRC does when it mounts the hierarchy.
        true => Cgroup::create("openrc").map(drop)?,
        false => cgroup::handed_down()?
            .iter()
            .try_for_each(|controller| cgroup::take_back(controller))?,
    }
    let session = Cgroup::bare(SESSION)?;
    let desktop = sleeper(Some(&session), false)?;
    let apps = [
        App::start(&session)?,
        App::start(&session)?,
        App::start(&session)?,
    ];
    let mut pids: Vec<i32> = apps.iter().flat_map(App::pids).collect();
    pids.push(desktop.pid());
    let daemon = Daemon::start_after(Before::now(&pids)?)?;
    reporter.check(
        "before the first focus change, the daemon creates no cgroup",
        !tree().exists() && cgroup::of(apps[0].process.pid())? == session.path(),
        format!(
            "{} exists: {}; the first app is in {}",
            tree().display(),
            tree().exists(),
            cgroup::of(apps[0].process.pid())?.display()
        ),
    )?;
    check_focus(reporter, &apps)?;
    reporter.check(
        "processes that belong to no app stay in the session's cgroup",
        cgroup::of(desktop.pid())? == session.path(),
        cgroup::of(desktop.pid())?.display().to_string(),
    )?;
    check_end(reporter, &session)?;
    check_class(reporter, &apps)?;

    let before = daemon.kill()?;
    let left = before.changes()?;
    reporter.check(
        "a killed daemon leaves its cgroup tree and changed values",
        tree().exists() && !left.is_empty(),
        left.join("; "),
    )?;
    let (code, text) = run_program(daemon::LIMELIGHTD, &["--restore"])?;
    reporter.check(
        "limelightd --restore ends with exit code 0",
        code == 0,
        format!("exit code {code}: {text}"),
    )?;
    before.check_restored("after kill -9 and limelightd --restore", reporter)?;

    let second = Daemon::start_after(before)?;
    focus(apps[1].process.pid())?;
    check_front(reporter, &apps, 1, "under a second daemon")?;
    let third = Daemon::start_after(second.kill()?)?;
    third
        .before()
        .check_restored("after kill -9 and a new start", reporter)?;
    focus(apps[2].process.pid())?;
    check_front(reporter, &apps, 2, "under a third daemon")?;
    third.stop(reporter)?;
    check_tree_gone(reporter)?;
    if !work.handed_down {
        check_relied_on(reporter, &apps, &pids)?;
    }
    stage.reporter.finish()
}

fn check_tree_gone(reporter: &Reporter) -> Result<()> {
    reporter.check(
        "a stopped daemon removes its cgroup tree",
        !tree().exists(),
        format!("{} exists: {}", tree().display(), tree().exists()),
    )
}

/// Checks that the daemon disables the root's controllers when it stops, except one that another
/// cgroup has enabled for its children in the meantime.
fn check_relied_on(reporter: &Reporter, apps: &[App], pids: &[i32]) -> Result<()> {
    let daemon = Daemon::start(pids)?;
    focus(apps[0].process.pid())?;
    let theirs = Cgroup::bare("somebody")?;
    theirs.set(cgroup::SUBTREE_CONTROL, "+cpu")?;
    let (code, before) = daemon.end()?;
    let log = daemon::log_tail();
    let handed = cgroup::handed_down()?;
    reporter.check(
        "a controller that another cgroup uses stays enabled, and the daemon logs that",
        handed == ["cpu"] && code == 0 && log.contains("in use by a child cgroup"),
        format!("exit code {code}, {handed:?} stay enabled:\n{log}"),
    )?;
    check_tree_gone(reporter)?;
    theirs.remove()?;
    cgroup::take_back("cpu")?;
    before.check_restored("after that controller is disabled", reporter)
}

/// Checks that an app's class sets the swap limit of the cgroup that the daemon created.
fn check_class(reporter: &Reporter, apps: &[App; 3]) -> Result<()> {
    let pid = apps[1].process.pid();
    limelight(&["class", "set", &pid.to_string(), "disposable"])?;
    let limit = |app: &App| -> Result<String> {
        let path = app.scope()?.join("memory.swap.max");
        let text = fs::read_to_string(&path);
        Ok(text
            .with_context(|| format!("cannot read {}", path.display()))?
            .trim()
            .to_owned())
    };
    let deadline = Instant::now() + PATIENCE;
    while limit(&apps[1])? != "0" && Instant::now() < deadline {
        sleep(Duration::from_millis(50));
    }
    let limits = [limit(&apps[0])?, limit(&apps[1])?, limit(&apps[2])?];
    reporter.check(
        "memory.swap.max is 0 for the disposable app, and max for the others",
        limits == ["max", "0", "max"],
        format!("memory.swap.max of each app: {limits:?}"),
    )
}

fn check_focus(reporter: &Reporter, apps: &[App]) -> Result<()> {
    for (move_, &index) in ORDER.iter().enumerate() {
        focus(apps[index].process.pid())?;
        check_front(
            reporter,
            apps,
            index,
            &format!("at focus change {}", move_ + 1),
        )?;
    }
    Ok(())
}

/// Checks that the foreground app and its helper are in the app's own cgroup, and that no other app
/// is protected or boosted.
fn check_front(reporter: &Reporter, apps: &[App], front: usize, when: &str) -> Result<()> {
    let scope = apps[front].scope()?;
    let places: Vec<PathBuf> = apps[front]
        .pids()
        .into_iter()
        .map(cgroup::of)
        .collect::<Result<_>>()?;
    reporter.check(
        format!("{when}, the foreground app and its helper are in the app's own cgroup"),
        places.iter().all(|place| *place == scope),
        format!("their cgroups: {places:?}"),
    )?;
    let seen = Standing::of(&apps[front])?;
    reporter.check(
        format!("{when}, the foreground app is protected and boosted"),
        seen.is_protected() && seen.is_boosted(),
        format!("{seen:?}"),
    )?;
    for (index, app) in apps.iter().enumerate() {
        let scope = app.scope()?;
        if index == front || !scope.exists() {
            continue;
        }
        let seen = Standing::of(app)?;
        reporter.check(
            format!("{when}, background app {index} is neither protected nor boosted"),
            seen.has_nothing(),
            format!("{seen:?}"),
        )?;
    }
    Ok(())
}

/// Checks that the cgroup of an ended app is removed.
fn check_end(reporter: &Reporter, session: &Cgroup) -> Result<()> {
    let app = App::start(session)?;
    let scope = app.scope()?;
    focus(app.process.pid())?;
    let made = scope.exists();
    drop(app);
    let deadline = Instant::now() + PATIENCE;
    while scope.exists() && Instant::now() < deadline {
        sleep(Duration::from_millis(50));
    }
    reporter.check(
        "the cgroup of an ended app is removed",
        made && !scope.exists(),
        format!(
            "{} existed: {made}; exists now: {}",
            scope.display(),
            scope.exists()
        ),
    )
}
