// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps that did nothing wrong: none of them is worse off beside the daemon than on stock Linux.

use std::collections::BTreeMap;
use std::time::Duration;

use limelight_apps::scenario::{Day, Innocents as Parameters, Work};

use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN, STOCK};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// See the module.
pub struct Innocents {
    /// Only the situations in which an app is worse off than on stock, and no cure is known yet.
    open: bool,
}

/// All others: no app is worse off.
pub const HELD: Innocents = Innocents { open: false };
/// On demand.
pub const OPEN: Innocents = Innocents { open: true };

const DAYS: [(&str, Day); 4] = [
    ("found", Day::Found),
    ("work", Day::Work),
    ("home", Day::Home),
    ("open", Day::Open),
];

/// What the values end in that say whether an app lost something, or died by the kernel's OOM
/// killer.
const LOST: &str = "_lost";
const OOM: &str = "_oom";

/// So many more apps may die by the kernel's OOM killer than on stock, in all situations together:
/// which one it takes, and whether it comes, is chance on stock too.
const OOM_MORE: f64 = 1.0;

impl Scenario for Innocents {
    fn name(&self) -> &'static str {
        match self.open {
            true => "innocents-open",
            false => "innocents",
        }
    }

    fn about(&self) -> &'static str {
        match self.open {
            true => "the same where one is worse off, and no cure is known yet",
            false => "apps that did nothing wrong are no worse off than on stock Linux",
        }
    }

    fn kind(&self) -> Kind {
        match self.open {
            true => Kind::Named,
            false => Kind::Test,
        }
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(
            &[Lru::Mglru],
            &[SwapKind::None, SwapKind::Disk],
            &["innocents"],
        )
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![STOCK, ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            swap_mib: 160,
            ..leak::machine(256)
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let task = |(name, day): &(&'static str, Day)| {
            let parameters = Parameters { day: *day };
            Task::new(*name, Work::Innocents(parameters))
        };
        let here = |(_, day): &&(&str, Day)| (*day == Day::Open) == self.open;
        DAYS.iter().filter(here).map(task).collect()
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(500)
    }

    /// No app loses anything to the daemon that it does not lose on stock.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = [ON_DEBIAN, LIMELIGHT]
            .into_iter()
            .filter_map(|arm| compare_oom_kills(aggregates, arm))
            .collect();
        for variant in aggregates.variants() {
            for (task, _) in DAYS {
                for arm in [ON_DEBIAN, LIMELIGHT] {
                    verdicts.extend(compare(aggregates, &variant, task, arm));
                }
            }
        }
        verdicts
    }

    /// Without swap it is what ends a leak of the foreground app.
    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}

/// The verdict on the kernel's OOM killer, if both arms were run.
fn compare_oom_kills(aggregates: &Aggregates, arm: ArmOn) -> Option<Verdict> {
    let mut all = Vec::new();
    for variant in aggregates.variants() {
        for (task, _) in DAYS {
            let names = aggregates.names(&variant, task);
            for name in names.into_iter().filter(|name| name.ends_with(OOM)) {
                let deaths = |arm| aggregates.median(&variant, arm, task, &name);
                all.extend(deaths(STOCK).zip(deaths(arm)));
            }
        }
    }
    let (stock, ours) = all
        .iter()
        .fold((0.0, 0.0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
    let verdict = Verdict::new(
        format!(
            "the kernel's OOM killer takes at most one innocent app more on {arm} than on stock"
        ),
        ours <= stock + OOM_MORE,
        format!("{ours} on {arm}, {stock} on stock, of {}", all.len()),
    );
    (!all.is_empty()).then_some(verdict)
}

/// A verdict for each situation of a task.
fn compare(aggregates: &Aggregates, variant: &Variant, task: &str, arm: ArmOn) -> Vec<Verdict> {
    let mut situations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in aggregates.names(variant, task) {
        let app = name
            .strip_suffix(LOST)
            .and_then(|name| name.split_once('.'));
        let Some((situation, app)) = app else {
            continue;
        };
        let lost = |arm| aggregates.median(variant, arm, task, &name);
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
            format!("{variant} {situation}: no app is worse off on {arm} than on stock"),
            worse.is_empty(),
            format!("worse off: {worse:?}"),
        )
    };
    situations.into_iter().map(verdict).collect()
}
