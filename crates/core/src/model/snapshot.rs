// SPDX-License-Identifier: GPL-2.0-or-later
//! State of the machine at one moment: all input of the policy.

use std::time::Duration;

use super::ageing::aged;
use super::app::{App, AppKey, Home, ProcessId};
use super::apps::{Known, Service};
use super::boost::{Autogroup, Threads, Tuning, View, Weight};
use super::footprint::{Footprint, Usage};
use super::never::{Exception, Exceptions, Never};
use super::pressure::Memory;
use super::prezero::{Engine, Pool};
use super::protected::{Harm, Protected};
use super::shortage::{Level, Shortage};
use super::storage::Storage;
use super::terminal::Terminal;
use crate::settings::Settings;

/// The kernel's page replacement, which can be switched at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lru {
    /// Active and inactive lists. Honours `memory.low`.
    #[default]
    TwoList,
    /// Generations. `memory.low` has no effect there, so `memory.min` is used.
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
    /// Bytes that each ancestor of the app's cgroup reserves for the app; at most `bytes`.
    pub carried: u64,
}

/// Locks on file pages that the app maps and that are charged to other cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locking {
    /// The app that the locks protect.
    pub app: AppKey,
    /// Its processes, ascending; their mappings are searched for such pages.
    pub members: Vec<ProcessId>,
    /// Maximum number of bytes to lock.
    pub limit: u64,
}

/// State of `swap`: its actions in force and recent ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swapping {
    /// Apps whose pages are kept out of swap.
    pub exempt: Vec<Exempted>,
    /// The last exempt app that came to the foreground, where its exemption was lifted.
    pub lifted: Option<AppKey>,
    /// Frozen apps, and since when.
    pub frozen: Vec<(AppKey, Duration)>,
    /// Apps that were frozen and have been thawed, and when they were thawed.
    pub thawed: Vec<(AppKey, Duration)>,
    /// The app that is being squeezed.
    pub squeezing: Option<AppKey>,
    /// When each app was last squeezed.
    pub squeezed: Vec<(AppKey, Duration)>,
    /// The app whose pages are being written back from zram.
    pub writing_back: Option<AppKey>,
    /// When each app's pages were last written back from zram.
    pub written_back: Vec<(AppKey, Duration)>,
    /// Apps that have only their working set left in memory.
    pub lean: Vec<AppKey>,
    /// Working sets, in bytes of anonymous memory: the swapped part of an app's memory that the app
    /// touched after it last came to the foreground.
    pub working_sets: Vec<(AppKey, u64)>,
    /// The last level sent to the listeners, and when.
    pub asked: Option<(Level, Duration)>,
    /// The foreground app of the last warning about unbounded growth, and when.
    pub warned: Option<(AppKey, Duration)>,
    /// The foreground app whose memory was read back.
    pub returned: Option<AppKey>,
    /// Apps that may be killed, in the order in which they would be killed.
    pub armed: Vec<AppKey>,
    /// The last refusal for each app. For a while, the policy chooses other targets.
    pub refused: Vec<Refusal>,
    /// Apps whose growth is limited.
    pub throttled: Vec<Throttled>,
}

/// An app whose pages are kept out of swap (`memory.swap.max`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exempted {
    /// The app.
    pub app: AppKey,
    /// Path of the limited cgroup below the mount point, with a leading slash.
    pub path: String,
}

/// An app whose growth is limited (`memory.high`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// The app.
    pub app: AppKey,
    /// The limit in bytes.
    pub limit: u64,
    /// When the limit was set or last raised, since boot.
    pub raised: Duration,
}

impl Swapping {
    /// Whether the app's pages are kept out of swap.
    pub fn is_exempt(&self, app: AppKey) -> bool {
        self.exempt.iter().any(|one| one.app == app)
    }

    /// The app's working set, if it is known.
    pub fn working_set(&self, app: AppKey) -> Option<u64> {
        let known = self.working_sets.iter().find(|(known, _)| *known == app);
        known.map(|(_, bytes)| *bytes)
    }
}

/// An action on an app that the gate refused, or that was not carried out because another process
/// may be waiting for the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The app.
    pub app: AppKey,
    /// When, since boot.
    pub at: Duration,
    /// The refused action.
    pub harm: Harm,
    /// The reason. It may name a process of another user's app, so not every client may see it.
    pub why: String,
}

