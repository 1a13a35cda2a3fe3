// SPDX-License-Identifier: GPL-2.0-or-later
//! Two tiers of swap: while the foreground app grows, pages of background apps go from zram to its
//! backing device, and no app is closed before that.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use limelight_proto::{HistoryEntry, MemoryAction};

use crate::daemon::{self, focus, history, Daemon};
use crate::dispatch::Stage;
use crate::leak::is_of;
use crate::swap_app::{App, Spec, CLASSES, DISPOSABLE, KEEP, NORMAL};

/// The background apps, the one used longest ago first: class, name and memory in MiB.
const BACKGROUND: [(&str, &str, u32); 3] = [
    (NORMAL, "old", 40),
    (KEEP, "office", 24),
    (DISPOSABLE, "news", 8),
];
const FRONT_MIB: u32 = 16;
/// Rate at which the foreground app grows.
const GROWS_MIB_PER_S: u32 = 4;

/// Longest time until the first write-back. On a busy host without KVM, a guest is slow.
const PATIENCE: Duration = Duration::from_secs(120);
/// Statistics of the backing device: pages there now, pages ever read, pages ever written.
const STATISTICS: &str = "/sys/block/zram0/bd_stat";

/// Runs the scenario.
pub fn run(stage: Stage) -> Result<()> {
    let spec = |mib| Spec {
        mib,
        leak_mib_per_s: GROWS_MIB_PER_S,
        seed: u64::from(mib),
    };
    let apps = BACKGROUND.iter();
    let apps = apps.map(|(class, name, mib)| App::start(class, name, &spec(*mib)));
    let mut apps: Vec<App> = apps.collect::<Result<_>>()?;
    let mut front = App::start(NORMAL, "front", &spec(FRONT_MIB))?;
    let before: u64 = apps[0].talk.ask("sum")?;
    daemon::write_config(CLASSES)?;
    let daemon = Daemon::start(&[])?;
    for app in apps.iter().chain([&front]) {
        focus(app.pid())?;
    }

    front.talk.say("leak")?;
    let started = Instant::now();
    let mut entries = history()?;
    while first(&entries, MemoryAction::WriteBack).is_none()
        && first(&entries, MemoryAction::Kill).is_none()
        && started.elapsed() < PATIENCE
    {
        sleep(Duration::from_millis(100));
        entries = history()?;
    }
    front.talk.process.signal(libc::SIGSTOP)?;
    let written = written_pages()?;
    let reporter = &stage.reporter;
    let entry = first(&entries, MemoryAction::WriteBack);
    reporter.check(
        "pages of the app used longest ago are written back from zram to the disk",
        entry.is_some_and(|entry| is_of(entry, "old") && entry.bytes > 0) && written > 0,
        format!("{written} pages written; history: {entries:?}"),
    )?;
    let dead = apps
        .iter_mut()
        .filter_map(|app| (!app.alive()).then(|| app.name.clone()));
    let dead: Vec<String> = dead.collect();
    reporter.check(
        "no app is closed before that",
        first(&entries, MemoryAction::Kill).is_none() && dead.is_empty(),
        format!("dead: {dead:?}; history: {entries:?}"),
    )?;
    let (code, findings) = daemon::json(&["doctor"])?;
    reporter.check(
        "doctor reports how much is written back",
        findings.to_string().contains("written back to its disk"),
        format!("exit code {code}: {findings}"),
    )?;
    drop(front);
    focus(apps[0].pid())?;
    let after: u64 = apps[0].talk.ask("sum")?;
    reporter.check(
        "the app's memory is unchanged when it is read back from the disk",
        before == after,
        format!("sum of its memory: {before} before, {after} after"),
    )?;
    drop(apps);
    daemon.stop(reporter)?;
    stage.reporter.finish()
}

fn first(entries: &[HistoryEntry], action: MemoryAction) -> Option<&HistoryEntry> {
    entries.iter().find(|entry| entry.action == action)
}

/// Pages that were ever written to the backing device.
fn written_pages() -> Result<u64> {
    let text =
        fs::read_to_string(STATISTICS).with_context(|| format!("cannot read {STATISTICS}"))?;
    let written = text.split_ascii_whitespace().nth(2);
    let written = written.with_context(|| format!("{STATISTICS} contains {text:?}"))?;
    Ok(written.parse()?)
}
