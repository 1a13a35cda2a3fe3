// SPDX-License-Identifier: GPL-2.0-or-later
//! The guard: a thread that watches how short memory is, and closes an app when memory runs out.
//!
//! Between the decision to kill and the moment the victim's memory is free, no step may itself need
//! memory. So everything is prepared: the candidates in kill order, with all descriptors that a
//! kill needs; the gauge's files, open; buffers, a stack and a ring of reports, prefaulted and
//! locked in memory. From the crossing of the threshold to the freed memory the thread allocates
//! nothing and depends on no other process.
//!
//! `swap`'s policy plans which apps may be killed, and the daemon's loop [arms](Guard::arm) them.
//! [`order::pick`](limelight_core::policy::swap::order::pick) chooses the victim at the last
//! moment, and [`Shortage`] decides whether to kill. The thread notifies the loop through a
//! descriptor; the loop does the slow work: the log, the history, the announcement.
//!
//! The thread sleeps while memory cannot run out: see [`alarm`].

mod alarm;
mod pause;
mod takers;
mod target;
mod watch;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use limelight_core::model::shortage::{Gauge, Level, Shortage, Thresholds};
use limelight_core::model::{App, AppKey, ProcessId};
use limelight_core::policy::swap::order::Candidate;
use limelight_sys::gauge::GaugeFiles;
use limelight_sys::psi::{StallKind, Trigger};
use rustix::event::{eventfd, EventfdFlags};
use tracing::{debug, info, warn};

use crate::reconcile::gate::Gate;
use crate::system::unusable::Unusable;
use crate::system::System;
use alarm::Alarm;
use takers::{Slice, Takers};
pub use target::{Killed, Target};
use watch::Watch;

/// Maximum number of apps that are armed at a time; the last ones in kill order are left out.
const ARMED_MAX: usize = 128;

/// Maximum number of reports that wait for the event loop; further ones are only counted.
const REPORTS_MAX: usize = 16;

/// Stack of the thread, in bytes. Most of it is prefaulted.
const STACK: usize = 128 << 10;

const PRESSURE: &str = "pressure/memory";

/// Stalls of 1 ms within a window wake the thread, at most once per window. The window is the
/// shortest that the kernel allows. Stalls of `kswapd` count.
const STALL: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(500);

/// An app to arm.
#[derive(Debug, Clone, Copy)]
pub struct Victim<'a> {
    /// The app as the policy ranks it.
    pub candidate: Candidate,
    /// The app.
    pub app: &'a App,
    /// Its processes, ascending.
    pub members: &'a [ProcessId],
}

/// A kill. All times are since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The victim.
    pub candidate: Candidate,
    /// The level that required the kill.
    pub level: Level,
    /// Time of the last gauge at which no kill was due.
    pub before: Duration,
    /// Time of the gauge at which the kill was due.
    pub crossed: Duration,
    /// When the victim was sent SIGTERM; `None` if memory did not allow a wait for its exit.
    pub asked: Option<Duration>,
    /// When the victim had exited by itself; else when SIGKILL had been sent and the release of the
    /// memory had been requested.
    pub killed: Duration,
    /// When the memory was free, or 100 ms after the victim's exit if another process still shared
    /// it then; `None`: neither happened within a second, or before the next kill was due.
    pub freed: Option<Duration>,
    /// The machine's memory at the decision.
    pub gauge: Gauge,
    /// Memory that the app held at the kill, in bytes: anonymous memory and swap.
    pub held: u64,
    /// Bytes by which the app had grown, if that is why it was chosen.
    pub burst: Option<u64>,
    /// Decrease of the memory that is charged to the app, in bytes.
    pub bytes: u64,
    /// How the app was killed; `None` if it exited by itself.
    pub how: Option<Killed>,
}

/// The event loop's handle of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    /// Open targets of the armed apps, reused for apps that are armed again.
    open: BTreeMap<AppKey, Arc<Target>>,
    /// Open slices of the followed users.
    slices: Vec<Arc<Slice>>,
    thread: Option<JoinHandle<()>>,
    /// How stalls and work wake the thread, as human-readable text.
    by_stall: String,
    by_work: String,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    wake: OwnedFd,
    /// Wakes the loop.
    told: OwnedFd,
}

