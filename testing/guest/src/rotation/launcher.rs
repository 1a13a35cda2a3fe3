// SPDX-License-Identifier: GPL-2.0-or-later
//! Brings apps to the foreground: restarts killed ones, informs a running limelightd, and collects
//! statistics.

use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cgroup::Cgroup;
use crate::daemon::{cpu_by_thread, Line};
use crate::memory::now_ns;
use crate::process::Process;
use crate::record::Reporter;
use crate::systemd;

use super::app::Launched;
use super::killer::Killer;
use super::table::Class;
use super::tally::{Charges, Tally};

/// Maximum number of attempts at a launch; an attempt fails if the app dies.
const ATTEMPTS: u32 = 5;
/// Longest time until a dead app's cgroup is empty.
const EMPTY_LIMIT: Duration = Duration::from_secs(30);

/// The apps of an experiment.
pub trait Cast {
    /// A running app.
    type Actor;

    /// Number of apps.
    fn parts(&self) -> usize;

    /// Name and class of an app.
    fn part(&self, index: usize) -> (&'static str, Class);

    /// Starts an app's process in its cgroup; `life` counts its starts.
    fn start(
        &mut self,
        index: usize,
        life: u64,
        cgroup: &Cgroup,
        sent_ns: u64,
    ) -> Result<Self::Actor>;

    /// The main process of an app.
    fn process(actor: &mut Self::Actor) -> &mut Process;

    /// Waits until a newly started app is ready.
    fn started(&mut self, actor: &mut Self::Actor, sent_ns: u64) -> Result<Launched>;

    /// Brings a running app to the foreground, and waits until it is ready.
    fn come_to_front(&mut self, actor: &mut Self::Actor, sent_ns: u64) -> Result<Launched>;

    /// The app's error output, for an error message about its death.
    fn complaint(&self, index: usize) -> String;

    /// Simulates the user's work with the foreground app. Returns the time of its answer in
    /// nanoseconds; 0: the app has nothing to answer.
    fn be_used(&mut self, actor: &mut Self::Actor) -> Result<u64>;
}

/// What the user waited for in an app, in nanoseconds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Visit {
    /// Until the app was ready.
    pub launch_ns: u64,
    /// Until it had answered each key.
    pub answers_ns: Vec<u64>,
}

/// A running app and its cgroup.
struct Life<A> {
    actor: A,
    cgroup: Cgroup,
    /// Last values of the cgroup's counters. They are kept because systemd removes empty cgroups.
    charges: Charges,
}

impl<A> Life<A> {
    fn read_charges(&mut self) {
        if let Some(charges) = Charges::of(self.cgroup.path()) {
            self.charges = charges;
        }
    }
}

/// Launches the apps and keeps their order of use.
pub struct Launcher<C: Cast> {
    /// Slice of the apps' cgroups.
    slice: &'static str,
    cast: C,
    lives: Vec<Option<Life<C::Actor>>>,
    /// Number of starts of each app.
    started: Vec<u64>,
    /// All launched apps, running or dead, least recently used first.
    order: Vec<usize>,
    tally: Tally,
    killer: Option<Killer>,
    daemon: Option<Line>,
    /// PID of the daemon.
    daemon_pid: Option<i32>,
    /// CPU times of the daemon's threads at the end of the last launch after the first round;
    /// `None` before.
    daemon_ready: Option<BTreeMap<String, u64>>,
    /// The request whose answer has not been read yet, and the PID in it.
    unanswered: Option<(String, i32)>,
}

impl<C: Cast> Launcher<C> {
    /// A launcher with no running app. `killer`, if any, kills apps. `daemon` is the PID of a
    /// daemon and a connection to it, over which the launcher reports the foreground app.
    pub fn new(
        cast: C,
        slice: &'static str,
        killer: Option<Killer>,
        daemon: Option<(i32, Line)>,
    ) -> Self {
        let parts = cast.parts();
        let (daemon_pid, daemon) = daemon.unzip();
        Launcher {
            slice,
            cast,
            lives: (0..parts).map(|_| None).collect(),
            started: vec![0; parts],
            order: Vec::new(),
            tally: Tally::default(),
            killer,
            daemon,
            daemon_pid,
            daemon_ready: None,
            unanswered: None,
        }
    }

