// SPDX-License-Identifier: GPL-2.0-or-later
//! Watches opens and executions of files through two fanotify queues, on all file systems that lie
//! on disks.
//!
//! Executions are handled at once. The first read of a stream that stood still is handled at once
//! too, through a watch on that one file. Opens can wait. A starting program opens hundreds of
//! files. On a busy CPU, it would lose its turn to other tasks each time the daemon woke up for an
//! open. So the first open sets a deadline, and all opens until then are handled together.
//!
//! The kernel cannot filter the queue by process, so the daemon receives the opens of all
//! processes. One open costs the opener some hundred nanoseconds and the daemon a few microseconds,
//! and no process waits for the daemon. Two budgets of events bound the daemon's work: one for the
//! topmost app and for followed programs, and one for all other processes. When a compiler or an
//! indexer exhausts a budget, the watch is paused for 10 s. Each further pause is twice as long, up
//! to 320 s.
//!
//! Executions have a budget of their own, so that a search through all files does not hide the
//! start of an app.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use limelight_core::rate::Rate;
use limelight_sys::fanotify::{Batch, Fanotify, Kind};
use limelight_sys::mountinfo::Mount;
use tracing::{debug, info, warn};

use crate::system::System;

/// Each budget of a kind of event: events per second on average, and events in one burst. The start
/// of a large app opens some thousand files.
const PER_SECOND: u64 = 500;
const BURST: u64 = 5000;

/// Shortest and longest pause of a watch.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(320);

/// After this time without a pause, the next pause is the shortest one again.
const CALM: Duration = Duration::from_secs(60);

/// Delay after a mount, so that the mounts of a container or a package are handled together.
const MOUNTS: Duration = Duration::from_secs(1);

/// Longest time that opens wait before they are handled.
const PATIENCE: Duration = Duration::from_millis(100);

/// File systems that lie on disks although their device numbers do not belong to a disk.
const ON_DISKS: [&str; 3] = ["btrfs", "overlay", "bcachefs"];

/// Numbers of events by who caused them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Events {
    /// By the topmost app and by followed programs.
    pub own: u64,
    /// By all other processes.
    pub others: u64,
}

/// The watch for one kind of event, and its budgets.
#[derive(Debug)]
struct Watch {
    kind: Kind,
    /// Budget for the topmost app and for followed programs.
    own: Rate,
    /// Budget for all other processes.
    others: Rate,
    on: bool,
    /// Time since which it has been on, or was before the present pause.
    since: Duration,
    /// Length of the next pause.
    pause: Duration,
    /// When the present or last pause ends.
    resume: Duration,
}

impl Watch {
    fn new(kind: Kind, now: Duration) -> Watch {
        Watch {
            kind,
            own: Rate::new(PER_SECOND, BURST, now),
            others: Rate::new(PER_SECOND, BURST, now),
            on: true,
            since: now,
            pause: PAUSE_MIN,
            resume: now,
        }
    }

    /// Charges events to the budgets. Returns whether the watch must be paused.
    fn spend(&mut self, events: Events, now: Duration) -> bool {
        let Events { own, others } = events;
        if !self.on || (self.own.take(own, now), self.others.take(others, now)) == (own, others) {
            return false;
        }
        if now.saturating_sub(self.since) > CALM {
            self.pause = PAUSE_MIN;
        }
        self.on = false;
        self.resume = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }

    fn due(&self, now: Duration) -> bool {
        !self.on && self.resume <= now
    }
}

/// The two queues, and the file systems that they watch.
#[derive(Debug)]
pub struct Opens {
    /// Executions, and reads of single files.
    prompt: Fanotify,
    /// Opens of files.
    patient: Fanotify,
    /// When the queued opens are handled; `None`: no open is queued.
    take_at: Option<Duration>,
    /// Watched file systems: device number and one of its mount points.
    mounts: BTreeMap<(u32, u32), PathBuf>,
    opens: Watch,
    execs: Watch,
    /// Signals changes of the mount table; `None`: no file system is watched.
    changes: Option<OwnedFd>,
    /// When the mount table is scanned next.
    look_for_mounts: Option<Duration>,
}

impl Opens {
    /// Watches all file systems that lie on disks. If `everywhere` is false, watches no file
    /// system, and the queue serves only streams.
    pub fn start(system: &System, everywhere: bool, now: Duration) -> limelight_sys::Result<Opens> {
        let mut opens = Opens {
            prompt: Fanotify::new()?,
            patient: Fanotify::new()?,
            take_at: None,
            mounts: BTreeMap::new(),
            opens: Watch::new(Kind::Open, now),
            execs: Watch::new(Kind::Exec, now),
            changes: None,
            look_for_mounts: None,
        };
        if everywhere {
            opens.changes = Some(system.proc.mount_changes()?);
            opens.watch_mounts(system)?;
        }
        Ok(opens)
    }

