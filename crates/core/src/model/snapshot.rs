// SPDX-License-Identifier: GPL-2.0-or-later
//! Everything the policy may look at, at one moment.

use std::time::Duration;

use super::app::{App, AppKey, ProcessId};
use super::apps::{Known, Service};
use super::boost::{Autogroup, Threads, View};
use super::footprint::Footprint;
use super::pressure::Memory;
use super::prezero::Engine;
use super::protected::Protected;
use super::shortage::{Level, Shortage};
use super::storage::Storage;
use crate::policy::boost::{Tuning, Weight};
use crate::policy::prezero::Pool;
use crate::settings::Settings;

/// How this kernel picks pages to reclaim, now: it can be switched while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lru {
    /// Active and inactive lists. Honours `memory.low`.
    #[default]
    TwoList,
    /// Generations. `memory.low` is inert there, so `memory.min` is used.
    MultiGen,
}

/// The memory knob that reserves a cgroup's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Knob {
    /// `memory.min`: never reclaimed.
    Min,
    /// `memory.low`: reclaimed last.
    Low,
}

impl Knob {
    /// The file's name.
    pub fn file(self) -> &'static str {
        match self {
            Knob::Min => "memory.min",
            Knob::Low => "memory.low",
        }
    }
}

impl Lru {
    /// The knob that acts under this LRU.
    pub fn knob(self) -> Knob {
        match self {
            Lru::TwoList => Knob::Low,
            Lru::MultiGen => Knob::Min,
        }
    }
}

/// A reservation through a cgroup's knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// For this app.
    pub app: AppKey,
    /// Through this knob.
    pub knob: Knob,
    /// In bytes.
    pub bytes: u64,
    /// Bytes of it that the ancestors of the app's cgroup hold for it.
    pub carried: u64,
}

/// Locks on pages that the app maps and that are charged to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locking {
    /// For this app.
    pub app: AppKey,
    /// Its processes, ascending: whose mappings are looked at.
    pub members: Vec<ProcessId>,
    /// Most that may be locked, in bytes.
    pub limit: u64,
}

/// What is in force of `swap`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swapping {
    /// Apps whose pages may not go to swap.
    pub exempt: Vec<AppKey>,
    /// Apps that are stopped, and since when.
    pub frozen: Vec<(AppKey, Duration)>,
    /// Apps that were stopped and run again, and since when.
    pub thawed: Vec<(AppKey, Duration)>,
    /// The app that is being squeezed now.
    pub squeezing: Option<AppKey>,
    /// When apps were squeezed last.
    pub squeezed: Vec<(AppKey, Duration)>,
    /// Apps that have nothing in memory any more but what they will need when they return.
    pub lean: Vec<AppKey>,
    /// What apps work with, in bytes of their anonymous memory: what they touched when they came to
    /// the front, as far as it had gone before.
    pub working_sets: Vec<(AppKey, u64)>,
    /// The level of which the listeners were told last, and when.
    pub asked: Option<(Level, Duration)>,
    /// The app in front of which people were told that it grows without end, and when.
    pub warned: Option<(AppKey, Duration)>,
    /// The app in front whose memory was brought back.
    pub returned: Option<AppKey>,
    /// Who may be killed, first one first.
    pub armed: Vec<AppKey>,
    /// Apps for which the gate refused an action, and when: the next target is tried first.
    pub refused: Vec<(AppKey, Duration)>,
}

/// What the actuators have in force, as they reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// Budget in percent with which the device's `protect` is on.
    pub device_protect: Option<u8>,
    /// Largest window, in pages, with which the device's `premap` is on.
    pub device_premap: Option<u16>,
    /// Factor with which the device's `readahead` is on.
    pub device_readahead: Option<u8>,
    /// The pool with which the device's `prezero` is on.
    pub device_prezero: Option<Pool>,
    /// When the response window ends that the device was told of last.
    pub device_window: Option<Duration>,
    /// The app whose processes the device was given, and those processes, ascending.
    pub marked: Option<(AppKey, Vec<ProcessId>)>,
    /// The reservation in force.
    pub reserved: Option<Reserved>,
    /// The app whose cgroups have weights, and these.
    pub weighed: Option<(AppKey, Vec<Weight>)>,
    /// The app whose threads are tuned, with what, and those seen to, its helpers' among them.
    pub tuned: Option<(AppKey, Tuning, Vec<Threads>)>,
    /// The app whose sessions have another nice value as groups, and these.
    pub regrouped: Option<(AppKey, Vec<Autogroup>)>,
    /// The app whose processes have a lowered `oom_score_adj`, and those seen to, ascending.
    pub shielded: Option<(AppKey, Vec<ProcessId>)>,
    /// The locks asked for; how much is locked is [`Snapshot::locked_bytes`].
    pub locked: Option<Locking>,
    /// Apps that live in cgroups of ours. They stay there when they leave the front: moving them
    /// back would leave behind everything that was charged meanwhile.
    pub adopted: Vec<AppKey>,
    /// What `swap` did.
    pub swapping: Swapping,
}

