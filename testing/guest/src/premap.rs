// SPDX-License-Identifier: GPL-2.0-or-later
//! PREMAP's experiment: a foreground app with a growing heap, on machines that differ in how they
//! serve its page faults.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Result};

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{focus, Daemon};
use crate::dispatch::Stage;
use crate::fragment::fragment;
use crate::gallery::APP;
use crate::guest_setup::{drop_caches, ROOTFS};
use crate::heap::{Round, Spec};
use crate::memory::{now_ns, peak_of_children_kib};
use crate::pages::PageSetting;
use crate::plan::Arm;
use crate::process::{Process, Start};
use crate::random::seed;
use crate::response::median;
use crate::scenario::{Growth, Heap};
use limelight_sys::perf::PageFaults;

/// Settling time before the measurement.
const SETTLE: Duration = Duration::from_secs(1);
/// Timeout for the program; long enough for the slowest emulator.
const PROGRAM_LIMIT: Duration = Duration::from_secs(400);

/// The interpreter's script. It fills, sorts, joins, splits and frees a table, twice.
const SCRIPT: &str = r#"
for my $round (1 .. 2) {
    my %table;
    for my $i (1 .. 60000) { $table{"key $i $round"} = "value $i of round $round and some more text"; }
    my @sorted = sort { $table{$a} cmp $table{$b} } keys %table;
    my $text = join(",", map { $table{$_} } @sorted);
    my @parts = map { [ $_, length $_, substr($_, 0, 5) ] } split(/,/, $text);
    die "lost something" unless @parts == 60000 && $parts[7][1] > 20;
}
"#;

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Heap) -> Result<()> {
    drop_caches()?;
    let fragmenter = work.fragmented_mib.map(fragment).transpose()?;
    let _pages = PageSetting::make(work.pages)?;
    let app = Cgroup::create(APP)?;
    match work.growth {
        Growth::Program => program(&mut stage, &app)?,
        _ => rounds(&mut stage, work, &app)?,
    }
    drop(fragmenter);
    stage.reporter.finish()
}

/// In the arm with a daemon, starts the daemon, brings the app to the foreground and returns the
/// daemon. `None` in the other arms.
fn prepare(stage: &Stage, pid: i32) -> Result<Option<Daemon>> {
    match stage.arm {
        Arm::Stock | Arm::BestStock => Ok(None),
        Arm::Limelight => {
            let daemon = Daemon::start(&[])?;
            focus(pid)?;
            Ok(Some(daemon))
        }
        arm => bail!("premap does not support arm {arm:?}"),
    }
}

/// Runs the test app, round by round.
fn rounds(stage: &mut Stage, work: &Heap, cgroup: &Cgroup) -> Result<()> {
    let spec = Spec {
        growth: work.growth,
        seed: seed(u64::from_le_bytes(*b"the heap"), stage.repetition),
    };
    let start = Start::in_cgroup(cgroup);
    let mut app = start.conversation("heap", &spec)?;
    let _ready: bool = app.hear()?;
    let daemon = prepare(stage, app.process.pid())?;
    sleep(SETTLE);
    // Counting slows each fault down, so a timed run counts none.
    let mut faults = match work.timed {
        true => None,
        false => Some(PageFaults::of(app.process.pid())?),
    };
    let counters = Counters::now()?;
    let mut times = Vec::new();
    let (mut used, mut peak) = (0, 0);
    for _ in 0..work.rounds {
        let round: Round = app.ask("grow")?;
        times.push(round.elapsed_ns as f64 / 1000.0);
        used += round.used_pages;
        peak = peak.max(round.peak_kib);
    }
    counters.report(&mut stage.reporter.values)?;
    let reporter = &mut stage.reporter;
    if let Some(faults) = &mut faults {
        reporter.value("faults", faults.count()?);
    }
    for time in &times {
        reporter.sample("round_us", *time);
    }
    reporter.value("response_us", median(&mut times));
    reporter.value("used_pages", used);
    reporter.value("peak_kib", peak);
    drop(app);
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    Ok(())
}

/// Measures perl, a program of the root file system, from the start of its script to its exit.
fn program(stage: &mut Stage, cgroup: &Cgroup) -> Result<()> {
    if stage.machine.rootfs.is_none() {
        bail!("this work needs a root file system, and the plan's machine has none");
    }
    // The first run fills the page cache.
    let mut first = start_program(cgroup)?;
    go(&mut first)?;
    let mut program = start_program(cgroup)?;
    let daemon = prepare(stage, program.pid())?;
    sleep(SETTLE);
    let faults = PageFaults::of(program.pid())?;
    let counters = Counters::now()?;
    let start_ns = now_ns();
    go(&mut program)?;
    let elapsed_ns = now_ns() - start_ns;
    let peak = peak_of_children_kib();
    counters.report(&mut stage.reporter.values)?;
    let reporter = &mut stage.reporter;
    reporter.value("faults", faults.count()?);
    reporter.value("response_us", elapsed_ns as f64 / 1000.0);
    reporter.value("peak_kib", peak);
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    Ok(())
}

/// Starts a shell in the root file system. After a line on standard input, it executes the
/// interpreter.
fn start_program(cgroup: &Cgroup) -> Result<Process> {
    let line = ("perl -e \"$0\"", &[SCRIPT][..]);
    Start::in_cgroup(cgroup).after_a_line(line, ROOTFS, &[("PERL_HASH_SEED", "0")], "perl")
}

fn go(program: &mut Process) -> Result<()> {
    program.tell("go")?;
    match program.wait(PROGRAM_LIMIT)? {
        0 => Ok(()),
        code => bail!("perl ended with {code}: see the console"),
    }
}
