// SPDX-License-Identifier: GPL-2.0-or-later
//! `prezero` in a whole machine: each engine serves a topmost app, window by window, with every
//! page verified as it is handed out; then disks fail, are overwritten, and are unplugged.

use std::time::Duration;

use limelight_apps::scenario::{Damage, Engine, PrezeroEngines, Work};

use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Bus, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict, ZeroDisk,
    Zeroes,
};

/// All engines, working and failing.
pub struct Prezero;

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

impl Scenario for Prezero {
    fn name(&self) -> &'static str {
        "prezero"
    }

    fn about(&self) -> &'static str {
        "the pool serves windows with every engine, and survives disks that break"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "engines")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 384,
            vcpus: 2,
            zero_disks: DISKS.to_vec(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
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
        let work = PrezeroEngines {
            pages: 2048,
            engines: engines.map(|(name, engine)| (name.into(), engine)).into(),
            broken: broken
                .map(|(name, engine, damage)| (name.into(), engine, damage))
                .into(),
        };
        vec![Task::new("engines", Work::PrezeroEngines(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    /// The kernel reports an unreadable disk and a missing one.
    fn expected_console(&self) -> &'static [&'static str] {
        &["I/O error"]
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}
