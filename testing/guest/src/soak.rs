// SPDX-License-Identifier: GPL-2.0-or-later
//! Random focus changes, forks and exits under memory pressure, half of them in a response window.
//! Memory pressure drains the pool of zeroed pages, and premap maps nothing without free memory. On
//! the debug kernel, the loads therefore end after every [`CALM_STEPS`] steps. The foreground app then
//! takes new memory in a window, and memory is reclaimed, before they start again. At the end, the
//! kernel log has no problem, no restore record is left, and no value of a cgroup has changed.

use std::fs;
use std::io::{self, BufRead};
use std::process::exit;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::counters::Counters;
use crate::daemon::{focus, limelight, Daemon};
use crate::dispatch::Stage;
use crate::gallery::Prepared;
use crate::memory::{Mapping, MIB};
use crate::pool::{self, Windows};
use crate::process::{Conversation, Start};
use crate::random::{seed, Random};
use crate::scenario::Soak;
use crate::store::Extent;

/// Number of running apps; one of them stays in the root cgroup.
const APPS: usize = 6;
/// Maximum number of children per app.
const CHILDREN: usize = 3;
/// Anonymous memory of an app and of each of its children, in MiB.
const APP_MIB: usize = 4;
const CHILD_MIB: usize = 1;
/// Anonymous memory that an app takes and frees again while there is no load, in MiB.
const GROWTH_MIB: usize = 4;
/// Steps between two growths.
const CALM_STEPS: u32 = 20;
/// Memory that is reclaimed after a growth: more than the apps that are not in the foreground have.
const RECLAIMED: &str = "48M";
/// Zeroed pages that the pool has before a growth. The pool's smallest target is 4 MiB.
const POOLED: u64 = 512;
/// Steps between two progress records.
const PROGRESS_STEPS: u32 = 200;

/// Parameters of an app's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// A file that all apps map.
    pub library: Extent,
}

/// An app's process. The command `fork` starts a child, `reap` kills the oldest child, `grow`
/// writes to new memory and frees it, and `touch` does nothing else. Each command touches all of
/// the app's memory, and is answered with the number of children.
pub fn app(spec: &Spec) -> Result<()> {
    let library = Mapping::file(
        &spec.library.open()?,
        spec.library.offset,
        spec.library.len as usize,
    )?;
    let mut heap = Mapping::anonymous(APP_MIB * MIB)?;
    let mut random = Random::new(u64::from(std::process::id()));
    let mut children: Vec<i32> = Vec::new();
    for line in io::stdin().lock().lines() {
        for page in 0..library.pages() {
            library.touch_page(page);
        }
        for page in 0..heap.pages() {
            heap.dirty_page(page, random.word());
        }
        match line?.as_str() {
            "touch" => {}
            "grow" => {
                let mut memory = Mapping::anonymous(GROWTH_MIB * MIB)?;
                for page in 0..memory.pages() {
                    memory.dirty_page(page, 1);
                }
            }
            "fork" => {
                // SAFETY: the app is single-threaded, so its child may continue with the whole
                // program.
                match unsafe { libc::fork() } {
                    -1 => return Err(io::Error::last_os_error()).context("an app cannot fork"),
                    0 => child(&mut heap),
                    pid => children.push(pid),
                }
            }
            "reap" if !children.is_empty() => {
                let pid = children.remove(0);
                let mut status = 0;
                // SAFETY: the child is ours and has not been waited for.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &mut status, 0);
                }
            }
            other => bail!("the app does not expect {other:?}"),
        }
        println!("{}", children.len());
    }
    Ok(())
}

/// Dirties half of the parent's heap, adds its own memory, and sleeps until it is killed.
fn child(heap: &mut Mapping) -> ! {
    // SAFETY: prctl with these arguments only requests a signal on the parent's death.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    for page in 0..heap.pages() / 2 {
        heap.dirty_page(page, 1);
    }
    match Mapping::anonymous(CHILD_MIB * MIB) {
        Ok(mut memory) => {
            for page in 0..memory.pages() {
                memory.dirty_page(page, 1);
            }
            loop {
                // SAFETY: pause has no preconditions.
                unsafe { libc::pause() };
            }
        }
        Err(_) => exit(1),
    }
}

struct App {
    talk: Conversation,
    children: usize,
}

impl App {
    fn start(cgroup: Option<&Cgroup>, spec: &Spec) -> Result<Self> {
        let mut talk = Start::in_cgroup(cgroup).conversation("soak-app", spec)?;
        talk.ask::<usize>("touch")?;
        Ok(App { talk, children: 0 })
    }

