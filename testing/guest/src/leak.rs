// SPDX-License-Identifier: GPL-2.0-or-later
//! An app leaks memory, in the background or in the foreground, next to apps of every class.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_core::model::class::Class;
use limelight_proto::{HistoryEntry, MemoryAction};
use limelight_sys::meminfo::MemInfo;

use crate::counters::Counters;
use crate::daemon::{self, focus, history, Daemon};
use crate::dispatch::Stage;
use crate::guest_setup::{mount, unmount};
use crate::plan::Arm;
use crate::scenario::{Leak, Leaker};
use crate::swap_app::{App, Spec, CLASSES, DISPOSABLE, KEEP, NORMAL};

/// The innocent apps: class, name and memory in MiB. A disposable app has less memory than a kill
/// must free, so killing it instead of the leaking app would not help.
const INNOCENT: [(&str, &str, u32); 6] = [
    (KEEP, "office", 16),
    (KEEP, "bank", 12),
    (NORMAL, "chat", 16),
    (NORMAL, "mail", 16),
    (DISPOSABLE, "news", 8),
    (DISPOSABLE, "feed", 8),
];
const FRONT_MIB: u32 = 24;
/// Number of empty files in a ramfs. The dentry and the inode of each take about 800 bytes in
/// kernel caches. These caches count as reclaimable, but stay until the ramfs is unmounted.
const PINNING: u32 = 24_576;
const PINNING_IN: &str = "/tmp/pinning";

const LEAKING_MIB: u32 = 8;

/// When the topmost app leaks, at least this many bytes must be swapped out before the first kill.
const SQUEEZED: u64 = 1 << 20;

/// Timeout for a leak to end.
const END: Duration = Duration::from_secs(120);
/// Wait after a leak, to detect apps that die late.
const AFTERMATH: Duration = Duration::from_secs(3);
/// Time for the daemon to scan all apps.
const SCAN: Duration = Duration::from_secs(3);

fn spec(mib: u32, leak_mib_per_s: u32, seed: u64) -> Spec {
    Spec {
        mib,
        leak_mib_per_s,
        seed: seed ^ u64::from(mib),
    }
}

fn start_front(work: &Leak, seed: u64) -> Result<App> {
    App::start(NORMAL, "front", &spec(FRONT_MIB, work.mib_per_s, seed))
}

struct Scene {
    front: App,
    leaking: Option<App>,
    innocent: Vec<App>,
}

impl Scene {
    fn start(work: &Leak, seed: u64) -> Result<Scene> {
        let spec = |mib, leak_mib_per_s| spec(mib, leak_mib_per_s, seed);
        let innocent = INNOCENT
            .iter()
            .map(|(class, name, mib)| App::start(class, name, &spec(*mib, 0)));
        let innocent = innocent.collect::<Result<_>>()?;
        let leaking = match work.leaker {
            Leaker::Background | Leaker::Pinned | Leaker::Unguarded => {
                let spec = spec(LEAKING_MIB, work.mib_per_s);
                Some(App::start(NORMAL, "leak", &spec)?)
            }
            Leaker::Front => None,
        };
        Ok(Scene {
            front: start_front(work, seed)?,
            leaking,
            innocent,
        })
    }

    /// Starts the foreground app anew. For a leak in the foreground, other apps are killed only
    /// within 10 s of the app's start (`culprit::find`), and on a busy host the preparations take
    /// longer than that.
    fn restart_front(&mut self, work: &Leak, seed: u64) -> Result<()> {
        self.front.talk.process.signal(libc::SIGKILL)?;
        self.front.talk.process.wait(END)?;
        self.front = start_front(work, seed)?;
        focus(self.front.pid())
    }

    /// Brings each app to the foreground once to establish an order of use: first the disposable
    /// apps, then the leaking app, then the apps of higher classes. The leaking app is then not the
    /// least recently used one.
    fn use_all(&self) -> Result<()> {
        let (cheap, dear): (Vec<&App>, Vec<&App>) = self
            .innocent
            .iter()
            .rev()
            .partition(|app| app.name.starts_with(DISPOSABLE));
        let all = cheap.into_iter().chain(&self.leaking).chain(dear);
        for app in all.chain([&self.front]) {
            focus(app.pid())?;
        }
        Ok(())
    }

