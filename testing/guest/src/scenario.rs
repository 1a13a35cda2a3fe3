// SPDX-License-Identifier: GPL-2.0-or-later
//! The scenarios that a cell of a [`crate::plan::Plan`] can run.
//!
//! Sizes are in MiB and times in milliseconds unless a name says otherwise. Each scenario's doc
//! comment lists the values that it reports. The name of a value ends in its unit (`_us`, `_pages`,
//! `_kib`); counts have no unit.

use serde::{Deserialize, Serialize};

pub use crate::innocents::Day;

/// One scenario with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scenario", rename_all = "kebab-case")]
pub enum Work {
    /// Runs a static program of the initramfs and reports its output. Value: `exit_code`.
    Command {
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// FMP's experiment with synthetic programs.
    GallerySynthetic(Gallery),
    /// FMP's experiment with a real X server, image viewer, copy and indexer.
    GalleryReal(RealGallery),
    /// Two apps: the focus moves from the first to the second, then memory gets short.
    FocusMove(FocusMove),
    /// A topmost app that needs more memory than it may use.
    SelfHog(SelfHog),
    /// `kill -9 limelightd` under load, followed by a new daemon.
    DaemonKilled(Gallery),
    /// Starts `limelightd` where it cannot work, and checks the message and exit code of each case.
    Startup,
    /// Starts and stops `limelightd` with an app in the foreground. Value: `starts`.
    DaemonStarts {
        /// Number of starts.
        times: u32,
    },
    /// Random focus changes, forks and exits under memory pressure.
    Soak(Soak),
    /// Cold start of a real program: none of its files are in the page cache.
    ColdStart(ColdStart),
    /// EIMOS's CPU experiments.
    Boost(Boost),
    /// Types into a terminal beside a build.
    Terminal(Typing),
    /// Checks boost's rules that do not concern speed.
    BoostRules,
    /// Checks that no user process keeps a value that it got or inherited in the foreground.
    Heirs,
    /// Checks the promises for a system with Android's cgroup v1 layout.
    AndroidRules,
    /// Checks the promises about apps and their classes.
    ClassRules,
    /// Pages of background apps are written back from zram before an app is closed.
    WriteBack,
    /// Checks what several users of one machine may do and see.
    AccessRules,
    /// Three users run random unprivileged operations, then one of them takes all memory.
    UsersChaos(UsersChaos),
    /// Checks `limelight selftest`. Values: `{alone,daemon}_{idle,without,with}_{major_faults,
    /// median_us,swipes}` (without and with limelightd; the phases of the test).
    Selftest,
    /// Checks that the unused part of the topmost app's reservation protects no other cgroup.
    Siblings,
    /// Checks that the kernel empties the topmost set when a suspended daemon's lease has run out.
    Lease,
    /// Runs the kernel series' own selftest. Value: `tests`.
    Kselftest,
    /// Checks the promises of `readahead`.
    ReadaheadRules,
    /// EIMOS's reader in the foreground, and one in the background.
    Reading(Reading),
    /// PREMAP's app: its heap grows and shrinks.
    Heap(Heap),
    /// Checks that premap respects limits, boundaries and other kernel mechanisms.
    PremapRules,
    /// Checks prezero's promises: all pages are zeroed, even if the engine fails, and no allocation
    /// fails because of the pool. Value: `pages_looked_at` (pages checked).
    PrezeroRules {
        /// Number of times the app takes 1,500 pages with each engine.
        rounds: u32,
    },
    /// Measures how much of an app's first response window prezero serves. Values:
    /// `served_unseen_percent`, `served_seen_once_percent`, `served_seen_twice_percent` (share of
    /// the pages that came from the pool, by the number of earlier starts that the daemon saw).
    PrezeroFirstWindow,
    /// Checks premap, readahead and prezero while memory is full of page cache.
    FullCache,
    /// Page faults and reclaim while Limelight's device is closed.
    Overhead(Overhead),
    /// Access patterns with known cache misses.
    CacheModel(CachePattern),
    /// Checks the promises of response windows.
    WindowRules,
    /// As [`Work::WindowRules`], without an agent: input devices and display frames are the only
    /// sources.
    WindowSources,
    /// Compares the foreground app inferred by the wake graph with the window that has the focus,
    /// in an X server with a keyboard and no session agent. Values: `moves` (focus changes); the
    /// daemon's guesses after them: `right`, `wrong`, and `none` if there is no guess;
    /// `wrong_idle`, `wrong_animation` and `wrong_manager` (wrong guesses by client);
    /// `quiet_wakeups` (of the daemon's main thread, in 5 s without a key press while a client
    /// draws).
    Wakes,
    /// Compares the daemon's response times with those of an independent observer.
    WindowOracle(WindowOracle),
    /// The cost of a response window. Values: `daemon_us_per_window` (the daemon's CPU time for
    /// opening and closing a window); `elapsed_us_per_window` (elapsed time for this, including
    /// both socket round trips); `ioctl_us_per_window` (time for the two ioctls alone);
    /// `ioctl_us_for_nothing` (time for two ioctls that do nothing, because they close a window
    /// that is not open).
    WindowCost,
    /// PREZERO's task, alone or with a background program.
    Prezero(Prezero),
    /// Checks that each engine in turn fills the pool, and that failing engines do no harm.
    PrezeroEngines(PrezeroEngines),
    /// OpenRC and elogind instead of systemd, with a session. Values and series are the focus
    /// values of [`Package`].
    Openrc,
    /// Checks that well-behaved apps survive while memory runs short.
    Innocents(Innocents),
    /// The foreground app shares its cgroup with background apps while memory runs short.
    Gate(Gate),
    /// Apps that share a session's cgroup on a system without systemd.
    OwnTree(OwnTree),
    /// The Debian package: installed, used, upgraded, removed and purged.
    Package(Package),
    /// The Debian package of the running kernel: installed, used by Limelight's package, and
    /// removed.
    KernelPackage,
    /// CPUs go offline and come back; checks that work on each of them is noticed.
    Processors {
        /// Whether the machine also suspends.
        sleep: bool,
    },
    /// SWAP's experiment: 24 apps launched in turn.
    Rotation(Rotation),
    /// As [`Work::Rotation`], with real programs on an X server, and systemd as PID 1.
    RotationReal(Rotation),
    /// A shortened day with real programs on an X server, beside chores, with systemd as PID 1.
    Day(DayOfUse),
    /// An app leaks memory.
    Leak(Leak),
    /// A background app grows while memory is short.
    Throttle(Throttle),
    /// Processes, cgroups and apps come and go while memory is short.
    Storm(Storm),
    /// A test suite that Debian packages is the foreground app.
    Suite(Suite),
    /// A person uses a browser, where systemd is PID 1.
    Browser(Browser),
    /// Time from the kill threshold to freed memory.
    KillLatency(KillLatency),
    /// Everything that `limelightd` depends on fails.
    Chaos(Chaos),
    /// An hour of use, accelerated: apps in random order, leaks, storms.
    SwapSoak(SwapSoak),
    /// The daemon's cost beside many apps and cgroups.
    Scale(Scale),
}

/// The leaking app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaker {
    /// A background app of the class normal: it dies, all others survive.
    Background,
    /// As [`Leaker::Background`], with pinned kernel caches. They count as reclaimable, and take
    /// more memory than is left when a kill is due.
    Pinned,
    /// As [`Leaker::Background`], but the daemon may not kill. The kernel's OOM killer kills
    /// instead, and history names its victim.
    Unguarded,
    /// The topmost app: listeners are notified, and it is never the victim.
    Front,
}

