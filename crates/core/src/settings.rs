// SPDX-License-Identifier: GPL-2.0-or-later
//! What the administrator decided, after the configuration was read and checked.

use std::time::Duration;

use crate::model::prezero::Extent;

/// Everything that policy and model want to know from the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How the topmost app is found.
    pub topmost: TopmostSettings,
    /// How it is protected.
    pub protect: ProtectSettings,
    /// How it gets processor and disk first.
    pub boost: BoostSettings,
    /// How its heap is mapped ahead.
    pub premap: PremapSettings,
    /// How its files are read ahead.
    pub readahead: ReadaheadSettings,
    /// How pages are zeroed for it ahead.
    pub prezero: PrezeroSettings,
    /// What becomes of the other apps when memory is short.
    pub swap: SwapSettings,
    /// How long its answers are waited for.
    pub window: WindowSettings,
}

/// How the topmost app is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopmostSettings {
    /// How long nothing may have the focus before the last app is demoted.
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
    /// Whether anything is done at all.
    pub enabled: bool,
    /// Most that may be protected, with what others protect already, in percent of RAM, 1 to 90.
    pub budget_percent: u8,
    /// Points of `oom_score_adj` (thousandths of memory) that the topmost app's processes are
    /// lowered by, 0 (not at all) to 1000.
    pub oom_points: u16,
    /// Whether mapped pages that are charged to others are locked where the kernel cannot know them.
    pub lock_shared: bool,
    /// How often the topmost app is measured.
    pub interval: Duration,
}

impl Default for ProtectSettings {
    fn default() -> Self {
        ProtectSettings {
            enabled: true,
            budget_percent: 60,
            oom_points: 500,
            lock_shared: true,
            interval: Duration::from_millis(500),
        }
    }
}

/// The mechanism `boost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoostSettings {
    /// Whether anything is done at all.
    pub enabled: bool,
    /// `cpu.weight` of the topmost app's cgroup and its ancestors, 100 to 10,000.
    pub cpu_weight: u32,
    /// Points by which nice values are lowered where no weight acts, 0 (not at all) to 39.
    pub nice_points: u8,
    /// Slice of the app's threads in microseconds, 100 to 100,000; 0 leaves it alone.
    pub slice_us: u32,
    /// `io.weight` of the same cgroups, 100 to 10,000; BFQ takes at most 1000.
    pub io_weight: u32,
    /// Level of the best-effort I/O class for the app's threads, 0 (first) to 7.
    pub io_level: u8,
    /// Whether a program whose start is recorded is boosted before it is in front.
    pub starting: bool,
    /// Names of programs that serve whichever app is topmost, at most 15 bytes each: the kernel
    /// knows no longer ones.
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
            helpers: HELPERS.map(str::to_owned).to_vec(),
        }
    }
}

/// The mechanism `premap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PremapSettings {
    /// Whether anything is done at all.
    pub enabled: bool,
    /// Most pages that one fault of the topmost app maps, 1 to 512.
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
    /// Whether anything is done at all.
    pub enabled: bool,
    /// How many times as far as for everybody else the topmost app's reads reach ahead, 1 to 64.
    pub factor: u8,
    /// Most that the daemon reads ahead of streams, in bytes a second.
    pub rate: u64,
    /// Whether starts are recorded and replayed.
    pub cold_start: bool,
    /// How much of a start is recorded.
    pub record: Duration,
    /// Most that one record may have read, in bytes.
    pub record_bytes: u64,
    /// Most records that are kept; those unused for longest go.
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

/// Which engine zeroes pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// A DMA controller where there is one, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// A DMA controller.
    Dma,
    /// [`PrezeroSettings::block`].
    Block,
}

/// The mechanism `prezero`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrezeroSettings {
    /// Whether anything is done at all.
    pub enabled: bool,
    /// Which engine zeroes pages.
    pub engine: EngineChoice,
    /// The largest pool in percent of RAM, 1 to 6: the kernel takes no more than a sixteenth.
    pub most_percent: u8,
    /// Zeroes on a disk, for the engine that reads them.
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
    /// Whether anything is done at all.
    pub enabled: bool,
    /// Percent of memory that must be available lest an app be killed, 0 (as the machine needs) to 50.
    pub kill_percent: u8,
    /// Percent of memory that must be available lest apps be swapped, 0 (as the machine needs) to 80.
    pub swap_percent: u8,
    /// Bytes that may be written to flash a day; 0: as many as it takes.
    pub write_budget: u64,
    /// Whether apps that listen are asked for memory first.
    pub ask: bool,
    /// Whether what is no app is squeezed before any app is frozen or closed.
    pub services: bool,
    /// Whether background apps may be frozen before any normal one is killed.
    pub freeze: bool,
    /// Whether apps may be killed.
    pub kill: bool,
    /// Most that is brought back for an app that comes to the front again, in bytes; 0: nothing.
    pub prefault: u64,
}

impl Default for SwapSettings {
    fn default() -> Self {
        SwapSettings {
            enabled: true,
            kill_percent: 0,
            swap_percent: 0,
            write_budget: 16 << 30,
            ask: true,
            services: true,
            freeze: true,
            kill: true,
            prefault: 256 << 20,
        }
    }
}

/// Response windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSettings {
    /// Whether there are any.
    pub enabled: bool,
    /// When a window of an app that is not known yet ends without a frame.
    pub deadline: Duration,
    /// The longest that the deadline of a slow app may become; a frame that comes later answers
    /// nothing.
    pub deadline_max: Duration,
    /// Most apps whose answers are remembered; those unused for longest go.
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
