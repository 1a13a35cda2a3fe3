// SPDX-License-Identifier: GPL-2.0-or-later
//! Three users of one machine run random unprivileged operations, and one of them takes all memory.
//! This must not harm another user more than on stock Linux: no process of another user is frozen,
//! killed, moved or slowed. No value stays changed after the daemon's end. No user learns which app
//! another user has in the foreground, or when that app gets input.

mod app;
mod talk;

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_proto::{HistoryEntry, MemoryAction};
use limelight_sys::sched;

use crate::cgroup::{self, Cgroup, ROOT};
use crate::counters::Counters as Kernel;
use crate::daemon::{history, log_tail, write_config, Before, Daemon};
use crate::dispatch::Stage;
use crate::plan::Arm;
use crate::process::{send, Conversation, Start};
use crate::random::{seed, Random};
use crate::record::Reporter;
use crate::scenario::UsersChaos;

use self::app::Order;
pub use self::app::{app, Spec};
use self::talk::{random_request, watch};

const SESSIONS: &str = "/run/systemd/sessions";
/// UIDs of the user at the screen, of a user logged in remotely, and of the user who takes memory.
pub(crate) const USERS: [u32; 3] = [1000, 1001, 1002];
const TAKER: usize = 2;
const SEATED: usize = 0;
const SESSION_TEXTS: [&str; 3] = [
    "UID=1000\nACTIVE=1\nSTATE=active\nSEAT=seat0\nCLASS=user\n",
    "UID=1001\nACTIVE=1\nSTATE=active\nREMOTE=1\nCLASS=user\n",
    "UID=1002\nACTIVE=0\nSTATE=online\nSEAT=seat0\nCLASS=user\n",
];
/// Each user's cgroups: of an idle app, of an app that executes orders, and an empty one to move
/// to.
const PLACES: [&str; 3] = ["calm", "busy", "spare"];
const CALM_MIB: u32 = 14;
const BUSY_MIB: u32 = 4;
/// Memory that one `Grow` order of the third user takes, in MiB, and the duration of the phase in
/// which that user takes memory.
const STEP_MIB: u32 = 3;
const PRESSURE: Duration = Duration::from_secs(15);
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const SAMPLE: Duration = Duration::from_millis(20);

/// Name of a user's app: of its process, and in its cgroup's name.
fn name(user: usize, place: usize) -> String {
    format!("u{}{}", USERS[user], PLACES[place])
}

fn group(user: usize, place: usize) -> Result<Cgroup> {
    let uid = USERS[user];
    let slice = format!("user.slice/user-{uid}.slice/user@{uid}.service/app.slice");
    Cgroup::create(&format!("{slice}/app-{}-1.scope", name(user, place)))
}

/// Makes a user the owner of a cgroup, as systemd does when it delegates one.
fn delegate(group: &Path, uid: u32) -> Result<()> {
    for path in [group.to_owned(), group.join("cgroup.procs")] {
        std::os::unix::fs::chown(&path, Some(uid), Some(uid))
            .with_context(|| format!("cannot delegate {}", path.display()))?;
    }
    Ok(())
}

/// A user's app.
struct App {
    talk: Conversation,
    user: usize,
    cgroup: String,
}

impl App {
    fn start(user: usize, place: usize, mib: u32) -> Result<App> {
        let cgroup = group(user, place)?;
        let start = Start::in_cgroup(&cgroup);
        let spec = Spec {
            uid: USERS[user],
            mib,
            name: name(user, place),
        };
        let mut talk = start.conversation("users-app", &spec)?;
        talk.hear::<i32>()?;
        Ok(App {
            talk,
            user,
            cgroup: cgroup.path().display().to_string(),
        })
    }

    fn pid(&self) -> i32 {
        self.talk.process.pid()
    }

    /// Sends an order and returns the answer; `None` if the app has died. Its own user caused that,
    /// so it is not a failure.
    fn order(&mut self, order: &Order) -> Option<i32> {
        let text = serde_json::to_string(order).ok()?;
        self.talk.ask(&text).ok()
    }
}

