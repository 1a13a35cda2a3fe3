// SPDX-License-Identifier: GPL-2.0-or-later
//! Random focus changes, response windows, forks and exits under memory pressure: 1,000 on the
//! debug kernel, 60 on our ordinary kernel. On the debug kernel, the foreground app takes memory
//! after every 20 steps while there is no load.

use limelight_apps::scenario::Soak;

use super::gallery::{self, INDEX_MAPPING};
use super::terms::*;

const TASK: &str = "random";
const LONG_STEPS: u32 = 1000;
const FIRST_STEPS: u32 = 100;
const SHORT_STEPS: u32 = 60;

fn tasks(variant: &Variant, steps: u32, growths: bool) -> Vec<Task> {
    let work = Soak {
        steps,
        growths,
        seed: 0x5eed,
        loads: gallery::loads(&variant.load),
    };
    vec![Task::new(TASK, Work::Soak(work))]
}

/// Verdict that all steps were made and that each kind of step occurred. The guest checks that
/// nothing is left behind.
fn all_steps_were_made(aggregates: &Aggregates, steps: u32) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let count = |name| seen.median(arm, name);
        let (changes, forks, exits) = (count("focus_changes")?, count("forks")?, count("exits")?);
        let windows = count("windows")?;
        Some(Verdict::new(
            format!("{}: {steps} random steps of every kind", seen.variant),
            changes > 0.0
                && forks > 0.0
                && exits > 0.0
                && windows > 0.0
                && changes + forks + exits >= f64::from(steps),
            format!("{changes} focus changes, {forks} forks, {exits} exits, {windows} windows"),
        ))
    })
}

/// Verdict that each mechanism of the kernel acted, which is what the debug kernel is to examine.
fn mechanisms_acted(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let count = |name| seen.median(arm, name);
        let growths = count("growths")?;
        let kept = count("vmstat_limelight_protect_kept")?;
        let mapped = count("vmstat_limelight_premap_mapped")?;
        let zeroed = count("vmstat_limelight_prezero_zeroed")?;
        let served = count("vmstat_limelight_prezero_served")?;
        Some(Verdict::new(
            format!("{}: protect, premap and prezero acted", seen.variant),
            [growths, kept, mapped, zeroed, served]
                .iter()
                .all(|&count| count > 0.0),
            format!(
                "{growths} growths, {kept} pages kept, {mapped} mapped in advance, \
                 {zeroed} zeroed in advance, {served} of them used"
            ),
        ))
    })
}

/// All verdicts of a run of `steps` steps.
fn verdicts(aggregates: &Aggregates, steps: u32) -> Vec<Verdict> {
    let mut verdicts = all_steps_were_made(aggregates, steps);
    verdicts.extend(mechanisms_acted(aggregates));
    verdicts
}

const METRICS: &[&[Metric]] = &[&[
    Metric::neutral("vmstat_limelight_prezero_zeroed", "pages zeroed in advance"),
    Metric::neutral("vmstat_limelight_prezero_served", "of them used"),
    Metric::neutral("vmstat_limelight_premap_mapped", "pages mapped in advance"),
    Metric::neutral("vmstat_limelight_protect_kept", "protected pages kept"),
]];

/// A thousand steps on the debug kernel, which has KASAN, lockdep and further assertions.
pub const LONG: Spec = Spec {
    name: "soak",
    about: "1,000 random focus changes, forks and exits under pressure on the debug kernel",
    variants: gallery::HURTING,
    arms: &[DEBUG],
    // KASAN takes an eighth of the memory, and its quarantine takes more.
    machine: |_| MachineSize {
        memory_mib: 384,
        ..gallery::machine(256)
    },
    tasks: |variant, _| tasks(variant, LONG_STEPS, true),
    time_limit_s: 3600,
    must_hold: |aggregates| verdicts(aggregates, LONG_STEPS),
    metrics: METRICS,
    expected_console: OUT_OF_MEMORY,
    ..Spec::SOAK
};

/// The beginning of [`LONG`], for hosts on which an emulated debug kernel is too slow for all of it.
pub const FIRST: Spec = Spec {
    name: "soak-first",
    about: "the first 100 steps of soak on the debug kernel",
    kind: Kind::Named,
    tasks: |variant, _| tasks(variant, FIRST_STEPS, true),
    must_hold: |aggregates| verdicts(aggregates, FIRST_STEPS),
    ..LONG
};

/// A few steps in every test run.
pub const SHORT: Spec = Spec {
    name: "soak-short",
    about: "the first steps of soak on the ordinary kernel",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk], &[INDEX_MAPPING])],
    arms: &[LIMELIGHT],
    machine: |_| gallery::machine(256),
    tasks: |variant, _| tasks(variant, SHORT_STEPS, false),
    time_limit_s: 300,
    must_hold: |aggregates| all_steps_were_made(aggregates, SHORT_STEPS),
    metrics: METRICS,
    expected_console: OUT_OF_MEMORY,
    ..Spec::TEST
};
