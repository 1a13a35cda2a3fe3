// SPDX-License-Identifier: GPL-2.0-or-later
//! Runs a guest, reads its records as they arrive, and determines how it ended.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use limelight_apps::plan::Record;

use super::command::Machine;
use super::console;
use crate::{paths, shell};

/// Timeout for the machine to power off after the guest's last record.
const POWER_OFF: Duration = Duration::from_secs(60);
/// Polling interval for QEMU and its output files.
const POLL: Duration = Duration::from_millis(100);
/// Number of lines at the end of the console that a failure shows.
const CONSOLE_LINES: usize = 45;

/// A running machine.
pub struct Guest {
    child: Child,
    dir: PathBuf,
    results: Lines,
    limit: Duration,
    deadline: Instant,
    finished: Option<Instant>,
}

/// The result of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// All cells ran and the machine powered off.
    Done,
    /// The machine failed; the text is the reason.
    Failed(String),
}

impl Guest {
    /// Starts `machine` in `dir` and leaves `console.log`, `results.jsonl`, `qemu.log` and
    /// `reproduce` there. The machine is stopped after `limit` of host time.
    pub fn start(machine: &Machine, dir: &Path, limit: Duration) -> Result<Self> {
        for disk in &machine.disks {
            crate::image::disk::check(disk)?;
        }
        let (console, results) = (dir.join("console.log"), dir.join("results.jsonl"));
        let mut command = machine.command(&console, &results);
        write_reproduce(machine, dir)?;
        let complaints = dir.join("qemu.log");
        let file = File::create(&complaints)
            .with_context(|| format!("cannot create {}", complaints.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let shown = shell::show(&command);
        // SAFETY: prctl is async-signal-safe, and this call touches no memory.
        unsafe {
            command.pre_exec(|| {
                // When the lab dies, the kernel kills its guests.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command
            .spawn()
            .map_err(|e| shell::not_started(e, &command, &shown))?;
        Ok(Guest {
            child,
            dir: dir.into(),
            results: Lines::new(results),
            limit,
            deadline: Instant::now() + limit,
            finished: None,
        })
    }

    /// Waits for one polling interval, passes each new record to `receive`, and returns whether the
    /// guest has ended. Kernel defects on the console count as failures unless they contain an
    /// `expected` text.
    pub fn poll(
        &mut self,
        expected: &[&str],
        receive: &mut dyn FnMut(Record) -> Result<()>,
    ) -> Result<Option<Ended>> {
        std::thread::sleep(POLL);
        let exited = self.child.try_wait().context("waiting for QEMU failed")?;
        for line in self.results.read()? {
            let record = serde_json::from_str(&line).with_context(|| {
                format!("the guest sent something that is not a record: {line:?}")
            })?;
            if record == Record::Done {
                self.finished = Some(Instant::now());
            }
            receive(record)?;
        }
        let now = Instant::now();
        let why = match (exited, self.finished) {
            (Some(status), Some(_)) if status.success() => {
                return Ok(Some(match console::trouble(&self.console()?, expected) {
                    Some(line) => Ended::Failed(format!("the kernel reported a defect: {line}")),
                    None => Ended::Done,
                }));
            }
            (Some(status), _) => match console::trouble(&self.console()?, expected) {
                Some(line) => format!("the guest died: {line}"),
                None => format!("the guest ended before its work was finished (QEMU: {status})"),
            },
            (None, Some(finished)) if now > finished + POWER_OFF => {
                "the guest finished its work but did not power off".into()
            }
            (None, None) if now > self.deadline => {
                format!(
                    "the guest has not finished after {} s",
                    self.limit.as_secs()
                )
            }
            (None, _) => return Ok(None),
        };
        self.stop();
        Ok(Some(Ended::Failed(why)))
    }

    /// The console's contents so far.
    pub fn console(&self) -> Result<String> {
        let path = self.dir.join("console.log");
        if path.exists() {
            paths::read_lossy(&path)
        } else {
            Ok(String::new())
        }
    }

    /// What a person needs to find the cause: the end of the console, QEMU's own output, and the
    /// script that boots the machine again.
    pub fn post_mortem(&self) -> String {
        let console = self.console().unwrap_or_default().replace('\r', "");
        let complaints = fs::read_to_string(self.dir.join("qemu.log")).unwrap_or_default();
        let mut text = format!(
            "--- end of the console\n{}\n",
            shell::tail(&console, CONSOLE_LINES)
        );
        if !complaints.trim().is_empty() {
            text.push_str(&format!("--- QEMU printed\n{}\n", complaints.trim()));
        }
        text.push_str(&format!(
            "--- to run it again: {}",
            self.dir.join("reproduce").display()
        ));
        text
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes a script that boots the same machine with its console on the terminal.
fn write_reproduce(machine: &Machine, dir: &Path) -> Result<()> {
    let command = machine.command(Path::new("/dev/stdout"), Path::new("/dev/stderr"));
    let script = dir.join("reproduce");
    paths::write(
        &script,
        format!(
            "#!/bin/sh\n# Boots this machine again: console on standard output, records on standard \
             error.\nexec {}\n",
            shell::show(&command)
        ),
    )?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, executable)
        .with_context(|| format!("cannot make {} executable", script.display()))
}

/// Reads complete lines of a growing file.
struct Lines {
    path: PathBuf,
    position: u64,
    partial: Vec<u8>,
}

impl Lines {
    fn new(path: PathBuf) -> Self {
        Lines {
            path,
            position: 0,
            partial: Vec::new(),
        }
    }

    /// Lines completed since the last call; none while the file does not exist.
    fn read(&mut self) -> Result<Vec<String>> {
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(Vec::new());
        };
        let mut read = || -> std::io::Result<usize> {
            file.seek(SeekFrom::Start(self.position))?;
            file.read_to_end(&mut self.partial)
        };
        let count = read().with_context(|| format!("cannot read {}", self.path.display()))?;
        self.position += count as u64;
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let complete = std::mem::replace(&mut self.partial, rest);
        let text = String::from_utf8_lossy(&complete);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    }
}

/// Runs a guest to its end, without progress output. Returns its records and its console.
pub fn run(machine: &Machine, dir: &Path, limit: Duration) -> Result<(Vec<Record>, String)> {
    let mut guest = Guest::start(machine, dir, limit)?;
    let mut records = Vec::new();
    loop {
        let ended = guest.poll(&[], &mut |record| {
            records.push(record);
            Ok(())
        })?;
        match ended {
            None => {}
            Some(Ended::Done) => return Ok((records, guest.console()?)),
            Some(Ended::Failed(why)) => bail!("{why}\n{}", guest.post_mortem()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn only_complete_lines_are_read_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let mut lines = Lines::new(path.clone());
        assert!(lines.read().unwrap().is_empty());
        let mut file = File::create(&path).unwrap();
        write!(file, "one\r\ntw").unwrap();
        assert_eq!(lines.read().unwrap(), ["one"]);
        assert!(lines.read().unwrap().is_empty());
        write!(file, "o\n\nthree\n").unwrap();
        assert_eq!(lines.read().unwrap(), ["two", "three"]);
    }
}