    /// The queue of executions and reads, which the event loop polls.
    pub fn prompt(&self) -> &Fanotify {
        &self.prompt
    }

    /// The queue of opens, which the event loop polls in one-shot mode: see [`Opens::noticed`].
    pub fn patient(&self) -> &Fanotify {
        &self.patient
    }

    /// The mount table, which the event loop polls for `EPOLLPRI`: see [`Opens::notice_mounts`].
    pub fn changes(&self) -> Option<&OwnedFd> {
        self.changes.as_ref()
    }

    /// Schedules a scan of the mount table after a mount or an unmount.
    pub fn notice_mounts(&mut self, now: Duration) {
        self.look_for_mounts.get_or_insert(now + MOUNTS);
    }

    /// Notes that a file was opened, and sets the deadline for handling the queued opens.
    pub fn noticed(&mut self, now: Duration) {
        self.take_at.get_or_insert(now + PATIENCE);
    }

    /// Whether the queued opens are to be handled now. If so, the event loop must re-arm the queue.
    pub fn is_time(&mut self, now: Duration) -> bool {
        let due = self.take_at.is_some_and(|at| at <= now);
        if due {
            self.take_at = None;
        }
        due
    }

    /// Whether opens have been watched without a pause since `since`.
    pub fn complete_since(&self, since: Duration) -> bool {
        self.opens.on && self.opens.since <= since
    }

    /// Disables pauses, because compilers may run beside a test.
    #[cfg(test)]
    pub fn never_pause(&mut self, now: Duration) {
        for watch in [&mut self.opens, &mut self.execs] {
            watch.own = Rate::new(u64::MAX >> 32, u64::MAX >> 32, now);
            watch.others = watch.own.clone();
        }
    }

    /// The current state, as human-readable text.
    pub fn detail(&self) -> String {
        let paused = match (self.opens.on, self.execs.on) {
            (true, true) => "",
            (false, true) => ", opens not watched for now: other programs open too many files",
            (_, false) => ", executions not watched for now: too many programs are started",
        };
        format!("fanotify on {} file systems{paused}", self.mounts.len())
    }

    /// Takes a batch of executions and reads.
    pub fn take_prompt(&self) -> Batch {
        take(&self.prompt)
    }

    /// Takes a batch of opens; empty when there are none left.
    pub fn take_patient(&self) -> Batch {
        take(&self.patient)
    }

    /// Charges opens and executions to their budgets, and pauses a watch that exceeds a budget.
    /// Lost events count as a full burst of opens.
    pub fn spend(&mut self, mut opens: Events, execs: u64, lost: bool, now: Duration) {
        opens.others += if lost { BURST } else { 0 };
        // An execution may be the start of an app, so it is not yet known to belong to one.
        let execs = Events {
            own: 0,
            others: execs,
        };
        for (watch, events) in [(&mut self.opens, opens), (&mut self.execs, execs)] {
            if watch.spend(events, now) {
                let pause = watch.resume.saturating_sub(now).as_secs();
                info!(
                    "too many files are opened or executed: {:?} events are not watched for \
                     {pause} s",
                    watch.kind
                );
                let queue = pick(watch.kind, &self.prompt, &self.patient);
                for mount in self.mounts.values() {
                    if let Err(error) = queue.unwatch(mount, watch.kind) {
                        debug!("{error}");
                    }
                }
            }
        }
    }

    /// Time of the next deadline; `None`: nothing is scheduled.
    pub fn next_deadline(&self) -> Option<Duration> {
        let watches = [&self.opens, &self.execs];
        let resume = watches.iter().filter(|watch| !watch.on);
        let resume = resume.map(|watch| watch.resume);
        let due = self.take_at.into_iter().chain(self.look_for_mounts);
        due.chain(resume).min()
    }

    /// Resumes paused watches and watches new mounts.
    pub fn pass_time(&mut self, system: &System, now: Duration) {
        for watch in [&mut self.opens, &mut self.execs] {
            if watch.due(now) {
                watch.on = true;
                watch.since = now;
                let queue = pick(watch.kind, &self.prompt, &self.patient);
                for mount in self.mounts.values() {
                    if let Err(error) = queue.watch(mount, watch.kind) {
                        debug!("{error}");
                    }
                }
            }
        }
        if self.look_for_mounts.is_some_and(|due| due <= now) {
            self.look_for_mounts = None;
            if let Err(why) = self.watch_mounts(system) {
                debug!("{why}");
            }
        }
    }

