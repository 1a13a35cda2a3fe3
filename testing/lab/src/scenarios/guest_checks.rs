// SPDX-License-Identifier: GPL-2.0-or-later
//! Scenarios in which the guest's own checks are the only verdicts.

use limelight_apps::scenario::{Gate, OwnTree, Sharing};

use super::gallery::{self, INDEX_MAPPING};
use super::leak;
use super::package;
use super::terms::*;

/// Each condition under which limelightd cannot work has its own message and exit code.
pub const STARTUP: Spec = Spec {
    name: "startup",
    about: "each reason not to start has its own message and exit code",
    tasks: |_, _| vec![Task::new("refusals", Work::Startup)],
    time_limit_s: 240,
    ..Spec::TEST
};

/// The kernel distributes the unused part of the topmost app's reservation among sibling cgroups.
/// That part must not protect the siblings.
pub const SIBLINGS: Spec = Spec {
    name: "siblings",
    about: "the reservation for an app that returns from swap protects no other app",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk], &["returning"])],
    machine: |_| leak::machine(0),
    tasks: |_, _| vec![Task::new("reserved", Work::Siblings)],
    time_limit_s: 180,
    ..Spec::TEST
};

/// Variant of [`SELFTEST`] in which systemd's user manager makes the test's cgroup.
const SYSTEMD_USER: &str = "systemd-user";

/// The test that users run on their own machines.
pub const SELFTEST: Spec = Spec {
    name: "selftest",
    about: "limelight selftest shows the effect of protection, and leaves nothing behind",
    variants: &[
        (&[Lru::TwoList], &[SwapKind::None], &["root"]),
        (&[Lru::Mglru], &[SwapKind::None], &[SYSTEMD_USER]),
    ],
    arms: &[ON_DEBIAN],
    machine: |variant| {
        let (init, rootfs_packages) = match variant.load.as_str() {
            // The packages of the scenario `package`, whose root file system is thereby shared.
            SYSTEMD_USER => (Init::Systemd, package::BASE.to_vec()),
            _ => (Init::Lab, Vec::new()),
        };
        MachineSize {
            memory_mib: 512,
            data_mib: 320,
            init,
            rootfs_packages,
            ..MachineSize::default()
        }
    },
    tasks: |_, _| vec![Task::new("rules", Work::Selftest)],
    time_limit_s: 900,
    ..Spec::TEST
};

/// The limits that premap must respect.
pub const PREMAP_RULES: Spec = Spec {
    name: "premap-rules",
    about: "premap with limits, borders, locks, userfaultfd and fork",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["plain"])],
    arms: &[LIMELIGHT],
    tasks: |_, _| vec![Task::new("rules", Work::PremapRules)],
    time_limit_s: 60,
    ..Spec::TEST
};

/// Readahead's promises other than speed.
pub const READAHEAD: Spec = Spec {
    name: "readahead",
    about:
        "starts are recorded and read ahead, except changed files; only the foreground app gets \
         larger read-ahead",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["rules"])],
    machine: |_| MachineSize {
        data_mib: 640,
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new("rules", Work::ReadaheadRules)],
    time_limit_s: 300,
    ..Spec::TEST
};

/// premap, readahead and prezero use free memory in advance. Here hardly any memory is free.
pub const FULL_CACHE: Spec = Spec {
    name: "full-cache",
    about: "premap, readahead and prezero on a machine whose memory is full of page cache",
    variants: &[(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::None, SwapKind::Zram],
        &["clean"],
    )],
    arms: &[LIMELIGHT],
    machine: |_| MachineSize {
        data_mib: 96,
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new("rules", Work::FullCache)],
    time_limit_s: 180,
    ..Spec::TEST
};

