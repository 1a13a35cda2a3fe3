// SPDX-License-Identifier: GPL-2.0-or-later
//! What all scenarios share: the lab's types, the arms by name, and common verdicts.

use std::fmt::Display;

pub use limelight_apps::plan::{Arm, Init};
pub use limelight_apps::scenario::Work;

pub use crate::results::Aggregates;
pub use crate::scenario::{
    ArmOn, FlashSpeed, Kernel, Kind, Lru, MachineSize, Metric, Mode, Product, Spec, SwapKind, Task,
    Variant, Verdict,
};

pub const IDLE: ArmOn = ArmOn::new(Arm::Idle, Kernel::Debian);
pub const STOCK: ArmOn = ArmOn::new(Arm::Stock, Kernel::Debian);
pub const MEMORY_LOW: ArmOn = ArmOn::new(Arm::MemoryLow, Kernel::Debian);
pub const MEMORY_MIN: ArmOn = ArmOn::new(Arm::MemoryMin, Kernel::Debian);
pub const BEST_STOCK: ArmOn = ArmOn::new(Arm::BestStock, Kernel::Debian);
pub const EARLYOOM: ArmOn = ArmOn::new(Arm::Earlyoom, Kernel::Debian);
pub const NOHANG: ArmOn = ArmOn::new(Arm::Nohang, Kernel::Debian);
pub const SYSTEMD_OOMD: ArmOn = ArmOn::new(Arm::SystemdOomd, Kernel::Debian);
pub const PRELOAD: ArmOn = ArmOn::new(Arm::Preload, Kernel::Debian);
pub const DAMON_LRU_SORT: ArmOn = ArmOn::new(Arm::DamonLruSort, Kernel::Debian);
pub const DAMON_RECLAIM: ArmOn = ArmOn::new(Arm::DamonReclaim, Kernel::Debian);
pub const ON_DEBIAN: ArmOn = ArmOn::new(Arm::LimelightOnDebian, Kernel::Debian);
pub const IDLE_OURS: ArmOn = ArmOn::new(Arm::Idle, Kernel::Limelight);
pub const STOCK_OURS: ArmOn = ArmOn::new(Arm::Stock, Kernel::Limelight);
pub const BEST_STOCK_OURS: ArmOn = ArmOn::new(Arm::BestStock, Kernel::Limelight);
pub const LIMELIGHT: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Limelight);
/// Our kernel with KASAN, lockdep and DEBUG_VM.
pub const DEBUG: ArmOn = ArmOn::new(Arm::Limelight, Kernel::Debug);
/// The arms with limelightd.
pub const OURS: [ArmOn; 2] = [ON_DEBIAN, LIMELIGHT];

/// Console texts of the kernel's OOM killer.
pub const OUT_OF_MEMORY: &[&str] = &["Out of memory", "oom-kill", "invoked oom-killer"];

/// Highest share of the faults that the load causes on stock that may remain with Limelight.
const FAULTS_LEFT: f64 = 0.05;
/// Minimum number of faults that the load must cause on stock; with fewer, the comparison proves
/// nothing.
const FAULTS_MEANINGFUL: f64 = 100.0;
/// Highest response time, relative to the limit.
const RESPONSE: f64 = 1.10;
/// Lowest throughput of the background, relative to the best stock arm.
const THROUGHPUT: f64 = 0.97;

/// Figures of one task of one variant, by arm.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    pub aggregates: &'a Aggregates,
    pub variant: &'a Variant,
    pub task: &'a str,
}

