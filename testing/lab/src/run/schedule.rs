// SPDX-License-Identifier: GPL-2.0-or-later
//! The machines that a scenario needs, and the order of the cells in each.
//!
//! Arms are compared only within a variant. Anything that changes over time (the host's
//! temperature, its other work) must therefore affect all arms of a variant alike. Within a boot
//! the arms take turns, successive repetitions start with different arms, and the boots of
//! different kernels alternate.

use std::collections::BTreeSet;
use std::slice;

use anyhow::{ensure, Result};
use limelight_apps::plan::{Arm, Cell, Init};

use crate::scenario::{ArmOn, Kernel, MachineSize, Mode, Spec, Variant};

/// Selects what runs, from the command line. An empty filter selects everything.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Substrings, or whole names after a `=`; a variant's name must contain or equal one of them.
    pub variants: Vec<String>,
    /// Names of arms (`stock`) or of arms on a kernel (`stock@debian`).
    pub arms: Vec<String>,
    /// As for `variants`, of a task's name.
    pub tasks: Vec<String>,
    /// Number of repetitions; by default the scenario's.
    pub repetitions: Option<u32>,
    /// Number of repetitions to skip from the beginning, because they have already run.
    pub skipped: u32,
    /// Mode; by default the scenario's.
    pub mode: Option<Mode>,
}

impl Selection {
    fn takes_variant(&self, variant: &Variant) -> bool {
        names_one(&self.variants, &variant.to_string())
    }

    fn takes_task(&self, name: &str) -> bool {
        names_one(&self.tasks, name)
    }

    fn takes_arm(&self, arm: ArmOn) -> bool {
        names_arm(&self.arms, &arm.to_string())
    }
}

/// Whether one of `parts`, or their absence, selects `name`.
fn names_one(parts: &[String], name: &str) -> bool {
    let takes = |part: &String| match part.strip_prefix('=') {
        Some(whole) => name == whole,
        None => name.contains(part),
    };
    parts.is_empty() || parts.iter().any(takes)
}

/// Whether one of `parts`, or their absence, selects the arm `name`: `stock@debian`.
fn names_arm(parts: &[String], name: &str) -> bool {
    let alone = name.split_once('@').map_or(name, |(arm, _)| arm);
    parts.is_empty() || parts.iter().any(|part| part == name || part == alone)
}

/// A filter by name.
type Takes = fn(&[String], &str) -> bool;

/// The arms of a variant that can be named on the command line.
fn nameable_arms(spec: &Spec, variant: &Variant) -> Vec<ArmOn> {
    [
        &spec.arms(variant)[..],
        spec.further_arms,
        spec.deferred_arms,
    ]
    .concat()
}

/// One boot of one machine.
#[derive(Debug, Clone)]
pub struct Boot {
    /// The setting.
    pub variant: Variant,
    /// The kernel.
    pub kernel: Kernel,
    /// The machine.
    pub size: MachineSize,
    /// The guest's notion of time.
    pub mode: Mode,
    /// Parameters added to the kernel's command line.
    pub parameters: &'static [&'static str],
    /// The cells, in the order of execution.
    pub cells: Vec<Scheduled>,
    /// Time limit of all cells together, in seconds of guest time.
    pub limit_s: u64,
}

/// A cell, and the arm and task of its results.
#[derive(Debug, Clone)]
pub struct Scheduled {
    /// The cell for the guest.
    pub cell: Cell,
    /// The arm on its kernel.
    pub arm: ArmOn,
    /// The task's name.
    pub task: String,
}

impl Boot {
    /// Seed of the machine's random numbers; the cells have seeds of their own. Each boot of an arm
    /// has a different seed, and all arms use the same seeds.
    pub fn seed(&self) -> u32 {
        self.cells
            .first()
            .map_or(1, |first| first.cell.repetition + 1)
    }
}

