// SPDX-License-Identifier: GPL-2.0-or-later
//! An hour of use in a few minutes: app switches, leaks and storms. Checks that the daemon keeps
//! running and uses few resources.
//!
//! A user who changes the app every 15 s makes 240 changes an hour. Here each app is in the
//! foreground for a second, and twelve leaks and six storms occur in between. This is about ten
//! times faster, so the daemon's CPU share is about ten times as high as in an ordinary hour. In
//! exact mode the CPU executes one instruction per nanosecond on any host.

use limelight_apps::scenario::SwapSoak;

use super::leak;
use super::terms::*;

const TASK: &str = "hour";
/// Microseconds in an hour. The measured time stands for a whole hour of use.
const HOUR_US: f64 = 3600e6;

/// Limits for the daemon: its memory in KiB, and its CPU time in percent of the hour on one CPU.
const RSS_KIB: f64 = 10.0 * 1024.0;
const CPU_PERCENT: f64 = 1.0;
/// Maximum growth of the daemon's open descriptors from the first tenth of the run to the last. The
/// apps that happen to run explain this many.
const SLACK: f64 = 16.0;

/// The accelerated hour.
pub const SWAP_SOAK: Spec = Spec {
    name: "swap-soak",
    about: "an hour of app switches, leaks and storms, ten times faster: the daemon's memory and \
            processor time",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk, SwapKind::None], &[TASK])],
    // In exact mode Debian's kernel uses slightly more memory.
    machine: |_| MachineSize {
        memory_mib: 272,
        ..leak::machine(0)
    },
    tasks: |_, _| {
        let work = SwapSoak {
            switches: 240,
            pause_ms: 1000,
            leak_every: 20,
            storm_every: 40,
        };
        vec![Task::new(TASK, Work::SwapSoak(work))]
    },
    time_limit_s: 3600,
    must_hold,
    metrics: &[&[
        Metric::lower("daemon_rss_kib", "the daemon's memory"),
        Metric::lower("daemon_cpu_percent", "the daemon's % of a processor"),
        Metric::neutral("kills", "kills"),
        Metric::lower("restarted", "apps restarted"),
        Metric::lower("oom_kills", "OOM kills"),
    ]],
    mode: Mode::Exact,
    expected_console: OUT_OF_MEMORY,
    ..Spec::SOAK
};

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let Some(elapsed) = seen.median(arm, "measured_us") else {
            return Vec::new();
        };
        let get = |name| seen.median(arm, name).unwrap_or(f64::INFINITY);
        let rss = get("daemon_rss_kib");
        let percent = get("daemon_cpu_percent");
        let hour = percent * elapsed / HOUR_US;
        let (first, last) = (get("daemon_fds_first"), get("daemon_fds_last"));
        let killed = get("oom_kills");
        let lost = get("keep_lost");
        [
            (
                "takes less than 10 MiB of memory",
                rss < RSS_KIB,
                format!("at most {rss} KiB resident"),
            ),
            (
                "takes less than 1 % of a processor in such an hour",
                hour < CPU_PERCENT,
                format!("{percent:.2} % at this speed, {hour:.2} % of an hour"),
            ),
            (
                "does not leak descriptors",
                last <= first + SLACK,
                format!("{first} at first, {last} at last"),
            ),
            (
                "leaves no app to the kernel's OOM killer",
                killed == 0.0,
                format!("{killed} OOM kills"),
            ),
            (
                "kills no app of the class keep",
                lost == 0.0,
                format!("{lost} apps of the class keep dead"),
            ),
        ]
        .map(|(what, held, figures)| {
            Verdict::new(format!("{}: {arm} {what}", seen.variant), held, figures)
        })
        .into()
    })
}
