// SPDX-License-Identifier: GPL-2.0-or-later
//! The demo for new users: swipes in an image viewer while files are copied and indexed in the
//! background, on the distribution's kernel and with Limelight.

use limelight_apps::scenario::{Access, Family, Footprint, Gallery, Load, Pause};

use super::terms::*;
use crate::results::table::{Table, Unit};

const TASK: &str = "swipe";
/// The pauses before a swipe, and how many swipes follow a pause of each length.
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

/// The `demo` scenario.
pub const DEMO: Spec = Spec {
    name: "demo",
    about: "an image viewer while files are copied and indexed in the background",
    variants: &[(&[Lru::Mglru], &[SwapKind::Zram], &["copy-and-index"])],
    arms: &[IDLE, STOCK, LIMELIGHT],
    machine: |_| MachineSize {
        memory_mib: 160,
        data_mib: 1024,
        swap_mib: 128,
        ..MachineSize::default()
    },
    tasks: |_, _| vec![Task::new(TASK, Work::GallerySynthetic(gallery()))],
    time_limit_s: 300,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, TASK, |seen| {
            let faults = |arm| seen.median(arm, "major_faults");
            let (stock, ours) = (faults(STOCK)?, faults(LIMELIGHT)?);
            Some(Verdict::new(
                "the viewer has at most 5 % of the major faults that it has on stock",
                ours <= stock * 0.05,
                format!("{stock} major faults without Limelight, {ours} with it"),
            ))
        })
    },
    metrics: &[&[
        Metric::lower("major_faults", "major faults"),
        Metric::lower("response_us", "response"),
        Metric::lower("response_mean_us", "mean response"),
    ]],
    repetitions: 1,
    ..Spec::BENCHMARK
};

fn gallery() -> Gallery {
    Gallery {
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
        windows: false,
        config: String::new(),
    }
}

/// The demo's table: each arm's median and longest swipe, and its major faults. `None` if an arm
/// did not run.
pub fn table(aggregates: &Aggregates) -> Option<Table> {
    let variant = DEMO.variants().remove(0);
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
            row("nothing else running", IDLE)?,
            row("copy + index, stock Debian", STOCK)?,
            row("copy + index, Limelight", LIMELIGHT)?,
        ],
    })
}
