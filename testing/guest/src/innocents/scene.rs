// SPDX-License-Identifier: GPL-2.0-or-later
//! The processes and cgroups of a situation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::actor::{pid_file, socket, Nested, Spec, Words};
use super::lives;
use super::situations::{Act, Cast, InUse, Place, Situation};
use crate::cgroup::{kill_below, Cgroup};
use crate::daemon::Line;
use crate::process::{send, Process, Start};

const SELF: &str = "/bin/limelight-guest";
/// Directory for links to this program under other names.
const PROGRAMS: &str = "/usr/bin";
/// Directory for the files of [`Words`].
const WORDS: &str = "/tmp/innocents";
const SESSIONS: &str = "/run/systemd/sessions";
const INHIBIT: &str = "/run/systemd/inhibit";
/// Timeout; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Top-level cgroups that contain the situations' cgroups.
const SLICES: [&str; 3] = ["user.slice", "system.slice", "machine.slice"];

/// An app of a situation, and what the runner has observed of it.
pub struct Actor {
    pub cast: &'static Cast,
    pub pid: i32,
    pub words: Words,
    /// How often the app was frozen and thawed, and the longest time for which it was frozen.
    pub stops: u32,
    pub stopped_for: Duration,
    stopped_since: Option<Instant>,
    /// The app's progress, and the time at which the progress last changed.
    done: (u64, Instant),
    path: PathBuf,
    group: Option<Cgroup>,
    /// The app's process; `None` if another app started it as its child.
    process: Option<Process>,
}

impl Actor {
    /// Whether the situation must go on because of this app: it is alive, has not finished, and its
    /// act is greedy or finite.
    pub fn is_open(&self) -> bool {
        let act = self.cast.act;
        (act.is_greedy() || act.is_finite()) && self.is_alive() && self.words.done.kib() == 0
    }

    /// Whether the app's process is alive.
    pub fn is_alive(&self) -> bool {
        lives(self.pid)
    }

    /// Path of the app's cgroup below the mount point.
    pub fn group_path(&self) -> String {
        group(self.cast)
    }

    /// Time since the app last made progress.
    pub fn rested_for(&self) -> Duration {
        self.done.1.elapsed()
    }

    /// Samples the app's progress, and whether the app is frozen.
    pub fn sample(&mut self) {
        let beats = self.words.beats.kib();
        if beats != self.done.0 {
            self.done = (beats, Instant::now());
        }
        let Some(group) = &self.group else {
            return;
        };
        let events = fs::read_to_string(group.path().join("cgroup.events"));
        match events.unwrap_or_default().contains("frozen 1") {
            true => {
                let since = *self.stopped_since.get_or_insert_with(Instant::now);
                self.stopped_for = self.stopped_for.max(since.elapsed());
            }
            false => self.stops += u32::from(self.stopped_since.take().is_some()),
        }
    }

    /// Starts the app's process, unless another app starts it as its child.
    fn start_process(&mut self, situation: &'static Situation) -> Result<()> {
        if parent(self.cast).is_some() {
            return Ok(());
        }
        let spec = spec(situation, self.cast);
        let mut command = Command::new(program(self.cast)?);
        command
            .args(["innocent", &serde_json::to_string(&spec)?])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.process = Some(Start::PLAIN.program(command, self.cast.name)?);
        Ok(())
    }

    /// Waits until the app's process has written its PID.
    fn learn_pid(&mut self) -> Result<()> {
        let path = pid_file(&self.path);
        let mut pid = None;
        wait(self.cast.name, || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            pid = text.parse().ok();
            pid.is_some()
        })?;
        self.pid = pid.unwrap_or_default();
        Ok(())
    }

    /// Moves the app into its cgroup and makes it take its memory.
    fn take_place(&mut self) -> Result<()> {
        let group = Cgroup::create(&group(self.cast))?;
        group.set("cgroup.procs", &self.pid.to_string())?;
        self.group = Some(group);
        self.words.phase.add(1);
        Ok(())
    }

    fn wait_for_memory(&self) -> Result<()> {
        wait(self.cast.name, || self.words.beats.kib() > 0)
    }
}