/// State of the scenario.
struct World {
    random: Random,
    calm: Vec<App>,
    busy: Vec<App>,
    daemon: Option<Daemon>,
    /// Distinct violations found so far, at most 20.
    wrong: Vec<String>,
}

impl World {
    fn start(random: Random, daemon: bool) -> Result<World> {
        fs::create_dir_all(SESSIONS)?;
        for (user, text) in SESSION_TEXTS.iter().enumerate() {
            fs::write(format!("{SESSIONS}/{user}"), text).context("cannot write a session")?;
            for place in 0..PLACES.len() {
                let group = group(user, place)?;
                delegate(group.path(), USERS[user])?;
                let slice = group.path().parent().context("the cgroup has no slice")?;
                delegate(slice, USERS[user])?;
            }
        }
        let all = |place, mib| (0..USERS.len()).map(move |user| App::start(user, place, mib));
        let calm: Vec<App> = all(0, CALM_MIB).collect::<Result<_>>()?;
        let busy: Vec<App> = all(1, BUSY_MIB).collect::<Result<_>>()?;
        let pids: Vec<i32> = calm.iter().map(App::pid).collect();
        let daemon = daemon.then(|| Daemon::start(&pids)).transpose()?;
        Ok(World {
            random,
            calm,
            busy,
            daemon,
            wrong: Vec::new(),
        })
    }

    fn note(&mut self, what: String) {
        if !self.wrong.contains(&what) && self.wrong.len() < 20 {
            self.wrong.push(what);
        }
    }

    /// Records a violation for each idle app that is frozen, moved, limited or slowed, except the
    /// taker's.
    fn check_calm(&mut self) {
        for at in 0..self.calm.len() {
            if self.calm[at].user == TAKER {
                continue;
            }
            let what = {
                let app = &mut self.calm[at];
                harmed(app, at == SEATED)
            };
            if let Some(what) = what {
                self.note(format!("{}: {what}", name(at, 0)));
            }
        }
    }

    fn dead(&mut self) -> usize {
        let mut all = self.calm.iter_mut();
        let dead = |app: &mut &mut App| app.user != TAKER && !app.talk.process.alive();
        all.by_ref()
            .filter_map(|mut app| dead(&mut app).then_some(()))
            .count()
    }

    /// Sends a user's app a random order; returns how many MiB the app was to take.
    fn act(&mut self, user: usize, grows: bool) -> Result<u32> {
        if !self.busy[user].talk.process.alive() {
            match App::start(user, 1, BUSY_MIB) {
                Ok(app) => self.busy[user] = app,
                // Its user has taken all memory, so the new app was killed before it answered.
                Err(_) if grows => return Ok(0),
                Err(error) => return Err(error),
            }
        }
        let place = self.random.below(PLACES.len() as u64) as usize;
        let to = group(user, place)?.path().display().to_string();
        let number = self.random.below(1 << 20);
        let names = ["Xorg", "sway", "tmux: server", "x\nkilled: all", "systemd"];
        let order = match (grows, self.random.below(7)) {
            (true, 0..=3) => Order::Grow(STEP_MIB),
            (_, 0) => Order::Rename(names[number as usize % names.len()].to_owned()),
            (_, 1) => Order::Score((number % 999) as i16 - 498),
            (_, 2) => Order::Nice((number % 30) as i32 - 19),
            (_, 3) => Order::Child { orphan: true },
            (_, 4) => Order::Child { orphan: false },
            (_, 5) => Order::Make(format!("{to}/app-inner{}-1.scope", number % 4)),
            _ => Order::Move(to),
        };
        self.busy[user].order(&order);
        Ok(match order {
            Order::Grow(mib) => mib,
            _ => 0,
        })
    }

