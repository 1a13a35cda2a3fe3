// SPDX-License-Identifier: GPL-2.0-or-later
//! Foreground source of EIMOS: an activity manager writes each process's importance to
//! `oom_score_adj`, and the foreground process is the one whose value becomes 0.
//!
//! The rule: a value that another process changes to 0 counts. Two writers do not count: the
//! process itself, because daemons and session leaders reset their own values; and this daemon,
//! because it lowers and restores the values of the topmost app. The tracepoint reports the writer;
//! a scan sees only values.
//!
//! A scan reads every process, so no scan is made while its results would not count, for example
//! while a session reports the foreground.
//!
//! Any process may write its own value, as often as it wants. So the trace has a budget of events;
//! beyond it, values are scanned for a minute.
//!
//! The kernel permits two kinds of writers: root and the process's owner. A write by root counts;
//! one by the owner is a claim of that user and needs permission like any other claim. A scan does
//! not see the writer, so each of its results needs that permission.

use std::collections::HashMap;
use std::time::Duration;

use limelight_core::model::ProcessId;
use limelight_core::rate::Rate;
use limelight_sys::process::{Process, Status};
use limelight_sys::tracefs::{parse_oom_score_adj, Instance, Line};
use tracing::{debug, info, warn};

use crate::config::OomScoreAdjSource;
use crate::restore::Ledger;
use crate::sources::traced::{Event, Traced};
use crate::system::unusable::Unusable;
use crate::system::System;

const SYSTEM: &str = "oom";
const EVENT: &str = "oom_score_adj_update";
const INSTANCE: &str = "limelight";

/// The bit of CAP_SYS_RESOURCE (`capability.h`).
const SYS_RESOURCE: u64 = 1 << 24;

/// With this many processes known, ended ones are dropped before another is added.
const KNOWN_MAX: usize = 8192;

/// Delay before a tracepoint that could not be used is tried again: a trace needs memory, which may
/// have been short.
const RETRY: Duration = Duration::from_secs(60);

/// Bytes of the trace that are read at once, about 600 events. The event loop calls again while
/// there are more.
const TAKE_MAX_BYTES: usize = 64 << 10;

/// Events that may come at once, and per second on average. Each costs the daemon some tens of
/// microseconds. An activity manager writes some dozens when the foreground changes.
const EVENTS_BURST: u64 = 4000;
const EVENTS_PER_SECOND: u64 = 200;

/// How changes of the value are detected.
#[derive(Debug)]
enum Way {
    Trace(Traced),
    Scan {
        /// When the next scan is due; `None` while its results would not count.
        next: Option<Duration>,
        /// When the tracepoint is tried again.
        retry: Option<Duration>,
    },
    Off,
}

/// A value that this daemon has lowered: the process, its value without this daemon, and the
/// lowered one.
pub type Lowered = (ProcessId, i16, i16);

/// A process whose value became 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Zeroed {
    /// The process.
    pub id: ProcessId,
    /// The process's owner may have written the value: the writer was the owner, or is unknown.
    pub by_owner: bool,
}

/// Foreground source that follows changes of `oom_score_adj`.
#[derive(Debug)]
pub struct OomScoreAdj {
    way: Way,
    /// Interval of scans.
    interval: Duration,
    /// Limits the traced events.
    rate: Rate,
    detail: String,
    /// The last known value of each process, without this daemon's changes.
    known: HashMap<ProcessId, i16>,
}

impl OomScoreAdj {
    /// Starts as configured; an instance that a previous daemon left behind is removed.
    pub fn start(
        system: &System,
        ledger: &mut Ledger,
        wanted: OomScoreAdjSource,
        interval: Duration,
        now: Duration,
    ) -> OomScoreAdj {
        let scan = |retry| Way::Scan {
            next: Some(now + interval),
            retry,
        };
        let scan_detail = scan_detail(system, interval);
        let (way, detail) = match wanted {
            OomScoreAdjSource::Off => {
                let off = "switched off by the configuration ([sources] oom_score_adj)";
                (Way::Off, off.to_owned())
            }
            OomScoreAdjSource::Scan => (scan(None), scan_detail),
            OomScoreAdjSource::Auto | OomScoreAdjSource::Tracepoint => {
                match trace(system, ledger) {
                    Ok(traced) => (Way::Trace(traced), traced_detail()),
                    Err(why) if wanted == OomScoreAdjSource::Auto => {
                        info!(
                            "scanning oom_score_adj, because the tracepoint cannot be used: {why}"
                        );
                        let detail = format!("{scan_detail}; no tracepoint: {why}");
                        (scan(Some(now + RETRY)), detail)
                    }
                    Err(why) => {
                        warn!("the source oom_score_adj is off: {why}");
                        (Way::Off, why.to_string())
                    }
                }
            }
        };
        let mut source = OomScoreAdj {
            way,
            interval,
            rate: Rate::new(EVENTS_PER_SECOND, EVENTS_BURST, now),
            detail,
            known: HashMap::new(),
        };
        source.resync(system, &[]);
        source
    }

