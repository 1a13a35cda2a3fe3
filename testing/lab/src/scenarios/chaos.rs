// SPDX-License-Identifier: GPL-2.0-or-later
//! Everything that limelightd depends on fails in turn. The daemon, its watcher, a session's agent
//! and its X server are killed; cgroups vanish; descriptors and disk space run out; /sys becomes
//! read-only; the clock jumps; the machine suspends. The guest checks that the state is correct
//! after each failure and that no changed value is left behind.

use limelight_apps::scenario::Chaos;

use super::terms::*;

const TASK: &str = "chaos";
/// The failures that every machine supports.
const EVERYWHERE: [&str; 14] = [
    "killed",
    "killed_for_good",
    "killed_alone",
    "watcher_killed",
    "killed_read_only",
    "agent_killed",
    "group_gone",
    "no_descriptors",
    "read_only",
    "full_run",
    "full_state",
    "clock_back",
    "clock_ahead",
    "stopped",
];
/// The failure that needs a session.
const SERVER_KILLED: &str = "server_killed";
/// The failure that needs a machine that can suspend.
const SUSPENDED: &str = "suspended";
const KINDS: u32 = EVERYWHERE.len() as u32;

fn tasks(steps: u32, sleep: bool) -> Vec<Task> {
    let work = Chaos {
        steps,
        seed: 0xc4a0,
        sleep,
    };
    vec![Task::new(TASK, Work::Chaos(work))]
}

/// Verdict that each failure of `EVERYWHERE` and `further` has occurred at least once. The guest
/// checks the state after each failure.
fn all_troubles_occur(aggregates: &Aggregates, further: &[&str]) -> Vec<Verdict> {
    let troubles = [&EVERYWHERE[..], further].concat();
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let count = |name: &str| seen.median(arm, &format!("trouble_{name}"));
        count(EVERYWHERE[0])?;
        let missing: Vec<&str> = troubles
            .iter()
            .copied()
            .filter(|name| count(name).is_none_or(|count| count < 1.0))
            .collect();
        let all: f64 = troubles.iter().filter_map(|name| count(name)).sum();
        Some(Verdict::new(
            format!("{}: {arm} meets every kind of failure", seen.variant),
            missing.is_empty(),
            match missing.is_empty() {
                true => format!("{all} of {} kinds", troubles.len()),
                false => format!("missing: {}", missing.join(", ")),
            },
        ))
    })
}

/// Each failure once, without a session; part of every test run.
pub const SHORT: Spec = Spec {
    name: "chaos-short",
    about: "everything around limelightd breaks once, and the state is correct afterwards",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &[TASK])],
    tasks: |_, _| tasks(KINDS, false),
    time_limit_s: 240,
    must_hold: |aggregates| all_troubles_occur(aggregates, &[]),
    ..Spec::TEST
};

/// Each failure once, with a user's session and Debian's X server.
pub const SESSION: Spec = Spec {
    name: "chaos-session",
    about: "the same beside a session with an X server and limelight-agent, which are killed too",
    kind: Kind::Soak,
    machine: |_| MachineSize {
        memory_mib: 384,
        rootfs_packages: vec!["xvfb"],
        ..MachineSize::default()
    },
    tasks: |_, _| tasks(KINDS + 1, false),
    time_limit_s: 600,
    must_hold: |aggregates| all_troubles_occur(aggregates, &[SERVER_KILLED]),
    ..SHORT
};

/// Each failure once, and a suspend. This is separate from the other scenarios, because the
/// emulator crashed during one such run. Our kernel is built without suspend.
pub const SLEEP: Spec = Spec {
    name: "chaos-sleep",
    about: "chaos-short on a machine that also suspends",
    kind: Kind::Soak,
    arms: &[ON_DEBIAN],
    tasks: |_, _| tasks(KINDS + 1, true),
    must_hold: |aggregates| all_troubles_occur(aggregates, &[SUSPENDED]),
    ..SHORT
};

/// 400 failures in random order.
pub const LONG: Spec = Spec {
    name: "chaos",
    about: "everything around limelightd and a session breaks, 400 times in random order",
    tasks: |_, _| tasks(400, false),
    time_limit_s: 7200,
    ..SESSION
};
