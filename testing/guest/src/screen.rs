// SPDX-License-Identifier: GPL-2.0-or-later
//! A phone's screen on an X server: a launched app fills the screen. This program is the window
//! manager, so it knows which window belongs to which launch, and decides which app is in the
//! foreground.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use x11rb::connection::Connection;
use x11rb::protocol::damage::{ConnectionExt as _, ReportLevel};
use x11rb::protocol::xproto::{
    ChangeWindowAttributesAux, ConfigureWindowAux, ConnectionExt as _, EventMask, InputFocus,
    StackMode, Window,
};
use x11rb::protocol::xtest::ConnectionExt as _;
use x11rb::protocol::Event;
use x11rb::rust_connection::RustConnection;

use crate::counters::keyed;
use crate::memory::now_ns;
use crate::x11::{connect, keycode, strike, wait_readable};

/// An app counts as ready when it has not drawn, computed or waited for the disk for this long. A
/// blinking cursor pauses longer between two draws.
const QUIET: Duration = Duration::from_millis(300);
/// Sampling interval.
const INTERVAL: Duration = Duration::from_millis(20);
/// CPU share that counts as computing, in percent: a timer's ticks stay below it.
const BUSY_PERCENT: u64 = 10;
/// Timeout for an app to settle.
const LIMIT: Duration = Duration::from_secs(180);

/// The screen, and the windows on it.
pub struct Screen {
    connection: RustConnection,
    root: Window,
    size: (u16, u16),
    /// Windows shown since the last call of [`Screen::expect`], in the order of their appearance.
    shown: Vec<Window>,
    /// Time of the last damage.
    drawn: Instant,
}

impl Screen {
    /// Waits for the display and becomes its window manager.
    pub fn manage(display: &str) -> Result<Self> {
        let (connection, number) = connect(display)?;
        let screen = &connection.setup().roots[number];
        let (root, size) = (
            screen.root,
            (screen.width_in_pixels, screen.height_in_pixels),
        );
        connection.damage_query_version(1, 1)?.reply()?;
        connection.xtest_get_version(2, 2)?.reply()?;
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        connection
            .change_window_attributes(root, &ChangeWindowAttributesAux::new().event_mask(mask))?
            .check()
            .context("another window manager is running")?;
        Ok(Screen {
            connection,
            root,
            size,
            shown: Vec::new(),
            drawn: Instant::now(),
        })
    }

    /// Starts a new launch: windows shown from now on belong to another app.
    pub fn expect(&mut self) -> Result<()> {
        self.take_events()?;
        self.shown.clear();
        Ok(())
    }

    /// The windows shown since the last [`Screen::expect`], the main window first.
    pub fn shown(&self) -> &[Window] {
        &self.shown
    }

    /// Raises an app's windows, the first one lowest, and focuses the first one.
    pub fn raise(&mut self, windows: &[Window]) -> Result<()> {
        let above = ConfigureWindowAux::new().stack_mode(StackMode::ABOVE);
        for &window in windows {
            // Unchecked: a window that is gone is not an error.
            self.connection.configure_window(window, &above)?;
        }
        if let Some(&main) = windows.first() {
            self.focus(main)?;
        }
        Ok(self.connection.flush()?)
    }

    /// Presses and releases a key for the focused window.
    pub fn press(&mut self, keysym: u32) -> Result<()> {
        let key = keycode(&self.connection, keysym)?;
        strike(&self.connection, self.root, key)
    }

    /// Waits until the app in `cgroup` is idle: it neither draws nor computes nor waits for the
    /// disk. With `needs_window`, it must have a window as well. Returns the time from `sent_ns`
    /// until the app was last busy, in nanoseconds. An app that has died is an error.
    pub fn settle(&mut self, cgroup: &Path, needs_window: bool, sent_ns: u64) -> Result<u64> {
        let deadline = Instant::now() + LIMIT;
        let mut used_us = computed_us(cgroup)?;
        let (mut sampled, mut busy_ns) = (Instant::now(), now_ns());
        let mut runnable = Runnable::default();
        loop {
            let begun = Instant::now();
            wait_readable(&self.connection, INTERVAL)?;
            self.take_events()?;
            let mut busy = self.drawn >= begun;
            // An X event may end the wait early. In a shorter interval, one timer tick of the app
            // would exceed `BUSY_PERCENT`.
            let elapsed = sampled.elapsed();
            if elapsed >= INTERVAL {
                let used = computed_us(cgroup)?;
                busy |= (used - used_us) * 100 > elapsed.as_micros() as u64 * BUSY_PERCENT;
                busy |= runnable.sample(&stats(cgroup)?);
                (used_us, sampled) = (used, Instant::now());
            }
            if busy {
                busy_ns = now_ns();
            }
            let there = !needs_window || !self.shown.is_empty();
            if there && now_ns() - busy_ns > QUIET.as_nanos() as u64 {
                return Ok(busy_ns.saturating_sub(sent_ns));
            }
            if Instant::now() > deadline {
                bail!(
                    "{} is not ready after {LIMIT:?}; it has {} windows",
                    cgroup.display(),
                    self.shown.len()
                );
            }
        }
    }

