// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads which terminal each process of the foreground app has, and when a process last read from
//! each terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use limelight_core::model::terminal::{Member, Terminal, Terminals};
use limelight_core::model::{App, AppKey, ProcessId};
use limelight_sys::dir::Dir;
use limelight_sys::process::Stat;
use limelight_sys::tty::{last_read_s, pts_number};

use crate::system::System;

/// Age from which a process without a terminal is assumed never to get one: a child gets its
/// terminal between fork and exec.
const GROWN: Duration = Duration::from_secs(2);

/// Clock ticks per second in `/proc/PID/stat` (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// Follows the terminals of the foreground app.
#[derive(Debug, Default)]
pub struct TerminalSource {
    app: Option<AppKey>,
    terminals: Terminals,
    /// Processes of the app that had no terminal at the age of [`GROWN`]. They are read again only
    /// while another process of the app has a terminal; most apps never have one.
    without: BTreeSet<ProcessId>,
}

impl TerminalSource {
    /// Reads the app's processes and assigns each of them its part. `members` are the app's
    /// processes, ascending. `None` if the app has no tab: no session with a pseudo-terminal whose
    /// leader belongs to the app. Also `None` if `/proc` cannot be read.
    pub fn look(
        &mut self,
        system: &System,
        app: &App,
        members: &[ProcessId],
        now: Duration,
    ) -> Option<Terminal> {
        if self.app != Some(app.key) {
            *self = TerminalSource {
                app: Some(app.key),
                ..TerminalSource::default()
            };
        }
        self.without
            .retain(|process| members.binary_search(process).is_ok());
        let fresh: Vec<ProcessId> = members
            .iter()
            .filter(|process| !self.without.contains(process))
            .copied()
            .collect();
        let fresh = read(system, &fresh);
        let elsewhere = tabs_elsewhere(system, app, members);
        if elsewhere.is_empty() && !fresh.iter().any(|member| member.tty.is_some()) {
            let grown = |member: &&Member| {
                let age = now
                    .as_secs()
                    .saturating_sub(member.process.starttime / TICKS_PER_S);
                age >= GROWN.as_secs()
            };
            self.without
                .extend(fresh.iter().filter(grown).map(|member| member.process));
            return None;
        }
        let without: Vec<ProcessId> = self.without.iter().copied().collect();
        let mut all = read(system, &without);
        all.extend(fresh);
        all.extend(elsewhere);
        let read = last_reads(system, &all);
        let found = self
            .terminals
            .observe(app.key, &all, app.process, &read, now);
        let mut terminal = found?;
        if terminal.has_jobs() {
            terminal.front_bytes =
                Some(terminal.front().map(|one| memory_bytes(system, one)).sum());
        }
        Some(terminal)
    }
}

fn member(stat: &Stat) -> Member {
    Member {
        process: ProcessId {
            pid: stat.pid,
            starttime: stat.start_ticks,
        },
        parent: stat.ppid,
        group: stat.group,
        session: stat.session,
        tty: pts_number(stat.tty),
        tty_group: stat.tty_group,
        cpu_ticks: stat.cpu_ticks,
        nice: stat.nice,
        runnable: stat.state == 'R',
    }
}

/// Reads these processes. Leaves out those that have ended or cannot be read.
fn read(system: &System, processes: &[ProcessId]) -> Vec<Member> {
    let stats = processes.iter().filter_map(|process| {
        let stat = system.proc.stat(process.pid).ok().flatten()?;
        Some(member(&stat)).filter(|member| member.process == *process)
    });
    stats.collect()
}

/// The processes of tabs that the app's main process started in another cgroup, as GNOME's
/// terminals do (`vte-spawn-*.scope`). They are not among `members`.
fn tabs_elsewhere(system: &System, app: &App, members: &[ProcessId]) -> Vec<Member> {
    let process = app.process.and_then(|process| system.same_process(process));
    let children = process.and_then(|process| process.main_children().ok());
    let is_member = |pid: i32| members.iter().any(|member| member.pid == pid);
    let children = children.unwrap_or_default().into_iter();
    let leaders: Vec<i32> = children
        .filter(|pid| !is_member(*pid))
        .filter(|pid| {
            let stat = system.proc.stat(*pid).ok().flatten();
            stat.is_some_and(|stat| stat.session == *pid && pts_number(stat.tty).is_some())
        })
        .collect();
    if leaders.is_empty() {
        return Vec::new();
    }
    let tree = system.tree_below(&leaders).unwrap_or_default();
    let below = leaders.iter().flat_map(|leader| tree.descendants(*leader));
    let pids: BTreeSet<i32> = below.chain(leaders.iter().copied()).collect();
    let stats = pids.into_iter().filter(|pid| !is_member(*pid));
    stats.filter_map(|pid| tree.get(pid).map(member)).collect()
}

/// When a process last read from each terminal of `members`, in seconds since 1970, by the number
/// of the terminal.
fn last_reads(system: &System, members: &[Member]) -> BTreeMap<u32, i64> {
    let Ok(pts) = Dir::open(&system.roots.pts) else {
        return BTreeMap::new();
    };
    let ttys: BTreeSet<u32> = members.iter().filter_map(|member| member.tty).collect();
    let read = ttys
        .into_iter()
        .filter_map(|tty| Some((tty, last_read_s(&pts, tty).ok()?)));
    read.collect()
}

/// Anonymous, file and swapped memory of a process, in bytes; 0 if the process cannot be read.
fn memory_bytes(system: &System, process: ProcessId) -> u64 {
    let status = system
        .same_process(process)
        .and_then(|process| process.status().ok());
    let sizes = status.map(|status| {
        [
            status.rss_anon_bytes,
            status.rss_file_bytes,
            status.swap_bytes,
        ]
    });
    sizes.into_iter().flatten().flatten().sum()
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