/// Checks that each text of `selection` selects something in `spec`.
///
/// # Errors
///
/// Names the first text that selects nothing, and what there is to select.
pub fn check_selection(spec: &Spec, selection: &Selection) -> Result<()> {
    let (mut variants, mut arms, mut tasks) = (Vec::new(), Vec::new(), BTreeSet::new());
    for variant in spec.variants() {
        for arm in nameable_arms(spec, &variant) {
            tasks.extend(
                (spec.tasks)(&variant, arm)
                    .into_iter()
                    .map(|task| task.name),
            );
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
        variants.push(variant.to_string());
    }
    let arms: Vec<String> = arms.iter().map(ToString::to_string).collect();
    let tasks: Vec<String> = tasks.into_iter().collect();
    let check = |option, texts: &[String], none, names: &[String], takes: Takes| {
        for text in texts {
            ensure!(
                names.iter().any(|name| takes(slice::from_ref(text), name)),
                "{option} {text}: {} has {none} of that name; it has {}",
                spec.name,
                names.join(", ")
            );
        }
        Ok(())
    };
    check(
        "--variant",
        &selection.variants,
        "none",
        &variants,
        names_one,
    )?;
    check("--arms", &selection.arms, "no arm", &arms, names_arm)?;
    check("--tasks", &selection.tasks, "none", &tasks, names_one)
}

/// Whether `mode` supports the machine. Fast mode has no cache model. Exact mode may not read a
/// host disk during a measurement, so it supports a root file system in two cases only. Either PID
/// 1 is not the lab's and the disks have unlimited speed: the guest then copies the root file
/// system to its memory. Or the data disk is slow ([`MachineSize::request_nsec`]) and thus in guest
/// memory: the programs are copied to that disk before the measurement.
pub fn possible(mode: Mode, size: &MachineSize) -> bool {
    match mode {
        Mode::Fast => !size.cache_model,
        Mode::Exact => {
            let in_memory = size.init != Init::Lab && size.disk_speed.is_none();
            let slow = size.request_nsec > 0 || size.flash.is_some();
            size.rootfs_packages.is_empty() || slow || in_memory
        }
    }
}

/// The boots of a scenario, in order of execution.
pub fn boots(spec: &Spec, selection: &Selection) -> Vec<Boot> {
    let mode = selection.mode.unwrap_or(spec.mode);
    let mut all = Vec::new();
    for variant in spec.variants() {
        if selection.takes_variant(&variant) && possible(mode, &(spec.machine)(&variant)) {
            variant_boots(spec, selection, &variant, mode, &mut all);
        }
    }
    all
}

/// DAMON_LRU_SORT, active at any amount of free memory. By default it rests while less than a
/// twentieth of memory is free, which is the usual state of a machine with background work, and
/// a region counts as cold after two minutes, which is longer than a measurement.
const DAMON_LRU_SORT: &[&str] = &[
    "damon_lru_sort.wmarks_high=1000",
    "damon_lru_sort.wmarks_mid=1000",
    "damon_lru_sort.wmarks_low=0",
    "damon_lru_sort.cold_min_age=1000000",
    "damon_lru_sort.enabled=Y",
];

/// DAMON_RECLAIM, active at any amount of free memory. By default it rests while less than a fifth
/// of memory is free, and reclaims regions that were unused for two minutes.
const DAMON_RECLAIM: &[&str] = &[
    "damon_reclaim.wmarks_high=1000",
    "damon_reclaim.wmarks_mid=1000",
    "damon_reclaim.wmarks_low=0",
    "damon_reclaim.min_age=1000000",
    "damon_reclaim.enabled=Y",
];

/// Kernel parameters that an arm adds. Arms with different parameters never share a boot.
fn kernel_parameters(arm: Arm) -> &'static [&'static str] {
    match arm {
        Arm::InitOnFree => &["init_on_free=1"],
        Arm::DamonLruSort => DAMON_LRU_SORT,
        Arm::DamonReclaim => DAMON_RECLAIM,
        _ => &[],
    }
}

