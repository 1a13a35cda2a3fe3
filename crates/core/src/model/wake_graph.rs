// SPDX-License-Identifier: GPL-2.0-or-later
//! Guesses the foreground app from the clients that the display server wakes after a key or button
//! press, for sessions in which no source reports the foreground app.
//!
//! A display server sleeps until input comes and hands it to one client, the foreground one, which
//! wakes up at once. So a client that the server wakes within [`WITHIN`] of a key or a button is
//! probably in the foreground, and a client that it does not wake is probably not. Four things blur
//! this:
//!
//! - Clients that draw all the time are woken between inputs too, frame by frame, and sometimes by
//!   chance just after an input. The rate of such chance wakes follows from how often the client is
//!   woken while nothing is pressed, and makes its other wakes worth less: each input adds the
//!   logarithm of how much likelier the observation is if the client is in the foreground. The sums
//!   are clamped on both sides, so that old evidence does not outweigh new (E. S. Page, *Continuous
//!   inspection schemes*, Biometrika 41, 1954).
//! - Clients that listen to all input are woken whichever app is in the foreground, and window
//!   managers by some of the input. If each of the last inputs woke several clients, the foreground
//!   one is the client that the fewest of all remembered inputs woke. A client that was mostly
//!   woken beside the foreground one does not replace it when a single input fails to wake that
//!   one.
//! - A busy client is not woken, and input that the server keeps to itself (its own shortcuts)
//!   wakes no client. Neither changes the foreground app: it stays until another client has clearly
//!   more evidence, or until it has slept through [`DOUBTS`] inputs.
//! - A display server can be another one's client (Xwayland). Its wakes count while the server
//!   below has just woken it, and it is never in the foreground itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::app::ProcessId;

/// How soon after an input its receiver is woken at the latest.
pub const WITHIN: Duration = Duration::from_millis(8);

/// Outcomes of an input while an app is in the foreground. It wakes that app: from and to so many
/// milliseconds, with this probability (0.2 ms by an X server at rest, later where the server
/// itself has to wait for a processor);
const RECEIVES: [(f64, f64, f64); 4] = [
    (0.0, 1.0, 0.30),
    (1.0, 2.0, 0.15),
    (2.0, 4.0, 0.12),
    (4.0, 8.0, 0.08),
];
/// or no client, because the app is busy, the server keeps the input to itself, or an X client does
/// not ask for key releases;
const SILENT: f64 = 0.25;
/// or only other clients.
const OTHERS: f64 = 0.10;

/// Bounds of the chance wakes of a client: wakes a second, and share of all inputs.
const RATE_LEAST: f64 = 3.5;
const CHANCE_MOST: f64 = 0.95;

/// The rate of a client's chance wakes decays over this observed time, and a count below the second
/// value is treated as none.
const MEMORY: Duration = Duration::from_secs(30);
const FORGOTTEN: f64 = 0.5;

/// Evidence: the maximum that is kept, the minimum for the foreground, and the lead over the
/// foreground client that replaces it. A client that only inputs wake gains 4.5 with each input
/// that wakes it at once and 1.7 with each that wakes it late; it loses 1.4 with each that wakes no
/// client and 2.3 with each that wakes only others. Chance reaches ENOUGH once in 1800 attempts and
/// MOST once in a million: the reciprocals of their exponentials bound it.
const MOST: f64 = 14.0;
const ENOUGH: f64 = 7.5;
const CLEARLY: f64 = 4.0;

/// Inputs in a row that woke this client and not the foreground one before it replaces that one.
const ALONE: u32 = 2;

/// Two clients that this many inputs in a row both woke: the foreground one is the one that fewer
/// of all remembered inputs woke, by this difference.
const TOGETHER: u32 = 4;
const FEWER: u32 = 2;

/// Inputs in a row that the foreground app may sleep through.
pub const DOUBTS: u32 = 8;

/// Maximum number of tracked clients.
const CLIENTS_MAX: usize = 64;

/// Role of a display server among several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// It reads the input devices.
    Outermost,
    /// It gets its input from another display server.
    Nested,
}

/// A display server woke a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Time of the wake.
    pub at: Duration,
    /// The server.
    pub waker: ProcessId,
    /// The woken client.
    pub woken: ProcessId,
}

/// Observations of one stretch of time.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Start of the observation.
    pub from: Duration,
    /// End of the observation.
    pub until: Duration,
    /// Times of presses and releases, oldest first. Each must be at least [`WITHIN`] old.
    pub inputs: &'a [Duration],
    /// Wakes by display servers, oldest first.
    pub wakes: &'a [Wake],
    /// The foreground client was busy, so it could not be woken.
    pub busy: bool,
}

