// SPDX-License-Identifier: GPL-2.0-or-later
//! The result of the test, and what it means.

use std::io::Write;

use serde::Serialize;

use crate::exit::Failure;
use crate::format::{bytes, columns, json, micros};

/// Waits for the disk per swipe that the load must cause. With fewer, the test shows nothing.
const HURT: f64 = 2.0;
/// Largest share of these waits that protection may leave.
const LEFT: f64 = 0.5;

/// The swipes of one phase.
#[derive(Debug, Default, Clone)]
pub struct Phase {
    times_us: Vec<u64>,
    major_faults: u64,
}

impl Phase {
    /// Adds a swipe.
    pub fn add(&mut self, us: u64, major_faults: u64) {
        self.times_us.push(us);
        self.major_faults += major_faults;
    }

    /// The time that this share of the swipes does not exceed (nearest rank), in microseconds.
    fn percentile_us(&self, percent: usize) -> u64 {
        let mut sorted = self.times_us.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    fn faults_per_swipe(&self) -> f64 {
        self.major_faults as f64 / self.times_us.len().max(1) as f64
    }

    fn figures(&self) -> Figures {
        Figures {
            swipes: self.times_us.len(),
            median_us: self.percentile_us(50),
            p95_us: self.percentile_us(95),
            major_faults: self.major_faults,
        }
    }

    fn row(&self, name: &str) -> [String; 5] {
        [
            name.to_owned(),
            self.times_us.len().to_string(),
            micros(self.percentile_us(50)),
            micros(self.percentile_us(95)),
            format!("{:.1}", self.faults_per_swipe()),
        ]
    }
}

/// The whole result.
#[derive(Debug)]
pub struct Report {
    /// Memory limit of the test.
    pub limit_bytes: u64,
    /// What the test wrote to the disk.
    pub disk_bytes: u64,
    /// Swipes without a load.
    pub idle: Phase,
    /// Swipes beside the load, without protection.
    pub without: Phase,
    /// Swipes beside the load, with protection.
    pub with: Phase,
    /// `limelightd`, or the knob that the test set itself.
    pub protected_by: String,
    /// Why limelightd did not protect the viewer.
    pub why_not_limelightd: Option<String>,
}

/// The result, as `limelight selftest --json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Outcome<'a> {
    result: Verdict,
    /// What the result means, for display.
    meaning: String,
    /// Swipes without a load.
    idle: Figures,
    /// Swipes beside the load, without protection.
    without: Figures,
    /// Swipes beside the load, with protection.
    with: Figures,
    /// `limelightd`, or the knob that the test set itself.
    protected_by: &'a str,
    /// Why limelightd did not protect the viewer.
    why_not_limelightd: Option<&'a str>,
    /// Memory limit of the test, in bytes.
    limit_bytes: u64,
    /// Bytes that the test wrote to the disk.
    disk_bytes: u64,
}

/// The figures of one part of the test.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Figures {
    /// Number of swipes.
    swipes: usize,
    /// Median time of a swipe, in microseconds.
    median_us: u64,
    /// 95th percentile of the times, in microseconds.
    p95_us: u64,
    /// Page faults that waited for the disk.
    major_faults: u64,
}

/// What the result means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Swipes were slower without protection.
    Protected,
    /// The load evicted nothing, so there was nothing to protect.
    NothingEvicted,
    /// Protection made no difference.
    NoDifference,
}

impl Report {
    /// Whether the test showed the effect of protection.
    pub fn shows_protection(&self) -> bool {
        self.verdict() == Verdict::Protected
    }

    fn verdict(&self) -> Verdict {
        let caused = |phase: &Phase| phase.faults_per_swipe() - self.idle.faults_per_swipe();
        match caused(&self.without) {
            hurt if hurt < HURT => Verdict::NothingEvicted,
            hurt if caused(&self.with) <= hurt * LEFT => Verdict::Protected,
            _ => Verdict::NoDifference,
        }
    }

    fn meaning(&self) -> String {
        match self.verdict() {
            Verdict::Protected => format!(
                "The load evicted the viewer's photos, and a swipe waited for the disk {:.1} times. \
                 With protection it waited {:.1} times.",
                self.without.faults_per_swipe(),
                self.with.faults_per_swipe()
            ),
            Verdict::NothingEvicted => {
                "The test shows nothing: the load did not evict the viewer's photos. Their file \
                 system may keep them in a cache of its own; try another disk (--directory)."
                    .to_owned()
            }
            Verdict::NoDifference => {
                "Protection did not keep the viewer's photos in memory. `limelight doctor` says \
                 which mechanism does not act here."
                    .to_owned()
            }
        }
    }

