// SPDX-License-Identifier: GPL-2.0-or-later
//! A group of a cgroup v1 hierarchy: its members, and a notification when a process may have
//! joined.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::inotify::WatchFlags;

use crate::dir::Dir;
use crate::error::Result;
use crate::inotify::Inotify;

/// Files that list a group's processes and threads. Writing an id moves the process or thread into
/// the group.
const PROCESSES: &str = "cgroup.procs";
const THREADS: &str = "tasks";

/// An open group. Readable (`EPOLLIN`) when a process may have been moved into it: cgroup v1 sends
/// no notification, but inotify reports writes to the group's files. There is no event when a
/// process leaves the group or exits.
#[derive(Debug)]
pub struct Group {
    dir: Dir,
    writes: Inotify,
}

impl Group {
    /// Opens the group at this directory; [`crate::Error::Gone`] if the directory does not exist.
    pub fn open(path: impl Into<PathBuf>) -> Result<Group> {
        let dir = Dir::open(path)?;
        let writes = Inotify::new()?;
        writes.watch(dir.path(), WatchFlags::MODIFY | WatchFlags::ONLYDIR)?;
        Ok(Group { dir, writes })
    }

    /// Pids of the processes whose first thread is in the group, ascending. A process that only has
    /// other threads in the group is left out.
    pub fn leaders(&self) -> Result<Vec<i32>> {
        let threads = self.dir.read_text(THREADS)?;
        let processes = self.dir.read_text(PROCESSES)?;
        Ok(leaders(&processes, &threads))
    }

    /// Drains the events, so that the group is no longer readable.
    pub fn take(&self) -> Result<()> {
        self.writes.events().map(drop)
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writes.as_fd()
    }
}

/// The processes whose first thread is in `threads`. The id of that thread equals the pid.
fn leaders(processes: &str, threads: &str) -> Vec<i32> {
    let numbers = |text: &str| -> BTreeSet<i32> {
        // The kernel prints 0 for a process of another pid namespace.
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
    fn process_without_its_first_thread_in_the_group_is_left_out() {
        // Of process 200, only thread 203 is in the group; its first thread is in another one.
        assert_eq!(
            leaders("100\n200\n300\n", "100\n101\n203\n300\n"),
            [100, 300]
        );
        // cgroup v1 lists are unsorted and contain duplicates.
        assert_eq!(leaders("7\n5\n7\n0\n", "5\n7\n0\n5\n"), [5, 7]);
        assert_eq!(leaders("", "5\n"), [0i32; 0]);
    }

    #[test]
    fn only_writes_make_the_group_readable() {
        let temp = tempfile::tempdir().unwrap();
        for file in [PROCESSES, THREADS] {
            fs::write(temp.path().join(file), "").unwrap();
        }
        let group = Group::open(temp.path()).unwrap();
        let has_events = || !group.writes.events().unwrap().is_empty();
        assert_eq!(group.leaders().unwrap(), [0i32; 0]);
        assert!(!has_events());
        for file in [PROCESSES, THREADS] {
            fs::write(temp.path().join(file), "12\n").unwrap();
        }
        assert!(has_events());
        assert_eq!(group.leaders().unwrap(), [12]);
        group.take().unwrap();
        assert!(!has_events());
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
