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
/// Where programs with another name are: links to this one.
const PROGRAMS: &str = "/usr/bin";
const WORDS: &str = "/tmp/innocents";
const SESSIONS: &str = "/run/systemd/sessions";
const INHIBIT: &str = "/run/systemd/inhibit";
/// Only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Top-level cgroups in which situations put their own.
const SLICES: [&str; 3] = ["user.slice", "system.slice", "machine.slice"];

/// An app of a situation, and what has been seen of it.
pub struct Actor {
    pub cast: &'static Cast,
    pub pid: i32,
    pub words: Words,
    /// How often it was stopped, and for how long at most.
    pub stops: u32,
    pub stopped_for: Duration,
    stopped_since: Option<Instant>,
    /// What it had done when it last did something, and when that was.
    done: (u64, Instant),
    path: PathBuf,
    group: Option<Cgroup>,
    /// The other actors' children have none.
    process: Option<Process>,
}

impl Actor {
    /// Whether it has yet to do what ends by itself.
    pub fn is_open(&self) -> bool {
        let act = self.cast.act;
        (act.is_greedy() || act.is_finite()) && self.is_alive() && self.words.done.kib() == 0
    }

    /// Whether it runs, or could.
    pub fn is_alive(&self) -> bool {
        lives(self.pid)
    }

    /// Path of its cgroup below the mount point.
    pub fn group_path(&self) -> String {
        group(self.cast)
    }

    /// For how long it has done nothing.
    pub fn rested_for(&self) -> Duration {
        self.done.1.elapsed()
    }

    /// Looks whether it is stopped now, and whether it did something.
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

    /// Starts its process, if it is nothing's child; a fresh one starts last of all.
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

    /// Waits until its process has said its number.
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

    /// Moves it into its cgroup and has it take its memory.
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

/// The app whose child an app is.
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
        // A child of a normal app, or of one that has left its terminal.
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

/// The program by the name under which the app runs it.
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

/// A situation with its processes.
pub struct Scene {
    pub situation: &'static Situation,
    pub actors: Vec<Actor>,
}

impl Scene {
    /// Starts the processes, which wait.
    pub fn start(situation: &'static Situation) -> Result<Scene> {
        fs::create_dir_all(WORDS)?;
        let actors = situation.cast.iter().map(|cast| {
            let path = words(situation, cast.name);
            // The arm before this one may have left them.
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

    /// One of its actors.
    pub fn actor(&self, name: &str) -> Option<&Actor> {
        self.actors.iter().find(|actor| actor.cast.name == name)
    }

    /// Puts each app into its cgroup, with its memory.
    pub fn set_up(&mut self) -> Result<()> {
        // Those of which a large part is in swap at first make room for the others.
        let (asleep, awake): (Vec<&mut Actor>, Vec<&mut Actor>) =
            self.actors.iter_mut().partition(|actor| actor.cast.asleep);
        for actor in asleep {
            actor.take_place()?;
            actor.wait_for_memory()?;
            let bytes = (u64::from(actor.cast.mib) << 20).to_string();
            let group = actor.group.as_ref().context("a cgroup")?;
            // It reclaims less where not everything can be.
            let _ = group.set("memory.reclaim", &bytes);
        }
        for actor in awake {
            if actor.cast.fresh {
                // All cgroups are there before the daemon, so that all values are compared.
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

    /// Says to the daemon which apps have unsaved work, for as long as the connection is open.
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

    /// Has all of them do what they do.
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

    /// Removes what a situation leaves.
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
