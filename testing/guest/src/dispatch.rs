// SPDX-License-Identifier: GPL-2.0-or-later
//! The process that runs one cell of the plan.

use anyhow::{bail, Context, Result};

use crate::counters::Counters;
use crate::init::{plan, REPORTED};
use crate::plan::{Arm, Init, Record};
use crate::record::{write, Reporter};
use crate::scenario::Work;
use crate::{
    access_rules, android, boost, boost_rules, browser, cache_model, cgroup, chaos, class_rules,
    cold_start, daemon_killed, focus_move, full_cache, gallery, gallery_real, gate, guest_setup,
    heirs, innocents, kill_latency, kselftest, leak, lease, openrc, overhead, own_tree, package,
    premap, premap_rules, prezero, prezero_engines, prezero_rules, process, processors,
    readahead_rules, reading, rotation, scale, self_hog, selftest, sibling_reclaim, soak, startup,
    storm, suites, swap_soak, terminal, throttle, users_chaos, wakes, window_cost, window_oracle,
    window_sources, windows, write_back,
};

/// The context of a scenario.
pub struct Stage {
    /// The treatment of the foreground app.
    pub arm: Arm,
    /// Repetition, from 0: the seed of every random choice.
    pub repetition: u32,
    /// Position of the cell in the plan, from 0.
    pub index: usize,
    /// Writer of the cell's records.
    pub reporter: Reporter,
    /// The machine of this boot.
    pub machine: crate::plan::Machine,
    /// The kernel's counters before anything of this cell started.
    pub start: Counters,
}

/// Runs the plan's cell of this index; returns the process's exit code.
pub fn run(index: usize) -> Result<i32> {
    let mut plan = plan()?;
    if index >= plan.cells.len() {
        bail!(
            "the plan has {} cells and no cell {index}",
            plan.cells.len()
        );
    }
    let cell = plan.cells.swap_remove(index);
    keep_alive(&plan.machine)
        .context("a cell's runner cannot exempt itself from reclaim and the OOM killer")?;
    let stage = Stage {
        arm: cell.arm,
        repetition: cell.repetition,
        index,
        reporter: Reporter::new(&cell.id),
        machine: plan.machine,
        start: Counters::now()?,
    };
    match perform(stage, cell.work) {
        Ok(()) => Ok(0),
        Err(error) => {
            write(&Record::Failed {
                cell: cell.id,
                why: format!("{error:#}"),
            })?;
            Ok(REPORTED)
        }
    }
}

