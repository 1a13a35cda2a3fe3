// SPDX-License-Identifier: GPL-2.0-or-later
//! Cold start: records which files an app opens in its first seconds, and reads them ahead when the
//! same program is executed again.
//!
//! When a program starts, it is unknown whether it will become an app that a person uses. So the
//! daemon *follows* the most recently started programs for as long as a start may take: it keeps
//! the names of the files that they and their descendants open, in memory only. When one of the
//! programs becomes topmost, the cached parts of its files are recorded on disk, because its start
//! has read them. The names that belong to the other programs are discarded.
//!
//! A replay begins with the execution itself: the daemon watches for the first step of execve(),
//! which is the open of the program's file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use limelight_core::model::coldstart::file_name;
use limelight_core::model::{App, AppKey, ProcessId};
use limelight_core::settings::ReadaheadSettings;
use limelight_sys::files::{FileKind, FileStat};

use crate::mechanisms::readahead::replay::{self, Candidate, Recording, Replay};
use crate::system::{own_memory, System};

/// Maximum number of programs that are followed at once.
const YOUNG_MAX: usize = 256;

/// Maximum number of files that are remembered for one program.
const FILES_MAX: usize = 4096;

/// Maximum number of executions that are remembered for one process; later ones are dropped.
const EXECUTED_MAX: usize = 16;

/// Longest time between the execution events of a script and of its interpreter. A process that
/// executes something later counts as a new start.
const ONE_EXECUTION: Duration = Duration::from_secs(1);

/// Number of generations of child processes that count as part of the app.
const DEPTH: usize = 4;

/// A start is recorded only if the program becomes topmost within this time. It is long because a
/// window can take long to appear under load.
const GRACE: Duration = Duration::from_secs(60);

/// The same record is not replayed again within this time. A second instance finds everything
/// cached, and a program that a script starts in a loop is not an app.
const AGAIN: Duration = Duration::from_secs(5);

/// How long [`ColdStart::young_of`] caches which followed program a process belongs to.
const STRANGER: Duration = Duration::from_secs(1);

/// Maximum number of cached results of [`ColdStart::young_of`].
const STRANGERS_MAX: usize = 512;

/// Maximum number of apps whose starts are recorded at the same time.
const PENDING_MAX: usize = 8;

/// A program that was started recently.
#[derive(Debug)]
struct Young {
    id: ProcessId,
    parent: i32,
    /// Time of its first execution event.
    since: Duration,
    /// Time of its last execution.
    executed_at: Duration,
    /// Files that it executed, in order, such as a script, its interpreter and the loader.
    executed: Vec<Candidate>,
    /// Files that it and its descendants opened, by device and inode: the position in the order of
    /// all opens, and the path.
    opened: BTreeMap<(u64, u64), (u64, PathBuf)>,
}

/// An app whose start is being recorded.
#[derive(Debug)]
struct Pending {
    app: AppKey,
    root: ProcessId,
    since: Duration,
    /// When the recording time is over.
    due: Duration,
    members: BTreeSet<i32>,
    /// The program that its first process runs.
    program: Candidate,
    /// The user who runs it.
    user: u32,
}

/// The kind of process that opened a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A followed program or one of its descendants, during the recording time.
    Young,
    /// Any other process.
    Stranger,
}

/// Interval between checks that the apps whose starts are being recorded still run.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The followed programs, the starts that are being recorded, and the names of the records.
#[derive(Debug)]
pub struct ColdStart {
    directory: PathBuf,
    young: HashMap<i32, Young>,
    /// For a process that is not followed itself: the followed program to which it belongs, or
    /// `None`, and when that was determined.
    kin: HashMap<i32, (Option<i32>, Duration)>,
    pending: Vec<Pending>,
    /// Number of files that followed programs have opened.
    opens: u64,
    /// Time of the next check that the apps in `pending` still run.
    next_look: Duration,
    /// Names of the records.
    known: BTreeSet<String>,
    /// When each record was last replayed, by name.
    replayed: HashMap<String, Duration>,
    /// Time since which no event was lost.
    whole_since: Duration,
}

