// SPDX-License-Identifier: GPL-2.0-or-later
//! What a cell of a [`crate::plan::Plan`] can run.
//!
//! Sizes are in MiB and times in milliseconds unless a name says otherwise. What a scenario reports
//! is listed with it; names of values end in their unit (`_us`, `_pages`, `_kib`, none for counts).

use serde::{Deserialize, Serialize};

/// One scenario with its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "scenario", rename_all = "kebab-case")]
pub enum Work {
    /// Run a static program of the initramfs and pass on its output and exit code.
    Command {
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// FMP's experiment with our own programs.
    GallerySynthetic(Gallery),
    /// FMP's experiment with a real X server, image viewer, copy and indexer.
    GalleryReal(RealGallery),
    /// Two apps; focus moves from the first to the second, then memory gets short.
    FocusMove(FocusMove),
    /// A topmost app that is itself larger than the memory it may use.
    SelfHog(SelfHog),
    /// `kill -9 limelightd` in the middle of load, then a new daemon.
    DaemonKilled(Gallery),
    /// `limelightd` started where it cannot work: message and exit code of each case.
    Startup,
    /// Random focus changes, forks and exits under memory pressure.
    Soak(Soak),
    /// The start of a real program with nothing of it cached.
    ColdStart(ColdStart),
    /// EIMOS's experiments with the processor.
    Boost(Boost),
    /// Boost's promises beside speed.
    BoostRules,
    /// No process of a user keeps what it was given or inherited, checked one by one.
    Heirs,
    /// What is promised where the system is laid out as Android's, checked one by one; on a machine with
    /// cgroup v1.
    AndroidRules,
    /// What is promised about apps and their classes, checked one by one.
    ClassRules,
    /// What several users of one machine may do and see, checked one by one.
    AccessRules,
    /// What is reserved for the app in front and it does not use protects nobody else.
    Siblings,
    /// What `readahead` promises, checked one by one.
    ReadaheadRules,
    /// EIMOS's reader in front, and one behind it.
    Reading(Reading),
    /// PREMAP's app, whose heap grows and shrinks.
    Heap(Heap),
    /// What premap must respect: limits, borders, and other mechanisms of the kernel.
    PremapRules,
    /// What prezero promises: only zeroes, whatever becomes of the engine, and nobody goes without.
    PrezeroRules {
        /// Times that the app takes 1,500 pages beside each engine.
        rounds: u32,
    },
    /// Page faults and reclaim without Limelight's device being open.
    Overhead(Overhead),
    /// Accesses whose cache misses are known.
    CacheModel(CachePattern),
    /// What response windows promise, checked one by one.
    WindowRules,
    /// The same without anybody who tells: input devices and the display's frames.
    WindowSources,
    /// Who is in front, guessed by the wake graph, beside who has the focus in an X server with a keyboard
    /// and no session agent. Values: `moves` of the focus and what the daemon said after each:
    /// `right`, `wrong` (`wrong_idle`, `wrong_animation`, `wrong_manager` of them), `none`; `quiet_wakeups` of its main
    /// thread in 5 s in which nothing was pressed while somebody drew.
    Wakes,
    /// The daemon's response times beside those that somebody else sees.
    WindowOracle(WindowOracle),
    /// What a response window costs. Values: `daemon_us_per_window`, the daemon's processor time for
    /// opening and closing one; `elapsed_us_per_window`, both ways over the socket included;
    /// `ioctl_us_per_window`, both calls on the device alone; `ioctl_us_for_nothing`, two calls that
    /// close what is not open.
    WindowCost,
    /// PREZERO's task, alone or beside a program in the background.
    Prezero(Prezero),
    /// The pool filled by each engine in turn, and by engines that break.
    PrezeroEngines(PrezeroEngines),
    /// OpenRC and elogind instead of systemd, beside a session; values and series as [`Package`]'s about the focus.
    Openrc,
    /// Apps that did nothing wrong while memory runs short.
    Innocents(Innocents),
    /// The foreground app shares its cgroup with background apps while memory runs short.
    Gate(Gate),
    /// Apps that share a session's cgroup where no systemd runs.
    OwnTree(OwnTree),
    /// Debian's package: installed, used, upgraded, removed and purged.
    Package(Package),
    /// The Debian package of the running kernel: installed, used by Limelight's package, and removed.
    KernelPackage,
    /// Processors are taken out of service and come back, and work on each of them is noticed.
    Processors {
        /// Whether the machine sleeps as well.
        sleep: bool,
    },
    /// SWAP's experiment: 24 apps launched in turn.
    Rotation(Rotation),
    /// The same with real programs on an X server, where systemd is PID 1.
    RotationReal(Rotation),
    /// An app takes memory without end.
    Leak(Leak),
    /// Processes, cgroups and apps come and go while memory is short.
    Storm(Storm),
    /// How long it takes from the kill threshold to freed memory.
    KillLatency(KillLatency),
    /// Everything around `limelightd` breaks.
    Chaos(Chaos),
    /// An hour of a user's, faster: apps in turn, leaks, storms.
    SwapSoak(SwapSoak),
}

/// Who leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaker {
    /// An app of the class normal in the background: it dies, all others live.
    Background,
    /// The same where more of the kernel's reclaimable caches is in use than would be left when somebody has to die.
    Pinned,
    /// The same, and the daemon may kill nobody: the kernel's OOM killer ends it, and history says whom.
    Unguarded,
    /// The app in front: people are told, and it is nobody's victim.
    Front,
}

