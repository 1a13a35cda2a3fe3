// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel package of `make kernel-deb`. A machine boots its kernel and loads its modules; then
//! the package and Limelight's own package are installed and removed on that machine.

use std::time::Duration;

use limelight_apps::plan::{Arm, Init};
use limelight_apps::scenario::Work;

use super::package::BASE;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kernel, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict,
};

/// The Debian package of our kernel.
pub struct PackageKernel;

impl Scenario for PackageKernel {
    fn name(&self) -> &'static str {
        "package-kernel"
    }

    fn about(&self) -> &'static str {
        "the Debian package of our kernel booted, installed, used and removed"
    }

    fn kind(&self) -> Kind {
        Kind::Named
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "none")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ArmOn::new(Arm::Limelight, Kernel::Packaged)]
    }

    /// Includes Debian's tools for creating an initramfs.
    fn machine(&self, _variant: &Variant) -> MachineSize {
        let packages = BASE.iter().chain(&["initramfs-tools", "zstd"]);
        MachineSize {
            memory_mib: 768,
            rootfs_packages: packages.map(|name| name.to_string()).collect(),
            init: Init::Systemd,
            packaged: true,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("life", Work::KernelPackage)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(600)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
