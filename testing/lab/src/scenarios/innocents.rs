// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that do nothing wrong while memory runs short. None of them may be worse off with the
//! daemon than on stock Linux.

use std::collections::BTreeMap;

use limelight_apps::scenario::{Day, Innocents};

use super::leak;
use super::terms::*;

const DAYS: [(&str, Day); 3] = [
    ("found", Day::Found),
    ("work", Day::Work),
    ("home", Day::Home),
];

/// Suffixes of the values for each app: whether the app lost something (defined in
/// docs/development/lab.md), and whether the kernel's OOM killer killed the app.
const LOST: &str = "_lost";
const OOM: &str = "_oom";

/// Number of innocent apps that the kernel's OOM killer may kill beyond the number on stock, in all
/// situations together. On stock, too, chance decides when it runs and which app it kills.
const OOM_MORE: f64 = 1.0;

/// The task of a day.
fn task((name, day): (&str, Day)) -> Task {
    Task::new(name, Work::Innocents(Innocents { day }))
}

/// Whether [`INNOCENTS`] runs this day on this kernel in this variant: each day runs on one kernel
/// with swap and on the other without.
fn is_sampled(day: Day, variant: &Variant, kernel: Kernel) -> bool {
    let swaps = variant.swap != SwapKind::None;
    let ours = kernel == Kernel::Limelight;
    (day == Day::Work) == (swaps != ours)
}

/// Situations in which no app may be worse off than on stock: half of [`ALL_INNOCENTS`].
pub const INNOCENTS: Spec = Spec {
    name: "innocents",
    about: "apps that did nothing wrong are no worse off than on stock Linux",
    kind: Kind::Test,
    tasks: |variant, arm| {
        let sampled =
            |(_, day): &(&str, Day)| arm.arm == Arm::Stock || is_sampled(*day, variant, arm.kernel);
        DAYS.into_iter().filter(sampled).map(task).collect()
    },
    ..ALL_INNOCENTS
};

/// Every day on both kernels, with and without swap.
pub const ALL_INNOCENTS: Spec = Spec {
    name: "innocents-all",
    about: "the same, every day on both kernels, with and without swap",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None, SwapKind::Disk],
        &["innocents"],
    )],
    deferred_arms: &[STOCK],
    machine: |_| MachineSize {
        swap_mib: 160,
        ..leak::machine(256)
    },
    tasks: |_, _| DAYS.map(task).into(),
    time_limit_s: 600,
    must_hold: compare,
    // Without swap, the OOM killer ends a leak of the foreground app.
    expected_console: OUT_OF_MEMORY,
    ..Spec::SOAK
};

/// One verdict for each situation: no app loses something that it does not lose on stock. Until
/// stock has run, no app may lose anything, and the OOM killer is taken to kill none there. One
/// verdict for each arm: on the OOM killer's kills.
fn compare(aggregates: &Aggregates) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = OURS
        .iter()
        .filter_map(|arm| compare_oom_kills(aggregates, *arm))
        .collect();
    verdicts.extend(Seen::each_variant(aggregates, "", |seen| {
        let mut verdicts = Vec::new();
        for (task, _) in DAYS {
            for arm in OURS {
                verdicts.extend(compare_task(&seen.of(task), arm));
            }
        }
        verdicts
    }));
    verdicts
}

/// The verdict on the kernel's OOM killer; `None` unless the arm ran.
fn compare_oom_kills(aggregates: &Aggregates, arm: ArmOn) -> Option<Verdict> {
    let mut deaths = Vec::new();
    for variant in aggregates.variants() {
        for (task, _) in DAYS {
            let names = aggregates.names(&variant, task);
            for name in names.into_iter().filter(|name| name.ends_with(OOM)) {
                let of = |arm| aggregates.median(&variant, arm, task, &name);
                deaths.extend(of(arm).map(|ours| (of(STOCK).unwrap_or(0.0), ours)));
            }
        }
    }
    let stock: f64 = deaths.iter().map(|(stock, _)| stock).sum();
    let ours: f64 = deaths.iter().map(|(_, ours)| ours).sum();
    let verdict = Verdict::new(
        format!(
            "the kernel's OOM killer takes at most one innocent app more on {arm} than on stock"
        ),
        ours <= stock + OOM_MORE,
        format!(
            "apps killed: {ours} on {arm}, {stock} on stock, of {}",
            deaths.len()
        ),
    )
    .on_figure();
    (!deaths.is_empty()).then_some(verdict)
}

fn compare_task(seen: &Seen<'_>, arm: ArmOn) -> Vec<Verdict> {
    let mut situations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in seen.aggregates.names(seen.variant, seen.task) {
        let app = name
            .strip_suffix(LOST)
            .and_then(|name| name.split_once('.'));
        let Some((situation, app)) = app else {
            continue;
        };
        let lost = |arm| seen.median(arm, &name);
        let Some(ours) = lost(arm) else {
            continue;
        };
        let stock = lost(STOCK).unwrap_or(0.0);
        let worse = situations.entry(situation.to_owned()).or_default();
        if ours > stock {
            worse.push(app.to_owned());
        }
    }
    let verdict = |(situation, worse): (String, Vec<String>)| {
        Verdict::new(
            format!(
                "{} {situation}: no app is worse off on {arm} than on stock",
                seen.variant
            ),
            worse.is_empty(),
            format!("worse off: {worse:?}"),
        )
    };
    situations.into_iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::row::tests::result_row;
    use crate::results::Row;

    #[test]
    fn each_day_runs_on_both_kernels_and_with_and_without_swap() {
        for (name, day) in DAYS {
            let mut sampled = Vec::new();
            for variant in INNOCENTS.variants() {
                for arm in OURS {
                    if is_sampled(day, &variant, arm.kernel) {
                        sampled.push((variant.swap, arm.kernel));
                    }
                }
            }
            let [(swap, kernel), (other_swap, other_kernel)] = sampled[..] else {
                panic!("{name} runs {} times", sampled.len());
            };
            assert!(swap != other_swap && kernel != other_kernel, "{name}");
        }
    }

    #[test]
    fn stock_excuses_a_loss_only_after_it_has_run() {
        let row = |arm, lost: f64| {
            let mut row = result_row(arm, 0, &[("build.editor_lost", lost)]);
            row.task = "work".into();
            row
        };
        let passes = |rows: &[Row]| {
            let verdicts = compare(&Aggregates::from_rows(rows));
            assert!(!verdicts.is_empty());
            verdicts.iter().all(|verdict| verdict.passed)
        };
        let ours = row(ON_DEBIAN, 1.0);
        assert!(passes(&[row(ON_DEBIAN, 0.0)]));
        assert!(!passes(std::slice::from_ref(&ours)));
        assert!(!passes(&[ours.clone(), row(STOCK, 0.0)]));
        assert!(passes(&[ours, row(STOCK, 1.0)]));
    }
}