#[derive(Debug)]
struct State {
    shortage: Shortage,
    /// Page cache that counts as available but is kept from reclaim, in bytes.
    kept: u64,
    armed: Armed,
    takers: Takers,
    reports: Reports,
    /// How long a victim may take to exit by itself.
    grace: Duration,
    /// The victim that was asked to exit, or that exits late after it was killed.
    closing: Option<AppKey>,
    spared: SparedRing,
    alarms: Alarms,
    /// While set, no app is killed.
    paused: bool,
    stop: bool,
}

/// Alarms passed between the thread and the loop. Only the loop opens and closes them.
#[derive(Debug, Default)]
struct Alarms {
    fresh: Option<Alarm>,
    spent: Option<Alarm>,
    /// Whether the event loop should try again to open an alarm, because CPU hotplug was in
    /// progress at the last attempt.
    again: bool,
}

/// The apps that may be killed, in order. The three vectors run in parallel.
#[derive(Debug, Default)]
struct Armed {
    candidates: Vec<Candidate>,
    targets: Vec<Arc<Target>>,
    /// Memory that each app has allocated, in bytes.
    held: Vec<u64>,
    /// Whether `held` was measured since the apps were armed. Without that measurement the growth
    /// of the apps is unknown, and the wrong one could be killed.
    measured: bool,
}

impl Armed {
    /// Measures how much memory each app has allocated now.
    fn measure(&mut self) {
        for (held, target) in self.held.iter_mut().zip(&self.targets) {
            *held = target.held().allocated();
        }
        self.measured = true;
    }

    /// The same app, if the event loop has opened it again since it opened `target`.
    fn newer(&self, target: &Arc<Target>) -> Option<Arc<Target>> {
        let same = |armed: &&Arc<Target>| armed.key() == target.key();
        let armed = self.targets.iter().find(same)?;
        (!Arc::ptr_eq(armed, target)).then(|| Arc::clone(armed))
    }

    /// Removes and returns one app, and the bytes that it had allocated at the last measurement.
    fn remove(&mut self, place: usize) -> (Candidate, Arc<Target>, u64) {
        let held = self.held.remove(place);
        let candidate = self.candidates.remove(place);
        (candidate, self.targets.remove(place), held)
    }
}

/// Reports that the event loop has not read yet, and how many were lost because the ring was full.
#[derive(Debug)]
struct Reports {
    ring: [Option<Report>; REPORTS_MAX],
    count: usize,
    lost: u32,
}

impl Reports {
    fn new() -> Reports {
        Reports {
            ring: [None; REPORTS_MAX],
            count: 0,
            lost: 0,
        }
    }

    fn push(&mut self, report: Report) {
        match self.ring.get_mut(self.count) {
            Some(slot) => {
                *slot = Some(report);
                self.count += 1;
            }
            None => self.lost += 1,
        }
    }

    fn take(&mut self) -> Reports {
        std::mem::replace(self, Reports::new())
    }
}

/// Why a chosen victim was not killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// The gate refused the kill.
    Refused,
    /// The victim was asked to exit, and memory is no longer short.
    NoShortage,
    /// The victim was asked to exit, and then the daemon was paused.
    Paused,
}

/// Victims that were spared since the event loop last read this list. Apps that do not fit are left
/// out.
#[derive(Debug, Clone, Copy, Default)]
struct SparedRing([Option<(AppKey, Spared)>; REPORTS_MAX]);

impl SparedRing {
    fn push(&mut self, app: AppKey, why: Spared) {
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some((app, why));
        }
    }
}

