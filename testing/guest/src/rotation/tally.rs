// SPDX-License-Identifier: GPL-2.0-or-later
//! Statistics of all launches, deaths and cgroups, and their report.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::record::Reporter;
use crate::response::quantile;

use super::app::Launched;
use super::table::Class;

/// Sums over one class.
#[derive(Debug, Default, Clone)]
struct Sums {
    /// Delays of cold launches and of warm launches, in microseconds.
    cold_us: Vec<f64>,
    warm_us: Vec<f64>,
    kills: u64,
    /// Number of launch attempts during which the app died.
    failed: u64,
    major_faults: u64,
    swapped_pages: u64,
    swapped_apps: u64,
    refaulted_anon: u64,
    refaulted_file: u64,
}

/// Counters of a cgroup so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Charges {
    /// Peak number of pages in swap.
    pub swap_peak_pages: u64,
    /// Number of refaulted anonymous pages.
    pub refaulted_anon: u64,
    /// Number of refaulted file pages.
    pub refaulted_file: u64,
}

impl Charges {
    /// Counters of the cgroup in `directory`; `None` when it is gone. Kernels before 6.5 have no
    /// `memory.swap.peak`; the current swap usage is returned instead.
    pub fn of(directory: &Path) -> Option<Self> {
        let number = |file: &str| -> Option<u64> {
            let text = fs::read_to_string(directory.join(file)).ok()?;
            text.trim().parse().ok()
        };
        let stat = fs::read_to_string(directory.join("memory.stat")).ok()?;
        let keyed = |name: &str| {
            stat.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
                .unwrap_or(0)
        };
        let swapped = number("memory.swap.peak").or_else(|| number("memory.swap.current"))?;
        Some(Charges {
            swap_peak_pages: swapped / crate::memory::PAGE as u64,
            refaulted_anon: keyed("workingset_refault_anon"),
            refaulted_file: keyed("workingset_refault_file"),
        })
    }
}

/// CPU time of limelightd's threads over a number of periods.
#[derive(Debug, Default)]
struct DaemonWork {
    /// CPU time in microseconds, by thread name.
    us: BTreeMap<String, f64>,
    periods: u32,
}

impl DaemonWork {
    /// Adds a period. The arguments are the threads' CPU times before and after the period, in
    /// nanoseconds.
    fn add(&mut self, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) {
        self.periods += 1;
        for (thread, after) in after {
            let used = after.saturating_sub(before.get(thread).copied().unwrap_or(0));
            *self.us.entry(thread.clone()).or_default() += used as f64 / 1000.0;
        }
    }

    /// Reports the mean CPU time per period, of all threads together and of each thread.
    fn report(&self, name: &str, reporter: &mut Reporter) {
        if self.periods == 0 {
            return;
        }
        let periods = f64::from(self.periods);
        let all: f64 = self.us.values().sum();
        reporter.value(name, all / periods);
        for (thread, us) in &self.us {
            reporter.value(format!("{name}_{thread}"), us / periods);
        }
    }
}

/// All statistics.
#[derive(Debug, Default)]
pub struct Tally {
    classes: BTreeMap<Class, Sums>,
    /// Delays of the round in which every app is launched for the first time.
    first_us: Vec<f64>,
    daemon_launches: DaemonWork,
    daemon_pauses: DaemonWork,
}

impl Tally {
    fn of(&mut self, class: Class) -> &mut Sums {
        self.classes.entry(class).or_default()
    }

    /// Adds a launch. `first` is true in the round in which every app is new; of such a launch,
    /// only the delay is kept.
    pub fn launched(&mut self, class: Class, first: bool, cold: bool, launched: &Launched) {
        let delay_us = launched.delay_ns as f64 / 1000.0;
        if first {
            self.first_us.push(delay_us);
            return;
        }
        let sums = self.of(class);
        let delays = if cold {
            &mut sums.cold_us
        } else {
            &mut sums.warm_us
        };
        delays.push(delay_us);
        sums.major_faults += launched.major_faults;
    }

    /// Adds the CPU time that limelightd's threads used during a launch. The arguments are the
    /// threads' CPU times before and after the launch, in nanoseconds.
    pub fn daemon_worked(&mut self, before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) {
        self.daemon_launches.add(before, after);
    }

    /// Adds the CPU time that limelightd's threads used from the end of a launch to the start of
    /// the next launch. The arguments are the threads' CPU times at these moments, in nanoseconds.
    pub fn daemon_worked_later(
        &mut self,
        before: &BTreeMap<String, u64>,
        after: &BTreeMap<String, u64>,
    ) {
        self.daemon_pauses.add(before, after);
    }

    /// Counts an app that has died.
    pub fn killed(&mut self, class: Class) {
        self.of(class).kills += 1;
    }

    /// Counts an attempt at a launch during which the app died.
    pub fn failed(&mut self, class: Class) {
        self.of(class).failed += 1;
    }

