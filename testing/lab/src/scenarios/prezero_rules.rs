// SPDX-License-Identifier: GPL-2.0-or-later
//! The promises of `prezero` other than speed, checked by the guest.

use limelight_apps::scenario::{Damage, Engine, PrezeroEngines};

use super::terms::*;
use crate::scenario::{Bus, ZeroDisk, Zeroes};

/// The variant that tests the first response window of an app that was seen before.
const FIRST: &str = "first-window";

/// The checks as a test, on a small number of pages.
pub const RULES: Spec = Spec {
    name: "prezero-rules",
    about: "only zeroed pages are handed out, even if the engine fails; memory is returned and \
            none is lost",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["engines", FIRST])],
    arms: &[LIMELIGHT],
    further_arms: &[DEBUG],
    machine: |variant| MachineSize {
        memory_mib: if variant.load == FIRST { 512 } else { 256 },
        ..MachineSize::default()
    },
    tasks: |variant, _| match variant.load.as_str() {
        FIRST => vec![Task::new(FIRST, Work::PrezeroFirstWindow)],
        _ => vec![Task::new("rules", Work::PrezeroRules { rounds: 12 })],
    },
    time_limit_s: 240,
    ..Spec::TEST
};

/// [`RULES`] over millions of pages.
pub const SOAK: Spec = Spec {
    name: "prezero-soak",
    about: "the same over two million pages",
    kind: Kind::Soak,
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["engines"])],
    tasks: |_, _| vec![Task::new("rules", Work::PrezeroRules { rounds: 200 })],
    time_limit_s: 3600,
    ..RULES
};

/// The zero disks of `ENGINES`, in this order.
const DISKS: [ZeroDisk; 4] = [
    ZeroDisk::new(Bus::Virtio, Zeroes::Null),
    ZeroDisk::new(Bus::Nvme, Zeroes::Null),
    ZeroDisk::new(Bus::Virtio, Zeroes::File),
    ZeroDisk::new(Bus::Virtio, Zeroes::Failing),
];
/// Offset of the failing disk's bad sector in MiB: the middle of the disk.
const BAD_MIB: u32 = ZeroDisk::MIB / 2;

fn disk(disk: u32, offset_mib: u32) -> Engine {
    Engine::Block {
        disk,
        offset_mib,
        trusted: false,
    }
}

/// `prezero` in a whole machine. Each engine serves a topmost app for several windows, and every
/// page is verified when it is handed out. Then one disk has a bad sector, one is overwritten, and
/// one is unplugged.
pub const ENGINES: Spec = Spec {
    name: "prezero",
    about: "the pool serves windows with every engine, and survives disks that break",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["engines"])],
    arms: &[LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 384,
        zero_disks: DISKS.to_vec(),
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new("engines", engines())],
    time_limit_s: 240,
    // The kernel reports I/O errors of the bad sector and of the unplugged disk.
    expected_console: &["I/O error"],
    ..Spec::TEST
};

fn engines() -> Work {
    let engines = [
        ("cpu", Engine::Cpu),
        ("virtio", disk(0, 0)),
        ("nvme", disk(1, 0)),
        ("file", disk(2, 0)),
    ];
    // The unplugged disk comes last, because it does not return.
    let broken = [
        ("bad sector", disk(3, BAD_MIB), Damage::None),
        ("written", disk(2, 0), Damage::Written),
        ("pulled", disk(0, 0), Damage::Removed),
    ];
    Work::PrezeroEngines(PrezeroEngines {
        pages: 2048,
        engines: engines.map(|(name, engine)| (name.into(), engine)).into(),
        broken: broken
            .map(|(name, engine, damage)| (name.into(), engine, damage))
            .into(),
    })
}
