// SPDX-License-Identifier: GPL-2.0-or-later
//! `readahead` in user space: reads ahead what the topmost app reads in sequence ([`streams`]), at
//! random ([`waits`]), and while it starts ([`coldstart`]). Where `/dev/limelight` exists, the
//! policy also switches the kernel's own read-ahead for the topmost app.
//!
//! The reads in user space change no setting of a file or a disk, so nothing has to be restored.
//! They only bring in pages that the app is likely to read anyway, and only while memory is not
//! short.

pub mod coldstart;
pub mod disk;
pub mod opens;
pub mod reader;
pub mod replay;
mod report;
pub mod streams;
pub mod waits;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use limelight_core::model::{App, ProcessId, Snapshot};
use limelight_core::policy::readahead::{follows_streams, room, Step};
use limelight_core::settings::ReadaheadSettings;
use limelight_sys::device::{self, Setting};
use limelight_sys::fanotify::Fanotify;
use limelight_sys::files::FileStat;
use limelight_sys::keyed::Keyed;
use tracing::{debug, info, warn};

use crate::event_loop::answers::{answers, Answers, Reply};
use crate::mechanisms::shared::{Context, Effect, Mechanism, Shared};
use crate::sources::pressure;
use crate::system::System;
use coldstart::{ColdStart, Owner};
use opens::{Events, Opens};
use reader::{Answer, Job, Reader};
use replay::Replay;
use streams::Streams;
use waits::Waits;

/// How long a determination of `room` is used while files are read ahead. Determining `room` costs
/// more than the poll of a stream.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of buffers of open events that are handled in one turn of the event loop; each
/// holds some 160 events.
const BUFFERS: usize = 32;

/// The watch on opens, or why there is none.
#[derive(Debug)]
enum Eyes {
    Open(Box<Opens>),
    Shut(String),
}

/// Totals since the mechanism was started or its configuration changed, for `status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// App starts whose files were read ahead.
    pub replays: u64,
    /// App starts that were recorded.
    pub recordings: u64,
    /// Bytes requested for these starts.
    pub replayed_bytes: u64,
}

/// The reader threads, and their answers.
#[derive(Debug)]
struct Readers {
    streams: Reader,
    starts: Reader,
    answers: Answers<Answer>,
}

/// State of the `readahead` mechanism.
#[derive(Debug)]
pub struct Readahead {
    settings: ReadaheadSettings,
    eyes: Eyes,
    readers: Option<Readers>,
    coldstart: ColdStart,
    streams: Streams,
    waits: Result<Waits, String>,
    /// The topmost app's processes, ascending.
    members: Vec<ProcessId>,
    /// Whether the topmost app's streams are followed.
    follows: bool,
    /// Steps by which the reservation was lowered, as of the last plan.
    lowered_steps: u8,
    /// How many bytes may still be read ahead, and when that was determined.
    room: Option<(u64, Duration)>,
    totals: Totals,
    /// While set, nothing is read ahead.
    paused: bool,
}

impl Readahead {
    /// Starts the watches that the configuration and the machine allow. Reads no file ahead yet.
    /// `directory` holds the records of app starts.
    pub fn start(
        system: &System,
        settings: &ReadaheadSettings,
        directory: &Path,
        dry_run: bool,
        now: Duration,
    ) -> Readahead {
        let mut readahead = Readahead {
            settings: settings.clone(),
            eyes: Eyes::Shut("switched off by the configuration ([readahead])".to_owned()),
            readers: None,
            coldstart: ColdStart::new(directory, now),
            streams: Streams::new(system, settings, now),
            waits: Err("nothing is read ahead".to_owned()),
            members: Vec::new(),
            follows: false,
            lowered_steps: 0,
            room: None,
            totals: Totals::default(),
            paused: false,
        };
        if dry_run {
            readahead.eyes = Eyes::Shut("a dry run reads nothing ahead".to_owned());
        } else if settings.enabled {
            readahead.readers = start_readers(system);
            readahead.waits = Waits::start(system).map_err(|error| error.to_string());
            readahead.open_eyes(system, now);
        }
        readahead
    }