/// Parameters of `innocents`.
///
/// Values: `SITUATION.APP_ended` (0 or 1) for each app that takes memory without end; for each
/// other app `SITUATION.APP_lost` (0 or 1; 0 if the kernel killed it) and `SITUATION.APP_oom` (1 if
/// the kernel killed it); `SITUATION.time_ms` including setup and teardown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Innocents {
    /// The situations to run.
    pub day: Day,
}

/// How the foreground process and background processes share a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// The foreground process is a child of the previous foreground app, in the same cgroup.
    Child,
    /// The foreground process is in a cgroup below a background app's cgroup.
    Nested,
    /// Two windows of one program alternate in the foreground; both are children of a third
    /// process.
    Windows,
    /// All processes share the session's cgroup, as after startx.
    Session,
    /// The foreground process is moved into a background app's cgroup.
    Moved,
    /// As [`Sharing::Child`], in a container's PID and cgroup namespaces.
    Container,
}

/// Parameters of `gate`.
///
/// Values: `beats` (pages that the foreground process touched in the last 4 s), `load_kib` (KiB
/// written by the load), `notices` (lines sent to a listener).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Location of the foreground process.
    pub sharing: Sharing,
}

/// Parameters of `own-tree`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnTree {
    /// Whether controllers are enabled in the root's `cgroup.subtree_control`, as by OpenRC.
    /// Otherwise they are enabled nowhere.
    pub handed_down: bool,
}

/// Parameters of `package`.
///
/// Values: `focus_protect_us` and `focus_boost_us` (median times from a focus change until the app
/// is protected or boosted; `_p95_us` and `_max_us` are the 95th percentile and the maximum),
/// `daemon_own_kib` and, with a desktop, `agent_own_kib` (resident memory, without the foreground
/// app's files that the daemon keeps in memory), `daemon_switches_per_s` and, with a desktop,
/// `agent_switches_per_s` (context switches while idle). Series: `focus_protect_us`,
/// `focus_boost_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// The desktop of the user who moves the focus; without one, root sets it by PID.
    pub desktop: Option<Desktop>,
}

/// The desktop of a logged-in user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Desktop {
    /// sway.
    Sway,
    /// GNOME Shell.
    Gnome,
}

