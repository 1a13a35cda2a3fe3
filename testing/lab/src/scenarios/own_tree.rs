// SPDX-License-Identifier: GPL-2.0-or-later
//! A machine without systemd, where apps have no cgroups of their own: the daemon creates them. On
//! our kernel it does so only if configured, because the device needs none.

use std::time::Duration;

use limelight_apps::scenario::{OwnTree as Parameters, Work};

use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// The daemon's own cgroup tree.
pub struct OwnTree;

impl Scenario for OwnTree {
    fn name(&self) -> &'static str {
        "own-tree"
    }

    fn about(&self) -> &'static str {
        "without systemd, apps get cgroups in a tree of limelightd's, and nothing of it is left behind"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Zram, "session")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize::default()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let task = |name, handed_down| Task::new(name, Work::OwnTree(Parameters { handed_down }));
        vec![task("handed-down", true), task("bare", false)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
