// SPDX-License-Identifier: GPL-2.0-or-later
//! `rotation`: SWAP's experiment. Apps are launched in turn for several rounds on a machine with
//! too little memory for all of them; a killed app needs a cold launch.
//!
//! The delay of a launch is measured from the user's touch until the app is ready. Like a
//! compositor, the launcher reports the foreground app to a running limelightd over a persistent
//! connection, and does not wait for the answer.

mod app;
mod blocks;
mod day;
mod killer;
mod launcher;
mod real;
pub mod rival;
mod synthetic;
mod table;
mod tally;

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use limelight_proto::MemoryAction;

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{self, write_config, Daemon, Line};
use crate::disk::{Disk, Requests};
use crate::dispatch::Stage;
use crate::flash;
use crate::guest_setup;
use crate::plan::{Arm, Init, Swap};
use crate::random::{seed, Random};
use crate::record::Reporter;
use crate::scenario::{DayOfUse, Rotation};
use crate::systemd;

use self::blocks::Blocks;
use self::day::{note_closed, Answers, Chores};
use self::killer::Killer;
use self::launcher::{Cast, Launcher};
use self::real::Real;
use self::rival::Rival;
use self::synthetic::Synthetic;
use self::table::Class;

pub use self::app::run as app;

/// `purpose` of the [`seed`] for the order of launches.
const PURPOSE: u64 = 0x7207_a710;
/// Time before the first launch.
const SETTLE: Duration = Duration::from_secs(1);

/// Memory management settings of a phone. Huge pages are off, as on phones; otherwise the kernel
/// would keep extra memory free for them. The kernel's reserve is set to 3 MiB: the reserve of a
/// 2 GB phone with Android's `extra_free_kbytes`, at the guest's scale. The kernel would compute
/// its default from all of the guest's memory, which includes the memory of the lab's disks.
/// Watermark boosting is off, as in Android's `init.rc`: a boost is at least a pageblock, which is
/// a hundredth of this guest's memory, but a thousandth of the phone's.
const SETTINGS: [(&str, &str); 3] = [
    ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ("/proc/sys/vm/min_free_kbytes", "3072"),
    ("/proc/sys/vm/watermark_boost_factor", "0"),
];

/// limelightd's configuration: the apps' classes, by app ID. Everything else is the default.
fn configuration(parts: &[(&str, Class)]) -> String {
    let mut text = String::from("[class]\n");
    for class in Class::ALL {
        let names: Vec<String> = parts
            .iter()
            .filter(|part| part.1 == class)
            .map(|part| format!("{:?}", part.0))
            .collect();
        text.push_str(&format!("{} = [{}]\n", class.name(), names.join(", ")));
    }
    text
}

/// How the user and the machine spend the time.
struct Course {
    /// Visits to each app, including the first.
    rounds: u32,
    /// Time after each visit, and after each key press but the first.
    think: Duration,
    /// Key presses in each visit.
    keys: u32,
    /// Whether each round has an order of its own.
    shuffles: bool,
    /// What runs in the background.
    chores: Option<Chores>,
    /// limelightd's configuration beside the apps' classes.
    configuration: String,
}

impl Course {
    fn of(work: &Rotation) -> Course {
        Course {
            rounds: work.rounds,
            think: Duration::from_millis(work.think_ms.into()),
            keys: 1,
            shuffles: false,
            chores: None,
            configuration: without(work.off.as_deref()),
        }
    }
}

/// limelightd's configuration without this mechanism.
fn without(mechanism: Option<&str>) -> String {
    mechanism.map_or_else(String::new, |name| format!("[{name}]\nenabled = false\n"))
}

/// Makes limelightd start like on a machine that has never seen the apps.
fn forget_apps() -> Result<()> {
    match fs::remove_dir_all(daemon::STATE) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", daemon::STATE))
        }
        _ => Ok(()),
    }
}

