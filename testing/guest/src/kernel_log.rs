// SPDX-License-Identifier: GPL-2.0-or-later
//! Problems that the kernel reported during a cell.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};

/// Texts that identify kernel reports of problems.
const PROBLEMS: [&str; 12] = [
    "WARNING:",
    "BUG:",
    "kernel BUG at",
    "KASAN",
    "KCSAN",
    "UBSAN",
    "INFO: task",
    "rcu: INFO",
    "inconsistent lock state",
    "circular locking dependency",
    "Oops",
    "general protection fault",
];

/// Functions whose warnings are no defect. `trace_rb_cpu_prepare()` warns if a task is killed while
/// it creates an instance of the tracer, as limelightd is in tests (`fatal_signal_pending()` in
/// kernel/trace/ring_buffer.c).
pub const HARMLESS: [&str; 1] = ["trace_rb_cpu_prepare+"];

/// A reader of `/dev/kmsg`.
pub struct KernelLog(File);

impl KernelLog {
    /// Opens the log at its end.
    pub fn open() -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg")
            .context("cannot open /dev/kmsg")?;
        let mut log = KernelLog(file);
        log.forget();
        Ok(log)
    }

    /// Skips all messages so far.
    pub fn forget(&mut self) {
        // On failure, old messages remain, which can only cause false alarms.
        let _ = self.0.seek(SeekFrom::End(0));
    }

    /// Returns the messages since the last call that report a problem.
    pub fn problems(&mut self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let mut buffer = vec![0u8; 8192];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return Ok(found),
                Ok(count) => {
                    let text = String::from_utf8_lossy(&buffer[..count]);
                    found.extend(problem(&text).map(str::to_owned));
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(found),
                    // EPIPE: the oldest messages were overwritten. Continues with the remaining
                    // ones.
                    Some(libc::EPIPE) | Some(libc::EINTR) => {}
                    _ => return Err::<_, io::Error>(error).context("cannot read /dev/kmsg"),
                },
            }
        }
    }
}

/// The text of a `/dev/kmsg` entry if it reports a problem.
fn problem(entry: &str) -> Option<&str> {
    let text = entry.split_once(';')?.1.lines().next()?;
    let holds = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    (holds(&PROBLEMS) && !holds(&HARMLESS)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn problems_are_distinguished_from_other_messages() {
        assert_eq!(
            problem("4,120,99,-;WARNING: CPU: 0 PID: 1 at mm/x.c:1\n SUBSYSTEM=a\n"),
            Some("WARNING: CPU: 0 PID: 1 at mm/x.c:1")
        );
        assert_eq!(
            problem("4,1,9,-;WARNING: CPU: 1 PID: 79 at x.c:2 trace_rb_cpu_prepare+0xd6/0xe0\n"),
            None
        );
        assert_eq!(
            problem("6,1,2,-;Out of memory: Killed process 9 (grow)\n"),
            None
        );
    }
}
