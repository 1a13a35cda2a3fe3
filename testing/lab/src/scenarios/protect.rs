// SPDX-License-Identifier: GPL-2.0-or-later
//! The core of `protect` as a test: pages that the load evicts on stock stay resident with
//! Limelight, under the load that hurts each LRU, with and without a cgroup, whichever process
//! faulted them in.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Family, Gallery, Pause, Work};

use super::gallery::{self, GROW, INDEX_MAPPING, INDEX_READ};
use super::terms::{
    Seen, IDLE, IDLE_OURS, LIMELIGHT, MEMORY_LOW, MEMORY_MIN, ON_DEBIAN, STOCK, STOCK_OURS,
};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant, Verdict,
};

/// Share of the pages of each kind that must be resident at the end.
const KEPT: f64 = 0.95;

/// Limelight keeps what stock loses.
pub struct Protect;

/// Beyond the reach of any stock knob: no cgroup of its own, pages charged to other cgroups,
/// unmapped pages, and processes created later.
pub struct BeyondCgroups;

const SWIPE: &str = "swipe";

impl Scenario for Protect {
    fn name(&self) -> &'static str {
        "protect"
    }

    fn about(&self) -> &'static str {
        "the topmost app's pages stay under the load that hurts each LRU"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Disk, INDEX_READ),
            Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING),
            Variant::new(Lru::Mglru, SwapKind::Zram, GROW),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new(
            SWIPE,
            Work::GallerySynthetic(gallery::brief(&variant.load)),
        )]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            let seen = Seen {
                aggregates,
                variant: &variant,
                task: SWIPE,
            };
            verdicts.extend(seen.stock_is_hurt(0.0, STOCK));
            for arm in [ON_DEBIAN, LIMELIGHT] {
                verdicts.extend(seen.faults_gone(IDLE, STOCK, arm));
                verdicts.extend(seen.viewer_lives(arm));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        gallery::metrics()
    }
}

/// The tasks of [`BeyondCgroups`]: name, whether the app has a cgroup, and which process does its
/// work.
const FAMILIES: [(&str, bool, Family); 3] = [
    ("no-cgroup", false, Family::Single),
    ("no-cgroup-child", false, Family::ChildBeforeFocus),
    ("no-cgroup-later-child", false, Family::ChildAfterFocus),
];
/// Share of the library that locks must keep. The load is already running when the app comes to the
/// foreground, and pages evicted before they are locked come back only when they are used.
const KEPT_BY_LOCKS: f64 = 0.9;
const OTHERS_PAGES: &str = "others-pages";

fn short(load: &str) -> Gallery {
    Gallery {
        pauses: vec![Pause { ms: 200, swipes: 6 }],
        ..gallery::brief(load)
    }
}

impl Scenario for BeyondCgroups {
    fn name(&self) -> &'static str {
        "beyond-cgroups"
    }

    fn about(&self) -> &'static str {
        "pages that no cgroup knob reaches are kept, and on our kernel those of children too"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Disk, INDEX_READ),
            Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![MEMORY_LOW, MEMORY_MIN, ON_DEBIAN, STOCK_OURS, LIMELIGHT]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: match variant.lru {
                // With more memory, a read load would not evict the library.
                Lru::TwoList => 160,
                // Large enough that the budget has room for locking the library as well.
                Lru::Mglru => 192,
            },
            ..gallery::machine(256)
        }
    }

    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task> {
        let task = |name: &str, app_cgroup, family| {
            Task::new(
                name,
                Work::GallerySynthetic(Gallery {
                    app_cgroup,
                    family,
                    ..short(&variant.load)
                }),
            )
        };
        match arm.arm {
            Arm::MemoryLow | Arm::MemoryMin | Arm::LimelightOnDebian => {
                vec![task(OTHERS_PAGES, true, Family::Single)]
            }
            Arm::Stock => vec![task(FAMILIES[0].0, false, Family::Single)],
            _ => FAMILIES
                .iter()
                .map(|&(name, app_cgroup, family)| task(name, app_cgroup, family))
                .collect(),
        }
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(480)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (task, _, _) in FAMILIES {
                let seen = Seen {
                    aggregates,
                    variant: &variant,
                    task,
                };
                let footprint = short(&variant.load).footprint;
                for (kind, mib) in [
                    ("photos", footprint.photos_mib),
                    ("heap", footprint.heap_mib),
                    ("thumbnails", footprint.thumbnails_mib),
                    ("library", footprint.library_mib),
                ] {
                    let kept = format!("resident_{kind}_pages");
                    verdicts.extend(seen.kept(LIMELIGHT, &kept, f64::from(mib * 256), KEPT));
                }
            }
            let seen = Seen {
                aggregates,
                variant: &variant,
                task: FAMILIES[0].0,
            };
            verdicts.extend(seen.faults_gone(IDLE_OURS, STOCK_OURS, LIMELIGHT));
            let seen = Seen {
                task: OTHERS_PAGES,
                ..seen
            };
            let library = f64::from(short(&variant.load).footprint.library_mib * 256);
            verdicts.extend(seen.kept(ON_DEBIAN, "resident_library_pages", library, KEPT_BY_LOCKS));
            if variant.lru == Lru::Mglru {
                verdicts.extend(seen.library_faults_gone(MEMORY_MIN, ON_DEBIAN));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let mut all = gallery::metrics();
        let kept = |name, label| Metric {
            name,
            label,
            better: crate::scenario::Better::Higher,
        };
        all.extend([
            kept("resident_library_pages", "shared pages kept"),
            kept("resident_thumbnails_pages", "read-only pages kept"),
        ]);
        all
    }
}