/// limelightd is killed by SIGKILL under load. The kernel drops its state at once, and the next
/// daemon restores every value.
pub const RESTORE: Spec = Spec {
    name: "restore",
    about: "limelightd is killed in the middle of load: nothing is left behind",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk], &[INDEX_MAPPING])],
    machine: |_| gallery::machine(256),
    tasks: |variant, _| vec![daemon_killed(variant)],
    time_limit_s: 240,
    ..Spec::TEST
};

/// A task that kills limelightd under this variant's load.
pub fn daemon_killed(variant: &Variant) -> Task {
    let mut work = gallery::brief(&variant.load);
    work.pauses.iter_mut().for_each(|pause| pause.swipes = 4);
    Task::new("kill", Work::DaemonKilled(work))
}

/// The lease of the topmost set. It lasts five minutes, which pass within seconds of host time in
/// exact mode.
pub const LEASE: Spec = Spec {
    name: "lease",
    about: "a suspended limelightd loses the topmost set, and sets it again when it resumes",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["stopped"])],
    arms: &[LIMELIGHT],
    tasks: |_, _| vec![Task::new("rules", Work::Lease)],
    time_limit_s: 600,
    mode: Mode::Exact,
    ..Spec::TEST
};

/// The kernel series' selftest of `/dev/limelight`, without limelightd.
pub const KSELFTEST: Spec = Spec {
    name: "kselftest",
    about: "the selftest of the kernel series passes on our kernel",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["device"])],
    arms: &[STOCK_OURS],
    tasks: |_, _| vec![Task::new("mm", Work::Kselftest)],
    time_limit_s: 60,
    ..Spec::TEST
};

/// Boost's promises other than speed.
pub const BOOST_RULES: Spec = Spec {
    name: "boost-rules",
    about: "boost moves with the focus, respects the user, and leaves nothing behind",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["values"])],
    arms: &[ON_DEBIAN],
    machine: |_| MachineSize {
        memory_mib: 192,
        data_mib: 64,
        bfq: true,
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new("rules", Work::BoostRules)],
    time_limit_s: 120,
    ..Spec::TEST
};

/// Whether unprivileged processes can keep a nice value or `oom_score_adj` that was lowered while
/// their app was in the foreground.
pub const HEIRS: Spec = Spec {
    name: "heirs",
    about: "no user's process keeps a nice value or oom_score_adj that it was given or inherited",
    variants: &[(&[Lru::Mglru], &[SwapKind::Zram], &["user"])],
    tasks: |_, _| vec![Task::new("rules", Work::Heirs)],
    time_limit_s: 180,
    ..Spec::TEST
};

/// Apps and their classes: the sources of a class, which users may change it, and which processes
/// are never touched.
pub const CLASS_RULES: Spec = Spec {
    name: "class-rules",
    about: "each app gets the intended class, and kills by other programs are recorded",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk], &["apps"])],
    arms: &[LIMELIGHT],
    machine: |_| gallery::machine(256),
    tasks: |_, _| vec![Task::new("rules", Work::ClassRules)],
    time_limit_s: 180,
    ..Spec::TEST
};

/// Two tiers of swap: pages of background apps in zram go to a disk before any app is closed.
pub const WRITE_BACK: Spec = Spec {
    name: "write-back",
    about: "pages of background apps are written back from zram to a disk, and no app is closed",
    variants: &[(&[Lru::Mglru], &[SwapKind::ZramDisk], &["apps"])],
    machine: |_| MachineSize {
        data_mib: 0,
        ..gallery::comparable_machine(512)
    },
    tasks: |_, _| vec![Task::new("apps", Work::WriteBack)],
    time_limit_s: 300,
    ..Spec::TEST
};

/// Several users on one machine: which users may claim the foreground, and what each user sees. No
/// user can overload the daemon or keep it from finding other users' apps.
pub const ACCESS_RULES: Spec = Spec {
    name: "access-rules",
    about: "users see and claim only their own apps, and no user keeps the daemon busy",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["users"])],
    arms: &[LIMELIGHT],
    // The test makes thousands of cgroups. Their memory outgrows 384 MiB on Linux 7.3.
    machine: |_| MachineSize {
        memory_mib: 512,
        ..gallery::machine(256)
    },
    tasks: |_, _| vec![Task::new("rules", Work::AccessRules)],
    time_limit_s: 240,
    ..Spec::TEST
};

