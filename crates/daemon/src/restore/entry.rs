// SPDX-License-Identifier: GPL-2.0-or-later
//! Entries of the restore record: one kind for each thing that Limelight changes, with its value
//! before Limelight.

use std::ffi::OsStr;
use std::fmt;
use std::mem::discriminant;
use std::path::PathBuf;

use limelight_core::model::{Home, ProcessId};
use limelight_sys::cgroup::Cgroup;
use serde::{Deserialize, Serialize};

/// A cgroup: the path finds it, the inode identifies it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Path below the mount point, with a leading slash.
    pub path: String,
    /// Inode number of its directory.
    pub inode: u64,
}

impl From<&Home> for Place {
    fn from(home: &Home) -> Place {
        Place {
            path: home.path.clone(),
            inode: home.inode,
        }
    }
}

impl From<&Cgroup> for Place {
    fn from(cgroup: &Cgroup) -> Place {
        Place {
            path: cgroup.path().as_str().to_owned(),
            inode: cgroup.id().0,
        }
    }
}

/// A process that was moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub starttime: u64,
    /// The cgroup in which it was before the move.
    pub from: Place,
}

/// A thread's scheduling parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Nice value.
    pub nice: i32,
    /// Slice in nanoseconds; 0: the kernel's own.
    pub slice_ns: u64,
    /// I/O priority as the kernel packs it; 0: none.
    pub io_priority: u16,
    /// Whether new threads and children start with default nice value and slice.
    #[serde(default)]
    pub resets_on_fork: bool,
}

/// A thread with changed scheduling parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    /// Thread id.
    pub tid: i32,
    /// Start time in clock ticks since boot.
    pub starttime: u64,
    /// The values before Limelight.
    pub original: Asking,
    /// The values that Limelight gave it.
    pub ours: Asking,
}

/// A point in time, to distinguish processes that were created after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Clock ticks since boot, as start times are counted.
    pub ticks: u64,
    /// The PID that was given out last; `None` if the kernel does not report it.
    pub last_pid: Option<i32>,
    /// Number of processes and threads created since boot; `None` if the kernel does not report it.
    pub forks: Option<u64>,
}

/// Describes the processes that can have inherited a value: a user's processes that were created
/// since Limelight changed a value of one of them. An unprivileged child can leave its parent,
/// session and cgroup, but not its user and login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The user of the process that got the value.
    pub uid: u32,
    /// The login uid of that process, if it has one.
    pub login: Option<u32>,
    /// A moment before the first process of this user and login got the value.
    pub since: Moment,
}

impl Lineage {
    fn same_users(&self, other: &Lineage) -> bool {
        (self.uid, self.login) == (other.uid, other.login)
    }
}

