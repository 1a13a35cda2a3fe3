// SPDX-License-Identifier: GPL-2.0-or-later
//! Every kernel boots, runs a program, and reports back: the lab's own end-to-end test.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::Work;

use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kernel, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict,
};

/// A boot with each kernel.
pub struct Boot;

const ARMS: [ArmOn; 2] = [
    ArmOn::new(Arm::Stock, Kernel::Debian),
    ArmOn::new(Arm::Stock, Kernel::Limelight),
];

impl Scenario for Boot {
    fn name(&self) -> &'static str {
        "boot"
    }

    fn about(&self) -> &'static str {
        "each kernel boots, mounts its disks, runs a program and powers off"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Disk, "plain"),
            Variant::new(Lru::Mglru, SwapKind::Zram, "plain"),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        ARMS.to_vec()
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            data_mib: 64,
            swap_mib: 64,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let argv = ["/bin/busybox", "true"].map(String::from).to_vec();
        vec![Task::new("command", Work::Command { argv })]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(60)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        self.variants()
            .iter()
            .filter(|variant| aggregates.variants().contains(variant))
            .flat_map(|variant| {
                aggregates
                    .arms(variant)
                    .into_iter()
                    .map(move |arm| (variant, arm))
            })
            .map(|(variant, arm)| {
                let exit = aggregates.median(variant, arm, "command", "exit_code");
                Verdict::new(
                    format!("{variant} {arm}: a program runs to its end"),
                    exit == Some(0.0),
                    format!("exit code {exit:?}"),
                )
            })
            .collect()
    }
}
