// SPDX-License-Identifier: GPL-2.0-or-later
//! What `boost` must know of the machine and of the app in front: who distributes processors and
//! disks, which threads there are, and who serves the app.

use super::app::{Home, ProcessId};

/// A disk and who orders its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `vda`.
    pub name: String,
    /// Its I/O scheduler: `bfq`, `mq-deadline`, `kyber`, `none`.
    pub scheduler: String,
    /// Whether iocost distributes its time by `io.weight`.
    pub cost: bool,
}

/// Who distributes the machine's processors and disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedulers {
    /// Name of the sched_ext scheduler that rules instead of the kernel's own.
    pub sched_ext: Option<String>,
    /// The kernel takes a slice for each thread (6.12 and later).
    pub slices: bool,
    /// All real disks.
    pub disks: Vec<Disk>,
    /// Realtime is granted by group (`CONFIG_RT_GROUP_SCHED`), and cgroup v2 has no file for it: in a cgroup with
    /// the cpu controller no thread can become a realtime one (kernel, admin-guide/cgroup-v2.rst, "CPU").
    pub realtime_groups: bool,
}

/// The threads of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threads {
    /// The process.
    pub process: ProcessId,
    /// Their numbers, ascending.
    pub tids: Vec<i32>,
    /// What the process has to do with the app.
    pub role: Role,
}

/// What a process that is boosted has to do with the topmost app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It belongs to the app.
    App,
    /// A program that serves it, in a cgroup of its own or a service's.
    Helper,
    /// One that lives among other programs: a weight for its cgroup would be theirs as well.
    HelperAmong,
    /// A program that takes a processor from an app that no weight isolates. It gives way.
    Competitor,
    /// The kernel's thread that reclaims memory (`kswapd`). What it does not get done, the app does
    /// itself in each of its allocations. It is in no cgroup below the root: what it competes with is
    /// the app's branch as a whole.
    Reclaim,
}

/// A program without which the topmost app shows or sounds nothing: display server, compositor,
/// sound server, message bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// Its name.
    pub name: String,
    /// Its cgroup; `own`: nothing else is in it, or it is a service's.
    pub home: Option<Home>,
    /// Its threads.
    pub threads: Threads,
}

/// A session that the scheduler treats as one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Autogroup {
    /// Its number.
    pub number: u64,
    /// One of its processes.
    pub process: ProcessId,
}

/// What is known when another app comes to the front, and at every tick after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Who distributes processors and disks.
    pub schedulers: Schedulers,
    /// The first cgroup on the way from below the root to the app's own without `cpu.weight`.
    pub without_cpu: Option<String>,
    /// The same for `io.weight`, or `io.bfq.weight` where BFQ rules.
    pub without_io: Option<String>,
    /// The app's session is a group of its own for the scheduler (autogroup), so that a nice value
    /// counts only inside it.
    pub autogrouped: bool,
    /// All such sessions of the app and of those who serve it, by number.
    pub autogroups: Vec<Autogroup>,
    /// All threads of the app, by process.
    pub threads: Vec<Threads>,
    /// The same of a program that is being started while another app is in front.
    pub starting: Vec<Threads>,
    /// Programs that serve the app.
    pub helpers: Vec<Helper>,
    /// Threads of programs that take a processor from the app, where no weight isolates it.
    pub competitors: Vec<Threads>,
}
