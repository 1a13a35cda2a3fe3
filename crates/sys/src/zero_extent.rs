// SPDX-License-Identifier: GPL-2.0-or-later
//! A range of zeroes on a disk, which the kernel reads to fill pages with zeroes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A range of a block device that is open exclusively: no other process can mount the device or
/// open it exclusively.
#[derive(Debug)]
pub struct ZeroExtent {
    fd: OwnedFd,
    offset: u64,
    len: u64,
    trusted: bool,
}

impl ZeroExtent {
    /// Opens a block device exclusively. `offset` and `len` are in bytes. If `trusted` is true, the
    /// kernel does not verify that the pages it read contain only zeroes.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if the device is mounted or otherwise in use, [`Error::Invalid`] if the path
    /// is not a block device.
    pub fn open(path: &Path, offset: u64, len: u64, trusted: bool) -> Result<ZeroExtent> {
        let failed = |errno| Error::new("open", path, errno);
        // The type is checked before the open, because opening a device of another type can have
        // side effects.
        let stat = rustix::fs::stat(path).map_err(failed)?;
        if !FileType::from_raw_mode(stat.st_mode).is_block_device() {
            return Err(failed(Errno::INVAL));
        }
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        Ok(ZeroExtent {
            fd,
            offset,
            len,
            trusted,
        })
    }

    /// Offset of the first byte on the device.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Whether the kernel uses the data without verifying that it is zero.
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }
}

impl AsFd for ZeroExtent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PartialEq for ZeroExtent {
    fn eq(&self, other: &Self) -> bool {
        self.fd.as_raw_fd() == other.fd.as_raw_fd()
    }
}

impl Eq for ZeroExtent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_other_than_a_block_device_is_refused_without_opening_it() {
        for path in ["/dev/null", "/etc/hostname", "/tmp"] {
            let error = ZeroExtent::open(Path::new(path), 0, 4096, false).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
        let error = ZeroExtent::open(Path::new("/nonexistent"), 0, 4096, false).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }
}
