// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the processes that may have inherited values that Limelight gave to other processes.
//!
//! A child inherits its parent's nice value, slice and `oom_score_adj`, and keeps them when it
//! leaves the parent, the session and the cgroup. Without privilege it cannot leave its user and
//! its login, and it is never older than the change. So the search covers descendants, members of
//! the app's cgroup, and every process of the same user or login that was created since the change.

use std::collections::{BTreeMap, BTreeSet};

use limelight_core::model::ProcessId;
use limelight_sys::process::{Process, Stat};
use limelight_sys::tree::{is_kernel_thread, ProcessTree};

use crate::restore::undo::{nearest, procs_of};
use crate::restore::{Entry, Lineage, Moment, Place};
use crate::system::{now, System};

/// How far the start time (in clock ticks) and the PID of a process can lag behind the current ones
/// when the process becomes visible.
const FORK_TICKS: u64 = 100;
const FORK_PIDS: i32 = 1024;

/// The present moment. Call this before a value is changed.
pub fn moment(system: &System) -> Moment {
    let per_second = u128::from(rustix::param::clock_ticks_per_second());
    let ticks = now().as_nanos() * per_second / 1_000_000_000;
    Moment {
        ticks: u64::try_from(ticks).unwrap_or(u64::MAX),
        last_pid: system.proc.last_pid().ok(),
        forks: system.proc.forks().ok(),
    }
}

/// The lineage of a process: its user and login, from the moment `since`.
pub fn of(process: &Process, since: Moment) -> limelight_sys::Result<Lineage> {
    Ok(Lineage {
        uid: process.status()?.real_uid,
        login: process.login_uid()?,
        since,
    })
}

/// Those of the entries `fresh` that are not in `entries` yet. A recorded lineage keeps its earlier
/// moment.
pub fn unrecorded(entries: &[Entry], fresh: Vec<Entry>) -> Vec<Entry> {
    let mut left: Vec<Entry> = Vec::new();
    for entry in fresh {
        let known = |known: &Entry| known.same_thing(&entry);
        if !entries.iter().any(known) && !left.iter().any(known) {
            left.push(entry);
        }
    }
    left
}

/// When searches began, oldest first. Only the newest one from before [`FORK_TICKS`] and the later
/// ones are kept.
#[derive(Debug, Default)]
pub struct Searches(Vec<Moment>);

impl Searches {
    /// Notes a search that begins at `begin`. Returns the moment from which on processes were
    /// created that the search may not see, because their fork is in progress at `begin`.
    pub fn begins(&mut self, begin: Moment) -> Moment {
        let ticks = begin.ticks.saturating_sub(FORK_TICKS);
        if let Some(last) = self.0.iter().rposition(|earlier| earlier.ticks <= ticks) {
            self.0.drain(..last);
        }
        let earlier = self.0.first().filter(|earlier| earlier.ticks <= ticks);
        let last_pid = begin.last_pid.map(|last| {
            let pid = earlier.and_then(|earlier| pid_before(*earlier, begin));
            last.saturating_sub(FORK_PIDS).max(pid.unwrap_or(0))
        });
        self.0.push(begin);
        Moment {
            ticks,
            last_pid,
            forks: begin.forks,
        }
    }
}

/// The last PID at `earlier`, if PIDs have not wrapped around until `later`: then at least as many
/// were given out as processes and threads were created.
fn pid_before(earlier: Moment, later: Moment) -> Option<i32> {
    let (before, last) = (earlier.last_pid?, later.last_pid?);
    let forks = later.forks?.checked_sub(earlier.forks?)?;
    let given = u64::try_from(last.checked_sub(before)?).ok()?;
    (forks <= given).then_some(before)
}

/// Returns the entry with its lineage narrowed to processes created since `moment`.
pub fn narrowed(entry: &Entry, moment: Moment) -> Entry {
    let mut entry = entry.clone();
    if let Entry::ScoreGiven { lineage, .. } | Entry::AskingGiven { lineage, .. } = &mut entry {
        if moment.ticks > lineage.since.ticks {
            lineage.since = moment;
        }
    }
    entry
}

