// SPDX-License-Identifier: GPL-2.0-or-later
//! limelightd as built for phones, on a 64-bit ARM machine with Debian's kernels. It keeps the
//! topmost app's pages, protection follows the focus, and a leaking app is killed. All values are
//! restored however the daemon ends. Not part of `make test`, because it needs another emulator and
//! programs for another architecture.

use limelight_apps::scenario::Leaker;

use super::gallery::INDEX_MAPPING;
use super::terms::*;
use super::{focus, guest_checks, leak};

const FOCUS: &str = "focus";
/// Name of the leak task, and of the variant that has free memory for an app to grow before others
/// are killed.
const LEAK: &str = "leak";
/// The variant whose machine has Android's cgroup v1 mounts.
const ANDROID: &str = "android";
const MODERN: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Arm64);
const OLDEST: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Arm64Oldest);

/// limelightd on 64-bit ARM. The verdicts judge protection and the leak; the guest's checks cover
/// the rest.
pub const AARCH64: Spec = Spec {
    name: "aarch64",
    about: "limelightd protects, kills and restores everything on a 64-bit ARM machine",
    variants: &[
        (&[Lru::Mglru], &[SwapKind::Disk], &[INDEX_MAPPING, LEAK]),
        (&[Lru::Mglru], &[SwapKind::None], &[ANDROID]),
    ],
    arms: &[MODERN, OLDEST],
    excludes: |variant, arm| (variant.load == ANDROID) != (arm == OLDEST),
    machine,
    tasks,
    time_limit_s: 300,
    must_hold: |aggregates| {
        Seen::each_arm(aggregates, FOCUS, |seen, arm| {
            let mut verdicts = focus::kept(seen, arm);
            verdicts.extend(leak::ended(&seen.of(LEAK), arm));
            verdicts
        })
    },
    ..Spec::TEST
};

fn machine(variant: &Variant) -> MachineSize {
    let machine = MachineSize {
        memory_mib: 384,
        free_mib: Some(150),
        ..MachineSize::default()
    };
    match variant.load.as_str() {
        ANDROID => MachineSize {
            cgroup_v1: true,
            ..machine
        },
        LEAK => MachineSize {
            swap_mib: 96,
            ..machine
        },
        _ => MachineSize {
            free_mib: Some(130),
            data_mib: 640,
            swap_mib: 96,
            ..machine
        },
    }
}

fn tasks(variant: &Variant, _arm: ArmOn) -> Vec<Task> {
    let leak = leak::task(LEAK, Leaker::Background, 24);
    match variant.load.as_str() {
        ANDROID => vec![Task::new("rules", Work::AndroidRules), leak],
        LEAK => vec![leak],
        _ => vec![
            Task::new("startup", Work::Startup),
            Task::new("classes", Work::ClassRules),
            focus::task(FOCUS, variant),
            guest_checks::daemon_killed(variant),
        ],
    }
}
