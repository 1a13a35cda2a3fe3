// SPDX-License-Identifier: GPL-2.0-or-later
//! `kill -9 limelightd` under load: the guest checks that the kernel drops its state at once and
//! that a successor restores every value.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::gallery::{self, INDEX_MAPPING};
use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Restore after a killed daemon.
pub struct Restore;

impl Scenario for Restore {
    fn name(&self) -> &'static str {
        "restore"
    }

    fn about(&self) -> &'static str {
        "limelightd is killed in the middle of load: nothing is left behind"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING)]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let mut work = gallery::brief(&variant.load);
        work.pauses.iter_mut().for_each(|pause| pause.swipes = 4);
        vec![Task::new("kill", Work::DaemonKilled(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
