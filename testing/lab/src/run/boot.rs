// SPDX-License-Identifier: GPL-2.0-or-later
//! Executes one boot: prepares and runs the machine, and turns the guest's records into rows of
//! results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use limelight_apps::plan::{self, Data, Flash, Plan, Record, Swap};

use super::disks::{disks, zero_disk, zero_images, Disks, EXACT_DISK_NSEC};
use super::schedule::{Boot, Scheduled};
use crate::image::{initramfs, package};
use crate::kernel::modules::{Module, Modules};
use crate::kernel::Bootable;
use crate::paths::{self, Paths};
use crate::qemu::plugin::Report;
use crate::qemu::{console, plugin, Accelerator, Ended, Guest, Machine};
use crate::results::{Context, Outcome, Row};
use crate::scenario::{Kernel, Mode};

/// Time limit for a machine to boot and power off, in seconds of host time.
const BOOT_S: u64 = 180;
/// Assumed slowdown of an exact guest's clock relative to the host's.
const EXACT_FACTOR: u64 = 20;
/// Maximum number of boots of a machine. A second boot follows only if the first one fails with the
/// emulator's int3 fault. The second boot emulates the CPUs in one thread.
const BOOTS: u32 = 2;
/// The cache model's output file in the run directory.
const CACHE_REPORTS: &str = "cache.jsonl";
/// Name of the value that holds the number of a cell's cache model report.
const CACHE_REPORT: &str = "cache_report";

/// A boot to execute.
pub struct Job<'a> {
    /// The lab's directories.
    pub paths: &'a Paths,
    /// Name of the scenario.
    pub scenario: &'static str,
    /// The boot's schedule.
    pub boot: &'a Boot,
    /// The boot's kernel.
    pub kernel: &'a Bootable,
    /// The boot's accelerator.
    pub accelerator: Accelerator,
    /// Console texts that are not failures.
    pub expected_console: &'static [&'static str],
    /// Factor on all time limits.
    pub patience: u64,
    /// Whether to keep the run directory of a successful boot.
    pub keep: bool,
    /// Whether the first attempt emulates the CPUs in turn, in one thread.
    pub in_turn: bool,
    /// The rows' conditions; the machine's and the guest's fields are filled in during the boot.
    pub context: Context,
}

/// The result of a boot.
#[derive(Debug)]
pub struct Done {
    /// The rows of all cells; an unfinished cell has a row with [`Outcome::Failed`].
    pub rows: Vec<Row>,
    /// If the machine failed: what happened and how to reproduce it, for people.
    pub failure: Option<String>,
    /// If the machine succeeded but a check or a cell failed: a message with its saved directory.
    pub saved: Option<String>,
}