    /// Ends all apps and reports the statistics.
    pub fn finish(mut self, reporter: &mut Reporter) -> Result<()> {
        self.bury()?;
        let living = self.lives.iter().flatten().count();
        reporter.value("living_apps", living);
        for index in 0..self.lives.len() {
            self.end(index)?;
        }
        self.tally.report(reporter);
        self.killer.take().map_or(Ok(()), Killer::stop)
    }

    /// Brings an app to the foreground, by a cold start if it is dead, and uses it `keys` times,
    /// with pauses of `think` in between. `first`: every app is new in this round.
    pub fn visit(
        &mut self,
        index: usize,
        first: bool,
        keys: u32,
        think: Duration,
    ) -> Result<Visit> {
        self.bury()?;
        self.set_active(true);
        self.order.retain(|&other| other != index);
        self.order.push(index);
        self.tell_killer();
        let daemon_before = self.daemon_pid.map(cpu_by_thread).transpose()?;
        let sent_ns = now_ns();
        let cold = self.lives[index].is_none();
        let mut launched = None;
        for _ in 0..ATTEMPTS {
            match self.attempt(index, sent_ns) {
                Ok(done) => {
                    launched = Some(done);
                    break;
                }
                // The user sees the app vanish and touches it again.
                Err(_) if self.lives[index].is_some() && self.died(index) => {
                    self.tally.failed(self.cast.part(index).1);
                    self.bury()?;
                }
                Err(error) => return Err(error),
            }
        }
        let (name, class) = self.cast.part(index);
        let launched = launched.with_context(|| {
            let complaint = self.cast.complaint(index);
            format!("{name} died in each of {ATTEMPTS} launches {complaint}")
        })?;
        self.tally.launched(class, first, cold, &launched);
        let daemon_after = self.daemon_pid.map(cpu_by_thread).transpose()?;
        if let (false, Some((before, after))) = (first, daemon_before.zip(daemon_after)) {
            if let Some(ready) = &self.daemon_ready {
                self.tally.daemon_worked_later(ready, &before);
            }
            self.tally.daemon_worked(&before, &after);
            self.daemon_ready = Some(after);
        }
        self.hear_daemon()?;
        let mut visit = Visit {
            launch_ns: launched.delay_ns,
            answers_ns: Vec::new(),
        };
        for key in 0..keys {
            if key > 0 {
                sleep(think);
            }
            let Some(life) = &mut self.lives[index] else {
                break;
            };
            match self.cast.be_used(&mut life.actor) {
                Ok(ns) => visit.answers_ns.push(ns),
                Err(error) if !self.died(index) => return Err(error),
                Err(_) => break,
            }
        }
        self.tell_killer();
        self.set_active(false);
        self.bury()?;
        Ok(visit)
    }

    fn attempt(&mut self, index: usize, sent_ns: u64) -> Result<Launched> {
        let cold = self.lives[index].is_none();
        if cold {
            self.lives[index] = Some(self.start(index, sent_ns)?);
        }
        let name = self.cast.part(index).0;
        let alive = || format!("{name} is not alive");
        let life = self.lives[index].as_mut().with_context(alive)?;
        let pid = C::process(&mut life.actor).pid();
        self.tell_daemon(pid)?;
        let life = self.lives[index].as_mut().with_context(alive)?;
        match cold {
            true => self.cast.started(&mut life.actor, sent_ns),
            false => self.cast.come_to_front(&mut life.actor, sent_ns),
        }
    }