/// All settings and actions in force, as reported by the mechanisms.
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
    /// The app that was passed to the device, and its processes, ascending.
    pub marked: Option<(AppKey, Vec<ProcessId>)>,
    /// The reservation in force.
    pub reserved: Option<Reserved>,
    /// The reservation for the display server.
    pub reserved_display: Option<ReservedDisplay>,
    /// The app whose cgroups have weights, and the weights.
    pub weighed: Option<(AppKey, Vec<Weight>)>,
    /// The app whose threads are tuned, the tuning, and all tuned threads including its helpers'.
    pub tuned: Option<(AppKey, Tuning, Vec<Threads>)>,
    /// The app whose autogroups have a lowered nice value, and these autogroups.
    pub regrouped: Option<(AppKey, Vec<Autogroup>)>,
    /// The app whose `oom_score_adj` is lowered, and the affected processes, ascending.
    pub shielded: Option<(AppKey, Vec<ProcessId>)>,
    /// The requested locks; [`Snapshot::locked_bytes`] is the amount locked so far.
    pub locked: Option<Locking>,
    /// Apps in cgroups that the daemon made. They stay there after they leave the foreground: if
    /// they were moved back, memory charged in the meantime would stay behind.
    pub adopted: Vec<AppKey>,
    /// State of `swap`.
    pub swapping: Swapping,
}

impl InForce {
    /// Size of all reservations in bytes.
    pub fn reserved_bytes(&self) -> u64 {
        let app = self.reserved.map_or(0, |reserved| reserved.bytes);
        let display = self.reserved_display.map_or(0, |display| display.bytes);
        app.saturating_add(display)
    }
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
    /// The parts of an app with terminals; `None` for any other app.
    pub terminal: Option<Terminal>,
    /// What Limelight never does for it.
    pub exceptions: Exceptions,
}

impl Measured {
    /// The rule because of which Limelight does not do this for the app; `None`: it does.
    pub fn never(&self, never: Never) -> Option<&Exception> {
        self.exceptions.of(never)
    }

    /// Its processes that may answer a key press, ascending: all of them, but for an app with
    /// terminals.
    pub fn front(&self) -> Vec<ProcessId> {
        let terminal = self.terminal.as_ref();
        terminal.map_or_else(
            || self.members.clone(),
            |terminal| terminal.front().collect(),
        )
    }

    /// The part of its memory that is protected.
    pub fn protected(&self) -> Option<Footprint> {
        let limit = self
            .terminal
            .as_ref()
            .and_then(|terminal| terminal.front_bytes);
        let footprint = self.footprint?;
        Some(limit.map_or(footprint, |bytes| footprint.limited_to(bytes)))
    }
}

/// A reservation for a display server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedDisplay {
    /// The topmost app with whose reservation it ends.
    pub app: AppKey,
    /// Inode of the server's cgroup.
    pub inode: u64,
    /// The size in bytes.
    pub bytes: u64,
}