impl Job<'_> {
    /// Boots the machine and collects its results. `status` gets progress messages.
    pub fn run(mut self, status: &dyn Fn(&str)) -> Result<Done> {
        let dir = self.directory();
        let mut boots = 0;
        let (guest, mut collected, ended) = loop {
            fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
            status("preparing");
            let mut machine = self.prepare(&dir)?;
            machine.in_turn = self.in_turn || boots > 0;
            self.context.memory_mib = machine.memory_mib;
            self.context.vcpus = machine.cpus();
            self.context.accelerator = machine.accelerator().name().into();
            self.context.guest_cpu = machine.cpu().into();

            let mut guest = Guest::start(&machine, &dir, self.limit())?;
            status("booting");
            let mut collected = Collected::new(&self.boot.cells);
            let ended = loop {
                let polled = guest.poll(self.expected_console, &mut |record| {
                    if let Some(text) = collected.take(record) {
                        status(&text);
                    }
                    Ok(())
                });
                match polled {
                    Ok(None) => {}
                    Ok(Some(ended)) => break ended,
                    Err(error) => break Ended::Failed(format!("{error:#}")),
                }
            };
            boots += 1;
            let stale = matches!(ended, Ended::Failed(_))
                && machine.accelerator() == Accelerator::Tcg
                && console::stale_translation(&guest.console()?);
            if stale {
                self.keep_fault(&guest.console()?, machine.in_turn)?;
            }
            if !stale || boots == BOOTS || machine.in_turn {
                break (guest, collected, ended);
            }
            status(
                "the emulator executed stale code (docs/development/lab.md); booting again, in one \
                 thread",
            );
            drop(guest);
            paths::remove_tree(&dir)?;
        };
        let failure = match ended {
            Ended::Done => None,
            Ended::Failed(why) => {
                collected.machine_failed(&why);
                Some(format!(
                    "{}: {why}\n{}\n--- or, with the lab's verdicts: {}",
                    self.name(),
                    guest.post_mortem(),
                    self.command()
                ))
            }
        };
        drop(guest);
        if self.boot.size.cache_model {
            collected.add_reports(&plugin::reports(&dir.join(CACHE_REPORTS))?);
        }
        let cells_failed = collected.failed();
        if failure.is_none() && cells_failed == 0 && !self.keep {
            paths::remove_tree(&dir)?;
        }
        let saved = (failure.is_none() && cells_failed > 0).then(|| {
            format!(
                "{}: {cells_failed} check(s) failed; the machine is saved in {} (its `reproduce` \
                 boots it again)",
                self.name(),
                self.paths.short(&dir)
            )
        });
        let (kernel_release, managed_kib) = (collected.release, collected.managed_kib);
        self.context.kernel_release = kernel_release;
        self.context.managed_kib = managed_kib;
        let rows = collected.outcomes.into_iter().map(|(id, outcome)| {
            let scheduled = &collected.cells[id.as_str()];
            Row {
                scenario: self.scenario.into(),
                variant: self.boot.variant.clone(),
                arm: scheduled.arm,
                task: scheduled.task.clone(),
                repetition: scheduled.cell.repetition,
                context: self.context.clone(),
                outcome,
            }
        });
        Ok(Done {
            rows: rows.collect(),
            failure,
            saved,
        })
    }

    /// Saves the console of a boot that failed with the emulator's int3 fault. The code bytes in
    /// the oops are the evidence for that fault.
    fn keep_fault(&self, console: &str, in_turn: bool) -> Result<()> {
        let dir = self.paths.int3();
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let threads = if in_turn { "one-thread" } else { "threads" };
        let name = self.directory();
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        let path = dir.join(format!("{name}-{threads}.log"));
        fs::write(&path, console).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The command that repeats this boot.
    fn command(&self) -> String {
        let arms: BTreeSet<String> = self.boot.cells.iter().map(|c| c.arm.to_string()).collect();
        format!(
            "cargo run -p limelight-lab -- run {} --variant {} --arms {} --mode {} --keep",
            self.scenario,
            self.boot.variant,
            arms.into_iter().collect::<Vec<_>>().join(","),
            self.boot.mode.name()
        )
    }

    /// The boot's name in progress messages.
    pub fn name(&self) -> String {
        format!(
            "{} {} on {}",
            self.scenario, self.boot.variant, self.boot.kernel
        )
    }

    fn directory(&self) -> PathBuf {
        let variant = self.boot.variant.to_string().replace('/', "-");
        self.paths.runs().join(format!(
            "{}-{:03}-{}-{variant}-{}",
            self.context.run, self.context.boot, self.scenario, self.boot.kernel
        ))
    }

    fn limit(&self) -> Duration {
        let factor = if self.boot.mode == Mode::Exact {
            EXACT_FACTOR
        } else {
            1
        };
        Duration::from_secs((BOOT_S + self.boot.limit_s * factor) * self.patience)
    }

    /// Makes the disks and the initramfs.
    fn prepare(&self, dir: &Path) -> Result<Machine> {
        let (boot, size) = (self.boot, &self.boot.size);
        let Disks {
            images,
            data,
            swap,
            flash,
            rootfs,
            rootfs_in_memory_mib,
        } = disks(self.paths, &boot.variant, size, boot.mode)?;
        let zero_disks: Vec<String> = (0..size.zero_disks.len())
            .map(|index| zero_disk(&size.zero_disks, index, images.len()))
            .collect();
        let mut wanted = Vec::new();
        if size.bfq {
            wanted.push("bfq");
        }
        if rootfs_in_memory_mib.is_some() {
            wanted.push("null_blk");
        }
        let modules = self.modules(&data, &swap, flash, !images.is_empty(), wanted)?;
        let swap_in_memory_mib = match (&swap, flash) {
            (Swap::NullBlk { mib, .. }, _) => *mib,
            (_, Some(flash)) => flash.swap_mib,
            _ => 0,
        };
        let mut cells: Vec<plan::Cell> = boot
            .cells
            .iter()
            .map(|scheduled| scheduled.cell.clone())
            .collect();
        for cell in &mut cells {
            cell.limit_s = cell.limit_s.saturating_mul(self.patience as u32);
        }
        let mut packages = match size.packaged {
            true => package::pair(self.paths)?,
            false => Vec::new(),
        };
        if boot.kernel == Kernel::Packaged {
            packages.extend(package::kernel_pair(self.paths)?);
        }
        let plan = Plan {
            machine: plan::Machine {
                modules: modules.iter().map(initramfs::module_path).collect(),
                data,
                rootfs,
                rootfs_in_memory_nsec: rootfs_in_memory_mib.map(|_| EXACT_DISK_NSEC),
                init: size.init,
                packages: packages
                    .iter()
                    .map(|package| initramfs::package_name(package))
                    .collect(),
                swap,
                lru_gen: Some(boot.variant.lru.lru_gen()),
                free_mib: size.free_mib,
                flash,
                disks_model_flash: size.disk_speed.is_some(),
                cgroup_v1: size.cgroup_v1,
                zero_disks,
            },
            cells,
        };
        let initial = dir.join("initramfs");
        let programs = initramfs::Programs::of(self.paths, self.kernel)?;
        initramfs::write(&programs, &plan, &modules, &packages, &initial)?;
        let image = dir.join("bzImage");
        // Link or copy the image, so that a saved run still boots after the cache has removed the
        // kernel.
        let _ = fs::remove_file(&image);
        if fs::hard_link(self.kernel.image(), &image).is_err() {
            paths::copy_file(&self.kernel.image(), &image)?;
        }
        // The guest reduces its free memory to `free_mib`, so a larger kernel needs a larger machine.
        let kernel_mib = match size.free_mib {
            Some(_) => self.paths.linux.additional_mib(),
            None => 0,
        };
        let memory_mib = size.memory_mib
            + kernel_mib
            + swap_in_memory_mib
            + rootfs_in_memory_mib.unwrap_or_default();
        let plugin = match size.cache_model {
            true => Some(plugin::cache_model(
                self.paths,
                self.kernel,
                memory_mib,
                &dir.join(CACHE_REPORTS),
            )?),
            false => None,
        };
        Ok(Machine {
            kernel: boot.kernel,
            image,
            initramfs: initial,
            memory_mib,
            vcpus: size.vcpus,
            disks: images,
            disk_speed: size.disk_speed,
            zero_disks: zero_images(self.paths, &size.zero_disks)?,
            mode: boot.mode,
            accelerator: self.accelerator,
            in_turn: false,
            parameters: match size.cache_model {
                true => [boot.parameters, self.paths.linux.traceable_zeroing()].concat(),
                false => boot.parameters.to_vec(),
            },
            fast_strings: size.fast_strings,
            plugin,
            seed: boot.seed(),
        })
    }

    fn modules(
        &self,
        data: &Data,
        swap: &Swap,
        flash: Option<Flash>,
        disks: bool,
        mut wanted: Vec<&str>,
    ) -> Result<Vec<Module>> {
        let Some(tree) = self.kernel.modules() else {
            return Ok(Vec::new());
        };
        if disks {
            wanted.extend(["virtio_pci", "virtio_blk", "ext4"]);
        }
        let slow = matches!(data, Data::SlowDisk { .. }) || flash.is_some();
        if slow {
            wanted.push("ext4");
        }
        let in_memory = matches!(data, Data::NullBlk { .. }) || slow;
        if in_memory || matches!(swap, Swap::NullBlk { .. }) {
            wanted.push("null_blk");
        }
        if flash.is_some() {
            wanted.push("mq_deadline");
        }
        if matches!(swap, Swap::Zram(_) | Swap::ZramDisk { .. }) {
            wanted.push("zram");
        }
        Modules::open(&tree)?.load_order(&wanted)
    }
}

