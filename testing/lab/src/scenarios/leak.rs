// SPDX-License-Identifier: GPL-2.0-or-later
//! An app leaks memory. In the background, only that app is killed. In the foreground, the leak is
//! reported to listeners, and the other apps are killed in the order of their classes.

use limelight_apps::scenario::{Leak, Leaker};

use super::terms::*;

const FAST: &str = "fast";
const SLOW: &str = "slow";
/// Name of a task, and of its variant, whose machine has additional memory for pinned kernel
/// caches.
const PINNED: &str = "pinned";
/// Rate of the slow leaks. Swap can keep up with it, but there is no time to ask the user.
const SLOW_MIB_PER_S: u32 = 24;

/// The machine of the scenarios with kills, with the same free memory on every kernel.
pub fn machine(data_mib: u32) -> MachineSize {
    MachineSize {
        free_mib: Some(150),
        data_mib,
        swap_mib: 96,
        ..MachineSize::default()
    }
}

/// A task with an app that leaks at `mib_per_s`; 0 is as fast as possible.
pub fn task(name: &str, leaker: Leaker, mib_per_s: u32) -> Task {
    Task::new(name, Work::Leak(Leak { leaker, mib_per_s }))
}

/// Leaking apps in the background and in the foreground.
pub const LEAK: Spec = Spec {
    name: "leak",
    about: "an app whose memory grows without end is killed, and no other app; in the foreground \
            it is reported",
    variants: &[
        (&[Lru::Mglru], &[SwapKind::None, SwapKind::Disk], &["leak"]),
        // Without swap, so that neither stalls nor the remaining swap signal the shortage.
        (&[Lru::Mglru], &[SwapKind::None], &[PINNED]),
    ],
    // Stock shows what happens to the other apps without a daemon.
    further_arms: &[STOCK],
    machine: |variant| match variant.load.as_str() {
        PINNED => MachineSize {
            memory_mib: 320,
            free_mib: Some(190),
            ..machine(0)
        },
        _ => machine(0),
    },
    tasks: |variant, _| match variant.load.as_str() {
        PINNED => vec![task(PINNED, Leaker::Pinned, SLOW_MIB_PER_S)],
        _ => vec![
            task(FAST, Leaker::Background, 0),
            task(SLOW, Leaker::Background, SLOW_MIB_PER_S),
            task("front", Leaker::Front, SLOW_MIB_PER_S),
            task("unguarded", Leaker::Unguarded, 0),
        ],
    },
    time_limit_s: 300,
    must_hold: |aggregates| {
        Seen::each_arm(aggregates, FAST, |seen, arm| {
            [FAST, SLOW, PINNED]
                .into_iter()
                .filter_map(|task| ended(&seen.of(task), arm))
                .collect::<Vec<_>>()
        })
    },
    // On stock the OOM killer ends a leak.
    expected_console: OUT_OF_MEMORY,
    ..Spec::TEST
};

/// Verdict that the leaking app died and no other app; `None` if the task did not run.
pub fn ended(seen: &Seen<'_>, arm: ArmOn) -> Option<Verdict> {
    let value = |name| seen.median(arm, name);
    let (dead, innocent, kills) = (
        value("leaker_dead")?,
        value("innocent_dead")?,
        value("oom_kills")?,
    );
    Some(seen.verdict(
        format!("{arm} ends the leak and no other app, before the OOM killer"),
        dead == 1.0 && innocent == 0.0 && kills == 0.0,
        format!("{dead} leaking and {innocent} innocent apps dead, {kills} OOM kills"),
    ))
}
