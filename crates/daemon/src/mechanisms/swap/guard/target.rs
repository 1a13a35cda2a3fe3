// SPDX-License-Identifier: GPL-2.0-or-later
//! An app that may be killed, with all the descriptors that a kill needs.
//!
//! Every descriptor refers to the same app for as long as it is open. A cgroup's file fails once
//! the cgroup is removed, and a pidfd fails once the process has exited, even if the name or the
//! PID is reused. So a kill needs no lookup. Only [`Target::open`] allocates memory.

use std::cmp::Reverse;
use std::time::Duration;

use limelight_core::model::{App, AppKey, ProcessId};
use limelight_sys::cgroup::Cgroup;
use limelight_sys::meminfo::page_bytes;
use limelight_sys::persistent_file::{keyed_lines, PersistentFile};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::remote_memory::Released;
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::Signal;
use tracing::debug;

use crate::reconcile::gate::{pids_in, Gate, PROCS, PROCS_MAX};
use crate::system::identify::open_home;
use crate::system::System;

/// Maximum number of processes of one app that are held open, with two or three descriptors each.
/// Further processes still die with their cgroup, but their memory is not released ahead of their
/// exit.
const MEMBERS_MAX: usize = 256;

/// Maximum number of cgroups of one app; an app with more is not killed.
const GROUPS_MAX: usize = 64;

/// Buffer for `/proc/PID/status` up to its memory lines, in bytes.
const STATUS_ROOM: usize = 4096;

/// Maximum number of attempts to release a process's memory while the kernel asks to retry.
const RELEASE_TRIES: u32 = 4;

/// An app with its open descriptors.
#[derive(Debug)]
pub struct Target {
    key: AppKey,
    group: Option<Group>,
    ids: Vec<ProcessId>,
    members: Vec<Member>,
}

/// The app's own cgroup.
#[derive(Debug)]
struct Group {
    inode: u64,
    /// The `cgroup.procs` files of this cgroup and of all cgroups below it.
    procs: Vec<PersistentFile>,
    /// `cgroup.stat`, which counts the cgroups below it.
    stat: Option<PersistentFile>,
    /// `None` before Linux 5.14 and in a threaded group.
    kill: Option<PersistentFile>,
    /// `cgroup.freeze`.
    freeze: Option<PersistentFile>,
    events: PersistentFile,
    /// `None` without the memory controller.
    current: Option<PersistentFile>,
    swapped: Option<PersistentFile>,
}

#[derive(Debug)]
struct Member {
    pidfd: Pidfd,
    statm: PersistentFile,
    /// `/proc/PID/status`; `None` where a cgroup counts the app's swap.
    status: Option<PersistentFile>,
}

/// How much memory an app holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Anonymous memory of its processes, in bytes: what a kill frees.
    pub anonymous: u64,
    /// Memory in swap, in bytes. Shared memory is left out unless the app's own cgroup counts swap.
    pub swapped: u64,
}

impl Held {
    /// How much the app has allocated, in memory or in swap.
    pub fn allocated(&self) -> u64 {
        self.anonymous.saturating_add(self.swapped)
    }
}

/// Result of a kill.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Killed {
    /// Whether all processes were killed at once, through the cgroup.
    pub by_group: bool,
    /// Processes that were sent SIGKILL, directly or through the cgroup.
    pub processes: u32,
    /// Processes whose memory was released ahead of their exit.
    pub released: u32,
}

impl Target {
    /// Opens an app. `None` when none of its processes is left.
    pub fn open(system: &System, app: &App, members: &[ProcessId]) -> Option<Target> {
        let group = open_home(system, app).and_then(|cgroup| Group::open(&cgroup));
        let counted = group.as_ref().is_some_and(|group| group.swapped.is_some());
        let mut ids = Vec::new();
        let mut open = Vec::new();
        for id in largest(system, members, MEMBERS_MAX) {
            if let Some(member) = Member::open(system, id, counted) {
                ids.push(id);
                open.push(member);
            }
        }
        (!open.is_empty()).then_some(Target {
            key: app.key,
            group,
            ids,
            members: open,
        })
    }

