// SPDX-License-Identifier: GPL-2.0-or-later
//! Whom the display server wakes when something is pressed: who is in front, where nobody tells.
//!
//! The tracepoint `sched:sched_waking` in an instance of our own, filtered on the threads of the
//! display servers, says whom they wake and when. It is on for [`SPAN`] after each input, and read once,
//! [`SETTLED`] after it; while nothing is pressed nothing is traced, and this daemon sleeps. So the
//! first key after a rest only switches it on: its release is the first input that counts.
//!
//! What is made of it is [`limelight_core::model::wake_graph`]'s business. Which process is a client is
//! decided here: kernel threads, display servers, the programs that serve whoever is in front ([boost]
//! helpers), this daemon, and processes of users without an active session are none, and processes in one
//! app's unit are one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use limelight_core::model::wake_graph::{Seen, Server, Wake, WakeGraph, WITHIN};
use limelight_core::model::{unit, ProcessId};
use limelight_sys::cgroup::CgroupPath;
use limelight_sys::clock;
use limelight_sys::tracefs::{parse_sched_waking, Line, Tracefs};
use tracing::{debug, info, warn};

use crate::doors::{now, Doors};
use crate::restore::Ledger;
use crate::sources::display_servers::{self, DisplayServer};
use crate::sources::traced::{Event, Traced};
use crate::trust;

const SYSTEM: &str = "sched";
const EVENT: &str = "sched_waking";
const INSTANCE: &str = "limelight-wakes";

/// Buffer of each processor: a span without further input is some hundred wake-ups of 40 bytes.
const BUFFER_KIB: u32 = 32;

/// How long it is traced after an input: as long as people pause while they type.
const SPAN: Duration = Duration::from_secs(2);

/// How long after an input it is looked at: one look for all of a chord.
const SETTLED: Duration = Duration::from_millis(25);

/// Display servers that were not there are looked for again after that.
const SEARCH_AGAIN: Duration = Duration::from_secs(10);

/// Most threads of display servers that are followed; the kernel takes a page of a filter.
const THREADS_MAX: usize = 160;

/// Inputs that are kept until they are looked at.
const INPUTS_MAX: usize = 256;

/// While it is traced.
#[derive(Debug)]
struct Span {
    /// Since when, on `CLOCK_MONOTONIC`.
    since: Duration,
    /// When it ends, in the daemon's time.
    ends: Duration,
}

/// The source.
#[derive(Debug, Default)]
pub struct WakeGraphSource {
    /// Whether it can work at all, and why not; `None`: not wanted.
    works: Option<Result<(), String>>,
    traced: Option<Traced>,
    servers: Vec<DisplayServer>,
    /// The servers' threads.
    threads: BTreeMap<i32, ProcessId>,
    graph: WakeGraph,
    span: Option<Span>,
    /// Not looked at yet, on `CLOCK_MONOTONIC`.
    inputs: Vec<Duration>,
    /// When they are.
    look: Option<Duration>,
    search: Duration,
    /// Whom threads stand for, as far as they are an app's.
    clients: HashMap<i32, Option<ProcessId>>,
    /// Who stands for all processes in an app's unit.
    units: HashMap<String, ProcessId>,
    /// What it lacks, for people.
    lack: String,
}

impl WakeGraphSource {
    /// Whether it is wanted and can work: input has to be listened to.
    pub fn listens(&self) -> bool {
        matches!(self.works, Some(Ok(())))
    }

    /// Why it cannot work, where it is wanted.
    pub fn failure(&self) -> Option<&str> {
        self.works.as_ref()?.as_ref().err().map(String::as_str)
    }

    /// Begins and ends to be wanted. Whatever was known is forgotten at the end.
    pub fn want(&mut self, wanted: bool, doors: &Doors, ledger: &mut Ledger) {
        match (wanted, &self.works) {
            (true, None) => {
                let works = is_there(doors);
                match &works {
                    Ok(()) => debug!("nobody tells who is in front: it is guessed after input"),
                    Err(why) => {
                        info!("nobody tells who is in front, and it cannot be guessed: {why}")
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

    /// Stops; the instance is removed.
    pub fn stop(&mut self, ledger: &mut Ledger) {
        self.span = None;
        self.look = None;
        self.inputs.clear();
        if let Some(traced) = self.traced.take() {
            traced.stop(ledger);
        }
    }

    /// Something was pressed or released at these times, on `CLOCK_MONOTONIC`.
    pub fn pressed(
        &mut self,
        times: &[Duration],
        doors: &Doors,
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
        } else if let Err(why) = self.begin(doors, ledger, at) {
            if self.lack != why {
                debug!("whom the display server wakes is not seen: {why}");
            }
            self.lack = why;
            self.stop(ledger);
        }
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let ends = self.span.as_ref().map(|span| span.ends);
        self.look.into_iter().chain(ends).min()
    }

    /// Who is in front, as far as can be guessed.
    pub fn front(&self) -> Option<ProcessId> {
        self.graph.front()
    }

    /// Does what is due. Returns whether anything was looked at.
    pub fn pass_time(
        &mut self,
        doors: &Doors,
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
            if let Err(error) = self.observe(doors, helpers) {
                warn!("whom the display server wakes is not seen any more: {error}");
                self.works = Some(Err(error));
                self.stop(ledger);
            }
        }
        if due(ends) {
            self.end(doors);
        }
        looks
    }

    /// What it does, for people.
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
                "nobody tells who is in front: guessed when something is pressed".to_owned()
            }
            (true, _) => format!("nothing to guess from: {}", self.lack),
            (false, None) => format!(
                "nobody tells who is in front, and {} woke nobody with enough of the last {} inputs",
                names.join(", "),
                self.graph.looked_at()
            ),
            (false, Some(grounds)) => format!(
                "a guess: {} woke it at once with {} of the last {} inputs",
                names.join(", "),
                grounds.woken,
                grounds.of
            ),
        }
    }