impl Shared {
    /// The state before an app is armed. `again`: see [`Alarms::again`].
    fn new(thresholds: Thresholds, alarm: Option<Alarm>, again: bool) -> Result<Shared, Unusable> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = || eventfd(0, flags).map_err(Unusable::NoEventfd);
        Ok(Shared {
            state: Mutex::new(State {
                shortage: Shortage::new(thresholds),
                kept: 0,
                armed: Armed::default(),
                takers: Takers::default(),
                reports: Reports::new(),
                grace: Duration::ZERO,
                closing: None,
                spared: SparedRing::default(),
                alarms: Alarms {
                    fresh: alarm,
                    spent: None,
                    again,
                },
                paused: false,
                stop: false,
            }),
            wake: event()?,
            told: event()?,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets which app is being closed, and tells the loop.
    fn set_closing(&self, app: Option<AppKey>) {
        self.state().closing = app;
        self.tell_loop();
    }

    fn tell_loop(&self) {
        // A full counter means that a wakeup is pending already.
        let _ = rustix::io::write(&self.told, &1u64.to_ne_bytes());
    }

    fn wake_thread(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Guard {
    /// Starts the thread, and returns when it is prepared. No app is armed yet. `gate` is checked
    /// right before each kill.
    ///
    /// # Errors
    ///
    /// procfs lacks `meminfo` or `vmstat`, or a descriptor or the thread could not be created.
    pub fn start(system: &System, thresholds: Thresholds, gate: Gate) -> Result<Guard, Unusable> {
        let files = GaugeFiles::open(&system.proc)?;
        let trigger = Trigger::arm(system.proc.dir(), PRESSURE, StallKind::Some, STALL, WINDOW);
        let (alarm, by_work, again) = open_alarm(system);
        let by_stall = match &trigger {
            Ok(trigger) => format!(
                "any stall on memory within {} ms",
                trigger.window().as_millis()
            ),
            Err(error) => format!("no PSI trigger ({error})"),
        };
        let shared = Arc::new(Shared::new(thresholds, alarm, again)?);
        let watch = Watch::new(Arc::clone(&shared), files, trigger.ok(), gate);
        let ready = Arc::new(Barrier::new(2));
        let thread_ready = Arc::clone(&ready);
        let thread = std::thread::Builder::new()
            .name("limelight-guard".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                watch.prepare();
                thread_ready.wait();
                drop(thread_ready);
                watch.run();
            })
            .map_err(Unusable::NoThread)?;
        ready.wait();
        let guard = Guard {
            shared,
            open: BTreeMap::new(),
            slices: Vec::new(),
            thread: Some(thread),
            by_stall,
            by_work,
        };
        info!("guard: {}", guard.detail());
        Ok(guard)
    }

    /// How the thread is woken, as human-readable text.
    pub fn detail(&self) -> String {
        format!("woken by {}, and by {}", self.by_stall, self.by_work)
    }

    /// Opens another alarm when the online CPUs have changed. Call this when the guard's descriptor
    /// is readable, and after [`Guard::reports`], which clears the notification. In the other
    /// order, a notification raised between the two calls would be lost.
    pub fn renew_alarm(&mut self, system: &System) {
        let (spent, again) = {
            let alarms = &mut self.shared.state().alarms;
            (alarms.spent.take(), std::mem::take(&mut alarms.again))
        };
        if spent.is_none() && !again {
            return;
        }
        let (alarm, by_work, again) = open_alarm(system);
        self.by_work = by_work;
        {
            let alarms = &mut self.shared.state().alarms;
            alarms.fresh = alarm;
            alarms.again = again;
        }
        // With `again` set, the thread notifies the loop again at its next turn.
        if !again {
            info!(
                "guard: the set of online processors has changed; {}",
                self.detail()
            );
            self.shared.wake_thread();
        }
    }

    /// Arms these apps in kill order, and no other apps. Skips apps that have ended, apps that
    /// contain init, this daemon or its watcher, and apps beyond the first 128. Returns how many
    /// are armed.
    pub fn arm<'a>(
        &mut self,
        system: &System,
        victims: impl IntoIterator<Item = Victim<'a>>,
    ) -> usize {
        let vital_pids = system.vital_pids();
        let mut armed = Armed {
            candidates: Vec::with_capacity(ARMED_MAX),
            targets: Vec::with_capacity(ARMED_MAX),
            held: Vec::with_capacity(ARMED_MAX),
            measured: false,
        };
        let mut open = BTreeMap::new();
        for victim in victims.into_iter().take(ARMED_MAX) {
            let vital = |id: &ProcessId| vital_pids.contains(&id.pid);
            if victim.members.iter().any(vital) {
                warn!(
                    "{} contains init or limelightd, so it is never killed",
                    victim.app.name
                );
                continue;
            }
            let known = self.open.remove(&victim.app.key);
            let known = known.filter(|known| known.is_of(victim.app, victim.members));
            let target =
                known.or_else(|| Target::open(system, victim.app, victim.members).map(Arc::new));
            let Some(target) = target.filter(|target| !target.is_gone()) else {
                debug!("{} has ended, so it is not armed", victim.app.name);
                continue;
            };
            open.insert(victim.app.key, Arc::clone(&target));
            armed.candidates.push(victim.candidate);
            armed.targets.push(target);
            armed.held.push(0);
        }
        let count = armed.targets.len();
        let before = std::mem::replace(&mut self.shared.state().armed, armed);
        // The old descriptors are closed here, not in the thread.
        drop(before);
        self.open = open;
        count
    }

    /// The app that is being closed and takes its time to exit.
    pub fn closing(&self) -> Option<AppKey> {
        self.shared.state().closing
    }

    /// Sets the growth of each user, in bytes, as of a scan that has just ended. At a kill, the
    /// thread adds the growth since.
    pub fn set_users_taken(&mut self, system: &System, taken: &[(u32, u64)]) {
        // Opening files may wait for memory, so the thread's lock is not held meanwhile.
        takers::open_slices(system, &mut self.slices, taken);
        let takers = Takers::new(&self.slices, taken);
        let before = std::mem::replace(&mut self.shared.state().takers, takers);
        // The old descriptors are closed here, not in the thread.
        drop(before);
    }

    /// Disarms all apps.
    pub fn disarm(&mut self) {
        let before = std::mem::take(&mut self.shared.state().armed);
        drop(before);
        self.open.clear();
    }

    /// Sets the thresholds.
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.shared.state().shortage.set_thresholds(thresholds);
        self.shared.wake_thread();
    }

    /// Sets how long a victim may take to exit by itself after SIGTERM, unless memory is exhausted; 0:
    /// victims are killed at once.
    pub fn set_grace(&self, grace: Duration) {
        self.shared.state().grace = grace;
    }

    /// Kills no app while paused.
    pub fn set_paused(&self, paused: bool) {
        self.shared.state().paused = paused;
        self.shared.wake_thread();
    }

    /// Sets how many bytes of page cache count as available but are kept from reclaim.
    pub fn set_kept(&self, bytes: u64) {
        let before = std::mem::replace(&mut self.shared.state().kept, bytes);
        // The headroom shrinks at once without any work of a task, so the alarm would not ring.
        if bytes > before {
            self.shared.wake_thread();
        }
    }

    /// Sets how many bytes of background apps can still be swapped out. `swapped_out` is the value
    /// of `pswpout` at the time of that measurement.
    pub fn set_swappable(&self, bytes: u64, swapped_out: u64) {
        let mut state = self.shared.state();
        state.shortage.set_swappable(bytes, swapped_out);
    }

    /// How short memory is.
    pub fn shortage(&self) -> Shortage {
        self.shared.state().shortage
    }

    /// Victims that were spared since the last call.
    pub fn spared(&self) -> Vec<(AppKey, Spared)> {
        let spared = std::mem::take(&mut self.shared.state().spared);
        spared.0.into_iter().flatten().collect()
    }

    /// The kills since the last call, oldest first. Call this when the guard's descriptor is
    /// readable. The call also clears the notification, so that the next change of the level or the
    /// next kill raises one again.
    pub fn reports(&self) -> Vec<Report> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.shared.told, &mut count);
        let taken = self.shared.state().reports.take();
        if taken.lost > 0 {
            warn!("{} reports of kills were lost", taken.lost);
        }
        taken.ring.into_iter().flatten().collect()
    }
}

/// Opens an alarm if possible. Also returns how work then wakes the guard, as human-readable text,
/// and whether to try again.
fn open_alarm(system: &System) -> (Option<Alarm>, String, bool) {
    match Alarm::open(system) {
        Ok(alarm) => {
            let how = "any task that runs long enough to take the memory that is left";
            (Some(alarm), how.to_owned(), false)
        }
        Err(missing) => {
            let how = format!(
                "a timer, up to a hundred times a second where most memory is free, because the \
                 running time of tasks cannot be counted ({})",
                missing.why
            );
            (None, how, missing.passing)
        }
    }
}

/// Readable when the level has changed, a kill (also by the kernel) or a refusal was noted, or
/// another alarm must be opened.
impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.told.as_fd()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.state().stop = true;
        self.shared.wake_thread();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
