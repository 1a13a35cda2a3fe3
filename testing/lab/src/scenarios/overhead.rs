// SPDX-License-Identifier: GPL-2.0-or-later
//! The series' cost while it is inactive: instructions per fault and per reclaimed page, relative
//! to the same source and configuration without it.

use limelight_apps::scenario::Overhead;

use super::terms::*;

const UNPATCHED: ArmOn = ArmOn::new(Arm::Stock, Kernel::Unpatched);
const TASK: &str = "paths";
/// Highest ratio that counts as no measurable difference.
const MORE: f64 = 1.005;
const FIGURES: [Metric; 3] = [
    Metric::lower("anon_fault_ns_per_page", "anonymous fault"),
    Metric::lower("file_fault_ns_per_page", "file fault"),
    Metric::lower("reclaim_ns_per_page", "reclaim of a page"),
];

/// Overhead of the inactive series.
pub const OVERHEAD: Spec = Spec {
    name: "overhead",
    about: "instructions of faults and reclaim while the device is closed",
    variants: &[(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::None],
        &["device-closed"],
    )],
    arms: &[UNPATCHED, STOCK_OURS],
    machine: |_| MachineSize {
        vcpus: 1,
        data_mib: 64,
        ..MachineSize::default()
    },
    tasks: |_, _| {
        let work = Overhead { mib: 32, rounds: 7 };
        vec![Task::new(TASK, Work::Overhead(work))]
    },
    time_limit_s: 60,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, TASK, |seen| {
            let judge = |Metric { name, label, .. }| {
                let ratio = seen.ratio(name, STOCK_OURS, UNPATCHED)?;
                Some(Verdict::new(
                    format!(
                        "{}: {label} takes at most 0.5 % more instructions",
                        seen.variant
                    ),
                    ratio <= MORE,
                    format!("{ratio:.5} times the instructions"),
                ))
            };
            FIGURES.into_iter().filter_map(judge).collect::<Vec<_>>()
        })
    },
    metrics: &[&FIGURES],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};
