// SPDX-License-Identifier: GPL-2.0-or-later
//! 200 processes a second and cgroups come and go while apps leak and exit by themselves, often
//! while they are selected as victims: no wrong app is killed, and nothing is left behind.

use std::time::Duration;

use limelight_apps::scenario::{Storm as Parameters, Work};

use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// A storm of processes and cgroups.
pub struct Storm;

const TASK: &str = "storm";
const SECONDS: u32 = 20;
const PROCESSES_PER_S: u32 = 200;
/// The storm lasts until this many processes have run, however slow the machine is.
const PROCESSES: u64 = 2000;
/// Least share of `PROCESSES` in the guest's count, which also covers the processes of the apps and
/// of limelightd.
const OWN: f64 = 0.9;

impl Scenario for Storm {
    fn name(&self) -> &'static str {
        "storm"
    }

    fn about(&self) -> &'static str {
        "processes and cgroups by the hundred, apps that end while they are chosen for killing"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, TASK)]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        leak::machine(0)
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            seconds: SECONDS,
            processes_per_s: PROCESSES_PER_S,
            processes: PROCESSES,
        };
        vec![Task::new(TASK, Work::Storm(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(480)
    }

    /// The guest checks which apps died; this checks only the storm's size.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let value = |name| aggregates.median(&variant, arm, TASK, name);
                let (Some(processes), Some(bursts)) = (value("processes"), value("bursts")) else {
                    continue;
                };
                verdicts.push(Verdict::new(
                    format!("{variant}: {arm} ran beside a storm of the full size"),
                    processes >= PROCESSES as f64 * OWN && bursts >= 4.0,
                    format!("{processes} processes, {bursts} apps that took memory"),
                ));
            }
        }
        verdicts
    }
}