/// Whether a process can have inherited a value that was given to this lineage.
pub fn is_kin(process: &Process, start: u64, lineage: &Lineage) -> limelight_sys::Result<bool> {
    if start < lineage.since.ticks || process.login_uid()? != lineage.login {
        return Ok(false);
    }
    // If the lineage has a login, the user does not matter: a child may have become root by sudo.
    if lineage.login.is_some() {
        return Ok(true);
    }
    let status = process.status()?;
    if [status.real_uid, status.effective_uid].contains(&lineage.uid) {
        return Ok(true);
    }
    // A child in a user namespace has other UIDs, but cannot leave the user's slice.
    let slice = format!("user-{}.slice", lineage.uid);
    let cgroup = process.cgroup()?.unwrap_or_default();
    Ok(cgroup.split('/').any(|name| name == slice))
}

/// Processes to check.
#[derive(Debug)]
pub struct Candidates {
    /// Process tree with the recorded processes and their descendants, and possibly others.
    pub tree: ProcessTree,
    /// PIDs of all processes to check, ascending.
    pub pids: Vec<i32>,
    /// Members of the app's own cgroups.
    pub homes: BTreeSet<i32>,
    /// Whether a process ended before it could be checked. It may have left a child.
    pub missed: bool,
}

impl Candidates {
    /// Finds the processes to check. Fails when no descriptor is left.
    fn find<R: Copy, G: Copy>(
        system: &System,
        heritage: &Heritage<'_, R, G>,
    ) -> limelight_sys::Result<Candidates> {
        let tree = heritage.tree(system)?;
        let mut pids = BTreeSet::new();
        let recorded = heritage.processes.values().map(|(id, _)| id);
        for id in recorded.filter(|id| is_alive(&tree, **id)) {
            pids.insert(id.pid);
            pids.extend(tree.descendants(id.pid));
        }
        let mut members = BTreeSet::new();
        for home in &heritage.homes {
            members.extend(procs_of(system, home)?);
        }
        pids.extend(&members);
        let lineages = heritage.lineages.iter().map(|(lineage, _)| *lineage);
        let (since, missed) = made_since(system, lineages)?;
        pids.extend(since.iter().map(|stat| stat.pid));
        // The daemon itself is left out: it has chosen its own priority.
        pids.retain(|pid| u32::try_from(*pid) != Ok(std::process::id()));
        Ok(Candidates {
            tree,
            pids: pids.into_iter().collect(),
            homes: members,
            missed,
        })
    }
}

/// Changes of one kind of value, and the processes that may have inherited such a value. `R`: the
/// changes of a process. `G`: a change whose values the processes of a lineage may have inherited.
#[derive(Debug)]
pub struct Heritage<'a, R, G> {
    /// The recorded processes, by PID.
    pub processes: BTreeMap<i32, (ProcessId, R)>,
    /// The recorded apps' own cgroups.
    homes: BTreeSet<&'a Place>,
    /// The recorded lineages.
    pub lineages: Vec<(&'a Lineage, G)>,
}

impl<'a, R: Copy, G: Copy> Heritage<'a, R, G> {
    /// Evaluates these entries. `changed` returns the changes of an entry about a process, and the
    /// app's own cgroup; `given` returns the change of an entry about a lineage.
    pub fn new(
        entries: &'a [Entry],
        changed: impl Fn(&'a Entry) -> Option<(R, &'a Option<Place>)>,
        given: impl Fn(&'a Entry) -> Option<G>,
    ) -> Heritage<'a, R, G> {
        let mut heritage = Heritage {
            processes: BTreeMap::new(),
            homes: BTreeSet::new(),
            lineages: Vec::new(),
        };
        for entry in entries {
            if let (Some(id), Some((changes, home))) = (entry.process(), changed(entry)) {
                heritage.processes.insert(id.pid, (id, changes));
                heritage.homes.extend(home);
            }
            let lineage = entry.lineage().zip(given(entry));
            heritage.lineages.extend(lineage);
        }
        heritage
    }

    /// A process tree with the recorded processes and their descendants.
    pub fn tree(&self, system: &System) -> limelight_sys::Result<ProcessTree> {
        let roots: Vec<i32> = self.processes.keys().copied().collect();
        system.tree_below(&roots)
    }

    /// Whether a process is older than every recorded change. Then it has inherited none.
    pub fn is_older(&self, id: ProcessId) -> bool {
        let since = self.lineages.iter().map(|(lineage, _)| lineage.since.ticks);
        since.min().is_some_and(|first| id.starttime < first)
    }

    /// The changes of the nearest recorded ancestor.
    pub fn of_ancestor(&self, tree: &ProcessTree, pid: i32) -> Option<R> {
        nearest(tree, pid, |pid| {
            let (id, changes) = self.processes.get(&pid)?;
            is_alive(tree, *id).then_some(*changes)
        })
    }