fn variant_boots(
    spec: &Spec,
    selection: &Selection,
    variant: &Variant,
    mode: Mode,
    all: &mut Vec<Boot>,
) {
    let repetitions = selection.repetitions.unwrap_or(spec.repetitions);
    let mut groups: Vec<(Kernel, &[&str], Vec<ArmOn>)> = Vec::new();
    let arms = match selection.arms.is_empty() {
        true => spec.arms(variant),
        false => nameable_arms(spec, variant),
    };
    for arm in arms.into_iter().filter(|arm| selection.takes_arm(*arm)) {
        let shared = !spec.boot_per_arm && mode == Mode::Fast;
        let parameters = kernel_parameters(arm.arm);
        match groups
            .iter_mut()
            .find(|(kernel, words, _)| shared && *kernel == arm.kernel && *words == parameters)
        {
            Some((_, _, arms)) => arms.push(arm),
            None => groups.push((arm.kernel, parameters, vec![arm])),
        }
    }
    let limit = spec.time_limit_s.max(1);
    let per_boot = spec.repetitions_per_boot.max(1);
    let rounds = (selection.skipped..repetitions).step_by(per_boot as usize);
    for (round, first) in rounds.enumerate() {
        let last = (first + per_boot).min(repetitions);
        let turn = round % groups.len().max(1);
        for (kernel, parameters, arms) in groups[turn..].iter().chain(&groups[..turn]) {
            let mut cells = Vec::new();
            for repetition in first..last {
                let turn = repetition as usize % arms.len();
                for arm in arms[turn..].iter().chain(&arms[..turn]) {
                    cells.extend(tasks(spec, variant, *arm, repetition, limit, selection));
                }
            }
            let turns = u64::from(last - first) * arms.len() as u64;
            all.push(Boot {
                variant: variant.clone(),
                kernel: *kernel,
                size: (spec.machine)(variant),
                mode,
                parameters,
                cells,
                limit_s: turns * limit,
            });
        }
    }
}