    /// Whether the source can report a foreground process.
    pub fn is_on(&self) -> bool {
        !matches!(self.way, Way::Off)
    }

    /// How the source works, or why it does not.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The trace instance to wait for; `None`: the source does not use the tracepoint.
    pub fn instance(&self) -> Option<&Instance> {
        match &self.way {
            Way::Trace(traced) => Some(&traced.instance),
            _ => None,
        }
    }

    /// When the next scan is due.
    pub fn next_scan(&self) -> Option<Duration> {
        match self.way {
            Way::Scan { next, .. } => next,
            _ => None,
        }
    }

    /// Tries the tracepoint again when that is due. Returns whether there is now a trace to wait
    /// for.
    pub fn retry(&mut self, system: &System, ledger: &mut Ledger, now: Duration) -> bool {
        match &mut self.way {
            Way::Scan {
                next: Some(_),
                retry: Some(retry),
                ..
            } if *retry <= now => *retry = now + RETRY,
            _ => return false,
        }
        let Ok(traced) = trace(system, ledger) else {
            return false;
        };
        info!("the oom_score_adj tracepoint can be used now; no longer scanning");
        self.way = Way::Trace(traced);
        self.detail = traced_detail();
        true
    }

    /// Reads a part of the trace, and returns the processes whose value became 0, oldest first. With
    /// more events than the budget allows, the trace ends and values are scanned.
    pub fn take_traced(
        &mut self,
        system: &System,
        ledger: &mut Ledger,
        now: Duration,
    ) -> Vec<Zeroed> {
        let Way::Trace(traced) = &mut self.way else {
            return Vec::new();
        };
        let taken = match traced.instance.lines(TAKE_MAX_BYTES) {
            Ok(taken) => taken,
            Err(error) => {
                warn!("the oom_score_adj tracepoint failed and is no longer used: {error}");
                self.detail = error.to_string();
                self.way = Way::Off;
                return Vec::new();
            }
        };
        let (fronts, within_budget) = self.evaluate(&taken.lines, system, ledger, now);
        if !within_budget {
            self.flooded(system, ledger, now);
        }
        fronts
    }

    /// Evaluates lines of the trace until the budget is used up. Returns the processes whose value
    /// became 0, and whether the budget sufficed.
    fn evaluate(
        &mut self,
        lines: &[String],
        system: &System,
        ledger: &Ledger,
        now: Duration,
    ) -> (Vec<Zeroed>, bool) {
        let lowered = ledger.lowered_scores();
        let mut fronts = Vec::new();
        let mut lost = 0;
        for line in lines {
            match Line::parse(line) {
                Some(Line::Event(event)) if event.name == EVENT => {
                    let Some((pid, value)) = parse_oom_score_adj(event.fields) else {
                        continue;
                    };
                    if self.rate.take(1, now) == 0 {
                        return (fronts, false);
                    }
                    fronts.extend(self.written(system, &lowered, event.tid, pid, value));
                }
                Some(Line::Lost { events }) => lost += events.max(1),
                _ => {}
            }
        }
        if lost > 0 {
            debug!("{lost} oom_score_adj events were lost");
            self.resync(system, &lowered);
        }
        (fronts, true)
    }

    /// Replaces the trace by scans, until the tracepoint is tried again.
    fn flooded(&mut self, system: &System, ledger: &mut Ledger, now: Duration) {
        let scan = Way::Scan {
            next: Some(now + self.interval),
            retry: Some(now + RETRY),
        };
        warn!(
            "processes write oom_score_adj more than {EVENTS_PER_SECOND} times a second; scanning \
             the values for {} s",
            RETRY.as_secs()
        );
        self.detail = format!(
            "{}; processes wrote the values more than {EVENTS_PER_SECOND} times a second, which is \
             too often to trace",
            scan_detail(system, self.interval)
        );
        if let Way::Trace(traced) = std::mem::replace(&mut self.way, scan) {
            traced.stop(ledger);
        }
        self.resync(system, &ledger.lowered_scores());
    }

