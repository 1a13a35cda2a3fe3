// SPDX-License-Identifier: GPL-2.0-or-later
//! Threads that wait for disks, so that the event loop does not wait.
//!
//! readahead() returns when the requests are queued, but it may have to read the file system's
//! block maps first. Opening a file may have to read its directory. Both are therefore done in
//! threads of their own. The threads share no state with the event loop except a bounded queue of
//! jobs and the list of answers. One thread serves streams and waits, the other one serves app
//! starts. A job that does not fit into its queue is dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;

use limelight_sys::pagecache::{read_ahead, Range};
use tracing::{debug, warn};

use crate::event_loop::answers::Reply;
use crate::mechanisms::readahead::disk::Disks;
use crate::mechanisms::readahead::replay::{self, Recording, Replay};
use crate::system::self_tuning::{come_first, stand_back};

/// Maximum number of jobs in a queue.
const JOBS: usize = 64;

/// Stack of a thread, in bytes: its call depth is small.
const STACK: usize = 256 << 10;

/// A job for a thread.
#[derive(Debug)]
pub enum Job {
    /// Read a piece of a file ahead.
    Piece {
        /// The file.
        file: Arc<File>,
        /// The part of the file to read.
        range: Range,
        /// Bytes per call.
        chunk: u64,
    },
    /// Read the file ranges of a record ahead.
    Replay(Replay),
    /// Determine which parts of an app's files are cached, and record them.
    Record(Recording),
}

/// Result of a job, for the event loop.
#[derive(Debug)]
pub enum Answer {
    /// The result of a replay, or why it failed.
    Replayed(replay::Replayed),
    /// The result of a recording, or why it failed.
    Recorded(replay::Recorded),
}

/// The event loop's handle of a reader thread, with the thread's queue.
#[derive(Debug)]
pub struct Reader {
    jobs: SyncSender<Job>,
}

impl Reader {
    /// Starts a thread, which ends when the reader is dropped and the last job is done.
    pub fn start(
        name: &str,
        sys: &Path,
        proc: &Path,
        reply: Reply<Answer>,
    ) -> std::io::Result<Reader> {
        let (jobs, queue) = sync_channel(JOBS);
        let worker = Worker {
            disks: Disks::new(sys),
            proc: proc.to_owned(),
            reply,
        };
        std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(STACK)
            .spawn(move || worker.run(&queue))?;
        Ok(Reader { jobs })
    }

    /// Queues a job; returns whether there was room for it.
    pub fn ask(&self, job: Job) -> bool {
        match self.jobs.try_send(job) {
            Ok(()) => true,
            Err(_) => {
                debug!("the read-ahead queue is full; a job is dropped");
                false
            }
        }
    }
}

struct Worker {
    disks: Disks,
    proc: PathBuf,
    reply: Reply<Answer>,
}

impl Worker {
    fn run(mut self, queue: &Receiver<Job>) {
        // With a lower priority than the app, the thread would always read too late.
        come_first();
        while let Ok(job) = queue.recv() {
            match job {
                Job::Piece { file, range, chunk } => {
                    if let Err(error) = read_ahead(&*file, range, chunk) {
                        debug!("{error}");
                    }
                }
                Job::Replay(job) => {
                    self.disks.forget();
                    let done = replay::replay(&job, &mut self.disks, &self.proc);
                    self.reply.send(Answer::Replayed(done));
                }
                Job::Record(job) => {
                    // No process waits for a recording, so it runs with a low priority.
                    stand_back();
                    let done = replay::record(&job);
                    come_first();
                    if let Err(why) = &done.outcome {
                        warn!("the start of {} was not recorded: {why}", done.program);
                    }
                    self.reply.send(Answer::Recorded(done));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn jobs_are_done_in_a_thread_and_answers_wake_the_loop() {
        let temp = tempfile::tempdir().unwrap();
        let (reply, answers) = crate::event_loop::answers::answers().unwrap();
        let reader = Reader::start("test", Path::new("/sys"), Path::new("/proc"), reply).unwrap();
        let missing = Replay {
            program: "/usr/bin/app".into(),
            record: temp.path().join("app-0"),
            room: 1 << 20,
        };
        assert!(reader.ask(Job::Replay(missing)));
        let deadline = Instant::now() + Duration::from_secs(30);
        let answer = loop {
            if let Some(answer) = answers.take().pop() {
                break answer;
            }
            assert!(
                Instant::now() < deadline,
                "timed out waiting for the answer"
            );
            std::thread::sleep(Duration::from_millis(5));
        };
        let Answer::Replayed(replayed) = answer else {
            panic!("{answer:?}");
        };
        assert!(replayed.outcome.is_err());
    }
}
