// SPDX-License-Identifier: GPL-2.0-or-later
//! limelightd as phones get it, on a 64-bit ARM machine with Debian's kernels: the app in front is kept,
//! protection follows the focus, who leaks is killed, and everything is put back, however the daemon
//! ends. Not among the tests that every run does: it needs another emulator and programs for another
//! processor.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Leak, Leaker, Work};

use super::gallery::{self, INDEX_MAPPING};
use super::{focus, leak};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kernel, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict,
};

/// See the module.
pub struct Aarch64;

const FOCUS: &str = "focus";
/// The task, and the variant whose machine leaves an app room to grow in before others have to go for it.
const LEAK: &str = "leak";
/// The variant whose machine is laid out as Android's.
const ANDROID: &str = "android";
const MODERN: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Arm64);
const OLDEST: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Arm64Oldest);

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
            Variant::new(Lru::Mglru, SwapKind::Disk, LEAK),
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
        let machine = MachineSize {
            memory_mib: 384,
            free_mib: Some(150),
            ..MachineSize::default()
        };
        match variant.load.as_str() {
            ANDROID => MachineSize {
                cgroup_v1: true,
                ..machine
            },
            LEAK => MachineSize {
                swap_mib: 96,
                ..machine
            },
            _ => MachineSize {
                memory_mib: 384,
                free_mib: Some(130),
                data_mib: 640,
                ..gallery::machine(96)
            },
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let leak = || {
            let leak = Leak {
                leaker: Leaker::Background,
                mib_per_s: 24,
            };
            Task::new(LEAK, Work::Leak(leak))
        };
        match variant.load.as_str() {
            ANDROID => vec![Task::new("rules", Work::AndroidRules), leak()],
            LEAK => vec![leak()],
            load => {
                let mut killed = gallery::brief(load);
                killed.pauses.iter_mut().for_each(|pause| pause.swipes = 4);
                vec![
                    Task::new("startup", Work::Startup),
                    Task::new("classes", Work::ClassRules),
                    focus::task(FOCUS, variant),
                    Task::new("kill", Work::DaemonKilled(killed)),
                ]
            }
        }
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    /// The guest's checks say the rest.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            let arm = self.arms(&variant)[0];
            verdicts.extend(focus::kept(aggregates, &variant, arm, FOCUS));
            verdicts.extend(leak::ended(aggregates, &variant, arm, LEAK));
        }
        verdicts
    }
}
