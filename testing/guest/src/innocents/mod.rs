// SPDX-License-Identifier: GPL-2.0-or-later
//! Everyday situations in which memory runs short, on stock Linux and with the daemon. With the
//! daemon, no app that did nothing wrong may be worse off than on stock Linux.

pub mod actor;
mod scene;
mod situations;

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use limelight_proto::{HistoryEntry, MemoryAction};

pub use self::situations::Day;

use self::scene::{Actor, Scene};
use self::situations::{Situation, ALL};
use crate::daemon::{self, focus, history, Daemon};
use crate::dispatch::Stage;
use crate::plan::{Arm, Swap};
use crate::scenario::Innocents;
use crate::swap_app::CLASSES;

/// The daemon treats an app as starting for 10 s. All processes of a day, except those of fresh
/// apps, are older than that when the day's first situation begins.
const AGE: Duration = Duration::from_secs(11);
/// Shortest duration of a situation without a greedy app, and longest duration of any situation.
const LASTS: Duration = Duration::from_secs(7);
const LASTS_MOST: Duration = Duration::from_secs(40);
/// Time for which apps are still sampled after the last act has ended: an app that the shortage
/// kills dies within this time.
const AFTERMATH: Duration = Duration::from_millis(1500);
const SAMPLE: Duration = Duration::from_millis(25);

/// Maximum time for which an app may be frozen or make no progress; an app that exceeds it has
/// lost something. It is twice the longest time for which the daemon freezes an app.
const STOPPED_MOST: Duration = Duration::from_secs(4);
/// Maximum wait for an answer, and maximum delay of a timer, in milliseconds; more counts as a
/// hang. On stock Linux both are 0.1 s.
const LATE_MOST_MS: u64 = 5000;

/// Runs the situations of a day that are meant for a machine with swap, or for one without.
pub fn run(mut stage: Stage, work: &Innocents) -> Result<()> {
    let daemon = match stage.arm {
        Arm::Stock => false,
        Arm::LimelightOnDebian | Arm::Limelight => true,
        arm => bail!("innocents does not support arm {arm:?}"),
    };
    daemon::write_config(CLASSES)?;
    let swap = !matches!(stage.machine.swap, Swap::None);
    let here = |one: &&Situation| one.day == work.day && one.swap == swap;
    let begun = Instant::now();
    let scenes = ALL.iter().filter(here).map(Scene::start);
    let scenes: Vec<Scene> = scenes.collect::<Result<_>>()?;
    sleep(AGE.saturating_sub(begun.elapsed()));
    for scene in scenes {
        let name = scene.situation.name;
        stage.reporter.progress(name)?;
        let took = Instant::now();
        play(&mut stage, scene, daemon)?;
        let elapsed = took.elapsed().as_secs_f64() * 1000.0;
        stage.reporter.value(format!("{name}.time_ms"), elapsed);
    }
    stage.reporter.finish()
}

/// Plays one situation, and reports what each app lost.
fn play(stage: &mut Stage, mut scene: Scene, with_daemon: bool) -> Result<()> {
    scene.set_up()?;
    let daemon = with_daemon.then(|| Daemon::start(&[])).transpose()?;
    let announced = scene.announce(with_daemon)?;
    if with_daemon {
        focus(scene.actors[0].pid)?;
    }
    scene.act()?;
    watch(&mut scene, with_daemon)?;
    let history = match with_daemon {
        true => Some(history()?),
        false => None,
    };
    judge(stage, &scene, history.as_deref())?;
    let situation = scene.situation;
    drop((announced, scene));
    daemon.map_or(Ok(()), |daemon| daemon.stop(&stage.reporter))?;
    Scene::clear(situation)
}