    fn open_eyes(&mut self, system: &System, now: Duration) {
        if self.readers.is_none() {
            self.eyes = Eyes::Shut("no thread could be started".to_owned());
            return;
        }
        self.eyes = match Opens::start(system, self.settings.cold_start, now) {
            Ok(opens) => Eyes::Open(Box::new(opens)),
            Err(why) => {
                opens::refused(&why);
                Eyes::Shut(why.to_string())
            }
        };
    }

    /// The queue of executions and first reads, which the event loop polls.
    pub fn execs(&self) -> Option<&Fanotify> {
        queue_of(&self.eyes)
    }

    /// The queue of opens, which the event loop polls in one-shot mode.
    pub fn opens(&self) -> Option<&Fanotify> {
        match &self.eyes {
            Eyes::Open(opens) => Some(opens.patient()),
            Eyes::Shut(_) => None,
        }
    }

    /// The mount table, which the event loop polls for `EPOLLPRI`.
    pub fn mounts(&self) -> Option<&OwnedFd> {
        match &self.eyes {
            Eyes::Open(opens) => opens.changes(),
            Eyes::Shut(_) => None,
        }
    }

    /// Schedules a scan of the mount table after a mount or an unmount.
    pub fn notice_mounts(&mut self, now: Duration) {
        if let Eyes::Open(opens) = &mut self.eyes {
            opens.notice_mounts(now);
        }
    }

    /// The reader threads' answers, which the event loop polls.
    pub fn answers(&self) -> Option<&Answers<Answer>> {
        self.readers.as_ref().map(|readers| &readers.answers)
    }

    /// The queue of the app's waits, which the event loop polls in one-shot mode.
    pub fn waits(&self) -> Option<&Waits> {
        self.waits.as_ref().ok()
    }

    /// Notes that the app waits for a file.
    pub fn notice_waits(&mut self, now: Duration) {
        if let Ok(waits) = &mut self.waits {
            waits.noticed(now);
        }
    }

    /// Time of the next deadline; `None`: nothing is scheduled.
    pub fn next_deadline(&self) -> Option<Duration> {
        let opens = match &self.eyes {
            Eyes::Open(opens) => opens.next_deadline(),
            Eyes::Shut(_) => None,
        };
        let deadlines = [
            opens,
            self.coldstart.next_deadline(),
            self.streams.next_deadline(),
            self.waits().and_then(Waits::next_deadline),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Takes the topmost app and its processes from a plan's snapshot: either may have changed.
    pub fn observe(&mut self, snapshot: &Snapshot, system: &System, now: Duration) {
        if self.readers.is_none() || self.paused {
            return;
        }
        if self.lowered_steps != snapshot.lowered_steps {
            self.room = None;
        }
        self.lowered_steps = snapshot.lowered_steps;
        self.follows = follows_streams(snapshot);
        let Some(topmost) = &snapshot.topmost else {
            self.members.clear();
            self.stop_following();
            return;
        };
        let front = topmost.front();
        let new = !front.iter().any(|id| self.members.contains(id));
        if !self.follows || new {
            self.stop_following();
        }
        self.members = front;
        if self.follows {
            self.streams.look_through(&self.members, new, now);
            if let Ok(waits) = &mut self.waits {
                waits.watch(system, &self.members);
            }
        }
        if self.settings.cold_start {
            let app: &App = &topmost.app;
            self.coldstart
                .topmost(app, &topmost.members, system, &self.settings, now);
        }
    }

    /// Reads nothing ahead while paused.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        if paused {
            self.members.clear();
            self.stop_following();
        }
    }

    fn stop_following(&mut self) {
        self.streams.clear(queue_of(&self.eyes));
        if let Ok(waits) = &mut self.waits {
            waits.clear();
        }
    }

