// SPDX-License-Identifier: GPL-2.0-or-later
//! Who opens and executes which file: two fanotify queues on all file systems that lie on disks.
//!
//! Executions are taken at once, and so is the first read of a stream that stood still, by a watch
//! on that one file. Opens can wait: a program that starts opens hundreds of files, and on a busy
//! processor each time that the daemon woke up for one, the program would lose its turn to others. So
//! the first open sets a time, and all that came until then are taken together.
//!
//! The kernel cannot tell the queue to pass over processes that do not matter, so everybody's opens
//! come in. One costs the opener some hundred nanoseconds and the daemon a few microseconds, and
//! nobody waits for the daemon. What the daemon spends on others is bounded by a budget of events:
//! when a compiler or an indexer uses it up, the watch is given up for ten seconds, then twenty,
//! and so on up to five minutes, and taken up again after that.
//!
//! Executions have a budget of their own, so that a search through all files does not hide the
//! start of an app.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use limelight_core::policy::readahead::Rate;
use limelight_sys::fanotify::{Batch, Fanotify, Kind};
use limelight_sys::mountinfo::Mount;
use tracing::{debug, info, warn};

use crate::doors::Doors;

/// Events of one kind that may come in for nothing, in the long run and at once.
const PER_SECOND: u64 = 500;
const BURST: u64 = 5000;

/// Shortest and longest time for which a watch is given up.
const PAUSE_MIN: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(320);

/// A watch that has stood for this long is trusted again.
const CALM: Duration = Duration::from_secs(60);

/// How long new mounts wait, so that those of a container or a package are looked at together.
const MOUNTS: Duration = Duration::from_secs(1);

/// How long opens may wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// File systems without a device number of their own that lie on disks nevertheless.
const ON_DISKS: [&str; 3] = ["btrfs", "overlay", "bcachefs"];

/// One kind of event, and what it may cost.
#[derive(Debug)]
struct Watch {
    kind: Kind,
    rate: Rate,
    on: bool,
    since: Duration,
    pause: Duration,
    resume: Duration,
}

impl Watch {
    fn new(kind: Kind, now: Duration) -> Watch {
        Watch {
            kind,
            rate: Rate::new(PER_SECOND, BURST, now),
            on: true,
            since: now,
            pause: PAUSE_MIN,
            resume: now,
        }
    }

