// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs scenarios: schedules their boots, executes them, stores the results and judges them.

pub mod boot;
pub mod disks;
pub mod judge;
pub mod schedule;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use anyhow::{bail, Context as _, Result};

use self::boot::Job;
use self::schedule::Boot;
use crate::kernel::{self, Bootable};
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::qemu::{command, probe, Accelerator};
use crate::results::{clock, store, Context, Record, Row};
use crate::scenario::{ArmOn, Kernel, Kind, Mode, Spec, Variant, Verdict};
use crate::shell;

pub use self::schedule::Selection;

/// Number of saved run directories that are kept.
const KEPT_RUNS: usize = 12;

/// Options for running scenarios.
#[derive(Debug, Clone)]
pub struct Options {
    /// The selected variants, arms and tasks.
    pub selection: Selection,
    /// Number of concurrent guests. With 1, no guest disturbs another one's times.
    pub jobs: usize,
    /// Whether to keep the run directories of successful boots.
    pub keep: bool,
    /// Whether to emulate a guest's CPUs in turn, in one thread.
    pub in_turn: bool,
    /// Factor on all time limits.
    pub patience: u64,
    /// The accelerator; determined by a probe if absent.
    pub accelerator: Option<Accelerator>,
}

/// The result of running a scenario.
#[derive(Debug, Default)]
pub struct Finished {
    /// Number of boots.
    pub boots: usize,
    /// All measurements and checks.
    pub rows: Vec<Row>,
    /// The scenario's verdicts.
    pub verdicts: Vec<Verdict>,
    /// Failed machines, for people.
    pub failures: Vec<String>,
    /// The results file.
    pub file: Option<PathBuf>,
}

impl Finished {
    /// Checks, failed cells and verdicts in one list, passed and failed.
    pub fn judged(&self) -> Vec<Verdict> {
        let mut all = self.checks();
        all.extend(self.verdicts.iter().cloned());
        all
    }

    /// The guests' own checks, and a failed verdict for each unfinished cell.
    pub fn checks(&self) -> Vec<Verdict> {
        self.rows.iter().filter_map(Row::check).collect()
    }

    /// Whether a machine, a cell, a check or a promise failed.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty() || self.judged().iter().any(|verdict| !verdict.passed)
    }
}

/// Runs scenarios. Keeps the kernels that are ready, and the conditions that all rows share.
pub struct Runner<'a> {
    paths: &'a Paths,
    kernels: BTreeMap<Kernel, (Bootable, Accelerator)>,
    accelerator: Option<Accelerator>,
    run: String,
    qemu: String,
    host_cpu: String,
    commit: String,
}

impl<'a> Runner<'a> {
    /// Creates a runner. Everything that it executes belongs to one run in the results.
    pub fn new(paths: &'a Paths, accelerator: Option<Accelerator>) -> Result<Self> {
        Ok(Runner {
            paths,
            kernels: BTreeMap::new(),
            accelerator,
            run: begin(paths)?,
            qemu: command::version()?,
            host_cpu: host_cpu(),
            commit: shell::commit(&paths.root),
        })
    }

    /// The run's name in the results and in its directories.
    pub fn name(&self) -> &str {
        &self.run
    }

    /// Makes `kernel` ready and determines its accelerator.
    pub fn kernel(&mut self, kernel: Kernel) -> Result<(Bootable, Accelerator)> {
        if let Some(ready) = self.kernels.get(&kernel) {
            return Ok(ready.clone());
        }
        let bootable = kernel::get(self.paths, kernel)?;
        let accelerator = match self.accelerator {
            Some(accelerator) => accelerator,
            // KVM cannot run another architecture than the host's.
            None if kernel.is_arm64() => Accelerator::Tcg,
            None => probe::accelerator(self.paths, &bootable)?,
        };
        self.kernels.insert(kernel, (bootable.clone(), accelerator));
        Ok((bootable, accelerator))
    }

