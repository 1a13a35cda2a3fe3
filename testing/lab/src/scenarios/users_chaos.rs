// SPDX-License-Identifier: GPL-2.0-or-later
//! Three users without privilege do what they like, and one of them takes all memory: it costs the others
//! no more than on stock Linux, and none learns what another one does.

use std::time::Duration;

use limelight_apps::scenario::{UsersChaos as Parameters, Work};

use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Users against each other.
pub struct UsersChaos;

const TASK: &str = "mingle";
const OPERATIONS: u32 = 120;
/// Deaths by the kernel's OOM killer differ by so many from run to run. That the daemon closes none, the
/// guest checks.
const CHANCE: f64 = 1.0;
const SEED: u64 = 0x05e2_c4a0;

impl Scenario for UsersChaos {
    fn name(&self) -> &'static str {
        "users-chaos"
    }

    fn about(&self) -> &'static str {
        "whatever three users do, none harms another one's apps or learns of them"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "users")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        leak::machine(0)
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            operations: OPERATIONS,
            seed: SEED,
        };
        vec![Task::new(TASK, Work::UsersChaos(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// The guest checks the rest. Memory must have run short, or nothing was tested.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            let value = |arm, name| aggregates.median(&variant, arm, TASK, name);
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let (Some(stock), Some(ours)) =
                    (value(STOCK, "innocent_dead"), value(arm, "innocent_dead"))
                else {
                    continue;
                };
                verdicts.push(Verdict::new(
                    format!("{variant}: {arm} costs at most one innocent app more than stock"),
                    ours <= stock + CHANCE,
                    format!("{ours} died, on stock {stock}"),
                ));
            }
            if let Some(kills) = value(STOCK, "oom_kills") {
                verdicts.push(Verdict::new(
                    format!("{variant}: one user takes all memory"),
                    kills >= 1.0,
                    format!("{kills} OOM kills on stock"),
                ));
            }
        }
        verdicts
    }

    /// On stock it is what ends the growth.
    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}