/// Parameters of `leak`.
///
/// Values: `innocent_dead`, `oom_kills`, `vmstat_*`, `psi_*`. For [`Leaker::Front`] also
/// `front_dead`. For the other leakers also `leaker_dead`, `leaked_us` (from the start of the leak
/// to the app's end) and, with limelightd, `freed_kib` and `kill_us` of the kill as recorded in
/// history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// The leaking app.
    pub leaker: Leaker,
    /// Rate of the leak; 0 is as fast as possible.
    pub mib_per_s: u32,
}

/// How a background app grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grower {
    /// As a leak does: it takes memory without end.
    Leak,
    /// As a build does: it takes memory and frees it. Nothing shows that a user waits for the
    /// build.
    HiddenBuild,
    /// As [`Grower::HiddenBuild`], in a terminal.
    TerminalBuild,
}

/// Parameters of `throttle`.
///
/// Values of a leak: `leaker_dead`, `leaked_us` (until the app's end, or until it is not watched
/// any more), `leaked_mib_10s` (the leaking app's memory and swap after 10 s), `front_us` and
/// `front_faults` (sums over all uses of the foreground app). Values of a build: `build_us`,
/// `build_faults`. Values of both: `others_us`, `others_faults` (the next use of the other apps),
/// `others_dead`, `throttled` and `kills` (in history), `oom_kills`, `vmstat_*`, `psi_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throttle {
    /// How the app grows.
    pub grower: Grower,
    /// How fast the app grows.
    pub mib_per_s: u32,
    /// Whether `[swap] throttle` is on.
    pub throttle: bool,
}

/// Parameters of `storm`.
///
/// Values: `processes`, `processes_per_s`, `cgroups`, `bursts` (apps that leaked until they were
/// killed or their time was up), `kills` (kills by the daemon), `innocent_dead`,
/// `daemon_fds_before`, `daemon_fds_after`, `oom_kills`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storm {
    /// Minimum duration.
    pub seconds: u32,
    /// Short-lived processes created per second, as long as the machine keeps up.
    pub processes_per_s: u32,
    /// The storm continues until the whole guest has created this many processes, but no longer
    /// than six times `seconds`.
    pub processes: u64,
}

/// Parameters of `kill-latency`.
///
/// Values: `kills`; `kill_p50_us`, `kill_p99_us`, `kill_max_us` (time from the last sample at which
/// no kill was due until the memory was free, as recorded in the daemon's history); `survived`
/// (leaking apps that were not killed); `freed_p50_kib`; `innocent_dead`; `oom_kills`;
/// `daemon_cpu_us`, and `daemon_cpu_<name>_us` for each of the daemon's threads. Series: `kill_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KillLatency {
    /// Number of apps that leak until they are killed, one after the other.
    pub kills: u32,
    /// Concurrent load on CPUs and disk.
    pub loads: Vec<Load>,
}

/// Parameters of `swap-soak`.
///
/// Values: `switches`, `leaks`, `storms`, `restarted` (apps that had been killed and were
/// restarted), `kills` (absent if the history is full), `measured_us`, `daemon_cpu_percent`,
/// `daemon_rss_kib` (maximum), `daemon_fds_first`, `daemon_fds_last` (minimum in the first and in
/// the last tenth), `keep_lost` (apps of the class keep that died), `oom_kills`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwapSoak {
    /// Number of apps that come to the foreground, one after the other.
    pub switches: u32,
    /// Time that each app is in the foreground.
    pub pause_ms: u32,
    /// Number of switches between two leaks.
    pub leak_every: u32,
    /// Number of switches between two storms.
    pub storm_every: u32,
}

/// Parameters of `scale`.
///
/// Values: `daemon_rss_kib` at the end; medians from a focus request until the app has its
/// reservation (`protected_us`), and until the daemon has also answered (`answered_us`);
/// `daemon_us_per_change` and `daemon_reads_per_change` (CPU time and `read()` calls of the daemon
/// for one focus change, including all work of the next ten seconds); `rest_us_per_minute`,
/// `rest_reads_per_minute` and `rest_wakeups_per_minute` (the same, and voluntary context switches
/// of all its threads, while nothing happens); `available_kib` (`MemAvailable` after that).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Number of apps that rest in the background, beside the two that take turns in the
    /// foreground. Each has one process, in a cgroup of its own.
    pub apps: u32,
    /// Number of services: cgroups that are not apps, each with one process.
    pub cgroups: u32,
}

