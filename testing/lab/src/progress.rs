// SPDX-License-Identifier: GPL-2.0-or-later
//! Progress output: on a terminal, a status line that is redrawn; elsewhere, a new line every 15 s.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Interval between lines where standard error is not a terminal.
const LOG_EVERY: Duration = Duration::from_secs(15);
/// Redraw interval on a terminal.
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// A status line on standard error.
pub struct Progress {
    what: String,
    started: Instant,
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    shown: Option<Instant>,
    on_screen: bool,
}

impl Progress {
    /// Starts the clock for `what`, whose name every progress line begins with.
    pub fn new(what: impl Into<String>) -> Self {
        Progress {
            what: what.into(),
            started: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            state: Mutex::new(State {
                shown: None,
                on_screen: false,
            }),
        }
    }

    /// Shows `status`, unless the last update was too recent.
    pub fn update(&self, status: impl AsRef<str>) {
        let every = if self.terminal {
            REDRAW_EVERY
        } else {
            LOG_EVERY
        };
        let mut state = self
            .state
            .lock()
            .expect("nothing panics while it shows progress");
        if state.shown.is_some_and(|shown| shown.elapsed() < every) {
            return;
        }
        state.shown = Some(Instant::now());
        let line = self.line(status.as_ref());
        if self.terminal {
            state.on_screen = true;
            eprint!("\r\x1b[K{}", fit(&line, columns()));
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }

    /// Shows `status` and the elapsed time while `work` runs.
    pub fn during<T>(&self, status: &str, work: impl FnOnce() -> T) -> T {
        let (finished, waiting) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                self.update(status);
                // The sender is dropped when `work` returns or panics.
                while waiting.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout)
                {
                    self.update(status);
                }
            });
            let _finished = finished;
            work()
        })
    }

    /// Prints a permanent line.
    pub fn note(&self, line: impl AsRef<str>) {
        self.clear();
        eprintln!("{}", line.as_ref());
    }

    /// Prints the result and the elapsed time as the last line.
    pub fn finish(self, status: impl AsRef<str>) {
        self.clear();
        eprintln!("{}", self.line(status.as_ref()));
    }

    /// Clears the status line.
    pub fn clear(&self) {
        let mut state = self
            .state
            .lock()
            .expect("nothing panics while it shows progress");
        if std::mem::take(&mut state.on_screen) {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }

    fn line(&self, status: &str) -> String {
        format!(
            "{}: {status} [{}]",
            self.what,
            clock(self.started.elapsed())
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A duration in short form: `7s`, `2m05s`, `1h02m`.
pub fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

fn fit(line: &str, columns: usize) -> String {
    line.chars().take(columns.saturating_sub(1)).collect()
}

/// Width of the terminal on standard error; 80 if unknown.
fn columns() -> usize {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes one `winsize`, and `size` is a valid `winsize`.
    let result = unsafe { libc::ioctl(2, libc::TIOCGWINSZ, &mut size) };
    if result == 0 && size.ws_col > 0 {
        usize::from(size.ws_col)
    } else {
        80
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_like_a_clock() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (125, "2m05s"),
            (3725, "1h02m"),
        ] {
            assert_eq!(clock(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn watched_work_returns_its_result_or_panics() {
        let progress = Progress::new("test");
        assert_eq!(progress.during("working", || 7), 7);
        let panicked = std::panic::catch_unwind(|| {
            Progress::new("test").during("working", || panic!("on purpose"))
        });
        assert!(panicked.is_err());
    }

    #[test]
    fn long_line_is_cut_before_it_wraps() {
        assert_eq!(fit("abcdef", 4), "abc");
        assert_eq!(fit("äöü", 80), "äöü");
    }
}