fn perform(stage: Stage, work: Work) -> Result<()> {
    match work {
        Work::Command { argv } => command(stage, &argv),
        Work::GallerySynthetic(gallery) => gallery::run(stage, &gallery),
        Work::GalleryReal(gallery) => gallery_real::run(stage, &gallery),
        Work::FocusMove(work) => focus_move::run(stage, &work),
        Work::SelfHog(work) => self_hog::run(stage, &work),
        Work::DaemonKilled(gallery) => daemon_killed::run(stage, &gallery),
        Work::Startup => startup::run(stage),
        Work::DaemonStarts { times } => startup::repeat(stage, times),
        Work::Soak(work) => soak::run(stage, &work),
        Work::ColdStart(work) => cold_start::run(stage, &work),
        Work::Boost(work) => boost::run(stage, &work),
        Work::Terminal(work) => terminal::run(stage, &work),
        Work::BoostRules => boost_rules::run(stage),
        Work::Browser(work) => browser::run(stage, &work),
        Work::Heirs => heirs::run(stage),
        Work::AndroidRules => android::run(stage),
        Work::ClassRules => class_rules::run(stage),
        Work::WriteBack => write_back::run(stage),
        Work::AccessRules => access_rules::run(stage),
        Work::UsersChaos(work) => users_chaos::run(stage, &work),
        Work::Selftest => selftest::run(stage),
        Work::Siblings => sibling_reclaim::run(stage),
        Work::Lease => lease::run(stage),
        Work::Kselftest => kselftest::run(stage),
        Work::Openrc => openrc::run(stage),
        Work::Innocents(work) => innocents::run(stage, &work),
        Work::Gate(work) => gate::run(stage, &work),
        Work::OwnTree(work) => own_tree::run(stage, &work),
        Work::ReadaheadRules => readahead_rules::run(stage),
        Work::Reading(work) => reading::run(stage, &work),
        Work::Heap(work) => premap::run(stage, &work),
        Work::PremapRules => premap_rules::run(stage),
        Work::PrezeroRules { rounds } => prezero_rules::run(stage, rounds as usize),
        Work::PrezeroFirstWindow => prezero_rules::first_window(stage),
        Work::FullCache => full_cache::run(stage),
        Work::Overhead(work) => overhead::run(stage, &work),
        Work::Prezero(work) => prezero::run(stage, &work),
        Work::PrezeroEngines(work) => prezero_engines::run(stage, &work),
        Work::Leak(work) => leak::run(stage, &work),
        Work::Throttle(work) => throttle::run(stage, &work),
        Work::Storm(work) => storm::run(stage, &work),
        Work::Suite(work) => suites::run(stage, &work),
        Work::KillLatency(work) => kill_latency::run(stage, &work),
        Work::Chaos(work) => chaos::run(stage, &work),
        Work::SwapSoak(work) => swap_soak::run(stage, &work),
        Work::CacheModel(pattern) => cache_model::run(stage, pattern),
        Work::Package(work) => package::run(stage, &work),
        Work::KernelPackage => package::kernel::run(stage),
        Work::Processors { sleep } => processors::run(stage, sleep),
        Work::Rotation(work) => rotation::run(stage, &work),
        Work::RotationReal(work) => rotation::run_real(stage, &work),
        Work::Day(work) => rotation::run_day(stage, &work),
        Work::WindowRules => windows::rules(stage),
        Work::WindowSources => window_sources::run(stage),
        Work::Wakes => wakes::run(stage),
        Work::WindowOracle(work) => window_oracle::run(stage, &work),
        Work::WindowCost => window_cost::run(stage),
        Work::Scale(work) => scale::run(stage, &work),
    }
}

fn command(mut stage: Stage, argv: &[String]) -> Result<()> {
    let (program, arguments) = argv.split_first().context("a command needs a program")?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (code, text) = process::run(program, &arguments)?;
    stage.reporter.progress(text)?;
    stage.reporter.value("exit_code", f64::from(code));
    stage.reporter.finish()
}

/// Locks the runner in memory and exempts it from the OOM killer: the runner measures times and
/// must outlive the processes that it watches. Then creates the slices of apps and loads, unless
/// the system under test creates them.
fn keep_alive(machine: &crate::plan::Machine) -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-1000")?;
    // MCL_ONFAULT: without this flag, the kernel would read every page of a file that is mapped for
    // a page cache query.
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: mlockall has no preconditions.
    if unsafe { libc::mlockall(flags) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // With packages or OpenRC, the system under test creates its own cgroups.
    if !machine.packages.is_empty() || machine.init == Init::Openrc {
        return Ok(());
    }
    // Enable the controllers before anything is started.
    cgroup::Cgroup::create("app.slice")?;
    cgroup::Cgroup::create("background.slice")?;
    Ok(())
}

impl Stage {
    /// Fails unless the arm has limelightd.
    pub fn need_daemon(&self, scenario: &str) -> Result<()> {
        match self.arm {
            Arm::Limelight | Arm::LimelightOnDebian => Ok(()),
            arm => bail!("{scenario} needs an arm with limelightd, not {arm:?}"),
        }
    }

    /// Reports the OOM kills since the start of the cell, instead of those since the start of the
    /// measurement: an OOM kill while loads fill the memory harms the user, too.
    pub fn report_all_oom_kills(&mut self) -> Result<()> {
        let kills = self.start.oom_kills_until(&Counters::now()?);
        self.reporter.value("oom_kills", kills);
        Ok(())
    }

    /// The file store on this machine's data disk. On a device without a file system, the store
    /// allocates from the device's beginning.
    pub fn store(&self) -> Result<crate::store::Store> {
        guest_setup::store(&self.machine)
    }
}