impl ColdStart {
    /// Follows nothing yet; lists the existing records.
    pub fn new(directory: &Path, now: Duration) -> ColdStart {
        ColdStart {
            directory: directory.to_owned(),
            young: HashMap::new(),
            kin: HashMap::new(),
            pending: Vec::new(),
            opens: 0,
            next_look: now,
            known: replay::names(directory).into_iter().collect(),
            replayed: HashMap::new(),
            whole_since: now,
        }
    }

    /// How many records exist.
    pub fn records(&self) -> usize {
        self.known.len()
    }

    /// How many programs are followed.
    pub fn young(&self) -> usize {
        self.young.len()
    }

    /// Directory of the records.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is a record of this program and user.
    pub fn knows(&self, program: &Path, user: u32) -> bool {
        let name = program.to_str().map(|program| file_name(program, user));
        name.is_some_and(|name| self.known.contains(&name))
    }

    /// Notes that events were lost, so that recordings in progress count as partial.
    pub fn lost(&mut self, now: Duration) {
        self.whole_since = now;
    }

    /// Handles the execution of a program. Returns a replay if there is a record of the program's
    /// start that was not replayed within the last 5 s. The caller sets the replay's `room`, which
    /// is 0 here.
    pub fn executed(
        &mut self,
        pid: i32,
        file: &OwnedFd,
        system: &System,
        now: Duration,
    ) -> Option<Replay> {
        let candidate = candidate(file)?;
        let known = system.process(pid).and_then(|(id, process)| {
            let parent = process.stat()?.ppid;
            Ok((id, parent, process.owner_uid()?))
        });
        let user = known.as_ref().ok().map(|(_, _, user)| *user);
        let replay = user.and_then(|user| self.replay_of(&candidate, user, now));
        if let Ok((id, parent, _)) = known {
            let young = self.follow(id, parent, system, now);
            young.executed.push(candidate);
            young.executed.truncate(EXECUTED_MAX);
        }
        replay
    }

    fn replay_of(&mut self, program: &Candidate, user: u32, now: Duration) -> Option<Replay> {
        let path = program.path.to_str()?;
        let name = file_name(path, user);
        if !self.known.contains(&name) {
            return None;
        }
        let before = self.replayed.get(&name);
        if before.is_some_and(|&before| now.saturating_sub(before) < AGAIN) {
            return None;
        }
        let record = self.directory.join(&name);
        self.replayed
            .retain(|_, at| now.saturating_sub(*at) < AGAIN);
        self.replayed.insert(name, now);
        Some(Replay {
            program: path.to_owned(),
            record,
            room: 0,
        })
    }

    /// Returns the entry of a process, and adds one if there is none. A new entry replaces the old
    /// one if the PID was reused, or if the last execution was more than [`ONE_EXECUTION`] ago.
    fn follow(&mut self, id: ProcessId, parent: i32, system: &System, now: Duration) -> &mut Young {
        let fresh = || Young {
            id,
            parent,
            since: now,
            executed_at: now,
            executed: Vec::new(),
            opened: BTreeMap::new(),
        };
        if !self.young.contains_key(&id.pid) {
            self.make_room(system, now);
            self.kin.remove(&id.pid);
        }
        let young = self.young.entry(id.pid).or_insert_with(fresh);
        if young.id != id || now.saturating_sub(young.executed_at) > ONE_EXECUTION {
            *young = fresh();
        }
        young.executed_at = now;
        young
    }

    /// Makes room for one more program. First forgets programs whose start is too old to be
    /// recorded, then ended programs whose parent is not followed, then the oldest program.
    fn make_room(&mut self, system: &System, now: Duration) {
        if self.young.len() < YOUNG_MAX {
            return;
        }
        self.young
            .retain(|_, young| now.saturating_sub(young.since) < GRACE);
        if self.young.len() < YOUNG_MAX {
            return;
        }
        let parents: BTreeSet<i32> = self.young.keys().copied().collect();
        self.young.retain(|_, young| {
            parents.contains(&young.parent) || system.same_process(young.id).is_some()
        });
        while self.young.len() >= YOUNG_MAX {
            let starts = self.young.values().map(|young| (young.since, young.id.pid));
            let Some((_, oldest)) = starts.min() else {
                return;
            };
            self.young.remove(&oldest);
        }
    }

