// SPDX-License-Identifier: GPL-2.0-or-later
//! The demo for new users: swipes in an image viewer while files are copied and indexed in the
//! background, on the distribution's kernel and with Limelight.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Access, Family, Footprint, Gallery, Load, Pause, Work};

use crate::results::table::{Table, Unit};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kernel, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant,
    Verdict,
};

/// The `demo` scenario.
pub struct Demo;

/// The viewer without load: the lower limit.
const ALONE: ArmOn = ArmOn::new(Arm::Idle, Kernel::Debian);
const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
const LIMELIGHT: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);
const TASK: &str = "swipe";
/// Time between two swipes.
const PAUSES: [Pause; 2] = [
    Pause {
        ms: 300,
        swipes: 20,
    },
    Pause {
        ms: 3000,
        swipes: 3,
    },
];

fn variant() -> Variant {
    Variant::new(Lru::Mglru, SwapKind::Zram, "copy-and-index")
}

impl Scenario for Demo {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn about(&self) -> &'static str {
        "an image viewer while files are copied and indexed in the background"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        vec![variant()]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ALONE, STOCK, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            free_mib: None,
            memory_mib: 160,
            vcpus: 2,
            data_mib: 1024,
            swap_mib: 128,
            rootfs_packages: Vec::new(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let gallery = Gallery {
            footprint: Footprint::SMALL,
            loads: vec![
                Load::Copy { mib: 256 },
                Load::Index {
                    access: Access::Mapping,
                    mib: 320,
                },
            ],
            load_nice: 0,
            app_realtime: false,
            warm_up_ms: 5000,
            pauses: PAUSES.to_vec(),
            swipe_percent: 20,
            app_cgroup: true,
            family: Family::Single,
        };
        vec![Task::new(TASK, Work::GallerySynthetic(gallery))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn repetitions(&self) -> u32 {
        1
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let faults = |arm| aggregates.median(&variant(), arm, TASK, "major_faults");
        let (Some(stock), Some(ours)) = (faults(STOCK), faults(LIMELIGHT)) else {
            return Vec::new();
        };
        vec![Verdict::new(
            "at least 95 % of the pages that the viewer had to read again are kept",
            ours <= stock * 0.05,
            format!("{stock} major faults without Limelight, {ours} with it"),
        )]
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric {
            name,
            label,
            better: Better::Lower,
        };
        vec![
            metric("major_faults", "major faults"),
            metric("response_us", "response"),
            metric("response_mean_us", "mean response"),
        ]
    }
}

/// The table for people: each arm's typical and worst swipe, and how often the viewer waited for
/// the disk. `None` while an arm is missing.
pub fn table(aggregates: &Aggregates) -> Option<Table> {
    let variant = variant();
    let row = |name: &str, arm: ArmOn| {
        let mut swipes: Vec<f64> = Vec::new();
        for pause in PAUSES {
            let series = format!("pause_{}_response_us", pause.ms);
            swipes.extend(aggregates.series(&variant, arm, TASK, &series));
        }
        swipes.sort_by(f64::total_cmp);
        let typical = *swipes.get(swipes.len() / 2)?;
        let faults = aggregates.median(&variant, arm, TASK, "major_faults")?;
        let time = |us: f64| format!("{} ms", Unit::Micros.number(us));
        Some(vec![
            name.to_owned(),
            time(typical),
            time(*swipes.last()?),
            Unit::Count.number(faults),
        ])
    };
    Some(Table {
        title: "Swiping through photos (emulated machine, 160 MiB of memory)".into(),
        head: ["", "typical swipe", "worst swipe", "waits for the disk"]
            .map(Into::into)
            .to_vec(),
        rows: vec![
            row("nothing else running", ALONE)?,
            row("copy + index, stock Debian", STOCK)?,
            row("copy + index, Limelight", LIMELIGHT)?,
        ],
    })
}
