// SPDX-License-Identifier: GPL-2.0-or-later
//! Which processes of an app with terminals are in front.
//!
//! The window shows the terminal emulator and one of its tabs. A tab is a session whose leader (a
//! shell, as a rule) belongs to the app and has a pseudo-terminal. A key press is answered by the
//! emulator, and by the shell or the command that reads from the tab's terminal. A build that was
//! started in a tab answers no key, wherever it runs: it is background work.
//!
//! The kernel knows the foreground process group of each terminal, but not which tab is on the
//! screen. The tab from which a process last read a key counts as that tab.

use std::collections::BTreeMap;
use std::time::Duration;

use super::app::{AppKey, ProcessId};
use super::boost::Role;

/// Time within which reads from two terminals count as simultaneous: the kernel updates the time of
/// a read only once in 8 s (`tty_update_time()`).
const READ_GRAIN_S: i64 = 8;

/// Shortest time over which CPU use is measured.
const MEASURE: Duration = Duration::from_millis(400);

/// A shell or command that uses at least this percentage of one CPU computes instead of answering
/// keys.
const BUSY_PERCENT: u128 = 50;

/// How long a shell or command counts as busy after it was last measured so.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// How long a job counts as running after one of its processes was last seen runnable.
const JOB_FOR: Duration = Duration::from_secs(5);

/// Clock ticks per second in which CPU time is counted (`USER_HZ`).
const TICKS_PER_S: u128 = 100;

/// A process of an app, or of a session that the app started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The process.
    pub process: ProcessId,
    /// Pid of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// Number of its pseudo-terminal; `None` without a controlling pseudo-terminal.
    pub tty: Option<u32>,
    /// Foreground process group of its terminal.
    pub tty_group: i32,
    /// CPU time, in clock ticks.
    pub cpu_ticks: u64,
    /// Nice value of its main thread.
    pub nice: i32,
    /// Whether its main thread runs or waits for a CPU.
    pub runnable: bool,
}

/// Part of a process in an app with terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// It belongs to the program that has the window.
    Window,
    /// It leads the session of the tab in front: a shell.
    Shell,
    /// It is a command that the shell of the tab in front runs in the foreground.
    Command,
    /// It would be a shell or a command in front, but uses much CPU time.
    Busy,
    /// It belongs to another tab.
    OtherTab,
    /// It is a background job, or was started by a command.
    Job,
}

impl Part {
    /// Whether the process may answer a key press.
    pub fn is_front(self) -> bool {
        matches!(self, Part::Window | Part::Shell | Part::Command)
    }

    /// The role of a process in front; `None` for other processes.
    fn role(self) -> Option<Role> {
        match self {
            Part::Window => Some(Role::Window),
            Part::Shell | Part::Command => Some(Role::Tab),
            Part::Busy | Part::OtherTab | Part::Job => None,
        }
    }

    /// What the process is, for `explain`.
    pub fn describe(self) -> &'static str {
        match self {
            Part::Window => "it belongs to the program that has the window",
            Part::Shell => "it leads the session of the tab in front",
            Part::Command => "it runs in the foreground of the tab in front",
            Part::Busy => "it computes, although it runs in the foreground of the tab in front",
            Part::OtherTab => "it belongs to a tab that is not in front",
            Part::Job => "it is a background job, or was started by a command",
        }
    }
}

/// The parts of an app with at least one terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terminal {
    /// Each process with its part, by process.
    pub parts: Vec<(ProcessId, Part)>,
    /// Processes that are not in front and have a negative nice value. They may have inherited it.
    pub lowered: Vec<ProcessId>,
    /// Whether a process that is not in front uses CPU time.
    pub job_runs: bool,
    /// Memory of the processes in front, in bytes; `None` if all processes are in front.
    pub front_bytes: Option<u64>,
}

impl Terminal {
    /// The part of a process; `None` if it belongs to another app.
    pub fn part(&self, process: ProcessId) -> Option<Part> {
        let parts = &self.parts;
        let found = parts.binary_search_by_key(&process, |(process, _)| *process);
        found
            .ok()
            .and_then(|at| parts.get(at))
            .map(|(_, part)| *part)
    }

