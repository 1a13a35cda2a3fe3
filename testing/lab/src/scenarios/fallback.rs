// SPDX-License-Identifier: GPL-2.0-or-later
//! The topmost app needs more memory than the machine has, or more than its cgroup's limit.
//! Protection must give up the app's pages, and the kernel must not kill more often with limelightd
//! than without it (arm `stock` on our kernel).

use limelight_apps::scenario::{HogMemory, SelfHog};

use super::gallery;
use super::terms::*;

/// Sizes that exceed the guest's memory.
const ANON_MIB: u32 = 180;
const FILE_MIB: u32 = 240;
/// A cgroup limit, and the size of an app inside it: one and a half times the limit.
const LIMIT_MIB: u32 = 48;
const LIMITED_MIB: u32 = 72;
/// Longest run time of the topmost app, relative to stock.
const SLOWER: f64 = 1.15;

const LOAD: &str = "itself";
const LIMITED_ANONYMOUS: &str = "limited-anonymous";

/// How often the task `limited-anonymous` runs in each repetition. A wrong kill happens there only
/// by chance: if reclaim gives up before the disk has answered, the app dies in about a third of
/// the runs.
const CHANCES: u32 = 4;

fn hog(name: &str, memory: HogMemory, mib: u32, rounds: u32, limit_mib: Option<u32>) -> Task {
    let work = SelfHog {
        memory,
        mib,
        rounds,
        limit_mib,
    };
    Task::new(name, Work::SelfHog(work))
}

fn limited_anonymous(name: &str, rounds: u32) -> Task {
    hog(
        name,
        HogMemory::Anonymous,
        LIMITED_MIB,
        rounds,
        Some(LIMIT_MIB),
    )
}

/// The tasks of a variant. Without swap, anonymous memory cannot exceed the machine's, so one task
/// that must fail replaces the two anonymous ones.
fn tasks(variant: &Variant, rounds: u32) -> Vec<Task> {
    use HogMemory::{Anonymous, Mapping};
    let mut all = vec![
        hog("mapping", Mapping, FILE_MIB, rounds, None),
        hog(
            "limited-mapping",
            Mapping,
            LIMITED_MIB,
            rounds,
            Some(LIMIT_MIB),
        ),
    ];
    if variant.swap == SwapKind::None {
        // The app is killed even without limelightd. The task tests that the machine keeps running.
        all.push(hog("anonymous-too-large", Anonymous, 2 * ANON_MIB, 1, None));
    } else {
        all.push(hog("anonymous", Anonymous, ANON_MIB, rounds, None));
        all.push(limited_anonymous(LIMITED_ANONYMOUS, rounds));
    }
    all
}

fn each_task<V: IntoIterator<Item = Verdict>>(
    aggregates: &Aggregates,
    judge: impl Fn(&Seen<'_>) -> V,
) -> Vec<Verdict> {
    Seen::each_variant(aggregates, "", |seen| {
        let tasks = aggregates.tasks(seen.variant);
        let verdicts = tasks.iter().flat_map(|task| judge(&seen.of(task)));
        verdicts.collect::<Vec<_>>()
    })
}

/// Judges results, not times: the app must finish its work wherever it does without limelightd, and
/// there must be no more OOM kills.
pub const FALLBACK: Spec = Spec {
    name: "fallback",
    about: "a foreground app larger than memory or its limit runs as it does on stock",
    variants: &[
        (&[Lru::TwoList], &[SwapKind::Disk], &[LOAD]),
        (&[Lru::Mglru], &[SwapKind::None], &[LOAD]),
    ],
    arms: &[STOCK_OURS, LIMELIGHT],
    machine: |_| gallery::machine(256),
    tasks: |variant, _| {
        let mut all = tasks(variant, 2);
        if all.iter().any(|task| task.name == LIMITED_ANONYMOUS) {
            let again = (2..=CHANCES).map(|number| format!("{LIMITED_ANONYMOUS}-{number}"));
            all.extend(again.map(|name| limited_anonymous(&name, 2)));
        }
        all
    },
    time_limit_s: 720,
    must_hold: |aggregates| {
        each_task(aggregates, |seen| {
            let completed = |arm| seen.median(arm, "completed");
            let completed = completed(STOCK_OURS).zip(completed(LIMELIGHT));
            let done = completed.map(|(stock, ours)| {
                seen.verdict(
                    "the foreground app finishes its work whenever it does on stock",
                    ours >= stock,
                    format!("completed (0 or 1): stock {stock}, limelight {ours}"),
                )
            });
            let kills = seen.no_new_kills(STOCK_OURS, LIMELIGHT);
            kills.into_iter().chain(done).collect::<Vec<_>>()
        })
    },
    expected_console: OUT_OF_MEMORY,
    ..Spec::TEST
};

/// Judges times: the cost of protection for an app that does not fit into memory.
pub const SELF_HOG: Spec = Spec {
    name: "self-hog",
    about: "the time that a foreground app larger than memory takes, compared to stock",
    variants: &[(
        &[Lru::TwoList, Lru::Mglru],
        &[SwapKind::Disk, SwapKind::None],
        &[LOAD],
    )],
    arms: &[STOCK_OURS, LIMELIGHT],
    machine: |_| gallery::machine(256),
    tasks: |variant, _| tasks(variant, 3),
    time_limit_s: 120,
    must_hold: |aggregates| {
        each_task(aggregates, |seen| {
            let ratio = seen.ratio("elapsed_us", LIMELIGHT, STOCK_OURS)?;
            Some(seen.verdict(
                format!("the foreground app takes at most {SLOWER} times as long as on stock"),
                ratio <= SLOWER,
                format!("{ratio:.3} times as long"),
            ))
        })
    },
    metrics: &[&[
        Metric::lower("elapsed_us", "the app's run time"),
        Metric::lower("major_faults", "major faults"),
        Metric::lower(
            "vmstat_limelight_protect_fallback",
            "protected pages evicted",
        ),
        Metric::lower("oom_kills", "OOM kills"),
    ]],
    mode: Mode::Exact,
    expected_console: OUT_OF_MEMORY,
    ..Spec::BENCHMARK
};