#[derive(Debug, Clone, Default)]
struct Client {
    /// Sum of log-likelihood ratios for being in the foreground, clamped to 0..=[`MOST`].
    evidence: f64,
    /// One bit for each input that woke any client, set if it woke this one; the latest is the
    /// lowest.
    inputs: u32,
    /// Those of them that also woke the foreground client, which was another one.
    beside: u32,
    /// Number of wakes while nothing was pressed, decaying.
    anyway: f64,
}

/// The guess and its evidence.
#[derive(Debug, Clone, Default)]
pub struct WakeGraph {
    servers: BTreeMap<ProcessId, Server>,
    clients: BTreeMap<ProcessId, Client>,
    front: Option<ProcessId>,
    /// Inputs in a row that did not wake the foreground client.
    doubts: u32,
    /// Seconds in which nothing was pressed, decaying.
    calm: f64,
    /// Inputs that woke a client.
    looked_at: u64,
}

/// Why a client is taken for the foreground one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grounds {
    /// Number of the remembered inputs that woke it.
    pub woken: u32,
    /// Number of remembered inputs that woke any client.
    pub of: u32,
}

impl WakeGraph {
    /// Starts without any knowledge of these servers' clients.
    pub fn new(servers: BTreeMap<ProcessId, Server>) -> WakeGraph {
        WakeGraph {
            servers,
            ..WakeGraph::default()
        }
    }

    /// The servers.
    pub fn servers(&self) -> &BTreeMap<ProcessId, Server> {
        &self.servers
    }

    /// The guessed foreground client.
    pub fn front(&self) -> Option<ProcessId> {
        self.front
    }

    /// Why [`WakeGraph::front`] is that client.
    pub fn grounds(&self) -> Option<Grounds> {
        let client = self.clients.get(self.front.as_ref()?)?;
        Some(Grounds {
            woken: client.inputs.count_ones(),
            of: u32::try_from(self.looked_at).map_or(u32::BITS, |all| all.min(u32::BITS)),
        })
    }

    /// Number of inputs that woke a client, since the start.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Adds observations and guesses anew.
    pub fn observe(&mut self, seen: Seen) {
        let windows = windows(seen.inputs);
        self.learn_chances(&seen, &windows);
        for &window in &windows {
            let received = self.receivers(seen.wakes, window);
            self.take_input(&received, seen.busy);
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, process: ProcessId) {
        self.clients.remove(&process);
        if self.front == Some(process) {
            self.front = None;
            self.doubts = 0;
        }
    }

    /// Tracked clients.
    pub fn clients(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.clients.keys().copied()
    }

    /// Updates how often clients are woken while nothing is pressed.
    fn learn_chances(&mut self, seen: &Seen, windows: &[Duration]) {
        let looked = seen.until.saturating_sub(seen.from);
        let pressed = WITHIN * u32::try_from(windows.len()).unwrap_or(u32::MAX);
        let calm = looked.saturating_sub(pressed).as_secs_f64();
        let kept = (-calm / MEMORY.as_secs_f64()).exp();
        self.calm = self.calm * kept + calm;
        for client in self.clients.values_mut() {
            client.anyway *= kept;
        }
        for wake in seen.wakes {
            let inside = windows.iter().any(|&start| is_within(wake.at, start));
            if !inside && !self.servers.contains_key(&wake.woken) {
                if let Some(client) = self.client(wake.woken) {
                    client.anyway += 1.0;
                }
            }
        }
    }

    fn client(&mut self, id: ProcessId) -> Option<&mut Client> {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&id) {
            // Drop the clients without evidence.
            let front = self.front;
            self.clients
                .retain(|&known, client| client.inputs != 0 || Some(known) == front);
            if self.clients.len() >= CLIENTS_MAX {
                return None;
            }
        }
        Some(self.clients.entry(id).or_default())
    }

    /// The clients that the servers woke within the window that starts at `start`, and how soon.
    fn receivers(&self, wakes: &[Wake], start: Duration) -> BTreeMap<ProcessId, Duration> {
        let mut acting: BTreeSet<ProcessId> = self
            .servers
            .iter()
            .filter(|(_, kind)| **kind == Server::Outermost)
            .map(|(id, _)| *id)
            .collect();
        let mut received = BTreeMap::new();
        for wake in wakes.iter().filter(|wake| is_within(wake.at, start)) {
            if !acting.contains(&wake.waker) {
                continue;
            }
            if self.servers.contains_key(&wake.woken) {
                acting.insert(wake.woken);
            } else {
                let after = wake.at.saturating_sub(start);
                received.entry(wake.woken).or_insert(after);
            }
        }
        received
    }

