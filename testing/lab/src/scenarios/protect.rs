// SPDX-License-Identifier: GPL-2.0-or-later
//! The core of `protect` as a test. Pages that a load evicts on stock stay resident with Limelight,
//! with and without a cgroup, regardless of which process faulted them in. Each page replacement is
//! tested with the load that hurts it most.

use limelight_apps::scenario::{Family, Gallery, Pause};

use super::gallery::{self, GROW, INDEX_MAPPING, INDEX_READ};
use super::terms::*;

const SWIPE: &str = "swipe";

/// Limelight keeps the pages that stock loses.
pub const PROTECT: Spec = Spec {
    name: "protect",
    about: "the foreground app's pages stay under the load that hurts each LRU most",
    variants: &[
        (&[Lru::TwoList], &[SwapKind::Disk], &[INDEX_READ]),
        (&[Lru::Mglru], &[SwapKind::Disk], &[INDEX_MAPPING]),
        (&[Lru::Mglru], &[SwapKind::Zram], &[GROW]),
    ],
    arms: &[STOCK, ON_DEBIAN, LIMELIGHT],
    // `recorded-gallery` judges this arm under the same loads, with zram.
    excludes: |variant, arm| arm == ON_DEBIAN && variant.swap == SwapKind::Disk,
    machine: |variant| match (variant.swap, variant.lru) {
        // The viewer and the compressed hog need more than `machine` has free. One of them would
        // have to lose its pages or its life.
        (SwapKind::Zram, _) => gallery::comparable_machine(256),
        // The viewer's cgroup is charged 56 MiB when the library's pages are evicted and faulted in
        // again. The budget of the distribution's kernel must cover that: with 160 MiB, it is
        // 51 MiB, and the viewer has 0 to 7 % of stock's major faults.
        _ => MachineSize {
            memory_mib: 192,
            ..gallery::machine(256)
        },
    },
    tasks: |variant, _| {
        let work = gallery::brief(&variant.load);
        vec![Task::new(SWIPE, Work::GallerySynthetic(work))]
    },
    time_limit_s: 240,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, SWIPE, |seen| {
            let mut verdicts = Vec::from_iter(seen.stock_is_hurt(0.0, STOCK));
            for arm in OURS {
                verdicts.extend(seen.faults_gone(IDLE, STOCK, arm));
                verdicts.extend(seen.viewer_lives(arm));
                verdicts.extend(seen.lives(arm, "load_grow_alive", "the hog"));
            }
            verdicts
        })
    },
    metrics: &[gallery::METRICS],
    // How many of stock's faults there are must not depend on the host's speed: in fast mode, the
    // load of a slow host evicts fewer pages.
    mode: Mode::Exact,
    ..Spec::TEST
};

/// The tasks of Limelight's arm in [`BEYOND_CGROUPS`]: name, whether the app has a cgroup, and
/// which process does its work.
const FAMILIES: [(&str, bool, Family); 3] = [
    ("no-cgroup", false, Family::Single),
    ("no-cgroup-child", false, Family::ChildBeforeFocus),
    ("no-cgroup-later-child", false, Family::ChildAfterFocus),
];
const OTHERS_PAGES: &str = "others-pages";
/// Lowest share of the pages of each kind that must be resident at the end.
const KEPT: f64 = 0.95;
/// Lowest share of the library that locks must keep. It is lower than `KEPT`, because a page that
/// the load evicts before the daemon locks it returns only when the app uses it.
const KEPT_BY_LOCKS: f64 = 0.9;

/// Cases that no knob of a stock kernel covers: an app without a cgroup of its own, pages charged
/// to other cgroups, unmapped pages, and processes created later.
pub const BEYOND_CGROUPS: Spec = Spec {
    name: "beyond-cgroups",
    about: "pages that no cgroup knob reaches are kept, and on our kernel those of children too",
    variants: gallery::HURTING,
    arms: &[MEMORY_MIN, ON_DEBIAN, STOCK_OURS, LIMELIGHT],
    further_arms: &[MEMORY_LOW],
    // Only with MGLRU does a verdict compare with it.
    excludes: |variant, arm| arm == MEMORY_MIN && variant.lru == Lru::TwoList,
    machine: |variant| MachineSize {
        memory_mib: match variant.lru {
            // With more memory, the load would not evict the library.
            Lru::TwoList => 160,
            // Large enough that the budget also covers the locked library.
            Lru::Mglru => 192,
        },
        ..gallery::machine(256)
    },
    tasks: |variant, arm| {
        let task = |(name, app_cgroup, family)| {
            let work = Gallery {
                app_cgroup,
                family,
                ..short(variant)
            };
            Task::new(name, Work::GallerySynthetic(work))
        };
        match arm.arm {
            Arm::Limelight => FAMILIES.map(task).into(),
            Arm::Stock => vec![task(FAMILIES[0])],
            _ => vec![task((OTHERS_PAGES, true, Family::Single))],
        }
    },
    time_limit_s: 480,
    must_hold: kept_beyond_cgroups,
    metrics: &[
        gallery::METRICS,
        &[
            Metric::higher("resident_library_pages", "library pages kept"),
            Metric::higher("resident_thumbnails_pages", "unmapped pages kept"),
        ],
    ],
    ..Spec::TEST
};

fn short(variant: &Variant) -> Gallery {
    Gallery {
        // The daemon locks pages of other cgroups once the app has been topmost for a second.
        settle_ms: 3_000,
        // The two-list variant has too little memory for the default budget to cover the viewer and
        // the locked library, 64 MiB in all.
        config: match variant.lru {
            Lru::TwoList => "[protect]\nbudget_percent = 80\n".to_owned(),
            Lru::Mglru => String::new(),
        },
        pauses: vec![Pause { ms: 200, swipes: 6 }],
        ..gallery::brief(&variant.load)
    }
}

fn kept_beyond_cgroups(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_variant(aggregates, OTHERS_PAGES, |seen| {
        let mut verdicts = Vec::new();
        let footprint = short(seen.variant).footprint;
        for (task, _, _) in FAMILIES {
            for (kind, mib) in [
                ("photos", footprint.photos_mib),
                ("heap", footprint.heap_mib),
                ("thumbnails", footprint.thumbnails_mib),
                ("library", footprint.library_mib),
            ] {
                let kept = format!("resident_{kind}_pages");
                let pages = f64::from(mib * 256);
                verdicts.extend(seen.of(task).kept(LIMELIGHT, &kept, pages, KEPT));
            }
        }
        let alone = seen.of(FAMILIES[0].0);
        verdicts.extend(alone.faults_gone(IDLE_OURS, STOCK_OURS, LIMELIGHT));
        let library = f64::from(footprint.library_mib * 256);
        verdicts.extend(seen.kept(ON_DEBIAN, "resident_library_pages", library, KEPT_BY_LOCKS));
        if seen.variant.lru == Lru::Mglru {
            verdicts.extend(seen.library_faults_gone(MEMORY_MIN, ON_DEBIAN));
        }
        verdicts
    })
}
