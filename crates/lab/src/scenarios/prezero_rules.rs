// SPDX-License-Identifier: GPL-2.0-or-later
//! What `prezero` promises beside speed.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// See the module.
pub struct PrezeroRules;

impl Scenario for PrezeroRules {
    fn name(&self) -> &'static str {
        "prezero-rules"
    }

    fn about(&self) -> &'static str {
        "only zeroes are handed out, whatever becomes of the engine; memory goes back, nothing is lost"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "engines")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 256,
            vcpus: 2,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::PrezeroRules)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// The guest checks.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
