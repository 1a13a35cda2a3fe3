// SPDX-License-Identifier: GPL-2.0-or-later
//! Entries of the restore record: what can be changed, and the values from before.

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
    /// Below the mount point, with a leading slash.
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
    /// The cgroup it was in.
    pub from: Place,
}

/// A thread's scheduling parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Nice value.
    pub nice: i32,
    /// Slice in nanoseconds; 0: the kernel's own.
    pub slice_ns: u64,
    /// I/O priority as the kernel packs it; 0: none.
    pub io_priority: u16,
}

/// A thread with changed scheduling parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    /// Thread id.
    pub tid: i32,
    /// Start time in clock ticks since boot.
    pub starttime: u64,
    /// The values before.
    pub original: Asking,
    /// The values that Limelight gave it.
    pub ours: Asking,
}

/// A moment, to distinguish processes made after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Clock ticks since boot, as start times are counted.
    pub ticks: u64,
    /// The pid that was given out last; `None` where the kernel does not report it.
    pub last_pid: Option<i32>,
    /// Processes and threads made since boot.
    pub forks: Option<u64>,
}

/// The processes that can have inherited a value: those of a user that were made since a value of
/// that user's was changed. A child keeps its user and login whatever it does, but not its parent,
/// session or cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The user of the process that got the value.
    pub uid: u32,
    /// The login uid of that process, if it has one.
    pub login: Option<u32>,
    /// A moment before the first such process got the value.
    pub since: Moment,
}

impl Lineage {
    fn same_users(&self, other: &Lineage) -> bool {
        (self.uid, self.login) == (other.uid, other.login)
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "changed", rename_all = "kebab-case")]
pub enum Entry {
    /// A memory limit of a cgroup.
    Limit {
        /// The cgroup.
        cgroup: Place,
        /// File name: `memory.min` or `memory.low`.
        knob: String,
        /// Value before: bytes or `max`.
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
        /// Weight before.
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
        /// The app's own cgroup: children in it inherited the changed values.
        home: Option<Place>,
        /// The threads, ascending.
        threads: Vec<Tuned>,
    },
    /// `memory.swap.max` of a cgroup, which Limelight set to 0.
    SwapMax {
        /// The cgroup.
        cgroup: Place,
        /// Value before.
        original: String,
    },
    /// A cgroup that Limelight froze.
    Frozen {
        /// The cgroup.
        cgroup: Place,
    },
    /// Nice value of a session that the scheduler treats as a group.
    Autogroup {
        /// One of its processes.
        pid: i32,
        /// Start time of that process in clock ticks since boot.
        starttime: u64,
        /// The group's number.
        number: u64,
        /// Nice value before.
        original: i32,
        /// Nice value that Limelight wrote.
        ours: i32,
    },
    /// A controller that Limelight enabled for a cgroup's children.
    Controller {
        /// The cgroup.
        cgroup: Place,
        /// Its name, such as `memory`.
        controller: String,
    },
    /// `oom_score_adj` of a process.
    OomScoreAdj {
        /// Process id.
        pid: i32,
        /// Start time in clock ticks since boot.
        starttime: u64,
        /// Value before.
        original: i16,
        /// Value that Limelight wrote.
        ours: i16,
        /// The app's own cgroup: children in it inherited our value.
        home: Option<Place>,
    },
    /// Children of processes of this lineage have `oom_score_adj` from Limelight, wherever they
    /// are.
    ScoreGiven {
        /// The processes.
        lineage: Lineage,
        /// The value that they would have inherited without Limelight.
        original: i16,
        /// The value that they inherit.
        ours: i16,
    },
    /// Children and threads of processes of this lineage have the values that Limelight gave to
    /// threads.
    AskingGiven {
        /// The processes.
        lineage: Lineage,
        /// The values that they would have inherited without Limelight.
        original: Asking,
        /// The values that they inherit.
        ours: Asking,
    },
    /// A cgroup that Limelight made as a parent of others.
    Slice {
        /// Path below the mount point.
        path: String,
    },
    /// A cgroup that Limelight made for an app, with the processes moved into it.
    Scope {
        /// Path below the mount point.
        path: String,
        /// The cgroup in which the app was: children born since then go there.
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
    /// Whether both are about the same thing, so that one replaces the other.
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

    /// Identifies the thing among those of its kind. What was given to children has no identity of
    /// its own.
    fn identity(&self) -> Option<(u64, u64, &OsStr)> {
        let none = OsStr::new("");
        Some(match self {
            Entry::Limit { cgroup, knob, .. } | Entry::Weight { cgroup, knob, .. } => {
                (cgroup.inode, 0, knob.as_ref())
            }
            Entry::Controller { cgroup, controller } => (cgroup.inode, 0, controller.as_ref()),
            Entry::SwapMax { cgroup, .. } | Entry::Frozen { cgroup } => (cgroup.inode, 0, none),
            Entry::OomScoreAdj { pid, starttime, .. } | Entry::Threads { pid, starttime, .. } => {
                (u64::from(pid.unsigned_abs()), *starttime, none)
            }
            Entry::Autogroup { number, .. } => (*number, 0, none),
            Entry::Slice { path } | Entry::Scope { path, .. } => (0, 0, path.as_ref()),
            Entry::TraceInstance { path } => (0, 0, path.as_os_str()),
            Entry::ScoreGiven { .. } | Entry::AskingGiven { .. } => return None,
        })
    }

    /// Whether it is about `oom_score_adj`.
    pub fn is_score(&self) -> bool {
        matches!(self, Entry::OomScoreAdj { .. } | Entry::ScoreGiven { .. })
    }

    /// Whether it is about scheduling parameters of threads.
    pub fn is_asking(&self) -> bool {
        matches!(self, Entry::Threads { .. } | Entry::AskingGiven { .. })
    }

    /// The processes that may have inherited a value, of an entry about inheritance.
    pub fn lineage(&self) -> Option<&Lineage> {
        match self {
            Entry::ScoreGiven { lineage, .. } | Entry::AskingGiven { lineage, .. } => Some(lineage),
            _ => None,
        }
    }

    /// The process of an entry that is about a process.
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Entry::OomScoreAdj { pid, starttime, .. }
            | Entry::Threads { pid, starttime, .. }
            | Entry::Autogroup { pid, starttime, .. } => Some(ProcessId {
                pid: *pid,
                starttime: *starttime,
            }),
            _ => None,
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
            Entry::Slice { path } => write!(f, "no {path}"),
            Entry::Scope { path, from, moved } => {
                write!(
                    f,
                    "no {path}, its {} processes in {}",
                    moved.len(),
                    from.path
                )
            }
            Entry::TraceInstance { path } => write!(f, "no {}", path.display()),
        }
    }
}
