// SPDX-License-Identifier: GPL-2.0-or-later
//! Response windows without a session agent or compositor. Keyboard events open them, and the
//! kernel's tracepoint of frames closes them. The test has a real input device, a real display
//! driver, and an app that answers input with frames.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;

use anyhow::{Context, Result};
use rustix::io::Errno;

use crate::cgroup::Cgroup;
use crate::daemon::{focus, limelight, Daemon, Line};
use crate::dispatch::Stage;
use crate::guest_setup::wait;
use crate::keyboard::Keyboard;
use crate::kms::{in_memory, Shown, Spec};
use crate::process::{Conversation, Start};
use crate::windows::{Seen, QUIET};

/// Codes of the letters A and B, and of the left shift key. The app answers only A.
pub const ANSWERED: u16 = 30;
const IGNORED: u16 = 48;
const SHIFT: u16 = 42;

/// The daemon's trace instance for frames.
const INSTANCE: &str = "/sys/kernel/tracing/instances/limelight-frames";
const RECORD: &str = "/run/limelight/private/record/restore.json";

/// Number of key presses, and of frames without a key press.
const TIMES: u64 = 8;

/// A keyboard, and an app that answers it on the display.
pub struct Desk {
    /// The keyboard.
    pub keyboard: Keyboard,
    /// The app.
    pub app: Conversation,
}

impl Desk {
    /// Starts the app in its own cgroup.
    pub fn set_up(think_ms: u64) -> Result<Desk> {
        let keyboard = Keyboard::plug_in(&[ANSWERED, IGNORED, SHIFT])?;
        let cgroup = Cgroup::create("app.slice/app-limelight-kms-1.scope")?;
        let spec = Spec {
            keyboard: keyboard.node.clone(),
            answers: ANSWERED,
            think_ms,
        };
        let start = Start::in_cgroup(&cgroup);
        let mut app = start.conversation("kms", &spec)?;
        let _first: Shown = app.hear()?;
        Ok(Desk { keyboard, app })
    }

    /// Presses the key that the app answers. Returns the time of the press, and the app's report of
    /// its frame.
    pub fn press(&mut self) -> Result<(u64, Shown)> {
        self.keyboard.tap(ANSWERED)?;
        let shown: Shown = self.app.hear()?;
        let pressed_us = shown.pressed_us.context("no key was pressed")?;
        Ok((pressed_us, shown))
    }

    /// PID of the app.
    pub fn pid(&self) -> i32 {
        self.app.process.pid()
    }
}

