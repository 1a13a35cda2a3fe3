// SPDX-License-Identifier: GPL-2.0-or-later
//! A group of a cgroup v1 hierarchy: who is in it, and when that may have changed.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::inotify::WatchFlags;

use crate::dir::Dir;
use crate::error::Result;
use crate::inotify::Inotify;

/// The files in which a group lists its processes and its threads, and by which they are moved.
const PROCESSES: &str = "cgroup.procs";
const THREADS: &str = "tasks";

/// An open group. Readable (`EPOLLIN`) when somebody may have been moved into it: cgroup v1 tells nobody,
/// but a write to its files is one as to any file. Who leaves by a write to another group's files, or by
/// ending, is not told of.
#[derive(Debug)]
pub struct Group {
    dir: Dir,
    writes: Inotify,
}

impl Group {
    /// Opens the group whose directory this is. [`crate::Error::Gone`] where there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Group> {
        let dir = Dir::open(path)?;
        let writes = Inotify::new()?;
        writes.watch(dir.path(), WatchFlags::MODIFY | WatchFlags::ONLYDIR)?;
        Ok(Group { dir, writes })
    }

    /// Processes whose first thread is in the group, ascending. Those that have another thread alone in
    /// it are left out.
    pub fn leaders(&self) -> Result<Vec<i32>> {
        let threads = self.dir.read_text(THREADS)?;
        let processes = self.dir.read_text(PROCESSES)?;
        Ok(leaders(&processes, &threads))
    }

    /// Takes what has been told, so that it is not readable any more.
    pub fn take(&self) -> Result<()> {
        self.writes.events().map(drop)
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writes.as_fd()
    }
}

/// Of these processes those whose first thread, which has the process's number, is among the threads.
fn leaders(processes: &str, threads: &str) -> Vec<i32> {
    let numbers = |text: &str| -> BTreeSet<i32> {
        // 0: a process of another namespace.
        let all = text.split_ascii_whitespace();
        all.filter_map(|word| word.parse().ok().filter(|&number| number > 0))
            .collect()
    };
    let threads = numbers(threads);
    numbers(processes).intersection(&threads).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn a_thread_alone_does_not_bring_its_process() {
        // 200 has a thread, 203, in the group, and its first one elsewhere.
        assert_eq!(
            leaders("100\n200\n300\n", "100\n101\n203\n300\n"),
            [100, 300]
        );
        // cgroup v1 sorts nothing and repeats itself.
        assert_eq!(leaders("7\n5\n7\n0\n", "5\n7\n0\n5\n"), [5, 7]);
        assert_eq!(leaders("", "5\n"), [0i32; 0]);
    }

    #[test]
    fn a_write_is_told_and_a_look_is_not() {
        let temp = tempfile::tempdir().unwrap();
        for file in [PROCESSES, THREADS] {
            fs::write(temp.path().join(file), "").unwrap();
        }
        let group = Group::open(temp.path()).unwrap();
        let told = || !group.writes.events().unwrap().is_empty();
        assert_eq!(group.leaders().unwrap(), [0i32; 0]);
        assert!(!told());
        for file in [PROCESSES, THREADS] {
            fs::write(temp.path().join(file), "12\n").unwrap();
        }
        assert!(told());
        assert_eq!(group.leaders().unwrap(), [12]);
        group.take().unwrap();
        assert!(!told());
        assert!(Group::open(temp.path().join("none")).unwrap_err().is_gone());
    }

    proptest! {
        #[test]
        fn whoever_is_found_is_in_both_lists(
            processes in prop::collection::vec(0..50i32, 0..30),
            threads in prop::collection::vec(0..50i32, 0..30),
            junk in any::<String>(),
        ) {
            let text = |all: &[i32]| all.iter().map(|n| format!("{n}\n")).collect::<String>();
            let found = leaders(&text(&processes), &text(&threads));
            for pid in &found {
                prop_assert!(*pid > 0 && processes.contains(pid) && threads.contains(pid));
            }
            prop_assert!(found.is_sorted());
            leaders(&junk, &junk);
        }
    }
}