    /// The processes that `boost` changes, with their roles.
    pub fn roles(&self) -> impl Iterator<Item = (ProcessId, Role)> + '_ {
        let front = self.parts.iter();
        let front = front.filter_map(|(process, part)| Some((*process, part.role()?)));
        let lowered = self.lowered.iter().map(|process| (*process, Role::Job));
        front.chain(lowered)
    }

    /// Whether some process is not in front.
    pub fn has_jobs(&self) -> bool {
        self.parts.iter().any(|(_, part)| !part.is_front())
    }

    /// The processes in front, ascending.
    pub fn front(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let front = self.parts.iter().filter(|(_, part)| part.is_front());
        front.map(|(process, _)| *process)
    }
}

/// Follows the processes of the foreground app.
#[derive(Debug, Clone, Default)]
pub struct Terminals {
    app: Option<AppKey>,
    /// For each process in front, when its CPU time was measured, and the CPU time.
    used: BTreeMap<ProcessId, (Duration, u64)>,
    /// When each process was last busy.
    busy: BTreeMap<ProcessId, Duration>,
    job_ran: Option<Duration>,
}

impl Terminals {
    /// The parts of the app's processes; `None` for an app without a terminal. `focused` is the
    /// process that has the window, if known. `read` tells when a process last read from a
    /// terminal, in seconds since 1970.
    pub fn observe(
        &mut self,
        app: AppKey,
        members: &[Member],
        focused: Option<ProcessId>,
        read: &BTreeMap<u32, i64>,
        now: Duration,
    ) -> Option<Terminal> {
        if self.app != Some(app) {
            *self = Terminals {
                app: Some(app),
                ..Terminals::default()
            };
        }
        let mut parts = split(members, focused, read)?;
        self.measure(members, &parts, now);
        for (process, part) in &mut parts {
            let last = self.busy.get(process).filter(|_| *part != Part::Window);
            if part.is_front() && last.is_some_and(|last| now.saturating_sub(*last) < BUSY_FOR) {
                *part = Part::Busy;
            }
        }
        let mut terminal = Terminal {
            parts,
            ..Terminal::default()
        };
        let behind = |member: &&Member| {
            let part = terminal.part(member.process);
            part.is_some_and(|part| !part.is_front())
        };
        let behind: Vec<&Member> = members.iter().filter(behind).collect();
        if behind.iter().any(|member| member.runnable) {
            self.job_ran = Some(now);
        }
        let lowered = behind.iter().filter(|member| member.nice < 0);
        terminal.lowered = lowered.map(|member| member.process).collect();
        terminal.lowered.sort_unstable();
        let ran = |last: Duration| now.saturating_sub(last) < JOB_FOR;
        terminal.job_runs = self.job_ran.is_some_and(ran);
        Some(terminal)
    }

    /// Measures the CPU use of shells and commands.
    fn measure(&mut self, members: &[Member], parts: &[(ProcessId, Part)], now: Duration) {
        let answers = |part: Part| matches!(part, Part::Shell | Part::Command);
        let front = parts.iter().filter(|(_, part)| answers(*part));
        let front: Vec<ProcessId> = front.map(|(process, _)| *process).collect();
        let is_front = |process: &ProcessId| front.binary_search(process).is_ok();
        self.used.retain(|process, _| is_front(process));
        self.busy.retain(|process, _| is_front(process));
        for member in members.iter().filter(|member| is_front(&member.process)) {
            let latest = (now, member.cpu_ticks);
            let (since, before) = *self.used.entry(member.process).or_insert(latest);
            let elapsed = now.saturating_sub(since);
            if elapsed < MEASURE {
                continue;
            }
            self.used.insert(member.process, latest);
            let ticks = u128::from(member.cpu_ticks.saturating_sub(before));
            if ticks * 1000 / TICKS_PER_S * 100 >= elapsed.as_millis() * BUSY_PERCENT {
                self.busy.insert(member.process, now);
            }
        }
    }
}

