// SPDX-License-Identifier: GPL-2.0-or-later
//! FMP's experiment with our own programs: a photo viewer beside a copy, an indexer, a hog.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Access, Family, Footprint, Gallery, Load, Pause, Work};

use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kernel, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant,
    Verdict,
};

/// The limit, on the distribution's kernel.
pub const IDLE: ArmOn = ArmOn::new(Arm::Idle, Kernel::Debian);
/// The limit, on ours.
pub const IDLE_OURS: ArmOn = ArmOn::new(Arm::Idle, Kernel::Limelight);
/// Nothing is done.
pub const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
/// The best hand-set knob.
pub const BEST_STOCK: ArmOn = ArmOn::new(Arm::BestStock, Kernel::Debian);
/// The daemon on the distribution's kernel.
pub const ON_DEBIAN: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Debian);
/// The daemon on ours.
pub const LIMELIGHT: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);

/// The one task of an arm.
pub const TASK: &str = "swipe";

/// Quick swipes, then pauses in which a background load has time to take everything.
const PAUSES: [Pause; 3] = [
    Pause {
        ms: 200,
        swipes: 12,
    },
    Pause {
        ms: 2_000,
        swipes: 2,
    },
    Pause {
        ms: 5_000,
        swipes: 1,
    },
];

/// Pauses of a person who looks at a photo.
const LONG_PAUSES: [Pause; 5] = [
    Pause { ms: 200, swipes: 5 },
    Pause {
        ms: 1_000,
        swipes: 3,
    },
    Pause {
        ms: 3_000,
        swipes: 2,
    },
    Pause {
        ms: 10_000,
        swipes: 1,
    },
    Pause {
        ms: 30_000,
        swipes: 1,
    },
];

/// The load that a variant is named after. Files are larger than the guest's memory.
fn load(name: &str) -> Load {
    match name {
        "copy" => Load::Copy { mib: 256 },
        "index-read" => Load::Index {
            access: Access::Read,
            mib: 320,
        },
        "index-mapping" => Load::Index {
            access: Access::Mapping,
            mib: 320,
        },
        _ => Load::Grow { mib: 140 },
    }
}

/// The viewer of a 160 MiB guest beside one load.
pub fn gallery(load_name: &str, pauses: &[Pause], app_cgroup: bool) -> Gallery {
    Gallery {
        footprint: Footprint::SMALL,
        loads: vec![load(load_name)],
        // Who gets the CPU is boost's business; with two CPUs nobody waits for one here.
        load_nice: 19,
        warm_up_ms: 4_000,
        pauses: pauses.to_vec(),
        swipe_percent: 20,
        app_cgroup,
        family: Family::Single,
    }
}

/// The guest that all gallery scenarios share.
pub fn machine() -> MachineSize {
    MachineSize {
        memory_mib: 160,
        vcpus: 2,
        data_mib: 1024,
        swap_mib: 256,
        rootfs_packages: Vec::new(),
    }
}

/// The figures that gallery scenarios show.
pub fn metrics() -> Vec<Metric> {
    let metric = |name, label, better| Metric {
        name,
        label,
        better,
    };
    vec![
        metric("major_faults", "major faults", Better::Lower),
        metric("read_miss_pages", "cached reads lost", Better::Lower),
        metric("response_us", "response", Better::Lower),
        metric("response_mean_us", "mean response", Better::Lower),
        metric("load_copy_kib_per_s", "copy", Better::Higher),
        metric("load_index_read_kib_per_s", "index by read", Better::Higher),
        metric(
            "load_index_mapping_kib_per_s",
            "index by mapping",
            Better::Higher,
        ),
        metric("load_grow_kib_per_s", "grow", Better::Higher),
        metric("oom_kills", "OOM kills", Better::Lower),
    ]
}

/// What `index` and `grow` promise for one arm: at least 95 % of the faults that the load causes on
/// stock are gone, and the viewer lives.
pub fn faults_gone(
    aggregates: &Aggregates,
    variant: &Variant,
    arm: ArmOn,
    limit: ArmOn,
) -> Vec<Verdict> {
    let median = |arm, name| aggregates.median(variant, arm, TASK, name);
    let mut verdicts = Vec::new();
    if let Some(alive) = median(arm, "viewer_alive") {
        verdicts.push(Verdict::new(
            format!("{variant} {arm}: the topmost app lives"),
            alive == 1.0,
            format!(
                "alive {alive}, OOM kills {:?}",
                median(arm, "oom_kills").unwrap_or(0.0)
            ),
        ));
    }
    let (Some(idle), Some(stock), Some(ours)) = (
        median(limit, "major_faults"),
        median(STOCK, "major_faults"),
        median(arm, "major_faults"),
    ) else {
        return verdicts;
    };
    let caused = stock - idle;
    let what = format!("{variant} {arm}: 95 % of the load-caused major faults are gone");
    // A handful of faults is what a boot's leftovers cause: stock is at the limit already.
    if caused < 20.0 {
        verdicts.push(Verdict::new(
            format!("{what} (stock is at the limit: no more than there)"),
            ours - idle <= 20.0,
            format!("idle {idle}, stock {stock}, {arm} {ours}"),
        ));
    } else {
        verdicts.push(Verdict::new(
            what,
            ours - idle <= 0.05 * caused,
            format!("idle {idle}, stock {stock}, {arm} {ours}"),
        ));
    }
    verdicts
}