    /// The changes of the lineages to which a process belongs. The flag tells whether the lineage
    /// is root's.
    pub fn of_lineages(
        &self,
        process: &Process,
        start: u64,
    ) -> limelight_sys::Result<Vec<(G, bool)>> {
        let mut all = Vec::new();
        for (lineage, change) in &self.lineages {
            if is_kin(process, start, lineage)? {
                all.push((*change, lineage.uid == 0));
            }
        }
        Ok(all)
    }

    /// Makes one pass over the processes that may have inherited a value. `restore` returns how
    /// many values of a process it has restored. Returns their number in all, and whether a process
    /// may have been missed.
    pub fn pass(
        &self,
        system: &System,
        mut restore: impl FnMut(&Candidates, ProcessId, &Process) -> limelight_sys::Result<usize>,
    ) -> limelight_sys::Result<(usize, bool)> {
        let candidates = Candidates::find(system, self)?;
        let (mut found, mut missed) = (0, candidates.missed);
        for &pid in &candidates.pids {
            let process = system.process(pid);
            match process.and_then(|(id, process)| restore(&candidates, id, &process)) {
                Ok(count) => found += count,
                Err(error) if error.is_exhausted() => return Err(error),
                Err(_) => missed = true,
            }
        }
        Ok((found, missed))
    }
}

/// Whether a recorded process is alive in the tree.
pub fn is_alive(tree: &ProcessTree, id: ProcessId) -> bool {
    let stat = tree.get(id.pid);
    stat.is_some_and(|stat| stat.start_ticks == id.starttime)
}

/// Processes that are no older than the oldest of these lineages, without kernel threads, and
/// whether a process was missed.
fn made_since<'a>(
    system: &System,
    lineages: impl Iterator<Item = &'a Lineage>,
) -> limelight_sys::Result<(Vec<Stat>, bool)> {
    let since = lineages.map(|lineage| lineage.since);
    let Some(first) = since.min_by_key(|since| since.ticks) else {
        return Ok((Vec::new(), false));
    };
    let after = first_pid(system, first);
    let mut found = Vec::new();
    let mut missed = false;
    let kernel = system.proc.stat(2)?;
    for pid in system.proc.pids()? {
        if pid <= after {
            continue;
        }
        let Some(stat) = system.proc.stat(pid)? else {
            missed = true;
            continue;
        };
        if stat.start_ticks >= first.ticks && !is_kernel_thread(&stat, kernel.as_ref()) {
            found.push(stat);
        }
    }
    Ok((found, missed))
}