/// Runs the scenario.
pub fn run(stage: Stage, work: &Rotation) -> Result<()> {
    let cast = Synthetic::prepare(&mut stage.store()?, stage.repetition)?;
    let file = cast.file().to_owned();
    rotate(stage, Course::of(work), cast, &file)
}

/// Runs `rotation-real`.
pub fn run_real(stage: Stage, work: &Rotation) -> Result<()> {
    let store = stage.store()?;
    systemd::start_user()?;
    forget_apps()?;
    let cast = Real::prepare(&store, systemd::SESSION)?;
    let directory = cast.directory().to_owned();
    rotate(stage, Course::of(work), cast, &directory)
}

/// Runs `day`.
pub fn run_day(stage: Stage, work: &DayOfUse) -> Result<()> {
    let mut store = stage.store()?;
    systemd::start_user()?;
    forget_apps()?;
    let chores = Chores::prepare(&mut store)?;
    let cast = Real::prepare(&store, systemd::SESSION)?;
    let directory = cast.directory().to_owned();
    let course = Course {
        rounds: chores.parts(),
        think: Duration::from_millis(work.think_ms.into()),
        keys: work.keys,
        shuffles: true,
        chores: Some(chores),
        configuration: without(work.off.as_deref()),
    };
    rotate(stage, course, cast, &directory)
}

