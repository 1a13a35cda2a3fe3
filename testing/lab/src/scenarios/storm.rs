// SPDX-License-Identifier: GPL-2.0-or-later
//! 200 processes a second start and exit, and cgroups come and go. Meanwhile apps leak and exit by
//! themselves, often while the daemon selects them as victims. No wrong app may be killed, and
//! nothing may be left behind.

use limelight_apps::scenario::Storm;

use super::leak;
use super::terms::*;

const TASK: &str = "storm";
/// The storm lasts until the guest has created this many processes, even on a slow machine.
const PROCESSES: u64 = 2000;
/// Lowest number of processes that the storm itself must have created, relative to `PROCESSES`. It
/// is below 1 because the guest ends the storm by the number of all forks, which includes those of
/// the apps and of limelightd.
const OWN: f64 = 0.9;

/// A storm of processes and cgroups. The guest checks which apps died; the verdict is on the
/// storm's size.
pub const STORM: Spec = Spec {
    name: "storm",
    about: "hundreds of processes and cgroups, and apps that end while they are chosen for killing",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[TASK])],
    further_arms: &[DEBUG],
    machine: |_| leak::machine(0),
    tasks: |_, _| {
        let work = Storm {
            seconds: 20,
            processes_per_s: 200,
            processes: PROCESSES,
        };
        vec![Task::new(TASK, Work::Storm(work))]
    },
    time_limit_s: 480,
    must_hold: |aggregates| {
        Seen::each_arm(aggregates, TASK, |seen, arm| {
            let processes = seen.median(arm, "processes")?;
            let bursts = seen.median(arm, "bursts")?;
            Some(Verdict::new(
                format!(
                    "{}: {arm} ran beside a storm of the full size",
                    seen.variant
                ),
                processes >= PROCESSES as f64 * OWN && bursts >= 4.0,
                format!("{processes} processes, {bursts} apps that took memory"),
            ))
        })
    },
    ..Spec::TEST
};