    /// Begins to trace.
    fn begin(&mut self, doors: &Doors, ledger: &mut Ledger, at: Duration) -> Result<(), String> {
        let known = !self.servers.is_empty();
        if !known
            || !self
                .servers
                .iter()
                .all(|one| display_servers::still(doors, one))
        {
            if !known && at < self.search {
                return Err(self.lack.clone());
            }
            self.search = at + SEARCH_AGAIN;
            self.search_servers(doors)?;
        }
        let threads = threads(doors, &self.servers);
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
                let traced = Traced::start(doors, ledger, INSTANCE, event, |instance| {
                    instance.set_clock("mono")?;
                    instance.set_buffer_kib(BUFFER_KIB)?;
                    instance.filter_event(SYSTEM, EVENT, &filter)
                })?;
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

    fn search_servers(&mut self, doors: &Doors) -> Result<(), String> {
        let found = display_servers::find(doors).map_err(|error| error.to_string())?;
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

    /// Stops to trace until the next input.
    fn end(&mut self, doors: &Doors) {
        self.span = None;
        self.look = None;
        self.inputs.clear();
        // Numbers of threads are given out again.
        self.clients.clear();
        self.units.retain(|_, id| doors.same_process(*id).is_some());
        if let Some(traced) = &self.traced {
            if let Err(error) = traced.instance.disable_event(SYSTEM, EVENT) {
                debug!("{error}");
            }
        }
    }

    /// Takes in what was traced since the last look.
    fn observe(&mut self, doors: &Doors, helpers: &[String]) -> Result<(), String> {
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
        let lines = traced.instance.lines().map_err(|error| error.to_string())?;
        let before = self.graph.front();
        self.take(&lines, until, doors, helpers);
        // A server that was started since is nobody's app, and followed from the next input on.
        let new = self.graph.front().filter(|_| self.graph.front() != before);
        if new.is_some_and(|front| display_servers::is_one(doors, front)) {
            if let Err(why) = self.search_servers(doors) {
                self.lack = why;
            }
            if let Some(span) = &mut self.span {
                span.ends = Duration::ZERO;
            }
        }
        Ok(())
    }

    /// Takes in lines of the trace, all until then.
    fn take(&mut self, lines: &[String], until: Duration, doors: &Doors, helpers: &[String]) {
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
                // Whoever is missing may have been woken.
                Some(Line::Lost { .. }) => inputs.clear(),
                _ => {}
            }
        }
        // Buffers of several processors are not read in order.
        wakings.sort_unstable();
        let mut wakes = Vec::with_capacity(wakings.len());
        for (at, waker, woken) in wakings {
            let waker = self.threads.get(&waker).copied();
            let woken = self.client(woken, doors, helpers);
            let both = waker.zip(woken).filter(|(waker, woken)| waker != woken);
            wakes.extend(both.map(|(waker, woken)| Wake { at, waker, woken }));
        }
        let process = self
            .graph
            .front()
            .map(|front| (front, doors.same_process(front)));
        if let Some((front, None)) = process {
            self.graph.ended(front);
            self.units.retain(|_, known| *known != front);
        }
        // Had it slept, it would have been woken.
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

    /// Whom a thread stands for; `None` for one that is no app's.
    fn client(&mut self, tid: i32, doors: &Doors, helpers: &[String]) -> Option<ProcessId> {
        if let Some(known) = self.clients.get(&tid) {
            return *known;
        }
        let found = match self.threads.get(&tid) {
            Some(&server) => Some(server),
            None => self.identify(tid, doors, helpers),
        };
        self.clients.insert(tid, found);
        found
    }

    fn identify(&mut self, tid: i32, doors: &Doors, helpers: &[String]) -> Option<ProcessId> {
        let status = doors.proc.process(tid).ok()?.status().ok()?;
        let (id, process) = doors.process(status.tgid).ok()?;
        let stat = process.stat().ok()?;
        let own = u32::try_from(id.pid).ok() == Some(std::process::id());
        let kernel = id.pid <= 2 || stat.ppid == 2;
        if own || kernel || helpers.contains(&stat.comm) {
            return None;
        }
        if !trust::may_be_waited_for(doors, status.real_uid) {
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

/// Whether the kernel can tell at all.
fn is_there(doors: &Doors) -> Result<(), String> {
    let tracefs = Tracefs::at(doors.tracefs()?).map_err(|error| error.to_string())?;
    match tracefs.has_event(SYSTEM, EVENT) {
        true => Ok(()),
        false => Err(format!("this kernel has no tracepoint {SYSTEM}:{EVENT}")),
    }
}

/// Threads of the servers that still run.
fn threads(doors: &Doors, servers: &[DisplayServer]) -> BTreeMap<i32, ProcessId> {
    let mut all = BTreeMap::new();
    for server in servers {
        let process = doors.same_process(server.id);
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