impl Seen<'_> {
    /// Calls `judge` for each variant that ran, with the figures of `task`, and collects its
    /// verdicts. [`Seen::of`] gives the figures of other tasks.
    pub fn each_variant<V: IntoIterator<Item = Verdict>>(
        aggregates: &Aggregates,
        task: &str,
        judge: impl Fn(&Seen<'_>) -> V,
    ) -> Vec<Verdict> {
        let variants = aggregates.variants();
        let seen = variants.iter().map(|variant| Seen {
            aggregates,
            variant,
            task,
        });
        seen.flat_map(|seen| judge(&seen)).collect()
    }

    /// Calls `judge` for each arm with limelightd that ran in each variant, and collects its
    /// verdicts.
    pub fn each_arm<V: IntoIterator<Item = Verdict>>(
        aggregates: &Aggregates,
        task: &str,
        judge: impl Fn(&Seen<'_>, ArmOn) -> V,
    ) -> Vec<Verdict> {
        Seen::each_variant(aggregates, task, |seen| {
            let arms = aggregates.arms(seen.variant).into_iter();
            let ours = arms.filter(|arm| arm.is_ours());
            ours.flat_map(|arm| judge(seen, arm)).collect::<Vec<_>>()
        })
    }

    /// Figures of another task of the same variant.
    pub fn of<'a>(&'a self, task: &'a str) -> Seen<'a> {
        Seen { task, ..*self }
    }

    /// The median of a value.
    pub fn median(&self, arm: ArmOn, name: &str) -> Option<f64> {
        self.aggregates.median(self.variant, arm, self.task, name)
    }

    /// One sample of a value per repetition.
    pub fn samples(&self, arm: ArmOn, name: &str) -> &[f64] {
        self.aggregates.samples(self.variant, arm, self.task, name)
    }

    /// The median of a value on `arm`, relative to `base`.
    pub fn ratio(&self, name: &str, arm: ArmOn, base: ArmOn) -> Option<f64> {
        self.aggregates
            .ratio(self.variant, self.task, name, arm, base)
    }

    /// A verdict on `what`, based on the figures `seen`. Variant and task are put before `what`.
    pub fn verdict(&self, what: impl Display, passed: bool, seen: impl Into<String>) -> Verdict {
        let what = format!("{} {}: {what}", self.variant, self.task);
        Verdict::new(what, passed, seen)
    }

    /// [`Seen::verdict`] on a counter that varies from run to run.
    pub fn figure(&self, what: impl Display, passed: bool, seen: impl Into<String>) -> Verdict {
        self.verdict(what, passed, seen).on_figure()
    }

    /// Verdict that the load causes enough faults on stock for a meaningful comparison. `idle` is
    /// the number of major faults without the load.
    pub fn stock_is_hurt(&self, idle: f64, stock: ArmOn) -> Option<Verdict> {
        let faults = self.median(stock, "major_faults")?;
        Some(self.figure(
            format!("the load costs {stock} at least {FAULTS_MEANINGFUL} major faults"),
            faults - idle >= FAULTS_MEANINGFUL,
            format!("{faults} major faults, {idle} without the load"),
        ))
    }

    /// Verdict that `arm` avoids at least 95 % of the major faults that the load causes on `stock`;
    /// `idle` has no load. On the distribution's kernel, this is promised only for pages charged to
    /// the app's cgroup. A library charged to another cgroup is locked only as far as the budget
    /// allows.
    pub fn faults_gone(&self, idle: ArmOn, stock: ArmOn, arm: ArmOn) -> Option<Verdict> {
        let name = match arm.kernel {
            Kernel::Debian => "own_major_faults",
            _ => "major_faults",
        };
        let at_rest = self.median(idle, name).unwrap_or(0.0);
        let caused = self.median(stock, name)? - at_rest;
        let left = self.median(arm, name)? - at_rest;
        Some(self.figure(
            format!("{arm} has at most 5 % of the load-caused {name} of {stock}"),
            left <= caused * FAULTS_LEFT,
            format!("{left} of {caused} faults"),
        ))
    }

    /// Verdict that `arm` avoids at least 95 % of the major faults in the library that occur on
    /// `knob`. The library is charged to another cgroup, so the reservation on `knob` does not
    /// cover it.
    pub fn library_faults_gone(&self, knob: ArmOn, arm: ArmOn) -> Option<Verdict> {
        let library = |arm| {
            let own = self.median(arm, "own_major_faults")?;
            Some(self.median(arm, "major_faults")? - own)
        };
        let (caused, left) = (library(knob)?, library(arm)?);
        Some(self.figure(
            format!("{arm} has at most 5 % of the major faults in the library of {knob}"),
            caused > 0.0 && left <= caused * FAULTS_LEFT,
            format!("{left} of {caused} faults"),
        ))
    }

    /// Verdict that the response time on `arm` is at most 1.10 times the response time on `limit`.
    pub fn response_near(&self, limit: ArmOn, arm: ArmOn) -> Option<Verdict> {
        let ratio = self.ratio("response_us", arm, limit)?;
        Some(self.verdict(
            format!("the response time of {arm} is at most {RESPONSE:.2} times that of {limit}"),
            ratio <= RESPONSE,
            format!("{ratio:.3} times"),
        ))
    }

    /// Verdicts that each load's throughput on `arm` is at least 0.97 times its throughput on
    /// `base`.
    pub fn throughput_near(&self, base: ArmOn, arm: ArmOn) -> Vec<Verdict> {
        self.aggregates
            .names(self.variant, self.task)
            .iter()
            .filter(|name| name.starts_with("load_") && name.ends_with("_kib_per_s"))
            .filter_map(|name| {
                let ratio = self.ratio(name, arm, base)?;
                Some(self.verdict(
                    format!("{name} on {arm} is at least {THROUGHPUT} times that of {base}"),
                    ratio >= THROUGHPUT,
                    format!("{ratio:.3} times"),
                ))
            })
            .collect()
    }

    /// Verdict that at least `of * part` pages are resident. `kept` is the name of the value that
    /// counts them.
    pub fn kept(&self, arm: ArmOn, kept: &str, of: f64, part: f64) -> Option<Verdict> {
        let pages = self.median(arm, kept)?;
        Some(self.figure(
            format!("{arm} keeps at least {:.0} % of {kept}", part * 100.0),
            pages >= of * part,
            format!("{pages} of {of} pages"),
        ))
    }

    /// Verdict that the topmost app survived in all repetitions.
    pub fn viewer_lives(&self, arm: ArmOn) -> Option<Verdict> {
        self.lives(arm, "viewer_alive", "the foreground app")
    }

    /// Verdict that the process `who`, whose survival is the value `name`, survived in all
    /// repetitions; `None` if it did not run.
    pub fn lives(&self, arm: ArmOn, name: &str, who: &str) -> Option<Verdict> {
        let alive = self.samples(arm, name);
        if alive.is_empty() {
            return None;
        }
        let died = alive.iter().filter(|&&alive| alive == 0.0).count();
        Some(self.verdict(
            format!("{arm}: {who} is not killed"),
            died == 0,
            format!("it died in {died} of {} repetitions", alive.len()),
        ))
    }

    /// Verdict that `arm` has no more OOM kills than `stock`.
    pub fn no_new_kills(&self, stock: ArmOn, arm: ArmOn) -> Option<Verdict> {
        let kills = |arm| self.median(arm, "oom_kills");
        let (was, is) = (kills(stock)?, kills(arm)?);
        Some(self.verdict(
            format!("{arm} has no more OOM kills than {stock}"),
            is <= was,
            format!("{is} kills, stock {was}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::row::tests::result_row;

    fn with_seen(stock: &[(&str, f64)], ours: &[(&str, f64)], judge: impl Fn(&Seen<'_>)) {
        let rows = [result_row(STOCK, 0, stock), result_row(LIMELIGHT, 0, ours)];
        let aggregates = Aggregates::from_rows(&rows);
        judge(&Seen {
            aggregates: &aggregates,
            variant: &rows[0].variant,
            task: "swipe",
        });
    }

    #[test]
    fn one_in_twenty_of_the_faults_caused_by_the_load_may_remain() {
        let stock = [("major_faults", 1000.0)];
        for (left, held) in [(0.0, true), (50.0, true), (51.0, false)] {
            with_seen(&stock, &[("major_faults", left)], |seen| {
                assert_eq!(
                    seen.faults_gone(IDLE, STOCK, LIMELIGHT).unwrap().passed,
                    held
                );
            });
        }
    }

    #[test]
    fn verdict_fails_if_the_load_causes_few_faults() {
        with_seen(&[("major_faults", 99.0)], &[], |seen| {
            assert!(!seen.stock_is_hurt(0.0, STOCK).unwrap().passed);
        });
    }

    #[test]
    fn each_load_is_judged_by_its_own_throughput() {
        let stock = [
            ("load_copy_kib_per_s", 100.0),
            ("load_grow_kib_per_s", 10.0),
        ];
        let ours = [("load_copy_kib_per_s", 98.0), ("load_grow_kib_per_s", 9.0)];
        with_seen(&stock, &ours, |seen| {
            let held: Vec<bool> = seen
                .throughput_near(STOCK, LIMELIGHT)
                .iter()
                .map(|verdict| verdict.passed)
                .collect();
            assert_eq!(held, [true, false]);
        });
    }

    #[test]
    fn missing_arms_are_not_judged() {
        with_seen(&[("major_faults", 1.0)], &[], |seen| {
            assert!(seen.faults_gone(IDLE, STOCK, LIMELIGHT).is_none());
            assert!(seen.viewer_lives(LIMELIGHT).is_none());
            assert!(seen.response_near(IDLE, LIMELIGHT).is_none());
        });
    }
}