    /// Users' processes with a negative nice value or oom_score_adj, which need privilege to set.
    fn kept(&self) -> Result<Vec<String>> {
        let mut kept = Vec::new();
        for pid in users_processes()? {
            let Ok(score) = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")) else {
                continue;
            };
            let Ok(nice) = sched::nice(pid) else {
                continue;
            };
            if nice < 0 || score.trim().parse::<i32>().is_ok_and(|score| score < 0) {
                kept.push(format!(
                    "pid {pid}: oom_score_adj {}, nice {nice}",
                    score.trim()
                ));
            }
        }
        Ok(kept)
    }

    fn check_kept(&self, when: &str, reporter: &Reporter) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut kept = self.kept()?;
        while !kept.is_empty() && Instant::now() < deadline {
            sleep(SAMPLE);
            kept = self.kept()?;
        }
        reporter.check(
            format!("{when}, no user's process has a nice value or oom_score_adj below 0"),
            kept.is_empty(),
            format!("{kept:?}\n{}", log_tail()),
        )
    }

    /// Kills the users' processes, except the idle apps, and removes the cgroups that they created.
    /// Cgroup values can then be compared with those at the start.
    fn clear(&mut self) -> Result<()> {
        let spared: Vec<i32> = self.calm.iter().map(App::pid).collect();
        for pid in users_processes()? {
            if !spared.contains(&pid) {
                // The process may have ended meanwhile.
                let _ = send(pid, libc::SIGKILL);
            }
        }
        for app in &mut self.busy {
            app.talk.process.wait(PATIENCE)?;
        }
        for user in 0..USERS.len() {
            for place in 0..PLACES.len() {
                let group = group(user, place)?;
                for number in 0..4 {
                    remove(&group.path().join(format!("app-inner{number}-1.scope")))?;
                }
            }
        }
        Ok(())
    }
}

fn remove(group: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while group.is_dir() {
        if fs::remove_dir(group).is_err() && Instant::now() > deadline {
            bail!("cannot remove {}", group.display());
        }
        sleep(SAMPLE);
    }
    Ok(())
}

/// The harm that another user, or the daemon on that user's behalf, has done to an idle app; `None`
/// if the app is unharmed or dead.
fn harmed(app: &mut App, seated: bool) -> Option<String> {
    let pid = app.pid();
    // Kills are checked in the daemon's history, and the lab compares the number of dead apps with
    // stock Linux.
    if !app.talk.process.alive() {
        return None;
    }
    let stopped = fs::read_to_string(format!("{}/cgroup.freeze", app.cgroup)).ok()?;
    if stopped.trim() != "0" {
        return Some("it is frozen".to_owned());
    }
    let place = cgroup::of(pid).ok()?.display().to_string();
    if place != app.cgroup {
        return Some(format!("it is in {place}"));
    }
    let limit = fs::read_to_string(format!("{}/memory.high", app.cgroup)).ok()?;
    if limit.trim() != "max" {
        return Some(format!("its memory.high is {}", limit.trim()));
    }
    let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?;
    let score: i32 = score.trim().parse().ok()?;
    let nice = sched::nice(pid).ok()?;
    // Only the foreground app, an app of the user at the screen, may have better values.
    let worse = score > 0 || nice > 0 || (!seated && (score, nice) != (0, 0));
    worse.then(|| format!("oom_score_adj {score}, nice {nice}"))
}

/// Idle apps that the daemon has killed, except the taker's.
fn closed_innocents(entries: &[HistoryEntry]) -> Vec<String> {
    let innocent: Vec<String> = (0..TAKER).map(|user| name(user, 0)).collect();
    let kills = entries
        .iter()
        .filter(|one| one.action == MemoryAction::Kill);
    let apps = kills.filter_map(|one| Some(one.app.as_ref()?.name.clone()));
    let closed = apps.filter(|app| innocent.contains(app));
    closed
        .map(|app| format!("{app}: limelightd killed it"))
        .collect()
}