    /// The app's key.
    pub fn key(&self) -> AppKey {
        self.key
    }

    /// Whether exactly these processes and the app's present cgroups are open, so that the app need
    /// not be opened again.
    pub fn is_of(&self, app: &App, members: &[ProcessId]) -> bool {
        let of_home = || match (&self.group, app.own_home()) {
            (Some(group), Some(home)) => group.inode == home.inode && group.is_complete(),
            (None, None) => true,
            _ => false,
        };
        self.key == app.key && self.ids == members && of_home()
    }

    /// Whether the app has ended.
    pub fn is_gone(&self) -> bool {
        match &self.group {
            Some(group) => !group.is_populated(),
            None => !self.members.iter().any(|member| member.pidfd.is_alive()),
        }
    }

    /// How much memory the app holds now.
    pub fn held(&self) -> Held {
        let anonymous = self.members.iter().map(Member::anonymous).sum();
        let swapped = self.group.as_ref().and_then(|group| group.swapped.as_ref());
        let of_members = || self.members.iter().map(Member::swapped).sum();
        Held {
            anonymous,
            swapped: swapped.and_then(first_number).unwrap_or_else(of_members),
        }
    }

    /// Bytes that are charged to the app: its cgroup's memory, or else the anonymous memory of its
    /// processes.
    pub fn charged(&self) -> u64 {
        let current = self.group.as_ref().and_then(|group| group.current.as_ref());
        let charged = current.and_then(first_number);
        charged.unwrap_or_else(|| self.held().anonymous)
    }

    /// Whether a kill would hit a protected process; also `true` if this is unknown. Allocates
    /// nothing.
    pub fn blocked(&self, gate: &Gate) -> bool {
        match &self.group {
            Some(group) if group.kill.is_some() => group.blocked(gate),
            _ => gate.any_of(&self.ids).is_some(),
        }
    }

    /// Asks the app to exit: sends SIGTERM and SIGCONT to every open process, and thaws the app's
    /// cgroup. A process that has left the cgroup gets no signal, because its new cgroup was not
    /// checked. Returns how many processes were asked. Call this only if [`Target::blocked`] returned
    /// `false`. Allocates nothing.
    pub fn ask(&self) -> u32 {
        self.ask_those(|_| true)
    }

    /// Like [`Target::ask`], but leaves out the processes that `earlier` holds: some programs exit
    /// at once at a second SIGTERM, without saving.
    pub fn ask_younger(&self, earlier: &Target) -> u32 {
        self.ask_those(|id| earlier.ids.binary_search(id).is_err())
    }

    fn ask_those(&self, wanted: impl Fn(&ProcessId) -> bool) -> u32 {
        let Some(group) = self.group.as_ref().filter(|group| group.kill.is_some()) else {
            let all = self.ids.iter().zip(&self.members);
            let wanted = all.filter(|(id, _)| wanted(id));
            return wanted.map(|(_, member)| member.ask()).sum();
        };
        let mut buffer = [0; PROCS_MAX];
        let mut asked = 0;
        for procs in &group.procs {
            for pid in pids_in(procs.read(&mut buffer).unwrap_or_default()) {
                let place = self.ids.binary_search_by_key(&pid, |id| id.pid).ok();
                let place = place.filter(|place| self.ids.get(*place).is_some_and(&wanted));
                let member = place.and_then(|place| self.members.get(place));
                asked += member.map_or(0, Member::ask);
            }
        }
        if let Some(freeze) = &group.freeze {
            let _ = freeze.write(b"0");
        }
        asked
    }