/// Relations between the processes of an app.
struct Family<'a> {
    by_pid: BTreeMap<i32, &'a Member>,
    focused: Option<&'a Member>,
}

impl<'a> Family<'a> {
    fn get(&self, pid: i32) -> Option<&'a Member> {
        self.by_pid.get(&pid).copied()
    }

    /// The leader of the tab to which a process belongs.
    fn leader(&self, member: &Member) -> Option<&'a Member> {
        let leader = self.get(member.session)?;
        let same = member.tty.is_some() && leader.tty == member.tty;
        (same && leader.process.pid == leader.session).then_some(leader)
    }

    /// The process and its ancestors in the app, nearest first.
    fn line(&self, member: &'a Member) -> impl Iterator<Item = &'a Member> + '_ {
        // Processes are read one after another, so a reused pid can form a loop.
        let next = |member: &&'a Member| self.get(member.parent);
        std::iter::successors(Some(member), next).take(self.by_pid.len())
    }

    /// Whether a process belongs to the program that has the window, and not to one that was
    /// started in a tab.
    fn has_window(&self, member: &'a Member) -> bool {
        if let Some(focused) = self.focused {
            let inside = self.leader(member) == self.leader(focused);
            let kin = self.line(member).any(|one| one.process == focused.process);
            // The focused program itself was started in a tab.
            if self.leader(focused).is_some() && kin && inside {
                return true;
            }
        }
        if self.line(member).any(|one| self.leader(one).is_some()) {
            return false;
        }
        let Some(oldest) = self.line(member).last() else {
            return false;
        };
        // A program that left its tab, such as a daemon, has no ancestor in the app.
        self.focused.is_none_or(|focused| {
            oldest.process == focused.process
                || oldest.session == focused.session
                || oldest.process.starttime <= focused.process.starttime
        })
    }

    fn part(&self, member: &'a Member, front: &[u32]) -> Part {
        if self.has_window(member) {
            return Part::Window;
        }
        let Some(leader) = self.leader(member) else {
            return Part::Job;
        };
        if !member.tty.is_some_and(|tty| front.contains(&tty)) {
            return Part::OtherTab;
        }
        if member.process == leader.process {
            return Part::Shell;
        }
        // The shell starts the processes of a pipeline itself, each in the new group. What these
        // start in turn has a parent in the group.
        let parent = self.get(member.parent);
        let started_by_shell = parent
            .is_some_and(|parent| parent.session == member.session && parent.group != member.group);
        match member.group == member.tty_group && started_by_shell {
            true => Part::Command,
            false => Part::Job,
        }
    }
}

/// The part of each process, by process, from one reading; `None` if the app has no terminal.
fn split(
    members: &[Member],
    focused: Option<ProcessId>,
    read: &BTreeMap<u32, i64>,
) -> Option<Vec<(ProcessId, Part)>> {
    let by_pid: BTreeMap<i32, &Member> = members
        .iter()
        .map(|member| (member.process.pid, member))
        .collect();
    let focused = focused.and_then(|focused| {
        let found = by_pid.get(&focused.pid).copied();
        found.filter(|member| member.process == focused)
    });
    let family = Family { by_pid, focused };
    let tabs: Vec<u32> = members
        .iter()
        .filter(|member| family.leader(member).is_some())
        .filter_map(|member| member.tty)
        .collect();
    if tabs.is_empty() {
        return None;
    }
    let grain = |tty: &u32| read.get(tty).map(|at| at.div_euclid(READ_GRAIN_S));
    let last = tabs.iter().filter_map(grain).max();
    // A tab whose time is unknown may be the one in front.
    let is_front = |tty: &u32| grain(tty).is_none_or(|at| Some(at) == last);
    let front: Vec<u32> = tabs.into_iter().filter(is_front).collect();
    let mut parts: Vec<(ProcessId, Part)> = family
        .by_pid
        .values()
        .map(|member| (member.process, family.part(member, &front)))
        .collect();
    parts.sort_unstable();
    Some(parts)
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
