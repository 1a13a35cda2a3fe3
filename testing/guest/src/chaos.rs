// SPDX-License-Identifier: GPL-2.0-or-later
//! Failures of everything that `limelightd` depends on, in random order, while the focus keeps
//! changing. Each failure is called a trouble. After each trouble, the state must be correct, and
//! without a foreground app no changed value may remain. The daemon must never panic.

mod session;
mod trouble;
mod world;

use std::collections::BTreeMap;

use anyhow::Result;

use crate::dispatch::Stage;
use crate::random::{seed, Random};
use crate::scenario::Chaos;

use trouble::Trouble;
use world::World;

/// Number of focus changes during a trouble, and after the trouble.
const DURING: u32 = 3;
const AFTER: u32 = 2;

/// Runs the scenario: each trouble once in random order, then randomly chosen troubles.
pub fn run(mut stage: Stage, work: &Chaos) -> Result<()> {
    stage.need_daemon("chaos")?;
    let mut random = Random::new(seed(work.seed, stage.repetition));
    let mut world = World::new(stage.machine.rootfs.is_some())?;
    let possible = |trouble: &Trouble| match trouble {
        Trouble::Suspended => work.sleep,
        Trouble::ServerKilled => world.session.is_some(),
        _ => true,
    };
    let all: Vec<Trouble> = Trouble::ALL.into_iter().filter(possible).collect();
    let order = random.sample(all.len(), all.len());
    let mut done: BTreeMap<&str, u32> = BTreeMap::new();
    for step in 0..work.steps as usize {
        let place = match order.get(step) {
            Some(&place) => place,
            None => random.below(all.len() as u64) as usize,
        };
        let trouble = all[place];
        stage
            .reporter
            .progress(format!("step {step}: {}", trouble.name()))?;
        // An app must be in the foreground when the trouble begins.
        world.settle(trouble, &mut random)?;
        let state = trouble.begin(&mut world)?;
        for _ in 0..DURING {
            // Answers are not checked during the trouble; the state is checked afterwards.
            world.change_focus(&mut random)?;
        }
        trouble.end(&mut world, state)?;
        for _ in 0..AFTER {
            world.settle(trouble, &mut random)?;
        }
        world.check_nothing_left(trouble)?;
        *done.entry(trouble.name()).or_default() += 1;
    }
    for took in std::mem::take(&mut world.restored_ms) {
        stage.reporter.sample("restored_ms", took as f64);
    }
    let wrong = world.stop(&stage.reporter)?;
    stage.reporter.check(
        "after every failure that the test causes, the state is correct",
        wrong.is_empty(),
        match wrong.is_empty() {
            true => format!("{} troubles", done.values().sum::<u32>()),
            false => wrong.join("; "),
        },
    )?;
    for trouble in Trouble::ALL {
        let count = done.get(trouble.name()).copied().unwrap_or(0);
        stage
            .reporter
            .value(format!("trouble_{}", trouble.name()), f64::from(count));
    }
    stage.reporter.finish()
}
