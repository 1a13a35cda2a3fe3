// SPDX-License-Identifier: GPL-2.0-or-later
//! One app takes memory without end. In the background it dies, and nobody else; in front it is told
//! on, and the others give way in the order of their classes.

use std::time::Duration;

use limelight_apps::scenario::{Leak as Parameters, Leaker, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// See the module.
pub struct Leak;

const LEAK: &str = "leak";
const FAST: &str = "fast";
const SLOW: &str = "slow";
const FRONT: &str = "front";
/// The task, and the variant whose machine has room for what is pinned.
const PINNED: &str = "pinned";
const UNGUARDED: &str = "unguarded";
/// A slow leak, and that of the app in front: slower than swap, faster than anybody could be asked.
const SLOW_MIB_PER_S: u32 = 24;

/// The killing scenarios' machine: what is free is the same on every kernel.
pub fn machine(data_mib: u32) -> MachineSize {
    MachineSize {
        memory_mib: 256,
        free_mib: Some(150),
        vcpus: 2,
        data_mib,
        swap_mib: 96,
        ..MachineSize::default()
    }
}

impl Scenario for Leak {
    fn name(&self) -> &'static str {
        "leak"
    }

    fn about(&self) -> &'static str {
        "an app that takes memory without end dies, and nobody else; in front it is told on"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        let swaps = [SwapKind::None, SwapKind::Disk];
        let mut variants = Variant::product(&[Lru::Mglru], &swaps, &[LEAK]);
        // With swap, stalls and what is left of it tell as well.
        variants.push(Variant::new(Lru::Mglru, SwapKind::None, PINNED));
        variants
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    /// What becomes of the others without anybody who acts first.
    fn further_arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        match variant.load.as_str() {
            PINNED => MachineSize {
                memory_mib: 320,
                free_mib: Some(190),
                ..machine(0)
            },
            _ => machine(0),
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let task =
            |name, leaker, mib_per_s| Task::new(name, Work::Leak(Parameters { leaker, mib_per_s }));
        if variant.load == PINNED {
            return vec![task(PINNED, Leaker::Pinned, SLOW_MIB_PER_S)];
        }
        vec![
            task(FAST, Leaker::Background, 0),
            task(SLOW, Leaker::Background, SLOW_MIB_PER_S),
            task(FRONT, Leaker::Front, SLOW_MIB_PER_S),
            task(UNGUARDED, Leaker::Unguarded, 0),
        ]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    /// The guest's checks say the rest.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                for task in [FAST, SLOW, PINNED] {
                    verdicts.extend(ended(aggregates, &variant, arm, task));
                }
            }
        }
        verdicts
    }

    /// On stock it is what ends a leak.
    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}

/// How a leak must end; nothing where it did not run.
pub(super) fn ended(
    aggregates: &Aggregates,
    variant: &Variant,
    arm: ArmOn,
    task: &str,
) -> Option<Verdict> {
    let value = |name| aggregates.median(variant, arm, task, name);
    let (dead, innocent, kills) = (
        value("leaker_dead")?,
        value("innocent_dead")?,
        value("oom_kills")?,
    );
    Some(Verdict::new(
        format!("{variant} {task}: {arm} ends the leak and nobody else, before the OOM killer"),
        dead == 1.0 && innocent == 0.0 && kills == 0.0,
        format!("{dead} leaking and {innocent} innocent apps dead, {kills} OOM kills"),
    ))
}