    fn leaker(&mut self) -> &mut App {
        self.leaking.as_mut().unwrap_or(&mut self.front)
    }

    /// Names of the dead apps, except the leaking one.
    fn dead(&mut self) -> Vec<String> {
        let front = self.leaking.is_some().then_some(&mut self.front);
        let all = self.innocent.iter_mut().chain(front);
        let dead = all.filter_map(|app| (!app.alive()).then(|| app.name.clone()));
        dead.collect()
    }
}

/// Runs the scenario.
pub fn run(stage: Stage, work: &Leak) -> Result<()> {
    let daemon_wanted = match stage.arm {
        Arm::Stock => false,
        Arm::LimelightOnDebian | Arm::Limelight => true,
        arm => bail!("leak does not support arm {arm:?}"),
    };
    if work.leaker == Leaker::Pinned {
        pin_caches().with_context(|| format!("cannot fill {PINNING_IN}"))?;
    }
    let seed = u64::from(stage.repetition);
    let mut scene = Scene::start(work, seed)?;
    let daemon = match daemon_wanted {
        true => {
            let config = match work.leaker {
                Leaker::Unguarded => format!("{CLASSES}[swap]\nkill = false\n"),
                _ => CLASSES.to_owned(),
            };
            daemon::write_config(&config)?;
            // No PIDs: some of these processes will have exited when the daemon stops.
            let daemon = Daemon::start(&[])?;
            scene.use_all()?;
            sleep(SCAN);
            if work.leaker == Leaker::Front {
                scene.restart_front(work, seed)?;
            }
            Some(daemon)
        }
        false => None,
    };
    match work.leaker {
        Leaker::Background | Leaker::Pinned => background(stage, scene, daemon, MemoryAction::Kill),
        Leaker::Unguarded => background(stage, scene, daemon, MemoryAction::ForeignKill),
        Leaker::Front => front(stage, scene, daemon),
    }
}

fn pin_caches() -> Result<()> {
    std::fs::create_dir(PINNING_IN)?;
    mount("ramfs", PINNING_IN, "ramfs", "")?;
    for number in 0..PINNING {
        std::fs::File::create(format!("{PINNING_IN}/{number}"))?;
    }
    Ok(())
}

