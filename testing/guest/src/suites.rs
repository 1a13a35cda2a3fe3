// SPDX-License-Identifier: GPL-2.0-or-later
//! Test suites that Debian packages, as the foreground app beside busy loops and an indexer:
//! stress-ng, hackbench, cyclictest and fio.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cgroup::Cgroup;
use crate::cold_start::programs::{copy_executables, TREE};
use crate::counters::{Counters, ServingCpu};
use crate::daemon::{self, Daemon};
use crate::dispatch::Stage;
use crate::gallery::{Prepared, APP};
use crate::guest_setup::{drop_caches, mount};
use crate::memory::MIB;
use crate::plan::Arm;
use crate::process::{Process, Start};
use crate::response::quantile;
use crate::scenario::{Spin, Suite, Tool};

/// The shell and the tools, below the root of the root file system.
const EXECUTABLES: [&str; 5] = [
    "usr/bin/dash",
    "usr/bin/stress-ng",
    "usr/bin/hackbench",
    "usr/bin/cyclictest",
    "usr/bin/fio",
];
/// The tool's output, inside [`TREE`].
const OUTPUT: &str = "/tmp/suite.out";
/// fio's file, inside [`TREE`], and its size in MiB.
const FILE: &str = "/tmp/suite.data";
const FILE_MIB: usize = 24;
/// `memory.min` by hand, in the arm [`Arm::BestStock`]: more than any of the tools uses.
const RESERVED: &str = "96M";
/// Time for the loads to fill memory, and for the daemon to scan the app.
const SETTLE: Duration = Duration::from_secs(3);
/// Timeout for a tool that runs for a few seconds without loads.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Suite) -> Result<()> {
    if stage.machine.rootfs.is_none() {
        bail!("suites needs a root file system, and the plan's machine has none");
    }
    if !Path::new(TREE).exists() {
        copy_executables(&EXECUTABLES)?;
        mount("proc", &format!("{TREE}/proc"), "proc", "")?;
        mount("devtmpfs", &format!("{TREE}/dev"), "devtmpfs", "")?;
        mount("sysfs", &format!("{TREE}/sys"), "sysfs", "")?;
        mount("tmpfs", &format!("{TREE}/dev/shm"), "tmpfs", "")?;
    }
    let app = Cgroup::create(APP)?;
    if work.tool == Tool::Fio {
        let path = format!("{TREE}{FILE}");
        write_file(&path).with_context(|| format!("cannot write {path}"))?;
    }
    let mut store = stage.store()?;
    let busy = stage.arm != Arm::Idle;
    let loads: &[_] = if busy { &work.loads } else { &[] };
    let loads = Prepared::new(loads, &mut store, true, 0, stage.repetition)?;
    let loops = if busy { work.loops } else { 0 };
    let loops: Vec<Cgroup> = (0..loops)
        .map(|number| Cgroup::background(&format!("loop-{number}")))
        .collect::<Result<_>>()?;
    drop_caches()?;
    let mut tool = start(work.tool, &app)?;
    if stage.arm == Arm::BestStock {
        app.set_chain("cpu.weight", "10000")?;
        app.set_chain("memory.min", RESERVED)?;
    }
    let daemon = match stage.arm {
        Arm::LimelightOnDebian | Arm::Limelight => {
            daemon::write_config("")?;
            Some(Daemon::start_with_topmost(tool.pid())?)
        }
        Arm::Idle | Arm::Stock | Arm::BestStock => None,
        arm => bail!("suites does not support arm {arm:?}"),
    };
    let loads = loads.start()?;
    let spinning: Vec<Process> = loops
        .iter()
        .map(|cgroup| Start::in_cgroup(cgroup).part("spin-load", &Spin::AddLoop))
        .collect::<Result<_>>()?;
    sleep(SETTLE);
    let (counters, serving) = (Counters::now()?, ServingCpu::now(daemon.as_ref())?);
    tool.tell("go")?;
    let code = tool.wait(LIMIT)?;
    serving.report(&mut stage.reporter.values);
    counters.report(&mut stage.reporter.values)?;
    stage.report_all_oom_kills()?;
    drop((spinning, loads));
    let output = fs::read_to_string(format!("{TREE}{OUTPUT}"))?;
    if code != 0 {
        bail!("{:?} ended with {code}: {output}", work.tool);
    }
    let scores = scores(work.tool, &output).with_context(|| format!("in the output {output:?}"))?;
    for (name, value) in scores {
        stage.reporter.value(name, value);
    }
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// Writes fio's file, a MiB at a time: the runner's memory is locked.
fn write_file(path: &str) -> Result<()> {
    let mut file = fs::File::create(path)?;
    let block = vec![7; MIB];
    for _ in 0..FILE_MIB {
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

/// Starts a shell in [`TREE`]. After a line on standard input, it executes the tool.
fn start(tool: Tool, cgroup: &Cgroup) -> Result<Process> {
    let line = format!("{} >{OUTPUT} 2>&1", command(tool));
    let line = (line.as_str(), &[][..]);
    Start::in_cgroup(cgroup).after_a_line(line, TREE, &[("LC_ALL", "C")], "the suite's shell")
}

/// The command line of a tool.
fn command(tool: Tool) -> String {
    match tool {
        Tool::Vm => stress_ng("--vm 1 --vm-bytes 32m --vm-method write64"),
        Tool::Fault => stress_ng("--fault 1"),
        Tool::Brk => stress_ng("--brk 1 --brk-notouch"),
        Tool::Readahead => stress_ng("--readahead 1 --readahead-bytes 16m"),
        Tool::Hackbench => "hackbench --groups 2 --loops 200".to_owned(),
        Tool::Cyclictest => "cyclictest --quiet --threads=1 --interval=2000 --loops=1000 \
                             --histogram=100000 --policy=other"
            .to_owned(),
        Tool::Fio => format!(
            "fio --minimal --name=reads --filename={FILE} --size={FILE_MIB}m --rw=randread --bs=48 \
             --ioengine=psync --invalidate=0 --runtime=3 --time_based"
        ),
    }
}

/// stress-ng for three seconds. A stressor that the OOM killer ends is not started again.
fn stress_ng(stressor: &str) -> String {
    format!("stress-ng {stressor} --timeout 3 --metrics-brief --temp-path /tmp --oomable")
}

/// The figures in a tool's output, by the names of the values.
fn scores(tool: Tool, output: &str) -> Result<Vec<(&'static str, f64)>> {
    Ok(match tool {
        Tool::Vm => vec![("ops_per_s", stressed("vm", output)?)],
        Tool::Fault => vec![("ops_per_s", stressed("fault", output)?)],
        Tool::Brk => vec![("ops_per_s", stressed("brk", output)?)],
        Tool::Readahead => vec![("ops_per_s", stressed("readahead", output)?)],
        Tool::Hackbench => vec![("time_us", after("Time:", output)? * 1e6)],
        Tool::Cyclictest => wakeups(output)?,
        Tool::Fio => {
            let field = output.split(';').nth(7).context("too few fields")?;
            vec![("ops_per_s", field.parse()?)]
        }
    })
}

/// The number after a word.
fn after(word: &str, output: &str) -> Result<f64> {
    let rest = output
        .split_once(word)
        .with_context(|| format!("no {word:?}"))?
        .1;
    let number = rest.split_ascii_whitespace().next().context("no number")?;
    Ok(number.parse()?)
}

/// Operations of a stressor per second of real time, from the table of `--metrics-brief`: name,
/// operations, three times, operations per second of real time.
fn stressed(name: &str, output: &str) -> Result<f64> {
    let row = output.lines().find_map(|line| {
        let mut words = line
            .split_ascii_whitespace()
            .skip_while(|word| *word != name);
        words.next()?;
        let row: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        row.get(4).copied()
    });
    row.with_context(|| format!("no row of {name}"))
}

/// Percentiles of cyclictest's histogram: lines of a latency in us and a count. Samples above the
/// histogram's range are in its summary as overflows.
fn wakeups(output: &str) -> Result<Vec<(&'static str, f64)>> {
    let samples: Vec<f64> = output
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let us: f64 = words.next()?.parse().ok()?;
            let count: usize = words.next()?.parse().ok()?;
            Some(std::iter::repeat_n(us, count))
        })
        .flatten()
        .collect();
    if samples.is_empty() || after("# Histogram Overflows:", output)? > 0.0 {
        bail!("{} samples within the histogram's range", samples.len());
    }
    Ok(vec![
        ("wake_p50_us", quantile(&samples, 0.50)),
        ("wake_p99_us", quantile(&samples, 0.99)),
        ("wake_max_us", quantile(&samples, 1.0)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_stress_ng_is_read() {
        let output = "stress-ng: info:  [7] dispatching hogs: 1 vm\n\
                      stress-ng: metrc: [7] stressor       bogo ops real time  usr time  sys time   \
                      bogo ops/s     bogo ops/s\n\
                      stress-ng: metrc: [7] vm                61440      3.00      2.90      0.10     \
                      20480.00       20480.00\n";
        assert_eq!(scores(Tool::Vm, output).unwrap(), [("ops_per_s", 20480.0)]);
        assert!(scores(Tool::Fault, output).is_err());
    }

    #[test]
    fn percentiles_of_wakeups_come_from_the_histogram() {
        let mut output = String::from("# /dev/cpu_dma_latency set to 0us\n# Histogram\n");
        for (us, count) in [(50, 980), (400, 15), (9000, 5)] {
            output.push_str(&format!("{us:06} {count:06}\n"));
        }
        output
            .push_str("# Total: 000001000\n# Max Latencies: 09000\n# Histogram Overflows: 00000\n");
        let expected = [
            ("wake_p50_us", 50.0),
            ("wake_p99_us", 400.0),
            ("wake_max_us", 9000.0),
        ];
        assert_eq!(scores(Tool::Cyclictest, &output).unwrap(), expected);
        let over = output.replace("Overflows: 00000", "Overflows: 00002");
        assert!(scores(Tool::Cyclictest, &over).is_err());
    }

    #[test]
    fn hackbench_s_time_is_in_microseconds() {
        let output = "Running in process mode\nTime: 0.250\n";
        assert_eq!(
            scores(Tool::Hackbench, output).unwrap(),
            [("time_us", 250_000.0)]
        );
    }
}
