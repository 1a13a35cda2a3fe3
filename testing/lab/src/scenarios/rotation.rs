// SPDX-License-Identifier: GPL-2.0-or-later
//! SWAP's experiment: 24 apps launched in turn on a phone of 2 GB with 2 GB of swap, at an eighth
//! of its size.
//!
//! The phone's own system uses about two fifths of its memory, so 1.25 GB are left for apps: 160
//! MiB here. Its flash is a mid-range eMMC 5.0 of that time, specified at 260 MB/s and 6,000 and
//! 5,000 random 4 KiB requests per second for reads and writes (Samsung, 128 GB, 2015). One request
//! at a time, each of 180 us and at most 48 KiB, gives 5,500 requests and 270 MB per second. Files
//! and swap share it.
//!
//! `rotation-rivals` is the same next to Debian's packaged OOM daemons, which need systemd and a
//! machine with disks outside its own memory. Those disks are as fast as the eMMC would be for the
//! guest: an emulated CPU does about a seventh as much per second of host time as exact mode's CPU
//! per second of guest time, and the disk is slowed down accordingly. `rotation-real` launches ten
//! of Debian's programs there.

use std::time::Duration;

use limelight_apps::plan::{Arm, Init};
use limelight_apps::scenario::{Rotation as Parameters, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, DiskSpeed, FlashSpeed, Kernel, Kind, Lru, MachineSize, Metric, Mode, Scenario,
    SwapKind, Task, Variant, Verdict,
};

/// Synthetic apps in exact mode.
pub struct Rotation;

/// The same next to Debian's OOM daemons.
pub struct Rivals;

/// Real programs from Debian.
pub struct Real;

const KILL_ONLY: ArmOn = ArmOn::new(Arm::KillOnly, Kernel::Debian);
const SWAP_ALL: ArmOn = ArmOn::new(Arm::SwapAll, Kernel::Debian);

const EARLYOOM: ArmOn = ArmOn::new(Arm::Earlyoom, Kernel::Debian);
const NOHANG: ArmOn = ArmOn::new(Arm::Nohang, Kernel::Debian);
const SYSTEMD_OOMD: ArmOn = ArmOn::new(Arm::SystemdOomd, Kernel::Debian);
const RIVALS: [ArmOn; 3] = [EARLYOOM, NOHANG, SYSTEMD_OOMD];

const TASK: &str = "24-apps";
const TASK_REAL: &str = "10-programs";
const EMMC: FlashSpeed = FlashSpeed {
    request_nsec: 180_000,
    request_kib: 48,
};
/// The same for a guest at a seventh of exact mode's speed.
const EMMC_OUTSIDE: DiskSpeed = DiskSpeed {
    requests_per_s: 800,
    request_kib: 48,
};
/// SWAP's published gain: the mean launch delay relative to both of the others.
const OF_SWAP_ALL: f64 = 0.57;
const OF_KILL_ONLY: f64 = 0.84;