    /// Adds the counters of the cgroup of an app that has ended.
    pub fn ended(&mut self, class: Class, charges: Charges) {
        let sums = self.of(class);
        sums.swapped_pages += charges.swap_peak_pages;
        sums.swapped_apps += u64::from(charges.swap_peak_pages > 0);
        sums.refaulted_anon += charges.refaulted_anon;
        sums.refaulted_file += charges.refaulted_file;
    }

    /// Reports everything, by class and overall.
    pub fn report(&self, reporter: &mut Reporter) {
        let mut all = Sums::default();
        for class in Class::ALL {
            let sums = self.classes.get(&class).cloned().unwrap_or_default();
            report(&sums, &format!("{}_", class.name()), reporter);
            all.add(&sums);
        }
        report(&all, "", reporter);
        for delay in all.cold_us.iter().chain(&all.warm_us) {
            reporter.sample("launch_us", *delay);
        }
        reporter.value("first_mean_us", mean(&self.first_us));
        self.daemon_launches.report("daemon_launch_us", reporter);
        self.daemon_pauses.report("daemon_pause_us", reporter);
    }
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.cold_us.extend(&other.cold_us);
        self.warm_us.extend(&other.warm_us);
        self.kills += other.kills;
        self.failed += other.failed;
        self.major_faults += other.major_faults;
        self.swapped_pages += other.swapped_pages;
        self.swapped_apps += other.swapped_apps;
        self.refaulted_anon += other.refaulted_anon;
        self.refaulted_file += other.refaulted_file;
    }
}

fn report(sums: &Sums, prefix: &str, reporter: &mut Reporter) {
    let mut every: Vec<f64> = sums.cold_us.iter().chain(&sums.warm_us).copied().collect();
    every.sort_by(f64::total_cmp);
    for (name, delays) in [
        ("launch", &every),
        ("cold", &sums.cold_us),
        ("warm", &sums.warm_us),
    ] {
        if !delays.is_empty() {
            reporter.value(format!("{prefix}{name}_mean_us"), mean(delays));
        }
    }
    if !every.is_empty() {
        reporter.value(format!("{prefix}launch_p50_us"), quantile(&every, 0.5));
        reporter.value(format!("{prefix}launch_p95_us"), quantile(&every, 0.95));
    }
    for (name, value) in [
        ("cold_launches", sums.cold_us.len() as u64),
        ("warm_launches", sums.warm_us.len() as u64),
        ("kills", sums.kills),
        ("failed_launches", sums.failed),
        ("launch_major_faults", sums.major_faults),
        ("swapped_pages", sums.swapped_pages),
        ("swapped_apps", sums.swapped_apps),
        ("refaulted_anon_pages", sums.refaulted_anon),
        ("refaulted_file_pages", sums.refaulted_file),
    ] {
        reporter.value(format!("{prefix}{name}"), value);
    }
}

/// The mean; 0 if there are no samples.
pub fn mean(samples: &[f64]) -> f64 {
    match samples.len() {
        0 => 0.0,
        count => samples.iter().sum::<f64>() / count as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_add_up_and_the_first_round_is_separate() {
        let mut tally = Tally::default();
        let launched = |delay_us: u64, major_faults| Launched {
            delay_ns: delay_us * 1000,
            major_faults,
        };
        tally.launched(Class::Keep, true, true, &launched(900, 5));
        tally.launched(Class::Keep, false, false, &launched(10, 1));
        tally.launched(Class::Disposable, false, true, &launched(30, 2));
        tally.killed(Class::Disposable);
        let charges = Charges {
            swap_peak_pages: 7,
            refaulted_anon: 2,
            refaulted_file: 3,
        };
        tally.ended(Class::Keep, charges);
        tally.ended(Class::Keep, Charges::default());
        let used = |main| BTreeMap::from([("main".to_owned(), main)]);
        tally.daemon_worked(&used(1_000), &used(5_000));
        tally.daemon_worked(&BTreeMap::new(), &used(2_000));
        tally.daemon_worked_later(&used(5_000), &used(7_000));
        let mut reporter = Reporter::new("cell");
        tally.report(&mut reporter);
        let value = |name: &str| reporter.values[name];
        assert_eq!(value("launch_mean_us"), 20.0);
        assert_eq!(value("first_mean_us"), 900.0);
        assert_eq!(value("keep_warm_mean_us"), 10.0);
        assert_eq!(value("disposable_kills"), 1.0);
        assert_eq!(
            (value("keep_swapped_pages"), value("keep_swapped_apps")),
            (7.0, 1.0)
        );
        assert_eq!(value("launch_major_faults"), 3.0);
        assert_eq!(value("daemon_launch_us"), 3.0);
        assert_eq!(value("daemon_pause_us"), 2.0);
        assert_eq!(value("daemon_launch_us_main"), 3.0);
        assert_eq!(reporter.series["launch_us"], [30.0, 10.0]);
    }
}
