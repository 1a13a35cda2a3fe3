// SPDX-License-Identifier: GPL-2.0-or-later
//! Opens a file only after its type is known.
//!
//! A name that another user controls may lead to a device by the time it is opened, and opening a
//! device, a FIFO or a file of a dead network mount has effects or blocks. `O_PATH` names a file
//! without opening it, and the file behind the descriptor can no longer be exchanged.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{open, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::files::{FileKind, FileStat};

/// Opens the regular file behind an `O_PATH` descriptor for reading. `EINVAL` for any other type.
pub(crate) fn regular(named: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let stat = rustix::fs::fstat(named)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(Errno::INVAL);
    }
    again(named, flags)
}

/// Opens the file behind an `O_PATH` descriptor for reading if it is the one in `seen`. `ENOENT`
/// for another file, `EINVAL` for one that is neither regular nor a disk.
pub(crate) fn same(named: &OwnedFd, seen: &FileStat, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let found = FileStat::new(&rustix::fs::fstat(named)?);
    if found.kind == FileKind::Other {
        return Err(Errno::INVAL);
    }
    if !found.same_file(seen) || found.kind != seen.kind || found.device != seen.device {
        return Err(Errno::NOENT);
    }
    again(named, flags)
}

fn again(named: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    // Our own descriptor: no other process can redirect this link.
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