/// The display server that serves the topmost app, if it has a cgroup of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayServer {
    /// Its cgroup.
    pub home: Home,
    /// Memory counters of that cgroup.
    pub usage: Usage,
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
    /// Whether cgroup v2 is mounted with `memory_recursiveprot`. If so, a reservation of an
    /// ancestor that a cgroup does not use protects the cgroup's siblings.
    pub recursive_protection: bool,
    /// Whether `/dev/limelight` is open and offers `protect`.
    pub device: bool,
    /// Whether the device offers `premap`.
    pub device_premap: bool,
    /// Whether the device offers `readahead`.
    pub device_readahead: bool,
    /// Whether the device offers `prezero`.
    pub device_prezero: bool,
    /// Engines that can zero pages now.
    pub engines: Vec<Engine>,
    /// Largest known demand of an app for fresh memory in one response window, in pages; `None` if
    /// none is known.
    pub demand: Option<u64>,
    /// Number of live processes that the device counts as part of the topmost app, including
    /// children that inherited the membership.
    pub device_members: u32,
    /// Whether an app without a cgroup of its own may be moved into one.
    pub may_adopt: bool,
    /// Whether the daemon may enable the controllers that weights need, for apps in cgroups that it
    /// made. It may if no service manager owns the cgroup tree.
    pub may_hand_down: bool,
    /// The foreground app.
    pub topmost: Option<Measured>,
    /// The display server that serves it; `None` without one in a cgroup of its own.
    pub display: Option<DisplayServer>,
    /// A program that is starting, and that came to the foreground soon after an earlier start of
    /// which there is a record. Never the foreground app.
    pub starting: Option<Measured>,
    /// The cgroup of an app that is being closed and has not exited yet.
    pub closing: Option<Home>,
    /// Input of `boost`.
    pub boost: View,
    /// Steps by which protection is lowered; at [`super::pressure::STEPS`] no protection is left.
    pub lowered_steps: u8,
    /// Steps by which protection has aged while the topmost app was not used; see
    /// [`super::ageing`].
    pub age: u8,
    /// Bytes in use that other software protects with `memory.min` or `memory.low`.
    pub protected_by_others: u64,
    /// Bytes that the daemon has locked for the topmost app.
    pub locked_bytes: u64,
    /// Page cache kept for the topmost app, in bytes. The kernel counts it as available although
    /// reclaim cannot take it.
    pub kept_cache: u64,
    /// Bytes of pages that have a copy in swap and that no process maps. Reclaim drops them without
    /// any write, but `MemAvailable` excludes them. Measured only when apps may be squeezed, else 0.
    pub unmapped_swap_cache: u64,
    /// The smallest limit (`memory.max`, `memory.high`) of the app's ancestors, in bytes. The
    /// budget is a share of it: a larger reservation could leave reclaim nothing to take under that
    /// limit.
    pub ceiling: Option<u64>,
    /// All known apps, least recently used first.
    pub apps: Vec<Known>,
    /// Whether the user is probably not waiting: the foreground app has not changed for a while,
    /// and no response window is open.
    pub settled: bool,
    /// The previous foreground app, and when it left.
    pub previous: Option<(AppKey, Duration)>,
    /// Processes that no action may harm.
    pub protected: Protected,
    /// Cgroups that use much memory and contain neither an app nor a protected process, largest
    /// first; filled only while memory is short.
    pub services: Vec<Service>,
    /// Result of [`Users::taken`](super::apps::Users::taken): user id and bytes of recent growth,
    /// for each user. Empty on a machine without user slices.
    pub users_taken: Vec<(u32, u64)>,
    /// Machine-wide shortage of memory.
    pub shortage: Shortage,
    /// The swap devices.
    pub storage: Storage,
    /// All settings and actions in force.
    pub in_force: InForce,
}

/// Largest share of evictable memory that Limelight may keep from reclaim, in percent, unless the
/// budget is set to more.
const EVICTABLE_PERCENT: u64 = 88;
/// The part of all memory that stays evictable, unless the budget is set to more than
/// [`EVICTABLE_PERCENT`]. Where zram holds most memory, a share of the rest would be less than the
/// kernel itself keeps free.
const EVICTABLE_PART: u64 = 16;

impl Snapshot {
    /// The current time for the policy: the later of the snapshot's and the gauge's. The gauge may
    /// be a minute older than the snapshot, because the guard sleeps while there is plenty of
    /// memory. It may also be newer, because the guard reads it in its own thread.
    pub fn now(&self) -> Duration {
        self.at.max(self.shortage.gauge().at)
    }

    /// The known data of the foreground app.
    pub fn known_topmost(&self) -> Option<&Known> {
        let key = self.topmost.as_ref()?.app.key;
        self.apps.iter().find(|known| known.key() == key)
    }

    /// The budget of `protect` at the present age, in percent of memory.
    pub fn budget_percent(&self) -> u8 {
        let settings = &self.settings.protect;
        match settings.ageing {
            true => aged(settings.budget_percent, self.age),
            false => settings.budget_percent,
        }
    }

    /// Maximum number of bytes to reserve for the topmost app.
    pub fn budget(&self) -> u64 {
        let percent = u64::from(self.budget_percent());
        let most = match percent > EVICTABLE_PERCENT {
            true => part(self.evictable(), percent),
            false => self.keepable(),
        };
        let machine = part(self.memory.usable(), percent).min(most);
        let machine = machine.saturating_sub(self.protected_by_others);
        self.ceiling
            .map_or(machine, |ceiling| machine.min(part(ceiling, percent)))
    }

    /// Memory that Limelight may keep from reclaim, in bytes: the reservations and the memory of
    /// apps that must not be swapped, together. If they covered all evictable memory, reclaim would
    /// find nothing, and the OOM killer would kill a process although swap is free.
    pub fn keepable(&self) -> u64 {
        let evictable = self.evictable();
        let rest = self.memory.total / EVICTABLE_PART;
        part(evictable, EVICTABLE_PERCENT).min(evictable.saturating_sub(rest))
    }

    /// Memory that is free or that reclaim can free. The pages in zram cannot be reclaimed again.
    fn evictable(&self) -> u64 {
        self.memory.usable().saturating_sub(self.memory.compressed)
    }
}

fn part(bytes: u64, percent: u64) -> u64 {
    bytes / 100 * percent + bytes % 100 * percent / 100
}
