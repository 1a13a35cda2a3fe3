// SPDX-License-Identifier: GPL-2.0-or-later
//! The guard: a thread that reads how short memory is, and kills when it is time.
//!
//! Between the moment at which an app has to die and the moment at which its memory is free,
//! nothing may stand that itself wants memory. So everything is there before: who may be killed in
//! which order, with all descriptors that it takes; the files of the gauge, open; buffers, a stack
//! and a ring of reports that were written to and are locked in memory. From the crossing of the
//! threshold to the freed memory the thread allocates nothing, and asks nobody.
//!
//! Who may be killed at all is planned by `swap`'s policy and [armed](Guard::arm) by the daemon's
//! loop; which of them it is, [`order::pick`](limelight_core::policy::swap::order::pick) says at
//! the last moment, and whether, [`Shortage`]. The loop is told through a descriptor, and does
//! what may take its time: the log, the history, the announcement.
//!
//! While nothing happens it sleeps: see [`alarm`].

mod alarm;
mod pause;
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

use crate::doors::Doors;
use crate::gate::Gate;
use alarm::Alarm;
pub use target::{Killed, Target};
use watch::Watch;

/// Most apps that are armed at a time; those that would be killed last are left out.
const ARMED_MAX: usize = 128;

/// Reports that the loop has not taken yet. More than one a second does not happen.
const REPORTS_MAX: usize = 16;

/// Stack of the thread, in bytes, and how much of it is made present ahead.
const STACK: usize = 128 << 10;

const PRESSURE: &str = "pressure/memory";

/// Any stall wakes, once in the shortest window that the kernel has: `kswapd` itself counts.
const STALL: Duration = Duration::from_millis(1);
const WINDOW: Duration = Duration::from_millis(500);

/// An app that is armed.
#[derive(Debug, Clone, Copy)]
pub struct Victim<'a> {
    /// As the policy ranks it.
    pub candidate: Candidate,
    /// The app.
    pub app: &'a App,
    /// Its processes, ascending.
    pub members: &'a [ProcessId],
}

/// A kill. All times since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Whom it hit.
    pub candidate: Candidate,
    /// The level that asked for it.
    pub level: Level,
    /// The last gauge at which nothing was due yet.
    pub before: Duration,
    /// The gauge at which it was due.
    pub crossed: Duration,
    /// When the signals had been sent and the memory asked for.
    pub killed: Duration,
    /// When the memory was free; `None`: it was not within a second.
    pub freed: Option<Duration>,
    /// The machine's memory when it was decided.
    pub gauge: Gauge,
    /// What the app held then, in bytes: anonymous memory and what it had in swap.
    pub held: u64,
    /// Bytes by which it had grown, if that is why.
    pub burst: Option<u64>,
    /// What is charged to it less than before, in bytes.
    pub bytes: u64,
    /// How it was done.
    pub how: Killed,
}

/// The thread, and the loop's side of it. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    /// What is open, for those that are armed again.
    open: BTreeMap<AppKey, Arc<Target>>,
    thread: Option<JoinHandle<()>>,
    /// How it is woken by stalls, and by work.
    by_stall: String,
    by_work: String,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Tells the thread.
    wake: OwnedFd,
    /// Tells the loop.
    told: OwnedFd,
}

#[derive(Debug)]
struct State {
    shortage: Shortage,
    /// Page cache that counts as available but is kept, in bytes.
    kept: u64,
    armed: Armed,
    reports: Reports,
    /// Apps that the gate did not let it kill.
    refused: Refused,
    alarms: Alarms,
    stop: bool,
}

/// Alarms on their way between the thread and the loop, which opens and closes them.
#[derive(Debug, Default)]
struct Alarms {
    fresh: Option<Alarm>,
    spent: Option<Alarm>,
    /// There is none for the moment, and the loop is to try again.
    again: bool,
}

/// Who may be killed, in order. The three go side by side.
#[derive(Debug, Default)]
struct Armed {
    candidates: Vec<Candidate>,
    targets: Vec<Arc<Target>>,
    /// What each has allocated, in bytes.
    held: Vec<u64>,
    /// That has been looked at since they were armed: before, nobody of them has grown, and the wrong one would die.
    measured: bool,
}

impl Armed {
    /// Looks at what each has allocated now.
    fn measure(&mut self) {
        for (held, target) in self.held.iter_mut().zip(&self.targets) {
            *held = target.held().allocated();
        }
        self.measured = true;
    }

    /// One of them, and what it has allocated, in bytes.
    fn remove(&mut self, place: usize) -> (Candidate, Arc<Target>, u64) {
        let held = self.held.remove(place);
        let candidate = self.candidates.remove(place);
        (candidate, self.targets.remove(place), held)
    }
}

/// The last reports, and how many were lost because nobody took them.
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

/// Apps that the gate refused since the loop asked last; those beyond the room are left out.
#[derive(Debug, Clone, Copy, Default)]
struct Refused([Option<AppKey>; REPORTS_MAX]);