impl Scenario for Rotation {
    fn name(&self) -> &'static str {
        "rotation"
    }

    fn about(&self) -> &'static str {
        "24 apps launched in turn where memory is for eight"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::Mglru, Lru::TwoList],
            &[SwapKind::Disk, SwapKind::Zram],
            &["emmc"],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![KILL_ONLY, SWAP_ALL, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            // Includes the flash disk's files.
            memory_mib: 640,
            free_mib: Some(160),
            data_mib: 240,
            swap_mib: 256,
            flash: Some(EMMC),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            rounds: 5,
            think_ms: 3_000,
        };
        vec![Task::new(TASK, Work::Rotation(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(900)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        must_hold(aggregates, TASK)
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }
}

impl Scenario for Rivals {
    fn name(&self) -> &'static str {
        "rotation-rivals"
    }

    fn about(&self) -> &'static str {
        "the same beside earlyoom, nohang and systemd-oomd, where systemd is PID 1"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(&[Lru::Mglru], &[SwapKind::Disk, SwapKind::Zram], &["emmc"])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        let [earlyoom, nohang, systemd_oomd] = RIVALS;
        vec![
            KILL_ONLY,
            SWAP_ALL,
            earlyoom,
            nohang,
            systemd_oomd,
            ON_DEBIAN,
            LIMELIGHT,
        ]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            // An eighth of the phone's 2 GB, plus the memory that Debian's kernel reserves at boot.
            memory_mib: 320,
            free_mib: Some(160),
            data_mib: 240,
            swap_mib: 256,
            disk_speed: Some(EMMC_OUTSIDE),
            rootfs_packages: PACKAGES.map(String::from).to_vec(),
            init: Init::Systemd,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            rounds: 3,
            think_ms: 1_000,
        };
        vec![Task::new(TASK, Work::Rotation(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(900)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn repetitions_per_boot(&self) -> u32 {
        1
    }

    /// A killer's damage to systemd's services must not affect the next arm.
    fn boot_per_arm(&self) -> bool {
        true
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        must_hold(aggregates, TASK)
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }
}

impl Scenario for Real {
    fn name(&self) -> &'static str {
        "rotation-real"
    }

    fn about(&self) -> &'static str {
        "ten of Debian's programs on Xvfb launched in turn"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(&[Lru::Mglru], &[SwapKind::Disk], &["emmc"])
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![KILL_ONLY, SWAP_ALL, EARLYOOM, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        let applications = ["xvfb", "xfonts-base", "fonts-dejavu-core"];
        let applications = applications.into_iter().chain(APPLICATIONS);
        MachineSize {
            rootfs_packages: PACKAGES
                .into_iter()
                .chain(applications)
                .map(String::from)
                .collect(),
            ..Rivals.machine(variant)
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            rounds: 5,
            think_ms: 1_000,
        };
        vec![Task::new(TASK_REAL, Work::RotationReal(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(1200)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn repetitions_per_boot(&self) -> u32 {
        1
    }

    /// A killer's damage to systemd's services must not affect the next arm.
    fn boot_per_arm(&self) -> bool {
        true
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        must_hold(aggregates, TASK_REAL)
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }
}

/// The launched programs of Debian.
const APPLICATIONS: [&str; 10] = [
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

/// The OOM daemons, and the dependencies of them and of a user's session.
const PACKAGES: [&str; 6] = [
    "systemd",
    "dbus",
    "libpam-systemd",
    "systemd-oomd",
    "earlyoom",
    "nohang",
];

/// The promises wherever the experiment runs; absent arms are not judged.
fn must_hold(aggregates: &Aggregates, task: &str) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for variant in aggregates.variants() {
        for arm in [ON_DEBIAN, LIMELIGHT] {
            let bases = [(SWAP_ALL, OF_SWAP_ALL), (KILL_ONLY, OF_KILL_ONLY)];
            for (base, part) in bases.into_iter().chain(RIVALS.map(|rival| (rival, 1.0))) {
                let ratio = aggregates.ratio(&variant, task, "launch_mean_us", arm, base);
                verdicts.extend(ratio.map(|ratio| {
                    Verdict::new(
                        format!("{variant}: a launch on {arm} takes at most {part:.2} of {base}'s in the mean"),
                        ratio <= part,
                        format!("{ratio:.3}"),
                    )
                }));
            }
            for (name, what) in [
                ("keep_kills", "no app of class keep is killed"),
                (
                    "disposable_swapped_pages",
                    "no page of a disposable app is swapped",
                ),
                ("oom_kills", "the kernel's OOM killer does not fire"),
            ] {
                let samples = aggregates.samples(&variant, arm, task, name);
                if let Some(most) = samples.iter().copied().reduce(f64::max) {
                    verdicts.push(Verdict::new(
                        format!("{variant}: on {arm}, {what}"),
                        most == 0.0,
                        format!("{most} at the most in {} runs", samples.len()),
                    ));
                }
            }
        }
    }
    verdicts
}

fn metrics() -> Vec<Metric> {
    let metric = |name, label| Metric::new(name, label, Better::Lower);
    vec![
        metric("launch_mean_us", "mean launch"),
        metric("launch_p50_us", "median launch"),
        metric("launch_p95_us", "95 % of launches"),
        metric("daemon_launch_us", "of it, limelightd"),
        metric("keep_launch_mean_us", "keep"),
        metric("normal_launch_mean_us", "normal"),
        metric("disposable_launch_mean_us", "disposable"),
        metric("keep_kills", "keep killed"),
        metric("normal_kills", "normal killed"),
        metric("disposable_kills", "disposable killed"),
        metric("disposable_swapped_pages", "disposable pages swapped"),
        metric("swap_written_kib", "KiB swapped out"),
        metric("swap_block_hottest", "accesses of the hottest block"),
        metric("oom_kills", "OOM kills"),
    ]
}
