// SPDX-License-Identifier: GPL-2.0-or-later
//! State of the machine at one moment: all input of the policy.

use std::time::Duration;

use super::app::{App, AppKey, ProcessId};
use super::apps::{Known, Service};
use super::boost::{Autogroup, Threads, View};
use super::footprint::Footprint;
use super::pressure::Memory;
use super::prezero::Engine;
use super::protected::{Harm, Protected};
use super::shortage::{Level, Shortage};
use super::storage::Storage;
use crate::policy::boost::{Tuning, Weight};
use crate::policy::prezero::Pool;
use crate::settings::Settings;

/// How the running kernel picks pages to reclaim. It can be switched at run time.
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

/// A reservation through a cgroup's memory knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// The app that it protects.
    pub app: AppKey,
    /// The knob in use.
    pub knob: Knob,
    /// Size in bytes.
    pub bytes: u64,
    /// The part of it, in bytes, that the ancestors of the app's cgroup hold for it.
    pub carried: u64,
}

/// Locks on pages that the app maps and that are charged to other cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locking {
    /// The app that they protect.
    pub app: AppKey,
    /// Its processes, ascending; their mappings are searched for such pages.
    pub members: Vec<ProcessId>,
    /// Maximum to lock, in bytes.
    pub limit: u64,
}

/// What `swap` has in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swapping {
    /// Apps whose pages are kept out of swap.
    pub exempt: Vec<AppKey>,
    /// Frozen apps, and since when.
    pub frozen: Vec<(AppKey, Duration)>,
    /// Apps that were frozen and run again, and since when.
    pub thawed: Vec<(AppKey, Duration)>,
    /// The app that is being squeezed.
    pub squeezing: Option<AppKey>,
    /// When each app was last squeezed.
    pub squeezed: Vec<(AppKey, Duration)>,
    /// Apps with only their working set left in memory.
    pub lean: Vec<AppKey>,
    /// Working sets in bytes of anonymous memory: what an app touched when it came to the
    /// foreground, of the part that had been swapped out before.
    pub working_sets: Vec<(AppKey, u64)>,
    /// The last level sent to the listeners, and when.
    pub asked: Option<(Level, Duration)>,
    /// The foreground app of the last warning about unbounded growth, and when.
    pub warned: Option<(AppKey, Duration)>,
    /// The foreground app that had its memory read back.
    pub returned: Option<AppKey>,
    /// Apps that may be killed, first victim first.
    pub armed: Vec<AppKey>,
    /// The last refusal of each app: for a while, other targets come first.
    pub refused: Vec<Refusal>,
}

/// An action on an app that was not carried out: the gate refused it, or another process may be
/// waiting for the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The app.
    pub app: AppKey,
    /// When, since boot.
    pub at: Duration,
    /// The refused action.
    pub harm: Harm,
    /// The protected process. Its pid and role may belong to another user's app.
    pub why: String,
}

/// What is in force, as reported by the mechanisms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// Budget of the device's `protect` in percent, if it is on.
    pub device_protect: Option<u8>,
    /// Largest window of the device's `premap` in pages, if it is on.
    pub device_premap: Option<u16>,
    /// Factor of the device's `readahead`, if it is on.
    pub device_readahead: Option<u8>,
    /// Pool of the device's `prezero`, if it is on.
    pub device_prezero: Option<Pool>,
    /// End of the last response window that was passed to the device.
    pub device_window: Option<Duration>,
    /// The app whose processes were passed to the device, and those processes, ascending.
    pub marked: Option<(AppKey, Vec<ProcessId>)>,
    /// The reservation in force.
    pub reserved: Option<Reserved>,
    /// The app whose cgroups have weights, and the weights.
    pub weighed: Option<(AppKey, Vec<Weight>)>,
    /// The app whose threads are tuned, the tuning, and the tuned threads, its helpers' included.
    pub tuned: Option<(AppKey, Tuning, Vec<Threads>)>,
    /// The app whose autogroups have another nice value, and the autogroups.
    pub regrouped: Option<(AppKey, Vec<Autogroup>)>,
    /// The app whose processes have a lowered `oom_score_adj`, and those processes, ascending.
    pub shielded: Option<(AppKey, Vec<ProcessId>)>,
    /// The requested locks; [`Snapshot::locked_bytes`] says how much is locked.
    pub locked: Option<Locking>,
    /// Apps that live in cgroups made by the daemon. They stay there after they leave the
    /// foreground: moving them back would leave behind everything that was charged meanwhile.
    pub adopted: Vec<AppKey>,
    /// What `swap` has in force.
    pub swapping: Swapping,
}