    /// Kills all processes and releases their memory. Call this only if [`Target::blocked`]
    /// returned `false`.
    pub fn kill(&self) -> Killed {
        let kill = self.group.as_ref().and_then(|group| group.kill.as_ref());
        let by_group = kill.is_some_and(|kill| kill.write(b"1").is_ok());
        let mut killed = Killed {
            by_group,
            ..Killed::default()
        };
        // Kill all processes before releasing memory: memory that two processes share is free only
        // when both are dying. If the app has `cgroup.kill`, no signal is sent through a pidfd. A
        // process that has left the cgroup is then spared, because its new cgroup was not checked.
        let alone = kill.is_none();
        for member in &self.members {
            killed.processes +=
                u32::from(by_group || (alone && member.pidfd.signal(Signal::KILL).is_ok()));
        }
        for member in &self.members {
            killed.released += u32::from(member.release());
        }
        killed
    }
}

impl Group {
    fn open(cgroup: &Cgroup) -> Option<Group> {
        let dir = cgroup.dir();
        let events = PersistentFile::open(dir, "cgroup.events");
        let events = events.map_err(|error| debug!("{error}")).ok()?;
        let mut procs = Vec::new();
        collect_procs(cgroup, &mut procs);
        let group = Group {
            inode: cgroup.id().0,
            procs,
            stat: PersistentFile::open(dir, "cgroup.stat").ok(),
            events,
            kill: PersistentFile::open_to_write(dir, "cgroup.kill").ok(),
            freeze: PersistentFile::open_to_write(dir, "cgroup.freeze").ok(),
            current: PersistentFile::open(dir, "memory.current").ok(),
            swapped: PersistentFile::open(dir, "memory.swap.current").ok(),
        };
        // The kernel allocates a file's buffer at the first read.
        group.blocked(&Gate::default());
        Some(group)
    }

    /// Number of cgroups below this one; `None` without `cgroup.stat`.
    fn descendants(&self) -> Option<u64> {
        let mut text = [0; 256];
        let text = self.stat.as_ref()?.read(&mut text).ok()?;
        let mut lines = keyed_lines(text);
        let (_, count) = lines.find(|(name, _)| name == b"nr_descendants")?;
        count.number()
    }

    /// Whether `procs` has the files of all present cgroups, or as many as are opened at most. An
    /// app may replace a child cgroup by another one, so files of removed cgroups do not count.
    fn is_complete(&self) -> bool {
        let Some(below) = self.descendants() else {
            return true;
        };
        let exists = |procs: &&PersistentFile| procs.read(&mut [0]) != Err(Errno::NODEV);
        let open = match self.procs.len() {
            // The app's own cgroup exists as long as the app.
            1 => 1,
            _ => self.procs.iter().filter(exists).count(),
        };
        match open {
            GROUPS_MAX => below + 1 >= GROUPS_MAX as u64,
            open => below + 1 == open as u64,
        }
    }

    /// Whether a process in this cgroup or below it is protected; also `true` if this is unknown.
    /// It is unknown if a cgroup below this one was created after [`Group::open`], or if a cgroup
    /// has too many processes.
    fn blocked(&self, gate: &Gate) -> bool {
        let mut buffer = [0; PROCS_MAX];
        let mut present = 0;
        let blocked = self
            .procs
            .iter()
            .any(|procs| match procs.read(&mut buffer) {
                Ok(text) => {
                    present += 1;
                    text.len() == PROCS_MAX || gate.listed(text).is_some()
                }
                // A threaded cgroup. The cgroup above it lists its processes.
                Err(Errno::OPNOTSUPP) => {
                    present += 1;
                    false
                }
                // The cgroup was removed meanwhile, so it holds no process.
                Err(errno) => errno != Errno::NODEV,
            });
        // Last, so that a cgroup that was created meanwhile counts.
        blocked || self.descendants().is_some_and(|below| below + 1 != present)
    }

    fn is_populated(&self) -> bool {
        let mut buffer = [0; 128];
        let text = self.events.read(&mut buffer).unwrap_or_default();
        let mut lines = keyed_lines(text);
        lines.any(|(name, value)| name == b"populated" && value.number() == Some(1))
    }
}