    /// Prints the result.
    pub fn print(&self, as_json: bool, out: &mut Vec<u8>) -> Result<(), Failure> {
        if as_json {
            let result = Outcome {
                result: self.verdict(),
                meaning: self.meaning(),
                idle: self.idle.figures(),
                without: self.without.figures(),
                with: self.with.figures(),
                protected_by: &self.protected_by,
                why_not_limelightd: self.why_not_limelightd.as_deref(),
                limit_bytes: self.limit_bytes,
                disk_bytes: self.disk_bytes,
            };
            return json(&result, out);
        }
        let head = ["", "swipes", "median", "95 %", "disk waits per swipe"];
        let rows = [
            head.map(str::to_owned),
            self.idle.row("no load"),
            self.without.row("load, no protection"),
            self.with.row("load, protection"),
        ];
        columns(&rows, &[1, 2, 3, 4], out)?;
        writeln!(out, "\n{}", self.meaning())?;
        if let Some(why_not) = &self.why_not_limelightd {
            let knob = &self.protected_by;
            writeln!(
                out,
                "limelightd had no part in it ({why_not}): the test set {knob} itself."
            )?;
        }
        let (limit, disk) = (bytes(self.limit_bytes), bytes(self.disk_bytes));
        writeln!(
            out,
            "Viewer and load shared {limit} of memory and {disk} of disk; nothing is left."
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(times_us: &[u64], faults: u64) -> Phase {
        let mut phase = Phase::default();
        times_us.iter().for_each(|us| phase.add(*us, 0));
        phase.major_faults = faults;
        phase
    }

    fn report(without: u64, with: u64) -> Report {
        Report {
            limit_bytes: 64 << 20,
            disk_bytes: 96 << 20,
            idle: phase(&[900, 1000, 1100, 1200], 0),
            without: phase(&[40_000, 50_000, 61_000, 20_000], without),
            with: phase(&[900, 1000, 1100, 2000], with),
            protected_by: "memory.min".to_owned(),
            why_not_limelightd: Some("limelightd is not running".to_owned()),
        }
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let phase = phase(&[5, 1, 4, 2, 3], 0);
        assert_eq!((phase.percentile_us(50), phase.percentile_us(95)), (3, 5));
        assert_eq!(Phase::default().percentile_us(50), 0);
        assert_eq!(Phase::default().faults_per_swipe(), 0.0);
    }

    #[test]
    fn verdict_needs_evictions_without_and_few_with_protection() {
        for (without, with, verdict) in [
            (400, 0, Verdict::Protected),
            (400, 200, Verdict::Protected),
            (400, 201, Verdict::NoDifference),
            (400, 800, Verdict::NoDifference),
            (7, 0, Verdict::NothingEvicted),
        ] {
            assert_eq!(report(without, with).verdict(), verdict, "{without} {with}");
        }
    }

    #[test]
    fn table_names_phases_and_reason() {
        let mut out = Vec::new();
        report(400, 4).print(false, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "                     swipes   median     95 %  disk waits per swipe\n\
             no load                   4  1.00 ms  1.20 ms                   0.0\n\
             load, no protection       4  40.0 ms  61.0 ms                 100.0\n\
             load, protection          4  1.00 ms  2.00 ms                   1.0\n\
             \n\
             The load evicted the viewer's photos, and a swipe waited for the disk 100.0 times. \
             With protection it waited 1.0 times.\n\
             limelightd had no part in it (limelightd is not running): the test set memory.min \
             itself.\n\
             Viewer and load shared 64.0 MiB of memory and 96.0 MiB of disk; nothing is left.\n"
        );
    }

    #[test]
    fn json_has_counters_and_a_result() {
        let mut out = Vec::new();
        report(400, 4).print(true, &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["result"], "protected");
        assert_eq!(value["without"]["major_faults"], 400);
        assert_eq!(value["with"]["p95_us"], 2000);
        assert_eq!(value["why_not_limelightd"], "limelightd is not running");
        crate::schemas::assert_valid("selftest", &value);
    }
}