/// The response's distance from the limit of the same kernel.
fn near_the_limit(
    aggregates: &Aggregates,
    variant: &Variant,
    arm: ArmOn,
    limit: ArmOn,
) -> Option<Verdict> {
    let ratio = aggregates.ratio(variant, TASK, "response_us", arm, limit)?;
    Some(Verdict::new(
        format!("{variant} {arm}: response within 1.10x of the limit"),
        ratio <= 1.10,
        format!("{ratio:.2}x of {limit}"),
    ))
}

/// Background throughput against the best hand-set knob.
fn background(aggregates: &Aggregates, variant: &Variant, arm: ArmOn) -> Option<Verdict> {
    let name = format!("load_{}_kib_per_s", variant.load.replace('-', "_"));
    let ratio = aggregates.ratio(variant, TASK, &name, arm, BEST_STOCK)?;
    Some(Verdict::new(
        format!("{variant} {arm}: background throughput within 3 % of best-stock"),
        ratio >= 0.97,
        format!("{ratio:.2}x of {BEST_STOCK}"),
    ))
}

/// See the module.
pub struct GallerySynthetic;

impl Scenario for GallerySynthetic {
    fn name(&self) -> &'static str {
        "gallery-synthetic"
    }

    fn about(&self) -> &'static str {
        "FMP's experiment: a photo viewer beside a copy, an indexer, a hog; both LRUs, every kind of swap"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::Mglru, Lru::TwoList],
            &[SwapKind::Zram, SwapKind::Disk, SwapKind::None],
            &["index-mapping", "index-read", "grow", "copy"],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE, IDLE_OURS, STOCK, BEST_STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let gallery = gallery(&variant.load, &PAUSES, true);
        vec![Task::new(TASK, Work::GallerySynthetic(gallery))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(180)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            // Without swap only a killer stops a hog: it is reported, and the app must live.
            let hopeless = variant.swap == SwapKind::None && variant.load == "grow";
            for (arm, limit) in [(ON_DEBIAN, IDLE), (LIMELIGHT, IDLE_OURS)] {
                let faults = faults_gone(aggregates, &variant, arm, limit);
                if hopeless {
                    verdicts.extend(faults.into_iter().take(1));
                    continue;
                }
                verdicts.extend(faults);
                verdicts.extend(near_the_limit(aggregates, &variant, arm, limit));
            }
            if !hopeless {
                verdicts.extend(background(aggregates, &variant, ON_DEBIAN));
                verdicts.extend(background(aggregates, &variant, LIMELIGHT));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }

    fn expected_console(&self) -> &'static [&'static str] {
        // `grow` without swap ends in the OOM killer on every kernel.
        &["Out of memory", "invoked oom-killer", "oom-kill:"]
    }
}

/// The same with the pauses of a person: the first swipe after each is what hurts.
pub struct GalleryThink;

impl Scenario for GalleryThink {
    fn name(&self) -> &'static str {
        "gallery-think"
    }

    fn about(&self) -> &'static str {
        "the photo viewer with pauses from 0.2 s to 30 s between swipes"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::Mglru, SwapKind::Zram, "index-mapping"),
            Variant::new(Lru::TwoList, SwapKind::Zram, "index-read"),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![IDLE_OURS, STOCK, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let gallery = gallery(&variant.load, &LONG_PAUSES, true);
        vec![Task::new(TASK, Work::GallerySynthetic(gallery))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for pause in LONG_PAUSES {
                let series = format!("pause_{}_major_faults", pause.ms);
                let worst = |arm| {
                    aggregates
                        .series(&variant, arm, TASK, &series)
                        .iter()
                        .copied()
                        .reduce(f64::max)
                };
                let (Some(stock), Some(ours)) = (worst(STOCK), worst(LIMELIGHT)) else {
                    continue;
                };
                verdicts.push(Verdict::new(
                    format!(
                        "{variant}: after a pause of {} ms no swipe waits for more than 5 % of stock's faults",
                        pause.ms
                    ),
                    ours <= (stock * 0.05).max(5.0),
                    format!("worst swipe: stock {stock}, Limelight {ours} major faults"),
                ));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        metrics()
    }
}