/// Parameters of `rotation` and `rotation-real`.
///
/// Values for all apps, and with the prefix `keep_`, `normal_` or `disposable_` for one class:
///
/// - `launch_{mean,p50,p95}_us`: time from the user's touch until the app is ready;
/// - `cold_mean_us` and `warm_mean_us`: mean of this time over cold and over warm launches;
/// - `{cold,warm}_launches`, `launch_major_faults`;
/// - `kills` (apps that died) and `failed_launches` (attempts at a launch during which the app
///   died);
/// - `swapped_pages` (sum of the peaks in swap, one for each start of an app) and `swapped_apps`
///   (number of these peaks that are not 0);
/// - `refaulted_{anon,file}_pages`.
///
/// Values without a class: `first_mean_us`, `living_apps` at the end,
/// `{files,swap}_{read,written}_kib` of the disks, `swap_{reads,writes}` in requests,
/// `swap_blocks_used` and `swap_block_hottest` (accesses of the most accessed block), `vmstat_*`,
/// `oom_kills`; with limelightd `daemon_launch_us` and `daemon_pause_us` (its mean CPU time from the
/// touch until the app is ready, and from then until the next touch), and both with the suffix
/// `_<thread>` for each of its threads. Series: `launch_us`.
///
/// In the first round every app is new. That round counts only in `first_mean_us`, `kills`,
/// `failed_launches`, `swapped_*`, `refaulted_*` and `swap_block*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rotation {
    /// Launches of each app, including the first.
    pub rounds: u32,
    /// Time that the user spends in an app.
    pub think_ms: u32,
    /// Section of a mechanism that is switched off in limelightd's configuration.
    #[serde(default)]
    pub off: Option<String>,
}

/// Parameters of `day`.
///
/// A day has five parts, in each of which the user visits every app once: at first nothing else
/// runs and every app is new; then nothing, a package upgrade, a backup and an index run in the
/// background.
///
/// Values: those of [`Rotation`], of which `first_mean_us` has the first part; `launch_p99_us`;
/// `answer_{mean,p50,p95,p99}_us` (time from a key press until the app has answered);
/// `{alone,upgrade,backup,index}_{launch,answer}_mean_us`; `{upgrade,backup,index}_kib` (what the
/// chore has read from and written to disks), `{upgrade,backup,index}_s` (the time it had) and
/// `{upgrade,backup,index}_alive` (whether it still ran at the end of its part).
/// Series: `launch_us` and `answer_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DayOfUse {
    /// Time after each launch and each key press.
    pub think_ms: u32,
    /// Key presses in each visit.
    pub keys: u32,
    /// Section of a mechanism that is switched off in limelightd's configuration.
    pub off: Option<String>,
}

/// The viewer's memory by kind of page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Photos: mapped file pages.
    pub photos_mib: u32,
    /// Decoded images: anonymous pages.
    pub heap_mib: u32,
    /// Thumbnails: file pages that the viewer only `read()`s, on every visit.
    pub thumbnails_mib: u32,
    /// A library: mapped file pages that a process in another cgroup faulted in.
    pub library_mib: u32,
}

impl Footprint {
    /// The viewer of a 160 MiB guest.
    pub const SMALL: Footprint = Footprint {
        photos_mib: 24,
        heap_mib: 16,
        thumbnails_mib: 8,
        library_mib: 8,
    };
}

/// How a background load reads its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// By `pread()`.
    Read,
    /// Through a mapping.
    Mapping,
}

/// A background load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "load", rename_all = "kebab-case")]
pub enum Load {
    /// Copies a file from end to end, repeatedly: the paper's USB transfer.
    Copy {
        /// Size of the file.
        mib: u32,
    },
    /// Reads random 16 KiB pieces of a file larger than memory.
    Index {
        /// Access method.
        access: Access,
        /// Size of the file.
        mib: u32,
    },
    /// An anonymous memory hog: grows to its size, then touches random pages of it.
    Grow {
        /// Size it grows to.
        mib: u32,
    },
    /// A program with periodic work: in each round it writes to each page of its anonymous memory
    /// once, in random order, and then rests. With long rests, an hour of such work takes minutes
    /// in exact mode.
    Rounds {
        /// Size of the program's memory.
        mib: u32,
        /// Rest after each round.
        rest_ms: u32,
    },
}

/// A series of swipes, each after a pause of the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Pause before each swipe.
    pub ms: u32,
    /// Number of swipes.
    pub swipes: u32,
}

/// The app process that does the work, and when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// The focused process itself.
    Single,
    /// A child of the focused process, created before the focus change.
    ChildBeforeFocus,
    /// A child of the focused process, created after the focus change.
    ChildAfterFocus,
}

