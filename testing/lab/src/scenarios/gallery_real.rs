// SPDX-License-Identifier: GPL-2.0-or-later
//! FMP's experiment with real programs: Xvfb, openbox, feh, real key events, `cp` and recoll's
//! indexer. In Limelight's arms, limelight-agent reports the topmost app.

use limelight_apps::scenario::{Pause, RealGallery, RealLoad};

use super::terms::*;

const TASK: &str = "keys";
const COPY: &str = "cp";
const INDEX: &str = "recollindex";
const BOTH: &str = "cp-and-recollindex";
/// Highest number of photo pages that Limelight may re-read, as a share of those re-read on stock.
const MISSES_LEFT: f64 = 0.05;

/// Packages of the root file system in addition to the essential ones.
pub const PACKAGES: &[&str] = &["xvfb", "openbox", "feh", "recollcmd"];

/// The gallery with real programs.
pub const GALLERY_REAL: Spec = Spec {
    name: "gallery-real",
    about: "feh on Xvfb with real keys, beside cp and an indexer",
    variants: &[(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::Disk],
        &[COPY, INDEX, BOTH],
    )],
    arms: &[IDLE, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 288,
        data_mib: 1024,
        rootfs_packages: PACKAGES.to_vec(),
        ..MachineSize::default()
    },
    tasks: |variant, _| vec![Task::new(TASK, Work::GalleryReal(gallery(variant)))],
    time_limit_s: 600,
    must_hold,
    metrics: &[&[
        Metric::lower("read_miss_pages", "photo pages read again"),
        Metric::lower("major_faults", "major faults of the viewer"),
        Metric::lower("server_major_faults", "major faults of the X server"),
        Metric::lower("response_us", "response"),
        Metric::lower("response_mean_us", "mean response"),
    ]],
    ..Spec::BENCHMARK
};

/// Photos of 2.3 MiB each.
fn gallery(variant: &Variant) -> RealGallery {
    RealGallery {
        photos: 24,
        loads: match variant.load.as_str() {
            COPY => vec![RealLoad::Copy],
            INDEX => vec![RealLoad::Index],
            _ => vec![RealLoad::Copy, RealLoad::Index],
        },
        warm_up_ms: 180_000,
        pauses: [(500, 16), (5_000, 3)]
            .map(|(ms, swipes)| Pause { ms, swipes })
            .into(),
        app_cgroup: true,
    }
}

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let misses = |arm| seen.median(arm, "read_miss_pages");
        let again = misses(STOCK).zip(misses(arm)).map(|(stock, left)| {
            Verdict::new(
                format!(
                    "{}: {arm} reads at most 5 % of stock's photo pages again",
                    seen.variant
                ),
                left <= stock * MISSES_LEFT,
                format!("{left} of {stock} pages"),
            )
        });
        again
            .into_iter()
            .chain(seen.response_near(IDLE, arm))
            .collect::<Vec<_>>()
    })
}