    /// Starts an app's process in its own cgroup.
    fn start(&mut self, index: usize, sent_ns: u64) -> Result<Life<C::Actor>> {
        self.started[index] += 1;
        let life = self.started[index];
        let (name, _) = self.cast.part(index);
        let cgroup = Cgroup::create(&format!("{}/app-{name}-{life}.scope", self.slice))?;
        let mut actor = self.cast.start(index, life, &cgroup, sent_ns)?;
        if self.slice == systemd::APPS {
            C::process(&mut actor).set_oom_score_adj(systemd::APP_OOM_SCORE_ADJ)?;
        }
        Ok(Life {
            actor,
            cgroup,
            charges: Charges::default(),
        })
    }

    /// Whether an app has died; waits up to 5 s for the end of its process.
    fn died(&mut self, index: usize) -> bool {
        match &mut self.lives[index] {
            None => true,
            Some(life) => {
                // The app's pipe may break shortly before its process has ended.
                let limit = Duration::from_secs(5);
                C::process(&mut life.actor).wait(limit).is_ok()
            }
        }
    }

    /// Counts the apps that have died, removes their cgroups, and reads the counters of the others.
    fn bury(&mut self) -> Result<()> {
        for index in 0..self.lives.len() {
            let dead = match &mut self.lives[index] {
                Some(life) => !C::process(&mut life.actor).alive(),
                None => false,
            };
            if dead {
                self.tally.killed(self.cast.part(index).1);
                self.end(index)?;
            } else if let Some(life) = &mut self.lives[index] {
                life.read_charges();
            }
        }
        Ok(())
    }

    /// Ends an app, if it is running, and removes its cgroup.
    fn end(&mut self, index: usize) -> Result<()> {
        let Some(mut life) = self.lives[index].take() else {
            return Ok(());
        };
        life.read_charges();
        self.tally.ended(self.cast.part(index).1, life.charges);
        let Life { actor, cgroup, .. } = life;
        drop(actor);
        // Some apps, such as dillo, leave helper processes behind.
        match cgroup.set("cgroup.kill", "1") {
            Err(error) if cgroup.path().exists() => return Err(error),
            _ => {}
        }
        let deadline = now_ns() + EMPTY_LIMIT.as_nanos() as u64;
        while let Err(error) = fs::remove_dir(cgroup.path()) {
            if error.kind() == std::io::ErrorKind::NotFound {
                break;
            }
            if now_ns() > deadline {
                return Err(error)
                    .with_context(|| format!("cannot remove {}", cgroup.path().display()));
            }
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn set_active(&self, active: bool) {
        if let Some(killer) = &self.killer {
            killer.set_active(active);
        }
    }

    /// Tells the killer which apps it may kill: all running apps except the foreground app, least
    /// recently used first.
    fn tell_killer(&self) {
        if let Some(killer) = &self.killer {
            let others = &self.order[..self.order.len() - 1];
            let living = others.iter().filter_map(|&index| {
                let life = self.lives[index].as_ref()?;
                Some(life.cgroup.path().to_owned())
            });
            killer.set_order(living.collect());
        }
    }

    /// Reports the foreground app to the daemon; a no-op in arms without a daemon.
    fn tell_daemon(&mut self, pid: i32) -> Result<()> {
        self.hear_daemon()?;
        if let Some(daemon) = &mut self.daemon {
            let request =
                format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"launcher"}}"#);
            daemon.send(&request)?;
            self.unanswered = Some((request, pid));
        }
        Ok(())
    }

    /// Reads the daemon's answer to the last report. The daemon refuses a report of an app that has
    /// died meanwhile; that is not an error.
    fn hear_daemon(&mut self) -> Result<()> {
        let (Some(daemon), Some((request, pid))) = (&mut self.daemon, self.unanswered.take())
        else {
            return Ok(());
        };
        let answer = daemon.hear(&request);
        let Some(&front) = self.order.last() else {
            return answer;
        };
        // The app may have been restarted since the report.
        let same = |life: &mut Life<C::Actor>| C::process(&mut life.actor).pid() == pid;
        let lives = self.lives[front].as_mut().is_some_and(same);
        match answer {
            Err(error) if lives && !self.died(front) => Err(error),
            _ => Ok(()),
        }
    }
}
