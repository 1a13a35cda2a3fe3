// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's counters before and after a measurement.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::daemon::Daemon;
use crate::guest_setup::kswapd;
use crate::memory::{cpu_ns, now_ns};

/// Name prefixes of the reported `/proc/vmstat` counters.
const VMSTAT: [&str; 10] = [
    "pgmajfault",
    "workingset_refault_",
    "pgscan_",
    "pgsteal_",
    "pgactivate",
    "pswpin",
    "pswpout",
    "oom_kill",
    "compact_stall",
    "limelight_",
];

/// All counters at one point in time.
#[derive(Debug, Clone)]
pub struct Counters {
    at_ns: u64,
    values: BTreeMap<String, u64>,
}

impl Counters {
    /// Reads all counters.
    pub fn now() -> Result<Self> {
        let vmstat = fs::read_to_string("/proc/vmstat").context("cannot read /proc/vmstat")?;
        let mut values = parse_vmstat(&vmstat);
        for resource in ["memory", "io"] {
            // A kernel without PSI has no such files.
            if let Ok(text) = fs::read_to_string(format!("/proc/pressure/{resource}")) {
                values.extend(parse_pressure(resource, &text));
            }
        }
        Ok(Counters {
            at_ns: now_ns(),
            values,
        })
    }

    /// Pages reclaimed so far.
    pub fn reclaimed_pages(&self) -> u64 {
        ["vmstat_pgsteal_kswapd", "vmstat_pgsteal_direct"]
            .iter()
            .filter_map(|name| self.values.get(*name))
            .sum()
    }

    /// OOM kills from `self` to `later`.
    pub fn oom_kills_until(&self, later: &Counters) -> f64 {
        let kills = |counters: &Counters| counters.values.get("vmstat_oom_kill").copied();
        let before = kills(self).unwrap_or(0);
        kills(later).unwrap_or(0).saturating_sub(before) as f64
    }

    /// Adds each counter's increase since `self` to `result`. Also adds `oom_kills`, and the
    /// elapsed time as `measured_us`, in microseconds.
    pub fn report(&self, result: &mut BTreeMap<String, f64>) -> Result<()> {
        let after = Counters::now()?;
        for (name, value) in &after.values {
            let before = self.values.get(name).copied().unwrap_or(0);
            result.insert(name.clone(), value.saturating_sub(before) as f64);
        }
        result.insert("oom_kills".into(), self.oom_kills_until(&after));
        result.insert(
            "measured_us".into(),
            (after.at_ns - self.at_ns) as f64 / 1000.0,
        );
        Ok(())
    }
}

/// CPU time of limelightd and of kswapd at one point in time.
#[derive(Debug)]
pub struct ServingCpu {
    /// Name of the value, process, and CPU time in nanoseconds.
    processes: Vec<(&'static str, i32, u64)>,
}

impl ServingCpu {
    /// Reads both.
    pub fn now(daemon: Option<&Daemon>) -> Result<Self> {
        let daemon = daemon.map(|daemon| ("daemon_cpu_us", daemon.pid()));
        let kswapd = kswapd()?.map(|pid| ("kswapd_cpu_us", pid));
        let processes = daemon.into_iter().chain(kswapd);
        Ok(ServingCpu {
            processes: processes
                .map(|(name, pid)| (name, pid, cpu_ns(pid)))
                .collect(),
        })
    }

    /// Adds the increases since `self` to `result`, as `daemon_cpu_us` and `kswapd_cpu_us`, in
    /// microseconds.
    pub fn report(&self, result: &mut BTreeMap<String, f64>) {
        for &(name, pid, before) in &self.processes {
            let used = cpu_ns(pid).saturating_sub(before);
            result.insert(name.to_owned(), used as f64 / 1000.0);
        }
    }
}

/// The value of `name` in a file with one name and one number a line.
pub fn keyed(path: &Path, name: &str) -> Result<u64> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        .with_context(|| format!("{} has no {name}", path.display()))
}

/// Total time in microseconds in which at least one task waited (`some`), from the pressure file
/// `path`; 0 without PSI.
pub fn pressure_us(path: &Path) -> Result<u64> {
    if !path.exists() {
        return Ok(0);
    }
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let totals = parse_pressure("", &text);
    let some = totals.get("psi__some_us");
    some.copied()
        .with_context(|| format!("{} has no total", path.display()))
}

/// Processes and threads created since boot.
pub fn forks() -> Result<u64> {
    keyed(Path::new("/proc/stat"), "processes")
}

fn parse_vmstat(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| VMSTAT.iter().any(|prefix| name.starts_with(prefix)))
        .filter_map(|(name, value)| Some((format!("vmstat_{name}"), value.trim().parse().ok()?)))
        .collect()
}

fn parse_pressure(resource: &str, text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .filter_map(|line| {
            let kind = line.split(' ').next()?;
            let total = line.rsplit_once("total=")?.1.trim().parse().ok()?;
            Some((format!("psi_{resource}_{kind}_us"), total))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{parse_pressure, parse_vmstat};

    #[test]
    fn vmstat_keeps_only_reported_counters() {
        let values = parse_vmstat(
            "nr_free_pages 1234\npgmajfault 7\nworkingset_refault_file 9\nlimelight_protect_kept 3\n",
        );
        assert_eq!(values.len(), 3);
        assert_eq!(values["vmstat_pgmajfault"], 7);
        assert_eq!(values["vmstat_limelight_protect_kept"], 3);
    }

    #[test]
    fn pressure_yields_the_totals_of_some_and_full() {
        let values = parse_pressure(
            "memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
        );
        assert_eq!(values["psi_memory_some_us"], 12);
        assert_eq!(values["psi_memory_full_us"], 5);
    }
}