/// What an innocent app is beside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plight {
    /// Eight idle apps beside a foreground app that takes memory without end, without swap.
    Greedy,
    /// A build in a terminal's scope, with swap free.
    Build,
    /// A tab of the foreground terminal, beside a load.
    Tab,
    /// An app that answers the foreground app through a pipe, beside a load.
    Server,
    /// A screen locker beside an app that takes memory without end.
    Locker,
}

/// Parameters of `innocents`.
///
/// Values: `innocent_dead`, `greedy_dead`, `built_mib`, `oom_kills`, `vmstat_*`, `psi_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Innocents {
    /// The situation.
    pub plight: Plight,
}

/// How the foreground process shares a cgroup with background processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// It is a child of the app that was in the foreground before, in the same cgroup.
    Child,
    /// It lives in a cgroup below that of a background app.
    Nested,
    /// Two windows of one program come to the foreground in turn; both are children of a third process.
    Windows,
    /// Everything shares the session's cgroup, as after startx.
    Session,
    /// It is moved into a background app's cgroup while it is in the foreground.
    Moved,
    /// As [`Sharing::Child`], in a container's PID and cgroup namespaces.
    Container,
}

/// Parameters of `gate`.
///
/// Values: `beats` (pages that the foreground process touched in the last 4 s), `load_kib` (what the
/// load wrote), `notices` (lines that a listener was sent).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Where the foreground process lives.
    pub sharing: Sharing,
}

/// Parameters of `own-tree`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnTree {
    /// Whether the root hands its controllers down, as OpenRC has it; otherwise nobody has.
    pub handed_down: bool,
}

/// Parameters of `package`.
///
/// Values: `focus_protect_us` and `focus_boost_us` from a change of focus to the changed value (medians; `_p95_us` what 19 of 20
/// do not exceed, `_max_us` the longest), `daemon_own_kib`
/// and, with a desktop, `agent_own_kib` (resident memory but for files of apps that the daemon keeps there), `daemon_switches_per_s` (context
/// switches while nothing happens). Series: `focus_protect_us`, `focus_boost_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Package {
    /// Whether a user is logged in under sway and moves the focus there; otherwise root says which process has it.
    pub desktop: bool,
}

/// Parameters of `leak`.
///
/// Values: `leaker_dead`, `front_dead`, `innocent_dead`, `leaked_us` (from the beginning of the leak
/// to the app's end), `freed_kib` and `kill_us` of the kill as history has them, `oom_kills`,
/// `vmstat_*`, `psi_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// Who.
    pub leaker: Leaker,
    /// How fast; 0: as fast as it can.
    pub mib_per_s: u32,
}

/// Parameters of `storm`.
///
/// Values: `processes`, `processes_per_s`, `cgroups`, `bursts` (apps that took memory until they
/// died), `kills` (those of them that the daemon killed), `innocent_dead`, `daemon_fds_before`,
/// `daemon_fds_after`, `oom_kills`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storm {
    /// How long it lasts at least.
    pub seconds: u32,
    /// Processes a second that are made and end at once, as long as the machine keeps up.
    pub processes_per_s: u32,
    /// It goes on until so many have been made in the whole guest.
    pub processes: u64,
}

