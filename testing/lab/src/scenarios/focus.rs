// SPDX-License-Identifier: GPL-2.0-or-later
//! The focus moves from one app to another: the next reclaim keeps the second app's pages and
//! evicts the first one's.

use limelight_apps::scenario::{FocusMove, Footprint};

use super::gallery;
use super::terms::*;

const TASK: &str = "move";
/// Footprint of one app. Two such apps and the kernel fit into the guest.
const FOOTPRINT: Footprint = Footprint {
    photos_mib: 16,
    heap_mib: 8,
    thumbnails_mib: 4,
    library_mib: 4,
};
/// Number of pages that are charged to the app. The library is left out: a helper process faults it
/// in first, so it is charged to that process's cgroup.
const OWN_PAGES: f64 = ((16 + 8 + 4) * 256) as f64;
/// Lowest share of the second app's pages that must be in memory at the end.
const KEPT: f64 = 0.95;
/// Highest share of the first app's pages that may still be in memory. A higher share means that
/// the app is still protected.
const LEFT: f64 = 0.60;

/// Judges both apps' resident pages after a focus change.
pub const FOCUS: Spec = Spec {
    name: "focus",
    about: "protection follows the focus from one app to the next",
    variants: gallery::HURTING,
    machine: |_| gallery::machine(256),
    tasks: |variant, _| vec![task(TASK, variant)],
    time_limit_s: 240,
    must_hold: |aggregates| Seen::each_arm(aggregates, TASK, kept),
    // How many pages the load evicts before the daemon protects the second app must not depend on
    // the host's speed.
    mode: Mode::Exact,
    ..Spec::TEST
};

/// A task that moves the focus from one app to another, and then runs this variant's load.
pub fn task(name: &str, variant: &Variant) -> Task {
    let work = FocusMove {
        footprint: FOOTPRINT,
        loads: gallery::loads(&variant.load),
        pressure_ms: 10_000,
        app_cgroup: true,
    };
    Task::new(name, Work::FocusMove(work))
}

/// Verdicts on a task made by [`task`]; none if it did not run.
pub fn kept(seen: &Seen<'_>, arm: ArmOn) -> Vec<Verdict> {
    let own = |app: &str| -> Option<f64> {
        ["photos", "heap", "thumbnails"]
            .iter()
            .map(|kind| seen.median(arm, &format!("{app}_{kind}_pages")))
            .sum()
    };
    let (Some(first), Some(second)) = (own("first"), own("second")) else {
        return Vec::new();
    };
    let variant = seen.variant;
    let figures = format!("first {first}, second {second} of {OWN_PAGES} pages each");
    vec![
        Verdict::new(
            format!("{variant}: {arm} keeps the pages of the app that has the focus"),
            second >= OWN_PAGES * KEPT,
            figures.clone(),
        )
        .on_figure(),
        Verdict::new(
            format!("{variant}: {arm} gives up the pages of the app that had the focus before"),
            first <= OWN_PAGES * LEFT,
            figures,
        )
        .on_figure(),
    ]
}
