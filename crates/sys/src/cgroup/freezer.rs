// SPDX-License-Identifier: GPL-2.0-or-later
//! Freezes and thaws a group's processes.

use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Cgroup;
use crate::error::{Error, Result};
use crate::keyed::Keyed;

const EVENTS: &str = "cgroup.events";

impl Cgroup {
    /// Whether a freeze of this group itself is requested (`cgroup.freeze`). If an ancestor is
    /// frozen, the group is frozen even if this is false: see [`Cgroup::is_frozen`].
    pub fn freezes(&self) -> Result<bool> {
        Ok(self.bytes("cgroup.freeze")? != 0)
    }

    /// Freezes or thaws the group and its descendants. Returns before the processes have stopped:
    /// see [`Cgroup::wait_frozen`]. Fatal signals still end frozen processes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for the root, [`Error::Permission`] if the caller does not own the
    /// group.
    pub fn set_freeze(&self, freeze: bool) -> Result<()> {
        self.write("cgroup.freeze", if freeze { "1" } else { "0" })
    }

    /// Whether every process of the group and its descendants is frozen (`cgroup.events`).
    pub fn is_frozen(&self) -> Result<bool> {
        Ok(Keyed::parse(self.text(EVENTS)?).get("frozen") == Some(1))
    }

    /// Waits until the group is frozen (`true`) or thawed (`false`). Returns whether that happened
    /// within `patience`. A process in uninterruptible sleep freezes only when it wakes up.
    pub fn wait_frozen(&self, frozen: bool, patience: Duration) -> Result<bool> {
        let failed = |errno| Error::new("wait for", self.dir.path().join(EVENTS), errno);
        // The file stays open from the read to the poll. So the poll also reports a change that
        // happens between the two.
        let events = self.dir.open_at(EVENTS, OFlags::RDONLY, "wait for")?;
        let deadline = Instant::now() + patience;
        let mut buffer = [0; 256];
        loop {
            let read = rustix::io::pread(&events, &mut buffer, 0).map_err(failed)?;
            let text = String::from_utf8_lossy(&buffer[..read]);
            if Keyed::parse(text).get("frozen") == Some(u64::from(frozen)) {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::tests::RealGroup;
    use crate::cgroup::{CgroupPath, Hierarchy};

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn requested_and_actual_state_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let write = |file: &str, text| std::fs::write(temp.path().join(file), text).unwrap();
        write("cgroup.procs", "");
        write(EVENTS, "populated 1\nfrozen 0\n");
        let group = Hierarchy::at(temp.path())
            .and_then(|hierarchy| hierarchy.open(&CgroupPath::root()))
            .unwrap();
        assert!(group.freezes().unwrap_err().is_unsupported());
        assert!(group.set_freeze(true).unwrap_err().is_unsupported());
        write("cgroup.freeze", "0\n");
        assert!(!group.freezes().unwrap());
        group.set_freeze(true).unwrap();
        assert!(group.freezes().unwrap());
        assert!(!group.is_frozen().unwrap());
        assert!(!group.wait_frozen(true, Duration::ZERO).unwrap());
        assert!(group.wait_frozen(false, Duration::ZERO).unwrap());
        write(EVENTS, "populated 1\nfrozen 1\n");
        assert!(group.wait_frozen(true, Duration::ZERO).unwrap());
    }

    #[test]
    fn processes_freeze_thaw_and_die_while_frozen() {
        let Some(real) = RealGroup::new("freezer") else {
            return;
        };
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let group = real.group();
        group.attach(child.id() as i32).unwrap();
        assert!(!group.freezes().unwrap() && !group.is_frozen().unwrap());
        group.set_freeze(true).unwrap();
        assert!(group.wait_frozen(true, SOON).unwrap());
        assert!(group.is_frozen().unwrap() && group.freezes().unwrap());
        group.set_freeze(false).unwrap();
        assert!(group.wait_frozen(false, SOON).unwrap());
        group.set_freeze(true).unwrap();
        assert!(group.wait_frozen(true, SOON).unwrap());
        group.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(!group.is_populated().unwrap());
    }
}
