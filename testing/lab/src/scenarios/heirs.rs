// SPDX-License-Identifier: GPL-2.0-or-later
//! A user's processes try to keep what they were given or inherited while their app was in the
//! foreground.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Whether unprivileged processes can keep a lowered nice value or `oom_score_adj`.
pub struct Heirs;

impl Scenario for Heirs {
    fn name(&self) -> &'static str {
        "heirs"
    }

    fn about(&self) -> &'static str {
        "no user's process keeps a nice value or oom_score_adj that it was given or inherited"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Zram, "user")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize::default()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::Heirs)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(180)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
