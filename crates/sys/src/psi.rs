// SPDX-License-Identifier: GPL-2.0-or-later
//! Pressure stall information (PSI): values and triggers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};

/// Share of time in which tasks were stalled.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stall {
    /// Percent over the last 10 s.
    pub avg10: f32,
    /// Percent over the last 60 s.
    pub avg60: f32,
    /// Percent over the last 300 s.
    pub avg300: f32,
    /// Total stalled time since boot, in microseconds.
    pub total_us: u64,
}

/// Contents of a pressure file, such as `/proc/pressure/memory` or `memory.pressure`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Time in which at least one task was stalled.
    pub some: Stall,
    /// Time in which all non-idle tasks were stalled; `None` in the CPU file of older kernels.
    pub full: Option<Stall>,
}

impl Pressure {
    /// Parses a pressure file; `None` if it has no `some` line.
    pub fn parse(text: &str) -> Option<Self> {
        let line = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            let mut stall = Stall::default();
            for pair in line.split_ascii_whitespace() {
                let (name, value) = pair.split_once('=')?;
                match name {
                    "avg10" => stall.avg10 = value.parse().ok()?,
                    "avg60" => stall.avg60 = value.parse().ok()?,
                    "avg300" => stall.avg300 = value.parse().ok()?,
                    "total" => stall.total_us = value.parse().ok()?,
                    _ => {}
                }
            }
            Some(stall)
        };
        Some(Pressure {
            some: line("some")?,
            full: line("full"),
        })
    }

    /// Reads a pressure file below a directory: `pressure/memory` below `/proc`, or
    /// `memory.pressure` below a cgroup. [`Error::Unsupported`] if PSI is off (`psi=0`).
    pub fn read(dir: &Dir, file: &str) -> Result<Self> {
        let text = dir
            .read_text(file)
            .map_err(|error| absent(dir, file, error))?;
        Pressure::parse(&text)
            .ok_or_else(|| Error::malformed(dir.path().join(file), "without a \"some\" line"))
    }
}

/// Turns the error of a missing pressure file into [`Error::Unsupported`]: the kernel lacks PSI, or
/// PSI is switched off.
fn absent(dir: &Dir, file: &str, error: Error) -> Error {
    match error.errno() {
        Some(errno @ (Errno::NOENT | Errno::OPNOTSUPP)) => Error::Unsupported {
            action: "read",
            path: dir.path().join(file),
            errno,
        },
        _ => error,
    }
}

/// Kind of stall that fires a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallKind {
    /// At least one task is stalled.
    Some,
    /// All non-idle tasks are stalled.
    Full,
}

/// A PSI trigger. It signals `EPOLLPRI`, at most once per window, if tasks were stalled for long
/// enough in the window. `EPOLLERR` means that the cgroup was removed.
#[derive(Debug)]
pub struct Trigger {
    fd: OwnedFd,
    stall: Duration,
    window: Duration,
}

impl Trigger {
    /// Arms a trigger on a pressure file. The kernel accepts windows of 0.5 to 10 s, and only
    /// multiples of 2 s from callers without CAP_SYS_RESOURCE. If the kernel refuses the window,
    /// this rounds it up to a multiple of 2 s and extends `stall` in proportion.
    /// [`Trigger::window`] returns the window in force.
    pub fn arm(
        dir: &Dir,
        file: &str,
        kind: StallKind,
        stall: Duration,
        window: Duration,
    ) -> Result<Self> {
        match Self::arm_exactly(dir, file, kind, stall, window) {
            Err(Error::Invalid { .. } | Error::Permission { .. })
                if window != unprivileged_window(window) =>
            {
                let wider = unprivileged_window(window);
                let stall = stall.mul_f64(wider.as_secs_f64() / window.as_secs_f64().max(1e-6));
                Self::arm_exactly(dir, file, kind, stall.min(wider), wider)
            }
            result => result,
        }
    }

    fn arm_exactly(
        dir: &Dir,
        file: &str,
        kind: StallKind,
        stall: Duration,
        window: Duration,
    ) -> Result<Self> {
        let fd = dir
            .open_at(
                file,
                OFlags::RDWR | OFlags::NONBLOCK,
                "arm a pressure trigger on",
            )
            .map_err(|error| absent(dir, file, error))?;
        let kind = match kind {
            StallKind::Some => "some",
            StallKind::Full => "full",
        };
        // The kernel requires a terminating NUL, as in a C string.
        let request = format!("{kind} {} {}\0", stall.as_micros(), window.as_micros());
        match rustix::io::write(&fd, request.as_bytes()) {
            Ok(_) => Ok(Trigger { fd, stall, window }),
            Err(errno) => Err(Error::new(
                "arm a pressure trigger on",
                dir.path().join(file),
                errno,
            )),
        }
    }

    /// Time that tasks must be stalled within a window to fire the trigger.
    pub fn stall(&self) -> Duration {
        self.stall
    }

    /// Length of the window in force.
    pub fn window(&self) -> Duration {
        self.window
    }
}

impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Rounds a window up to one that an unprivileged caller may use: a multiple of 2 s, 2 to 10 s.
fn unprivileged_window(window: Duration) -> Duration {
    let steps = window.as_micros().div_ceil(2_000_000).clamp(1, 5);
    Duration::from_secs(2 * steps as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn some_and_full_lines_are_parsed() {
        let pressure = Pressure::parse(
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=12345\n\
             full avg10=0.75 avg60=0.10 avg300=0.00 total=999\n",
        )
        .unwrap();
        assert_eq!(pressure.some.avg10, 1.5);
        assert_eq!(pressure.some.total_us, 12345);
        assert_eq!(pressure.full.unwrap().total_us, 999);
        assert_eq!(Pressure::parse("full avg10=0.75 total=999\n"), None);
        assert_eq!(Pressure::parse("some avg10=x total=1\n"), None);
    }

    #[test]
    fn missing_psi_is_unsupported() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        assert!(Pressure::read(&dir, "pressure/memory")
            .unwrap_err()
            .is_unsupported());
        let second = Duration::from_secs(1);
        let trigger = Trigger::arm(&dir, "memory.pressure", StallKind::Some, second, second);
        assert!(trigger.unwrap_err().is_unsupported());
    }

    #[test]
    fn unprivileged_windows_are_multiples_of_two_seconds() {
        let of = |ms| unprivileged_window(Duration::from_millis(ms)).as_secs();
        assert_eq!(
            [of(0), of(500), of(2000), of(2001), of(9000), of(60_000)],
            [2, 2, 2, 4, 10, 10]
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            Pressure::parse(&text);
        }
    }
}
