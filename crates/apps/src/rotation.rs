// SPDX-License-Identifier: GPL-2.0-or-later
//! `rotation`: SWAP's experiment. 24 apps are launched in turn for several rounds on a machine that has
//! not enough memory for all of them; who was killed starts from nothing.
//!
//! What a launch takes is counted from the user's touch to the app's word that it is ready. A launcher tells a
//! running limelightd of the app in front as a compositor would, over a connection that stays open, and does not
//! wait for the answer.

mod app;
mod blocks;
mod killer;
mod table;
mod tally;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::cell::Stage;
use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{Daemon, Line};
use crate::disk::Disk;
use crate::flash;
use crate::machine;
use crate::memory::{now_ns, MIB, PAGE};
use crate::plan::{Arm, Swap};
use crate::process::{Conversation, Start};
use crate::random::{seed, Random};
use crate::scenario::Rotation;
use crate::store::{Extent, Store};

use self::blocks::Blocks;
use self::killer::Killer;
use self::table::{App, APPS, FRAMEWORK_HOT_PERCENT, FRAMEWORK_MB, SCALE};
use self::tally::{Charges, Tally};

pub use self::app::run as app;
use self::app::{Launched, Spec};

/// What its random choices are seeded for.
const PURPOSE: u64 = 0x7207_a710;
/// How often a launch is tried when the app dies meanwhile.
const ATTEMPTS: u32 = 5;
/// How long the dead may take to leave their cgroup.
const EMPTY_LIMIT: Duration = Duration::from_secs(30);
/// Time before the first launch.
const SETTLE: Duration = Duration::from_secs(1);
/// Instructions in a millisecond of the phone's processor time, at the guest's scale: exact mode's processor
/// executes one in a nanosecond.
const INSTRUCTIONS_PER_MS: u64 = 1_000_000 / SCALE as u64;

/// What a phone's memory manager is set to. Huge pages, and the memory that the kernel keeps free for them, are not for
/// phones; and what is kept free for the kernel itself must not depend on how much memory the lab's disks take: 3 MiB are what a
/// phone of 2 GB keeps with Android's `extra_free_kbytes`, at the guest's scale.
const SETTINGS: [(&str, &str); 2] = [
    ("/sys/kernel/mm/transparent_hugepage/enabled", "never"),
    ("/proc/sys/vm/min_free_kbytes", "3072"),
];

/// A living app.
struct Life {
    talk: Conversation,
    cgroup: Cgroup,
}

/// The files that apps are made of.
struct Files {
    program: PathBuf,
    directory: PathBuf,
    framework: Extent,
    apps: Vec<Extent>,
}

impl Files {
    /// Writes those that are not there yet.
    fn prepare(store: &mut Store) -> Result<Self> {
        let Store::Directory(directory) = &*store else {
            bail!("rotation needs a data disk with a file system");
        };
        let directory = directory.clone();
        // Every app executes it: code that all of them share.
        let program = directory.join("app");
        fs::copy("/proc/self/exe", &program)
            .with_context(|| format!("cannot copy this program to {}", program.display()))?;
        let framework = store.file("framework", FRAMEWORK_MB / SCALE)?;
        let apps = APPS
            .iter()
            .map(|app| {
                // Files have whole MiB; the app maps as much as it has.
                let len = scaled_pages(app.files_mb) * PAGE;
                let mut file = store.file(app.name, len.div_ceil(MIB) as u32)?;
                file.len = len as u64;
                Ok(file)
            })
            .collect::<Result<_>>()?;
        for app in APPS {
            // As if it had never been launched.
            match fs::remove_file(context(&directory, app.name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("cannot remove an app's saved context");
                }
                _ => {}
            }
        }
        Ok(Files {
            program,
            directory,
            framework,
            apps,
        })
    }
}

/// Pages that `mb` MB of the phone are in the guest.
fn scaled_pages(mb: u32) -> usize {
    mb as usize * MIB / SCALE as usize / PAGE
}

fn context(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.context"))
}

/// Keeps order among the apps.
struct Launcher {
    files: Files,
    repetition: u32,
    lives: Vec<Option<Life>>,
    /// How often each was started.
    started: Vec<u64>,
    /// Living and dead, the least recently used first.
    order: Vec<usize>,
    tally: Tally,
    killer: Option<Killer>,
    daemon: Option<Line>,
    /// What the daemon was told and has not answered yet.
    told: Option<String>,
}

