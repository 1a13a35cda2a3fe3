// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps the `/proc/PID` directories of processes that are looked up again and again open.
//!
//! A lookup must tell a process from a later one with the same pid, so it reads the start time from
//! `/proc/PID/stat`, which costs more than any other file that the daemon reads. An open
//! `/proc/PID` belongs to one process: once that process has been reaped, nothing can be found in
//! the directory any more (`proc_pid_lookup()` and `pid_revalidate()` in fs/proc/base.c), and until
//! then no other process gets the pid.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use limelight_core::model::ProcessId;
use limelight_sys::proc::Proc;
use limelight_sys::process::Process;

/// Maximum number of directories that are kept open.
const MOST: usize = 512;
/// Time after the last lookup of a process at which its directory may be closed.
const UNUSED: Duration = Duration::from_secs(60);
/// Shortest time between two searches for such directories.
const TIDY: Duration = Duration::from_secs(10);

/// A process that was looked up.
#[derive(Debug)]
struct Known {
    id: ProcessId,
    process: Rc<Process>,
    /// When it was last looked up, since boot.
    used: Duration,
}

/// The open directories, by pid.
#[derive(Debug, Default)]
pub struct Processes {
    known: RefCell<BTreeMap<i32, Known>>,
    /// When unused directories were last closed, since boot.
    tidied: Cell<Duration>,
}

impl Processes {
    /// Opens a process and identifies it.
    pub fn find(&self, proc: &Proc, pid: i32) -> limelight_sys::Result<(ProcessId, Rc<Process>)> {
        let mut all = self.known.borrow_mut();
        if let Some(known) = all.get_mut(&pid) {
            if known.process.exists() {
                known.used = super::now();
                return Ok((known.id, Rc::clone(&known.process)));
            }
            all.remove(&pid);
        }
        let found = super::identify(proc, pid).or_else(|error| {
            if !error.is_exhausted() || all.is_empty() {
                return Err(error);
            }
            // The descriptors are needed more elsewhere.
            all.clear();
            super::identify(proc, pid)
        });
        let (id, process) = found?;
        let process = Rc::new(process);
        if all.len() < MOST {
            let known = Known {
                id,
                process: Rc::clone(&process),
                used: super::now(),
            };
            all.insert(pid, known);
        }
        Ok((id, process))
    }

    /// Closes the directories of processes that were not looked up for a minute, and of those that
    /// have ended. Does so at most every 10 s.
    pub fn tidy(&self, at: Duration) {
        if at.saturating_sub(self.tidied.get()) < TIDY {
            return;
        }
        self.tidied.set(at);
        let mut all = self.known.borrow_mut();
        all.retain(|_, known| at.saturating_sub(known.used) < UNUSED && known.process.exists());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn kept(all: &Processes) -> Vec<i32> {
        all.known.borrow().keys().copied().collect()
    }

    #[test]
    fn process_is_found_until_it_is_reaped() {
        let proc = Proc::open("/proc").unwrap();
        let all = Processes::default();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        let first = all.find(&proc, pid).unwrap();
        let again = all.find(&proc, pid).unwrap();
        assert_eq!(first.0, again.0);
        assert!(Rc::ptr_eq(&first.1, &again.1));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(all.find(&proc, pid).unwrap_err().is_gone());
        assert!(kept(&all).is_empty());
    }

    #[test]
    fn later_process_with_the_same_pid_is_another_one() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("7");
        let stat = |ticks: u32| {
            let zeros = ["0"; 17].join(" ");
            format!("7 (a) S 1 {zeros} {ticks} {zeros} {zeros}\n")
        };
        let begin = |ticks| {
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("stat"), stat(ticks)).unwrap();
        };
        let proc = Proc::open(&temp.path().to_string_lossy()).unwrap();
        let all = Processes::default();
        begin(100);
        let first = all.find(&proc, 7).unwrap().0;
        std::fs::remove_dir_all(&dir).unwrap();
        begin(200);
        let second = all.find(&proc, 7).unwrap().0;
        assert_eq!(first.pid, second.pid);
        assert_ne!(first.starttime, second.starttime);
    }

    #[test]
    fn directories_of_unused_and_ended_processes_are_closed() {
        let proc = Proc::open("/proc").unwrap();
        let all = Processes::default();
        let own = std::process::id() as i32;
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id() as i32;
        all.find(&proc, own).unwrap();
        all.find(&proc, pid).unwrap();
        let at = crate::system::now() + TIDY;
        all.tidy(at);
        assert_eq!(kept(&all).len(), 2);
        child.kill().unwrap();
        child.wait().unwrap();
        all.tidy(at + TIDY - Duration::from_millis(1));
        assert_eq!(kept(&all).len(), 2, "too early");
        all.tidy(at + TIDY);
        assert_eq!(kept(&all), [own]);
        all.tidy(at + UNUSED);
        assert!(kept(&all).is_empty());
    }
}
