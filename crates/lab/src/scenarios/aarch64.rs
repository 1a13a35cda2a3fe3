// SPDX-License-Identifier: GPL-2.0-or-later
//! limelightd as phones get it, on a 64-bit ARM machine with Debian's kernels: the app in front is kept,
//! protection follows the focus, who leaks is killed, and everything is put back, however the daemon
//! ends. Not among the tests that every run does: it needs another emulator and programs for another
//! processor.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{FocusMove, Footprint, Leak, Leaker, Work};

use super::gallery::{self, INDEX_MAPPING};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kernel, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict,
};

/// See the module.
pub struct Aarch64;

const FOCUS: &str = "focus";
const LEAK: &str = "leak";
/// The variant whose machine is laid out as Android's.
const ANDROID: &str = "android";
const MODERN: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Arm64);
const OLDEST: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Arm64Oldest);

/// Two of these fit beside the kernel and little else.
const FOOTPRINT: Footprint = Footprint {
    photos_mib: 16,
    heap_mib: 8,
    thumbnails_mib: 4,
    library_mib: 4,
};
const OWN_PAGES: f64 = ((16 + 8 + 4) * 256) as f64;
const KEPT: f64 = 0.95;
/// More than this of the first app would mean that it is still protected.
const LEFT: f64 = 0.60;

impl Scenario for Aarch64 {
    fn name(&self) -> &'static str {
        "aarch64"
    }

    fn about(&self) -> &'static str {
        "limelightd protects, kills and puts everything back on a 64-bit ARM machine"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING),
            Variant::new(Lru::Mglru, SwapKind::None, ANDROID),
        ]
    }

    fn arms(&self, variant: &Variant) -> Vec<ArmOn> {
        match variant.load.as_str() {
            ANDROID => vec![OLDEST],
            _ => vec![MODERN],
        }
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        if variant.load == ANDROID {
            return MachineSize {
                memory_mib: 384,
                free_mib: Some(150),
                cgroup_v1: true,
                ..MachineSize::default()
            };
        }
        MachineSize {
            memory_mib: 384,
            free_mib: Some(130),
            data_mib: 640,
            ..gallery::machine(96)
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        if variant.load == ANDROID {
            return vec![Task::new("rules", Work::AndroidRules)];
        }
        let leak = Leak {
            leaker: Leaker::Background,
            mib_per_s: 24,
        };
        let focus = FocusMove {
            footprint: FOOTPRINT,
            loads: gallery::loads(&variant.load),
            pressure_ms: 10_000,
            app_cgroup: true,
        };
        let mut killed = gallery::brief(&variant.load);
        killed.pauses.iter_mut().for_each(|pause| pause.swipes = 4);
        vec![
            Task::new("startup", Work::Startup),
            Task::new("classes", Work::ClassRules),
            Task::new(FOCUS, Work::FocusMove(focus)),
            Task::new("kill", Work::DaemonKilled(killed)),
            Task::new(LEAK, Work::Leak(leak)),
        ]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    /// The guest's checks say the rest.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            let arm = self.arms(&variant)[0];
            let value = |task, name: &str| aggregates.median(&variant, arm, task, name);
            let own = |app: &str| -> Option<f64> {
                ["photos", "heap", "thumbnails"]
                    .iter()
                    .map(|kind| value(FOCUS, &format!("{app}_{kind}_pages")))
                    .sum()
            };
            if let (Some(first), Some(second)) = (own("first"), own("second")) {
                verdicts.push(Verdict::new(
                    format!("{variant}: the app that has the focus now is kept, the one before it is not"),
                    second >= OWN_PAGES * KEPT && first <= OWN_PAGES * LEFT,
                    format!("first {first}, second {second} of {OWN_PAGES} pages each"),
                ));
            }
            if let (Some(dead), Some(innocent), Some(kills)) = (
                value(LEAK, "leaker_dead"),
                value(LEAK, "innocent_dead"),
                value(LEAK, "oom_kills"),
            ) {
                verdicts.push(Verdict::new(
                    format!("{variant}: the leak ends and nobody else, before the OOM killer"),
                    dead == 1.0 && innocent == 0.0 && kills == 0.0,
                    format!("{dead} leaking and {innocent} innocent apps dead, {kills} OOM kills"),
                ));
            }
        }
        verdicts
    }
}
