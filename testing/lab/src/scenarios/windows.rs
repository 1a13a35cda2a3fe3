// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: their promises with real programs, the error of the daemon's response times
//! relative to an independent measurement, and the cost of a window.

use limelight_apps::scenario::{OracleDisplay, WindowOracle};

use super::gallery_real::PACKAGES;
use super::terms::*;

const ALONE: &str = "alone";
const LOOPS: &str = "4-add-loops";
const KMS: &str = "kms";
const KMS_LOOPS: &str = "kms-4-add-loops";
const TASK: &str = "windows";
/// Number of keys pressed in a run.
const KEYS: u32 = 40;
/// Tolerance of the daemon's times: this share of the oracle's time, plus `OFF_US` microseconds, by
/// which two clients of one server may differ. The lower bound is the oracle's `oracle` time, which
/// comes from event time stamps. The upper bound is its `heard` time, taken when the oracle
/// receives the event.
const OFF: f64 = 0.05;
const OFF_US: f64 = 3_000.0;
/// Highest CPU time that a window may cost the daemon, in microseconds.
const COST_US: f64 = 200.0;

fn machine() -> MachineSize {
    MachineSize {
        memory_mib: 384,
        data_mib: 64,
        rootfs_packages: PACKAGES.to_vec(),
        ..MachineSize::default()
    }
}

/// The promises of response windows, checked by the guest.
pub const RULES: Spec = Spec {
    name: "windows",
    about: "real keys open response windows, the frames of a real app close them, and nothing \
            else does",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["rules"])],
    arms: &[LIMELIGHT],
    machine: |_| machine(),
    tasks: |_, _| {
        vec![
            Task::new("x11", Work::WindowRules),
            Task::new("evdev", Work::WindowSources),
        ]
    },
    time_limit_s: 300,
    ..Spec::TEST
};

/// Compares the daemon's response times with the times of an oracle: a second X client, or an app
/// that gets frame events from the kernel.
pub const ORACLE: Spec = Spec {
    name: "window-oracle",
    about: "the daemon's response times beside those that a second X client, or the app, measures",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None],
        &[ALONE, LOOPS, KMS, KMS_LOOPS],
    )],
    // The distribution's kernel for virtual machines has no display driver.
    excludes: |variant, arm| arm == ON_DEBIAN && variant.load.starts_with(KMS),
    machine: |_| machine(),
    tasks: |variant, _| {
        let (display, loads) = match variant.load.as_str() {
            LOOPS => (OracleDisplay::X11, 4),
            KMS => (OracleDisplay::Kms, 0),
            KMS_LOOPS => (OracleDisplay::Kms, 4),
            _ => (OracleDisplay::X11, 0),
        };
        let work = WindowOracle {
            display,
            keys: KEYS,
            pause_ms: 400,
            loads,
        };
        vec![Task::new(TASK, Work::WindowOracle(work))]
    },
    time_limit_s: 400,
    must_hold: |aggregates| Seen::each_arm(aggregates, TASK, agrees),
    metrics: &[&[
        Metric::neutral("daemon_p50_us", "p50 by limelight latency"),
        Metric::neutral("oracle_p50_us", "p50 by the oracle"),
        Metric::neutral("heard_p50_us", "p50, received by the oracle"),
        Metric::neutral("daemon_p95_us", "p95 by limelight latency"),
        Metric::neutral("oracle_p95_us", "p95 by the oracle"),
        Metric::neutral("heard_p95_us", "p95, received by the oracle"),
        Metric::neutral("daemon_max_us", "longest by limelight latency"),
        Metric::neutral("oracle_max_us", "longest by the oracle"),
    ]],
    repetitions: 3,
    ..Spec::BENCHMARK
};

fn agrees(seen: &Seen<'_>, arm: ArmOn) -> Vec<Verdict> {
    let variant = seen.variant;
    let median = |name: &str| seen.median(arm, name);
    let mut verdicts = Vec::new();
    if let (Some(keys), Some(answers)) = (median("keys"), median("daemon_answers")) {
        verdicts.push(Verdict::new(
            format!("{variant}: {arm} has one answer for each key"),
            keys == answers,
            format!("{answers} answers to {keys} keys"),
        ));
    }
    for name in ["p50", "p95"] {
        let of = |who: &str| median(&format!("{who}_{name}_us"));
        if let (Some(told), Some(stamped), Some(heard)) = (of("daemon"), of("oracle"), of("heard"))
        {
            let least = stamped - stamped * OFF - OFF_US;
            let most = heard + heard * OFF + OFF_US;
            verdicts.push(Verdict::new(
                format!(
                    "{variant}: {arm}'s {name} is at most 5 % and 3 ms below the oracle's stamped \
                     time, or above its received time"
                ),
                least <= told && told <= most,
                format!("{told:.0} us, stamped {stamped:.0} us, received {heard:.0} us"),
            ));
        }
    }
    verdicts
}

/// Measures CPU time per window, in exact mode.
pub const COST: Spec = Spec {
    name: "window-cost",
    about: "instructions that a response window costs the daemon",
    variants: &[(&[Lru::Mglru], &[SwapKind::None], &["socket"])],
    tasks: |_, _| vec![Task::new("cost", Work::WindowCost)],
    time_limit_s: 120,
    must_hold: |aggregates| {
        Seen::each_arm(aggregates, "cost", |seen, arm| {
            let cost = seen.median(arm, "daemon_us_per_window")?;
            Some(Verdict::new(
                format!(
                    "{}: {arm} spends at most {COST_US} us on a window",
                    seen.variant
                ),
                cost <= COST_US,
                format!("{cost:.1} us"),
            ))
        })
    },
    metrics: &[&[
        Metric::lower(
            "daemon_us_per_window",
            "daemon's processor time for a window",
        ),
        Metric::lower("elapsed_us_per_window", "window, from request to answer"),
        Metric::lower("ioctl_us_per_window", "window, ioctls of the kernel"),
        Metric::lower("ioctl_us_for_nothing", "two ioctls that do nothing"),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};