    /// Handles executions, and first reads of streams that stood still. Returns the PIDs of the
    /// processes whose program has a record of an earlier start.
    pub fn take_execs(&mut self, system: &System, now: Duration) -> Vec<i32> {
        let Eyes::Open(opens) = &mut self.eyes else {
            return Vec::new();
        };
        let batch = opens.take_prompt();
        if batch.lost {
            self.coldstart.lost(now);
            self.streams.wake(opens.prompt(), now);
        }
        let mut execs = 0;
        let mut launched = Vec::new();
        let mut replays = Vec::new();
        for event in batch.events.iter().filter(|event| event.pid != own_pid()) {
            if event.read {
                if let Ok(stat) = FileStat::of(&event.file) {
                    self.streams.read(&stat, opens.prompt(), now);
                }
            }
            if event.exec {
                execs += 1;
                if let Some(replay) = self.coldstart.executed(event.pid, &event.file, system, now) {
                    launched.push(event.pid);
                    replays.push(replay);
                }
            }
        }
        opens.spend(Events::default(), execs, false, now);
        if self.paused {
            return Vec::new();
        }
        for replay in replays {
            let room = room(&pressure::memory_now(system), self.lowered_steps);
            if room == 0 {
                let program = &replay.program;
                info!("the start of {program} is not read ahead: memory is short");
            } else if let Some(readers) = &self.readers {
                readers.starts.ask(Job::Replay(Replay { room, ..replay }));
            }
        }
        launched
    }

    /// Notes that a file was opened. The event is handled after a short delay.
    pub fn notice_opens(&mut self, now: Duration) {
        if let Eyes::Open(opens) = &mut self.eyes {
            opens.noticed(now);
        }
    }

    /// Handles the queued opens if their delay is over. Returns whether the event loop must re-arm
    /// the queue.
    pub fn take_opens(&mut self, system: &System, now: Duration) -> bool {
        let Eyes::Open(opens) = &mut self.eyes else {
            return false;
        };
        if !opens.is_time(now) {
            return false;
        }
        // The loop is bounded, because a program may open files faster than they are handled here.
        // Such a program soon exceeds a budget.
        for _ in 0..BUFFERS {
            let batch = opens.take_patient();
            if batch.lost {
                self.coldstart.lost(now);
            }
            let mut opened = Events::default();
            for event in batch.events.iter().filter(|event| event.pid != own_pid()) {
                let by_pid = |id: &ProcessId| id.pid;
                let topmost = self
                    .members
                    .binary_search_by_key(&event.pid, by_pid)
                    .is_ok();
                if topmost && self.follows {
                    if let Ok(stat) = FileStat::of(&event.file) {
                        self.streams.opened(event.pid, &stat, now);
                    }
                }
                let owner =
                    self.coldstart
                        .opened(event.pid, &event.file, system, &self.settings, now);
                match topmost || owner != Owner::Stranger {
                    true => opened.own += 1,
                    false => opened.others += 1,
                }
            }
            opens.spend(opened, 0, batch.lost, now);
            if batch.events.is_empty() && !batch.lost {
                break;
            }
        }
        true
    }

    /// Handles the reader threads' answers.
    pub fn take_answers(&mut self) {
        let Some(readers) = &self.readers else {
            return;
        };
        for answer in readers.answers.take() {
            match answer {
                Answer::Replayed(done) => match done.outcome {
                    Ok(figures) => {
                        self.totals.replays += 1;
                        self.totals.replayed_bytes += figures.bytes;
                        info!(
                            "start of {}: {} KiB of {} files requested in {} ms{}{}",
                            done.program,
                            figures.bytes >> 10,
                            figures.files,
                            figures.took.as_millis(),
                            match figures.changed {
                                0 => String::new(),
                                changed => format!(", {changed} files have changed since"),
                            },
                            if figures.stopped {
                                ", cut short: memory is short"
                            } else {
                                ""
                            },
                        );
                    }
                    Err(why) => {
                        warn!(
                            "the start of {} is not read ahead: {why}; the record is ignored until \
                             a new one is made",
                            done.program
                        );
                        self.coldstart.spoiled(&done.record);
                    }
                },
                Answer::Recorded(done) => {
                    // The reader thread has already logged the reason for a failure.
                    let Ok(kept) = done.outcome else { continue };
                    self.totals.recordings += u64::from(kept.written);
                    if kept.written {
                        info!(
                            "start of {} recorded: {} KiB of {} files",
                            done.program,
                            kept.bytes >> 10,
                            kept.files
                        );
                    } else {
                        debug!("start of {}: no record written", done.program);
                    }
                    self.coldstart.kept(&kept);
                }
            }
        }
    }

