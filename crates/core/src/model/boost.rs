// SPDX-License-Identifier: GPL-2.0-or-later
//! Input of `boost`: the schedulers of processors and disks, and the foreground app's threads and
//! helper processes.

use super::app::{Home, ProcessId};

/// A disk and its I/O scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `vda`.
    pub name: String,
    /// Its I/O scheduler: `bfq`, `mq-deadline`, `kyber`, `none`.
    pub scheduler: String,
    /// Whether iocost divides its time by `io.weight`.
    pub cost: bool,
}

/// The schedulers of the machine's processors and disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedulers {
    /// Name of the sched_ext scheduler that replaces the kernel's own, if any.
    pub sched_ext: Option<String>,
    /// Whether the kernel accepts a slice per thread (6.12 and later).
    pub slices: bool,
    /// All disks, without virtual ones.
    pub disks: Vec<Disk>,
    /// Whether the kernel grants realtime scheduling by group (`CONFIG_RT_GROUP_SCHED`). cgroup v2
    /// has no file to grant it, so no thread can get a realtime priority in a cgroup with the cpu
    /// controller (kernel, admin-guide/cgroup-v2.rst, "CPU").
    pub realtime_groups: bool,
}

/// The threads of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads {
    /// The process.
    pub process: ProcessId,
    /// Its thread ids, ascending.
    pub tids: Vec<i32>,
    /// Role of the process for the app.
    pub role: Role,
}

/// Role of a process for the topmost app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It belongs to the app.
    App,
    /// A helper process in a cgroup that contains only it or its service.
    Helper,
    /// A helper process in a cgroup with other programs: a weight for the cgroup would apply to
    /// them too.
    HelperAmong,
    /// A program that takes processor time from the app while no `cpu.weight` isolates the app. Its
    /// nice value is raised.
    Competitor,
    /// The kernel's reclaim thread (`kswapd`). If it gets too little time, the app has to do direct
    /// reclaim itself. It is in the root cgroup and competes with the app's whole branch.
    Reclaim,
}

/// A program that the topmost app needs for display or sound: display server, compositor, sound
/// server, message bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// Its name.
    pub name: String,
    /// Its cgroup. `own` means that it contains only the helper or the helper's service.
    pub home: Option<Home>,
    /// Its threads.
    pub threads: Threads,
}

/// An autogroup: a session that the scheduler treats as one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Autogroup {
    /// Its number.
    pub number: u64,
    /// One of its processes.
    pub process: ProcessId,
}

/// Input of `boost`, collected when the topmost app changes and at every tick.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// The schedulers of processors and disks.
    pub schedulers: Schedulers,
    /// The first cgroup without `cpu.weight` on the path down from the root's children to the app's
    /// own cgroup; `None`: all have it.
    pub without_cpu: Option<String>,
    /// The first such cgroup without `io.weight`, or without `io.bfq.weight` with BFQ.
    pub without_io: Option<String>,
    /// Whether the app's session is an autogroup, so that a nice value counts only inside it.
    pub autogrouped: bool,
    /// The autogroups of the app and of its helpers, by number.
    pub autogroups: Vec<Autogroup>,
    /// All threads of the app, by process.
    pub threads: Vec<Threads>,
    /// All threads of a program that is starting while another app is topmost.
    pub starting: Vec<Threads>,
    /// The app's helper processes.
    pub helpers: Vec<Helper>,
    /// Threads of programs that take processor time from the app, if no `cpu.weight` isolates it.
    pub competitors: Vec<Threads>,
}