/// Parameters of `kill-latency`.
///
/// Values: `kills`, `kill_p50_us`, `kill_p99_us`, `kill_max_us`: from the last reading of the gauge
/// at which nothing was due to the moment at which the memory was free, as the daemon's history has
/// it; `survived`, `freed_p50_kib`, `innocent_dead`, `oom_kills`, `daemon_cpu_us`, and of each of its threads
/// `daemon_cpu_<name>_us`. Series: `kill_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KillLatency {
    /// Number of apps that take memory until they are killed, one after the other.
    pub kills: u32,
    /// What keeps processors and disk busy meanwhile.
    pub loads: Vec<Load>,
}

/// Parameters of `swap-soak`.
///
/// Values: `switches`, `leaks`, `storms`, `restarted` (apps that had been killed and were started
/// anew), `kills`, `measured_us`, `daemon_cpu_percent`, `daemon_rss_kib` (the largest),
/// `daemon_fds_first`, `daemon_fds_last` (the fewest in the first and in the last of ten equal parts),
/// `keep_lost` (apps of the class keep that died),
/// `oom_kills`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SwapSoak {
    /// Apps that come to the front, one after the other.
    pub switches: u32,
    /// Time that each is in front.
    pub pause_ms: u32,
    /// Every so many of them somebody leaks.
    pub leak_every: u32,
    /// Every so many of them there is a storm.
    pub storm_every: u32,
}

/// Parameters of `rotation` and `rotation-real`.
///
/// Values, without a prefix over all apps and with `keep_`, `normal_` or `disposable_` of a class; the first round,
/// in which every app is new, has only `first_mean_us` and counts in no other delay or fault: `launch_{mean,p50,p95}_us` from the
/// user's touch until the app is ready, `cold_mean_us` of those from nothing and `warm_mean_us` of the others,
/// `{cold,warm}_launches`, `launch_major_faults`, `kills` and `failed_launches` (apps that died, and those of them
/// while the user waited, both in all rounds), `swapped_pages` (the most that each life of each app had in swap, summed
/// up, in all rounds), `swapped_apps` (lives with any), `refaulted_{anon,file}_pages` (in all rounds).
/// Without a class: `living_apps` at the end, `{files,swap}_{read,written}_kib` of the disks, `swap_{reads,writes}` in requests,
/// `swap_blocks_used` and `swap_block_hottest` (accesses of the block with the most; all rounds), `vmstat_*`, `oom_kills`.
/// Series: `launch_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rotation {
    /// How often each app is launched, the first time included.
    pub rounds: u32,
    /// How long the user looks at an app.
    pub think_ms: u32,
}

/// The viewer's memory, by kind of page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Photos: mapped file pages.
    pub photos_mib: u32,
    /// Decoded images: anonymous pages.
    pub heap_mib: u32,
    /// Thumbnails: file pages that the viewer only `read()`s, again on every visit.
    pub thumbnails_mib: u32,
    /// A library: mapped file pages that a process of another cgroup brought in.
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

    /// Sum of all kinds, in MiB.
    pub fn total_mib(&self) -> u32 {
        self.photos_mib + self.heap_mib + self.thumbnails_mib + self.library_mib
    }
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

/// What runs in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "load", rename_all = "kebab-case")]
pub enum Load {
    /// Copies a file from end to end, over and over: the paper's USB transfer.
    Copy {
        /// Size of the file.
        mib: u32,
    },
    /// Reads random 16 KiB pieces of a file larger than memory.
    Index {
        /// How.
        access: Access,
        /// Size of the file.
        mib: u32,
    },
    /// An anonymous hog: grows to its size, then touches random pages of it.
    Grow {
        /// Size it grows to.
        mib: u32,
    },
}

/// Swipes that follow a pause of the same length each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Time to think before each swipe.
    pub ms: u32,
    /// Number of swipes.
    pub swipes: u32,
}

/// Which process of the app does the work, and when it is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// The process that gets the focus.
    Single,
    /// A child of it, created before the focus is given.
    ChildBeforeFocus,
    /// A child of it, created after the focus was given.
    ChildAfterFocus,
}