    /// Watches new file systems. Unmounting has already removed the watches of old ones.
    fn watch_mounts(&mut self, system: &System) -> limelight_sys::Result<()> {
        let mounts = system.proc.mounts()?;
        let wanted: BTreeMap<(u32, u32), PathBuf> = mounts
            .iter()
            .filter(|mount| lies_on_disk(mount))
            .map(|mount| (mount.device, mount.point.clone()))
            .collect();
        self.mounts.retain(|device, _| wanted.contains_key(device));
        let mut refused = None;
        for (device, point) in wanted {
            if self.mounts.contains_key(&device) {
                continue;
            }
            let watches = [&self.opens, &self.execs];
            let done: limelight_sys::Result<()> = watches
                .iter()
                .filter(|watch| watch.on)
                .try_for_each(|watch| {
                    let queue = pick(watch.kind, &self.prompt, &self.patient);
                    queue.watch(&point, watch.kind)
                });
            match done {
                Ok(()) => {
                    self.mounts.insert(device, point);
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if self.mounts.is_empty() => Err(error),
            Some(error) => {
                debug!("{error}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether no file system is watched.
    pub fn is_blind(&self) -> bool {
        self.mounts.is_empty()
    }
}

fn pick<'a>(kind: Kind, prompt: &'a Fanotify, patient: &'a Fanotify) -> &'a Fanotify {
    match kind {
        Kind::Exec => prompt,
        Kind::Open => patient,
    }
}

fn take(queue: &Fanotify) -> Batch {
    queue.take().unwrap_or_else(|error| {
        debug!("cannot read fanotify events: {error}");
        Batch {
            events: Vec::new(),
            lost: true,
        }
    })
}

fn lies_on_disk(mount: &Mount) -> bool {
    mount.device.0 != 0 || ON_DISKS.contains(&mount.kind.as_str())
}

/// Logs why opens cannot be watched.
pub fn refused(why: &limelight_sys::Error) {
    warn!("cannot watch opened files: {why}; starts of apps are not recorded");
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn others(others: u64) -> Events {
        Events { own: 0, others }
    }

    #[test]
    fn each_pause_is_twice_as_long_until_a_minute_without_one() {
        let mut watch = Watch::new(Kind::Open, S(0));
        assert!(!watch.spend(others(BURST), S(0)));
        assert!(watch.spend(others(1), S(0)));
        assert!(
            !watch.spend(others(1), S(0)),
            "a paused watch was paused again"
        );
        assert!(!watch.due(S(9)) && watch.due(S(10)));

        watch.on = true;
        watch.since = S(10);
        assert!(watch.spend(others(BURST + 1), S(10)));
        assert_eq!(watch.resume, S(30));

        watch.on = true;
        watch.since = S(30);
        assert!(watch.spend(others(BURST + 1), S(100)));
        assert_eq!(watch.resume, S(110));
    }

    #[test]
    fn topmost_app_that_opens_files_without_end_exhausts_a_budget_of_its_own() {
        let own = |own| Events { own, others: 0 };
        let mut watch = Watch::new(Kind::Open, S(0));
        assert!(!watch.spend(others(BURST), S(0)));
        assert!(
            !watch.spend(own(BURST), S(0)),
            "others used up the app's budget"
        );
        assert!(watch.spend(own(1), S(0)));
    }

    #[test]
    fn events_at_the_average_rate_never_exhaust_the_budget() {
        let mut watch = Watch::new(Kind::Open, S(0));
        let events = Events {
            own: PER_SECOND,
            others: PER_SECOND,
        };
        for second in 1..1000 {
            assert!(!watch.spend(events, S(second)));
        }
    }

    #[test]
    fn only_file_systems_on_disks_are_watched() {
        let mount = |kind: &str, major| Mount {
            root: "/".into(),
            point: "/x".into(),
            kind: kind.into(),
            source: "none".into(),
            device: (major, 1),
            options: "rw".into(),
        };
        assert!(lies_on_disk(&mount("ext4", 8)));
        assert!(lies_on_disk(&mount("btrfs", 0)));
        assert!(!lies_on_disk(&mount("proc", 0)));
        assert!(!lies_on_disk(&mount("nfs4", 0)));
    }
}