/// Parameters of `gallery-synthetic`.
///
/// Values: `major_faults`, `own_major_faults` (without the faults in the library, whose pages are
/// charged to another cgroup) and `read_miss_pages` (sums over all swipes), `load_rounds_ms` (mean
/// duration of a round of [`Load::Rounds`] without the rest), `response_us` (median over the swipes
/// of the shortest pause), `response_mean_us`, `pause_<ms>_worst_us`,
/// `resident_{photos,heap,thumbnails,library}_pages` after the last swipe and `footprint_pages`,
/// `viewer_alive` (0 or 1), `oom_kills` (since the loads started),
/// `load_{copy,index_read,index_mapping,grow}_kib_per_s` and
/// `load_*_alive` (0 or 1), `daemon_cpu_us` and `kswapd_cpu_us` (CPU time within the measured
/// time), `measured_us`, `vmstat_*` (differences over the measured time),
/// `psi_{memory,io}_{some,full}_us`. Series, one sample per swipe: `pause_<ms>_response_us`,
/// `pause_<ms>_major_faults`, `pause_<ms>_read_miss_pages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gallery {
    /// The viewer's memory.
    pub footprint: Footprint,
    /// Background loads; the idle arm omits them.
    pub loads: Vec<Load>,
    /// The loads' nice value. Exact mode uses 19: it has one CPU, and sharing the CPU is `boost`'s
    /// job, not `protect`'s.
    pub load_nice: i32,
    /// Whether the viewer runs under SCHED_FIFO, so that it preempts everything, including kswapd.
    /// Exact mode needs this, because it has one CPU.
    pub app_realtime: bool,
    /// Time from the viewer's last access to the start of the loads, for the daemon to scan it.
    pub settle_ms: u32,
    /// Time from the start of the loads to the first swipe.
    pub warm_up_ms: u32,
    /// Swipes, in this order.
    pub pauses: Vec<Pause>,
    /// Percentage of the footprint that one swipe touches.
    pub swipe_percent: u32,
    /// Whether app and loads have their own cgroups; otherwise all are in the root cgroup.
    pub app_cgroup: bool,
    /// The process that does the app's work.
    pub family: Family,
    /// Whether each swipe is reported to the daemon as a response window.
    pub windows: bool,
    /// The daemon's configuration.
    pub config: String,
}

/// Parameters of `gallery-real`.
///
/// Values: `major_faults` (of the viewer and its reaped children), `server_major_faults` (of the X
/// server), `read_miss_pages`, `unanswered_keys`, `viewer_alive` (always 1: a dead viewer fails the
/// cell); as in [`Gallery`], `response_us`, `response_mean_us`, `pause_<ms>_worst_us`, `oom_kills`,
/// `measured_us`, `vmstat_*` and `psi_*`. Series are those of [`Gallery`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealGallery {
    /// Number of photos that the viewer cycles through.
    pub photos: u32,
    /// Background loads; the idle arm omits them.
    pub loads: Vec<RealLoad>,
    /// Longest time from the start of the loads to the first key. The key is sent earlier, once the
    /// kernel has reclaimed as many pages as the machine has.
    pub warm_up_ms: u32,
    /// Keys, in this order.
    pub pauses: Vec<Pause>,
    /// Whether viewer and loads have their own cgroups.
    pub app_cgroup: bool,
}

/// A real program in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RealLoad {
    /// `cp` of a file larger than memory, repeatedly.
    Copy,
    /// The packaged indexer over the whole root file system, repeatedly.
    Index,
}

/// Parameters of `focus-move`.
///
/// Values: `first_resident_pages`, `second_resident_pages` (pages of each app in memory after the
/// load), `{first,second}_{photos,heap,thumbnails,library}_pages` (the same by kind),
/// `footprint_pages`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FocusMove {
    /// Memory of each of the two apps.
    pub footprint: Footprint,
    /// Loads that create memory pressure after the focus has moved.
    pub loads: Vec<Load>,
    /// Duration of the pressure.
    pub pressure_ms: u32,
    /// Whether the apps have their own cgroups.
    pub app_cgroup: bool,
}

/// Kind of memory that the topmost app of `self-hog` uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HogMemory {
    /// Anonymous memory.
    Anonymous,
    /// A mapped file.
    Mapping,
}

/// Parameters of `self-hog`.
///
/// Values: `completed` (0 if the app was killed, else 1), `elapsed_us` and `major_faults` (absent
/// if the app was killed), `oom_kills`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfHog {
    /// Kind of memory.
    pub memory: HogMemory,
    /// Amount of memory.
    pub mib: u32,
    /// Number of passes over all of it, in order.
    pub rounds: u32,
    /// memory.max of the app's cgroup; if absent, only the machine's memory is the limit.
    pub limit_mib: Option<u32>,
}

/// Parameters of `soak`.
///
/// Values: `focus_changes`, `forks`, `exits`, `windows`, `growths`, `apps_lost` (killed by the OOM
/// killer), `oom_kills`, `vmstat_*`; everything else is a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    /// Random steps: focus changes, forks and exits with equal probability. An app with three
    /// children exits, or ends a child, instead of forking. Half of the steps open a response
    /// window.
    pub steps: u32,
    /// After every 20 steps, the loads end, and the foreground app takes memory in a window.
    pub growths: bool,
    /// Seed of the sequence.
    pub seed: u64,
    /// Loads that keep memory short.
    pub loads: Vec<Load>,
}

