// SPDX-License-Identifier: GPL-2.0-or-later
//! The administrator's settings, parsed and checked.

use std::time::Duration;

use crate::model::prezero::Extent;

/// All settings of the policy and the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How the topmost app is found.
    pub topmost: TopmostSettings,
    /// Protection of the topmost app's memory.
    pub protect: ProtectSettings,
    /// Processor and disk priority of the topmost app.
    pub boost: BoostSettings,
    /// Mapping of the topmost app's heap ahead of faults.
    pub premap: PremapSettings,
    /// Read-ahead of the topmost app's files.
    pub readahead: ReadaheadSettings,
    /// Zeroing of free pages in advance.
    pub prezero: PrezeroSettings,
    /// Treatment of background apps when memory is short.
    pub swap: SwapSettings,
    /// Response windows.
    pub window: WindowSettings,
}

/// How the topmost app is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopmostSettings {
    /// The foreground app is demoted after no app has had the focus for this long.
    pub gap: Duration,
}

impl Default for TopmostSettings {
    fn default() -> Self {
        TopmostSettings {
            gap: Duration::from_secs(2),
        }
    }
}

/// The mechanism `protect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectSettings {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// Maximum protected memory in percent of RAM, 1 to 90, including memory that other software
    /// protects.
    pub budget_percent: u8,
    /// Points (thousandths of memory) by which `oom_score_adj` of the topmost app's processes is
    /// lowered, 0 (not at all) to 1000.
    pub oom_points: u16,
    /// Whether to lock pages that the topmost app maps and that are charged to other cgroups. Not
    /// done on a kernel that protects them by itself (`/dev/limelight`).
    pub lock_shared: bool,
    /// Whether the budget shrinks while the topmost app is not used and other programs wait for
    /// memory.
    pub ageing: bool,
    /// Interval between measurements of the topmost app.
    pub interval: Duration,
}

impl Default for ProtectSettings {
    fn default() -> Self {
        ProtectSettings {
            enabled: true,
            budget_percent: 60,
            oom_points: 500,
            lock_shared: true,
            ageing: false,
            interval: Duration::from_millis(500),
        }
    }
}

/// The mechanism `boost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoostSettings {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// `cpu.weight` of the topmost app's cgroup and its ancestors, 100 to 10,000.
    pub cpu_weight: u32,
    /// Points by which nice values are lowered if no `cpu.weight` acts, 0 (not at all) to 39.
    pub nice_points: u8,
    /// Scheduler time slice of the app's threads in microseconds, 100 to 100,000; 0: unchanged.
    pub slice_us: u32,
    /// `io.weight` of the same cgroups, 100 to 10,000; BFQ accepts at most 1000.
    pub io_weight: u32,
    /// Level of the best-effort I/O class for the app's threads, 0 (first) to 7.
    pub io_level: u8,
    /// Whether a program with a recorded start is boosted before it is in the foreground.
    pub starting: bool,
    /// Whether builds, background jobs and hidden tabs of an app with terminals are not boosted.
    pub terminal: bool,
    /// Process names of the helper programs that a topmost app may need, at most 15 bytes each: the
    /// kernel truncates longer names.
    pub helpers: Vec<String>,
}

/// Display servers, compositors, sound servers and message buses.
const HELPERS: [&str; 20] = [
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "mutter",
    "kwin_wayland",
    "kwin_x11",
    "sway",
    "labwc",
    "weston",
    "Hyprland",
    "niri",
    "cosmic-comp",
    "picom",
    "pipewire",
    "pipewire-pulse",
    "wireplumber",
    "pulseaudio",
    "jackd",
    "dbus-daemon",
    "dbus-broker",
];

impl Default for BoostSettings {
    fn default() -> Self {
        BoostSettings {
            enabled: true,
            cpu_weight: 10_000,
            nice_points: 20,
            slice_us: 300,
            io_weight: 1000,
            io_level: 0,
            starting: true,
            terminal: true,
            helpers: HELPERS.map(str::to_owned).to_vec(),
        }
    }
}

/// The mechanism `premap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PremapSettings {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// Maximum number of pages that one fault of the topmost app maps, 1 to 512.
    pub window_pages: u16,
}

impl Default for PremapSettings {
    fn default() -> Self {
        PremapSettings {
            enabled: true,
            window_pages: 64,
        }
    }
}

