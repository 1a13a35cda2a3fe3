// SPDX-License-Identifier: GPL-2.0-or-later
//! An app leaks memory. In the background it is killed, and no other app is; in the foreground it
//! is reported to listeners, and the others are killed in the order of their classes.

use std::time::Duration;

use limelight_apps::scenario::{Leak as Parameters, Leaker, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Leaking apps in the background and in the foreground.
pub struct Leak;

const LEAK: &str = "leak";
const FAST: &str = "fast";
const SLOW: &str = "slow";
const FRONT: &str = "front";
/// Name of the task, and of the variant with room for the pinned caches.
const PINNED: &str = "pinned";
const UNGUARDED: &str = "unguarded";
/// Rate of a slow leak and of the topmost app's: slower than swap, too fast to ask the user.
const SLOW_MIB_PER_S: u32 = 24;

/// The killing scenarios' machine: free memory is the same on every kernel.
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
        "an app that takes memory without end dies, and no other app; in the foreground it is reported"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        let swaps = [SwapKind::None, SwapKind::Disk];
        let mut variants = Variant::product(&[Lru::Mglru], &swaps, &[LEAK]);
        // With swap, stalls and the remaining swap are signals as well.
        variants.push(Variant::new(Lru::Mglru, SwapKind::None, PINNED));
        variants
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    /// Stock shows what happens to the others without a daemon.
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

    /// The guest's checks cover the rest.
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

    /// On stock the OOM killer ends a leak.
    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}

/// Verdict on the end of a leak; `None` if it did not run.
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
        format!("{variant} {task}: {arm} ends the leak and no other app, before the OOM killer"),
        dead == 1.0 && innocent == 0.0 && kills == 0.0,
        format!("{dead} leaking and {innocent} innocent apps dead, {kills} OOM kills"),
    ))
}