/// Processes of the scenario's users.
fn users_processes() -> Result<Vec<i32>> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_string_lossy().parse::<i32>();
        let owner = entry.metadata().map(|data| data.uid());
        if let (Ok(pid), Ok(owner)) = (pid, owner) {
            if USERS.contains(&owner) {
                found.push(pid);
            }
        }
    }
    Ok(found)
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &UsersChaos) -> Result<()> {
    let with_daemon = match stage.arm {
        Arm::Stock => false,
        Arm::LimelightOnDebian | Arm::Limelight => true,
        arm => bail!("users-chaos does not support arm {arm:?}"),
    };
    let seed = seed(work.seed, stage.repetition);
    let text = format!("seed {seed:#x}, {} operations", work.operations);
    stage.reporter.progress(text)?;
    write_config("[foreground]\ngap_ms = 500\n")?;
    let mut world = World::start(Random::new(seed), with_daemon)?;
    let kernel = Kernel::now()?;
    mingle(&mut world, work.operations)?;
    let taken = press(&mut world, with_daemon)?;
    kernel.report(&mut stage.reporter.values)?;
    stage.reporter.value("taken_mib", taken);
    stage.reporter.value("innocent_dead", world.dead());
    let reporter = &stage.reporter;
    if let Some(daemon) = world.daemon.take() {
        let entries = history()?;
        let closed = closed_innocents(&entries);
        world.wrong.extend(closed);
        reporter.check(
            "no user's app is frozen, killed, moved, slowed or revealed because of another user",
            world.wrong.is_empty(),
            format!("{:#?}\n{entries:?}\n{}", world.wrong, log_tail()),
        )?;
        end(&mut world, daemon, reporter)?;
    }
    world.clear()?;
    fs::remove_dir_all(SESSIONS).context("cannot remove the sessions")?;
    drop(world);
    stage.reporter.finish()
}

/// Users run random operations, while the user at the screen changes apps and presses keys.
fn mingle(world: &mut World, operations: u32) -> Result<()> {
    for _ in 0..operations {
        let user = world.random.below(3) as usize;
        let choice = world.random.below(4);
        if world.daemon.is_none() || choice == 0 {
            world.act(user, false)?;
        } else if choice == 1 {
            let own = [world.calm[SEATED].pid(), world.busy[SEATED].pid()];
            for wrong in watch(&mut world.random, own)? {
                world.note(wrong);
            }
        } else {
            let own = [world.calm[user].pid(), world.busy[user].pid()];
            let all: Vec<i32> = world.calm.iter().map(App::pid).collect();
            if let Some(wrong) = random_request(&mut world.random, user, own, &all)? {
                world.note(wrong);
            }
        }
        world.check_calm();
    }
    Ok(())
}

/// One user takes more memory than the machine has. Returns how many MiB the user's app was to
/// take.
fn press(world: &mut World, with_daemon: bool) -> Result<f64> {
    let begun = Instant::now();
    let mut taken = 0;
    while begun.elapsed() < PRESSURE {
        taken += world.act(TAKER, true)?;
        if with_daemon && world.random.below(4) == 0 {
            let own = [world.calm[TAKER].pid(), world.busy[TAKER].pid()];
            let all: Vec<i32> = world.calm.iter().map(App::pid).collect();
            if let Some(wrong) = random_request(&mut world.random, TAKER, own, &all)? {
                world.note(wrong);
            }
        }
        world.check_calm();
    }
    Ok(f64::from(taken))
}

/// Kills the daemon, after which its watcher must restore all values; then stops a successor.
fn end(world: &mut World, daemon: Daemon, reporter: &Reporter) -> Result<()> {
    let before = daemon.kill_alone()?;
    world.check_kept("after kill -9 and restoration by the watcher", reporter)?;
    let daemon = Daemon::start_after(before)?;
    talk::focus_as(USERS[SEATED], world.busy[SEATED].pid())?;
    let order = Order::Child { orphan: true };
    world.busy[SEATED].order(&order);
    let (code, before): (i32, Before) = daemon.end()?;
    reporter.check(
        "limelightd ends with exit code 0",
        code == 0,
        format!("exit code {code}\n{}", log_tail()),
    )?;
    world.check_kept("after SIGTERM", reporter)?;
    world.clear()?;
    before.check_restored("after SIGTERM", reporter)?;
    let left = Path::new(ROOT).join("limelight.slice").exists();
    reporter.check(
        "the daemon's cgroup tree is gone",
        !left,
        format!("limelight.slice exists: {left}"),
    )
}
