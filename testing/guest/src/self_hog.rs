// SPDX-License-Identifier: GPL-2.0-or-later
//! A topmost app that needs more memory than the machine or its cgroup has. Protection must yield,
//! and the machine must behave as without protection.

use std::io::{self, BufRead};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::gallery::APP;
use crate::guest_setup::drop_caches;
use crate::memory::{major_faults, now_ns, Mapping, MIB};
use crate::plan::Arm;
use crate::process::Start;
use crate::random::{seed, Random};
use crate::scenario::{HogMemory, SelfHog};
use crate::store::Extent;

/// Timeout for a killed process of this size to free its memory.
const DEATH: Duration = Duration::from_secs(30);

/// Parameters of the hog's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The file to map; anonymous memory without one.
    pub file: Option<Extent>,
    /// Amount of memory, in MiB.
    pub mib: u32,
    /// Number of passes over all of the memory.
    pub rounds: u32,
    /// Seed of the memory's contents.
    pub seed: u64,
}

/// The hog's answer when it has finished.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Finished {
    /// Time for all rounds.
    pub elapsed_ns: u64,
    /// Faults that waited for the disk.
    pub major_faults: u64,
}

/// The hog's process: waits for a line, touches all of its memory, answers.
pub fn hog(spec: &Spec) -> Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let (start_ns, faults) = (now_ns(), major_faults());
    match &spec.file {
        Some(extent) => {
            let mapping = Mapping::file(&extent.open()?, extent.offset, extent.len as usize)?;
            for _ in 0..spec.rounds {
                for page in 0..mapping.pages() {
                    mapping.touch_page(page);
                }
            }
        }
        None => {
            let mut memory = Mapping::anonymous(spec.mib as usize * MIB)?;
            let mut random = Random::new(spec.seed);
            for page in 0..memory.pages() {
                memory.fill_page(page, &mut random);
            }
            for round in 1..spec.rounds {
                for page in 0..memory.pages() {
                    memory.dirty_page(page, u64::from(round));
                }
            }
        }
    }
    let finished = Finished {
        elapsed_ns: now_ns() - start_ns,
        major_faults: major_faults() - faults,
    };
    println!("{}", serde_json::to_string(&finished)?);
    Ok(())
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &SelfHog) -> Result<()> {
    let file = match work.memory {
        HogMemory::Anonymous => None,
        HogMemory::Mapping => Some(stage.store()?.file("hog", work.mib)?),
    };
    drop_caches()?;
    let cgroup = Cgroup::create(APP)?;
    if let Some(mib) = work.limit_mib {
        cgroup.set("memory.max", &format!("{mib}M"))?;
    }
    let spec = Spec {
        file,
        mib: work.mib,
        rounds: work.rounds,
        seed: seed(u64::from(work.mib), stage.repetition),
    };
    let mut hog = Start::in_cgroup(&cgroup).conversation("hog", &spec)?;
    let pid = hog.process.pid();
    let daemon = match stage.arm {
        Arm::Stock => None,
        Arm::LimelightOnDebian | Arm::Limelight => {
            // No PIDs: the hog will have exited when the daemon stops.
            let daemon = Daemon::start(&[])?;
            focus(pid)?;
            Some(daemon)
        }
        arm => bail!("self-hog does not support arm {arm:?}"),
    };
    let counters = Counters::now()?;
    match hog.ask::<Finished>("go") {
        Ok(finished) => {
            stage.reporter.value("completed", true);
            stage
                .reporter
                .value("elapsed_us", finished.elapsed_ns as f64 / 1000.0);
            stage.reporter.value("major_faults", finished.major_faults);
        }
        Err(error) => {
            // A kill by the OOM killer is a valid outcome; any other end fails the test.
            let code = hog.process.wait(DEATH).context(error)?;
            if code != 128 + libc::SIGKILL {
                bail!("the hog ended by itself with {code}: see the console");
            }
            stage.reporter.value("completed", false);
        }
    }
    counters.report(&mut stage.reporter.values)?;
    drop(hog);
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}
