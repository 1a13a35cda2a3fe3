// SPDX-License-Identifier: GPL-2.0-or-later
//! The process tree: parents and children of processes.

use std::collections::{BTreeMap, BTreeSet};

use crate::process::Stat;

/// A set of processes and their relations. The processes are read one after another, not at one
/// moment.
#[derive(Debug, Clone, Default)]
pub struct ProcessTree {
    stats: BTreeMap<i32, Stat>,
    children: BTreeMap<i32, Vec<i32>>,
}

impl ProcessTree {
    /// Builds the tree from processes in any order.
    pub fn new(stats: impl IntoIterator<Item = Stat>) -> Self {
        let stats: BTreeMap<i32, Stat> = stats.into_iter().map(|stat| (stat.pid, stat)).collect();
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for stat in stats.values() {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
        ProcessTree { stats, children }
    }

    /// The `stat` of one process; `None` if the tree does not contain it.
    pub fn get(&self, pid: i32) -> Option<&Stat> {
        self.stats.get(&pid)
    }

    /// All processes, by ascending pid.
    pub fn iter(&self) -> impl Iterator<Item = &Stat> {
        self.stats.values()
    }

    /// Pid of the parent; 0 for init and `kthreadd`, `None` if the tree does not contain the
    /// process.
    pub fn parent(&self, pid: i32) -> Option<i32> {
        self.get(pid).map(|stat| stat.ppid)
    }

    /// Pids of the direct children, ascending.
    pub fn children(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Pids of all descendants, ascending, without `pid` itself.
    pub fn descendants(&self, pid: i32) -> Vec<i32> {
        // The processes were read at different moments, so a reused pid can form a loop.
        let mut found = BTreeSet::new();
        let mut open = vec![pid];
        while let Some(next) = open.pop() {
            let fresh = self.children(next).iter().filter(|&&child| child != pid);
            open.extend(fresh.filter(|&&child| found.insert(child)));
        }
        found.into_iter().collect()
    }
}

/// Whether this is a kernel thread. Programs can choose the name of a kernel thread, so the parent
/// decides: kernel threads are children of `kthreadd`, which has no parent. `second` is the `stat`
/// of the process with pid 2, which `kthreadd` always has.
pub fn is_kernel_thread(stat: &Stat, second: Option<&Stat>) -> bool {
    let begins = |stat: &Stat| stat.ppid == 0 && stat.comm == "kthreadd";
    begins(stat) || second.is_some_and(|second| second.pid == stat.ppid && begins(second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stat(pid: i32, ppid: i32) -> Stat {
        Stat {
            pid,
            ppid,
            ..Stat::default()
        }
    }

    #[test]
    fn descendants_of_a_branch_are_listed() {
        let tree = ProcessTree::new([stat(1, 0), stat(5, 1), stat(9, 5), stat(7, 9), stat(6, 1)]);
        assert_eq!(tree.descendants(5), [7, 9]);
        assert_eq!(tree.children(1), [5, 6]);
        assert_eq!(tree.parent(7), Some(9));
        assert_eq!(tree.parent(70), None);
        assert_eq!(tree.descendants(70), [0; 0]);
    }

    #[test]
    fn loop_through_pid_reuse_terminates() {
        let tree = ProcessTree::new([stat(2, 3), stat(3, 2)]);
        assert_eq!(tree.descendants(2), [3]);
    }

    proptest! {
        #[test]
        fn descendants_terminate_and_exclude_the_root(
            pairs in prop::collection::vec((0..30i32, 0..30i32), 0..60),
            root in 0..30i32,
        ) {
            let tree = ProcessTree::new(pairs.into_iter().map(|(pid, ppid)| stat(pid, ppid)));
            prop_assert!(!tree.descendants(root).contains(&root));
        }
    }
}
