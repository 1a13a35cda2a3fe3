// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that did nothing wrong: none of them is worse off beside the daemon than on stock Linux.

use std::collections::BTreeMap;

use limelight_apps::scenario::{Day, Innocents};

use super::leak;
use super::terms::*;

const HELD_DAYS: [(&str, Day); 3] = [
    ("found", Day::Found),
    ("work", Day::Work),
    ("home", Day::Home),
];
const OPEN_DAYS: [(&str, Day); 1] = [("open", Day::Open)];

/// Suffix of the values that tell whether an app lost something.
const LOST: &str = "_lost";

fn tasks(days: &[(&str, Day)]) -> Vec<Task> {
    let task = |&(name, day): &(&str, _)| Task::new(name, Work::Innocents(Innocents { day }));
    days.iter().map(task).collect()
}

/// Situations in which no app is worse off than on stock.
pub const HELD: Spec = Spec {
    name: "innocents",
    about: "apps that did nothing wrong are no worse off than on stock Linux",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None, SwapKind::Disk],
        &["innocents"],
    )],
    arms: &[STOCK, ON_DEBIAN, LIMELIGHT],
    machine: |_| MachineSize {
        swap_mib: 160,
        ..leak::machine(256)
    },
    tasks: |_, _| tasks(&HELD_DAYS),
    time_limit_s: 500,
    must_hold: |aggregates| compare(aggregates, &HELD_DAYS),
    // Without swap it is what ends a leak of the foreground app.
    expected_console: OUT_OF_MEMORY,
    ..Spec::TEST
};

/// Situations in which an app is worse off than on stock, and no cure is known yet: on demand.
pub const OPEN: Spec = Spec {
    name: "innocents-open",
    about: "the same where one is worse off, and no cure is known yet",
    kind: Kind::Named,
    tasks: |_, _| tasks(&OPEN_DAYS),
    must_hold: |aggregates| compare(aggregates, &OPEN_DAYS),
    ..HELD
};

/// A verdict for each situation: no app loses anything that it does not lose on stock.
fn compare(aggregates: &Aggregates, days: &[(&str, Day)]) -> Vec<Verdict> {
    Seen::each_variant(aggregates, "", |seen| {
        let mut verdicts = Vec::new();
        for (task, _) in days {
            for arm in OURS {
                verdicts.extend(compare_task(&seen.of(task), arm));
            }
        }
        verdicts
    })
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
        let (Some(stock), Some(ours)) = (lost(STOCK), lost(arm)) else {
            continue;
        };
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
