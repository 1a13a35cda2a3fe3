// SPDX-License-Identifier: GPL-2.0-or-later
//! Infers the foreground app from the clients that the display server wakes after input, where no
//! source reports it.
//!
//! The tracepoint `sched:sched_waking`, in a trace instance of our own and filtered on the display
//! servers' threads, records which threads they wake and when. Tracing is on for [`SPAN`] after
//! each input. The trace is read [`SETTLED`] after the input. Without input nothing is traced, and
//! this daemon sleeps. So the first key after a pause only switches tracing on: its release is the
//! first input that counts.
//!
//! [`limelight_core::model::wake_graph`] evaluates the wakeups. This module decides which processes
//! are clients. The following are not clients: kernel threads, display servers, helpers of the
//! topmost app ([boost] helpers), this daemon, and processes of users without an active session.
//! All processes in one app's unit count as one client.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use limelight_core::model::wake_graph::{Seen, Server, Wake, WakeGraph, WITHIN};
use limelight_core::model::{unit, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::clock;
use limelight_sys::tracefs::{parse_sched_waking, Line, Tracefs};
use tracing::{debug, info, warn};

use crate::restore::Ledger;
use crate::sources::display_servers::{self, DisplayServer};
use crate::sources::traced::{Event, Traced};
use crate::system::authorization;
use crate::system::unusable::Unusable;
use crate::system::{now, System};

const SYSTEM: &str = "sched";
const EVENT: &str = "sched_waking";
const INSTANCE: &str = "limelight-wakes";

/// Size of each processor's trace buffer. A span without further input has a few hundred wakeups,
/// of 40 bytes each.
const BUFFER_KIB: u32 = 32;

/// Largest part of the trace that is evaluated at once, in bytes of text. If the trace is longer,
/// the inputs before it prove nothing, because a client's wakeup may be in the rest.
const WAKES_MAX_BYTES: usize = 1 << 20;

/// How long tracing stays on after an input: longer than usual pauses while typing.
const SPAN: Duration = Duration::from_secs(2);

/// Delay between an input and the read of the trace, so that one read covers a whole chord.
const SETTLED: Duration = Duration::from_millis(25);

/// Delay before another search for display servers, after a search that found none.
const SEARCH_AGAIN: Duration = Duration::from_secs(10);

/// Maximum number of display server threads that are traced: a filter is limited to one page.
const THREADS_MAX: usize = 160;

/// Maximum number of inputs that are kept until the trace is read.
const INPUTS_MAX: usize = 256;

/// A period in which tracing is on.
#[derive(Debug)]
struct Span {
    /// Start of the part not evaluated yet, on `CLOCK_MONOTONIC`.
    since: Duration,
    /// End of the period, on the daemon's clock.
    ends: Duration,
}

/// Source of foreground guesses, from the wakeups that follow input.
#[derive(Debug, Default)]
pub struct WakeGraphSource {
    /// `Ok` if the source can work, else why it cannot; `None` while it is not wanted.
    works: Option<Result<(), String>>,
    traced: Option<Traced>,
    servers: Vec<DisplayServer>,
    /// The servers' threads.
    threads: BTreeMap<i32, ProcessId>,
    graph: WakeGraph,
    span: Option<Span>,
    /// Inputs not evaluated yet, on `CLOCK_MONOTONIC`.
    inputs: Vec<Duration>,
    /// When the inputs are evaluated.
    look: Option<Duration>,
    /// Before this time, no display servers are searched for if none are known.
    search: Duration,
    /// By thread, the process that represents its app; `None` for a thread of no app.
    clients: HashMap<i32, Option<ProcessId>>,
    /// By app unit, the process that represents all processes in it.
    units: HashMap<String, ProcessId>,
    /// Why tracing did not start, as text for `status`.
    lack: String,
}

impl WakeGraphSource {
    /// Whether the source is wanted and can work: only then must input be monitored.
    pub fn listens(&self) -> bool {
        matches!(self.works, Some(Ok(())))
    }

    /// Why the source cannot work; `None` if it can, or is not wanted.
    pub fn failure(&self) -> Option<&str> {
        self.works.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// Switches the source on or off. Switching it off discards all its state.
    pub fn want(&mut self, wanted: bool, system: &System, ledger: &mut Ledger) {
        match (wanted, &self.works) {
            (true, None) => {
                let works = is_there(system).map_err(|error| error.to_string());
                match &works {
                    Ok(()) => {
                        debug!("no source reports the foreground app: it is inferred after input")
                    }
                    Err(why) => {
                        info!("no source reports the foreground app, and it cannot be inferred: {why}")
                    }
                }
                self.works = Some(works);
            }
            (false, Some(_)) => {
                self.stop(ledger);
                *self = WakeGraphSource::default();
            }
            _ => {}
        }
    }

    /// Stops tracing and removes the instance.
    pub fn stop(&mut self, ledger: &mut Ledger) {
        self.span = None;
        self.look = None;
        self.inputs.clear();
        if let Some(traced) = self.traced.take() {
            traced.stop(ledger);
        }
    }

    /// Takes the times of key and button events, on `CLOCK_MONOTONIC`. While tracing is off, only
    /// switches it on.
    pub fn pressed(
        &mut self,
        times: &[Duration],
        system: &System,
        ledger: &mut Ledger,
        at: Duration,
    ) {
        if times.is_empty() || !self.listens() {
            return;
        }
        if let Some(span) = &mut self.span {
            span.ends = at + SPAN;
            let since = span.since;
            self.inputs
                .extend(times.iter().filter(|&&time| time >= since));
            self.inputs.truncate(INPUTS_MAX);
            self.look.get_or_insert(at + SETTLED);
        } else if let Err(why) = self.begin(system, ledger, at) {
            if self.lack != why {
                debug!("the sched_waking trace cannot start: {why}");
            }
            self.lack = why;
            self.stop(ledger);
        }
    }

    /// When [`WakeGraphSource::pass_time`] has work next.
    pub fn next_deadline(&self) -> Option<Duration> {
        let ends = self.span.as_ref().map(|span| span.ends);
        self.look.into_iter().chain(ends).min()
    }

    /// The best guess at the foreground process.
    pub fn front(&self) -> Option<ProcessId> {
        self.graph.front()
    }

    /// Does the work that is due. Returns whether the trace was read.
    pub fn pass_time(
        &mut self,
        system: &System,
        ledger: &mut Ledger,
        helpers: &[String],
        at: Duration,
    ) -> bool {
        let Some(ends) = self.span.as_ref().map(|span| span.ends) else {
            return false;
        };
        let due = |when: Duration| when <= at;
        let looks = self.look.is_some_and(due) || due(ends);
        if looks {
            if let Err(error) = self.observe(system, helpers) {
                warn!("the sched_waking trace failed; the foreground app is not inferred any more: {error}");
                self.works = Some(Err(error));
                self.stop(ledger);
            }
        }
        if due(ends) {
            self.end(system);
        }
        looks
    }

    /// What the source does now, as text for `status`.
    pub fn detail(&self) -> String {
        let outermost = |server: &&DisplayServer| server.kind == Server::Outermost;
        let names: Vec<String> = self
            .servers
            .iter()
            .filter(outermost)
            .map(|server| format!("{} (pid {})", server.name, server.id.pid))
            .collect();
        match (names.is_empty(), self.graph.grounds()) {
            (true, _) if self.lack.is_empty() => {
                "no source reports the foreground app: it is inferred when a key is pressed".to_owned()
            }
            (true, _) => format!("no basis for a guess: {}", self.lack),
            (false, None) => format!(
                "no source reports the foreground app, and {} woke no client after enough of the last {} inputs",
                names.join(", "),
                self.graph.looked_at()
            ),
            (false, Some(grounds)) => format!(
                "a guess: {} woke it right after {} of the last {} inputs",
                names.join(", "),
                grounds.woken,
                grounds.of
            ),
        }
    }

    /// Switches tracing on.
    fn begin(&mut self, system: &System, ledger: &mut Ledger, at: Duration) -> Result<(), String> {
        let known = !self.servers.is_empty();
        if !known
            || !self
                .servers
                .iter()
                .all(|one| display_servers::still(system, one))
        {
            if !known && at < self.search {
                return Err(self.lack.clone());
            }
            self.search = at + SEARCH_AGAIN;
            self.search_servers(system)?;
        }
        let threads = threads(system, &self.servers);
        if threads.is_empty() {
            self.servers.clear();
            return Err("the display server has ended".to_owned());
        }
        let filter = filter(threads.keys());
        let text = |error: limelight_sys::Error| error.to_string();
        match &self.traced {
            Some(traced) => {
                if self.threads != threads {
                    let filtered = traced.instance.filter_event(SYSTEM, EVENT, &filter);
                    filtered.map_err(text)?;
                }
                traced.instance.enable_event(SYSTEM, EVENT).map_err(text)?;
            }
            None => {
                let event = Event {
                    system: SYSTEM,
                    name: EVENT,
                    lack: "",
                };
                let traced = Traced::start(system, ledger, INSTANCE, event, |instance| {
                    instance.set_clock("mono")?;
                    instance.set_buffer_kib(BUFFER_KIB)?;
                    instance.filter_event(SYSTEM, EVENT, &filter)
                });
                let traced = traced.map_err(|error| error.to_string())?;
                self.traced = Some(traced);
            }
        }
        self.threads = threads;
        self.span = Some(Span {
            since: clock::monotonic(),
            ends: at + SPAN,
        });
        Ok(())
    }

    fn search_servers(&mut self, system: &System) -> Result<(), String> {
        let found = display_servers::find(system).map_err(|error| error.to_string())?;
        if !found.iter().any(|server| server.kind == Server::Outermost) {
            self.servers.clear();
            return Err("no X server or Wayland compositor holds an input device open".to_owned());
        }
        if found != self.servers {
            let kinds = found.iter().map(|server| (server.id, server.kind));
            self.graph = WakeGraph::new(kinds.collect());
            self.clients.clear();
            self.units.clear();
            self.servers = found;
        }
        Ok(())
    }

    /// Stops tracing until the next input.
    fn end(&mut self, system: &System) {
        self.span = None;
        self.look = None;
        self.inputs.clear();
        // Cleared, because thread ids are reused.
        self.clients.clear();
        self.units
            .retain(|_, id| system.same_process(*id).is_some());
        if let Some(traced) = &self.traced {
            if let Err(error) = traced.instance.disable_event(SYSTEM, EVENT) {
                debug!("{error}");
            }
        }
    }

    /// Evaluates what was traced since the last call.
    fn observe(&mut self, system: &System, helpers: &[String]) -> Result<(), String> {
        let until = clock::monotonic();
        let fresh = self
            .inputs
            .last()
            .is_some_and(|&last| last + WITHIN >= until);
        if fresh && self.inputs.len() < INPUTS_MAX {
            self.look = Some(now() + SETTLED);
            return Ok(());
        }
        self.look = None;
        let Some(traced) = &mut self.traced else {
            return Ok(());
        };
        let taken = traced.instance.lines(WAKES_MAX_BYTES);
        let taken = taken.map_err(|error| error.to_string())?;
        if !taken.all {
            // The lines that are left may be the wakeup of any client.
            self.inputs.clear();
        }
        let before = self.graph.front();
        self.take(&taken.lines, until, system, helpers);
        // A display server that started in the meantime is not an app; it is traced from the next
        // input on.
        let new = self.graph.front().filter(|_| self.graph.front() != before);
        if new.is_some_and(|front| display_servers::is_one(system, front)) {
            if let Err(why) = self.search_servers(system) {
                self.lack = why;
            }
            if let Some(span) = &mut self.span {
                span.ends = Duration::ZERO;
            }
        }
        Ok(())
    }

    /// Evaluates lines of the trace, all recorded before `until`.
    fn take(&mut self, lines: &[String], until: Duration, system: &System, helpers: &[String]) {
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.sort_unstable();
        let mut wakings = Vec::new();
        for line in lines {
            match Line::parse(line) {
                Some(Line::Event(event)) if event.name == EVENT => {
                    let at = Duration::try_from_secs_f64(event.seconds).ok();
                    let woken = parse_sched_waking(event.fields);
                    wakings.extend(at.zip(woken).map(|(at, woken)| (at, event.tid, woken)));
                }
                // A lost event may have been the wakeup of any client, so these inputs prove
                // nothing.
                Some(Line::Lost { .. }) => inputs.clear(),
                _ => {}
            }
        }
        // The wakeups come from one buffer per processor, so they are not in order of time.
        wakings.sort_unstable();
        let mut wakes = Vec::with_capacity(wakings.len());
        for (at, waker, woken) in wakings {
            let waker = self.threads.get(&waker).copied();
            let woken = self.client(woken, system, helpers);
            let both = waker.zip(woken).filter(|(waker, woken)| waker != woken);
            wakes.extend(both.map(|(waker, woken)| Wake { at, waker, woken }));
        }
        let process = self
            .graph
            .front()
            .map(|front| (front, system.same_process(front)));
        if let Some((front, None)) = process {
            self.graph.ended(front);
            self.units.retain(|_, known| *known != front);
        }
        // A process that was not asleep needs no wakeup, so a missing wakeup proves nothing.
        let state = process.and_then(|(_, process)| Some(process?.stat().ok()?.state));
        let from = match &mut self.span {
            Some(span) => std::mem::replace(&mut span.since, until),
            None => until,
        };
        self.graph.observe(Seen {
            from,
            until,
            inputs: &inputs,
            wakes: &wakes,
            busy: state.is_some_and(|state| state != 'S'),
        });
    }

    /// The process that represents the app of a thread; `None` for a thread of no app.
    fn client(&mut self, tid: i32, system: &System, helpers: &[String]) -> Option<ProcessId> {
        if let Some(known) = self.clients.get(&tid) {
            return *known;
        }
        let found = match self.threads.get(&tid) {
            Some(&server) => Some(server),
            None => self.identify(tid, system, helpers),
        };
        self.clients.insert(tid, found);
        found
    }

    fn identify(&mut self, tid: i32, system: &System, helpers: &[String]) -> Option<ProcessId> {
        let status = system.proc.process(tid).ok()?.status().ok()?;
        let (id, process) = system.process(status.tgid).ok()?;
        let stat = process.stat().ok()?;
        let own = u32::try_from(id.pid).ok() == Some(std::process::id());
        let kernel = id.pid <= 2 || stat.ppid == 2;
        if own || kernel || helpers.contains(&stat.comm) {
            return None;
        }
        if !authorization::may_be_waited_for(system, status.real_uid) {
            return None;
        }
        let path = process.cgroup().ok().flatten();
        let path = path.and_then(|path| CgroupPath::parse(&path));
        let chain = path.map_or_else(Vec::new, |path| path.chain());
        let unit = chain
            .into_iter()
            .rev()
            .find(|path| unit::is_app(path.name()));
        Some(match unit {
            Some(unit) => *self.units.entry(unit.as_str().to_owned()).or_insert(id),
            None => id,
        })
    }
}

/// Checks that the kernel has the tracepoint. The error says why it cannot be used.
fn is_there(system: &System) -> Result<(), Unusable> {
    let tracefs = Tracefs::at(system.tracefs()?)?;
    match tracefs.has_event(SYSTEM, EVENT) {
        true => Ok(()),
        false => Err(Unusable::NoTracepoint {
            system: SYSTEM,
            name: EVENT,
            lack: "",
        }),
    }
}

/// Threads of the servers that still run.
fn threads(system: &System, servers: &[DisplayServer]) -> BTreeMap<i32, ProcessId> {
    let mut all = BTreeMap::new();
    for server in servers {
        let process = system.same_process(server.id);
        let tids = process.and_then(|process| process.threads().ok());
        for tid in tids.unwrap_or_default() {
            if all.len() < THREADS_MAX {
                all.insert(tid, server.id);
            }
        }
    }
    all
}

fn filter<'a>(threads: impl Iterator<Item = &'a i32>) -> String {
    let each: Vec<String> = threads.map(|tid| format!("common_pid=={tid}")).collect();
    each.join("||")
}

#[cfg(test)]
#[path = "wake_graph_tests.rs"]
mod tests;
