// SPDX-License-Identifier: GPL-2.0-or-later
//! A CPU goes offline and comes back, repeatedly: work on it still wakes limelightd's guard.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// CPU hotplug under the guard.
pub struct Processors {
    /// Whether the machine also suspends.
    sleep: bool,
}

/// On demand: one of sixteen returns of a CPU was not noticed in time, for an unknown reason.
pub const SHORT: Processors = Processors { sleep: false };

/// The machine suspends at the end, which an emulator may not survive: on demand.
pub const SLEEP: Processors = Processors { sleep: true };

impl Scenario for Processors {
    fn name(&self) -> &'static str {
        match self.sleep {
            true => "processors-sleep",
            false => "processors",
        }
    }

    fn about(&self) -> &'static str {
        match self.sleep {
            true => "processors on a machine that sleeps, too",
            false => "a processor comes and goes, and a task that runs on it wakes the guard",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Soak
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "none")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        match self.sleep {
            // Our kernel is built without suspend.
            true => vec![ON_DEBIAN],
            false => vec![ON_DEBIAN, LIMELIGHT],
        }
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize::default()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("guard", Work::Processors { sleep: self.sleep })]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
