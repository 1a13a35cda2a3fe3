// SPDX-License-Identifier: GPL-2.0-or-later
//! Input of `boost`: the schedulers of processors and disks, and the foreground app's threads and
//! helper processes. Its output: weights of cgroups, and the tuning of threads.

use super::app::{Home, ProcessId};

/// Divisor of the app's time slice for the slices of helpers and of the kernel's reclaim threads.
const HELPER_SLICE: u32 = 3;

/// The shortest slice that the kernel accepts, in microseconds.
const SLICE_MIN_US: u32 = 100;

/// A disk and its I/O scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Name, such as `vda`.
    pub name: String,
    /// Its I/O scheduler: `bfq`, `mq-deadline`, `kyber`, `none`.
    pub scheduler: String,
    /// Whether iocost divides the disk's time in proportion to `io.weight`.
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
    /// It belongs to a terminal emulator's window. Its builds may be in the same cgroup, so a weight
    /// would apply to them too.
    Window,
    /// A shell or a command that answers the keys of a terminal. Its children are not boosted.
    Tab,
    /// Another process of an app with terminals. It keeps nothing that it inherited from the boost.
    Job,
    /// A program that takes processor time from the app while no `cpu.weight` isolates the app. Its
    /// nice value is raised.
    Competitor,
    /// A worker thread of the kernel that is bound to no processor. Such a worker passes each byte
    /// through a pseudo-terminal (`flush_to_ldisc()`). It gets an earlier turn, but no more time.
    Worker,
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
    /// The same for `io.weight`, or with BFQ for `io.bfq.weight`.
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

/// A file that holds a cgroup's weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightFile {
    /// `cpu.weight`.
    Cpu,
    /// `io.weight`, which iocost follows.
    Io,
    /// `io.bfq.weight`, which BFQ follows.
    Bfq,
}

impl WeightFile {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            WeightFile::Cpu => "cpu.weight",
            WeightFile::Io => "io.weight",
            WeightFile::Bfq => "io.bfq.weight",
        }
    }

    /// The largest weight.
    pub fn max(self) -> u32 {
        match self {
            WeightFile::Cpu | WeightFile::Io => 10_000,
            WeightFile::Bfq => 1000,
        }
    }
}

/// A weight for one cgroup. A cgroup that already has a higher weight keeps that weight.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight {
    /// The file to write.
    pub file: WeightFile,
    /// Path of the cgroup below the mount point, with a leading slash.
    pub cgroup: String,
    /// Inode number of the cgroup, if known.
    pub inode: Option<u64>,
    /// The weight, 1 to [`WeightFile::max`].
    pub weight: u32,
}

/// Settings for threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Points by which each nice value is lowered, down to -20; 0: unchanged.
    pub nice_points: u8,
    /// Points for processes in a cgroup with other programs that get no boost
    /// ([`Role::HelperAmong`], [`Role::Window`], [`Role::Tab`]).
    pub among_points: u8,
    /// Points for the kernel's reclaim threads.
    pub reclaim_points: u8,
    /// Points by which the nice values of competitors are raised, up to 19.
    pub competitor_points: u8,
    /// Slice in microseconds; 0: unchanged.
    pub slice_us: u32,
    /// Level of the best-effort I/O class; `None`: unchanged.
    pub io_level: Option<u8>,
}

impl Tuning {
    /// The slice in microseconds for a thread of this role; 0: unchanged. A helper gets a shorter
    /// slice than the app, because it sleeps most of the time and its work cannot wait for the app.
    pub fn slice_us(&self, role: Role) -> u32 {
        match (self.slice_us, role) {
            (0, _) => 0,
            (_, Role::Competitor | Role::Job) => 0,
            (us, Role::App | Role::Window | Role::Tab) => us,
            (us, Role::Helper | Role::HelperAmong | Role::Reclaim | Role::Worker) => {
                (us / HELPER_SLICE).max(SLICE_MIN_US)
            }
        }
    }

    /// Points by which the nice value of a thread of this role is moved.
    pub fn points(&self, role: Role) -> u8 {
        match role {
            Role::App | Role::Helper => self.nice_points,
            Role::HelperAmong | Role::Window | Role::Tab => self.among_points,
            Role::Job | Role::Worker => 0,
            Role::Competitor => self.competitor_points,
            Role::Reclaim => self.reclaim_points,
        }
    }

    /// The new nice value of a thread whose original value is `original`. The app's own threads all
    /// move by the same number of points, so they keep their order.
    pub fn nice(&self, role: Role, original: i32) -> i32 {
        // A competitor with a negative nice value keeps it; 19 is the highest nice value.
        if role == Role::Competitor {
            let raised = (original + i32::from(self.points(role))).min(19);
            return if original < 0 {
                original
            } else {
                raised.max(original)
            };
        }
        (original - i32::from(self.points(role))).max(-20)
    }

    /// Whether this tuning changes nothing for threads of this role.
    pub fn spares(&self, role: Role) -> bool {
        // A job loses what it inherited.
        if role == Role::Job {
            return self.among_points == 0 && self.slice_us == 0;
        }
        let rest = self.slice_us == 0 && self.io_level.is_none();
        self.points(role) == 0 && (rest || role == Role::Competitor)
    }
}