impl Refused {
    fn push(&mut self, app: AppKey) {
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(app);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_loop(&self) {
        // Full: the loop knows already.
        let _ = rustix::io::write(&self.told, &1u64.to_ne_bytes());
    }

    fn wake_thread(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Guard {
    /// Starts the thread, and returns when it has all that it takes. Nobody is armed yet. `gate` is
    /// asked right before each kill.
    ///
    /// # Errors
    ///
    /// In words: a procfs without `meminfo` or `vmstat`, no descriptors, no thread.
    pub fn start(doors: &Doors, thresholds: Thresholds, gate: Gate) -> Result<Guard, String> {
        let files = GaugeFiles::open(&doors.proc).map_err(|error| error.to_string())?;
        let trigger = Trigger::arm(doors.proc.dir(), PRESSURE, StallKind::Some, STALL, WINDOW);
        let (alarm, by_work, again) = open_alarm(doors);
        let by_stall = match &trigger {
            Ok(trigger) => format!(
                "any stall on memory within {} ms",
                trigger.window().as_millis()
            ),
            Err(error) => format!("no stall on memory ({error})"),
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = || eventfd(0, flags).map_err(|errno| format!("no eventfd: {errno}"));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                shortage: Shortage::new(thresholds),
                kept: 0,
                armed: Armed::default(),
                reports: Reports::new(),
                refused: Refused::default(),
                alarms: Alarms {
                    fresh: alarm,
                    spent: None,
                    again,
                },
                stop: false,
            }),
            wake: event()?,
            told: event()?,
        });
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
            .map_err(|error| format!("no thread: {error}"))?;
        ready.wait();
        let guard = Guard {
            shared,
            open: BTreeMap::new(),
            thread: Some(thread),
            by_stall,
            by_work,
        };
        info!("guard: {}", guard.detail());
        Ok(guard)
    }

    /// How it is woken, for people.
    pub fn detail(&self) -> String {
        format!("woken by {}, and by {}", self.by_stall, self.by_work)
    }

    /// Opens another alarm when the processors in service have changed. To be called when the
    /// descriptor is readable, after [`Guard::reports`], which has it tell anew: what is said in between is lost otherwise.
    pub fn renew_alarm(&mut self, doors: &Doors) {
        let (spent, again) = {
            let alarms = &mut self.shared.state().alarms;
            (alarms.spent.take(), std::mem::take(&mut alarms.again))
        };
        if spent.is_none() && !again {
            return;
        }
        let (alarm, by_work, again) = open_alarm(doors);
        self.by_work = by_work;
        {
            let alarms = &mut self.shared.state().alarms;
            alarms.fresh = alarm;
            alarms.again = again;
        }
        // It asks again at its next look.
        if !again {
            info!("guard: other processors are in service; {}", self.detail());
            self.shared.wake_thread();
        }
    }

    /// Arms these, first one first, and nobody else. Those of whom nothing is left, who hold init,
    /// this daemon or its watcher, and those beyond the first 128 are left out. Returns how many are armed.
    pub fn arm<'a>(
        &mut self,
        doors: &Doors,
        victims: impl IntoIterator<Item = Victim<'a>>,
    ) -> usize {
        let vital_pids = doors.vital_pids();
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
                    "{}: holds init or limelightd, and is never killed",
                    victim.app.name
                );
                continue;
            }
            let known = self.open.remove(&victim.app.key);
            let known = known.filter(|known| known.is_of(victim.app, victim.members));
            let target =
                known.or_else(|| Target::open(doors, victim.app, victim.members).map(Arc::new));
            let Some(target) = target.filter(|target| !target.is_gone()) else {
                debug!("{}: ended, not armed", victim.app.name);
                continue;
            };
            open.insert(victim.app.key, Arc::clone(&target));
            armed.candidates.push(victim.candidate);
            armed.targets.push(target);
            armed.held.push(0);
        }
        let count = armed.targets.len();
        let before = std::mem::replace(&mut self.shared.state().armed, armed);
        // Whatever is closed now is closed here, not in the thread.
        drop(before);
        self.open = open;
        count
    }

    /// Arms nobody.
    pub fn disarm(&mut self) {
        let before = std::mem::take(&mut self.shared.state().armed);
        drop(before);
        self.open.clear();
    }

    /// Other thresholds from now on.
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.shared.state().shortage.set_thresholds(thresholds);
        self.shared.wake_thread();
    }

    /// So many bytes of page cache count as available but are kept from reclaim.
    pub fn set_kept(&self, bytes: u64) {
        let before = std::mem::replace(&mut self.shared.state().kept, bytes);
        // Less is left at once, and nobody has worked for that.
        if bytes > before {
            self.shared.wake_thread();
        }
    }

    /// So many bytes of apps may go to swap.
    pub fn set_swappable(&self, bytes: u64, swapped_out: u64) {
        let mut state = self.shared.state();
        state.shortage.set_swappable(bytes, swapped_out);
    }

    /// How short memory is.
    pub fn shortage(&self) -> Shortage {
        self.shared.state().shortage
    }

    /// Apps that the gate did not let the guard kill since the last call.
    pub fn refused(&self) -> Vec<AppKey> {
        let refused = std::mem::take(&mut self.shared.state().refused);
        refused.0.into_iter().flatten().collect()
    }

    /// The kills since the last call, oldest first. To be called when the descriptor is readable:
    /// it then tells the next change of the level, or the next kill.
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

/// An alarm, if there can be one; how the guard is woken by work then, for people; and whether to try again.
fn open_alarm(doors: &Doors) -> (Option<Alarm>, String, bool) {
    match Alarm::open(doors) {
        Ok(alarm) => {
            let how = "whoever runs for as long as it takes to take what memory is left";
            (Some(alarm), how.to_owned(), false)
        }
        Err(missing) => {
            let how = format!("the clock, up to a hundred times a second where most memory is free, for who runs cannot be watched ({})", missing.why);
            (None, how, missing.passing)
        }
    }
}

/// Readable when the level has changed, there are reports, or the alarm is spent.
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