/// The mechanism `readahead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadaheadSettings {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// Read-ahead distance for the topmost app, as a multiple of that for other processes, 1 to 64.
    pub factor: u8,
    /// Rate limit for the daemon's read-ahead of streams, in bytes per second.
    pub rate: u64,
    /// Whether starts are recorded and replayed.
    pub cold_start: bool,
    /// Duration of a recording, from the start of the app.
    pub record: Duration,
    /// Maximum size of all file ranges in one record together, in bytes.
    pub record_bytes: u64,
    /// Maximum number of records; beyond it, the least recently used ones are deleted.
    pub records: u32,
}

impl Default for ReadaheadSettings {
    fn default() -> Self {
        ReadaheadSettings {
            enabled: true,
            factor: 8,
            rate: 256 << 20,
            cold_start: true,
            record: Duration::from_secs(10),
            record_bytes: 128 << 20,
            records: 64,
        }
    }
}

/// Choice of the engine that zeroes pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// Limelight's choice, now always the processor ([`crate::policy::prezero::engine`] has the
    /// reason).
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// A DMA controller.
    Dma,
    /// Reads from the disk range [`PrezeroSettings::block`].
    Block,
}

/// The mechanism `prezero`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrezeroSettings {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// The engine that zeroes pages.
    pub engine: EngineChoice,
    /// Maximum size of the pool in percent of RAM, 1 to 8; the kernel accepts at most a twelfth of
    /// RAM.
    pub most_percent: u8,
    /// The range of zeroes on a disk, for [`EngineChoice::Block`].
    pub block: Option<Extent>,
}

impl Default for PrezeroSettings {
    fn default() -> Self {
        PrezeroSettings {
            enabled: true,
            engine: EngineChoice::Auto,
            most_percent: 8,
            block: None,
        }
    }
}

/// The mechanism `swap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapSettings {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// Apps may be killed when less than this percentage of memory is available, up to 50; 0: the
    /// daemon derives the threshold from the machine.
    pub kill_percent: u8,
    /// Apps are swapped when less than this percentage of memory is available, up to 80; 0: the
    /// daemon derives the threshold from the machine, and swaps in advance only what the next launch
    /// needs.
    pub swap_percent: u8,
    /// Maximum number of bytes that swapping may write to flash per day; 0: no limit.
    pub write_budget: u64,
    /// Whether a disposable app is swapped if that costs the user less than closing it, or if swap
    /// is zram and reclaim would find too little else; `false`: never, as in the SWAP paper.
    pub by_cost: bool,
    /// Whether pages of background apps are written back from zram to its backing device before an
    /// app is closed.
    pub write_back: bool,
    /// Whether listening apps are first asked to free memory.
    pub ask: bool,
    /// Whether leaking background apps may grow only slowly while memory is short.
    pub throttle: bool,
    /// Whether services are squeezed before any app is frozen or killed.
    pub services: bool,
    /// Whether background apps may be frozen before a normal app is killed.
    pub freeze: bool,
    /// Whether apps may be killed.
    pub kill: bool,
    /// How long an app that is to be closed may take to exit by itself after SIGTERM, up to 10 s; 0:
    /// it is killed at once. When memory is exhausted, apps are always killed at once.
    pub grace: Duration,
    /// Maximum number of bytes to read back for an app that returns to the foreground; applies to
    /// its files and to swap separately; 0: none.
    pub prefault: u64,
}

impl Default for SwapSettings {
    fn default() -> Self {
        SwapSettings {
            enabled: true,
            kill_percent: 0,
            swap_percent: 0,
            write_budget: 16 << 30,
            by_cost: true,
            write_back: true,
            ask: true,
            throttle: false,
            services: true,
            freeze: true,
            kill: true,
            grace: Duration::from_secs(3),
            prefault: 256 << 20,
        }
    }
}

/// Response windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSettings {
    /// Whether windows are used.
    pub enabled: bool,
    /// Deadline of a window of an app without recorded answers.
    pub deadline: Duration,
    /// Upper bound of a slow app's deadline. A later frame is not an answer.
    pub deadline_max: Duration,
    /// Maximum number of apps with recorded answers; beyond it, the least recently used ones are
    /// dropped.
    pub apps: u32,
}

impl Default for WindowSettings {
    fn default() -> Self {
        WindowSettings {
            enabled: true,
            deadline: Duration::from_millis(500),
            deadline_max: Duration::from_secs(5),
            apps: 64,
        }
    }
}
