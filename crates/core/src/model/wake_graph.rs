// SPDX-License-Identifier: GPL-2.0-or-later
//! Guesses the foreground app from the clients that the display server wakes after a key or button
//! press. Used in sessions in which no source reports the foreground app.
//!
//! A display server sleeps until input arrives. It hands the input to one client, the foreground
//! client, which wakes up at once. So a client that the server wakes within [`WITHIN`] of a key or
//! button press is probably in the foreground, and a client that it does not wake probably is not.
//! Four things complicate this:
//!
//! - *Clients that draw all the time* are woken between inputs too, and sometimes by chance just
//!   after an input. The rate of these chance wakes is measured while nothing is pressed. Each
//!   input adds a log-likelihood ratio to a client's evidence: how much likelier the observation is
//!   if the client is in the foreground than by chance. The sum is clamped on both sides, so that
//!   old evidence does not outweigh new evidence (E. S. Page, *Continuous inspection schemes*,
//!   Biometrika 41, 1954).
//! - *Clients that listen to all input* are woken whichever app is in the foreground, and window
//!   managers are woken by some of the input. If each of the last inputs woke several clients, the
//!   foreground client is the one that the fewest remembered inputs woke. A client that is mostly
//!   woken together with the foreground client is taken for a listener. It does not replace the
//!   foreground client when some inputs wake only the listener.
//! - *Missing wakes.* A busy client needs no wake, and input that the server handles itself (its
//!   own shortcuts) wakes no client. Neither changes the guess. The foreground client stays until
//!   another client has clearly more evidence, or until [`DOUBTS`] inputs in a row have not woken
//!   it.
//! - *Nested servers.* A display server can be the client of another one (Xwayland). Its wakes
//!   count only while the outer server has just woken it, and the nested server itself is never in
//!   the foreground.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::app::ProcessId;

/// Longest time from an input until the client that receives it is woken.
pub const WITHIN: Duration = Duration::from_millis(8);

/// Probabilities that an input wakes the foreground client within a span of time: start and end of
/// the span in milliseconds after the input, and the probability. An idle X server wakes the client
/// after 0.2 ms, a server that has to wait for a processor later.
const RECEIVES: [(f64, f64, f64); 4] = [
    (0.0, 1.0, 0.30),
    (1.0, 2.0, 0.15),
    (2.0, 4.0, 0.12),
    (4.0, 8.0, 0.08),
];
/// Probability that an input wakes no client: the foreground client is busy, the server handles the
/// input itself, or an X client did not ask for key releases.
const SILENT: f64 = 0.25;
/// Probability that an input wakes only other clients than the foreground client.
const OTHERS: f64 = 0.10;

/// Lower bound of a client's rate of chance wakes, in wakes per second.
const RATE_LEAST: f64 = 3.5;
/// Upper bound of the probability that a chance wake follows an input.
const CHANCE_MOST: f64 = 0.95;

/// Time constant with which the count of a client's chance wakes decays.
const MEMORY: Duration = Duration::from_secs(30);
/// A client that no remembered input woke is dropped when its decayed count is at most this.
const FORGOTTEN: f64 = 0.5;

/// Maximum evidence of a client, as a sum of natural logarithms.
///
/// A client that is woken only by inputs gains 4.5 from each input that wakes it at once, and 1.7
/// from each that wakes it late. It loses 1.4 with each input that wakes no client, and 2.3 with
/// each that wakes only other clients. By chance, a client's evidence reaches this maximum at most
/// once in a million attempts (e^-14).
const MOST: f64 = 14.0;
/// Minimum evidence for the foreground. Chance reaches it at most once in 1800 attempts (e^-7.5).
const ENOUGH: f64 = 7.5;
/// A client with this much more evidence than the foreground client replaces it.
const CLEARLY: f64 = 4.0;

/// A client replaces the foreground client after this many inputs in a row that woke the client and
/// not the foreground client.
const ALONE: u32 = 2;