/// Samples the apps until the situation is over, or until [`LASTS_MOST`].
fn watch(scene: &mut Scene, with_daemon: bool) -> Result<()> {
    let begun = Instant::now();
    let mut then = scene.situation.then.filter(|_| with_daemon);
    let mut over: Option<Instant> = None;
    loop {
        let at = begun.elapsed();
        for actor in &mut scene.actors {
            actor.sample();
        }
        if let Some((_, name)) = then.filter(|(ms, _)| at >= Duration::from_millis(*ms)) {
            then = None;
            // The app may have died of the shortage.
            if let Some(actor) = scene.actor(name).filter(|actor| actor.is_alive()) {
                focus(actor.pid)?;
            }
        }
        let open = |actor: &&Actor| actor.is_open();
        if scene.actors.iter().find(open).is_none() {
            over.get_or_insert_with(Instant::now);
        }
        let calm = over.is_some_and(|over| over.elapsed() >= AFTERMATH);
        let greedy = scene.actors.iter().any(|one| one.cast.act.is_greedy());
        if calm && (greedy || at >= LASTS) || at >= LASTS_MOST {
            return Ok(());
        }
        sleep(SAMPLE);
    }
}

/// Reports what each app lost. `history` is the daemon's history; `None` on stock Linux. With a
/// history, also checks which apps the daemon killed and froze. Kills by the kernel's OOM killer
/// are counted separately, because they also happen on stock Linux.
fn judge(stage: &mut Stage, scene: &Scene, history: Option<&[HistoryEntry]>) -> Result<()> {
    let name = scene.situation.name;
    let kills = history.unwrap_or_default().iter();
    let kills = kills.filter(|entry| entry.action == MemoryAction::Kill);
    let kills: Vec<&HistoryEntry> = kills.collect();
    let mut closed = Vec::new();
    let mut stopped = Vec::new();
    for actor in &scene.actors {
        let app = actor.cast.name;
        if actor.cast.act.is_greedy() {
            let ended = usize::from(!actor.is_alive());
            stage.reporter.value(format!("{name}.{app}_ended"), ended);
            continue;
        }
        let died = !actor.is_alive();
        let was_closed = died && kills.iter().any(|kill| actor.may_be_target_of(kill));
        if was_closed {
            closed.push(app);
        }
        let by_kernel = usize::from(died && !was_closed);
        stage.reporter.value(format!("{name}.{app}_oom"), by_kernel);
        if actor.cast.never_stopped && actor.stops > 0 {
            stopped.push(app);
        }
        let lost = actor.lost();
        let lost_at_all = usize::from(was_closed || (!died && !lost.is_empty()));
        stage
            .reporter
            .value(format!("{name}.{app}_lost"), lost_at_all);
        if !lost.is_empty() {
            stage
                .reporter
                .progress(format!("{name}: {app} {}", lost.join(", ")))?;
        }
    }
    if history.is_none() {
        return Ok(());
    }
    let notes = || format!("{history:?}\n{}", daemon::log_tail());
    let takes = scene.actors.iter().any(|actor| actor.cast.act.is_greedy());
    stage.reporter.check(
        match takes {
            true => format!("{name}: limelightd kills no app except the one that took the memory"),
            false => format!("{name}: limelightd kills no app"),
        },
        closed.is_empty(),
        format!("killed apps: {closed:?}; {}", notes()),
    )?;
    stage.reporter.check(
        format!("{name}: no app is frozen if it is in use or another process waits for it"),
        stopped.is_empty(),
        format!("frozen apps: {stopped:?}; {}", notes()),
    )
}

impl Actor {
    /// Whether this kill may have ended the app. An entry without a cgroup may be about any app: if
    /// an app has no cgroup of its own, the history names none.
    fn may_be_target_of(&self, kill: &HistoryEntry) -> bool {
        let target = kill.app.as_ref().and_then(|app| app.cgroup.as_deref());
        target.is_none_or(|path| path == format!("/{}", self.group_path()))
    }

    /// Describes what the app lost, one text for each loss; empty if it lost nothing.
    fn lost(&self) -> Vec<String> {
        let mut lost = Vec::new();
        if !self.is_alive() {
            lost.push("died".to_owned());
            return lost;
        }
        if self.stopped_for > STOPPED_MOST {
            lost.push(format!("was frozen for {:?}", self.stopped_for));
        }
        let late = self.words.late.kib();
        if late > LATE_MOST_MS {
            lost.push(format!("waited {late} ms"));
        }
        // On a busy host, an app that still makes progress is only slow.
        let rests = self.rested_for() > STOPPED_MOST;
        if self.cast.act.is_finite() && self.words.done.kib() == 0 && rests {
            lost.push("did not finish".to_owned());
        }
        lost
    }
}

/// Whether a process exists and is not a zombie.
fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with(['Z', 'X'])
}
