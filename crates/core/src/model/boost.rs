// SPDX-License-Identifier: GPL-2.0-or-later
//! Input of `boost`: the schedulers of processors and disks, the threads, and the helper processes
//! of the foreground app.

use super::app::{Home, ProcessId};

/// A disk and its I/O scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `vda`.
    pub name: String,
    /// Its I/O scheduler: `bfq`, `mq-deadline`, `kyber`, `none`.
    pub scheduler: String,
    /// Whether iocost distributes its time by `io.weight`.
    pub cost: bool,
}

/// The schedulers of the machine's processors and disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedulers {
    /// Name of the sched_ext scheduler that replaces the kernel's own, if any.
    pub sched_ext: Option<String>,
    /// Whether the kernel accepts a slice per thread (6.12 and later).
    pub slices: bool,
    /// All real disks.
    pub disks: Vec<Disk>,
    /// Whether realtime is granted by group (`CONFIG_RT_GROUP_SCHED`). cgroup v2 has no file for
    /// it, so in a cgroup with the cpu controller no thread can become a realtime one (kernel,
    /// admin-guide/cgroup-v2.rst, "CPU").
    pub realtime_groups: bool,
}

/// The threads of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads {
    /// The process.
    pub process: ProcessId,
    /// Their thread ids, ascending.
    pub tids: Vec<i32>,
    /// Role of the process for the app.
    pub role: Role,
}

/// Role of a tuned process for the topmost app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It belongs to the app.
    App,
    /// A helper process, in a cgroup of its own or a service's.
    Helper,
    /// A helper process in a cgroup with other programs: a weight for the cgroup would apply to
    /// them too.
    HelperAmong,
    /// A program that takes processor time from an app that no weight isolates. It gives way.
    Competitor,
    /// The kernel's reclaim thread (`kswapd`). What it leaves undone, the app does itself as direct
    /// reclaim. It is in no cgroup below the root and competes with the app's branch as a whole.
    Reclaim,
}

/// A program that the topmost app needs for display or sound: display server, compositor, sound
/// server, message bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// Its name.
    pub name: String,
    /// Its cgroup; `own`: it holds only the helper, or is a service's.
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
    /// The first cgroup on the path from below the root to the app's own without `cpu.weight`.
    pub without_cpu: Option<String>,
    /// The same for `io.weight`, or `io.bfq.weight` with BFQ.
    pub without_io: Option<String>,
    /// Whether the app's session is an autogroup, so that a nice value counts only inside it.
    pub autogrouped: bool,
    /// The autogroups of the app and of its helpers, by number.
    pub autogroups: Vec<Autogroup>,
    /// All threads of the app, by process.
    pub threads: Vec<Threads>,
    /// The same of a program that starts while another app is topmost.
    pub starting: Vec<Threads>,
    /// The app's helper processes.
    pub helpers: Vec<Helper>,
    /// Threads of programs that take processor time from the app, if no weight isolates it.
    pub competitors: Vec<Threads>,
}