    /// PIDs of the app's processes and of the programs that they started during the recording time,
    /// including programs that have ended.
    fn family(&self, pending: &Pending, settings: &ReadaheadSettings) -> BTreeSet<i32> {
        let mut family = pending.members.clone();
        // Each round adds one generation; later generations do not matter.
        for _ in 0..DEPTH {
            let helpers = self.young.values().filter(|young| {
                family.contains(&young.parent)
                    && young.since.saturating_sub(pending.since) <= settings.record
            });
            let helpers: Vec<i32> = helpers.map(|young| young.id.pid).collect();
            family.extend(helpers);
        }
        family
    }

    /// Handles the open of a file.
    pub fn opened(
        &mut self,
        pid: i32,
        file: &OwnedFd,
        system: &System,
        settings: &ReadaheadSettings,
        now: Duration,
    ) -> Owner {
        let Some(pid) = self.young_of(pid, system, now) else {
            return Owner::Stranger;
        };
        self.opens += 1;
        let order = self.opens;
        let Some(young) = self.young.get_mut(&pid) else {
            return Owner::Stranger;
        };
        // Files opened after the recording time are not part of the start.
        let starting = now.saturating_sub(young.since) <= settings.record;
        if starting && young.opened.len() < FILES_MAX {
            if let Ok(stat) = FileStat::of(file) {
                let key = (stat.id.device, stat.id.inode);
                if stat.kind == FileKind::Regular && !young.opened.contains_key(&key) {
                    if let Some(path) = path_of(file) {
                        young.opened.insert(key, (order, path));
                    }
                }
            }
        }
        if starting {
            Owner::Young
        } else {
            Owner::Stranger
        }
    }

    /// PID of the followed program to which this process belongs: its own PID, that of its followed
    /// parent, or the cached result for its parent.
    fn young_of(&mut self, pid: i32, system: &System, now: Duration) -> Option<i32> {
        if self.young.contains_key(&pid) {
            return Some(pid);
        }
        if let Some((kin, at)) = self.kin.get(&pid) {
            if now.saturating_sub(*at) < STRANGER {
                return *kin;
            }
        }
        if self.kin.len() >= STRANGERS_MAX {
            self.kin.clear();
        }
        let parent = system.process(pid).and_then(|(_, process)| process.stat());
        let parent = parent.ok().map(|stat| stat.ppid);
        let kin = parent.and_then(|parent| match self.kin.get(&parent) {
            _ if self.young.contains_key(&parent) => Some(parent),
            Some((kin, _)) => *kin,
            None => None,
        });
        self.kin.insert(pid, (kin, now));
        kin
    }

    /// Handles an app that becomes topmost: if it was started recently, its start will be recorded.
    pub fn topmost(
        &mut self,
        app: &App,
        members: &[ProcessId],
        system: &System,
        settings: &ReadaheadSettings,
        now: Duration,
    ) {
        if let Some(pending) = self.pending.iter_mut().find(|p| p.app == app.key) {
            pending.members.extend(members.iter().map(|id| id.pid));
            return;
        }
        let young = |id: &ProcessId| {
            let young = self.young.get(&id.pid).filter(|young| young.id == *id)?;
            (now.saturating_sub(young.since) < GRACE && !young.executed.is_empty())
                .then_some((young.since, *id))
        };
        let claimed = app.process.as_ref().and_then(young);
        let Some((since, root)) = claimed.or_else(|| members.iter().filter_map(young).min()) else {
            return;
        };
        let Some(process) = system.same_process(root) else {
            return;
        };
        let (Ok((stat, path)), Ok(user)) = (process.program(), process.owner_uid()) else {
            return;
        };
        if self.pending.len() >= PENDING_MAX {
            return;
        }
        self.pending.push(Pending {
            app: app.key,
            root,
            since,
            due: (since + settings.record).max(now),
            members: members.iter().map(|id| id.pid).chain([root.pid]).collect(),
            program: Candidate {
                inode: stat.id.inode,
                path,
            },
            user,
        });
    }