impl Launcher {
    /// Brings an app to the front, from nothing when it is dead, and uses it.
    fn launch(&mut self, index: usize, first: bool) -> Result<()> {
        self.bury()?;
        self.set_active(true);
        self.order.retain(|&other| other != index);
        self.order.push(index);
        self.tell_killer();
        let sent_ns = now_ns();
        let cold = self.lives[index].is_none();
        let mut launched = None;
        for _ in 0..ATTEMPTS {
            match self.attempt(index, sent_ns) {
                Ok(done) => {
                    launched = Some(done);
                    break;
                }
                // The user sees it vanish, and touches it again.
                Err(_) if self.died(index) => {
                    self.tally.failed(APPS[index].class);
                    self.bury()?;
                }
                Err(error) => return Err(error),
            }
        }
        let Launched { major_faults, .. } = launched
            .with_context(|| format!("{} died in each of {ATTEMPTS} launches", APPS[index].name))?;
        let delay_us = (now_ns() - sent_ns) as f64 / 1000.0;
        let class = APPS[index].class;
        self.tally
            .launched(class, first, cold, delay_us, major_faults);
        self.hear_daemon()?;
        if let Some(life) = &mut self.lives[index] {
            if life.talk.ask::<Launched>("use").is_err() && !self.died(index) {
                bail!("{} does not let itself be used", APPS[index].name);
            }
        }
        self.tell_killer();
        self.set_active(false);
        self.bury()
    }

    fn attempt(&mut self, index: usize, sent_ns: u64) -> Result<Launched> {
        let cold = self.lives[index].is_none();
        if cold {
            self.lives[index] = Some(self.start(index, sent_ns)?);
        }
        let pid = self.life(index)?.talk.process.pid();
        self.tell_daemon(pid)?;
        let talk = &mut self.life(index)?.talk;
        match cold {
            true => talk.hear(),
            false => talk.ask(&format!("launch {sent_ns}")),
        }
    }

    fn life(&mut self, index: usize) -> Result<&mut Life> {
        let life = self.lives[index].as_mut();
        life.with_context(|| format!("{} is not alive", APPS[index].name))
    }

    /// Starts an app's process in a cgroup of its own.
    fn start(&mut self, index: usize, sent_ns: u64) -> Result<Life> {
        let app = &APPS[index];
        self.started[index] += 1;
        let life = self.started[index];
        let cgroup = Cgroup::create(&cgroup_path(app, life))?;
        let spec = Spec {
            sent_ns,
            framework: self.files.framework.clone(),
            framework_hot_percent: FRAMEWORK_HOT_PERCENT,
            files: self.files.apps[index].clone(),
            context: context(&self.files.directory, app.name),
            heap_pages: scaled_pages(app.heap_mb),
            cold_work: u64::from(app.cold_ms) * INSTRUCTIONS_PER_MS,
            warm_work: u64::from(app.warm_ms) * INSTRUCTIONS_PER_MS,
            hot_percent: app.hot_percent,
            seed: seed(PURPOSE ^ index as u64, self.repetition),
            life,
        };
        let talk = Start {
            cgroup: Some(&cgroup),
            nice: 0,
            session: false,
        }
        .conversation_of(&self.files.program, "rotation-app", &spec)?;
        Ok(Life { talk, cgroup })
    }

    fn died(&mut self, index: usize) -> bool {
        match &mut self.lives[index] {
            None => true,
            Some(life) => {
                // A broken pipe may be seen a moment before the death.
                let limit = Duration::from_secs(5);
                life.talk.process.wait(limit).is_ok()
            }
        }
    }

    /// Counts those that have died, and removes their cgroups.
    fn bury(&mut self) -> Result<()> {
        for (index, app) in APPS.iter().enumerate() {
            let dead = match &mut self.lives[index] {
                Some(life) => !life.talk.process.alive(),
                None => false,
            };
            if dead {
                self.tally.killed(app.class);
                self.end(index)?;
            }
        }
        Ok(())
    }

