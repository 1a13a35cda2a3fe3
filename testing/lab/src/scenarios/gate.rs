// SPDX-License-Identifier: GPL-2.0-or-later
//! The safety gate: the foreground app shares a cgroup with background apps while memory runs
//! short.

use std::time::Duration;

use limelight_apps::scenario::{Gate as Parameters, Sharing, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Shared cgroups under memory pressure.
pub struct Gate;

const SITUATIONS: [(&str, Sharing); 6] = [
    ("child", Sharing::Child),
    ("nested", Sharing::Nested),
    ("windows", Sharing::Windows),
    ("session", Sharing::Session),
    ("moved", Sharing::Moved),
    ("container", Sharing::Container),
];

impl Scenario for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn about(&self) -> &'static str {
        "a foreground app that shares its cgroup with background apps is never stopped or killed"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Disk, "shared-cgroup")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 256,
            free_mib: Some(150),
            vcpus: 2,
            data_mib: 0,
            swap_mib: 300,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let task = |(name, sharing)| Task::new(name, Work::Gate(Parameters { sharing }));
        SITUATIONS.into_iter().map(task).collect()
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(180)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
