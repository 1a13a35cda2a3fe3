// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that did nothing wrong: none of them is worse off beside the daemon than on stock Linux.

use std::time::Duration;

use limelight_apps::scenario::{Innocents as Parameters, Plight, Work};

use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// See the module.
pub struct Innocents;

const WITHOUT: [(&str, Plight); 2] = [("greedy", Plight::Greedy), ("locker", Plight::Locker)];
const WITH: [(&str, Plight); 3] = [
    ("build", Plight::Build),
    ("tab", Plight::Tab),
    ("server", Plight::Server),
];

impl Scenario for Innocents {
    fn name(&self) -> &'static str {
        "innocents"
    }

    fn about(&self) -> &'static str {
        "apps that did nothing wrong are no worse off than on stock Linux"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::Mglru],
            &[SwapKind::None, SwapKind::Disk],
            &["innocents"],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            swap_mib: 300,
            ..leak::machine(0)
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let task = |(name, plight): &(&'static str, Plight)| {
            let plight = *plight;
            Task::new(*name, Work::Innocents(Parameters { plight }))
        };
        match variant.swap {
            SwapKind::None => WITHOUT.iter().map(task).collect(),
            _ => WITH.iter().map(task).collect(),
        }
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// No more innocent apps die than on stock.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (task, _) in WITHOUT.iter().chain(&WITH) {
                for arm in [ON_DEBIAN, LIMELIGHT] {
                    let dead = |arm| aggregates.median(&variant, arm, task, "innocent_dead");
                    let (Some(stock), Some(ours)) = (dead(STOCK), dead(arm)) else {
                        continue;
                    };
                    verdicts.push(Verdict::new(
                        format!("{variant} {task}: {arm} costs no more innocent apps than stock"),
                        ours <= stock,
                        format!("{ours} died, on stock {stock}"),
                    ));
                }
            }
        }
        verdicts
    }

    /// Without swap it is what ends a leak of the foreground app.
    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}
