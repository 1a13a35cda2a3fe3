// SPDX-License-Identifier: GPL-2.0-or-later
//! A background app grows while memory is short, with and without `[swap] throttle`.

use limelight_apps::scenario::{Grower, Throttle};

use super::leak;
use super::terms::*;

/// Rates of the leaks in MiB per second: one that the limit hardly slows, and a faster one.
const LEAKS_MIB_PER_S: [u32; 2] = [8, 24];
const BUILD_MIB_PER_S: u32 = 24;

fn tasks(variant: &Variant) -> Vec<Task> {
    let task = |name: &str, grower, mib_per_s, throttle| {
        let name = format!("{name}-{}", if throttle { "on" } else { "off" });
        let work = Throttle {
            grower,
            mib_per_s,
            throttle,
        };
        Task::new(name, Work::Throttle(work))
    };
    let mut all = Vec::new();
    for on in [false, true] {
        for rate in LEAKS_MIB_PER_S {
            all.push(task(&format!("leak-{rate}"), Grower::Leak, rate, on));
        }
        // Without swap, the build does not fit into memory.
        if variant.swap != SwapKind::None {
            for (name, grower) in [
                ("build", Grower::HiddenBuild),
                ("terminal-build", Grower::TerminalBuild),
            ] {
                all.push(task(name, grower, BUILD_MIB_PER_S, on));
            }
        }
    }
    all
}

/// Measures what the limit on leaking apps gains, and what it costs a build.
pub const THROTTLE: Spec = Spec {
    name: "throttle",
    about: "a leaking background app is slowed while memory is short, and a build in a terminal \
            is not",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None, SwapKind::Disk, SwapKind::Zram],
        &["growth"],
    )],
    machine: |_| leak::machine(0),
    tasks: |variant, _| tasks(variant),
    time_limit_s: 900,
    metrics: &[&[
        Metric::neutral("leaked_us", "leak, from its start to its end"),
        Metric::lower("leaked_mib_10s", "the leak's size after 10 s"),
        Metric::lower("front_us", "time of all uses of the foreground app"),
        Metric::lower("front_faults", "major faults of the foreground app"),
        Metric::lower("others_us", "time of the next use of the other apps"),
        Metric::lower("others_faults", "major faults of the other apps"),
        Metric::lower("others_dead", "other apps dead"),
        Metric::lower("build_us", "time of the build"),
        Metric::lower("oom_kills", "OOM kills"),
    ]],
    repetitions: 3,
    ..Spec::BENCHMARK
};