/// One change that Limelight made or is about to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "changed", rename_all = "kebab-case")]
pub enum Entry {
    /// A memory limit of a cgroup.
    Limit {
        /// The cgroup.
        cgroup: Place,
        /// File name: `memory.min` or `memory.low`.
        knob: String,
        /// Value before Limelight: bytes or `max`.
        original: String,
        /// Values that Limelight wrote or is about to write.
        ours: Vec<String>,
    },
    /// A weight of a cgroup.
    Weight {
        /// The cgroup.
        cgroup: Place,
        /// File name: `cpu.weight`, `io.weight` or `io.bfq.weight`.
        knob: String,
        /// Weight before Limelight.
        original: u32,
        /// Weight that Limelight wrote.
        ours: u32,
    },
    /// Nice value, slice and I/O priority of a process's threads.
    Threads {
        /// Process id.
        pid: i32,
        /// Start time in clock ticks since boot.
        starttime: u64,
        /// The app's own cgroup. Orphaned children in this cgroup may have inherited the changed
        /// values.
        home: Option<Place>,
        /// The threads, ascending.
        threads: Vec<Tuned>,
    },
    /// `memory.swap.max` of a cgroup, which Limelight set to 0.
    SwapMax {
        /// The cgroup.
        cgroup: Place,
        /// Value before Limelight.
        original: String,
    },
    /// `memory.high` of a cgroup, which Limelight lowered.
    High {
        /// The cgroup.
        cgroup: Place,
        /// Value before: bytes or `max`.
        original: String,
        /// Values that Limelight wrote or is about to write.
        ours: Vec<String>,
    },
    /// A cgroup that Limelight froze.
    Frozen {
        /// The cgroup.
        cgroup: Place,
    },
    /// Nice value of a session that the scheduler treats as a group (autogroup).
    Autogroup {
        /// One of the session's processes.
        pid: i32,
        /// Start time of that process in clock ticks since boot.
        starttime: u64,
        /// The group's number.
        number: u64,
        /// Nice value before Limelight.
        original: i32,
        /// Nice value that Limelight wrote.
        ours: i32,
    },
    /// A controller that Limelight enabled for a cgroup's children.
    Controller {
        /// The cgroup.
        cgroup: Place,
        /// Name of the controller, such as `memory`.
        controller: String,
    },
    /// `oom_score_adj` of a process.
    OomScoreAdj {
        /// Process id.
        pid: i32,
        /// Start time in clock ticks since boot.
        starttime: u64,
        /// Value before Limelight.
        original: i16,
        /// Value that Limelight wrote.
        ours: i16,
        /// The app's own cgroup. Orphaned children in this cgroup may have inherited Limelight's
        /// value.
        home: Option<Place>,
    },
    /// Processes of this lineage may have inherited an `oom_score_adj` from Limelight, in any
    /// cgroup.
    ScoreGiven {
        /// The processes that may have inherited the value.
        lineage: Lineage,
        /// The value that they would have inherited without Limelight.
        original: i16,
        /// The value that they inherit.
        ours: i16,
    },
    /// Threads of this lineage may have inherited scheduling values that Limelight gave to other
    /// threads.
    AskingGiven {
        /// The processes whose threads may have inherited the values.
        lineage: Lineage,
        /// The values that they would have inherited without Limelight.
        original: Asking,
        /// The values that they inherit.
        ours: Asking,
    },
    /// A cgroup that Limelight created as the parent of the apps' cgroups.
    Slice {
        /// Path below the mount point.
        path: String,
    },
    /// A cgroup that Limelight created for an app, with the processes that were moved into it.
    Scope {
        /// Path below the mount point.
        path: String,
        /// The app's previous cgroup. Children that were forked after the move are moved there.
        from: Place,
        /// Processes that were moved.
        moved: Vec<Move>,
    },
    /// A tracefs instance.
    TraceInstance {
        /// Its directory.
        path: PathBuf,
    },
}

impl Entry {
    /// Whether both entries are about the same thing, so that one replaces the other.
    pub fn same_thing(&self, other: &Entry) -> bool {
        match (self, other) {
            (
                Entry::ScoreGiven {
                    lineage: a,
                    original: x,
                    ours: v,
                },
                Entry::ScoreGiven {
                    lineage: b,
                    original: y,
                    ours: w,
                },
            ) => a.same_users(b) && (x, v) == (y, w),
            (
                Entry::AskingGiven {
                    lineage: a,
                    original: x,
                    ours: v,
                },
                Entry::AskingGiven {
                    lineage: b,
                    original: y,
                    ours: w,
                },
            ) => a.same_users(b) && (x, v) == (y, w),
            _ => discriminant(self) == discriminant(other) && self.identity() == other.identity(),
        }
    }

    /// Identifies the changed thing among things of its kind. `None` for inherited values, which
    /// are compared by lineage and value instead.
    fn identity(&self) -> Option<(u64, u64, &OsStr)> {
        let none = OsStr::new("");
        Some(match self {
            Entry::Limit { cgroup, knob, .. } | Entry::Weight { cgroup, knob, .. } => {
                (cgroup.inode, 0, knob.as_ref())
            }
            Entry::Controller { cgroup, controller } => (cgroup.inode, 0, controller.as_ref()),
            Entry::SwapMax { cgroup, .. }
            | Entry::High { cgroup, .. }
            | Entry::Frozen { cgroup } => (cgroup.inode, 0, none),
            Entry::OomScoreAdj { pid, starttime, .. } | Entry::Threads { pid, starttime, .. } => {
                (u64::from(pid.unsigned_abs()), *starttime, none)
            }
            Entry::Autogroup { number, .. } => (*number, 0, none),
            Entry::Slice { path } | Entry::Scope { path, .. } => (0, 0, path.as_ref()),
            Entry::TraceInstance { path } => (0, 0, path.as_os_str()),
            Entry::ScoreGiven { .. } | Entry::AskingGiven { .. } => return None,
        })
    }