fn wait(name: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            bail!("{name} is not ready after {PATIENCE:?}");
        }
        sleep(POLL);
    }
    Ok(())
}

/// Name of the app that starts this app as its child, if any.
fn parent(cast: &Cast) -> Option<&'static str> {
    match cast.place {
        Place::Tab(of) | Place::With(of) | Place::Piped(of) => Some(of),
        Place::Scope | Place::Detached | Place::Service | Place::Container => None,
    }
}

fn group(cast: &Cast) -> String {
    let (name, uid) = (cast.name, cast.uid);
    let app = |name: &str| {
        format!(
            "user.slice/user-{uid}.slice/app.slice/app-{}.{name}-1.scope",
            cast.class
        )
    };
    match cast.place {
        Place::Scope | Place::Piped(_) => app(name),
        // A child is in its parent's scope, which for tmux is the scope of a terminal's tab.
        Place::With("tmux") => tab("tmux", uid),
        Place::With(of) => app(of),
        Place::Tab(_) | Place::Detached => tab(name, uid),
        Place::Service => format!("system.slice/{name}.service"),
        Place::Container => format!("machine.slice/docker-{name}.scope"),
    }
}

fn tab(name: &str, uid: u32) -> String {
    format!("user.slice/user-{uid}.slice/app.slice/vte-spawn-{name}.scope")
}

/// Path of the app's program. Creates the link under the program's name if it is missing.
fn program(cast: &Cast) -> Result<PathBuf> {
    if cast.program.is_empty() {
        return Ok(SELF.into());
    }
    let path = Path::new(PROGRAMS).join(cast.program);
    if !path.exists() {
        fs::create_dir_all(PROGRAMS)?;
        fs::hard_link(SELF, &path).with_context(|| format!("cannot link {}", path.display()))?;
    }
    Ok(path)
}

fn words(situation: &Situation, name: &str) -> PathBuf {
    Path::new(WORDS).join(format!("{}-{name}", situation.name))
}

fn spec(situation: &'static Situation, cast: &'static Cast) -> Spec {
    let children = situation.cast.iter();
    let children = children.filter(|one| parent(one) == Some(cast.name));
    let mut answering = situation.cast.iter();
    let answering = answering.find(|one| one.act == Act::AnswerSocket);
    Spec {
        mib: cast.mib,
        uid: match cast.place {
            Place::Service | Place::Container => 0,
            _ => cast.uid,
        },
        act: cast.act,
        words: words(situation, cast.name),
        asks: answering
            .filter(|_| cast.asks)
            .map(|one| socket(&words(situation, one.name))),
        children: children
            .map(|one| Nested {
                program: match one.program {
                    "" => SELF.into(),
                    name => Path::new(PROGRAMS).join(name),
                },
                spec: spec(situation, one),
                piped: matches!(one.place, Place::Piped(_)),
            })
            .collect(),
    }
}

/// A situation and its running apps.
pub struct Scene {
    pub situation: &'static Situation,
    pub actors: Vec<Actor>,
}

impl Scene {
    /// Starts the processes, which then wait for their first phase.
    pub fn start(situation: &'static Situation) -> Result<Scene> {
        fs::create_dir_all(WORDS)?;
        let actors = situation.cast.iter().map(|cast| {
            let path = words(situation, cast.name);
            // The previous arm may have left these files.
            for old in [pid_file(&path), socket(&path)] {
                if old.exists() {
                    fs::remove_file(old)?;
                }
            }
            Ok(Actor {
                cast,
                pid: 0,
                words: Words::create(&path)?,
                stops: 0,
                stopped_for: Duration::ZERO,
                stopped_since: None,
                done: (0, Instant::now()),
                path,
                group: None,
                process: None,
            })
        });
        let mut actors: Vec<Actor> = actors.collect::<Result<_>>()?;
        for actor in actors.iter_mut().filter(|actor| !actor.cast.fresh) {
            actor.start_process(situation)?;
        }
        for actor in actors.iter_mut().filter(|actor| !actor.cast.fresh) {
            actor.learn_pid()?;
        }
        Ok(Scene { situation, actors })
    }