    fn take_events(&mut self) -> Result<()> {
        while let Some(event) = self.connection.poll_for_event()? {
            match event {
                Event::MapRequest(event) => self.show(event.window)?,
                Event::ConfigureRequest(event) => {
                    let wanted = ConfigureWindowAux::from_configure_request(&event);
                    self.connection.configure_window(event.window, &wanted)?;
                }
                Event::DamageNotify(_) => self.drawn = Instant::now(),
                _ => {}
            }
        }
        Ok(self.connection.flush()?)
    }

    /// Shows a window; an app's first one gets the whole screen.
    fn show(&mut self, window: Window) -> Result<()> {
        if self.shown.contains(&window) {
            self.connection.map_window(window)?;
            return Ok(());
        }
        if self.shown.is_empty() {
            let (width, height) = self.size;
            let whole = ConfigureWindowAux::new()
                .x(0)
                .y(0)
                .width(u32::from(width))
                .height(u32::from(height))
                .border_width(0);
            self.connection.configure_window(window, &whole)?;
        }
        self.connection.map_window(window)?;
        let damage = self.connection.generate_id()?;
        self.connection
            .damage_create(damage, window, ReportLevel::RAW_RECTANGLES)?;
        if self.shown.is_empty() {
            self.focus(window)?;
        }
        self.shown.push(window);
        self.drawn = Instant::now();
        Ok(())
    }

    fn focus(&self, window: Window) -> Result<()> {
        self.connection
            .set_input_focus(InputFocus::POINTER_ROOT, window, x11rb::CURRENT_TIME)?;
        Ok(())
    }
}

/// CPU time of all processes in a cgroup.
fn computed_us(cgroup: &Path) -> Result<u64> {
    keyed(&cgroup.join("cpu.stat"), "usage_usec")
}

/// The `stat` lines of the cgroup's threads; an empty cgroup is an error, because its app has died.
fn stats(cgroup: &Path) -> Result<Vec<String>> {
    let path = cgroup.join("cgroup.threads");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if text.is_empty() {
        bail!("no process is left in {}", cgroup.display());
    }
    // A thread that has just exited waits for nothing.
    Ok(text
        .lines()
        .filter_map(|thread| fs::read_to_string(format!("/proc/{thread}/stat")).ok())
        .collect())
}

/// The runnable threads of an app.
#[derive(Debug, Default)]
struct Runnable {
    /// Thread IDs in the previous sample.
    threads: Vec<String>,
}

impl Runnable {
    /// Takes a sample: the `stat` lines of all threads. Returns whether a thread waits for the disk,
    /// or is runnable in this and in the previous sample. A single sample is no evidence of work,
    /// because one timer interrupt may wake both the app's thread and the sampling thread.
    fn sample(&mut self, stats: &[String]) -> bool {
        let mut waits = false;
        let mut threads = Vec::new();
        for stat in stats {
            let Some((first, rest)) = stat.rsplit_once(") ") else {
                continue;
            };
            waits |= rest.starts_with('D');
            if rest.starts_with('R') {
                threads.extend(first.split(' ').next().map(str::to_owned));
            }
        }
        let still = threads.iter().any(|thread| self.threads.contains(thread));
        self.threads = threads;
        waits || still
    }
}

#[cfg(test)]
mod tests {
    use super::Runnable;

    #[test]
    fn thread_that_waits_for_the_disk_or_stays_runnable_is_at_work() {
        let mut runnable = Runnable::default();
        let mut look = |stats: &[&str]| {
            let stats: Vec<String> = stats.iter().map(|&stat| stat.to_owned()).collect();
            runnable.sample(&stats)
        };
        assert!(look(&["7 (a) S (b) D 1 7 7 0"]));
        assert!(!look(&["7 (D) S 1 7 7 0", ""]));
        assert!(!look(&["8 (feh) S 1 7 7 0", "7 (feh) R 1 7 7 0"]));
        assert!(!look(&["8 (feh) R 1 7 7 0", "7 (feh) S 1 7 7 0"]));
        assert!(look(&["8 (feh) R 1 7 7 0"]));
        assert!(!look(&[]));
    }
}