/// A lower bound: all PIDs given out since `then` are above the returned one; 0 if unknown. The
/// bound saves checking thousands of older processes. There is no upper bound, because a process
/// that forks and ends without pause would stay above any bound.
fn first_pid(system: &System, then: Moment) -> i32 {
    let (Some(from), Some(before)) = (then.last_pid, then.forks) else {
        return 0;
    };
    let last = system.proc.last_pid();
    match (last, system.proc.pid_max(), system.proc.forks()) {
        // Fewer than half of all PIDs were given out, and the last one is not below the first: PIDs
        // have not wrapped around.
        (Ok(last), Ok(most), Ok(forks))
            if from <= last && forks.saturating_sub(before) < most / 2 =>
        {
            from
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Roots;
    use std::fs;
    use std::path::Path;

    const SINCE: Moment = Moment {
        ticks: 70,
        last_pid: Some(100),
        forks: Some(1000),
    };

    const LINEAGE: Lineage = Lineage {
        uid: 1000,
        login: None,
        since: SINCE,
    };

    fn fixture() -> (tempfile::TempDir, System) {
        let temp = tempfile::tempdir().unwrap();
        for directory in ["proc/sys/kernel", "sys", "cgroup"] {
            fs::create_dir_all(temp.path().join(directory)).unwrap();
        }
        let system = System::open(Roots::below(temp.path())).unwrap();
        (temp, system)
    }

    fn process(temp: &Path, pid: i32, ppid: i32, start: u64, uids: [u32; 2]) {
        let directory = temp.join(format!("proc/{pid}"));
        fs::create_dir_all(&directory).unwrap();
        let comm = if pid == 2 { "kthreadd" } else { "app" };
        let stat =
            format!("{pid} ({comm}) S {ppid} 1 1 0 0 0 1 0 2 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
        fs::write(directory.join("stat"), stat).unwrap();
        let [real, effective] = uids;
        let status = format!("Tgid:\t{pid}\nUid:\t{real}\t{effective}\t0\t0\n");
        fs::write(directory.join("status"), status).unwrap();
        fs::write(directory.join("cgroup"), "0::/user.slice/session-1.scope\n").unwrap();
    }

    #[test]
    fn search_leaves_out_processes_that_one_a_second_ago_could_see() {
        let at = |ticks, last_pid: i32, forks| Moment {
            ticks,
            last_pid: Some(last_pid),
            forks: Some(forks),
        };
        let mut searches = Searches::default();
        let mut since = |begin| searches.begins(begin);
        assert_eq!(since(at(1000, 500, 500)), at(900, 0, 500));
        assert_eq!(since(at(1050, 510, 510)), at(950, 0, 510));
        assert_eq!(since(at(1120, 520, 520)), at(1020, 500, 520));
        assert_eq!(since(at(1200, 530, 530)), at(1100, 510, 530));
        let wrapped = at(2000, 600, 40_000);
        assert_eq!(since(wrapped), at(1900, 0, 40_000));
    }

    #[test]
    fn kin_share_the_user_or_the_login_and_are_no_older_than_the_change() {
        let (temp, system) = fixture();
        let kin = |lineage: Lineage| {
            let (id, process) = system.process(200).unwrap();
            is_kin(&process, id.starttime, &lineage).unwrap()
        };
        let file = |name: &str, text: &str| {
            fs::write(temp.path().join("proc/200").join(name), text).unwrap();
        };
        process(temp.path(), 200, 1, 69, [1000, 1000]);
        assert!(!kin(LINEAGE), "a process older than the change");
        fs::remove_dir_all(temp.path().join("proc/200")).unwrap();
        process(temp.path(), 200, 1, 70, [1000, 0]);
        assert!(kin(LINEAGE), "a program that is set to root's uid");
        process(temp.path(), 200, 1, 70, [100_999, 100_999]);
        assert!(!kin(LINEAGE), "another user's process");
        file("cgroup", "0::/user.slice/user-1000.slice/x.scope\n");
        assert!(kin(LINEAGE), "a process in a user namespace");
        let login = Lineage {
            login: Some(1000),
            ..LINEAGE
        };
        assert!(!kin(login), "a process without a login");
        process(temp.path(), 200, 1, 70, [0, 0]);
        file("loginuid", "1000");
        assert!(
            kin(login) && !kin(LINEAGE),
            "a process that became root by sudo"
        );
        file("loginuid", "4294967295");
        assert!(!kin(login));
    }

    #[test]
    fn only_processes_made_since_the_change_are_checked() {
        let (temp, system) = fixture();
        let kernel = |last: i32, forks: u64| {
            let proc = temp.path().join("proc");
            fs::write(proc.join("loadavg"), format!("0 0 0 1/9 {last}\n")).unwrap();
            fs::write(proc.join("stat"), format!("cpu 1\nprocesses {forks}\n")).unwrap();
            fs::write(proc.join("sys/kernel/pid_max"), "32768\n").unwrap();
        };
        for (pid, ppid, start) in [
            (2, 0, 0),
            (50, 1, 90),
            (90, 2, 90),
            (101, 1, 69),
            (102, 1, 70),
            (103, 2, 80),
        ] {
            process(temp.path(), pid, ppid, start, [0, 0]);
        }
        let found = || -> Vec<i32> {
            let (found, _) = made_since(&system, [&LINEAGE].into_iter()).unwrap();
            found.iter().map(|stat| stat.pid).collect()
        };
        assert_eq!(found(), [50, 102], "the kernel does not report forks");
        kernel(200, 1100);
        assert_eq!(found(), [102]);
        kernel(101, 1100);
        assert_eq!(found(), [102], "forked since the last pid was read");
        kernel(60, 1100);
        assert_eq!(found(), [50, 102], "pids wrapped around");
        kernel(200, 1000 + 32768);
        assert_eq!(found(), [50, 102], "pids may have wrapped around");
        assert!(made_since(&system, [].into_iter()).unwrap().0.is_empty());
        // A process that ended between listing and reading.
        fs::create_dir(temp.path().join("proc/150")).unwrap();
        assert!(made_since(&system, [&LINEAGE].into_iter()).unwrap().1);
    }
}