    /// The app of this name.
    pub fn actor(&self, name: &str) -> Option<&Actor> {
        self.actors.iter().find(|actor| actor.cast.name == name)
    }

    /// Moves each app into its cgroup, and waits until it has its memory. Fresh apps start later.
    pub fn set_up(&mut self) -> Result<()> {
        // Apps that begin in swap come first and make room for the others.
        let (asleep, awake): (Vec<&mut Actor>, Vec<&mut Actor>) =
            self.actors.iter_mut().partition(|actor| actor.cast.asleep);
        for actor in asleep {
            actor.take_place()?;
            actor.wait_for_memory()?;
            let bytes = (u64::from(actor.cast.mib) << 20).to_string();
            let group = actor.group.as_ref().context("no cgroup")?;
            // The write fails if the kernel reclaims only a part, which is enough.
            let _ = group.set("memory.reclaim", &bytes);
        }
        for actor in awake {
            if actor.cast.fresh {
                // All cgroups must exist before the daemon starts: their values are compared with
                // those after its end.
                Cgroup::create(&group(actor.cast))?;
                continue;
            }
            actor.take_place()?;
            actor.wait_for_memory()?;
        }
        if let Some(uid) = self.situation.locked {
            fs::create_dir_all(SESSIONS)?;
            let text = format!("UID={uid}\nACTIVE=0\nSEAT=seat0\nCLASS=user\nLOCKED_HINT=1\n");
            fs::write(Path::new(SESSIONS).join("2"), text)?;
        }
        for actor in &self.actors {
            if actor.cast.in_use == Some(InUse::Inhibitor) {
                fs::create_dir_all(INHIBIT)?;
                let text = format!("WHAT=sleep\nMODE=block\nPID={}\n", actor.pid);
                fs::write(Path::new(INHIBIT).join(actor.cast.name), text)?;
            }
        }
        Ok(())
    }

    /// Announces to the daemon which apps have unsaved work. The announcement ends when the
    /// returned connection is closed.
    pub fn announce(&self, with_daemon: bool) -> Result<Option<Line>> {
        let unsaved = |actor: &&Actor| actor.cast.in_use == Some(InUse::Unsaved);
        let all: Vec<&Actor> = self.actors.iter().filter(unsaved).collect();
        if all.is_empty() || !with_daemon {
            return Ok(None);
        }
        let mut line = Line::connect()?;
        for actor in all {
            line.tell(&format!(
                r#"{{"op":"in-use","pid":{},"use":"unsaved","on":true}}"#,
                actor.pid
            ))?;
        }
        Ok(Some(line))
    }

    /// Makes all apps act; starts fresh apps first.
    pub fn act(&mut self) -> Result<()> {
        let situation = self.situation;
        for actor in &mut self.actors {
            if actor.cast.fresh {
                actor.start_process(situation)?;
                actor.learn_pid()?;
                actor.take_place()?;
            }
            actor.words.phase.add(1);
        }
        Ok(())
    }

    /// Removes the cgroups and files that a situation leaves.
    pub fn clear(situation: &Situation) -> Result<()> {
        for slice in SLICES {
            kill_below(slice, PATIENCE)?;
        }
        for directory in [SESSIONS, INHIBIT] {
            if Path::new(directory).exists() {
                fs::remove_dir_all(directory)?;
            }
        }
        for cast in situation.cast {
            let upload = words(situation, cast.name).with_extension("upload");
            if upload.exists() {
                fs::remove_file(upload)?;
            }
        }
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for actor in &self.actors {
            if actor.process.is_none() && actor.pid > 0 && lives(actor.pid) {
                let _ = send(actor.pid, libc::SIGKILL);
            }
        }
    }
}
