// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps and their classes on a real kernel: the guest checks where classes come from, who may
//! change them, and what is never touched.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::gallery;
use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Rules of classes.
pub struct Rules;

impl Scenario for Rules {
    fn name(&self) -> &'static str {
        "class-rules"
    }

    fn about(&self) -> &'static str {
        "apps have the class that was meant for them, and others' kills are noted"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Disk, "apps")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("rules", Work::ClassRules)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(180)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