/// Checks that the leaking app dies and all others survive. `action` is the expected entry in the
/// history: a kill by the daemon or by the kernel.
fn background(
    mut stage: Stage,
    mut scene: Scene,
    daemon: Option<Daemon>,
    action: MemoryAction,
) -> Result<()> {
    let counters = Counters::now()?;
    let leaked = Instant::now();
    scene.leaker().talk.say("leak")?;
    let ended = loop {
        if !scene.leaker().alive() || leaked.elapsed() > END {
            break !scene.leaker().alive();
        }
        sleep(Duration::from_millis(20));
    };
    let elapsed = leaked.elapsed();
    sleep(AFTERMATH);
    let dead = scene.dead();
    let reporter = &mut stage.reporter;
    counters.report(&mut reporter.values)?;
    reporter.value("leaker_dead", ended);
    reporter.value("innocent_dead", dead.len());
    reporter.value("leaked_us", elapsed.as_micros() as f64);
    if Path::new(PINNING_IN).exists() {
        unmount(PINNING_IN)?;
        std::fs::remove_dir(PINNING_IN).with_context(|| format!("cannot remove {PINNING_IN}"))?;
    }
    let Some(daemon) = daemon else {
        return stage.reporter.finish();
    };
    let entries = history()?;
    let kills = kills(&entries);
    reporter.check("the leaking app dies", ended, daemon::log_tail())?;
    reporter.check(
        "all other apps survive",
        dead.is_empty(),
        format!("dead: {dead:?}"),
    )?;
    let by_kernel = match action {
        MemoryAction::ForeignKill => 1.0,
        _ => 0.0,
    };
    reporter.check(
        "the kernel's OOM killer kills once if the daemon may not kill, otherwise never",
        reporter.values["oom_kills"] == by_kernel,
        format!("{} OOM kills", reporter.values["oom_kills"]),
    )?;
    reporter.check(
        "history has one kill: the leaking app, with its killer and its memory",
        matches!(&kills[..], [kill]
            if kill.action == action && is_of(kill, "leak") && kill.bytes > 0),
        format!("kills in the history: {kills:?}"),
    )?;
    if let Some(kill) = kills.first() {
        reporter.value("freed_kib", kill.bytes >> 10);
        reporter.value("kill_us", kill.took_us.unwrap_or(0));
    }
    drop(scene);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

/// Checks that the topmost app survives its own leak: listeners are notified, and other apps are
/// killed, lowest class first. The leak stops after the first kill.
fn front(mut stage: Stage, mut scene: Scene, daemon: Option<Daemon>) -> Result<()> {
    let counters = Counters::now()?;
    let memory = MemInfo::parse(&std::fs::read_to_string("/proc/meminfo")?);
    let swap_free = memory.swap_free_bytes.unwrap_or(0);
    let started = Instant::now();
    let listener = daemon.as_ref().map(|_| daemon::Listener::start());
    let listener = listener.transpose()?;
    scene.leaker().talk.say("leak")?;
    while scene.dead().is_empty() && scene.front.alive() && started.elapsed() < END {
        sleep(Duration::from_millis(5));
    }
    let front_lives = scene.front.alive();
    if front_lives {
        scene.front.talk.process.signal(libc::SIGSTOP)?;
    }
    sleep(AFTERMATH);
    let dead = scene.dead();
    let reporter = &mut stage.reporter;
    counters.report(&mut reporter.values)?;
    reporter.value("front_dead", !front_lives);
    reporter.value("innocent_dead", dead.len());
    let Some(daemon) = daemon else {
        return stage.reporter.finish();
    };
    let entries = history()?;
    let kills = kills(&entries);
    reporter.check(
        "the foreground app survives its own leak",
        front_lives,
        format!("dead: {dead:?}"),
    )?;
    let disposable = |kill: &&HistoryEntry| kill.class == Some(Class::Disposable);
    reporter.check(
        "at least one app is killed, and all killed apps are disposable",
        !kills.is_empty() && kills.iter().all(disposable) && dead.len() == kills.len(),
        format!("dead: {dead:?}; history: {kills:?}"),
    )?;
    reporter.check(
        "the kernel's OOM killer kills nothing",
        reporter.values["oom_kills"] == 0.0,
        format!("{} OOM kills", reporter.values["oom_kills"]),
    )?;
    let lines = listener.map(daemon::Listener::stop).transpose()?;
    let lines = lines.unwrap_or_default();
    let about_front = lines.iter().any(|line| line.contains("front"));
    reporter.check(
        "listeners get a notice that names the foreground app",
        about_front,
        lines.join("\n"),
    )?;
    if stage.machine.swap != crate::plan::Swap::None {
        // The history records a squeeze at its end, which may be after the kill. The free swap in
        // the kill's entry shows whether apps were squeezed before.
        let at_kill = kills.first().context("no app was killed")?.memory.swap_free;
        let swapped = swap_free.saturating_sub(at_kill);
        reporter.check(
            "other apps are squeezed before the first kill",
            swapped >= SQUEEZED,
            format!(
                "{} KiB went to swap before the first kill; {entries:?}",
                swapped >> 10
            ),
        )?;
    }
    drop(scene);
    daemon.stop(&stage.reporter)?;
    stage.reporter.finish()
}

fn kills(entries: &[HistoryEntry]) -> Vec<&HistoryEntry> {
    let kills = |entry: &&HistoryEntry| {
        matches!(entry.action, MemoryAction::Kill | MemoryAction::ForeignKill)
    };
    entries.iter().filter(kills).collect()
}

/// Whether the entry is about the app of this name.
pub fn is_of(entry: &HistoryEntry, name: &str) -> bool {
    let cgroup = entry.app.as_ref().and_then(|app| app.cgroup.as_deref());
    cgroup.is_some_and(|cgroup| cgroup.contains(&format!(".{name}-")))
}
