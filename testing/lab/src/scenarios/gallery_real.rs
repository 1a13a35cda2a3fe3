// SPDX-License-Identifier: GPL-2.0-or-later
//! FMP's experiment with real programs: Xvfb, openbox, feh, real key events, `cp` and recoll's
//! indexer. In Limelight's arms the per-session agent reports the topmost app.

use std::time::Duration;

use limelight_apps::scenario::{Pause, RealGallery, RealLoad, Work};

use super::terms::{Seen, BEST_STOCK, IDLE, LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant, Verdict,
};

/// The gallery with real programs.
pub struct GalleryReal;

const TASK: &str = "keys";
const COPY: &str = "cp";
const INDEX: &str = "recollindex";
const BOTH: &str = "cp-and-recollindex";
/// Photos of 2.3 MiB each.
const PHOTOS: u32 = 24;
/// Share of stock's re-read photo pages that Limelight may still re-read.
const MISSES_LEFT: f64 = 0.05;

/// Packages of the root file system in addition to the essential ones.
pub fn rootfs_packages() -> Vec<String> {
    ["xvfb", "openbox", "feh", "recollcmd"]
        .map(String::from)
        .to_vec()
}

impl Scenario for GalleryReal {
    fn name(&self) -> &'static str {
        "gallery-real"
    }

    fn about(&self) -> &'static str {
        "feh on Xvfb with real keys, beside cp and an indexer"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::TwoList, Lru::Mglru],
            &[SwapKind::Disk],
            &[COPY, INDEX, BOTH],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            free_mib: None,
            memory_mib: 288,
            vcpus: 2,
            data_mib: 1024,
            swap_mib: 256,
            rootfs_packages: rootfs_packages(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let loads = match variant.load.as_str() {
            COPY => vec![RealLoad::Copy],
            INDEX => vec![RealLoad::Index],
            _ => vec![RealLoad::Copy, RealLoad::Index],
        };
        let work = RealGallery {
            photos: PHOTOS,
            loads,
            warm_up_ms: 180_000,
            pauses: vec![
                Pause {
                    ms: 500,
                    swipes: 16,
                },
                Pause {
                    ms: 5_000,
                    swipes: 3,
                },
            ],
            app_cgroup: true,
        };
        vec![Task::new(TASK, Work::GalleryReal(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(600)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            let seen = Seen {
                aggregates,
                variant: &variant,
                task: TASK,
            };
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let misses = |arm| seen.median(arm, "read_miss_pages");
                if let (Some(stock), Some(left)) = (misses(STOCK), misses(arm)) {
                    verdicts.push(Verdict::new(
                        format!("{variant}: {arm} reads at most 5 % of stock's photo pages again"),
                        left <= stock * MISSES_LEFT,
                        format!("{left} of {stock} pages"),
                    ));
                }
                verdicts.extend(seen.response_near(IDLE, arm));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric::new(name, label, Better::Lower);
        vec![
            metric("read_miss_pages", "photo pages read again"),
            metric("major_faults", "major faults of the viewer"),
            metric("server_major_faults", "major faults of the X server"),
            metric("response_us", "response"),
            metric("response_mean_us", "mean response"),
        ]
    }
}
