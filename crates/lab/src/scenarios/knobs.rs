// SPDX-License-Identifier: GPL-2.0-or-later
//! What no hand-set knob can do: pages that another process brought in, an app without a cgroup.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Gallery, Pause, Work};

use super::gallery_synthetic::{gallery, machine, metrics, LIMELIGHT, STOCK, TASK};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kernel, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant,
    Verdict,
};

const MEMORY_LOW: ArmOn = ArmOn::new(Arm::MemoryLow, Kernel::Debian);
const MEMORY_MIN: ArmOn = ArmOn::new(Arm::MemoryMin, Kernel::Debian);
const NO_CGROUP: &str = "no-cgroup";

/// Swipes touch a part of the pages only: what is gone afterwards was given up by reclaim.
const PAUSES: [Pause; 2] = [
    Pause { ms: 200, swipes: 4 },
    Pause {
        ms: 4_000,
        swipes: 1,
    },
];

/// See the module.
pub struct Knobs;

impl Knobs {
    fn gallery(variant: &Variant) -> Gallery {
        gallery("index-mapping", &PAUSES, variant.load != NO_CGROUP)
    }
}

/// Pages of one kind that were still there at the end, of those that were loaded.
fn kept(aggregates: &Aggregates, variant: &Variant, arm: ArmOn, kind: &str) -> Option<f64> {
    let footprint = Knobs::gallery(variant).footprint;
    let mib = match kind {
        "photos" => footprint.photos_mib,
        "heap" => footprint.heap_mib,
        "thumbnails" => footprint.thumbnails_mib,
        _ => footprint.library_mib,
    };
    let resident = aggregates.median(variant, arm, TASK, &format!("resident_{kind}_pages"))?;
    Some(resident / (f64::from(mib) * 256.0))
}

impl Scenario for Knobs {
    fn name(&self) -> &'static str {
        "knobs"
    }

    fn about(&self) -> &'static str {
        "memory.low and memory.min by hand against Limelight: shared pages, read()-only pages, no cgroup"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::Mglru, Lru::TwoList],
            &[SwapKind::Zram],
            &["own-cgroup", NO_CGROUP],
        )
    }

    fn arms(&self, variant: &Variant) -> Vec<ArmOn> {
        if variant.load == NO_CGROUP {
            vec![STOCK, LIMELIGHT]
        } else {
            vec![STOCK, MEMORY_LOW, MEMORY_MIN, LIMELIGHT]
        }
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new(
            TASK,
            Work::GallerySynthetic(Knobs::gallery(variant)),
        )]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for kind in ["photos", "heap", "thumbnails", "library"] {
                if let Some(share) = kept(aggregates, &variant, LIMELIGHT, kind) {
                    verdicts.push(Verdict::new(
                        format!("{variant}: {kind} of the topmost app stay in memory"),
                        share >= 0.95,
                        format!("{:.1} % kept", share * 100.0),
                    ));
                }
            }
            if let Some(share) = kept(aggregates, &variant, MEMORY_MIN, "library") {
                verdicts.push(Verdict::new(
                    format!("{variant}: memory.min does not reach a library that another cgroup is charged for"),
                    share < 0.5,
                    format!("{:.1} % kept", share * 100.0),
                ));
            }
            if variant.lru == Lru::Mglru {
                if let Some(share) = kept(aggregates, &variant, MEMORY_LOW, "photos") {
                    verdicts.push(Verdict::new(
                        format!("{variant}: memory.low does not hold under MGLRU"),
                        share < 0.5,
                        format!("{:.1} % kept", share * 100.0),
                    ));
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut all: Vec<Metric> = [
            ("resident_photos_pages", "photos kept"),
            ("resident_heap_pages", "heap kept"),
            ("resident_thumbnails_pages", "read()-only kept"),
            ("resident_library_pages", "shared library kept"),
        ]
        .into_iter()
        .map(|(name, label)| Metric {
            name,
            label,
            better: Better::Higher,
        })
        .collect();
        all.extend(metrics().into_iter().take(3));
        all
    }
}
