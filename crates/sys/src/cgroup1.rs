// SPDX-License-Identifier: GPL-2.0-or-later
//! A group of a cgroup v1 hierarchy: its members, and possible arrivals.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::inotify::WatchFlags;

use crate::dir::Dir;
use crate::error::Result;
use crate::inotify::Inotify;

/// Files that list a group's processes and threads, and that move them when written.
const PROCESSES: &str = "cgroup.procs";
const THREADS: &str = "tasks";

/// An open group. Readable (`EPOLLIN`) when a process may have been moved into it: cgroup v1 sends
/// no notification, but inotify reports writes to its files. Departures cause no event, neither by
/// a write to another group's files nor by an exit.
#[derive(Debug)]
pub struct Group {
    dir: Dir,
    writes: Inotify,
}

impl Group {
    /// Opens the group with this directory; [`crate::Error::Gone`] if there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Group> {
        let dir = Dir::open(path)?;
        let writes = Inotify::new()?;
        writes.watch(dir.path(), WatchFlags::MODIFY | WatchFlags::ONLYDIR)?;
        Ok(Group { dir, writes })
    }

    /// Processes with their first thread in the group, ascending. Processes with only other threads
    /// in it are left out.
    pub fn leaders(&self) -> Result<Vec<i32>> {
        let threads = self.dir.read_text(THREADS)?;
        let processes = self.dir.read_text(PROCESSES)?;
        Ok(leaders(&processes, &threads))
    }

    /// Drains the events, so that it is no longer readable.
    pub fn take(&self) -> Result<()> {
        self.writes.events().map(drop)
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writes.as_fd()
    }
}

/// The processes with their first thread in `threads`. That thread has the pid as its id.
fn leaders(processes: &str, threads: &str) -> Vec<i32> {
    let numbers = |text: &str| -> BTreeSet<i32> {
        // 0 stands for a process of another namespace.
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
    fn thread_alone_does_not_count_as_its_process() {
        // 200 has one thread, 203, in the group, and its first one elsewhere.
        assert_eq!(
            leaders("100\n200\n300\n", "100\n101\n203\n300\n"),
            [100, 300]
        );
        // cgroup v1 lists are unsorted and contain duplicates.
        assert_eq!(leaders("7\n5\n7\n0\n", "5\n7\n0\n5\n"), [5, 7]);
        assert_eq!(leaders("", "5\n"), [0i32; 0]);
    }

    #[test]
    fn write_is_reported_and_read_is_not() {
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
        fn leaders_are_in_both_lists(
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
