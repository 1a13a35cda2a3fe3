// SPDX-License-Identifier: GPL-2.0-or-later
//! Which app is in front, by whom the display server wakes when something is pressed: a guess, for
//! sessions in which nobody tells.
//!
//! A display server sleeps until input comes, and hands it to one client: the one in front. That
//! wakes it, at once. So whoever is woken by the server within [`WITHIN`] of a key or a button is
//! probably in front, and whoever was not is probably not. Four things blur it:
//!
//! - Clients that draw all the time are woken between inputs too, frame by frame, and sometimes
//!   just after one by chance. How often that must happen follows from how often they are woken
//!   while nothing is pressed, and being woken is worth the less for it: each input adds the logarithm
//!   of how much likelier what was seen is if the client is in front. The sums are cut off on both
//!   sides, so that what was long ago does not outweigh what is now (E. S. Page, *Continuous inspection
//!   schemes*, Biometrika 41, 1954).
//! - Clients that listen to all input are woken whoever is in front, and window managers by some of
//!   it. Of several that are woken by each of the last inputs it is the one that was woken by the
//!   fewest of those before that has come to the front, and somebody who was mostly woken beside the one in
//!   front does not take its place when that one is not woken for once.
//! - A client that is busy is not woken, and what the server keeps to itself (its own shortcuts) wakes
//!   nobody. Neither makes another app of the one in front: it stays until another one has clearly
//!   more for it, or until it has slept through [`DOUBTS`] inputs.
//! - A display server can be another one's client (Xwayland). What it does counts while the one
//!   below has just woken it, and it is never in front itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::app::ProcessId;

/// How soon after an input its receiver is woken at the latest.
pub const WITHIN: Duration = Duration::from_millis(8);

/// What an input does while an app is in front: it wakes that one, between so many milliseconds, so often
/// (0.2 ms by an X server at rest, later where the server itself has to wait for a processor);
const RECEIVES: [(f64, f64, f64); 4] = [
    (0.0, 1.0, 0.30),
    (1.0, 2.0, 0.15),
    (2.0, 4.0, 0.12),
    (4.0, 8.0, 0.08),
];
/// or nobody, because it is busy, the server keeps the input to itself, or an X client does not want to know
/// when a key is released;
const SILENT: f64 = 0.25;
/// or others alone.
const OTHERS: f64 = 0.10;

/// Bounds of how often chance alone wakes somebody: times a second, and part of all inputs.
const RATE_LEAST: f64 = 3.5;
const CHANCE_MOST: f64 = 0.95;

/// What is known of how often somebody is woken anyway is forgotten over this time of looking, and
/// fewer wakes than that are as good as none.
const MEMORY: Duration = Duration::from_secs(30);
const FORGOTTEN: f64 = 0.5;

/// Evidence: the most that is kept, what it takes to be in front, and how much more than the one in
/// front takes its place. Somebody who is woken by inputs alone gains 4.5 with each that wakes it at once, and
/// 1.7 with each that does so late, and loses 1.4 with each that wakes nobody and 2.3 with each of another's. Chance brings ENOUGH once in 1800 times that
/// it tries, and MOST once in a million: the reciprocals of their exponentials bound it.
const MOST: f64 = 14.0;
const ENOUGH: f64 = 7.5;
const CLEARLY: f64 = 4.0;

/// So many inputs in a row that were its alone bring somebody to the front.
const ALONE: u32 = 2;

/// Of two who are woken by so many in a row both, the one in front was woken by so many fewer of all
/// that are remembered.
const TOGETHER: u32 = 4;
const FEWER: u32 = 2;

/// Inputs in a row that the app in front may sleep through.
pub const DOUBTS: u32 = 8;

/// Most clients that are known at a time.
const CLIENTS_MAX: usize = 64;

/// What a display server is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// It has the input devices.
    Outermost,
    /// It has its input from another one.
    Nested,
}

/// A display server woke somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// When.
    pub at: Duration,
    /// The server.
    pub waker: ProcessId,
    /// Whom.
    pub woken: ProcessId,
}

/// What was seen in one stretch of time.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Since when it was looked.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
    /// When something was pressed or released, oldest first. Each must be at least [`WITHIN`] old.
    pub inputs: &'a [Duration],
    /// Who was woken, oldest first.
    pub wakes: &'a [Wake],
    /// The one in front was busy, so that it could not be woken.
    pub busy: bool,
}

#[derive(Debug, Clone, Default)]
struct Client {
    /// For its being in front.
    evidence: f64,
    /// Of the inputs that woke anybody those that woke it, the latest in the lowest bit.
    inputs: u32,
    /// Those of them that woke the one in front too, which was another one.
    beside: u32,
    /// How often it was woken while nothing was pressed, fading.
    anyway: f64,
}

/// The guess, and what it is made from.
#[derive(Debug, Clone, Default)]
pub struct WakeGraph {
    servers: BTreeMap<ProcessId, Server>,
    clients: BTreeMap<ProcessId, Client>,
    front: Option<ProcessId>,
    /// Inputs in a row that did not wake the one in front.
    doubts: u32,
    /// Seconds in which nothing was pressed, fading.
    calm: f64,
    /// Inputs that were looked at.
    looked_at: u64,
}

/// Why somebody is taken for the one in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grounds {
    /// Of the last inputs that woke anybody, how many woke it.
    pub woken: u32,
    /// How many of those inputs are remembered.
    pub of: u32,
}

impl WakeGraph {
    /// Nothing is known yet of the clients of these servers.
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

    /// Who is in front, as far as can be guessed.
    pub fn front(&self) -> Option<ProcessId> {
        self.front
    }

    /// Why it is that one.
    pub fn grounds(&self) -> Option<Grounds> {
        let client = self.clients.get(self.front.as_ref()?)?;
        Some(Grounds {
            woken: client.inputs.count_ones(),
            of: u32::try_from(self.looked_at).map_or(u32::BITS, |all| all.min(u32::BITS)),
        })
    }

    /// Inputs that woke somebody, since the beginning.
    pub fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// Takes in what was seen, and guesses anew.
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

    /// Clients that are known.
    pub fn clients(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.clients.keys().copied()
    }

    /// How often clients are woken while nothing is pressed.
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
            // Whoever has nothing for it is not missed.
            let front = self.front;
            self.clients
                .retain(|&known, client| client.inputs != 0 || Some(known) == front);
            if self.clients.len() >= CLIENTS_MAX {
                return None;
            }
        }
        Some(self.clients.entry(id).or_default())
    }

    /// Whom the servers woke within the window that begins here, and how soon.
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
            // What woke nobody was for nobody, or for the one in front, who was awake.
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

    /// Whether somebody takes the place of the one in front.
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
    /// How soon an input woke it, if it did; else whether it woke nobody at all. And for how long nothing was
    /// pressed.
    fn weigh(&mut self, after: Option<Duration>, silent: bool, calm: f64) {
        // Somebody who was never seen to be woken without an input may have been looked at too briefly.
        let rate = (self.anyway + 0.5) / calm.max(WITHIN.as_secs_f64());
        // Of a client that draws at a steady rate just that part of all inputs is followed by a frame.
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

    /// Whether it is mostly woken by what is another one's.
    fn listens(&self) -> bool {
        self.beside.count_ones() * 2 > self.inputs.count_ones()
    }
}

fn is_within(at: Duration, start: Duration) -> bool {
    at.checked_sub(start).is_some_and(|after| after <= WITHIN)
}

/// When inputs begin that can be told apart.
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