/// A guest's results, checks and failures, by cell. Progress messages do not count as records here.
struct Collected<'a> {
    cells: BTreeMap<&'a str, &'a Scheduled>,
    /// Cells without any record yet.
    open: BTreeSet<&'a str>,
    /// The cell of the last record.
    current: Option<&'a str>,
    outcomes: Vec<(String, Outcome)>,
    release: String,
    managed_kib: u64,
}

impl<'a> Collected<'a> {
    fn new(cells: &'a [Scheduled]) -> Self {
        let cells: BTreeMap<&str, &Scheduled> = cells
            .iter()
            .map(|scheduled| (scheduled.cell.id.as_str(), scheduled))
            .collect();
        Collected {
            open: cells.keys().copied().collect(),
            current: None,
            cells,
            outcomes: Vec::new(),
            release: String::new(),
            managed_kib: 0,
        }
    }

    /// Stores a record. Returns a progress message if the record is worth one.
    fn take(&mut self, record: Record) -> Option<String> {
        let (cell, outcome) = match record {
            Record::Up { kernel, memory_kib } => {
                self.managed_kib = memory_kib;
                let text = format!("up: {kernel}");
                self.release = kernel;
                return Some(text);
            }
            Record::Progress { cell, text } => return Some(format!("{cell}: {text}")),
            Record::Done => return None,
            Record::Result {
                cell,
                values,
                series,
            } => (cell, Outcome::Result { values, series }),
            Record::Check {
                cell,
                what,
                passed,
                seen,
            } => (cell, Outcome::Check { what, passed, seen }),
            Record::Failed { cell, why } => (cell, Outcome::Failed { why }),
        };
        // Ignore records of cells that are not in the plan.
        let (&id, _) = self.cells.get_key_value(cell.as_str())?;
        self.current = Some(id);
        self.open.remove(id);
        let text = format!(
            "{} of {} cells",
            self.cells.len() - self.open.len(),
            self.cells.len()
        );
        self.outcomes.push((cell, outcome));
        Some(text)
    }

