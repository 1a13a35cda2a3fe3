// SPDX-License-Identifier: GPL-2.0-or-later
//! A shortened day: ten of Debian's programs, visited in turn beside a package upgrade, a backup
//! and an index. In the arms with limelightd, further days with one mechanism switched off each show
//! what that mechanism contributes (an ablation).

use limelight_apps::scenario::DayOfUse;

use super::rotation::{on_systemd, APPLICATIONS, DISPLAY, PACKAGES, SWAP_ALL};
use super::terms::*;

/// The day with all mechanisms, and those without one.
const TASK: &str = "day";
const WITHOUT: [(&str, &str); 6] = [
    ("protect", "day-without-protect"),
    ("boost", "day-without-boost"),
    ("readahead", "day-without-readahead"),
    ("swap", "day-without-swap"),
    ("premap", "day-without-premap"),
    ("prezero", "day-without-prezero"),
];
/// The mechanisms that only our kernel has.
const OURS_ONLY: [&str; 2] = ["premap", "prezero"];
/// What counts as waiting.
const WAITS: [(&str, &str); 2] = [
    ("launch_mean_us", "a launch"),
    ("answer_mean_us", "an answer to a key"),
];
/// Largest loss against a simpler arm, and against a day without one of the mechanisms.
const LOSS: f64 = 0.05;

/// Memory of each machine by its load's name. In the first one the apps need nearly all of it; in
/// the others they fit, and the chores fill the rest with page cache.
const MACHINES: [(&str, u32); 3] = [("320-mib", 320), ("1-gib", 1024), ("2-gib", 2048)];

/// The day.
pub const DAY: Spec = Spec {
    name: "day",
    about: "ten of Debian's programs beside an upgrade, a backup and an index; and without each \
            mechanism",
    // An hour for each machine.
    kind: Kind::Named,
    variants: &[(
        &[Lru::Mglru],
        &[SwapKind::Disk, SwapKind::Zram],
        &[MACHINES[0].0, MACHINES[1].0, MACHINES[2].0],
    )],
    arms: &[
        STOCK,
        SWAP_ALL,
        EARLYOOM,
        NOHANG,
        SYSTEMD_OOMD,
        PRELOAD,
        DAMON_LRU_SORT,
        DAMON_RECLAIM,
        ON_DEBIAN,
        LIMELIGHT,
    ],
    machine: |variant| {
        let of_load = MACHINES.iter().find(|(load, _)| *load == variant.load);
        let memory_mib = of_load.map_or(MACHINES[0].1, |(_, mib)| *mib);
        MachineSize {
            memory_mib,
            free_mib: None,
            data_mib: 1280,
            ..on_systemd(
                [
                    &PACKAGES[..],
                    &DISPLAY,
                    &APPLICATIONS,
                    &["preload", "recollcmd"],
                ]
                .concat(),
            )
        }
    },
    tasks: |_, arm| {
        let day = |name: &str, off: Option<&str>| {
            let work = DayOfUse {
                think_ms: 500,
                keys: 2,
                off: off.map(str::to_owned),
            };
            Task::new(name, Work::Day(work))
        };
        let here = |mechanism: &str| {
            arm.is_ours() && (arm == LIMELIGHT || !OURS_ONLY.contains(&mechanism))
        };
        let without = WITHOUT.iter().filter(|(mechanism, _)| here(mechanism));
        let without = without.map(|(mechanism, task)| day(task, Some(mechanism)));
        std::iter::once(day(TASK, None)).chain(without).collect()
    },
    time_limit_s: 9_000,
    must_hold,
    metrics: &[&[
        Metric::lower("launch_mean_us", "mean launch"),
        Metric::lower("launch_p50_us", "median launch"),
        Metric::lower("launch_p95_us", "launch, 95th percentile"),
        Metric::lower("launch_p99_us", "launch, 99th percentile"),
        Metric::lower("answer_mean_us", "mean answer to a key"),
        Metric::lower("answer_p50_us", "median answer"),
        Metric::lower("answer_p95_us", "answer, 95th percentile"),
        Metric::lower("answer_p99_us", "answer, 99th percentile"),
        Metric::lower("kills", "apps that died"),
        Metric::lower("oom_kills", "OOM kills"),
        Metric::lower("refaulted_file_pages", "file pages read again"),
        Metric::lower("refaulted_anon_pages", "pages read from swap"),
        Metric::lower("swap_written_kib", "KiB swapped out"),
        Metric::higher(
            "least_left_kib",
            "least available memory and free swap, KiB",
        ),
        Metric::higher("upgrade_kib", "KiB that the upgrade moved"),
        Metric::higher("backup_kib", "KiB that the backup moved"),
        Metric::higher("index_kib", "KiB that the index moved"),
        Metric::higher("upgrade_alive", "upgrade runs to the end of its part"),
        Metric::higher("backup_alive", "backup runs to the end of its part"),
        Metric::higher("index_alive", "index runs to the end of its part"),
    ]],
    repetitions: 1,
    repetitions_per_boot: 1,
    // One arm's killer may damage systemd's services for the next arm.
    boot_per_arm: true,
    mode: Mode::Fast,
    ..Spec::BENCHMARK
};

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let mut verdicts = Vec::new();
        for (name, wait) in WAITS {
            for base in [STOCK, SWAP_ALL, EARLYOOM, NOHANG, SYSTEMD_OOMD, PRELOAD] {
                let ratio = seen.ratio(name, arm, base);
                verdicts.extend(ratio.map(|ratio| {
                    seen.verdict(
                        format!("{wait} on {arm} takes at most 1.05 of {base}'s time"),
                        ratio <= 1.0 + LOSS,
                        format!("{ratio:.3}"),
                    )
                }));
            }
            for (mechanism, task) in WITHOUT {
                let with = seen.median(arm, name);
                let ratio = with.zip(seen.of(task).median(arm, name));
                verdicts.extend(ratio.map(|(with, without)| {
                    seen.verdict(
                        format!(
                            "{wait} on {arm} takes at most 1.05 of the time without {mechanism}"
                        ),
                        with <= without * (1.0 + LOSS),
                        format!("{:.3}", with / without),
                    )
                }));
            }
        }
        for chore in ["upgrade", "backup", "index"] {
            let alive = seen.median(arm, &format!("{chore}_alive"));
            verdicts.extend(alive.map(|alive| {
                seen.verdict(
                    format!("on {arm}, the {chore} is not closed"),
                    alive == 1.0,
                    format!("{alive}"),
                )
            }));
        }
        let kills = seen.median(arm, "keep_kills");
        verdicts.extend(kills.map(|kills| {
            seen.verdict(
                format!("on {arm}, no app of class keep dies"),
                kills == 0.0,
                format!("{kills}"),
            )
        }));
        verdicts
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_of_a_kernel_is_switched_off_in_one_day() {
        let variant = DAY.variants().remove(0);
        let names = |arm| -> Vec<String> {
            let tasks = (DAY.tasks)(&variant, arm).into_iter();
            tasks.map(|task| task.name.to_string()).collect()
        };
        assert_eq!(names(STOCK), [TASK]);
        assert_eq!(names(ON_DEBIAN).len(), 1 + WITHOUT.len() - OURS_ONLY.len());
        assert_eq!(names(LIMELIGHT).len(), 1 + WITHOUT.len());
    }

    #[test]
    fn machine_has_the_memory_that_its_load_names() {
        for variant in DAY.variants() {
            let mib = (DAY.machine)(&variant).memory_mib;
            let found = MACHINES.iter().find(|(load, _)| *load == variant.load);
            assert_eq!(found.map(|(_, mib)| *mib), Some(mib));
        }
    }
}