/// Runs all checks.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    let check = |what: &str, held: bool, seen: &Seen| reporter.check(what, held, seen.text());
    let mut desk = Desk::set_up(3)?;
    let daemon = Daemon::start(&[desk.pid()])?;
    focus(desk.pid())?;

    let both = |seen: &Seen, state: &str| {
        seen.source("evdev") == state && seen.source("display frames") == state
    };
    let seen = Seen::when(|seen| both(seen, "active"))?;
    reporter.check(
        "input devices and the display's frames are read while no other source reports",
        both(&seen, "active"),
        seen.0["sources"].to_string(),
    )?;
    let record = fs::read_to_string(RECORD).unwrap_or_default();
    reporter.check(
        "the trace instance is in the restore record",
        Path::new(INSTANCE).is_dir() && record.contains(INSTANCE),
        record,
    )?;

    for _ in 0..TIMES {
        let _: Shown = desk.app.ask("flip")?;
    }
    sleep(QUIET);
    let seen = Seen::now()?;
    let none = seen.tally("opened") == 0;
    check("frames without input open no window", none, &seen)?;

    let mut last = 0;
    for _ in 0..TIMES {
        last = desk.press()?.0;
        sleep(QUIET);
    }
    let seen = Seen::when(|seen| seen.answers() >= TIMES)?;
    let each = seen.tally("opened") == TIMES && seen.answers() == TIMES && !seen.is_open();
    check(
        "each key opens one window, which the frame closes",
        each,
        &seen,
    )?;
    let pattern = in_memory(last, ANSWERED);
    let kept = [desk.pid(), daemon.pid()].map(|pid| holds(pid, &pattern));
    let [app, ours] = kept;
    let (app, ours) = (app?, ours?);
    reporter.check(
        "the key's event is in the memory of the app, but not of the daemon",
        app && !ours,
        format!("in the app's memory: {app}; in the daemon's memory: {ours}"),
    )?;

    desk.keyboard.tap(SHIFT)?;
    sleep(QUIET);
    let seen = Seen::now()?;
    let unchanged = seen.tally("opened") == TIMES;
    check("a modifier key alone opens no window", unchanged, &seen)?;
    desk.keyboard.tap(IGNORED)?;
    let seen = Seen::when(|seen| seen.tally("expired") > seen.tally("late") && !seen.is_open())?;
    let ended = seen.tally("opened") == TIMES + 1 && seen.answers() == TIMES;
    check(
        "a key without a frame opens a window that expires at its deadline",
        ended,
        &seen,
    )?;

    let compositor = compositor(desk.pid())?;
    let node = desk.keyboard.node.clone();
    let away = wait(|| Ok(!is_open(daemon.pid(), &node)? && !Path::new(INSTANCE).exists()))?;
    reporter.check(
        "once a compositor reports, input devices are closed and the trace instance is gone",
        away,
        Seen::now()?.0["sources"].to_string(),
    )?;
    drop(compositor);
    let back = wait(|| Ok(is_open(daemon.pid(), &node)? && Path::new(INSTANCE).exists()))?;
    reporter.check(
        "after the compositor has disconnected, input and frames are read again",
        back,
        Seen::now()?.0["sources"].to_string(),
    )?;

    let daemon = daemon.replace_killed(Path::new(INSTANCE), reporter)?;
    focus(desk.pid())?;
    Seen::when(|seen| both(seen, "active"))?;
    desk.press()?;
    let seen = Seen::when(|seen| seen.answers() >= 1)?;
    let again = seen.tally("opened") == 1 && seen.answers() == 1;
    check(
        "the successor opens a window for a key, and the frame closes it",
        again,
        &seen,
    )?;
    limelight(&["focus", "--none"])?;
    let away = wait(|| Ok(!Path::new(INSTANCE).exists()))?;
    let listens = is_open(daemon.pid(), &node)?;
    reporter.check(
        "without a foreground app, no frame is traced, but input is read to infer the foreground \
         app",
        away && listens,
        format!("trace instance gone: {away}; input device open: {listens}"),
    )?;
    focus(desk.pid())?;
    daemon.stop(reporter)?;
    reporter.check(
        "a stopped daemon leaves no trace instance",
        !Path::new(INSTANCE).exists(),
        format!("{INSTANCE} exists: {}", Path::new(INSTANCE).exists()),
    )?;
    stage.reporter.finish()
}

/// Reports one window as a compositor. The connection stays open until the returned value is
/// dropped.
fn compositor(pid: i32) -> Result<Line> {
    let mut line = Line::connect()?;
    for event in ["open", "close"] {
        line.tell(&format!(
            r#"{{"op":"window","event":"{event}","pid":{pid},"source":"compositor"}}"#
        ))?;
    }
    Ok(line)
}

/// Whether a process has a file open.
fn is_open(pid: i32, file: &Path) -> Result<bool> {
    let all = format!("/proc/{pid}/fd");
    for entry in fs::read_dir(&all).with_context(|| format!("cannot list {all}"))? {
        // A descriptor closed meanwhile does not match.
        if fs::read_link(entry?.path()).is_ok_and(|target| target == file) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether these bytes are anywhere in a process's writable memory.
fn holds(pid: i32, bytes: &[u8]) -> Result<bool> {
    let path = format!("/proc/{pid}/mem");
    let memory = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let ranges = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = u64::from_str_radix(from, 16).ok()?;
        let to = u64::from_str_radix(to, 16).ok()?;
        rest.starts_with("rw").then_some((from, to))
    });
    for (from, to) in ranges {
        let mut contents = vec![0; usize::try_from(to - from)?];
        match memory.read_exact_at(&mut contents, from) {
            Ok(()) => {}
            // Another thread has unmapped this range meanwhile.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => continue,
            Err(error) => {
                return Err(error).context(format!("cannot read {path} at {from:#x}"));
            }
        }
        if contents.windows(bytes.len()).any(|part| part == bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_search_finds_present_bytes() {
        let own = std::process::id() as i32;
        let kept = std::hint::black_box(in_memory(123_456, ANSWERED));
        assert!(holds(own, &kept).unwrap());
    }
}