    /// Whether the entry is about `oom_score_adj`.
    pub fn is_score(&self) -> bool {
        matches!(self, Entry::OomScoreAdj { .. } | Entry::ScoreGiven { .. })
    }

    /// Whether the entry is about scheduling parameters of threads.
    pub fn is_asking(&self) -> bool {
        matches!(self, Entry::Threads { .. } | Entry::AskingGiven { .. })
    }

    /// The lineage, if the entry is about inherited values.
    pub fn lineage(&self) -> Option<&Lineage> {
        match self {
            Entry::ScoreGiven { lineage, .. } | Entry::AskingGiven { lineage, .. } => Some(lineage),
            _ => None,
        }
    }

    /// The process, if the entry is about one.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Entry::OomScoreAdj { pid, starttime, .. }
            | Entry::Threads { pid, starttime, .. }
            | Entry::Autogroup { pid, starttime, .. } => Some(ProcessId {
                pid: *pid,
                starttime: *starttime,
            }),
            Entry::Limit { .. }
            | Entry::Weight { .. }
            | Entry::Controller { .. }
            | Entry::SwapMax { .. }
            | Entry::High { .. }
            | Entry::Frozen { .. }
            | Entry::ScoreGiven { .. }
            | Entry::AskingGiven { .. }
            | Entry::Slice { .. }
            | Entry::Scope { .. }
            | Entry::TraceInstance { .. } => None,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Limit {
                cgroup,
                knob,
                original,
                ..
            } => {
                write!(
                    f,
                    "{}/{knob} = {original}",
                    cgroup.path.trim_end_matches('/')
                )
            }
            Entry::Weight {
                cgroup,
                knob,
                original,
                ..
            } => write!(
                f,
                "{}/{knob} = {original}",
                cgroup.path.trim_end_matches('/')
            ),
            Entry::SwapMax { cgroup, original } => {
                let path = cgroup.path.trim_end_matches('/');
                write!(f, "{path}/memory.swap.max = {original}")
            }
            Entry::High {
                cgroup, original, ..
            } => {
                let path = cgroup.path.trim_end_matches('/');
                write!(f, "{path}/memory.high = {original}")
            }
            Entry::Frozen { cgroup } => {
                write!(f, "{}/cgroup.freeze = 0", cgroup.path.trim_end_matches('/'))
            }
            Entry::Threads { pid, threads, .. } => {
                write!(f, "scheduling of {} threads of pid {pid}", threads.len())
            }
            Entry::Controller { cgroup, controller } => {
                let path = cgroup.path.trim_end_matches('/');
                write!(f, "{path}/cgroup.subtree_control without {controller}")
            }
            Entry::OomScoreAdj { pid, original, .. } => {
                write!(f, "/proc/{pid}/oom_score_adj = {original}")
            }
            Entry::Autogroup {
                number, original, ..
            } => write!(f, "nice value of autogroup {number} = {original}"),
            Entry::ScoreGiven {
                lineage,
                original,
                ours,
            } => write!(
                f,
                "oom_score_adj = {original} of children of user {} that inherited {ours}",
                lineage.uid
            ),
            Entry::AskingGiven {
                lineage,
                original,
                ours,
            } => write!(
                f,
                "nice {} of children of user {} that inherited nice {}, and their slice",
                original.nice, lineage.uid, ours.nice
            ),
            Entry::Slice { path } => write!(f, "absence of {path}"),
            Entry::Scope { path, from, moved } => {
                write!(
                    f,
                    "absence of {path}, its {} processes in {}",
                    moved.len(),
                    from.path
                )
            }
            Entry::TraceInstance { path } => write!(f, "absence of {}", path.display()),
        }
    }
}