/// Launches the apps of a cast in turn. `path`: any path on the disk that holds the apps' files;
/// that disk's requests are counted.
fn rotate<C: Cast>(mut stage: Stage, mut course: Course, cast: C, path: &Path) -> Result<()> {
    guest_setup::drop_caches()?;
    for (file, value) in SETTINGS {
        fs::write(file, value).with_context(|| format!("cannot write {value} to {file}"))?;
    }
    if stage.arm == Arm::KillOnly {
        guest_setup::swap_off(&stage.machine.swap)?;
    }
    let slice = match stage.machine.init == Init::Systemd {
        true => {
            systemd::start_user()?;
            systemd::APPS
        }
        false => "app.slice",
    };
    // This enables the slice's controllers, which must happen before the daemon scans the slice.
    Cgroup::create(&format!("{slice}/launcher.scope"))?;
    let daemon = match stage.arm {
        Arm::Stock
        | Arm::DamonLruSort
        | Arm::DamonReclaim
        | Arm::KillOnly
        | Arm::SwapAll
        | Arm::Earlyoom
        | Arm::Nohang
        | Arm::SystemdOomd
        | Arm::Preload => None,
        Arm::LimelightOnDebian | Arm::Limelight => {
            let parts: Vec<(&str, Class)> = (0..cast.parts()).map(|i| cast.part(i)).collect();
            write_config(&format!(
                "{}{}",
                course.configuration,
                configuration(&parts)
            ))?;
            Some(Daemon::start(&[])?)
        }
        arm => bail!("rotation does not support arm {arm:?}"),
    };
    let rival = Rival::of(stage.arm)?;
    let own_killer = matches!(stage.arm, Arm::KillOnly | Arm::SwapAll);
    let parts = cast.parts();
    let line = match &daemon {
        Some(daemon) => Some((daemon.pid(), Line::connect()?)),
        None => None,
    };
    let mut launcher = Launcher::new(cast, slice, own_killer.then(Killer::start), line);
    sleep(SETTLE);

    let mut random = Random::new(seed(PURPOSE, stage.repetition));
    let mut turns = random.sample(parts, parts);
    let disk = Disk::of(path)?;
    let swap_disk = guest_setup::swap_device(&stage.machine.swap)
        .map(|device| Disk::of(Path::new(&device)))
        .transpose()?;
    let mut blocks = match (&stage.machine.flash, &stage.machine.swap) {
        (Some(flash), Swap::Disk(_)) => {
            Some(Blocks::watch(flash::swap_sector(flash), flash.swap_mib)?)
        }
        _ => None,
    };
    let mut counters = Counters::now()?;
    let mut before = (disk.requests()?, requests(swap_disk.as_ref())?);
    let mut answers = Answers::default();
    let mut least_left_kib = u64::MAX;
    for round in 0..course.rounds {
        if round == 1 {
            counters = Counters::now()?;
            before = (disk.requests()?, requests(swap_disk.as_ref())?);
        }
        if let Some(chores) = &mut course.chores {
            chores.begin(round)?;
            answers.begin(chores.name(round));
        }
        if round > 0 && course.shuffles {
            turns = random.sample(parts, parts);
        }
        for &index in &turns {
            let visit = launcher.visit(index, round == 0, course.keys, course.think)?;
            answers.add(&visit);
            if course.chores.is_some() {
                let kib = guest_setup::memory_kib;
                least_left_kib = least_left_kib.min(kib("MemAvailable")? + kib("SwapFree")?);
            }
            if let Some(blocks) = &mut blocks {
                blocks.collect()?;
            }
            sleep(course.think);
        }
        if let Some(chores) = &mut course.chores {
            chores.end(&mut stage.reporter)?;
        }
        stage
            .reporter
            .progress(format!("round {} of {}", round + 1, course.rounds))?;
    }
    if course.chores.is_some() {
        stage.reporter.value("least_left_kib", least_left_kib);
        answers.report(&mut stage.reporter);
    }
    counters.report(&mut stage.reporter.values)?;
    stage.report_all_oom_kills()?;
    let (disk_now, swap_now) = (disk.requests()?, requests(swap_disk.as_ref())?);
    let used = disk_now.since(before.0);
    stage.reporter.value("files_read_kib", used.read_kib);
    stage.reporter.value("files_written_kib", used.written_kib);
    let used = swap_now.since(before.1);
    stage.reporter.value("swap_reads", used.reads);
    stage.reporter.value("swap_writes", used.writes);
    stage.reporter.value("swap_read_kib", used.read_kib);
    stage.reporter.value("swap_written_kib", used.written_kib);
    if let Some(blocks) = blocks {
        let summary = blocks.stop()?;
        stage.reporter.value("swap_blocks_used", summary.used);
        stage.reporter.value("swap_block_hottest", summary.hottest);
    }
    launcher.finish(&mut stage.reporter)?;
    if stage.machine.init == Init::Systemd {
        Rival::end(rival, &stage.reporter)?;
    }
    if let Some(daemon) = daemon {
        let closed = check_closed(&stage.reporter)?;
        if course.chores.is_some() {
            note_closed(&closed, &mut stage.reporter);
        }
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

/// Checks that limelightd's history gives a reason for each app that it closed, and shows it.
/// Returns the closed apps.
fn check_closed(reporter: &Reporter) -> Result<Vec<String>> {
    let closed: Vec<_> = daemon::history()?
        .into_iter()
        .filter(|entry| entry.action == MemoryAction::Kill)
        .collect();
    let lines = closed.iter().map(|entry| {
        let app = entry.app.as_ref().map_or("?", |app| app.name.as_str());
        let memory = entry.memory;
        format!("{} ms: {app}: {} ({memory:?})", entry.at_ms, entry.reason)
    });
    reporter.check(
        "limelightd gives a reason for each app that it closed",
        closed.iter().all(|entry| !entry.reason.is_empty()),
        lines.collect::<Vec<_>>().join("; "),
    )?;
    let names = closed.into_iter().filter_map(|entry| entry.app);
    Ok(names.map(|app| app.name).collect())
}

fn requests(disk: Option<&Disk>) -> Result<Requests> {
    disk.map(Disk::requests)
        .transpose()
        .map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_lists_the_class_of_every_app() {
        let text = configuration(&[
            ("bank", Class::Keep),
            ("mail", Class::Keep),
            ("news", Class::Disposable),
        ]);
        let expected = [
            "[class]",
            "keep = [\"bank\", \"mail\"]",
            "normal = []",
            "disposable = [\"news\"]",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
