// SPDX-License-Identifier: GPL-2.0-or-later
//! Opens a file only after its type is known.
//!
//! Another user may replace a file at any moment, for example by a device. Opening a device, a FIFO
//! or a file on a dead network mount can block or have side effects. A descriptor with `O_PATH`
//! refers to a file without opening it, and always refers to the same file. So the type is checked
//! through this descriptor first.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{open, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::files::{FileKind, FileStat};

/// Opens the file behind an `O_PATH` descriptor for reading. `EINVAL` if it is not a regular file.
pub(crate) fn regular(named: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let stat = rustix::fs::fstat(named)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(Errno::INVAL);
    }
    open_named(named, flags)
}

/// Opens the file behind an `O_PATH` descriptor, which a process maps, for reading. Opens a block
/// device only if `is_roots` returns that the process runs as root, because only root is sure to be
/// allowed to open it. `EINVAL` if it may not be opened.
pub(crate) fn mapped(
    named: &OwnedFd,
    is_roots: impl FnOnce() -> bool,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let stat = rustix::fs::fstat(named)?;
    if !may_open(FileType::from_raw_mode(stat.st_mode), is_roots) {
        return Err(Errno::INVAL);
    }
    open_named(named, flags)
}

fn may_open(kind: FileType, is_roots: impl FnOnce() -> bool) -> bool {
    match kind {
        FileType::RegularFile => true,
        FileType::BlockDevice => is_roots(),
        _ => false,
    }
}

/// Opens the file behind an `O_PATH` descriptor for reading. `ENOENT` if it is not the file that
/// `seen` describes, `EINVAL` if it is neither a regular file nor a block device.
pub(crate) fn same(named: &OwnedFd, seen: &FileStat, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let found = FileStat::new(&rustix::fs::fstat(named)?);
    if found.kind == FileKind::Other {
        return Err(Errno::INVAL);
    }
    if !found.same_file(seen) || found.kind != seen.kind || found.device != seen.device {
        return Err(Errno::NOENT);
    }
    open_named(named, flags)
}

/// Opens the file behind an `O_PATH` descriptor for reading, with `O_NOATIME` only if permitted.
fn open_named(named: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    // The link is that of our own descriptor, so no other process can redirect it.
    let link = format!("/proc/self/fd/{}", named.as_raw_fd());
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match open(&link, flags, Mode::empty()) {
        // Only the owner and privileged processes may use O_NOATIME.
        Err(Errno::PERM) if flags.contains(OFlags::NOATIME) => {
            open(&link, flags.difference(OFlags::NOATIME), Mode::empty())
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_disk_is_opened_for_a_process_of_root_only() {
        assert!(may_open(FileType::BlockDevice, || true));
        assert!(!may_open(FileType::BlockDevice, || false));
        assert!(may_open(FileType::RegularFile, || false));
        for other in [FileType::CharacterDevice, FileType::Fifo, FileType::Socket] {
            assert!(!may_open(other, || true), "{other:?}");
        }
    }
}