/// After this many inputs in a row that woke both of two clients, the foreground client is the one
/// that was woken by fewer of all remembered inputs.
const TOGETHER: u32 = 4;
/// Minimum difference between the two clients' numbers of inputs.
const FEWER: u32 = 2;

/// The guess is dropped after this many inputs in a row that did not wake the foreground client.
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

/// Observations of one interval.
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
    /// Whether the foreground client was busy, so that no wake was needed.
    pub busy: bool,
}

#[derive(Debug, Clone, Default)]
struct Client {
    /// Sum of log-likelihood ratios for being in the foreground, clamped to 0..=[`MOST`].
    evidence: f64,
    /// One bit for each remembered input that woke any client, set if it woke this client. The
    /// lowest bit is the latest input.
    inputs: u32,
    /// Like `inputs`, but a bit is set only if another client was in the foreground and the input
    /// woke that client too.
    beside: u32,
    /// Decaying number of wakes while nothing was pressed.
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
    /// Decaying number of seconds in which nothing was pressed.
    calm: f64,
    /// Number of inputs that woke a client, since [`WakeGraph::new`].
    looked_at: u64,
}

/// Evidence for the guessed foreground client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grounds {
    /// Number of remembered inputs that woke it.
    pub woken: u32,
    /// Number of remembered inputs that woke any client.
    pub of: u32,
}

impl WakeGraph {
    /// Starts with these display servers and without any known client.
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

    /// Evidence for [`WakeGraph::front`].
    pub fn grounds(&self) -> Option<Grounds> {
        let client = self.clients.get(self.front.as_ref()?)?;
        Some(Grounds {
            woken: client.inputs.count_ones(),
            of: u32::try_from(self.looked_at).map_or(u32::BITS, |all| all.min(u32::BITS)),
        })
    }

    /// Number of inputs that woke a client, since [`WakeGraph::new`].
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Adds observations and updates the guess.
    pub fn observe(&mut self, seen: Seen) {
        let windows = windows(seen.inputs);
        self.learn_chances(&seen, &windows);
        for &window in &windows {
            let received = self.receivers(seen.wakes, window);
            self.take_input(&received, seen.busy);
        }
    }

    /// Forgets a process that has ended.
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

    /// Updates the rates at which clients are woken while nothing is pressed.
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
            // Drop the clients that no remembered input woke, except the foreground client.
            let front = self.front;
            self.clients
                .retain(|&known, client| client.inputs != 0 || Some(known) == front);
            if self.clients.len() >= CLIENTS_MAX {
                return None;
            }
        }
        Some(self.clients.entry(id).or_default())
    }

    /// The clients that the servers woke within [`WITHIN`] of `start`, each with the time from
    /// `start` to its first wake.
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
            // An input that woke no client is not evidence against the foreground client, which may
            // have been awake.
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

    /// Whether a client has enough evidence to replace the foreground client.
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
    /// Adds the evidence of one input. `after`: time from the input to the wake of this client, if
    /// it was woken; `silent`: whether the input woke no client at all; `calm`: seconds in which
    /// nothing was pressed.
    fn weigh(&mut self, after: Option<Duration>, silent: bool, calm: f64) {
        // The 0.5 stands for chance wakes that a short observation has missed.
        let rate = (self.anyway + 0.5) / calm.max(WITHIN.as_secs_f64());
        // If a client draws at a steady rate, this is the share of inputs that a frame follows
        // within `seconds`.
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

    /// Whether most of the inputs that woke this client also woke the foreground client.
    fn listens(&self) -> bool {
        self.beside.count_ones() * 2 > self.inputs.count_ones()
    }
}

fn is_within(at: Duration, start: Duration) -> bool {
    at.checked_sub(start).is_some_and(|after| after <= WITHIN)
}

/// Start times of the observation windows. An input within [`WITHIN`] of a window's start belongs
/// to that window.
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