fn tasks(
    spec: &Spec,
    variant: &Variant,
    arm: ArmOn,
    repetition: u32,
    limit: u64,
    selection: &Selection,
) -> Vec<Scheduled> {
    let limit_s = u32::try_from(limit).unwrap_or(u32::MAX);
    (spec.tasks)(variant, arm)
        .into_iter()
        .filter(|task| selection.takes_task(&task.name))
        .map(|task| Scheduled {
            cell: Cell {
                id: format!("{arm}/{}/{repetition}", task.name),
                arm: arm.arm,
                repetition,
                limit_s,
                work: task.work,
            },
            arm,
            task: task.name,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use limelight_apps::scenario::Work;

    use super::*;
    use crate::scenario::{Lru, SwapKind, Task};

    const IDLE: ArmOn = ArmOn::new(Arm::Idle, Kernel::Debian);
    const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
    const OURS: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);
    const STOCK_OURS: ArmOn = ArmOn::new(Arm::Stock, Kernel::Limelight);

    const SAMPLE: Spec = Spec {
        name: "sample",
        variants: &[(
            &[Lru::TwoList, Lru::Mglru],
            &[SwapKind::Disk, SwapKind::Zram],
            &["copy"],
        )],
        arms: &[IDLE, STOCK, OURS],
        further_arms: &[STOCK_OURS],
        machine: |variant| MachineSize {
            rootfs_packages: match variant.lru {
                Lru::TwoList => vec!["feh"],
                Lru::Mglru => Vec::new(),
            },
            ..MachineSize::default()
        },
        tasks: |_, _| ["a", "b"].map(|name| Task::new(name, Work::Startup)).into(),
        time_limit_s: 10,
        repetitions_per_boot: 2,
        ..Spec::BENCHMARK
    };

    fn select(variant: &str, repetitions: u32) -> Selection {
        Selection {
            variants: vec![variant.into()],
            repetitions: Some(repetitions),
            ..Selection::default()
        }
    }

    fn arms(boot: &Boot) -> Vec<(ArmOn, u32)> {
        let firsts = boot.cells.iter().filter(|cell| cell.task == "a");
        firsts
            .map(|cell| (cell.arm, cell.cell.repetition))
            .collect()
    }

    #[test]
    fn kernels_alternate_and_arms_take_turns_to_be_first() {
        let boots = boots(&SAMPLE, &select("mglru/zram", 3));
        let kernels: Vec<Kernel> = boots.iter().map(|boot| boot.kernel).collect();
        let (debian, limelight) = (Kernel::Debian, Kernel::Limelight);
        assert_eq!(kernels, [debian, limelight, limelight, debian]);
        assert_eq!(
            arms(&boots[0]),
            [(IDLE, 0), (STOCK, 0), (STOCK, 1), (IDLE, 1)]
        );
        assert_eq!(arms(&boots[1]), [(OURS, 0), (OURS, 1)]);
        assert_eq!(arms(&boots[3]), [(IDLE, 2), (STOCK, 2)]);
        assert_eq!((boots[0].limit_s, boots[2].limit_s), (40, 10));
    }

    #[test]
    fn names_are_selected_by_a_part_or_as_a_whole() {
        let names = ["day", "day-without-swap", "night"];
        let chosen = |part: &str| {
            let parts = [part.to_owned()];
            names.map(|name| names_one(&parts, name))
        };
        assert_eq!(chosen("day"), [true, true, false]);
        assert_eq!(chosen("=day"), [true, false, false]);
        assert_eq!(names.map(|name| names_one(&[], name)), [true; 3]);
    }

    #[test]
    fn text_that_selects_nothing_is_refused_with_what_there_is() {
        let wrong = |selection: Selection| {
            let checked = check_selection(&SAMPLE, &selection);
            checked.map_err(|error| error.to_string())
        };
        let texts = |text: &str| vec!["=a".into(), "b".into(), text.into()];
        let named = Selection {
            arms: vec!["stock@limelight".into(), "idle".into()],
            tasks: texts("=b"),
            ..select("mglru", 1)
        };
        assert_eq!(wrong(named), Ok(()));
        let arm = Selection {
            arms: vec!["stock".into(), "limelight@debian".into()],
            ..Selection::default()
        };
        assert_eq!(
            wrong(arm),
            Err(
                "--arms limelight@debian: sample has no arm of that name; it has idle@debian, \
                 stock@debian, limelight@limelight, stock@limelight"
                    .into()
            )
        );
        let task = Selection {
            tasks: texts("=c"),
            ..Selection::default()
        };
        assert_eq!(
            wrong(task),
            Err("--tasks =c: sample has none of that name; it has a, b".into())
        );
        assert!(wrong(select("lru/none", 1)).is_err());
    }

    #[test]
    fn repetitions_that_have_run_are_skipped() {
        let selection = Selection {
            skipped: 1,
            ..select("mglru/zram", 3)
        };
        let boots = boots(&SAMPLE, &selection);
        assert_eq!(
            arms(&boots[0]),
            [(STOCK, 1), (IDLE, 1), (IDLE, 2), (STOCK, 2)]
        );
        assert_eq!(boots.iter().map(Boot::seed).min(), Some(2));
    }

    #[test]
    fn every_cell_has_a_unique_id() {
        for boot in boots(&SAMPLE, &select("mglru/zram", 5)) {
            let mut ids: Vec<&str> = boot
                .cells
                .iter()
                .map(|cell| cell.cell.id.as_str())
                .collect();
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), count);
        }
    }

    #[test]
    fn variants_and_arms_can_be_selected() {
        assert_eq!(boots(&SAMPLE, &select("", 1)).len(), 8);
        let mut selection = select("two-list", 1);
        selection.arms = vec!["limelight@limelight".into(), "idle".into()];
        let boots = boots(&SAMPLE, &selection);
        assert!(boots.iter().all(|boot| boot.variant.lru == Lru::TwoList));
        assert_eq!(arms(&boots[0]), [(IDLE, 0)]);
        assert_eq!(arms(&boots[1]), [(OURS, 0)]);
    }

    #[test]
    fn whole_name_selects_one_variant() {
        let variants = |name: &str| boots(&SAMPLE, &select(name, 1)).len();
        assert_eq!(variants("mglru/zram/copy"), variants("=mglru/zram/copy"));
        assert!(variants("zram") > 0);
        assert_eq!(variants("=zram"), 0);
    }

    #[test]
    fn further_arms_run_only_when_named() {
        let mut selection = select("mglru/zram", 1);
        assert!(boots(&SAMPLE, &selection)
            .iter()
            .all(|boot| !arms(boot).contains(&(STOCK_OURS, 0))));
        selection.arms = vec!["stock".into()];
        let boots = boots(&SAMPLE, &selection);
        assert_eq!(arms(&boots[0]), [(STOCK, 0)]);
        assert_eq!(arms(&boots[1]), [(STOCK_OURS, 0)]);
    }

    #[test]
    fn exact_mode_boots_each_arm_separately_and_excludes_root_file_systems() {
        let mut selection = select("zram", 1);
        selection.mode = Some(Mode::Exact);
        let boots = boots(&SAMPLE, &selection);
        assert_eq!(boots.len(), 3);
        assert!(boots.iter().all(|boot| boot.variant.lru == Lru::Mglru));
    }

    #[test]
    fn each_boot_of_an_arm_has_a_seed_shared_by_all_arms() {
        let boots = boots(&SAMPLE, &select("mglru/zram", 3));
        let seeds: Vec<u32> = boots.iter().map(Boot::seed).collect();
        assert_eq!(seeds, [1, 1, 3, 3]);
    }
}
