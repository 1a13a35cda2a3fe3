// SPDX-License-Identifier: GPL-2.0-or-later
//! The series' cost while it is inactive: instructions per fault and per reclaimed page, relative
//! to the same source and configuration without it.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Overhead as Parameters, Work};

use super::terms::STOCK_OURS;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kernel, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant,
    Verdict,
};

/// Overhead of the inactive series.
pub struct Overhead;

const UNPATCHED: ArmOn = ArmOn::new(Arm::Stock, Kernel::Unpatched);
const TASK: &str = "paths";
/// Ratio up to which a difference counts as not measurable.
const MORE: f64 = 1.005;
const FIGURES: [(&str, &str); 3] = [
    ("anon_fault_ns_per_page", "anonymous fault"),
    ("file_fault_ns_per_page", "file fault"),
    ("reclaim_ns_per_page", "reclaim of a page"),
];

impl Scenario for Overhead {
    fn name(&self) -> &'static str {
        "overhead"
    }

    fn about(&self) -> &'static str {
        "instructions of faults and reclaim while the device is closed"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::TwoList, Lru::Mglru],
            &[SwapKind::None],
            &["device-closed"],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![UNPATCHED, STOCK_OURS]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 256,
            vcpus: 1,
            data_mib: 64,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters { mib: 32, rounds: 7 };
        vec![Task::new(TASK, Work::Overhead(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(60)
    }

    fn repetitions(&self) -> u32 {
        1
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (name, label) in FIGURES {
                let ratio = aggregates.ratio(&variant, TASK, name, STOCK_OURS, UNPATCHED);
                if let Some(ratio) = ratio {
                    verdicts.push(Verdict::new(
                        format!("{variant}: {label} takes at most 0.5 % more instructions"),
                        ratio <= MORE,
                        format!("{ratio:.5}"),
                    ));
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        FIGURES
            .iter()
            .map(|&(name, label)| Metric {
                name,
                label,
                better: Better::Lower,
            })
            .collect()
    }
}
