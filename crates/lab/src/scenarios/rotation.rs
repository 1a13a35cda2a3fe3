// SPDX-License-Identifier: GPL-2.0-or-later
//! SWAP's experiment: 24 apps launched in turn on a phone of 2 GB with 2 GB of swap, at an eighth of its size.
//!
//! The phone's own system keeps about two fifths of its memory, so that 1.25 GB are left to apps: 160 MiB here.
//! Its flash is an eMMC 5.0 of that time's middle class, whose maker gives 260 MB/s and 6,000 and 5,000
//! random requests of 4 KiB a second for reads and writes (Samsung, 128 GB, 2015). One request at a time, each
//! of 180 us and at most 48 KiB, comes to 5,500 requests and 270 MB a second. Files and swap share it.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Rotation as Parameters, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, FlashSpeed, Kernel, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind,
    Task, Variant, Verdict,
};

/// See the module.
pub struct Rotation;

const KILL_ONLY: ArmOn = ArmOn::new(Arm::KillOnly, Kernel::Debian);
const SWAP_ALL: ArmOn = ArmOn::new(Arm::SwapAll, Kernel::Debian);

const TASK: &str = "24-apps";
const EMMC: FlashSpeed = FlashSpeed {
    request_nsec: 180_000,
    request_kib: 48,
};
/// What SWAP gained: the mean launch delay against both of the others.
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
            // The files of the flash disk are in it.
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
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                for (base, part) in [(SWAP_ALL, OF_SWAP_ALL), (KILL_ONLY, OF_KILL_ONLY)] {
                    let ratio = aggregates.ratio(&variant, TASK, "launch_mean_us", arm, base);
                    verdicts.extend(ratio.map(|ratio| {
                        Verdict::new(
                            format!("{variant}: a launch on {arm} takes at most {part:.2} of {base} in the mean"),
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
                    let samples = aggregates.samples(&variant, arm, TASK, name);
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

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric {
            name,
            label,
            better: Better::Lower,
        };
        vec![
            metric("launch_mean_us", "mean launch"),
            metric("launch_p50_us", "median launch"),
            metric("launch_p95_us", "95 % of launches"),
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
}
