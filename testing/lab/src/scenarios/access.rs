// SPDX-License-Identifier: GPL-2.0-or-later
//! Several users of one machine: the guest checks which users may name the foreground app, what
//! each user sees, and that none can overload or blind the daemon.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::gallery;
use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Users' permissions.
pub struct Rules;

impl Scenario for Rules {
    fn name(&self) -> &'static str {
        "access-rules"
    }

    fn about(&self) -> &'static str {
        "users see and claim their own apps only, and none keeps the daemon busy"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "users")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        // Thousands of cgroups take memory.
        MachineSize {
            memory_mib: 384,
            ..gallery::machine(256)
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::AccessRules)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
