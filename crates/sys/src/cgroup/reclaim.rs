// SPDX-License-Identifier: GPL-2.0-or-later
//! Reclaims memory from a group.

use rustix::io::Errno;

use super::Cgroup;
use crate::error::{Error, Result};

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

impl Cgroup {
    /// Reclaims `bytes` bytes from the group and its descendants only (`memory.reclaim`).
    /// `swappiness`, 0 to 200, sets the preference for anonymous memory over files in this request:
    /// 200 takes as much anonymous memory as possible. Does not wait for writes: on return, pages
    /// that must be written out may still be under writeback.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] before Linux 5.19, for the root, and without the memory controller;
    /// [`Error::Invalid`] if a swappiness is given and the kernel does not know it (Linux 6.7 and
    /// older).
    pub fn reclaim(&self, bytes: u64, swappiness: Option<u8>) -> Result<Reclaimed> {
        let request = match swappiness {
            Some(swappiness) => format!("{bytes} swappiness={swappiness}"),
            None => bytes.to_string(),
        };
        outcome(self.write(FILE, &request))
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
        std::fs::write(&file, "").unwrap();
        assert_eq!(group.reclaim(4096, None).unwrap(), Reclaimed::All);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "4096");
        assert_eq!(group.reclaim(1 << 20, Some(200)).unwrap(), Reclaimed::All);
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "1048576 swappiness=200"
        );
    }

    #[test]
    fn partial_reclaim_is_not_an_error_and_other_failures_are() {
        let with = |errno| outcome(Err(Error::new("write", FILE, errno)));
        assert_eq!(with(Errno::AGAIN), Ok(Reclaimed::Less));
        assert_eq!(with(Errno::INTR), Ok(Reclaimed::Less));
        assert!(matches!(with(Errno::INVAL), Err(Error::Invalid { .. })));
        assert!(with(Errno::NODEV).unwrap_err().is_gone());
    }
}