    /// Accounts for events that were of no use; whether the watch has to be given up.
    fn spend(&mut self, events: u64, now: Duration) -> bool {
        if !self.on || self.rate.take(events, now) == events {
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

/// The queues and what they watch.
#[derive(Debug)]
pub struct Opens {
    /// Executions, and reads of single files.
    prompt: Fanotify,
    /// Opens.
    patient: Fanotify,
    /// When the opens that have come are taken.
    take_at: Option<Duration>,
    /// Watched file systems: device number and a place where one is mounted.
    mounts: BTreeMap<(u32, u32), PathBuf>,
    opens: Watch,
    execs: Watch,
    /// Tells when there are others; `None`: nothing is watched everywhere.
    changes: Option<OwnedFd>,
    look_for_mounts: Option<Duration>,
}

impl Opens {
    /// Watches all file systems that lie on disks, or with `everywhere` false none: then the queue
    /// serves streams only.
    pub fn start(doors: &Doors, everywhere: bool, now: Duration) -> Result<Opens, String> {
        let queue = || Fanotify::new().map_err(|error| error.to_string());
        let mut opens = Opens {
            prompt: queue()?,
            patient: queue()?,
            take_at: None,
            mounts: BTreeMap::new(),
            opens: Watch::new(Kind::Open, now),
            execs: Watch::new(Kind::Exec, now),
            changes: None,
            look_for_mounts: None,
        };
        if everywhere {
            let changes = doors.proc.mount_changes();
            opens.changes = Some(changes.map_err(|error| error.to_string())?);
            opens.watch_mounts(doors)?;
        }
        Ok(opens)
    }

    /// Executions and reads, to wait for.
    pub fn prompt(&self) -> &Fanotify {
        &self.prompt
    }

    /// Opens, to wait for once: see [`Opens::noticed`].
    pub fn patient(&self) -> &Fanotify {
        &self.patient
    }

    /// The table of mounts, to wait for with `EPOLLPRI`: see [`Opens::notice_mounts`].
    pub fn changes(&self) -> Option<&OwnedFd> {
        self.changes.as_ref()
    }

    /// Something was mounted or unmounted.
    pub fn notice_mounts(&mut self, now: Duration) {
        self.look_for_mounts.get_or_insert(now + MOUNTS);
    }

    /// Somebody opened something.
    pub fn noticed(&mut self, now: Duration) {
        self.take_at.get_or_insert(now + PATIENCE);
    }

    /// Whether the opens are to be taken now; they have to be waited for again then.
    pub fn is_time(&mut self, now: Duration) -> bool {
        let due = self.take_at.is_some_and(|at| at <= now);
        if due {
            self.take_at = None;
        }
        due
    }

    /// Whether every open has been seen since `since`.
    pub fn complete_since(&self, since: Duration) -> bool {
        self.opens.on && self.opens.since <= since
    }

    /// A test shares its machine with compilers.
    #[cfg(test)]
    pub fn never_pause(&mut self, now: Duration) {
        for watch in [&mut self.opens, &mut self.execs] {
            watch.rate = Rate::new(u64::MAX >> 32, u64::MAX >> 32, now);
        }
    }

    /// How it works now.
    pub fn detail(&self) -> String {
        let paused = match (self.opens.on, self.execs.on) {
            (true, true) => "",
            (false, true) => ", opens paused: others open too many files",
            (_, false) => ", paused: others start too many programs",
        };
        format!("fanotify on {} file systems{paused}", self.mounts.len())
    }

    /// Takes a few executions and reads.
    pub fn take_prompt(&self) -> Batch {
        take(&self.prompt)
    }

    /// Takes a few opens; nothing when there are none left.
    pub fn take_patient(&self) -> Batch {
        take(&self.patient)
    }

    /// Accounts for opens and executions that were nobody's who matters.
    pub fn spend(&mut self, opens: u64, execs: u64, lost: bool, now: Duration) {
        let too_many = if lost { BURST } else { 0 };
        for (watch, events) in [
            (&mut self.opens, opens + too_many),
            (&mut self.execs, execs),
        ] {
            if watch.spend(events, now) {
                let pause = watch.resume.saturating_sub(now).as_secs();
                info!("too many files are opened or executed to look at: {:?} is not watched for {pause} s", watch.kind);
                let queue = pick(watch.kind, &self.prompt, &self.patient);
                for mount in self.mounts.values() {
                    if let Err(error) = queue.unwatch(mount, watch.kind) {
                        debug!("{error}");
                    }
                }
            }
        }
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let watches = [&self.opens, &self.execs];
        let resume = watches.iter().filter(|watch| !watch.on);
        let resume = resume.map(|watch| watch.resume);
        let due = self.take_at.into_iter().chain(self.look_for_mounts);
        due.chain(resume).min()
    }

    /// Takes paused watches up again and looks for new mounts.
    pub fn pass_time(&mut self, doors: &Doors, now: Duration) {
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
            if let Err(why) = self.watch_mounts(doors) {
                debug!("{why}");
            }
        }
    }

    /// Watches file systems that are new; those that were unmounted took their watches along.
    fn watch_mounts(&mut self, doors: &Doors) -> Result<(), String> {
        let mounts = doors.proc.mounts().map_err(|error| error.to_string())?;
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
            Some(error) if self.mounts.is_empty() => Err(error.to_string()),
            Some(error) => {
                debug!("{error}");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether there is anything to watch.
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
        debug!("an event is lost: {error}");
        Batch {
            events: Vec::new(),
            lost: true,
        }
    })
}

fn lies_on_disk(mount: &Mount) -> bool {
    mount.device.0 != 0 || ON_DISKS.contains(&mount.kind.as_str())
}

/// Says why there is no queue.
pub fn refused(why: &str) {
    warn!("files that are opened cannot be watched, starts are not recorded: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_busy_machine_pauses_the_watch_longer_each_time_and_calm_forgives() {
        let mut watch = Watch::new(Kind::Open, S(0));
        assert!(!watch.spend(BURST, S(0)));
        assert!(watch.spend(1, S(0)));
        assert!(!watch.spend(1, S(0)), "given up only once");
        assert!(!watch.due(S(9)) && watch.due(S(10)));

        watch.on = true;
        watch.since = S(10);
        assert!(watch.spend(BURST + 1, S(10)));
        assert_eq!(watch.resume, S(30));

        watch.on = true;
        watch.since = S(30);
        assert!(watch.spend(BURST + 1, S(100)));
        assert_eq!(watch.resume, S(110));
    }

    #[test]
    fn an_ordinary_desktop_stays_within_its_budget() {
        let mut watch = Watch::new(Kind::Open, S(0));
        for second in 1..1000 {
            assert!(!watch.spend(PER_SECOND, S(second)));
        }
    }

    #[test]
    fn only_what_lies_on_disks_is_watched() {
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
