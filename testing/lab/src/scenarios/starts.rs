// SPDX-License-Identifier: GPL-2.0-or-later
//! Boots that start limelightd and power off: many boots expose rare failures.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Repeated boots with the daemon.
pub struct Starts;

/// Starts of the daemon in one boot.
const TIMES: u32 = 2;
const TASK: &str = "daemon";

impl Scenario for Starts {
    fn name(&self) -> &'static str {
        "starts"
    }

    fn about(&self) -> &'static str {
        "a machine boots, limelightd starts and stops twice; each repetition is a boot of its own"
    }

    fn kind(&self) -> Kind {
        Kind::Named
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "none")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize::default()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new(TASK, Work::DaemonStarts { times: TIMES })]
    }

    fn repetitions_per_boot(&self) -> u32 {
        1
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(60)
    }

    /// A failed boot fails the run; this counts the boots that reported.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in aggregates.arms(&variant) {
                let boots = aggregates.samples(&variant, arm, TASK, "starts");
                verdicts.push(Verdict::new(
                    format!("{variant}: on {arm} the daemon starts in every boot"),
                    !boots.is_empty() && boots.iter().all(|starts| *starts == f64::from(TIMES)),
                    format!("{} boots", boots.len()),
                ));
            }
        }
        verdicts
    }
}
