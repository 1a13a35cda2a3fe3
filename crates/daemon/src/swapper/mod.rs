// SPDX-License-Identifier: GPL-2.0-or-later
//! The threads that move apps' memory out and back, so that the loop does not wait for the disk.
//!
//! One squeezes, which takes as long as writing does; the other one brings back, which somebody
//! waits for. They share nothing with the loop but their queues and the list of answers.

mod bring_back;
mod footprint;
mod ranges;
mod squeeze;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::time::Duration;

use limelight_core::model::{AppKey, ProcessId};
use tracing::debug;

use crate::answers::{answers, Answers, Reply};
use crate::gate::Gate;
use crate::restore::Place;

use footprint::Footprints;
use squeeze::Squeezer;

/// Jobs that may wait.
const JOBS: usize = 64;

/// Stack of a thread, in bytes: none of its functions is deep.
const STACK: usize = 256 << 10;

/// Take memory from an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Squeeze {
    /// The app.
    pub app: AppKey,
    /// Its cgroup; `None`: only its processes are squeezed.
    pub place: Option<Place>,
    /// Its processes.
    pub members: Vec<ProcessId>,
    /// How much, in bytes.
    pub bytes: u64,
    /// Also what it will need when it returns.
    pub dry: bool,
}

/// What the thread that brings back is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// The app has left the front: note which pages of files it has mapped.
    Remember {
        /// The app.
        app: AppKey,
        /// Its processes.
        members: Vec<ProcessId>,
    },
    /// The app is in front again: read what it misses.
    Return {
        /// The app.
        app: AppKey,
        /// Its processes.
        members: Vec<ProcessId>,
        /// Most of it, in bytes.
        most: u64,
    },
    /// The app has been in front for a moment: note what it needed.
    Learn {
        /// The app.
        app: AppKey,
    },
    /// These apps are gone.
    Forget {
        /// They.
        apps: Vec<AppKey>,
    },
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// An app was squeezed.
    Squeezed {
        /// The app.
        app: AppKey,
        /// When that began, since boot.
        at: Duration,
        /// How long it took.
        took: Duration,
        /// Bytes that went to swap.
        swapped: u64,
        /// Bytes of memory that it has less.
        freed: u64,
        /// Nothing is left but what it will need when it returns.
        lean: bool,
        /// Why it was less than wanted, if it failed.
        failed: Option<String>,
    },
    /// What an app touched of its memory when it came to the front.
    Learnt {
        /// The app.
        app: AppKey,
        /// Bytes.
        working_set: u64,
    },
    /// An app's memory was brought back.
    Returned {
        /// The app.
        app: AppKey,
        /// When that began, since boot.
        at: Duration,
        /// How long it took.
        took: Duration,
        /// Bytes that were read from swap.
        swapped: u64,
        /// Bytes of its files that were asked for; what of them was cached cost nothing.
        files: u64,
        /// Why it was not all, if it failed.
        failed: Option<String>,
    },
}

/// Both threads.
#[derive(Debug)]
pub struct Swapper {
    squeezes: SyncSender<Squeeze>,
    errands: SyncSender<Errand>,
    answers: Answers<Done>,
    /// Goes up when somebody waits: what was begun before that ends with its piece.
    waits: Arc<AtomicU64>,
}

impl Swapper {
    /// Starts them, with the cgroup v2 mount point and the procfs to work on.
    pub fn start(cgroups: &Path, proc: &Path, gate: Gate) -> std::io::Result<Swapper> {
        let (reply, answers) = answers()?;
        let (squeezes, queue) = sync_channel(JOBS);
        let squeezed = reply.clone();
        let waits = Arc::new(AtomicU64::new(0));
        let footprints = Footprints::default();
        let squeezer = Squeezer {
            mount: cgroups.to_owned(),
            proc: proc.to_owned(),
            footprints: Arc::clone(&footprints),
            waits: Arc::clone(&waits),
            gate,
        };
        spawn("limelight-squeeze", move || squeezer.run(&queue, &squeezed))?;
        let (errands, queue): (_, Receiver<Errand>) = sync_channel(JOBS);
        let proc = proc.to_owned();
        let returned: Reply<Done> = reply;
        spawn("limelight-return", move || {
            bring_back::run(&proc, &footprints, &queue, &returned);
        })?;
        Ok(Swapper {
            squeezes,
            errands,
            answers,
            waits,
        })
    }

    /// Has an app squeezed; whether there was room for one more.
    pub fn squeeze(&self, job: Squeeze) -> bool {
        self.squeezes.try_send(job).is_ok()
    }

    /// Somebody waits from now on: the disk is theirs.
    pub fn interrupt(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// Has something brought back.
    pub fn ask(&self, errand: Errand) {
        if self.errands.try_send(errand).is_err() {
            debug!("too much to bring back: left out");
        }
    }

    /// What was done.
    pub fn answers(&self) -> &Answers<Done> {
        &self.answers
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.stack_size(STACK).spawn(body).map(|_| ())
}

/// A failure in words; one that says only that the process or cgroup has ended is none.
fn failure(error: limelight_sys::Error) -> Option<String> {
    (!error.is_gone()).then(|| error.to_string())
}
