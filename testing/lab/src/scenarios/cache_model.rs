// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs programs with known memory accesses, and checks what the cache model counts: the misses,
//! the program whose access missed, and the program that evicted the missed line. Interrupts and
//! page tables add misses and evict a few lines, hence the tolerances.

use limelight_apps::scenario::CachePattern;

use super::terms::*;

const LINES_IN_MIB: f64 = 16384.0;
const LINES_IN_PAGE: f64 = 64.0;
/// Number of zeroed pages; together they are 8 MiB, the size of the last-level cache.
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
        // Each of 100 rounds reads every line once; the loop's own accesses come on top.
        (
            "inside-l1",
            "cache_app_accesses",
            small * 100.0,
            small * 250.0,
        ),
        // The memory fits into L1, so only the first round misses.
        ("inside-l1", "cache_app_l1_misses", small, small * 4.0),
        // 4 MiB do not fit into L2, so every line misses there in each of 8 rounds. In the
        // last-level cache, a line misses in the first round, and later only if its set is full.
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
        // Each access in each of three rounds misses. From the second round on, the missed lines
        // are those that the app itself evicted.
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
        // Each line of each page misses once; page table pages are zeroed, too.
        (
            "zeroing",
            "cache_app_zeroing_l1_misses",
            zeroed,
            zeroed * 1.05,
        ),
        ("zeroing", "cache_prezero_accesses", 0.0, 0.0),
        ("zeroing", "cache_background_accesses", 0.0, 0.0),
        // The zeroed memory is as large as the cache, so zeroing evicts nearly all lines of the
        // background program.
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

/// The cache model with known access patterns.
pub const CACHE_MODEL: Spec = Spec {
    name: "cache-model",
    about: "for known access patterns, the cache model counts the expected number of misses",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["patterns"])],
    arms: &[STOCK_OURS],
    machine: |_| MachineSize {
        vcpus: 1,
        cache_model: true,
        ..MachineSize::default()
    },
    tasks: |_, _| {
        let task = |(name, pattern): (&str, _)| Task::new(name, Work::CacheModel(pattern));
        TASKS.map(task).into()
    },
    time_limit_s: 30,
    must_hold: |aggregates| {
        Seen::each_variant(aggregates, "", |seen| {
            let judge = |(task, name, from, to)| {
                let misses = seen.of(task).median(STOCK_OURS, name)?;
                Some(Verdict::new(
                    format!("{task}: {name} is from {from:.0} to {to:.0}"),
                    (from..=to).contains(&misses),
                    format!("{misses} counted"),
                ))
            };
            expected().into_iter().filter_map(judge).collect::<Vec<_>>()
        })
    },
    mode: Mode::Exact,
    ..Spec::TEST
};