    /// Stops following the programs of a start that has been recorded.
    fn forget(&mut self, family: &BTreeSet<i32>) {
        self.young.retain(|pid, _| !family.contains(pid));
    }

    /// When the recording time of the next pending start is over.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.pending.iter().map(|pending| pending.due).min()
    }

    /// Returns the recordings to make: of the starts whose recording time is over or whose app has
    /// ended. Stops following their programs. `complete` returns whether all opens since a given
    /// time were watched.
    pub fn finished(
        &mut self,
        system: &System,
        settings: &ReadaheadSettings,
        complete: impl Fn(Duration) -> bool,
        now: Duration,
    ) -> Vec<Recording> {
        let look = self.next_look <= now;
        if look {
            self.next_look = now + LOOK_EVERY;
        }
        let over = |pending: &Pending| {
            pending.due <= now || (look && system.same_process(pending.root).is_none())
        };
        let (done, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(over);
        self.pending = pending;
        let mut recordings = Vec::new();
        for pending in done {
            let whole = complete(pending.since) && self.whole_since <= pending.since;
            let family = self.family(&pending, settings);
            recordings.push(Recording {
                before: self.before(&pending),
                files: self.files_of(&family, system),
                program: pending.program.clone(),
                user: pending.user,
                partial: !whole,
                directory: self.directory.clone(),
                bytes_max: settings.record_bytes,
                records_max: settings.records as usize,
            });
            self.forget(&family);
        }
        recordings
    }

    /// The file that the app's first process executed right before its program.
    fn before(&self, pending: &Pending) -> Option<Candidate> {
        let executed = &self.young.get(&pending.root.pid)?.executed;
        let inode = pending.program.inode;
        let at = executed.iter().rposition(|each| each.inode == inode)?;
        executed.get(at.checked_sub(1)?).cloned()
    }

    /// All files that these processes have executed, opened or mapped: first those that they
    /// executed or opened before the execution event arrived, then the others as opened.
    fn files_of(&self, family: &BTreeSet<i32>, system: &System) -> Vec<Candidate> {
        let mut files: BTreeMap<(u64, PathBuf), u64> = BTreeMap::new();
        let mut add = |inode: u64, path: &Path, order: u64| {
            let first = files.entry((inode, path.to_owned())).or_insert(order);
            *first = order.min(*first);
        };
        for pid in family {
            if let Some(young) = self.young.get(pid) {
                for each in &young.executed {
                    add(each.inode, &each.path, 0);
                }
                for ((_, inode), (order, path)) in &young.opened {
                    add(*inode, path, *order);
                }
            }
        }
        // Files that were opened before the execution event arrived are not in `opened`; those that
        // are still mapped are found here.
        for pid in family {
            let process = system.proc.process(*pid).ok();
            let mapped = process.map(|process| own_memory::mapped_files(&process));
            for file in mapped.unwrap_or_default() {
                files.entry((file.key.1, file.path)).or_insert(0);
            }
        }
        let mut files: Vec<(u64, Candidate)> = files
            .into_iter()
            .map(|((inode, path), order)| (order, Candidate { inode, path }))
            .collect();
        files.sort_by_key(|(order, _)| *order);
        files.into_iter().map(|(_, file)| file).collect()
    }

    /// Updates the names of the records after a recording.
    pub fn kept(&mut self, kept: &replay::Kept) {
        self.known.extend(kept.name.clone());
        for name in &kept.removed {
            self.known.remove(name);
        }
    }

    /// Forgets an unreadable record, so that it is not replayed until the start is recorded again.
    pub fn spoiled(&mut self, record: &str) {
        self.known.remove(record);
    }
}

fn candidate(file: &OwnedFd) -> Option<Candidate> {
    let stat = FileStat::of(file).ok()?;
    (stat.kind == FileKind::Regular)
        .then(|| path_of(file))?
        .map(|path| Candidate {
            inode: stat.id.inode,
            path,
        })
}

/// The path of an open file as this process sees it; `None` for a deleted file.
fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let text = path.to_str()?;
    (text.starts_with('/') && !text.ends_with(" (deleted)")).then_some(path)
}
