// SPDX-License-Identifier: GPL-2.0-or-later
//! How the daemon's cost grows with the number of apps, the number of other cgroups, and the
//! machine's memory. In exact mode a nanosecond is an instruction, so times do not depend on the
//! host. The verdicts are on counters.

use limelight_apps::scenario::Scale;

use super::terms::*;

const TASK: &str = "focus";
/// Number of apps beside the two in turn, number of services, and memory in MiB, where a variant
/// does not set them.
const APPS: u32 = 10;
const CGROUPS: u32 = 10;
const MEMORY_MIB: u32 = 2048;
/// Limits for the daemon's memory in KiB: without apps, per app, and per service.
const RSS_KIB: f64 = 6.0 * 1024.0;
const APP_KIB: f64 = 8.0;
const CGROUP_KIB: f64 = 1.0;
/// Limits for `read()` calls per focus change: without apps, per app, and per service.
const READS: f64 = 1300.0;
const APP_READS: f64 = 20.0;
const CGROUP_READS: f64 = 5.0;
/// Limit for wakeups of the daemon's threads in a minute of rest.
const WAKEUPS: f64 = 6.0;

/// The daemon's cost by number of apps, number of services and size of memory.
pub const SCALE: Spec = Spec {
    name: "scale",
    about: "the daemon's memory and processor time beside 1 to 500 apps and 10 to 2,000 services, \
            with 256 MiB to 4 GiB of memory",
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::None],
        &[
            "apps-1",
            "apps-10",
            "apps-100",
            "apps-500",
            "cgroups-10",
            "cgroups-100",
            "cgroups-500",
            "cgroups-2000",
            "cgroups-2000-memory-1024",
            "memory-256",
            "memory-1024",
            "memory-4096",
        ],
    )],
    arms: &[ON_DEBIAN],
    further_arms: &[LIMELIGHT],
    machine: |variant| MachineSize {
        memory_mib: number(variant, "memory", MEMORY_MIB),
        vcpus: 1,
        ..MachineSize::default()
    },
    tasks: |variant, _| vec![Task::new(TASK, Work::Scale(work(variant)))],
    time_limit_s: 900,
    must_hold: |aggregates| Seen::each_arm(aggregates, TASK, must_hold),
    metrics: &[&[
        Metric::lower("daemon_rss_kib", "the daemon's memory"),
        Metric::lower("daemon_us_per_change", "daemon's time for a focus change"),
        Metric::lower("daemon_reads_per_change", "reads for a focus change"),
        Metric::lower("protected_us", "focus request to protection"),
        Metric::lower("answered_us", "focus request to answer"),
        Metric::lower("rest_us_per_minute", "daemon's time in a minute of rest"),
        Metric::lower("rest_wakeups_per_minute", "wakeups in a minute of rest"),
    ]],
    repetitions: 1,
    mode: Mode::Exact,
    ..Spec::BENCHMARK
};

/// The number after `what-` in the variant's load; `otherwise` if there is none.
fn number(variant: &Variant, what: &str, otherwise: u32) -> u32 {
    let mut words = variant.load.split('-');
    let of = words.find(|word| *word == what).and(words.next());
    of.and_then(|number| number.parse().ok())
        .unwrap_or(otherwise)
}

fn work(variant: &Variant) -> Scale {
    Scale {
        apps: number(variant, "apps", APPS),
        cgroups: number(variant, "cgroups", CGROUPS),
    }
}

fn must_hold(seen: &Seen<'_>, arm: ArmOn) -> Vec<Verdict> {
    let Scale { apps, cgroups } = work(seen.variant);
    let most = |base: f64, app: f64, cgroup: f64| {
        base + app * f64::from(apps) + cgroup * f64::from(cgroups)
    };
    let bounds = [
        (
            "daemon_rss_kib",
            "KiB resident",
            most(RSS_KIB, APP_KIB, CGROUP_KIB),
        ),
        (
            "daemon_reads_per_change",
            "reads for a focus change",
            most(READS, APP_READS, CGROUP_READS),
        ),
        (
            "rest_wakeups_per_minute",
            "wakeups in a minute of rest",
            WAKEUPS,
        ),
    ];
    let judge = |(name, what, most): (&str, &str, f64)| {
        let value = seen.median(arm, name)?;
        Some(seen.figure(
            format!("{arm} has at most {most} {what}"),
            value <= most,
            format!("{value} {what}"),
        ))
    };
    bounds.into_iter().filter_map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_sets_the_numbers_in_its_name() {
        let default = (
            Scale {
                apps: APPS,
                cgroups: CGROUPS,
            },
            MEMORY_MIB,
        );
        let variants = SCALE.variants();
        let of = |load: &str| {
            let variant = variants.iter().find(|variant| variant.load == load);
            let variant = variant.expect("the variant exists");
            (work(variant), (SCALE.machine)(variant).memory_mib)
        };
        assert_eq!(of("apps-10"), default);
        assert_eq!(of("cgroups-10"), default);
        assert_eq!(of("apps-500").0.apps, 500);
        assert_eq!(of("cgroups-2000").0.cgroups, 2000);
        assert_eq!(of("memory-4096"), (default.0, 4096));
        assert_eq!(of("cgroups-2000-memory-1024").0.cgroups, 2000);
        assert_eq!(of("cgroups-2000-memory-1024").1, 1024);
    }
}