/// Parameters of `chaos`.
///
/// Values: `trouble_*`, the number of times that each trouble occurred, 0 where the machine does
/// not support it; everything else is a check. Series: `restored_ms` (duration of each restore by a
/// watcher). With a root file system, the focus moves between windows of its X server, and
/// limelight-agent reports them to the daemon; X server and agent get killed too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chaos {
    /// Number of troubles; each occurs once before any repeats.
    pub steps: u32,
    /// Seed of their order.
    pub seed: u64,
    /// Whether the machine suspends; it must be able to.
    pub sleep: bool,
}

/// Parameters of `users-chaos`.
///
/// Values: `innocent_dead` (dead idle apps of the two users who do not take all memory),
/// `taken_mib` (memory that the app of the third user was told to take), `oom_kills`, `vmstat_*`;
/// everything else is a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsersChaos {
    /// Random operations before memory gets short.
    pub operations: u32,
    /// Seed of all choices.
    pub seed: u64,
}

/// A CPU-bound program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spin {
    /// EIMOS's nested loop of additions.
    AddLoop,
    /// Systems of linear equations.
    Linpack,
    /// Draws a frame 60 times a second; drawing takes a fifth of the frame time.
    Frames,
    /// Short-lived processes, eight at a time.
    Build,
}

/// Cgroups of the app and its loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The app in `app.slice`, loads in `background.slice`, each in its own cgroup.
    Background,
    /// All in `app.slice`, each in its own cgroup.
    Siblings,
    /// All in the root cgroup.
    Root,
}

/// A helper process of the app, and whether the daemon recognizes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Helper {
    /// Configured by name.
    Known,
    /// No helper is configured.
    Unknown,
}

/// What runs in the terminals of `terminal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Session {
    /// A build in the foreground of the tab into which the user types.
    Build,
    /// An editor in the tab into which the user types, and a build in another tab.
    Editor,
    /// A command that answers keys and has started a build itself, like a coding agent.
    Agent,
    /// An editor in the foreground terminal, and a build in another terminal.
    OtherWindow,
}

/// Parameters of `terminal`.
///
/// Values: `key_p50_us`, `key_p95_us`, `key_p99_us` (from a key press until the frame that shows
/// its echo), `missed_frames_percent` (frames later than a 60th of a second), `compiled_per_s` (the
/// build's progress), `daemon_percent` (the daemon's share of a CPU).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Typing {
    /// What runs in the terminals.
    pub session: Session,
    /// Number of keys.
    pub keys: u32,
    /// Cgroups of the terminals and of the compositor.
    pub place: Place,
}

/// Parameters of `boost`.
///
/// Values:
///
/// - `run_us` (mean) and `run_median_us` of the app's runs, `cpu_percent` (the app's share of a CPU
///   in its runs), `mflops` (Linpack);
/// - for frames: `wake_p50_us`, `wake_p99_us` (from due until drawing begins), `frame_p50_us`,
///   `frame_p99_us` (from due until drawn), `missed_frames_percent`. With a helper, the helper
///   draws the frames, next to an app that never sleeps;
/// - `daemon_percent`: the daemon's share of a CPU in the same time;
/// - with `switches`: `switch_p50_us`, `switch_max_us` (time until the boost has moved), and the
///   series `switch_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boost {
    /// The app's work.
    pub app: Spin,
    /// Number of timed runs or frames.
    pub runs: u32,
    /// Each load's work.
    pub load: Spin,
    /// Number of loads; the idle arm has none.
    pub loads: u32,
    /// Cgroups of all of them.
    pub place: Place,
    /// A program that draws frames for the app.
    pub helper: Option<Helper>,
    /// Whether to time focus changes to another app and back instead.
    pub switches: bool,
}

/// Parameters of `overhead`.
///
/// Values, in guest nanoseconds (exact mode: instructions): `anon_fault_ns_per_page`,
/// `file_fault_ns_per_page`, `reclaim_ns_per_page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Memory touched in each phase.
    pub mib: u32,
    /// Repetitions of each phase; the median is reported.
    pub rounds: u32,
}

/// An access pattern that tests the cache model.
///
/// Values: `cache_report`, to which the lab adds the model's counters (`cache_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum CachePattern {
    /// 16 KiB, walked 100 times.
    InsideL1,
    /// 4 MiB, walked 8 times.
    InsideLlc,
    /// 32 MiB, walked 3 times.
    BeyondLlc,
    /// Fresh pages, one word of each written.
    Zeroing {
        /// Number of pages.
        pages: u32,
    },
    /// 6 MiB of a background program, walked again after an app has taken fresh pages.
    Displaced {
        /// Number of pages.
        pages: u32,
    },
}

/// A background program with a fixed amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Follows pointers through a working set slightly smaller than the last-level cache.
    Chaser,
    /// Adds two arrays into a third; together they exceed the last-level cache.
    Stream,
    /// Debian's gzip.
    Compressor,
    /// Debian's perl.
    Interpreter,
}