    /// Runs a scenario. A failed machine does not stop the others.
    pub fn run(&mut self, spec: &Spec, options: &Options) -> Result<Finished> {
        let mut finished = self.run_boots(spec, &options.selection, options, 0)?;
        finished.verdicts = judge::judge(spec, &finished.rows);
        let mut arms = options.selection.arms.clone();
        if arms.is_empty() && judge::needs_deferred(spec, &finished) {
            let names = |arms: &[ArmOn]| arms.iter().map(ArmOn::to_string).collect();
            let selection = Selection {
                arms: names(spec.deferred_arms),
                ..options.selection.clone()
            };
            let further = self.run_boots(spec, &selection, options, finished.boots)?;
            judge::extend(spec, &mut finished, further);
            arms = names(&[spec.arms, spec.deferred_arms].concat());
        }
        let unsure = match spec.kind {
            Kind::Test if options.selection.repetitions.is_none() => judge::unsure(spec, &finished),
            _ => Vec::new(),
        };
        if !unsure.is_empty() {
            for verdict in finished.verdicts.iter().filter(|verdict| !verdict.passed) {
                eprintln!(
                    "{}: repeated twice more, because one repetition fell short: {} ({})",
                    spec.name, verdict.what, verdict.seen
                );
            }
            let selection = Selection {
                arms,
                variants: unsure.iter().map(Variant::to_string).collect(),
                repetitions: Some(spec.repetitions + judge::FURTHER),
                skipped: spec.repetitions,
                ..options.selection.clone()
            };
            let boots = finished.boots;
            let further = self.run_boots(spec, &selection, options, boots)?;
            judge::add(spec, &mut finished, further);
        }
        let mode = options.selection.mode.unwrap_or(spec.mode);
        let recorded = Record::check(self.paths, spec, mode, &finished.rows)?;
        finished.verdicts.extend(recorded);
        Ok(finished)
    }

    /// Executes the selected boots and stores their rows, without verdicts. `first` is the number
    /// of the first boot within the run.
    fn run_boots(
        &mut self,
        spec: &Spec,
        selection: &Selection,
        options: &Options,
        first: usize,
    ) -> Result<Finished> {
        let boots = schedule::boots(spec, selection);
        if boots.is_empty() {
            bail!(
                "no variant of scenario {} is selected; it has the variants\n{}",
                spec.name,
                variant_list(spec)
            );
        }
        for boot in &boots {
            self.kernel(boot.kernel)?;
        }
        let progress = Progress::new(spec.name);
        let board = Board {
            progress: &progress,
            first,
            total: boots.len(),
            finished: AtomicUsize::new(0),
        };
        let (done, first_error) = self.run_all(spec, &boots, options, &board);
        progress.finish(format!("{} boots", boots.len()));

        let mut finished = Finished {
            boots: boots.len(),
            ..Finished::default()
        };
        for (_, done) in done {
            finished.rows.extend(done.rows);
            finished.failures.extend(done.failure);
        }
        if !finished.rows.is_empty() {
            let results = self.paths.results();
            finished.file = Some(store::append(&results, spec.name, &finished.rows)?);
        }
        first_error.map_or(Ok(finished), Err)
    }

    /// Executes the boots, several at a time if requested, and returns their results in order. A
    /// failed guest counts as a result. An error of the lab itself stops the run after the boots in
    /// progress have ended.
    fn run_all(
        &self,
        spec: &Spec,
        boots: &[Boot],
        options: &Options,
        board: &Board,
    ) -> (BTreeMap<usize, boot::Done>, Option<anyhow::Error>) {
        let next = AtomicUsize::new(0);
        let done = Mutex::new((BTreeMap::new(), None));
        let lock = || {
            done.lock()
                .expect("no worker panics while it stores its result")
        };
        let work = || loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= boots.len() || lock().1.is_some() {
                return;
            }
            let job = self.job(spec, &boots[index], board.first + index, options);
            let name = job.name();
            let outcome = job.run(&|status| board.show(&name, status));
            board.finished.fetch_add(1, Ordering::Relaxed);
            match outcome {
                Ok(result) => {
                    if let Some(failure) = &result.failure {
                        board.progress.note(format!("FAILED {failure}"));
                    }
                    if let Some(saved) = &result.saved {
                        board.progress.note(saved);
                    }
                    lock().0.insert(index, result);
                }
                Err(error) => {
                    lock().1.get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..options.jobs.clamp(1, boots.len()) {
                scope.spawn(work);
            }
            work();
        });
        done.into_inner()
            .expect("no worker panics while it stores its result")
    }