/// The app in front with what was measured of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The app.
    pub app: App,
    /// Its processes, ascending.
    pub members: Vec<ProcessId>,
    /// Memory counters of its own cgroup; `None` without one, or without the memory controller.
    pub footprint: Option<Footprint>,
}

/// Everything the policy may look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The administrator's decisions.
    pub settings: Settings,
    /// The machine's memory.
    pub memory: Memory,
    /// The LRU in use.
    pub lru: Lru,
    /// The memory controller can be used on this machine's cgroup v2 hierarchy.
    pub memory_controller: bool,
    /// What a cgroup's ancestors reserve and it does not use protects its siblings
    /// (`memory_recursiveprot`).
    pub recursive_protection: bool,
    /// `/dev/limelight` is open and offers `protect`.
    pub device: bool,
    /// The device offers `premap` too.
    pub device_premap: bool,
    /// The device offers `readahead` too.
    pub device_readahead: bool,
    /// The device offers `prezero` too.
    pub device_prezero: bool,
    /// Engines that can zero pages now.
    pub engines: Vec<Engine>,
    /// Most pages of fresh memory that one of the apps that were topmost takes in a response window, if
    /// that is known.
    pub demand: Option<u64>,
    /// Live processes that the device counts as the topmost app's, children that were born as
    /// members included.
    pub device_members: u32,
    /// An app without a cgroup of its own may be moved into one.
    pub may_adopt: bool,
    /// No service manager has the cgroup tree, so that for an app that was moved into one of ours the controllers may
    /// be handed down that its weights need.
    pub may_hand_down: bool,
    /// The app in front.
    pub topmost: Option<Measured>,
    /// A program that is being started and was in front soon after an earlier start. Never the app
    /// in front.
    pub starting: Option<Measured>,
    /// What `boost` must know.
    pub boost: View,
    /// Steps by which protection is lowered ([`super::pressure::STEPS`] is none left).
    pub lowered_steps: u8,
    /// Bytes that others protect with the same knobs, already in use by them.
    pub protected_by_others: u64,
    /// Bytes that the daemon holds locked for the topmost app.
    pub locked_bytes: u64,
    /// Page cache that is kept for the topmost app, in bytes: it counts as available and is not.
    pub kept_cache: u64,
    /// The smallest limit (`memory.max`, `memory.high`) of the app's ancestors, in bytes. Inside
    /// it the app's reservation is as hard as in the machine as a whole.
    pub ceiling: Option<u64>,
    /// The apps that are known, the one used longest ago first.
    pub apps: Vec<Known>,
    /// Nobody waits for anything, as far as is known: the app in front has been there for a while,
    /// and no response window is open.
    pub settled: bool,
    /// The app that was in front before this one, and when it left.
    pub previous: Option<(AppKey, Duration)>,
    /// Processes that no action may harm.
    pub protected: Protected,
    /// Cgroups with much memory that hold no app and no protected process, the largest first; known
    /// only while memory is short.
    pub services: Vec<Service>,
    /// How short memory is for all of them.
    pub shortage: Shortage,
    /// Where swapped memory goes.
    pub storage: Storage,
    /// What is in force.
    pub in_force: InForce,
}

impl Snapshot {
    /// What is known of the app in front.
    pub fn known_topmost(&self) -> Option<&Known> {
        let key = self.topmost.as_ref()?.app.key;
        self.apps.iter().find(|known| known.key() == key)
    }

    /// Most that may be reserved for the topmost app, in bytes.
    pub fn budget(&self) -> u64 {
        let percent = u64::from(self.settings.protect.budget_percent);
        let share = |bytes: u64| bytes / 100 * percent + bytes % 100 * percent / 100;
        // A share of memory that the kernel, a driver or mlock() holds would be a reservation of
        // the others' last pages.
        let memory = match self.memory.reachable {
            0 => self.memory.total,
            reachable => reachable.min(self.memory.total),
        };
        let machine = share(memory).saturating_sub(self.protected_by_others);
        self.ceiling
            .map_or(machine, |ceiling| machine.min(share(ceiling)))
    }
}