/// Parameters of `gallery-synthetic`.
///
/// Values: `major_faults`, `own_major_faults` (without the library's, which another cgroup is charged
/// for) and `read_miss_pages` (sums over all swipes), `response_us` (median over
/// the swipes of the shortest pause), `response_mean_us`, `pause_<ms>_worst_us`, `resident_{photos,heap,thumbnails,library}_pages`
/// after the last swipe and `footprint_pages`, `viewer_alive` (0 or 1), `oom_kills`,
/// `load_{copy,index_read,index_mapping,grow}_kib_per_s`, `daemon_cpu_us` and `kswapd_cpu_us`
/// (processor time within the measured time), `measured_us`, `vmstat_*` (differences
/// over the measured time), `psi_{memory,io}_{some,full}_us`.
/// Series, one sample a swipe: `pause_<ms>_response_us`, `pause_<ms>_major_faults`,
/// `pause_<ms>_read_miss_pages`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gallery {
    /// The viewer's memory.
    pub footprint: Footprint,
    /// What runs beside it; the idle arm leaves it out.
    pub loads: Vec<Load>,
    /// The loads' nice value. Exact mode has one CPU, and who gets that is `boost`'s business, not
    /// `protect`'s: it uses 19.
    pub load_nice: i32,
    /// Whether the viewer gets the CPU at once whenever it wants it (SCHED_FIFO), from the kernel's
    /// reclaim thread too: for exact mode, likewise.
    pub app_realtime: bool,
    /// Time from the loads' start to the first swipe.
    pub warm_up_ms: u32,
    /// Swipes, in this order.
    pub pauses: Vec<Pause>,
    /// Part of the footprint that one swipe touches, in percent.
    pub swipe_percent: u32,
    /// Whether app and loads have cgroups of their own; else all is in the root cgroup.
    pub app_cgroup: bool,
    /// Who does the app's work.
    pub family: Family,
}

/// Parameters of `gallery-real`.
///
/// Values and series as for [`Gallery`], but for the `resident_*` values; faults are those of the
/// viewer's process tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealGallery {
    /// Number of photos that the viewer shows in turn.
    pub photos: u32,
    /// What runs beside it; the idle arm leaves it out.
    pub loads: Vec<RealLoad>,
    /// Most time from the loads' start to the first key, which comes as soon as they have had as many
    /// pages reclaimed as the machine has.
    pub warm_up_ms: u32,
    /// Keys, in this order.
    pub pauses: Vec<Pause>,
    /// Whether viewer and loads have cgroups of their own.
    pub app_cgroup: bool,
}

/// A real program in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RealLoad {
    /// `cp` of a file larger than memory, over and over.
    Copy,
    /// The packaged indexer over the whole root file system, over and over.
    Index,
}

/// Parameters of `focus-move`.
///
/// Values: `first_resident_pages`, `second_resident_pages` (mapped and anonymous pages of each app
/// after the load), `footprint_pages`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FocusMove {
    /// Memory of each of the two apps.
    pub footprint: Footprint,
    /// What makes memory short after the focus moved.
    pub loads: Vec<Load>,
    /// How long it does so.
    pub pressure_ms: u32,
    /// Whether the apps have cgroups of their own.
    pub app_cgroup: bool,
}

/// What the topmost app of `self-hog` is made of.
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
/// Values: `elapsed_us`, `completed` (0 or 1), `major_faults`, `oom_kills`, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfHog {
    /// Kind of memory.
    pub memory: HogMemory,
    /// How much of it.
    pub mib: u32,
    /// How often all of it is touched in order.
    pub rounds: u32,
    /// memory.max of the app's cgroup; none leaves only the machine's limit.
    pub limit_mib: Option<u32>,
}

/// Parameters of `soak`.
///
/// Values: `focus_changes`, `forks`, `exits`, `oom_kills`, `vmstat_*`; the rest are checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    /// Random steps: focus changes, forks and exits in equal parts.
    pub steps: u32,
    /// Seed of the sequence.
    pub seed: u64,
    /// What keeps memory short.
    pub loads: Vec<Load>,
}

/// Parameters of `chaos`.
///
/// Values: `trouble_*`, how often each happened, 0 where the machine does not know it; the rest are
/// checks. With a root file system the focus is moved in windows of its X server, of which
/// limelight-agent tells the daemon; both die too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chaos {
    /// Troubles; each comes once before any comes again.
    pub steps: u32,
    /// Seed of their order.
    pub seed: u64,
    /// Whether the machine sleeps; it must be able to.
    pub sleep: bool,
}

