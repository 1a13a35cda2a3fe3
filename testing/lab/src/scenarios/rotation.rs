// SPDX-License-Identifier: GPL-2.0-or-later
//! SWAP's experiment: 24 apps are launched in turn. SWAP's phone has 2 GB of memory and 2 GB of
//! swap; the guest has an eighth of that.
//!
//! The phone's own system uses about two fifths of its memory, so 1.25 GB are left for apps: 160
//! MiB here. The modelled flash is a mid-range eMMC 5.0 of that time. Its specification is 260
//! MB/s, with 6,000 random 4 KiB reads or 5,000 such writes per second (Samsung, 128 GB, 2015). The
//! model serves one request at a time, each of 180 us and at most 48 KiB, which gives 5,500
//! requests and 270 MB per second. Files and swap share the flash.
//!
//! `rotation-rivals` adds arms with Debian's packaged OOM daemons. They need systemd, and a machine
//! with disks outside its own memory, hence fast mode. An emulated CPU does about a seventh as much
//! work per second of host time as exact mode's CPU does per second of guest time. The disks are
//! slowed down by the same factor. `rotation-real` launches ten of Debian's programs on such a
//! machine. Only there is preload an arm: with its default configuration, it reads only files in
//! the system's directories, and the synthetic apps have their files elsewhere.

use limelight_apps::scenario::Rotation;

use super::terms::*;
use crate::scenario::{DiskSpeed, FlashSpeed};

const KILL_ONLY: ArmOn = ArmOn::new(Arm::KillOnly, Kernel::Debian);
pub const SWAP_ALL: ArmOn = ArmOn::new(Arm::SwapAll, Kernel::Debian);

const SWAPS: [SwapKind; 3] = [SwapKind::Disk, SwapKind::Zram, SwapKind::None];

const TASK: &str = "24-apps";
const TASK_REAL: &str = "10-programs";
/// `10-programs` with one mechanism switched off, on any kernel.
const WITHOUT: [(&str, &str); 4] = [
    ("protect", "without-protect"),
    ("boost", "without-boost"),
    ("readahead", "without-readahead"),
    ("swap", "without-swap"),
];
const EMMC: FlashSpeed = FlashSpeed {
    request_nsec: 180_000,
    request_kib: 48,
};
/// The eMMC for a guest at a seventh of exact mode's speed.
const EMMC_OUTSIDE: DiskSpeed = DiskSpeed {
    requests_per_s: 800,
    request_kib: 48,
};
/// SWAP's published results: its mean launch delay relative to `swap-all` and to `kill-only`.
const OF_SWAP_ALL: f64 = 0.57;
const OF_KILL_ONLY: f64 = 0.84;

/// The programs from Debian that `rotation-real` and `day` launch.
pub const APPLICATIONS: [&str; 10] = [
    "abiword",
    "gnumeric",
    "mousepad",
    "netsurf-gtk",
    "dillo",
    "xterm",
    "galculator",
    "feh",
    "gpicview",
    "mupdf",
];

/// What the programs need on their display.
pub const DISPLAY: [&str; 3] = ["xvfb", "xfonts-base", "fonts-dejavu-core"];

/// The OOM daemons, and the packages that they and a user's session depend on.
pub const PACKAGES: [&str; 6] = [
    "systemd",
    "dbus",
    "libpam-systemd",
    "systemd-oomd",
    "earlyoom",
    "nohang",
];

