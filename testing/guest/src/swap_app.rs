// SPDX-License-Identifier: GPL-2.0-or-later
//! An app of the scenarios that test kills. It touches its memory on request, and can leak.

use std::fs::File;
use std::io::{self, BufRead};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, Result};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::memory::{major_faults, now_ns, Mapping, MIB};
use crate::process::{Conversation, Start};
use crate::random::Random;
use crate::x11::show_window;

/// Class part of the cgroup name of an app of class keep, which [`CLASSES`] matches.
pub const KEEP: &str = "keep";
/// Class part of the cgroup name of an app of class normal, the default.
pub const NORMAL: &str = "normal";
/// Class part of the cgroup name of a disposable app, which [`CLASSES`] matches.
pub const DISPOSABLE: &str = "disposable";

/// Patterns from cgroup names to classes, for the daemon's configuration.
pub const CLASSES: &str =
    "[class]\nkeep = [\"*/app-keep*\"]\ndisposable = [\"*/app-disposable*\"]\n";

/// Bytes that a leak or a build takes per step.
const STEP: usize = MIB / 4;

/// Memory of a build in MiB: of its compilers, which run one after the other, and of its linker.
const COMPILERS_MIB: [u32; 6] = [24; 6];
const LINKER_MIB: u32 = 64;
/// The terminal that the command `terminal` opens.
const TERMINAL: &str = "/dev/ttyS0";

/// Parameters of the app's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The app's memory, in MiB.
    pub mib: u32,
    /// Rate of the app's leak, in MiB per second; 0 is as fast as possible.
    pub leak_mib_per_s: u32,
    /// Seed of the memory's contents.
    pub seed: u64,
}

impl Spec {
    /// An app whose leak is as fast as possible.
    pub fn new(mib: u32, seed: u64) -> Self {
        Spec {
            mib,
            leak_mib_per_s: 0,
            seed,
        }
    }
}

/// The app's answer after it has touched all of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touched {
    /// Time that touching the memory took.
    pub elapsed_ns: u64,
    /// Faults that waited for the disk.
    pub major_faults: u64,
}

/// The app's process. The command `touch` touches all its memory, `sum` answers the sum of its
/// contents, `leak` takes memory until the
/// process is killed, `build` takes and frees memory as a build does, `terminal` opens a terminal,
/// and `show DISPLAY` opens a window.
pub fn app(spec: &Spec) -> Result<()> {
    let mut random = Random::new(spec.seed);
    let mut heap = Mapping::anonymous(spec.mib as usize * MIB)?;
    for page in 0..heap.pages() {
        heap.fill_page(page, &mut random);
    }
    let mut window = None;
    let mut terminal = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if let Some(display) = line.strip_prefix("show ") {
            let (_, id) = window.insert(show_window(display)?);
            println!("{id}");
            continue;
        }
        match line.as_str() {
            "touch" => {
                let (start_ns, faults) = (now_ns(), major_faults());
                for page in 0..heap.pages() {
                    heap.dirty_page(page, random.word());
                }
                let touched = Touched {
                    elapsed_ns: now_ns() - start_ns,
                    major_faults: major_faults() - faults,
                };
                println!("{}", serde_json::to_string(&touched)?);
            }
            "sum" => {
                let pages = 0..heap.pages();
                let sum = pages.map(|page| heap.read_page(page));
                println!("{}", sum.fold(0, u64::wrapping_add));
            }
            "leak" => leak(spec.leak_mib_per_s, &mut random)?,
            "terminal" => terminal = Some(File::open(TERMINAL)?),
            "build" => {
                let (start_ns, faults) = (now_ns(), major_faults());
                build(spec.leak_mib_per_s, &mut random)?;
                let built = Touched {
                    elapsed_ns: now_ns() - start_ns,
                    major_faults: major_faults() - faults,
                };
                println!("{}", serde_json::to_string(&built)?);
            }
            other => bail!("the app does not expect {other:?}"),
        }
    }
    drop(terminal);
    Ok(())
}

fn leak(mib_per_s: u32, random: &mut Random) -> Result<()> {
    let mut lost = Vec::new();
    loop {
        lost.push(take_step(mib_per_s, random)?);
    }
}

/// Takes and fills [`STEP`] bytes, then waits, so that steps in a row take at most `mib_per_s` MiB
/// per second. With 0, does not wait.
fn take_step(mib_per_s: u32, random: &mut Random) -> Result<Mapping> {
    let mut more = Mapping::anonymous(STEP)?;
    for page in 0..more.pages() {
        more.fill_page(page, random);
    }
    if mib_per_s > 0 {
        let steps_per_s = mib_per_s as usize * MIB / STEP;
        sleep(Duration::from_micros(1_000_000 / steps_per_s as u64));
    }
    Ok(more)
}

/// Runs compilers and a linker, each of which takes memory and frees it at its end.
fn build(mib_per_s: u32, random: &mut Random) -> Result<()> {
    for mib in COMPILERS_MIB.into_iter().chain([LINKER_MIB]) {
        let steps = mib as usize * MIB / STEP;
        let held = (0..steps).map(|_| take_step(mib_per_s, random));
        drop(held.collect::<Result<Vec<Mapping>>>()?);
    }
    Ok(())
}

/// A running app in its own cgroup, named as a desktop would name it.
pub struct App {
    /// The app's class and name, `CLASS.NAME`, which are part of the cgroup's name.
    pub name: String,
    /// The app's process.
    pub talk: Conversation,
    cgroup: Cgroup,
}

impl App {
    /// Starts an app of a class in the cgroup `app-CLASS.NAME-1.scope`, and waits until the app has
    /// its memory.
    pub fn start(class: &str, name: &str, spec: &Spec) -> Result<App> {
        let name = format!("{class}.{name}");
        let cgroup = Cgroup::create(&format!("app.slice/app-{name}-1.scope"))?;
        let mut talk = Start::in_cgroup(&cgroup).conversation("swap-app", spec)?;
        talk.ask::<Touched>("touch")?;
        Ok(App { name, talk, cgroup })
    }

    /// PID of the app's process.
    pub fn pid(&self) -> i32 {
        self.talk.process.pid()
    }

    /// Whether the app's process is running.
    pub fn alive(&mut self) -> bool {
        self.talk.process.alive()
    }

    /// Has the app open a window and close its previous one; returns the new window's ID.
    pub fn show(&mut self, display: &str) -> Result<u32> {
        self.talk.ask(&format!("show {display}"))
    }

    /// The app's cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }
}