/// A program that wants a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spin {
    /// EIMOS's nested loop of additions.
    AddLoop,
    /// Systems of linear equations.
    Linpack,
    /// A frame 60 times a second, each a fifth of the time that there is.
    Frames,
    /// Short-lived processes, eight at a time.
    Build,
}

/// Where the app and its loads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The app in `app.slice`, loads in `background.slice`, each in a cgroup of its own.
    Background,
    /// All in `app.slice`, each in a cgroup of its own.
    Siblings,
    /// All in the root cgroup.
    Root,
}

/// A program that serves the app, and whether the daemon knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Helper {
    /// By its name.
    Known,
    /// No helper is configured.
    Unknown,
}

/// Parameters of `boost`.
///
/// Values: `run_us` and `run_median_us` of the app's runs, `mflops` (Linpack); of frames
/// `wake_p50_us`, `wake_p99_us` (due until drawing begins), `frame_p50_us`, `frame_p99_us` (due until
/// drawn), `missed_frames_percent`; with a helper these are the helper's, beside an app that never
/// rests. `daemon_percent`: the daemon's share of a processor meanwhile. With `switches`: `switch_p50_us`, `switch_max_us`, until the boost has moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Boost {
    /// What the app does.
    pub app: Spin,
    /// How many runs or frames are timed.
    pub runs: u32,
    /// What each load does.
    pub load: Spin,
    /// How many loads; the idle arm has none.
    pub loads: u32,
    /// Where all of them are.
    pub place: Place,
    /// A program that draws frames for the app.
    pub helper: Option<Helper>,
    /// Time changes of the focus to another app and back instead.
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

/// An access pattern by which the cache model is tested.
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
        /// How many.
        pages: u32,
    },
    /// 6 MiB of a background program, walked again after an app has had fresh pages.
    Displaced {
        /// How many.
        pages: u32,
    },
}

/// A program in the background that has a fixed amount of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Follows pointers through a working set somewhat smaller than the last cache.
    Chaser,
    /// Adds two arrays into a third, all larger than the last cache together.
    Stream,
    /// Debian's gzip.
    Compressor,
    /// Debian's perl.
    Interpreter,
}

/// What zeroes pages ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "engine", rename_all = "kebab-case")]
pub enum Engine {
    /// The processor, past its caches.
    Cpu,
    /// A disk of zeroes.
    Block {
        /// Which of the machine's, from 0.
        disk: u32,
        /// Where on it.
        offset_mib: u32,
        /// Whether pages that were read are used without a look at them.
        trusted: bool,
    },
}

/// Which mechanisms the daemon uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanisms {
    /// `prezero` alone.
    PrezeroOnly,
    /// All.
    All,
    /// All but `prezero`.
    AllButPrezero,
}

/// Parameters of `prezero`.
///
/// Values: `response_us` (median of the runs, taken by the app), `response_mean_us`, `app_cpu_us`,
/// `runs`, `vmstat_*`; with a background program `background_us` from its start to its end, rests left out, and
/// `background_cpu_us`; with the cache model `cache_*`; with Limelight `prezero_cpu_us` (the zeroing
/// thread's), `daemon_cpu_us`, and `pooled_pages` before the first run. Series: `run_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prezero {
    /// Pages that the app allocates, touches, computes on and frees in a run.
    pub pages: u32,
    /// Runs; with a background program there are as many as fit beside it.
    pub runs: u32,
    /// Time between two runs, in which nobody waits.
    pub gap_ms: u32,
    /// Time after each gap in which the background program is stopped too: the machine has nothing to
    /// do. 0: it never rests.
    pub rest_ms: u32,
    /// Runs before anything is measured.
    pub warm_up: u32,
    /// What runs beside it; in the idle arm this runs without the app.
    pub background: Option<Program>,
    /// What zeroes, in the arm that has Limelight.
    pub engine: Engine,
    /// What else Limelight does in that arm.
    pub mechanisms: Mechanisms,
    /// Whether caches are modelled.
    pub cache_model: bool,
}

/// What becomes of a disk of zeroes while the kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// It is broken already.
    None,
    /// Somebody writes something else to it.
    Written,
    /// It is taken out of the machine.
    Removed,
}

/// Parameters of `prezero-engines`; it only checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrezeroEngines {
    /// Pages that the app in front takes in a window.
    pub pages: u32,
    /// Engines that must serve, by name.
    pub engines: Vec<(String, Engine)>,
    /// Engines that break, by name, and how.
    pub broken: Vec<(String, Engine, Damage)>,
}