    fn take_input(&mut self, received: &BTreeMap<ProcessId, Duration>, busy: bool) {
        let reached = self.front.filter(|front| received.contains_key(front));
        if reached.is_some() {
            self.doubts = 0;
        } else if !busy {
            self.doubts = self.doubts.saturating_add(1);
        }
        for &id in received.keys() {
            let _ = self.client(id);
        }
        let silent = received.is_empty();
        self.looked_at += u64::from(!silent);
        let (calm, front) = (self.calm, self.front);
        for (&id, client) in &mut self.clients {
            let after = received.get(&id).copied();
            let woken = after.is_some();
            // An input that woke no client says nothing against the foreground one: it may have
            // been awake.
            if woken || Some(id) != front || !(busy || silent) {
                client.weigh(after, silent, calm);
            }
            if !silent {
                client.remember(woken, reached.is_some_and(|front| front != id));
            }
        }
        self.guess();
        let front = self.front;
        self.clients.retain(|&id, client| {
            client.inputs != 0 || client.anyway > FORGOTTEN || Some(id) == front
        });
    }

    fn guess(&mut self) {
        if self.doubts >= DOUBTS {
            if let Some(client) = self.front.take().and_then(|id| self.clients.get_mut(&id)) {
                client.evidence = 0.0;
            }
            self.doubts = 0;
        }
        let mut next: Vec<(u32, u32, ProcessId)> = self
            .clients
            .iter()
            .filter(|(id, client)| Some(**id) != self.front && self.succeeds(client))
            .map(|(&id, client)| {
                let inputs = client.inputs;
                (inputs.count_ones(), inputs.trailing_ones(), id)
            })
            .collect();
        next.sort_unstable();
        let found = match next[..] {
            [] => None,
            [(.., only)] => Some(only),
            [(least, in_a_row, first), (more, ..), ..] => {
                (in_a_row >= TOGETHER && least + FEWER <= more).then_some(first)
            }
        };
        if found.is_some() {
            self.front = found;
            self.doubts = 0;
        }
    }

    /// Whether a client replaces the foreground one.
    fn succeeds(&self, client: &Client) -> bool {
        if client.evidence < ENOUGH {
            return false;
        }
        let Some(front) = self.front.and_then(|front| self.clients.get(&front)) else {
            return client.inputs.trailing_ones() >= ALONE;
        };
        let alone = (client.inputs & !front.inputs).trailing_ones() >= ALONE;
        let clearly = client.evidence >= front.evidence + CLEARLY;
        let together = client.evidence >= MOST
            && (client.inputs & front.inputs).trailing_ones() >= TOGETHER
            && client.inputs.count_ones() + FEWER <= front.inputs.count_ones();
        together || (alone || clearly) && !client.listens()
    }
}

impl Client {
    /// Adds one input's evidence. `after`: how soon it woke this client, if it did; `silent`: it
    /// woke no client at all; `calm`: seconds in which nothing was pressed.
    fn weigh(&mut self, after: Option<Duration>, silent: bool, calm: f64) {
        // A client without chance wakes so far may have been observed too briefly.
        let rate = (self.anyway + 0.5) / calm.max(WITHIN.as_secs_f64());
        // For a client that draws at a steady rate, just this share of all inputs is followed by a
        // frame.
        let chance = |seconds: f64| (rate.max(RATE_LEAST) * seconds).min(1.0);
        let never = 1.0 - chance(WITHIN.as_secs_f64()).min(CHANCE_MOST);
        let ms = after.map(|after| after.as_secs_f64() * 1e3);
        let part = ms.and_then(|ms| RECEIVES.iter().find(|(_, until, _)| ms <= *until));
        let (likely, by_chance) = match part {
            Some((from, until, likely)) => (*likely, chance((until - from) / 1e3)),
            None if silent => (SILENT, never),
            None => (OTHERS, never),
        };
        self.evidence = (self.evidence + (likely / by_chance).ln()).clamp(0.0, MOST);
    }

    fn remember(&mut self, woken: bool, beside: bool) {
        self.inputs = self.inputs << 1 | u32::from(woken);
        self.beside = self.beside << 1 | u32::from(woken && beside);
    }

    /// Whether inputs for other clients wake it most of the time.
    fn listens(&self) -> bool {
        self.beside.count_ones() * 2 > self.inputs.count_ones()
    }
}

fn is_within(at: Duration, start: Duration) -> bool {
    at.checked_sub(start).is_some_and(|after| after <= WITHIN)
}

/// Start times of the inputs that are far enough apart to be told from each other.
fn windows(inputs: &[Duration]) -> Vec<Duration> {
    let mut windows: Vec<Duration> = Vec::with_capacity(inputs.len());
    for &at in inputs {
        if windows.last().is_none_or(|&last| at > last + WITHIN) {
            windows.push(at);
        }
    }
    windows
}

#[cfg(test)]
#[path = "wake_graph_tests.rs"]
mod tests;
