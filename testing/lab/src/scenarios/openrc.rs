// SPDX-License-Identifier: GPL-2.0-or-later
//! A Debian without systemd: sysvinit, OpenRC and elogind, with the daemon as an OpenRC service and
//! the agent in a session's autostart.

use std::time::Duration;

use limelight_apps::plan::Init;
use limelight_apps::scenario::Work;

use super::terms::ON_DEBIAN;
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Limelight with OpenRC.
pub struct Openrc;

const TASK: &str = "life";
const PACKAGES: [&str; 10] = [
    "sysvinit-core",
    "openrc",
    "dbus",
    "libpam-elogind",
    "dex",
    "sway",
    "foot",
    "galculator",
    "mousepad",
    "fonts-dejavu-core",
];

impl Scenario for Openrc {
    fn name(&self) -> &'static str {
        "openrc"
    }

    fn about(&self) -> &'static str {
        "a user's session with sway and three apps where OpenRC runs the daemon"
    }

    /// A complete Debian takes minutes to boot on an emulated CPU.
    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "none")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 1024,
            rootfs_packages: PACKAGES.map(String::from).to_vec(),
            init: Init::Openrc,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new(TASK, Work::Openrc)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(600)
    }

    /// Repetitions add nothing to pass-or-fail checks.
    fn repetitions(&self) -> u32 {
        1
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