/// How a reader reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum Pattern {
    /// From front to back.
    Sequential {
        /// Bytes of one `read()`.
        bytes: u32,
    },
    /// 24 random pages in each of some random stretches of 256 KiB.
    Clusters {
        /// By `pread()` or through a mapping.
        access: Access,
        /// Number of stretches.
        clusters: u32,
    },
}

/// Parameters of `reading`.
///
/// Values: `read_us`, `major_faults`, `requests` and `read_kib` of the disk while the topmost app
/// reads, `requests_per_mib` of its file; `background_read_us`, `background_requests`,
/// `background_read_kib` while a background process reads another file in the same way;
/// `daemon_cpu_us`, limelightd's processor time meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Size of each of the two files.
    pub mib: u32,
    /// How they are read.
    pub pattern: Pattern,
    /// Factor on read-ahead: `best-stock` sets it for the whole disk, Limelight for the topmost app.
    pub factor: u32,
}

/// How a heap grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "growth", rename_all = "kebab-case")]
pub enum Growth {
    /// As in a browser's swipe: the break in steps of 132 KiB, and mappings of 64 KiB to 1 MiB;
    /// most of it is used, from front to back, and all is given back at the end.
    Swipe {
        /// Pages of one round.
        pages: u32,
    },
    /// A large reservation of which one page here and there is used, and small ones of which only
    /// the first is.
    Sparse {
        /// Size of the large one; the small ones come to as much.
        mib: u32,
        /// One page of so many is used.
        every: u32,
    },
    /// Threads that commit arenas by `mprotect()` in steps of 132 KiB.
    Arenas {
        /// Number of threads.
        threads: u32,
        /// Pages that each of them commits.
        pages: u32,
    },
    /// Debian's perl, which builds and takes apart a table.
    Program,
}

/// What the machine answers a fault on fresh memory with, for everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "pages", rename_all = "kebab-case")]
pub enum Pages {
    /// One page, as it comes.
    Base,
    /// Folios of this size, `always`.
    Mthp {
        /// 16, 32 or 64.
        kib: u32,
    },
    /// Huge pages, `always`.
    Thp,
}

/// Parameters of `heap`.
///
/// Values: `faults` (the processor's, in all rounds; not in timed work), `used_pages` (in all
/// rounds; not for the program), `peak_kib`, `response_us` (median of the rounds), `vmstat_*`.
/// Series: `round_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heap {
    /// How it grows.
    pub growth: Growth,
    /// How often; the program runs once.
    pub rounds: u32,
    /// The machine's pages.
    pub pages: Pages,
    /// Memory that is free in single pages only; none leaves the machine as it is.
    pub fragmented_mib: Option<u32>,
    /// Whether time is what counts: nothing else is counted then.
    pub timed: bool,
}

/// Parameters of `cold-start`.
///
/// Values: `start_us`, from the execution to the program's word that it is ready; `requests` and
/// `read_kib` of the disk meanwhile, loads included, `major_faults` of the program,
/// `load_kib_per_s` of all loads together, `vmstat_*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColdStart {
    /// Processes that read and write the same disk meanwhile, 0 to 5.
    pub loads: u32,
    /// Whether the daemon has seen the program start before.
    pub record: bool,
}

/// Parameters of `window-oracle`.
///
/// Values: `keys`, `windows_opened`, `daemon_answers`; for `p50`, `p95` and `max`: `daemon_<x>_us` by the
/// daemon, `oracle_<x>_us` from the key to the last change of the window before it stays unchanged, or to
/// the frame, as the X server or the kernel stamped them; `heard_<x>_us` until the oracle heard of it (in an
/// X server also from before it sent the key), and `off_<x>_us`, the daemon's figure less the stamped one.
/// Series: `oracle_us`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowOracle {
    /// Where the app draws, and who else watches.
    pub display: OracleDisplay,
    /// How many keys are pressed.
    pub keys: u32,
    /// Pause before each key.
    pub pause_ms: u32,
    /// Loops of additions beside it.
    pub loads: u32,
}

/// Where an app draws, and who else watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OracleDisplay {
    /// feh in an X server; a second client of it.
    X11,
    /// An app of our own on the kernel's display; the app, which the kernel tells of its frames.
    Kms,
}