/// The engine that zeroes pages in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "engine", rename_all = "kebab-case")]
pub enum Engine {
    /// The CPU, bypassing its caches.
    Cpu,
    /// A disk of zeroes.
    Block {
        /// Index of the machine's disk, from 0.
        disk: u32,
        /// Offset on the disk.
        offset_mib: u32,
        /// Whether pages read from it are used without verifying them.
        trusted: bool,
    },
}

/// Mechanisms that the daemon uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanisms {
    /// `prezero` alone.
    PrezeroOnly,
    /// All mechanisms.
    All,
    /// All mechanisms except `prezero`.
    AllButPrezero,
}

/// Parameters of `prezero`.
///
/// Values: `response_us` (median of the runs, measured by the app), `response_mean_us`,
/// `app_cpu_us`, `runs`, `vmstat_*`; with a background program `background_us` (its running time
/// without rests) and `background_cpu_us`; with the cache model `cache_*`; with Limelight
/// `prezero_cpu_us` (CPU time of the zeroing thread), `daemon_cpu_us`, and `pooled_pages` (pages in
/// the pool before the first run). Series: `run_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prezero {
    /// Pages that the app allocates, touches, computes on and frees in each run.
    pub pages: u32,
    /// Number of runs. With a background program, the app runs until that program ends instead.
    pub runs: u32,
    /// Idle time between two runs.
    pub gap_ms: u32,
    /// After each gap, the background program is suspended for this long too, so that the machine
    /// is idle. With 0, the program is never suspended.
    pub rest_ms: u32,
    /// Unmeasured runs at the start.
    pub warm_up: u32,
    /// The background program; in the idle arm it runs without the app.
    pub background: Option<Program>,
    /// The zeroing engine in the arm with Limelight.
    pub engine: Engine,
    /// The mechanisms that the daemon uses in that arm.
    pub mechanisms: Mechanisms,
    /// Whether caches are modelled.
    pub cache_model: bool,
    /// The system-wide folio size.
    pub folios: Pages,
}

/// What happens to a disk of zeroes while the kernel reads from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// Nothing: the disk is broken from the start.
    None,
    /// Other data is written to it.
    Written,
    /// It is removed from the machine.
    Removed,
}

/// Parameters of `prezero-engines`, which reports only checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrezeroEngines {
    /// Pages that the topmost app takes in a window.
    pub pages: u32,
    /// Engines that must work, by name.
    pub engines: Vec<(String, Engine)>,
    /// Engines that fail, by name, and how.
    pub broken: Vec<(String, Engine, Damage)>,
}

/// A reader's access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum Pattern {
    /// From start to end.
    Sequential {
        /// Bytes per `read()`.
        bytes: u32,
    },
    /// 24 random pages in each of several random 256 KiB clusters.
    Clusters {
        /// By `pread()` or through a mapping.
        access: Access,
        /// Number of clusters.
        clusters: u32,
    },
}

/// Parameters of `reading`.
///
/// Values: `read_us`, `major_faults`, `requests` and `read_kib` of the disk while the topmost app
/// reads, `requests_per_mib` of its file; `background_read_us`, `background_requests`,
/// `background_read_kib` while a background process reads another file in the same way;
/// `daemon_cpu_us`, limelightd's CPU time meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Size of each of the two files.
    pub mib: u32,
    /// The access pattern.
    pub pattern: Pattern,
    /// Read-ahead factor: `best-stock` sets it for the whole disk, Limelight for the topmost app.
    pub factor: u32,
}

/// A heap's growth pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "growth", rename_all = "kebab-case")]
pub enum Growth {
    /// As in a browser's swipe: brk() in steps of 132 KiB, and mappings of 64 KiB to 1 MiB. Most of
    /// the memory is used, from start to end, and all of it is freed at the end.
    Swipe {
        /// Pages per round.
        pages: u32,
    },
    /// A large reservation with a few scattered pages used, and small reservations with only the
    /// first page used.
    Sparse {
        /// Size of the large reservation, and sum of the small ones.
        mib: u32,
        /// One page in this many is used.
        every: u32,
    },
    /// Threads that commit arenas by `mprotect()` in steps of 132 KiB.
    Arenas {
        /// Number of threads.
        threads: u32,
        /// Pages that each thread commits.
        pages: u32,
    },
    /// Debian's perl, which builds and destroys a table.
    Program,
}

/// System-wide page size for faults on fresh memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "pages", rename_all = "kebab-case")]
pub enum Pages {
    /// Single base pages.
    Base,
    /// Folios of this size, `always`.
    Mthp {
        /// 16, 32 or 64.
        kib: u32,
    },
    /// Huge pages, `always`.
    Thp,
    /// Folios of this size, `madvise`: only premap uses them, for the foreground app.
    Madvise {
        /// 16, 32 or 64.
        kib: u32,
    },
}

