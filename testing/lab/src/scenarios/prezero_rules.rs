// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero`'s promises other than speed. The guest checks them.

use limelight_apps::scenario::{Damage, Engine, PrezeroEngines};

use super::terms::*;
use crate::scenario::{Bus, ZeroDisk, Zeroes};

/// The variant with the first response window of a previously seen app.
const FIRST: &str = "first-window";

/// The checks as a test.
pub const RULES: Spec = Spec {
    name: "prezero-rules",
    about: "only zeroes are handed out, whatever becomes of the engine; memory goes back, nothing \
            is lost",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["engines", FIRST])],
    arms: &[LIMELIGHT],
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

/// The same over millions of pages.
pub const SOAK: Spec = Spec {
    name: "prezero-soak",
    about: "the same over two million pages",
    kind: Kind::Soak,
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["engines"])],
    tasks: |_, _| vec![Task::new("rules", Work::PrezeroRules { rounds: 200 })],
    time_limit_s: 3600,
    ..RULES
};

/// The disks, in this order.
const DISKS: [ZeroDisk; 4] = [
    ZeroDisk::new(Bus::Virtio, Zeroes::Null),
    ZeroDisk::new(Bus::Nvme, Zeroes::Null),
    ZeroDisk::new(Bus::Virtio, Zeroes::File),
    ZeroDisk::new(Bus::Virtio, Zeroes::Failing),
];
/// Offset of the failing disk's bad sector: its middle.
const BAD_MIB: u32 = ZeroDisk::MIB / 2;

fn disk(disk: u32, offset_mib: u32) -> Engine {
    Engine::Block {
        disk,
        offset_mib,
        trusted: false,
    }
}

/// `prezero` in a whole machine: each engine serves a topmost app, window by window, with every
/// page verified as it is handed out; then disks fail, are overwritten, and are unplugged.
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
    // The kernel reports an unreadable disk and a missing one.
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
    // The unplugged disk comes last: it does not come back.
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
