// SPDX-License-Identifier: GPL-2.0-or-later
//! Zeroes on a disk, for the kernel to read into pages.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A part of a block device, opened so that nobody else mounts it or opens it in the same way.
#[derive(Debug)]
pub struct ZeroExtent {
    fd: OwnedFd,
    offset: u64,
    len: u64,
    trusted: bool,
}

impl ZeroExtent {
    /// Opens a block device for this purpose alone. `offset` and `len` are in bytes. `trusted`:
    /// pages are handed out as they were read, without a look at them.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] when it is mounted or otherwise in use, [`Error::Invalid`] when it is no block
    /// device.
    pub fn open(path: &Path, offset: u64, len: u64, trusted: bool) -> Result<ZeroExtent> {
        let failed = |errno| Error::new("open", path, errno);
        // Looked at first: to open another device can have effects.
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

    /// First byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Number of bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Whether what it answers is believed.
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
    fn what_is_no_disk_is_refused_unopened() {
        for path in ["/dev/null", "/etc/hostname", "/tmp"] {
            let error = ZeroExtent::open(Path::new(path), 0, 4096, false).unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
        let error = ZeroExtent::open(Path::new("/nonexistent"), 0, 4096, false).unwrap_err();
        assert!(error.is_gone(), "{error}");
    }
}
