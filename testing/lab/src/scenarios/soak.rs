// SPDX-License-Identifier: GPL-2.0-or-later
//! Random focus changes, forks and exits under memory pressure: long on the debug kernel, short on
//! the ordinary one.

use std::time::Duration;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::{Soak as Parameters, Work};

use super::gallery::{self, INDEX_MAPPING, INDEX_READ};
use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Kernel, Kind, Lru, MachineSize, Scenario, SwapKind, Task, Variant, Verdict,
};

/// A thousand steps on the kernel with KASAN, lockdep and the VM's assertions.
pub struct Soak;

/// A few steps in every test run.
pub struct ShortSoak;

const TASK: &str = "random";
const LONG: u32 = 1000;
const SHORT: u32 = 60;

fn task(variant: &Variant, steps: u32) -> Vec<Task> {
    let work = Parameters {
        steps,
        seed: 0x5eed,
        loads: gallery::loads(&variant.load),
    };
    vec![Task::new(TASK, Work::Soak(work))]
}

/// The guest checks what was left behind; here only the number of steps counts.
fn all_steps_were_made(aggregates: &Aggregates, steps: u32, arm: ArmOn) -> Vec<Verdict> {
    aggregates
        .variants()
        .iter()
        .filter_map(|variant| {
            let count = |name| aggregates.median(variant, arm, TASK, name);
            let (changes, forks, exits) =
                (count("focus_changes")?, count("forks")?, count("exits")?);
            Some(Verdict::new(
                format!("{variant}: {steps} random steps, each kind among them"),
                changes > 0.0
                    && forks > 0.0
                    && exits > 0.0
                    && changes + forks + exits >= f64::from(steps),
                format!("{changes} focus changes, {forks} forks, {exits} exits"),
            ))
        })
        .collect()
}

impl Scenario for Soak {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn about(&self) -> &'static str {
        "1,000 random focus changes, forks and exits under pressure on the debug kernel"
    }

    fn kind(&self) -> Kind {
        Kind::Soak
    }

    fn variants(&self) -> Vec<Variant> {
        vec![
            Variant::new(Lru::TwoList, SwapKind::Disk, INDEX_READ),
            Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING),
        ]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ArmOn::new(Arm::Limelight, Kernel::Debug)]
    }

    /// KASAN takes an eighth of the memory, and more for its quarantine.
    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 384,
            ..gallery::machine(256)
        }
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        task(variant, LONG)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(3600)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        let arm = ArmOn::new(Arm::Limelight, Kernel::Debug);
        all_steps_were_made(aggregates, LONG, arm)
    }

    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}

impl Scenario for ShortSoak {
    fn name(&self) -> &'static str {
        "soak-short"
    }

    fn about(&self) -> &'static str {
        "the first steps of soak on the ordinary kernel"
    }

    fn kind(&self) -> Kind {
        Kind::Test
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::Disk, INDEX_MAPPING)]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        gallery::machine(256)
    }

    fn tasks(&self, variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        task(variant, SHORT)
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        all_steps_were_made(aggregates, SHORT, LIMELIGHT)
    }

    fn expected_console(&self) -> &'static [&'static str] {
        &["Out of memory", "oom-kill", "invoked oom-killer"]
    }
}
