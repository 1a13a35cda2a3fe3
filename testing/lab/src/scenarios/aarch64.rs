// SPDX-License-Identifier: GPL-2.0-or-later
//! limelightd as installed on phones, on a 64-bit ARM machine with Debian's kernels: the topmost
//! app's pages are kept, protection follows the focus, a leaking app is killed, and everything is
//! restored, however the daemon ends. Not part of every test run: it needs another emulator and
//! programs for another architecture.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Leak, Leaker, Work};

use super::gallery::{self, INDEX_MAPPING};
use super::{focus, leak};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kernel, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict,
};

/// limelightd on 64-bit ARM.
pub struct Aarch64;

const FOCUS: &str = "focus";
/// Name of the task, and of the variant with room for an app to grow before others are killed.
const LEAK: &str = "leak";
/// The variant with a machine laid out as Android's.
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

    /// The guest's checks cover the rest.
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
