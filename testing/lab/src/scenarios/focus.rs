// SPDX-License-Identifier: GPL-2.0-or-later
//! The focus moves from one app to another: the next reclaim keeps the second app's pages and
//! evicts the first one's.

use std::time::Duration;

use limelight_apps::scenario::{FocusMove, Footprint, Work};

use super::gallery::{self, INDEX_MAPPING, INDEX_READ};
use super::terms::{Seen, LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{ArmOn, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict};

/// Protection after a focus change.
pub struct Focus;

const TASK: &str = "move";
/// Two of these and the kernel fit into the guest.
const FOOTPRINT: Footprint = Footprint {
    photos_mib: 16,
    heap_mib: 8,
    thumbnails_mib: 4,
    library_mib: 4,
};
/// Pages that only the app faulted in; its library is shared with another process.
const OWN_PAGES: f64 = ((16 + 8 + 4) * 256) as f64;
const KEPT: f64 = 0.95;
/// If more than this share of the first app is left, it is still protected.
const LEFT: f64 = 0.60;

impl Scenario for Focus {
    fn name(&self) -> &'static str {
        "focus"
    }

    fn about(&self) -> &'static str {
        "protection follows the focus from one app to the next"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Disk, INDEX_READ),
            Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![task(TASK, variant)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(240)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                verdicts.extend(kept(aggregates, &variant, arm, TASK));
            }
        }
        verdicts
    }
}

/// A task that moves the focus from one of two apps to the other under this variant's load.
pub(super) fn task(name: &str, variant: &Variant) -> Task {
    let work = FocusMove {
        footprint: FOOTPRINT,
        loads: gallery::loads(&variant.load),
        pressure_ms: 10_000,
        app_cgroup: true,
    };
    Task::new(name, Work::FocusMove(work))
}

/// Verdicts on such a task; none if it did not run.
pub(super) fn kept(
    aggregates: &Aggregates,
    variant: &Variant,
    arm: ArmOn,
    task: &str,
) -> Vec<Verdict> {
    let seen = Seen {
        aggregates,
        variant,
        task,
    };
    let own = |app: &str| -> Option<f64> {
        ["photos", "heap", "thumbnails"]
            .iter()
            .map(|kind| seen.median(arm, &format!("{app}_{kind}_pages")))
            .sum()
    };
    let (Some(first), Some(second)) = (own("first"), own("second")) else {
        return Vec::new();
    };
    let seen = format!("first {first}, second {second} of {OWN_PAGES} pages each");
    vec![
        Verdict::new(
            format!("{variant}: {arm} keeps the app that has the focus now"),
            second >= OWN_PAGES * KEPT,
            seen.clone(),
        ),
        Verdict::new(
            format!("{variant}: {arm} lets the app go that had the focus before"),
            first <= OWN_PAGES * LEFT,
            seen,
        ),
    ]
}