/// The `most` processes that hold the most memory, ascending by ID. Chosen by size, so that a user
/// cannot hide an app's memory behind many small processes.
fn largest(system: &System, members: &[ProcessId], most: usize) -> Vec<ProcessId> {
    if members.len() <= most {
        return members.to_vec();
    }
    let held = |id: ProcessId| {
        let status = system.same_process(id)?.status().ok()?;
        let resident = status.rss_anon_bytes.unwrap_or(0);
        Some(resident.saturating_add(status.swap_bytes.unwrap_or(0)))
    };
    let sizes = members.iter().map(|&id| (Reverse(held(id)), id));
    let mut sizes: Vec<(Reverse<Option<u64>>, ProcessId)> = sizes.collect();
    sizes.sort_unstable();
    let mut largest: Vec<ProcessId> = sizes.into_iter().take(most).map(|(_, id)| id).collect();
    largest.sort_unstable();
    largest
}

/// Opens `cgroup.procs` of a cgroup and of all cgroups below it, up to [`GROUPS_MAX`] files.
fn collect_procs(cgroup: &Cgroup, procs: &mut Vec<PersistentFile>) {
    if procs.len() < GROUPS_MAX {
        procs.extend(PersistentFile::open(cgroup.dir(), PROCS).ok());
        for child in cgroup.children().into_iter().flatten().flatten() {
            collect_procs(&child, procs);
        }
    }
}

impl Member {
    /// Opens a process. `counted`: the app's cgroup reports its swap, so the process need not.
    fn open(system: &System, id: ProcessId, counted: bool) -> Option<Member> {
        // Check the process after its pidfd was opened, in case the PID was reused.
        let pidfd = Pidfd::open(id.pid).ok()?;
        let process = system.same_process(id)?;
        let statm = PersistentFile::open(process.dir(), "statm").ok()?;
        let status = match counted {
            true => None,
            false => PersistentFile::open(process.dir(), "status").ok(),
        };
        let member = Member {
            pidfd,
            statm,
            status,
        };
        // The kernel allocates a file's buffer at the first read.
        member.swapped();
        Some(member)
    }

    /// Asks the process to exit. SIGCONT lets a stopped process handle SIGTERM. Returns 1 if the
    /// process was asked, and 0 if it has exited.
    fn ask(&self) -> u32 {
        let asked = self.pidfd.signal(Signal::TERM).is_ok();
        let _ = self.pidfd.signal(Signal::CONT);
        u32::from(asked)
    }

    /// Anonymous memory in bytes; 0 once the process has released its memory.
    fn anonymous(&self) -> u64 {
        // Total pages, resident pages, and resident pages that belong to files or are shared.
        let Ok([_, resident, shared]) = self.statm.numbers() else {
            return 0;
        };
        resident.saturating_sub(shared).saturating_mul(page_bytes())
    }

    /// Swap in bytes; 0 where the cgroup counts it, and once the process has released its memory.
    fn swapped(&self) -> u64 {
        let mut buffer = [0; STATUS_ROOM];
        let text = self
            .status
            .as_ref()
            .and_then(|status| status.read(&mut buffer).ok());
        text.map_or(0, swapped_in_status)
    }

    fn release(&self) -> bool {
        for _ in 0..RELEASE_TRIES {
            match self.pidfd.release_memory() {
                Ok(Released::Done) => return true,
                Ok(Released::Contended) => nap(Duration::from_micros(100)),
                Ok(Released::AlreadyGone | Released::StillLiving) | Err(_) => return false,
            }
        }
        false
    }
}

/// Sleeps for `time`.
pub fn nap(time: Duration) {
    let time = Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // An early wakeup does no harm.
    let _ = rustix::thread::nanosleep(&time);
}

/// `VmSwap` of `/proc/PID/status`, in bytes.
fn swapped_in_status(text: &[u8]) -> u64 {
    let mut lines = keyed_lines(text);
    let found = lines.find(|(name, _)| name == b"VmSwap");
    let kib = found.and_then(|(_, kib)| kib.number());
    kib.map_or(0, |kib| kib.saturating_mul(1024))
}

/// The file's first number; `None`: the file cannot be read. Allocates nothing.
pub(super) fn first_number(file: &PersistentFile) -> Option<u64> {
    file.numbers().ok().map(|[number]| number)
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
