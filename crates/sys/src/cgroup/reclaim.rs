// SPDX-License-Identifier: GPL-2.0-or-later
//! Reclaims memory from a group, and reads its swap counters.

use rustix::io::Errno;

use super::Cgroup;
use crate::error::{Error, Result};
use crate::keyed::Keyed;

const FILE: &str = "memory.reclaim";

/// Outcome of a reclaim request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaimed {
    /// At least the requested amount was reclaimed.
    All,
    /// Less than the requested amount was reclaimed: the remaining pages are hot or protected, swap
    /// is full, or a signal ended the request. `memory.current` shows how much was reclaimed.
    Less,
}

/// Swap usage and refaults of a group and its descendants. A field is `None` if the kernel does not
/// count it per group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwapCounters {
    /// Current swap usage, in bytes (`memory.swap.current`).
    pub swapped_bytes: u64,
    /// Pages swapped in since the creation of the group (`pswpin`).
    pub swapped_in: Option<u64>,
    /// Pages swapped out since the creation of the group (`pswpout`).
    pub swapped_out: Option<u64>,
    /// Refaults of anonymous pages: pages that were needed soon after they had been swapped out.
    pub refaulted_anonymous: u64,
    /// Refaults of file pages: pages that were needed soon after they had been dropped.
    pub refaulted_file: u64,
    /// Failed swap allocations: the limit of the group or of an ancestor was reached, or all swap
    /// was full.
    pub failed: u64,
    /// Failed swap allocations because a swap limit was reached, the group's own or an ancestor's.
    pub limited: u64,
}

impl SwapCounters {
    fn new(swapped_bytes: u64, stat: &Keyed, events: &Keyed) -> SwapCounters {
        SwapCounters {
            swapped_bytes,
            swapped_in: stat.get("pswpin"),
            swapped_out: stat.get("pswpout"),
            refaulted_anonymous: stat.get("workingset_refault_anon").unwrap_or(0),
            refaulted_file: stat.get("workingset_refault_file").unwrap_or(0),
            failed: events.get("fail").unwrap_or(0),
            limited: events.get("max").unwrap_or(0),
        }
    }
}

impl Cgroup {
    /// Reclaims `bytes` bytes from the group and its descendants only (`memory.reclaim`).
    /// `swappiness`, 0 to 200, sets the preference for anonymous memory over files in this request:
    /// 200 takes as much anonymous memory as possible. Returns when all pages that have to be
    /// written are under writeback.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] before Linux 5.19, for the root, and without the memory controller;
    /// [`Error::Invalid`] if a swappiness is given before Linux 6.7: see
    /// [`Cgroup::knows_reclaim_swappiness`].
    pub fn reclaim(&self, bytes: u64, swappiness: Option<u8>) -> Result<Reclaimed> {
        let request = match swappiness {
            Some(swappiness) => format!("{bytes} swappiness={swappiness}"),
            None => bytes.to_string(),
        };
        outcome(self.write(FILE, &request))
    }

    /// Whether the kernel accepts a swappiness in a reclaim request (Linux 6.7). The probe requests
    /// 0 bytes, so it reclaims nothing.
    pub fn knows_reclaim_swappiness(&self) -> bool {
        self.reclaim(0, Some(100)).is_ok()
    }

    /// Reads the swap counters. [`Error::Unsupported`] without the memory controller, and on a
    /// kernel without swap.
    pub fn swap_counters(&self) -> Result<SwapCounters> {
        Ok(SwapCounters::new(
            self.swap_current()?,
            &self.memory_stat()?,
            &Keyed::parse(&self.text("memory.swap.events")?),
        ))
    }
}

fn outcome(written: Result<()>) -> Result<Reclaimed> {
    match written {
        Ok(()) => Ok(Reclaimed::All),
        Err(Error::Io {
            errno: Errno::AGAIN | Errno::INTR,
            ..
        }) => Ok(Reclaimed::Less),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{CgroupPath, Hierarchy};

    fn fake() -> (tempfile::TempDir, Cgroup) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("cgroup.procs"), "").unwrap();
        let group = Hierarchy::at(temp.path())
            .and_then(|hierarchy| hierarchy.open(&CgroupPath::root()))
            .unwrap();
        (temp, group)
    }

    #[test]
    fn request_names_bytes_and_swappiness() {
        let (temp, group) = fake();
        let file = temp.path().join(FILE);
        assert!(group.reclaim(4096, None).unwrap_err().is_unsupported());
        assert!(!group.knows_reclaim_swappiness());
        std::fs::write(&file, "").unwrap();
        assert_eq!(group.reclaim(4096, None).unwrap(), Reclaimed::All);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "4096");
        assert_eq!(group.reclaim(1 << 20, Some(200)).unwrap(), Reclaimed::All);
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "1048576 swappiness=200"
        );
        assert!(group.knows_reclaim_swappiness());
    }

    #[test]
    fn partial_reclaim_is_not_an_error_and_other_failures_are() {
        let with = |errno| outcome(Err(Error::new("write", FILE, errno)));
        assert_eq!(with(Errno::AGAIN), Ok(Reclaimed::Less));
        assert_eq!(with(Errno::INTR), Ok(Reclaimed::Less));
        assert!(matches!(with(Errno::INVAL), Err(Error::Invalid { .. })));
        assert!(with(Errno::NODEV).unwrap_err().is_gone());
    }

    #[test]
    fn counters_that_the_kernel_lacks_are_none() {
        let (temp, group) = fake();
        let write = |file: &str, text| std::fs::write(temp.path().join(file), text).unwrap();
        assert!(group.swap_counters().unwrap_err().is_unsupported());
        write("memory.swap.current", "8192\n");
        write("memory.swap.events", "high 0\nmax 3\nfail 4\n");
        write(
            "memory.stat",
            "workingset_refault_anon 5\nworkingset_refault_file 6\n",
        );
        let old = group.swap_counters().unwrap();
        let expected = SwapCounters {
            swapped_bytes: 8192,
            refaulted_anonymous: 5,
            refaulted_file: 6,
            failed: 4,
            limited: 3,
            ..SwapCounters::default()
        };
        assert_eq!(old, expected);
        write("memory.stat", "pswpin 7\npswpout 8\n");
        let new = group.swap_counters().unwrap();
        assert_eq!((new.swapped_in, new.swapped_out), (Some(7), Some(8)));
    }
}