    /// Ends an app's life, if it has one, and its cgroup.
    fn end(&mut self, index: usize) -> Result<()> {
        let Some(Life { talk, cgroup }) = self.lives[index].take() else {
            return Ok(());
        };
        let charges = Charges::of(cgroup.path());
        self.tally.ended(APPS[index].class, charges);
        drop(talk);
        let deadline = now_ns() + EMPTY_LIMIT.as_nanos() as u64;
        while let Err(error) = fs::remove_dir(cgroup.path()) {
            if now_ns() > deadline {
                return Err(error)
                    .with_context(|| format!("cannot remove {}", cgroup.path().display()));
            }
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn set_active(&self, active: bool) {
        if let Some(killer) = &self.killer {
            killer.set_active(active);
        }
    }

    /// All but the app in front may die.
    fn tell_killer(&self) {
        if let Some(killer) = &self.killer {
            let others = &self.order[..self.order.len() - 1];
            let living = others.iter().filter_map(|&index| {
                let life = self.lives[index].as_ref()?;
                Some(life.cgroup.path().to_owned())
            });
            killer.set_order(living.collect());
        }
    }

    /// Says that an app is in front, in the arms that have somebody to tell.
    fn tell_daemon(&mut self, pid: i32) -> Result<()> {
        self.hear_daemon()?;
        if let Some(daemon) = &mut self.daemon {
            let request =
                format!(r#"{{"op":"focus","target":{{"pid":{pid}}},"source":"launcher"}}"#);
            daemon.send(&request)?;
            self.told = Some(request);
        }
        Ok(())
    }

    /// Takes the daemon's answer to the last claim. It refuses one for an app that has died meanwhile.
    fn hear_daemon(&mut self) -> Result<()> {
        let (Some(daemon), Some(told)) = (&mut self.daemon, self.told.take()) else {
            return Ok(());
        };
        let answer = daemon.hear(&told);
        let front = self.order.last().copied();
        if answer.is_err() && front.is_some_and(|index| self.lives[index].is_some()) {
            return answer;
        }
        Ok(())
    }
}

fn cgroup_path(app: &App, life: u64) -> String {
    format!("app.slice/app-{}-{life}.scope", app.name)
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Rotation) -> Result<()> {
    let files = Files::prepare(&mut stage.store()?)?;
    machine::drop_caches()?;
    for (file, value) in SETTINGS {
        fs::write(file, value).with_context(|| format!("cannot write {value} to {file}"))?;
    }
    if stage.arm == Arm::KillOnly {
        machine::swap_off(&stage.machine.swap)?;
    }
    let daemon = match stage.arm {
        Arm::KillOnly | Arm::SwapAll => None,
        Arm::LimelightOnDebian | Arm::Limelight => Some(Daemon::start(&[])?),
        arm => bail!("rotation knows no arm {arm:?}"),
    };
    let own_killer = matches!(stage.arm, Arm::KillOnly | Arm::SwapAll);
    let mut launcher = Launcher {
        files,
        repetition: stage.repetition,
        lives: APPS.iter().map(|_| None).collect(),
        started: vec![0; APPS.len()],
        order: Vec::new(),
        tally: Tally::default(),
        killer: own_killer.then(Killer::start),
        daemon: daemon.is_some().then(Line::connect).transpose()?,
        told: None,
    };
    sleep(SETTLE);

    let mut random = Random::new(seed(PURPOSE, stage.repetition));
    let turns = random.sample(APPS.len(), APPS.len());
    let disk = Disk::of(&launcher.files.program)?;
    let swap_disk = machine::swap_device(&stage.machine.swap)
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
    for round in 0..work.rounds {
        if round == 1 {
            counters = Counters::now()?;
            before = (disk.requests()?, requests(swap_disk.as_ref())?);
        }
        for &index in &turns {
            launcher.launch(index, round == 0)?;
            if let Some(blocks) = &mut blocks {
                blocks.collect()?;
            }
            sleep(Duration::from_millis(work.think_ms.into()));
        }
        stage
            .reporter
            .progress(format!("round {} of {}", round + 1, work.rounds))?;
    }
    counters.report(&mut stage.reporter.values)?;
    let (disk_now, swap_now) = (disk.requests()?, requests(swap_disk.as_ref())?);
    let used = disk_now.since(before.0);
    stage.reporter.value("files_read_kib", used.read_kib);
    stage.reporter.value("files_written_kib", used.written_kib);
    let used = swap_now.since(before.1);
    stage.reporter.value("swap_read_kib", used.read_kib);
    stage.reporter.value("swap_written_kib", used.written_kib);
    if let Some(blocks) = blocks {
        let summary = blocks.stop()?;
        stage.reporter.value("swap_blocks_used", summary.used);
        stage.reporter.value("swap_block_hottest", summary.hottest);
    }
    launcher.bury()?;
    let living = launcher.lives.iter().flatten().count();
    stage.reporter.value("living_apps", living);
    for index in 0..APPS.len() {
        launcher.end(index)?;
    }
    launcher.tally.report(&mut stage.reporter);
    if let Some(killer) = launcher.killer.take() {
        killer.stop()?;
    }
    if let Some(daemon) = daemon {
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.finish()
}

fn requests(disk: Option<&Disk>) -> Result<crate::disk::Requests> {
    disk.map(Disk::requests)
        .transpose()
        .map(Option::unwrap_or_default)
}