    /// Does all work that is due. Returns whether the event loop must re-arm the queue of waits.
    pub fn pass_time(&mut self, system: &System, now: Duration) -> bool {
        let Some(readers) = &self.readers else {
            return false;
        };
        if let Eyes::Open(opens) = &mut self.eyes {
            opens.pass_time(system, now);
        }
        let complete = |since| match &self.eyes {
            Eyes::Open(opens) => opens.complete_since(since),
            Eyes::Shut(_) => false,
        };
        let finished = self
            .coldstart
            .finished(system, &self.settings, complete, now);
        for recording in finished {
            readers.starts.ask(Job::Record(recording));
        }
        let is_due = |deadline: Option<Duration>| deadline.is_some_and(|due| due <= now);
        let waits = self.waits.as_mut().ok();
        let waits = waits.filter(|waits| is_due(waits.next_deadline()));
        let streams = is_due(self.streams.next_deadline());
        if waits.is_none() && !streams {
            return false;
        }
        let known = self
            .room
            .filter(|(_, at)| now.saturating_sub(*at) < MEMORY_EVERY);
        // Memory in zram does not count as room, so the kernel's counters of zram are not needed.
        let memory = || pressure::memory(&pressure::meminfo(system), &Keyed::default());
        let (mut left, at) = known.unwrap_or_else(|| (room(&memory(), self.lowered_steps), now));
        if streams {
            let means = (&readers.streams, queue_of(&self.eyes));
            self.streams
                .pass_time(system, &self.settings, means, &mut left, now);
        }
        let looked = waits.is_some_and(|waits| {
            let app = (&self.settings, self.members.as_slice());
            let means = (&mut self.streams, &readers.streams);
            waits.pass_time(system, app, means, &mut left, now)
        });
        self.room = Some((left, at));
        looked
    }

    /// Whether the reader threads run, without which nothing is read ahead.
    pub fn works(&self) -> bool {
        self.readers.is_some()
    }
}

impl Mechanism for Readahead {
    type Step = Step;

    fn apply(&mut self, step: &Step, shared: &mut Shared, context: Context<'_>) -> Effect {
        let Step::Switch { factor } = *step;
        let setting = factor.map(|factor| {
            let to = format!("on, factor {factor}");
            (
                Setting::Readahead {
                    factor: u32::from(factor),
                },
                to,
            )
        });
        let rule = "readahead: the foreground app's reads reach further ahead";
        if shared.set_up(device::Mechanism::Readahead, setting, rule, context) {
            shared.in_force.device_readahead = factor;
        }
        Effect::None
    }
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

fn queue_of(eyes: &Eyes) -> Option<&Fanotify> {
    match eyes {
        Eyes::Open(opens) => Some(opens.prompt()),
        Eyes::Shut(_) => None,
    }
}

fn start_readers(system: &System) -> Option<Readers> {
    let start = || -> std::io::Result<Readers> {
        let (reply, answers) = answers()?;
        let one = |name: &str, reply: Reply<Answer>| {
            Reader::start(name, &system.roots.sys, &system.roots.proc, reply)
        };
        Ok(Readers {
            streams: one("streams", reply.clone())?,
            starts: one("starts", reply)?,
            answers,
        })
    };
    match start() {
        Ok(readers) => Some(readers),
        Err(error) => {
            warn!("cannot start the reader threads: {error}; nothing is read ahead");
            None
        }
    }
}

#[cfg(test)]
mod tests;
