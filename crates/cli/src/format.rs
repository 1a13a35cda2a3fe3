// SPDX-License-Identifier: GPL-2.0-or-later
//! Formats values for display.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use limelight_core::text::escaped;
use limelight_proto::{AppStatus, Pause};
use limelight_sys::clock;
use serde::Serialize;

use crate::exit::Failure;

/// Answer of a command that changes something.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Done {
    /// What the command did, for display.
    pub message: String,
}

/// Writes a value as indented JSON.
pub fn json(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Bytes with a binary unit and three digits: `104 MiB`, `1.46 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // Values from 999.5 on would be printed with four digits.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A span of time with its two largest units: `850 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{} ms", time.as_millis()),
        (0, 0, 0, _) => format!("{seconds} s"),
        (0, 0, _, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A time in microseconds with three digits: `850 us`, `12.4 ms`, `1.73 s`.
pub fn micros(us: u64) -> String {
    let (value, unit) = match us {
        0..=999 => return format!("{us} us"),
        1000..=999_499 => (us as f64 / 1e3, "ms"),
        _ => (us as f64 / 1e6, "s"),
    };
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// Time since `at_ms`, in milliseconds since boot: `12 s ago`.
pub fn ago(at_ms: u64) -> String {
    let past = clock::boottime().saturating_sub(Duration::from_millis(at_ms));
    format!("{} ago", span(past))
}

/// A knob's value. In `memory.*` files, numbers from 1024 on are shown with a unit.
pub fn value(knob: &str, value: &str) -> String {
    let in_bytes = knob
        .rsplit('/')
        .next()
        .is_some_and(|file| file.starts_with("memory."));
    match value.trim().parse() {
        Ok(number) if in_bytes && number >= 1024 => bytes(number),
        _ => printable(value.trim()),
    }
}

/// An app as `gimp (pid 4242)`.
pub fn app(app: &AppStatus) -> String {
    let name = printable(&app.name);
    match app.pid {
        Some(pid) => format!("{name} (pid {pid})"),
        None => name,
    }
}

/// A pause: `paused, 4 min 50 s left`.
pub fn pause(pause: &Pause) -> String {
    match pause.left_ms {
        Some(ms) => format!("paused, {} left", span(Duration::from_millis(ms))),
        None => "paused, until limelight resume".to_owned(),
    }
}

/// Escapes text from a process or a cgroup: one line, without characters that control the terminal.
pub fn printable(text: &str) -> String {
    escaped(text).into_owned()
}

/// A number with its noun: `1 process`, `3 processes`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {many}"),
    }
}

/// A table of two columns, names and texts. Texts and their continuation lines are aligned.
#[derive(Debug, Default)]
pub struct Table(Vec<(String, String)>);

impl Table {
    /// Adds a line; an empty name continues the line above.
    pub fn line(&mut self, name: &str, text: impl Into<String>) {
        self.0.push((name.to_owned(), text.into()));
    }

    /// Writes all lines.
    pub fn print(&self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.print_within(None, out)
    }

    /// Writes all lines, wrapped at `columns`.
    pub fn print_within(&self, columns: Option<usize>, out: &mut Vec<u8>) -> Result<(), Failure> {
        let width = self
            .0
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0);
        for (name, text) in &self.0 {
            let mut name = name.as_str();
            let room = columns.map(|columns| columns.saturating_sub(width + 2));
            for line in text.lines().flat_map(|line| wrap(line, room)) {
                let padded = format!("{name:width$}  {line}");
                writeln!(out, "{}", padded.trim_end())?;
                name = "";
            }
        }
        Ok(())
    }
}

/// Writes rows in columns. `right`: the columns that are aligned to the right.
pub fn columns<const N: usize>(
    rows: &[[String; N]],
    right: &[usize],
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match right.contains(&at) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Splits a line into pieces of at most `room` characters, between words where possible. Splits
/// nothing if `room` is below 20.
pub fn wrap(line: &str, room: Option<usize>) -> Vec<String> {
    let fits = |room: &usize| line.chars().count() <= *room;
    let Some(room) = room.filter(|room| *room >= 20 && !fits(room)) else {
        return vec![line.to_owned()];
    };
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in line.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() > room {
            lines.push(String::new());
            used = 0;
        }
        while let Some(last) = lines.last_mut() {
            if used > 0 {
                last.push(' ');
                used += 1;
            }
            let rest = word.split_off(word.len().min(room - used));
            used += word.len();
            last.extend(word);
            word = rest;
            if word.is_empty() {
                break;
            }
            lines.push(String::new());
            used = 0;
        }
    }
    lines
}

/// The output device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paper {
    /// Columns of the terminal; `None`: no terminal, so lines are not wrapped.
    pub width: Option<usize>,
    /// Whether colours are allowed.
    pub colour: bool,
}

impl Paper {
    /// Standard output. `plain`: without colours (`--no-color`); `NO_COLOR` has the same effect.
    pub fn stdout(plain: bool) -> Paper {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let size = rustix::termios::tcgetwinsize(&stdout).ok();
        let width = size
            .filter(|_| terminal)
            .map(|size| usize::from(size.ws_col));
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
        Paper {
            width: width.filter(|width| *width > 0),
            colour: terminal && !plain && !no_color && !dumb,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (104 << 20, "104 MiB"),
            (1000 << 20, "0.98 GiB"),
            (15_728_640, "15.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn spans_have_two_units() {
        for (ms, text) in [
            (0, "0 ms"),
            (850, "850 ms"),
            (12_900, "12 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn microseconds_have_three_digits() {
        for (us, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (1000, "1.00 ms"),
            (9_996, "10.0 ms"),
            (730_400, "730 ms"),
            (999_499, "999 ms"),
            (999_500, "1.00 s"),
            (60_000_000, "60.0 s"),
        ] {
            assert_eq!(micros(us), text);
        }
    }

    #[test]
    fn values_of_memory_knobs_have_a_unit() {
        assert_eq!(value("/a/memory.min", "104857600\n"), "100 MiB");
        assert_eq!(value("/a/memory.min", "max"), "max");
        assert_eq!(value("/proc/7/oom_score_adj", "-500"), "-500");
        assert_eq!(value("/proc/7/x", "104857600"), "104857600");
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}\nc"), "a\\u{1b}[2Jb\\u{9b}\\nc");
    }

    #[test]
    fn lines_are_split_between_words() {
        let broken = |line: &str, room| wrap(line, Some(room)).join("|");
        assert_eq!(wrap("a b", None), ["a b"]);
        assert_eq!(wrap("a b", Some(3)), ["a b"]);
        let text = "the quick brown fox jumps over";
        assert_eq!(broken(text, 20), "the quick brown fox|jumps over");
        let path = "see /sys/fs/cgroup/user.slice/app.scope";
        assert_eq!(broken(path, 20), "see|/sys/fs/cgroup/user.|slice/app.scope");
        assert_eq!(broken("", 20), "");
        for room in 20..40 {
            let lines = wrap(path, Some(room));
            assert!(lines.iter().all(|line| line.chars().count() <= room));
            assert_eq!(lines.concat().replace(' ', ""), path.replace(' ', ""));
        }
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::default();
        table.line("topmost", "gimp\n/a");
        table.line("lru", "mglru");
        let mut out = Vec::new();
        table.print(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "topmost  gimp\n         /a\nlru      mglru\n"
        );
    }
}
