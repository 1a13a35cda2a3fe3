// SPDX-License-Identifier: GPL-2.0-or-later
//! The cache model on a guest with known accesses: the number of misses, their attribution, and the
//! task that evicted the line. Interrupts and page tables come on top, hence the tolerances.

use std::time::Duration;

use limelight_apps::scenario::{CachePattern, Work};

use super::terms::STOCK_OURS;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kind, Lru, MachineSize, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// The cache model with known access patterns.
pub struct CacheModel;

const LINES_IN_MIB: f64 = 16384.0;
const LINES_IN_PAGE: f64 = 64.0;
/// Zeroed pages: 8 MiB, as large as the last-level cache.
const ZEROED: u32 = 2048;

const TASKS: [(&str, CachePattern); 5] = [
    ("inside-l1", CachePattern::InsideL1),
    ("inside-llc", CachePattern::InsideLlc),
    ("beyond-llc", CachePattern::BeyondLlc),
    ("zeroing", CachePattern::Zeroing { pages: ZEROED }),
    ("displaced", CachePattern::Displaced { pages: ZEROED }),
];

/// Expected results: task, counter, lower and upper bound.
fn expected() -> Vec<(&'static str, &'static str, f64, f64)> {
    let small = 16.0 * 1024.0 / 64.0;
    let middle = 4.0 * LINES_IN_MIB;
    let large = 32.0 * LINES_IN_MIB;
    let zeroed = f64::from(ZEROED) * LINES_IN_PAGE;
    let own = 6.0 * LINES_IN_MIB;
    vec![
        // Of 100 rounds only the first misses.
        (
            "inside-l1",
            "cache_app_accesses",
            small * 100.0,
            small * 250.0,
        ),
        ("inside-l1", "cache_app_l1_misses", small, small * 4.0),
        // Every round misses L2; the last-level cache keeps all lines except those for which a set
        // is full.
        (
            "inside-llc",
            "cache_app_l2_misses",
            middle * 7.6,
            middle * 8.4,
        ),
        (
            "inside-llc",
            "cache_app_llc_misses",
            middle * 0.99,
            middle * 1.3,
        ),
        // Each access of each round misses; after the first round the app has evicted its own
        // lines.
        (
            "beyond-llc",
            "cache_app_llc_misses",
            large * 2.97,
            large * 3.1,
        ),
        (
            "beyond-llc",
            "cache_app_llc_misses_by_app",
            large * 1.9,
            large * 2.1,
        ),
        // Each line of each page once, plus the pages of page tables.
        (
            "zeroing",
            "cache_app_zeroing_l1_misses",
            zeroed,
            zeroed * 1.05,
        ),
        ("zeroing", "cache_prezero_accesses", 0.0, 0.0),
        ("zeroing", "cache_background_accesses", 0.0, 0.0),
        // The zeroed memory is as large as the cache: nearly all lines of the background program
        // are evicted, and by the zeroing.
        (
            "displaced",
            "cache_background_llc_misses",
            own * 0.8,
            own * 1.1,
        ),
        (
            "displaced",
            "cache_background_llc_misses_by_app_zeroing",
            own * 0.7,
            own * 1.1,
        ),
    ]
}

impl Scenario for CacheModel {
    fn name(&self) -> &'static str {
        "cache-model"
    }

    fn about(&self) -> &'static str {
        "the cache model counts the misses that known accesses must have"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "patterns")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK_OURS]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 256,
            vcpus: 1,
            cache_model: true,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let task = |&(name, pattern): &(&str, _)| Task::new(name, Work::CacheModel(pattern));
        TASKS.iter().map(task).collect()
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(30)
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for (task, name, from, to) in expected() {
                if let Some(seen) = aggregates.median(&variant, STOCK_OURS, task, name) {
                    verdicts.push(Verdict::new(
                        format!("{task}: {name} is from {from:.0} to {to:.0}"),
                        (from..=to).contains(&seen),
                        format!("{seen}"),
                    ));
                }
            }
        }
        verdicts
    }
}