/// 24 synthetic apps, in exact mode.
pub const ROTATION: Spec = Spec {
    name: "rotation",
    about: "24 apps launched in turn with memory for eight",
    variants: &[(&[Lru::Mglru, Lru::TwoList], &SWAPS, &["emmc"])],
    arms: &[KILL_ONLY, SWAP_ALL, ON_DEBIAN, LIMELIGHT],
    machine: |_| MachineSize {
        // Includes the memory of the flash disk's files.
        memory_mib: 640,
        free_mib: Some(160),
        data_mib: 240,
        flash: Some(EMMC),
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new(TASK, Work::Rotation(work(5, 3_000)))],
    time_limit_s: 900,
    must_hold: |aggregates| must_hold(aggregates, TASK),
    metrics: &[&[
        Metric::lower("launch_mean_us", "mean launch"),
        Metric::lower("launch_p50_us", "median launch"),
        Metric::lower("launch_p95_us", "launch, 95th percentile"),
        Metric::lower(
            "daemon_launch_us",
            "limelightd's processor time for a launch",
        ),
        Metric::lower(
            "daemon_pause_us",
            "limelightd's processor time until the next launch",
        ),
        Metric::lower("keep_launch_mean_us", "mean launch of class keep"),
        Metric::lower("normal_launch_mean_us", "mean launch of class normal"),
        Metric::lower(
            "disposable_launch_mean_us",
            "mean launch of class disposable",
        ),
        Metric::lower("keep_kills", "keep killed"),
        Metric::lower("normal_kills", "normal killed"),
        Metric::lower("disposable_kills", "disposable killed"),
        Metric::lower("disposable_swapped_pages", "disposable pages swapped"),
        Metric::lower("swap_written_kib", "KiB swapped out"),
        Metric::lower("swap_block_hottest", "accesses of the hottest block"),
        Metric::lower("oom_kills", "OOM kills"),
    ]],
    repetitions: 3,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

/// 24 synthetic apps, with Debian's OOM daemons as further arms.
pub const RIVALS: Spec = Spec {
    name: "rotation-rivals",
    about: "the same beside earlyoom, nohang and systemd-oomd, where systemd is PID 1",
    variants: &[(&[Lru::Mglru], &SWAPS, &["emmc"])],
    arms: &[
        KILL_ONLY,
        SWAP_ALL,
        EARLYOOM,
        NOHANG,
        SYSTEMD_OOMD,
        ON_DEBIAN,
        LIMELIGHT,
    ],
    machine: |_| on_systemd(PACKAGES.to_vec()),
    tasks: |_, _| vec![Task::new(TASK, Work::Rotation(work(3, 1_000)))],
    repetitions_per_boot: 1,
    // A boot for each arm, because one arm's killer may damage systemd's services for the next arm.
    boot_per_arm: true,
    mode: Mode::Fast,
    ..ROTATION
};

/// Ten real programs from Debian.
pub const REAL: Spec = Spec {
    name: "rotation-real",
    about: "ten of Debian's programs on Xvfb launched in turn",
    variants: &[(&[Lru::Mglru], &SWAPS, &["emmc"])],
    arms: &[KILL_ONLY, SWAP_ALL, EARLYOOM, PRELOAD, ON_DEBIAN, LIMELIGHT],
    machine: |_| on_systemd(real_packages()),
    tasks: |_, _| vec![Task::new(TASK_REAL, Work::RotationReal(work(5, 1_000)))],
    time_limit_s: 1200,
    must_hold: |aggregates| must_hold(aggregates, TASK_REAL),
    ..RIVALS
};

/// The same in exact mode, on one processor.
pub const REAL_EXACT: Spec = Spec {
    name: "rotation-real-exact",
    about: "the same, with all disks in the guest's memory and with exact times",
    // Three repetitions with each mechanism off take hours.
    kind: Kind::Named,
    machine: |_| in_memory(real_packages()),
    tasks: |_, arm| {
        let whole = work(5, 1_000);
        let without = WITHOUT.iter().filter(|_| arm.is_ours());
        let without = without.map(|(mechanism, task)| {
            let work = Rotation {
                off: Some((*mechanism).to_owned()),
                ..whole.clone()
            };
            Task::new(*task, Work::RotationReal(work))
        });
        let all = Task::new(TASK_REAL, Work::RotationReal(whole.clone()));
        std::iter::once(all).chain(without).collect()
    },
    arms: &[KILL_ONLY, SWAP_ALL, ON_DEBIAN, LIMELIGHT],
    mode: Mode::Exact,
    ..REAL
};

fn real_packages() -> Vec<&'static str> {
    [&PACKAGES[..], &DISPLAY, &APPLICATIONS, &["preload"]].concat()
}

/// [`on_systemd`] for exact mode: with the modelled eMMC, also for the root file system.
fn in_memory(rootfs_packages: Vec<&'static str>) -> MachineSize {
    MachineSize {
        // Includes the memory of the flash disk's files.
        memory_mib: 704,
        disk_speed: None,
        flash: Some(EMMC),
        ..on_systemd(rootfs_packages)
    }
}

/// The machine with systemd and these packages.
pub fn on_systemd(rootfs_packages: Vec<&'static str>) -> MachineSize {
    MachineSize {
        // An eighth of the phone's 2 GB, plus the memory that Debian's kernel reserves at boot.
        memory_mib: 320,
        free_mib: Some(160),
        data_mib: 240,
        disk_speed: Some(EMMC_OUTSIDE),
        rootfs_packages,
        init: Init::Systemd,
        ..MachineSize::default()
    }
}

fn work(rounds: u32, think_ms: u32) -> Rotation {
    Rotation {
        rounds,
        think_ms,
        off: None,
    }
}

/// The promises of all these scenarios. Comparisons with absent arms are left out.
fn must_hold(aggregates: &Aggregates, task: &str) -> Vec<Verdict> {
    Seen::each_arm(aggregates, task, |seen, arm| {
        let variant = seen.variant;
        let mut verdicts = Vec::new();
        for (base, part) in [
            (SWAP_ALL, OF_SWAP_ALL),
            (KILL_ONLY, OF_KILL_ONLY),
            (EARLYOOM, 1.0),
            (NOHANG, 1.0),
            (SYSTEMD_OOMD, 1.0),
            (PRELOAD, 1.0),
        ] {
            let ratio = seen.ratio("launch_mean_us", arm, base);
            verdicts.extend(ratio.map(|ratio| {
                Verdict::new(
                    format!(
                        "{variant}: a launch on {arm} takes at most {part:.2} of {base}'s on \
                         average"
                    ),
                    ratio <= part,
                    format!("{ratio:.3} of {base}'s mean"),
                )
            }));
        }
        let counted = [
            ("keep_kills", "no app of class keep is killed"),
            ("oom_kills", "the kernel's OOM killer does not fire"),
        ];
        for (name, what) in counted {
            let samples = seen.samples(arm, name);
            let most = samples.iter().copied().reduce(f64::max);
            verdicts.extend(most.map(|most| {
                Verdict::new(
                    format!("{variant}: on {arm}, {what}"),
                    most == 0.0,
                    format!("at most {most} in {} runs", samples.len()),
                )
            }));
        }
        verdicts
    })
}
