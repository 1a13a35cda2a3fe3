// SPDX-License-Identifier: GPL-2.0-or-later
//! One line of a results file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scenario::{ArmOn, Mode, Variant, Verdict};

/// The figures, one check, or the failure of one cell of one boot, with the conditions that are
/// needed to judge or repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// The machine's setting and the background load.
    pub variant: Variant,
    /// The arm and its kernel.
    pub arm: ArmOn,
    /// The task's name.
    pub task: String,
    /// Repetition, from 0.
    pub repetition: u32,
    /// The conditions.
    pub context: Context,
    /// The result.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Row {
    /// The verdict of a check in the guest. A cell that failed gives a failed verdict. `None` for
    /// figures.
    pub fn check(&self) -> Option<Verdict> {
        let (what, passed, seen) = match &self.outcome {
            Outcome::Result { .. } => return None,
            Outcome::Check { what, passed, seen } => (what.as_str(), *passed, seen),
            Outcome::Failed { why } => ("runs to its end", false, why),
        };
        let what = format!("{} {} {}: {what}", self.variant, self.arm, self.task);
        Some(Verdict::new(what, passed, seen))
    }
}

/// What a row reports about its cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Figures.
    Result {
        /// Counters and times; the unit is the name's suffix.
        values: BTreeMap<String, f64>,
        /// Samples in the order of measurement; units as in `values`.
        series: BTreeMap<String, Vec<f64>>,
    },
    /// A check that the guest made.
    Check {
        /// The check.
        what: String,
        /// Whether it held.
        passed: bool,
        /// The observed values.
        seen: String,
    },
    /// The cell or its machine failed.
    Failed {
        /// The reason, for people.
        why: String,
    },
}

/// The conditions of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The run: `YYYYMMDD-HHMMSS` in UTC and the lab's PID.
    pub run: String,
    /// Index of the boot within the run, from 0.
    pub boot: u32,
    /// Commit of the work tree, with `+` if there were uncommitted changes; `unknown` outside git.
    pub commit: String,
    /// `uname -r` in the guest; empty if the guest did not boot.
    pub kernel_release: String,
    /// Hash of the kernel's inputs; equal hashes mean equal kernels.
    pub kernel_hash: String,
    /// The guest's notion of time.
    pub mode: Mode,
    /// `kvm` or `tcg`.
    pub accelerator: String,
    /// First line of `qemu-system-x86_64 --version`.
    pub qemu: String,
    /// The guest's CPU model as given to QEMU.
    pub guest_cpu: String,
    /// The host's CPU.
    pub host_cpu: String,
    /// Guest memory in MiB as given to QEMU.
    pub memory_mib: u32,
    /// `MemTotal` of the guest in KiB; 0 if the guest did not boot.
    pub managed_kib: u64,
    /// Virtual CPUs.
    pub vcpus: u32,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scenario::{Lru, SwapKind};

    /// A row with `values`, for tests of code that reads rows.
    pub(crate) fn result_row(arm: ArmOn, repetition: u32, values: &[(&str, f64)]) -> Row {
        Row {
            scenario: "gallery-synthetic".into(),
            variant: Variant::new(Lru::Mglru, SwapKind::Zram, "index"),
            arm,
            task: "swipe".into(),
            repetition,
            context: Context {
                run: "20260101-000000-1".into(),
                boot: 0,
                commit: "0123456".into(),
                kernel_release: "6.12.0".into(),
                kernel_hash: "abc".into(),
                mode: Mode::Fast,
                accelerator: "tcg".into(),
                qemu: "QEMU emulator version 7.2".into(),
                guest_cpu: "max".into(),
                host_cpu: "test".into(),
                memory_mib: 160,
                managed_kib: 150_000,
                vcpus: 2,
            },
            outcome: Outcome::Result {
                values: values
                    .iter()
                    .map(|&(name, value)| (name.to_owned(), value))
                    .collect(),
                series: BTreeMap::new(),
            },
        }
    }
}