/// A machine without systemd. Apps have no cgroups of their own there, so the daemon creates them.
/// On our kernel, boost alone needs these cgroups: the device also protects apps without a cgroup.
pub const OWN_TREE: Spec = Spec {
    name: "own-tree",
    about: "without systemd, apps get cgroups in limelightd's own tree, and nothing of it is left \
            behind",
    variants: &[(&[Lru::Mglru], &[SwapKind::Zram], &["session"])],
    tasks: |_, _| {
        let task = |name, handed_down| Task::new(name, Work::OwnTree(OwnTree { handed_down }));
        vec![task("handed-down", true), task("bare", false)]
    },
    time_limit_s: 240,
    ..Spec::TEST
};

/// The safety gate: the foreground app shares a cgroup with background apps while memory runs
/// short.
pub const GATE: Spec = Spec {
    name: "gate",
    about: "a foreground app that shares its cgroup with background apps is never frozen or \
            killed",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk], &["shared-cgroup"])],
    machine: |_| MachineSize {
        swap_mib: 300,
        ..leak::machine(0)
    },
    tasks: |_, _| {
        let situations = [
            ("child", Sharing::Child),
            ("nested", Sharing::Nested),
            ("windows", Sharing::Windows),
            ("session", Sharing::Session),
            ("moved", Sharing::Moved),
            ("container", Sharing::Container),
        ];
        let task = |(name, sharing)| Task::new(name, Work::Gate(Gate { sharing }));
        situations.map(task).into()
    },
    time_limit_s: 180,
    ..Spec::TEST
};

/// A CPU goes offline and comes back, repeatedly. Work on it must still wake limelightd's guard.
/// Not part of the test run: in one of sixteen cases, for an unknown reason, the guard noticed the
/// returned CPU's work too late.
pub const PROCESSORS: Spec = Spec {
    name: "processors",
    about: "a processor goes offline and online, and a task that runs on it wakes the guard",
    tasks: |_, _| vec![Task::new("guard", Work::Processors { sleep: false })],
    time_limit_s: 300,
    ..Spec::SOAK
};

/// [`PROCESSORS`] with a suspend at the end, which the emulator may not survive. Our kernel is
/// built without suspend.
pub const PROCESSORS_SLEEP: Spec = Spec {
    name: "processors-sleep",
    about: "processors on a machine that also suspends",
    arms: &[ON_DEBIAN],
    tasks: |_, _| vec![Task::new("guard", Work::Processors { sleep: true })],
    ..PROCESSORS
};

/// An X server with a keyboard and a dummy display, a window manager and an app.
const WAKE_PACKAGES: &[&str] = &[
    "xserver-xorg-core",
    "xserver-xorg-input-evdev",
    "xserver-xorg-video-dummy",
    "openbox",
    "xterm",
];

/// Measures how often the daemon infers the right foreground app without an agent: from the client
/// that the display server wakes after a key press. The result depends on wake-up latency, so this
/// is a benchmark and not a test.
pub const WAKE_GRAPH: Spec = Spec {
    name: "wake-graph",
    about: "keys pressed in apps in turn, without a source: how often the daemon infers the \
            foreground app",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["keys"])],
    arms: &[LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 384,
        data_mib: 64,
        rootfs_packages: WAKE_PACKAGES.to_vec(),
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new("24-moves", Work::Wakes)],
    time_limit_s: 300,
    metrics: &[&[
        Metric::neutral("right", "right guesses"),
        Metric::neutral("wrong", "wrong guesses"),
        Metric::neutral("none", "focus moves without a guess"),
    ]],
    repetitions: 3,
    ..Spec::BENCHMARK
};
