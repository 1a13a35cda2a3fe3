// SPDX-License-Identifier: GPL-2.0-or-later
//! Records for the lab, which the guest writes as JSON lines to its second serial port.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};

use crate::plan::Record;

/// The serial port that carries records. On a PC, the first port is the console. On ARM the console
/// has another driver, so the records' port is the first one of its driver.
pub const PORT: &str = match cfg!(target_arch = "x86_64") {
    true => "/dev/ttyS1",
    false => "/dev/ttyS0",
};

/// Writes one record in a single write, so that lines of two processes cannot interleave.
pub fn write(record: &Record) -> Result<()> {
    let mut line = serde_json::to_string(record)?;
    line.push('\n');
    OpenOptions::new()
        .write(true)
        .open(PORT)
        .and_then(|mut port| port.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write a record to {PORT}"))
}

/// Puts the port into raw mode: no echo, no carriage returns.
pub fn make_port_raw() -> Result<()> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .open(PORT)
        .with_context(|| format!("cannot open {PORT}: the machine needs a second serial port"))?;
    // SAFETY: an all-zero termios is valid, and the calls only read and write it.
    let done = unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        libc::tcgetattr(port.as_raw_fd(), &mut settings);
        libc::cfmakeraw(&mut settings);
        settings.c_cflag |= libc::CLOCAL;
        libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &settings)
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot set up {PORT}"));
    }
    Ok(())
}

/// Collects and writes a cell's records.
pub struct Reporter {
    cell: String,
    /// Counters and times by name.
    pub values: BTreeMap<String, f64>,
    /// Samples by name.
    pub series: BTreeMap<String, Vec<f64>>,
}

impl Reporter {
    /// Creates the reporter of a cell.
    pub fn new(cell: &str) -> Self {
        Reporter {
            cell: cell.to_owned(),
            values: BTreeMap::new(),
            series: BTreeMap::new(),
        }
    }

    /// Sets a value.
    pub fn value(&mut self, name: impl Into<String>, value: impl IntoValue) {
        self.values.insert(name.into(), value.into_value());
    }

    /// Appends a sample.
    pub fn sample(&mut self, name: impl Into<String>, value: impl IntoValue) {
        self.series
            .entry(name.into())
            .or_default()
            .push(value.into_value());
    }

    /// Writes a progress message.
    pub fn progress(&self, text: impl Into<String>) -> Result<()> {
        write(&Record::Progress {
            cell: self.cell.clone(),
            text: text.into(),
        })
    }

    /// Writes the result of a check.
    pub fn check(
        &self,
        what: impl Into<String>,
        passed: bool,
        seen: impl Into<String>,
    ) -> Result<()> {
        write(&Record::Check {
            cell: self.cell.clone(),
            what: what.into(),
            passed,
            seen: seen.into(),
        })
    }

    /// Writes the cell's result.
    pub fn finish(self) -> Result<()> {
        write(&Record::Result {
            cell: self.cell,
            values: self.values,
            series: self.series,
        })
    }
}

/// Numbers that a record can carry; counts beyond 2^53 would lose precision and do not occur.
pub trait IntoValue {
    /// Converts the number to a JSON number.
    fn into_value(self) -> f64;
}

impl IntoValue for f64 {
    fn into_value(self) -> f64 {
        self
    }
}

impl IntoValue for u64 {
    fn into_value(self) -> f64 {
        self as f64
    }
}

impl IntoValue for usize {
    fn into_value(self) -> f64 {
        self as f64
    }
}

impl IntoValue for bool {
    fn into_value(self) -> f64 {
        f64::from(u8::from(self))
    }
}
