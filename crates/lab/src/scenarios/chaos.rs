// SPDX-License-Identifier: GPL-2.0-or-later
//! Everything around limelightd breaks: it is killed, cgroups vanish, descriptors and disks run out,
//! /sys is read-only, clocks jump, the machine sleeps. The guest checks that the state is right after
//! each trouble and that nothing is left behind.

use std::time::Duration;

use limelight_apps::scenario::{Chaos as Parameters, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Each trouble once: a run of a minute or two, on demand.
pub struct Short;

/// Hundreds of them.
pub struct Long;

const TASK: &str = "chaos";
const SHORT: u32 = 13;
const LONG: u32 = 400;
/// What every kernel knows: all but the machine's sleep, which ours is built without.
const EVERYWHERE: [&str; 12] = [
    "killed",
    "killed_for_good",
    "killed_read_only",
    "agent_killed",
    "group_gone",
    "no_descriptors",
    "read_only",
    "full_run",
    "full_state",
    "clock_back",
    "clock_ahead",
    "stopped",
];

fn machine() -> MachineSize {
    MachineSize {
        memory_mib: 256,
        vcpus: 2,
        ..MachineSize::default()
    }
}

fn variants() -> Vec<Variant> {
    vec![Variant::new(Lru::Mglru, SwapKind::None, TASK)]
}

fn tasks(steps: u32) -> Vec<Task> {
    let work = Parameters {
        steps,
        seed: 0xc4a0,
    };
    vec![Task::new(TASK, Work::Chaos(work))]
}

/// The guest checks the state; here it counts that everything broke.
fn everything_broke(aggregates: &Aggregates) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for variant in aggregates.variants() {
        for arm in [ON_DEBIAN, LIMELIGHT] {
            let count = |name: &str| aggregates.median(&variant, arm, TASK, name);
            let counts = EVERYWHERE.map(|name| (name, count(&format!("trouble_{name}"))));
            if counts.iter().all(|(_, count)| count.is_none()) {
                continue;
            }
            let missing: Vec<&str> = counts
                .iter()
                .filter(|(_, count)| count.is_none_or(|count| count < 1.0))
                .map(|(name, _)| *name)
                .collect();
            let slept = count("trouble_suspended").unwrap_or(0.0);
            verdicts.push(Verdict::new(
                format!("{variant}: {arm} goes through every trouble"),
                missing.is_empty(),
                match missing.is_empty() {
                    true => format!("the machine slept {slept} times"),
                    false => format!("missing: {}", missing.join(", ")),
                },
            ));
        }
    }
    verdicts
}

impl Scenario for Short {
    fn name(&self) -> &'static str {
        "chaos-short"
    }

    fn about(&self) -> &'static str {
        "everything around limelightd breaks once, and the state is right afterwards"
    }

    fn kind(&self) -> Kind {
        Kind::Soak
    }

    fn variants(&self) -> Vec<Variant> {
        variants()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        tasks(SHORT)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        everything_broke(aggregates)
    }
}

impl Scenario for Long {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn about(&self) -> &'static str {
        "everything around limelightd breaks, 400 times in random order"
    }

    fn kind(&self) -> Kind {
        Kind::Soak
    }

    fn variants(&self) -> Vec<Variant> {
        variants()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        tasks(LONG)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(3600)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        everything_broke(aggregates)
    }
}
