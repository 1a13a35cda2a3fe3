// SPDX-License-Identifier: GPL-2.0-or-later
//! The unused part of the topmost app's reservation, which the cgroup file system distributes among
//! its siblings.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Reclaim from the siblings of a returning app.
pub struct Siblings;

impl Scenario for Siblings {
    fn name(&self) -> &'static str {
        "siblings"
    }

    fn about(&self) -> &'static str {
        "what is reserved for an app that comes back from swap protects no other app"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Disk, "returning")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        leak::machine(0)
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("reserved", Work::Siblings)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(180)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