    /// Handles the write of a value. Returns the process if that puts it in the foreground.
    fn written(
        &mut self,
        system: &System,
        lowered: &[Lowered],
        writer_tid: i32,
        pid: i32,
        value: i16,
    ) -> Option<Zeroed> {
        let thread = system.proc.process(writer_tid).ok();
        let by = thread.and_then(|thread| Some((thread.status().ok()?, thread)));
        let writer = by.as_ref().map_or(writer_tid, |(status, _)| status.tgid);
        if u32::try_from(writer).ok() == Some(std::process::id()) {
            return None;
        }
        let (id, process) = system.process(pid).ok()?;
        let before = match self.known.get(&id) {
            Some(before) => *before,
            // The process is new, and started with its parent's value.
            None => self.inherited(system, lowered, pid)?,
        };
        if self.known.len() >= KNOWN_MAX {
            self.known.retain(|id, _| !system.has_ended(*id));
        }
        self.known.insert(id, value);
        let owner = process.status().ok().map(|status| status.real_uid);
        let by_root = by.is_some_and(|(status, thread)| acts_as_root(&thread, &status, owner));
        let by_owner = !by_root;
        (writer != pid && value == 0 && before != 0).then_some(Zeroed { id, by_owner })
    }

    fn inherited(&self, system: &System, lowered: &[Lowered], pid: i32) -> Option<i16> {
        let (_, process) = system.process(pid).ok()?;
        let (parent, process) = system.process(process.stat().ok()?.ppid).ok()?;
        if let Some(value) = self.known.get(&parent) {
            return Some(*value);
        }
        let value = process.oom_score_adj().ok()?;
        Some(without_us(lowered, parent, value))
    }

    /// Scans all processes if that is due, and returns those whose value became 0. `heard`: whether
    /// the results would count. If not, there is no scan, and a value that becomes 0 meanwhile is
    /// not reported later.
    pub fn take_scanned(
        &mut self,
        system: &System,
        lowered: &[Lowered],
        heard: bool,
        now: Duration,
    ) -> Vec<Zeroed> {
        let Way::Scan { next, .. } = &mut self.way else {
            return Vec::new();
        };
        if !heard {
            *next = None;
            return Vec::new();
        }
        if next.is_some_and(|due| due > now) {
            return Vec::new();
        }
        let rested = next.replace(now + self.interval).is_none();
        if rested {
            self.resync(system, lowered);
            return Vec::new();
        }
        let before = std::mem::take(&mut self.known);
        self.resync(system, lowered);
        let mut fronts: Vec<Zeroed> = self
            .known
            .iter()
            .filter(|(id, value)| **value == 0 && before.get(*id).is_some_and(|old| *old != 0))
            .map(|(&id, _)| Zeroed { id, by_owner: true })
            .collect();
        fronts.sort_unstable();
        fronts
    }

    /// Discards the known values and reads all processes again. A scan needs this after this daemon
    /// has written values, which would otherwise count as another writer's.
    pub fn resync(&mut self, system: &System, lowered: &[Lowered]) {
        if !self.is_on() {
            return;
        }
        self.known.clear();
        for pid in system.proc.pids().unwrap_or_default() {
            let Ok((id, process)) = system.process(pid) else {
                continue;
            };
            let Ok(value) = process.oom_score_adj() else {
                continue;
            };
            self.known.insert(id, without_us(lowered, id, value));
        }
    }

    /// Whether this daemon's own writes require [`OomScoreAdj::resync`].
    pub fn sees_own_writes(&self) -> bool {
        self.next_scan().is_some()
    }

    /// Stops tracing and removes the instance.
    pub fn stop(&mut self, ledger: &mut Ledger) {
        self.known.clear();
        if let Way::Trace(traced) = std::mem::replace(&mut self.way, Way::Off) {
            traced.stop(ledger);
        }
    }
}

/// Whether a writer writes as root, and not on behalf of the process's user `owner`. A writer with
/// another uid, such as Android's lmkd, needs the capability that lowers values. It must have it in
/// the initial user namespace, because any user can get it in a new namespace.
fn acts_as_root(writer: &Process, status: &Status, owner: Option<u32>) -> bool {
    let capable = status.effective_capabilities & SYS_RESOURCE != 0;
    status.real_uid == 0
        || capable
            && Some(status.real_uid) != owner
            && writer.is_in_initial_user_namespace().unwrap_or(false)
}

/// The value without this daemon's change.
fn without_us(lowered: &[Lowered], id: ProcessId, value: i16) -> i16 {
    let ours = lowered
        .iter()
        .find(|(known, _, ours)| *known == id && *ours == value);
    ours.map_or(value, |(_, original, _)| *original)
}

fn scan_detail(system: &System, interval: Duration) -> String {
    format!(
        "scan of {} every {} ms, which counts only apps whose user may claim the foreground",
        system.roots.proc.display(),
        interval.as_millis()
    )
}

fn traced_detail() -> String {
    format!("tracepoint {SYSTEM}:{EVENT}")
}

fn trace(system: &System, ledger: &mut Ledger) -> Result<Traced, Unusable> {
    let event = Event {
        system: SYSTEM,
        name: EVENT,
        lack: "",
    };
    Traced::start(system, ledger, INSTANCE, event, |_| Ok(()))
}

#[cfg(test)]
#[path = "oom_score_adj_tests.rs"]
mod tests;