    /// Adds the counters of the cache model's reports to their cells. A cell whose report is
    /// missing fails.
    fn add_reports(&mut self, reports: &BTreeMap<u32, Report>) {
        for (_, outcome) in &mut self.outcomes {
            let Outcome::Result { values, .. } = outcome else {
                continue;
            };
            let Some(number) = values.get(CACHE_REPORT).copied() else {
                continue;
            };
            match reports.get(&(number as u32)) {
                Some(report) => values.extend(report.values.clone()),
                None => {
                    *outcome = Outcome::Failed {
                        why: format!("the cache model has no report {number}"),
                    };
                }
            }
        }
    }

    /// Number of failed checks and cells.
    fn failed(&self) -> usize {
        let bad = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Failed { .. } | Outcome::Check { passed: false, .. }
            )
        };
        self.outcomes
            .iter()
            .filter(|(_, outcome)| bad(outcome))
            .count()
    }

    /// Marks the cells without records, and the cell of the last record, as failed.
    fn machine_failed(&mut self, why: &str) {
        let mut hit = std::mem::take(&mut self.open);
        hit.extend(self.current);
        for cell in hit {
            self.outcomes
                .push((cell.into(), Outcome::Failed { why: why.into() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use limelight_apps::plan::{Arm, Cell};
    use limelight_apps::scenario::Work;

    use super::*;
    use crate::scenario::{ArmOn, Kernel};

    fn scheduled(id: &str) -> Scheduled {
        Scheduled {
            cell: Cell {
                id: id.into(),
                arm: Arm::Stock,
                repetition: 0,
                limit_s: 1,
                work: Work::Command { argv: Vec::new() },
            },
            arm: ArmOn::new(Arm::Stock, Kernel::Debian),
            task: "task".into(),
        }
    }

    fn check(cell: &str) -> Record {
        Record::Check {
            cell: cell.into(),
            what: "it works".into(),
            passed: true,
            seen: "".into(),
        }
    }

    #[test]
    fn dead_machine_fails_the_running_and_later_cells() {
        let cells = [scheduled("a"), scheduled("b"), scheduled("c")];
        let mut collected = Collected::new(&cells);
        collected.take(check("a"));
        collected.take(check("b"));
        collected.machine_failed("panic");
        let failed: Vec<&str> = collected
            .outcomes
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Outcome::Failed { .. }))
            .map(|(cell, _)| cell.as_str())
            .collect();
        assert_eq!(failed, ["b", "c"]);
    }

    #[test]
    fn last_cell_fails_if_the_machine_dies_after_its_work() {
        let cells = [scheduled("a")];
        let mut collected = Collected::new(&cells);
        collected.take(check("a"));
        collected.machine_failed("does not power off");
        assert!(matches!(
            collected.outcomes.last().unwrap().1,
            Outcome::Failed { .. }
        ));
    }

    #[test]
    fn cell_gets_its_named_report_and_fails_without_it() {
        let cells = [scheduled("a"), scheduled("b"), scheduled("c")];
        let mut collected = Collected::new(&cells);
        let result = |cell: &str, report: Option<f64>| Record::Result {
            cell: cell.into(),
            values: report
                .map(|n| (CACHE_REPORT.into(), n))
                .into_iter()
                .collect(),
            series: BTreeMap::new(),
        };
        collected.take(result("a", Some(0.0)));
        collected.take(result("b", Some(1.0)));
        collected.take(result("c", None));
        let report = Report {
            report: 1,
            values: [("cache_tasks".into(), 3.0)].into(),
        };
        collected.add_reports(&[(1, report)].into());
        let tasks: Vec<Option<f64>> = collected
            .outcomes
            .iter()
            .map(|(_, outcome)| match outcome {
                Outcome::Result { values, .. } => values.get("cache_tasks").copied(),
                _ => Some(-1.0),
            })
            .collect();
        assert_eq!(tasks, [Some(-1.0), Some(3.0), None]);
    }

    #[test]
    fn records_of_unknown_cells_are_ignored() {
        let cells = [scheduled("a")];
        let mut collected = Collected::new(&cells);
        collected.take(check("typo"));
        assert!(collected.outcomes.is_empty() && collected.open.contains("a"));
    }
}
