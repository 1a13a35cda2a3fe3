// SPDX-License-Identifier: GPL-2.0-or-later
//! An hour of use in a few minutes: apps in turn, leaks, storms. Checks that the daemon keeps
//! running and uses few resources.
//!
//! A user who changes the app every 15 s does so 240 times an hour. Here each is in the foreground
//! for a second, with twelve leaks and six storms in between: about ten times faster, so the
//! daemon's CPU share is about ten times that of an ordinary hour. The CPU executes one instruction
//! per nanosecond, whatever the host is (exact mode).

use std::time::Duration;

use limelight_apps::scenario::{SwapSoak as Parameters, Work};

use super::leak;
use super::terms::{LIMELIGHT, ON_DEBIAN};
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// The accelerated hour.
pub struct SwapSoak;

const TASK: &str = "hour";
const SWITCHES: u32 = 240;
const PAUSE_MS: u32 = 1000;
const LEAK_EVERY: u32 = 20;
const STORM_EVERY: u32 = 40;
/// Microseconds in an hour, to scale the CPU share from the measured time.
const HOUR_US: f64 = 3600e6;

/// Limits for the daemon's memory and CPU share.
const RSS_KIB: f64 = 10.0 * 1024.0;
const CPU_PERCENT: f64 = 1.0;
/// Descriptors that come and go with the currently running apps.
const SLACK: f64 = 16.0;

impl Scenario for SwapSoak {
    fn name(&self) -> &'static str {
        "swap-soak"
    }

    fn about(&self) -> &'static str {
        "an hour of apps in turn, leaks and storms, ten times faster: what the daemon takes"
    }

    fn kind(&self) -> Kind {
        Kind::Soak
    }

    fn variants(&self) -> Vec<Variant> {
        Variant::product(&[Lru::Mglru], &[SwapKind::Disk, SwapKind::None], &[TASK])
    }

    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN, LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        // In exact mode Debian's kernel uses slightly more memory.
        MachineSize {
            memory_mib: 272,
            ..leak::machine(0)
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            switches: SWITCHES,
            pause_ms: PAUSE_MS,
            leak_every: LEAK_EVERY,
            storm_every: STORM_EVERY,
        };
        vec![Task::new(TASK, Work::SwapSoak(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(3600)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for variant in aggregates.variants() {
            for arm in [ON_DEBIAN, LIMELIGHT] {
                let value = |name| aggregates.median(&variant, arm, TASK, name);
                let Some(elapsed) = value("measured_us") else {
                    continue;
                };
                let get = |name| value(name).unwrap_or(f64::INFINITY);
                let mut hold = |what: &str, held: bool, seen: String| {
                    verdicts.push(Verdict::new(format!("{variant}: {arm} {what}"), held, seen));
                };
                let rss = get("daemon_rss_kib");
                hold(
                    "takes less than 10 MiB",
                    rss < RSS_KIB,
                    format!("{rss} KiB"),
                );
                let percent = get("daemon_cpu_percent");
                let hour = percent * elapsed / HOUR_US;
                hold(
                    "takes less than 1 % of a processor in an hour of this",
                    hour < CPU_PERCENT,
                    format!("{percent:.2} % at this speed, {hour:.2} % of an hour"),
                );
                let (first, last) = (get("daemon_fds_first"), get("daemon_fds_last"));
                hold(
                    "opens no more and more descriptors",
                    last <= first + SLACK,
                    format!("{first} at first, {last} at last"),
                );
                let killed = get("oom_kills");
                hold(
                    "leaves no app to the kernel's OOM killer",
                    killed == 0.0,
                    format!("{killed} killed"),
                );
                let lost = get("keep_lost");
                hold(
                    "kills no app of the class keep",
                    lost == 0.0,
                    format!("{lost} lost"),
                );
            }
        }
        verdicts
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = Metric::new;
        vec![
            metric("daemon_rss_kib", "the daemon's memory", Better::Lower),
            metric(
                "daemon_cpu_percent",
                "its part of a processor",
                Better::Lower,
            ),
            metric("kills", "kills", Better::Neutral),
            metric("restarted", "apps started anew", Better::Lower),
            metric("oom_kills", "OOM kills", Better::Lower),
        ]
    }

    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}