/// The foreground app, with measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The app.
    pub app: App,
    /// Its processes, ascending.
    pub members: Vec<ProcessId>,
    /// Memory counters of its own cgroup; `None` without one, or without the memory controller.
    pub footprint: Option<Footprint>,
}

/// All input of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was taken, since boot.
    pub at: Duration,
    /// The administrator's configuration.
    pub settings: Settings,
    /// The machine's memory.
    pub memory: Memory,
    /// The LRU in use.
    pub lru: Lru,
    /// Whether the memory controller is usable on this machine's cgroup v2 hierarchy.
    pub memory_controller: bool,
    /// `memory_recursiveprot`: protection that a cgroup's ancestors reserve and it does not use
    /// covers its siblings.
    pub recursive_protection: bool,
    /// `/dev/limelight` is open and offers `protect`.
    pub device: bool,
    /// Whether the device offers `premap`.
    pub device_premap: bool,
    /// Whether the device offers `readahead`.
    pub device_readahead: bool,
    /// Whether the device offers `prezero`.
    pub device_prezero: bool,
    /// Engines that can zero pages now.
    pub engines: Vec<Engine>,
    /// Largest demand for fresh memory, in pages, of a topmost app in one response window, if
    /// known.
    pub demand: Option<u64>,
    /// Number of live processes that the device counts as the topmost app's, including children
    /// that were born as members.
    pub device_members: u32,
    /// Whether an app without a cgroup of its own may be moved into one.
    pub may_adopt: bool,
    /// Whether the daemon may enable the controllers that weights need for an app in one of its own
    /// cgroups: no service manager owns the cgroup tree.
    pub may_hand_down: bool,
    /// The foreground app.
    pub topmost: Option<Measured>,
    /// A program that is starting and came to the foreground soon after an earlier start. Never the
    /// foreground app.
    pub starting: Option<Measured>,
    /// Input of `boost`.
    pub boost: View,
    /// Steps by which protection is lowered; at [`super::pressure::STEPS`] none is left.
    pub lowered_steps: u8,
    /// Bytes in use that other software protects with the same knobs.
    pub protected_by_others: u64,
    /// Bytes that the daemon holds locked for the topmost app.
    pub locked_bytes: u64,
    /// Page cache kept for the topmost app, in bytes: the kernel counts it as available, but it is
    /// not.
    pub kept_cache: u64,
    /// The smallest limit (`memory.max`, `memory.high`) of the app's ancestors, in bytes. Below
    /// that cgroup the app's reservation is as hard as it is machine-wide.
    pub ceiling: Option<u64>,
    /// All known apps, least recently used first.
    pub apps: Vec<Known>,
    /// Whether the user waits for nothing, as far as is known: the foreground app has been there
    /// for a while, and no response window is open.
    pub settled: bool,
    /// The previous foreground app, and when it left.
    pub previous: Option<(AppKey, Duration)>,
    /// Processes that no action may harm.
    pub protected: Protected,
    /// Cgroups with much memory but no app and no protected process, largest first; filled only
    /// while memory is short.
    pub services: Vec<Service>,
    /// Bytes that each user took lately, on machines with user slices.
    pub users_taken: Vec<(u32, u64)>,
    /// Machine-wide shortage of memory.
    pub shortage: Shortage,
    /// The swap devices.
    pub storage: Storage,
    /// What is in force.
    pub in_force: InForce,
}

impl Snapshot {
    /// The current time for the policy. The gauge may be a minute older than the snapshot, because
    /// the guard sleeps while there is plenty of memory, or newer, since the guard reads it in its
    /// own thread.
    pub fn now(&self) -> Duration {
        self.at.max(self.shortage.gauge().at)
    }

    /// The known data of the foreground app.
    pub fn known_topmost(&self) -> Option<&Known> {
        let key = self.topmost.as_ref()?.app.key;
        self.apps.iter().find(|known| known.key() == key)
    }

    /// Maximum to reserve for the topmost app, in bytes.
    pub fn budget(&self) -> u64 {
        let percent = u64::from(self.settings.protect.budget_percent);
        let share = |bytes: u64| bytes / 100 * percent + bytes % 100 * percent / 100;
        // Memory that the kernel, a driver or mlock() holds must not count: a share of it would
        // reserve the last pages of the other apps.
        let memory = match self.memory.reachable {
            0 => self.memory.total,
            reachable => reachable.min(self.memory.total),
        };
        let machine = share(memory).saturating_sub(self.protected_by_others);
        self.ceiling
            .map_or(machine, |ceiling| machine.min(share(ceiling)))
    }
}
