// SPDX-License-Identifier: GPL-2.0-or-later
//! Maps the name that a window gives itself (app id, WM class) to a process of this user: by the
//! app's unit, by the program's name, or by the program that the desktop entry of that name starts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use limelight_compositor::app_id::{entry_exec, names_of};
use limelight_core::model::{unit, ProcessId};
use limelight_sys::proc::Proc;
use limelight_sys::process::Process;

/// Data directories if `$XDG_DATA_DIRS` is not set.
const DATA_DIRS: &str = "/usr/local/share:/usr/share";

/// This user's processes.
#[derive(Debug)]
pub struct Apps {
    proc: Proc,
    uid: u32,
    entries: Vec<PathBuf>,
}

/// How well a process matches, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The desktop entry starts a program of this name.
    Entry,
    /// Its program has the name.
    Program,
    /// Its unit has the name.
    Unit,
}

#[derive(Debug)]
struct Candidate {
    fit: Fit,
    process: ProcessId,
    parent: i32,
}

impl Apps {
    /// Opens /proc and the desktop entries of the system and of the user.
    pub fn open() -> limelight_sys::Result<Apps> {
        let home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let default = || Some(Path::new(&std::env::var_os("HOME")?).join(".local/share"));
        let system = std::env::var("XDG_DATA_DIRS").unwrap_or_default();
        let system = match system.is_empty() {
            true => DATA_DIRS,
            false => &system,
        };
        let all = home.or_else(default).into_iter();
        Ok(Apps {
            proc: Proc::open("/proc")?,
            uid: rustix::process::getuid().as_raw(),
            entries: all
                .chain(system.split(':').map(PathBuf::from))
                .map(|dir| dir.join("applications"))
                .collect(),
        })
    }

    /// The process that matches a name best. If several apps match equally, the first process of
    /// the app that was started last.
    pub fn find(&self, app_id: &str) -> Option<ProcessId> {
        if app_id.is_empty() {
            return None;
        }
        let names = names_of(app_id);
        let started = self.entry_program(app_id);
        let candidates: Vec<Candidate> = self
            .proc
            .pids()
            .ok()?
            .into_iter()
            .filter_map(|pid| self.candidate(pid, &names, started.as_deref()))
            .collect();
        best(&candidates)
    }

    /// Whether that process still runs.
    pub fn lives(&self, known: ProcessId) -> bool {
        let stat = self.proc.process(known.pid).and_then(|p| p.stat());
        stat.is_ok_and(|stat| stat.start_ticks == known.starttime)
    }

    fn candidate(
        &self,
        pid: i32,
        names: &BTreeSet<String>,
        started: Option<&str>,
    ) -> Option<Candidate> {
        let process = self.proc.process(pid).ok()?;
        if process.owner_uid().ok()? != self.uid {
            return None;
        }
        let stat = process.stat().ok()?;
        let programs = programs_of(&process, &stat.comm);
        let fit = if unit_has_name(&process, names) {
            Fit::Unit
        } else if programs.iter().any(|program| names.contains(program)) {
            Fit::Program
        } else if started.is_some_and(|started| programs.contains(started)) {
            Fit::Entry
        } else {
            return None;
        };
        Some(Candidate {
            fit,
            process: ProcessId {
                pid,
                starttime: stat.start_ticks,
            },
            parent: stat.ppid,
        })
    }

    /// The program that the desktop entry of this name starts.
    fn entry_program(&self, app_id: &str) -> Option<String> {
        // The name becomes part of a path, so it must not contain a separator.
        if app_id.contains('/') {
            return None;
        }
        let files = self.entries.iter();
        let mut files = files.map(|dir| dir.join(format!("{app_id}.desktop")));
        let text = files.find_map(|file| std::fs::read_to_string(file).ok())?;
        entry_exec(&text)
    }
}

/// The best match. If several match equally, the one started last of those whose parent does not
/// match too.
fn best(candidates: &[Candidate]) -> Option<ProcessId> {
    let fit = candidates.iter().map(|one| one.fit).max()?;
    let fitting = || candidates.iter().filter(|one| one.fit == fit);
    let pids: BTreeSet<i32> = fitting().map(|one| one.process.pid).collect();
    let roots = fitting().filter(|one| !pids.contains(&one.parent));
    roots
        .map(|one| one.process)
        .max_by_key(|process| (process.starttime, process.pid))
}

/// Names of a process's program: from its file, its command line, and its `comm`.
fn programs_of(process: &Process, comm: &str) -> BTreeSet<String> {
    let file = process.dir().path().join("exe");
    let file = std::fs::read_link(file).ok();
    let called = process.cmdline().unwrap_or_default().into_iter().next();
    let paths = [file, called.map(PathBuf::from), Some(PathBuf::from(comm))];
    paths
        .iter()
        .flatten()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_lowercase()))
        .collect()
}

fn unit_has_name(process: &Process, names: &BTreeSet<String>) -> bool {
    let Ok(Some(path)) = process.cgroup() else {
        return false;
    };
    let units = path.split('/').filter_map(unit::parse);
    let mut ids = units.flat_map(|unit| unit.ids);
    ids.any(|id| names.contains(&id.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(fit: Fit, pid: i32, parent: i32, starttime: u64) -> Candidate {
        Candidate {
            fit,
            process: ProcessId { pid, starttime },
            parent,
        }
    }

    #[test]
    fn best_match_then_newest_root_is_chosen() {
        let all = [
            candidate(Fit::Program, 10, 1, 5),
            candidate(Fit::Program, 11, 10, 9),
            candidate(Fit::Program, 20, 1, 7),
            candidate(Fit::Entry, 30, 1, 99),
        ];
        assert_eq!(best(&all).map(|process| process.pid), Some(20));
        assert_eq!(best(&all[..2]).map(|process| process.pid), Some(10));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn own_process_is_found_by_its_program() {
        let own = std::env::current_exe().unwrap();
        let own = own.file_name().unwrap().to_str().unwrap();
        let apps = Apps::open().unwrap();
        let found = apps.find(&format!("org.limelight.{own}")).unwrap();
        assert_eq!(found.pid as u32, std::process::id());
        assert!(apps.lives(found));
        assert_eq!(apps.find("../../etc/passwd"), None);
        assert_eq!(apps.find(""), None);
    }
}
