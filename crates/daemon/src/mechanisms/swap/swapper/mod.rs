// SPDX-License-Identifier: GPL-2.0-or-later
//! Threads that move apps' memory to swap and back, so that the event loop does not wait for the
//! disk.
//!
//! One thread squeezes apps and writes their pages back from zram to a disk, which takes as long as
//! the writes do. The other thread brings
//! back memory that an app waits for. With the event loop, they share only their queues, the list
//! of answers, the gate and a counter of interruptions.

mod bring_back;
mod footprint;
mod ranges;
mod squeeze;
mod write_back;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::{AppKey, ProcessId};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::proc::Proc;
use tracing::debug;

use crate::event_loop::answers::{answers, Answers, Reply};
use crate::reconcile::gate::Gate;
use crate::restore::Place;
use crate::system::same_process;

use footprint::Footprints;
use squeeze::Squeezer;

/// Maximum number of jobs in a queue.
const JOBS: usize = 64;

/// Stack of a thread, in bytes: its call depth is small.
const STACK: usize = 256 << 10;

/// A request to take memory from an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Squeeze {
    /// The app.
    pub app: AppKey,
    /// Its cgroup; `None`: only its processes are squeezed.
    pub place: Option<Place>,
    /// Its processes.
    pub members: Vec<ProcessId>,
    /// How much memory to take, in bytes.
    pub bytes: u64,
    /// Also take the memory that the app will need when it returns.
    pub dry: bool,
}

/// A request to write an app's pages from zram to its backing device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBack {
    /// The app.
    pub app: AppKey,
    /// Its processes.
    pub members: Vec<ProcessId>,
    /// Maximum number of bytes to write.
    pub bytes: u64,
}

/// A job for the thread that takes memory from apps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Squeeze an app.
    Squeeze(Squeeze),
    /// Write an app's pages back from zram.
    WriteBack(WriteBack),
}

/// A job for the thread that brings memory back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// The app has left the foreground.
    Left {
        /// The app.
        app: AppKey,
    },
    /// The app is topmost again: read its missing memory.
    Return {
        /// The app.
        app: AppKey,
        /// Its processes.
        members: Vec<ProcessId>,
        /// Maximum number of bytes to read from its files. The same maximum applies separately to
        /// its swapped memory.
        most: u64,
    },
    /// The app has been topmost for a moment: determine which memory it needed.
    Learn {
        /// The app.
        app: AppKey,
    },
    /// These apps are gone: discard their footprints.
    Forget {
        /// The apps that are gone.
        apps: Vec<AppKey>,
    },
}

/// A finished job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// An app was squeezed.
    Squeezed {
        /// The app.
        app: AppKey,
        /// When the squeeze began, since boot.
        at: Duration,
        /// How long it took.
        took: Duration,
        /// Bytes that went to swap; 0 without a cgroup.
        swapped: u64,
        /// Decrease of its cgroup's memory, in bytes; without a cgroup, the bytes that the kernel
        /// was advised to page out.
        freed: u64,
        /// Whether all that is left is memory that the app will need when it returns.
        lean: bool,
        /// Why the squeeze took less than requested, if it failed.
        failed: Option<String>,
    },
    /// An app's pages were written back from zram.
    WrittenBack {
        /// The app.
        app: AppKey,
        /// When that began, since boot.
        at: Duration,
        /// How long it took.
        took: Duration,
        /// Bytes of the pages that the kernel was asked to write.
        bytes: u64,
        /// Why fewer pages were written than requested, if that failed.
        failed: Option<String>,
    },
    /// How much of its memory an app touched when it became topmost.
    Learnt {
        /// The app.
        app: AppKey,
        /// Size of its known working set, in bytes.
        working_set: u64,
    },
    /// An app's memory was brought back.
    Returned {
        /// The app.
        app: AppKey,
        /// When the return began, since boot.
        at: Duration,
        /// How long it took.
        took: Duration,
        /// Bytes that were read from swap.
        swapped: u64,
        /// Bytes of its files that were requested. Parts that were cached already are not read
        /// again.
        files: u64,
        /// Why not all of the memory was brought back, if that failed.
        failed: Option<String>,
    },
}

/// Handle of both threads.
#[derive(Debug)]
pub struct Swapper {
    jobs: SyncSender<Job>,
    errands: SyncSender<Errand>,
    answers: Answers<Done>,
    /// Incremented when an app waits for the disk. Jobs that began earlier then end after their
    /// current piece.
    waits: Arc<AtomicU64>,
    /// While set, squeezes end after their current piece, and queued ones do not begin.
    paused: Arc<AtomicBool>,
}

impl Swapper {
    /// Starts both threads on a cgroup v2 mount point, a procfs and a sysfs.
    pub fn start(cgroups: &Path, proc: &Path, sys: &Path, gate: Gate) -> std::io::Result<Swapper> {
        let (reply, answers) = answers()?;
        let (jobs, queue) = sync_channel(JOBS);
        let squeezed = reply.clone();
        let waits = Arc::new(AtomicU64::new(0));
        let paused = Arc::new(AtomicBool::new(false));
        let footprints = Footprints::default();
        let squeezer = Squeezer {
            mount: cgroups.to_owned(),
            proc: proc.to_owned(),
            sys: sys.to_owned(),
            footprints: Arc::clone(&footprints),
            waits: Arc::clone(&waits),
            paused: Arc::clone(&paused),
            gate,
            page_out: squeeze::page_out,
        };
        spawn("limelight-squeeze", move || squeezer.run(&queue, &squeezed))?;
        let (errands, queue): (_, Receiver<Errand>) = sync_channel(JOBS);
        let proc = proc.to_owned();
        let returned: Reply<Done> = reply;
        spawn("limelight-return", move || {
            bring_back::run(&proc, &footprints, &queue, &returned);
        })?;
        Ok(Swapper {
            jobs,
            errands,
            answers,
            waits,
            paused,
        })
    }

    /// Queues a job that takes memory from an app; returns whether there was room for it.
    pub fn queue(&self, job: Job) -> bool {
        self.jobs.try_send(job).is_ok()
    }

    /// Stops running squeezes and write-backs after their current piece: an app needs the disk now.
    pub fn interrupt(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all squeezes, or permits them again.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Queues a job for the thread that brings memory back.
    pub fn ask(&self, errand: Errand) {
        if self.errands.try_send(errand).is_err() {
            debug!("the queue for reading memory back is full; a job is dropped");
        }
    }

    /// The finished jobs.
    pub fn answers(&self) -> &Answers<Done> {
        &self.answers
    }
}

/// Opens a pidfd of exactly this process; `None` if it has ended.
fn pidfd_of(proc: &Proc, member: ProcessId) -> limelight_sys::Result<Option<Pidfd>> {
    let pidfd = match Pidfd::open(member.pid) {
        Err(error) if error.is_gone() => return Ok(None),
        pidfd => pidfd?,
    };
    // Check after opening: if the process still exists then, the pidfd refers to it.
    Ok(same_process(proc, member).map(|_| pidfd))
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.stack_size(STACK).spawn(body).map(|_| ())
}

/// The text of a failure; `None` if only the process or cgroup has ended.
fn failure(error: limelight_sys::Error) -> Option<String> {
    (!error.is_gone()).then(|| error.to_string())
}
