// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows: their rules with real programs, the error of the daemon's response times
//! relative to an independent observer (the oracle), and the cost of a window.

use std::time::Duration;

use limelight_apps::scenario::{OracleDisplay, WindowOracle, Work};

use super::gallery_real::rootfs_packages;
use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// The rules of response windows, one by one.
pub struct Rules;

/// The daemon's figures next to those of a second X client, or of an app with frame events from the
/// kernel.
pub struct Oracle;

/// CPU time per window, in exact mode.
pub struct Cost;

const ALONE: &str = "alone";
const LOOPS: &str = "4-add-loops";
const KMS: &str = "kms";
const KMS_LOOPS: &str = "kms-4-add-loops";
const TASK: &str = "windows";
/// Number of keys with compared answers.
const KEYS: u32 = 40;
/// Tolerances of the daemon's response time: a share of the oracle's, plus microseconds, because
/// two clients of one server may differ. The lower bound is the oracle's time by time stamps. The
/// upper bound is the time until the oracle received the frame.
const OFF: f64 = 0.05;
const OFF_US: f64 = 3_000.0;
/// Highest cost of a window for the daemon, in microseconds.
const COST_US: f64 = 200.0;

fn machine() -> MachineSize {
    MachineSize {
        memory_mib: 384,
        vcpus: 2,
        data_mib: 64,
        rootfs_packages: rootfs_packages(),
        ..MachineSize::default()
    }
}

impl Scenario for Rules {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn about(&self) -> &'static str {
        "real keys open response windows, the frames of a real app close them, and nothing else does"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "rules")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![
            Task::new("x11", Work::WindowRules),
            Task::new("evdev", Work::WindowSources),
        ]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }
}

impl Scenario for Oracle {
    fn name(&self) -> &'static str {
        "window-oracle"
    }

    fn about(&self) -> &'static str {
        "the daemon's response times beside those that a second X client, or the app, measures"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        let loads = [ALONE, LOOPS, KMS, KMS_LOOPS];
        Variant::product(&[Lru::Mglru], &[SwapKind::None], &loads)
    }

    /// The distribution's kernel for virtual machines has no display driver.
    fn arms(&self, variant: &Variant) -> Vec<ArmOn> {
        match variant.load.as_str() {
            KMS | KMS_LOOPS => vec![LIMELIGHT],
            _ => vec![ON_DEBIAN, LIMELIGHT],
        }
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        machine()
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
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
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(400)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let median = |name: &str| aggregates.median(&variant, arm, TASK, name);
                if let (Some(keys), Some(answers)) = (median("keys"), median("daemon_answers")) {
                    verdicts.push(Verdict::new(
                        format!("{variant}: {arm} has one answer for each key"),
                        keys == answers,
                        format!("{answers} of {keys}"),
                    ));
                }
                for name in ["p50", "p95"] {
                    let of = |who: &str| median(&format!("{who}_{name}_us"));
                    if let (Some(told), Some(stamped), Some(heard)) =
                        (of("daemon"), of("oracle"), of("heard"))
                    {
                        let least = stamped - stamped * OFF - OFF_US;
                        let most = heard + heard * OFF + OFF_US;
                        verdicts.push(Verdict::new(
                            format!(
                                "{variant}: {arm}'s {name} is at most 5 % and 3 ms below the \
                                 oracle's stamped time, or above its received time"
                            ),
                            least <= told && told <= most,
                            format!("{told:.0} us, stamped {stamped:.0} us, heard {heard:.0} us"),
                        ));
                    }
                }
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric::new(name, label, Better::Neutral);
        vec![
            metric("daemon_p50_us", "p50 by limelight latency"),
            metric("oracle_p50_us", "p50 by the oracle"),
            metric("heard_p50_us", "p50, received by the oracle"),
            metric("daemon_p95_us", "p95 by limelight latency"),
            metric("oracle_p95_us", "p95 by the oracle"),
            metric("heard_p95_us", "p95, received by the oracle"),
            metric("daemon_max_us", "longest by limelight latency"),
            metric("oracle_max_us", "longest by the oracle"),
        ]
    }
}

impl Scenario for Cost {
    fn name(&self) -> &'static str {
        "window-cost"
    }

    fn about(&self) -> &'static str {
        "instructions that a response window costs the daemon"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "socket")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize::default()
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("cost", Work::WindowCost)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(120)
    }

    fn repetitions(&self) -> u32 {
        1
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let cost = aggregates.median(&variant, arm, "cost", "daemon_us_per_window");
                verdicts.extend(cost.map(|cost| {
                    Verdict::new(
                        format!("{variant}: {arm} spends at most {COST_US} us on a window"),
                        cost <= COST_US,
                        format!("{cost:.1} us"),
                    )
                }));
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric::new(name, label, Better::Lower);
        vec![
            metric(
                "daemon_us_per_window",
                "daemon's processor time for a window",
            ),
            metric("elapsed_us_per_window", "window, from request to answer"),
            metric("ioctl_us_per_window", "window, ioctls of the kernel"),
            metric("ioctl_us_for_nothing", "two calls that do nothing"),
        ]
    }
}