    fn job<'b>(&'b self, spec: &Spec, boot: &'b Boot, index: usize, options: &Options) -> Job<'b> {
        let (kernel, accelerator) = &self.kernels[&boot.kernel];
        Job {
            paths: self.paths,
            scenario: spec.name,
            boot,
            kernel,
            accelerator: *accelerator,
            expected_console: spec.expected_console,
            patience: options.patience,
            keep: options.keep,
            in_turn: options.in_turn,
            context: Context {
                run: self.run.clone(),
                boot: index as u32,
                commit: self.commit.clone(),
                kernel_release: String::new(),
                kernel_hash: kernel.hash.clone(),
                mode: boot.mode,
                accelerator: String::new(),
                qemu: self.qemu.clone(),
                guest_cpu: String::new(),
                host_cpu: self.host_cpu.clone(),
                memory_mib: 0,
                managed_kib: 0,
                vcpus: 0,
            },
        }
    }
}

/// The status line shared by all boots.
struct Board<'a> {
    progress: &'a Progress,
    /// Number of the first boot within the run.
    first: usize,
    total: usize,
    finished: AtomicUsize,
}

impl Board<'_> {
    fn show(&self, boot: &str, status: &str) {
        let finished = self.finished.load(Ordering::Relaxed);
        self.progress.update(format!(
            "{finished} of {} boots done; {boot}: {status}",
            self.total
        ));
    }
}

/// Default number of concurrent guests: one per CPU, at most 8, for tests and for benchmarks in
/// exact mode. Else one, because concurrent guests would distort each other's times.
pub fn default_jobs(kind: Kind, mode: Mode) -> usize {
    match (kind, mode) {
        (Kind::Test, _) | (Kind::Benchmark, Mode::Exact) => std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(8),
        (Kind::Benchmark, Mode::Fast) | (Kind::Soak | Kind::Named, _) => 1,
    }
}

/// A scenario's variants, one per line. Variants that exact mode does not support are marked.
pub fn variant_list(spec: &Spec) -> String {
    let lines = spec.variants().into_iter().map(|variant| {
        let note = if schedule::possible(Mode::Exact, &(spec.machine)(&variant)) {
            ""
        } else {
            " (fast mode only)"
        };
        format!("  {variant}{note}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Begins a run: removes the oldest saved runs and returns the new run's name. The name of each
/// directory of the run begins with the run's name.
pub fn begin(paths: &Paths) -> Result<String> {
    prune_runs(paths)?;
    let (date, time) = clock::now();
    let date = date.replace('-', "");
    Ok(format!("{date}-{time}-{}", std::process::id()))
}

/// Removes the oldest saved runs. A run of a lab that is still running stays; the lab's PID is part
/// of the run's name, after date and time.
fn prune_runs(paths: &Paths) -> Result<()> {
    let dir = paths.runs();
    if !dir.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut runs: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    runs.retain(|run| !at_work(run));
    runs.sort();
    let surplus = runs.len().saturating_sub(KEPT_RUNS);
    runs[..surplus]
        .iter()
        .try_for_each(|run| paths::remove_tree(run))
}

fn at_work(run: &Path) -> bool {
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    let pid = name
        .split('-')
        .nth(2)
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
}

fn host_cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::tests::temporary;

    #[test]
    fn runs_of_a_running_lab_are_in_use() {
        let run = |pid: u32| format!("target/lab/runs/20260101-000000-{pid}-000-boot");
        assert!(at_work(Path::new(&run(std::process::id()))));
        // No process has this PID: the kernel's limit is lower.
        assert!(!at_work(Path::new(&run(u32::MAX))));
        let (_dir, paths) = temporary();
        let name = begin(&paths).unwrap();
        assert!(at_work(&paths.runs().join(format!("{name}-dma"))));
        assert!(!at_work(Path::new("target/lab/runs/notes")));
    }
}