/// Parameters of `heap`.
///
/// Values: `faults` (CPU page faults in all rounds; not with `timed`), `used_pages` (in all rounds;
/// not for the program), `peak_kib`, `response_us` (median of the rounds), `vmstat_*`. Series:
/// `round_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// The growth pattern.
    pub growth: Growth,
    /// Number of rounds; the program runs once.
    pub rounds: u32,
    /// The system-wide page size.
    pub pages: Pages,
    /// Amount of memory to fragment into single free pages; if absent, no memory is fragmented.
    pub fragmented_mib: Option<u32>,
    /// Whether the run measures time; faults are then not counted.
    pub timed: bool,
}

/// Parameters of `cold-start` and `queued-start`.
///
/// Values: `start_us` (time from exec until the program reports that it is ready); `requests` and
/// `read_kib` of the disk in this time, loads included; `major_faults` of the program;
/// `load_kib_per_s` (of all loads together) and `load_cpu_wait_us` (time in which at least one load
/// waited for a CPU) during the start; `load_alone_kib_per_s` (of all loads together) right before
/// the start; `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdStart {
    /// The program.
    pub program: StartedProgram,
    /// Processes that concurrently read and write the same disk, 0 to 10.
    pub loads: u32,
    /// Whether the daemon has recorded an earlier start of the program.
    pub record: bool,
    /// I/O scheduler of the machine's flash disk. If set, each load reads its own file and runs
    /// under SCHED_FIFO, as on a machine with CPUs to spare, so that loads and program compete for
    /// the disk only. If absent, the machine has a slow disk, whose scheduler stays.
    #[serde(default)]
    pub scheduler: Option<String>,
}

/// A real program of `cold-start` and `queued-start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartedProgram {
    /// python3, which imports a large part of its library.
    Python,
    /// perl, which loads about as many modules as a medium-sized tool.
    Perl,
    /// The X server Xvfb.
    Xvfb,
}

/// Parameters of `browser`.
///
/// Values, as the browser's Event Timing measures them from the input event to the next frame:
/// `inp_us` (98th percentile), `interaction_p50_us`, `interaction_mean_us`. `major_faults` of the
/// browser's cgroup, `browser_alive` (0 or 1), `loads_alive` (0 to 2), `daemon_cpu_us` and
/// `kswapd_cpu_us`, `vmstat_*`. Series: `interaction_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Browser {
    /// Number of interactions.
    pub interactions: u32,
    /// Time before each interaction.
    pub think_ms: u32,
    /// Final size of the growing tab.
    pub grow_mib: u32,
}

/// Parameters of `suites`.
///
/// Values: of stress-ng and fio `ops_per_s`; of hackbench `time_us`; of cyclictest `wake_p50_us`,
/// `wake_p99_us` and `wake_max_us` (time from the timer's expiry until the thread runs);
/// `daemon_cpu_us` and `kswapd_cpu_us` (CPU time while the tool runs); `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suite {
    /// The tool.
    pub tool: Tool,
    /// Concurrent loads, each in a cgroup of its own; none in the arm `idle`.
    pub loads: Vec<Load>,
    /// Busy loops, each in a cgroup of its own; none in the arm `idle`.
    pub loops: u32,
}

/// A tool of `suites`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// stress-ng's `vm`: writes and checks 32 MiB.
    Vm,
    /// stress-ng's `fault`: page faults on files.
    Fault,
    /// stress-ng's `brk`: grows the heap, page by page, without touching it.
    Brk,
    /// stress-ng's `readahead`: random reads of a file of 16 MiB, with readahead(2).
    Readahead,
    /// hackbench: messages between two groups of 40 processes.
    Hackbench,
    /// cyclictest: a thread that wakes up 500 times a second, without a real-time priority.
    Cyclictest,
    /// fio: random reads of 48 bytes from a file in the page cache.
    Fio,
}

/// Parameters of `window-oracle`.
///
/// Values: `keys`, `windows_opened`, `daemon_answers`, and for `p50`, `p95` and `max` as `<x>`:
///
/// - `daemon_<x>_us`: response time as measured by the daemon;
/// - `oracle_<x>_us`: time from the key to the last change of the window before it stays unchanged
///   (X server), or to the frame (kernel's display), by the timestamps of the X server or the
///   kernel;
/// - `heard_<x>_us`: time from the key until the oracle received the event; with an X server, it
///   begins before the oracle sends the key;
/// - `off_<x>_us`: `daemon_<x>_us` minus `oracle_<x>_us`.
///
/// Series: `oracle_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowOracle {
    /// The app's display, and its observer.
    pub display: OracleDisplay,
    /// Number of key presses.
    pub keys: u32,
    /// Pause before each key press.
    pub pause_ms: u32,
    /// Number of concurrent addition loops.
    pub loads: u32,
}

/// An app's display, and the observer of its updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OracleDisplay {
    /// feh in an X server; the observer is a second client.
    X11,
    /// A test app on the kernel's display. The observer is the app itself, which gets frame events
    /// from the kernel.
    Kms,
}