    /// Sends a command; false when the OOM killer has killed the app.
    fn ask(&mut self, command: &str) -> Result<bool> {
        match self.talk.ask(command) {
            Ok(children) => {
                self.children = children;
                Ok(true)
            }
            Err(_)
                if self
                    .talk
                    .process
                    .wait(std::time::Duration::from_secs(5))
                    .is_ok() =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// What follows a step for its app.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Restart,
    /// The OOM killer has killed it.
    Lost,
}

/// Number of steps of each kind.
#[derive(Default)]
struct Tally {
    focus_changes: u64,
    forks: u64,
    exits: u64,
    windows: u64,
    growths: u64,
    lost: u64,
}

impl Tally {
    /// Without a load: brings `app` to the foreground, waits for the pool of zeroed pages, lets the
    /// app take memory in a response window, and reclaims memory.
    fn grow(&mut self, app: &mut App) -> Result<Next> {
        if !app.talk.process.alive() {
            return Ok(Next::Lost);
        }
        focus(app.talk.process.pid())?;
        self.focus_changes += 1;
        pool::wait_for(POOLED)?;
        let opened = Windows::connect()?.attempt("open")?;
        self.windows += u64::from(opened);
        let survived = app.ask("grow")?;
        self.growths += u64::from(opened && survived);
        // Reclaim must meet protected pages, which the loads leave to chance. The file's error means
        // that it found less.
        let _ = fs::write("/sys/fs/cgroup/memory.reclaim", RECLAIMED);
        Windows::connect()?.attempt("close")?;
        Ok(if survived { Next::Continue } else { Next::Lost })
    }

    /// Makes a random step with `app`.
    fn step(&mut self, app: &mut App, random: &mut Random) -> Result<Next> {
        let survived = match random.below(3) {
            0 if random.below(10) == 0 => {
                limelight(&["focus", "--none"])?;
                self.focus_changes += 1;
                true
            }
            0 => {
                self.focus_changes += 1;
                match focus(app.talk.process.pid()) {
                    Ok(()) => true,
                    Err(error) if app.talk.process.alive() => return Err(error),
                    Err(_) => false,
                }
            }
            1 if app.children < CHILDREN => {
                self.forks += 1;
                app.ask("fork")?
            }
            _ if app.children > 0 && random.below(2) == 0 => {
                self.exits += 1;
                app.ask("reap")?
            }
            _ => {
                self.exits += 1 + app.children as u64;
                return Ok(Next::Restart);
            }
        };
        Ok(if survived { Next::Continue } else { Next::Lost })
    }
}

/// Runs the scenario.
pub fn run(mut stage: Stage, work: &Soak) -> Result<()> {
    stage.need_daemon("soak")?;
    let mut store = stage.store()?;
    let prepared = Prepared::new(&work.loads, &mut store, true, 0, stage.repetition)?;
    let spec = Spec {
        library: store.file("soak-library", 4)?,
    };
    crate::guest_setup::drop_caches()?;
    let cgroups: Vec<Option<Cgroup>> = (0..APPS)
        .map(|index| {
            (index > 0)
                .then(|| Cgroup::create(&format!("app.slice/app-limelight-soak-{index}.scope")))
                .transpose()
        })
        .collect::<Result<_>>()?;
    let start = |index: usize| App::start(cgroups[index].as_ref(), &spec);
    // The old app and all its children end before the new one starts.
    let restart = |apps: &mut Vec<App>, index: usize| -> Result<()> {
        drop(apps.remove(index));
        apps.insert(index, start(index)?);
        Ok(())
    };
    let mut apps: Vec<App> = (0..APPS).map(start).collect::<Result<_>>()?;
    // No PIDs to check for restored values at the end: the apps are replaced during the run.
    let daemon = Daemon::start(&[])?;
    let counters = Counters::now()?;
    let mut loads = prepared.start()?;

    let mut random = Random::new(seed(work.seed, stage.repetition));
    let mut tally = Tally::default();
    for step in 0..work.steps {
        if step % PROGRESS_STEPS == 0 {
            stage
                .reporter
                .progress(format!("step {step} of {}", work.steps))?;
        }
        if random.below(2) == 0 {
            // A connection for each report: the daemon ends idle ones, and a step may take minutes.
            tally.windows += u64::from(Windows::connect()?.attempt("open")?);
        }
        let index = random.below(APPS as u64) as usize;
        let next = tally.step(&mut apps[index], &mut random)?;
        tally.lost += u64::from(next == Next::Lost);
        if next != Next::Continue {
            restart(&mut apps, index)?;
        }
        // Other windows stay open until their deadline, or until the foreground app changes.
        if random.below(2) == 0 {
            Windows::connect()?.attempt("close")?;
        }
        if work.growths && step % CALM_STEPS == CALM_STEPS - 1 {
            drop(loads);
            crate::guest_setup::drop_caches()?;
            let next = tally.grow(&mut apps[index])?;
            tally.lost += u64::from(next == Next::Lost);
            if next != Next::Continue {
                restart(&mut apps, index)?;
            }
            loads = prepared.start()?;
        }
    }
    drop(loads);
    counters.report(&mut stage.reporter.values)?;
    drop(apps);
    daemon.stop(&stage.reporter)?;
    for (name, count) in [
        ("focus_changes", tally.focus_changes),
        ("forks", tally.forks),
        ("exits", tally.exits),
        ("windows", tally.windows),
        ("growths", tally.growths),
        ("apps_lost", tally.lost),
    ] {
        stage.reporter.value(name, count);
    }
    stage.reporter.finish()
}
