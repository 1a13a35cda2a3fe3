// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps pages of a file in memory through a mapping with `mlock2(MLOCK_ONFAULT)`.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FileType, FsWord, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, MlockFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::pagecache::Range;

/// Types of disk file systems whose files have an anonymous device number, with major number 0
/// (include/uapi/linux/magic.h).
const ON_DISKS: [FsWord; 3] = [
    0x9123_683e_u32 as FsWord, // btrfs
    0x794c_7630,               // overlayfs
    0xca45_1a4e_u32 as FsWord, // bcachefs
];

/// Reads and maps the pages of a range. Returns an error where an access would cause a SIGBUS
/// (Linux 5.14, include/uapi/asm-generic/mman-common.h).
const MADV_POPULATE_READ: libc::c_int = 22;

/// A file of which ranges are locked in memory. Dropping it unlocks them.
#[derive(Debug)]
pub struct LockedFile {
    address: *mut libc::c_void,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is never accessed.
unsafe impl Send for LockedFile {}

impl LockedFile {
    /// Maps a file. No page is locked before [`LockedFile::hold`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a file that is not on a local disk: a file on tmpfs is in memory
    /// already, and a network server may answer late or never. [`Error::Invalid`] for an empty
    /// file.
    pub fn new(file: &File) -> Result<LockedFile> {
        let failed = |errno| Error::new("lock pages of", "a file", errno);
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        let on_disk = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => true,
            _ if rustix::fs::major(stat.st_dev) != 0 => true,
            _ => {
                let kind = rustix::fs::fstatfs(file).map_err(failed)?.f_type;
                ON_DISKS.contains(&kind)
            }
        };
        if !on_disk {
            return Err(failed(Errno::OPNOTSUPP));
        }
        // fstat() does not return the size of a block device, but a seek to the end does.
        let len = rustix::fs::seek(file, SeekFrom::End(0)).map_err(failed)?;
        let len = usize::try_from(len).map_err(|_| failed(Errno::NOMEM))?;
        if len == 0 {
            return Err(failed(Errno::INVAL));
        }
        // SAFETY: the kernel chooses a free address for the mapping, and no byte of it is accessed.
        let address = unsafe {
            mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        };
        let locked = LockedFile {
            address: address.map_err(failed)?,
            len,
        };
        // SAFETY: the range is our whole mapping, and the call does not change its contents.
        let done = unsafe { mm::mlock_with(locked.address, len, MlockFlags::ONFAULT) };
        done.map_err(failed)?;
        Ok(locked)
    }

    /// Locks a range of whole pages. Reads the pages that are not in memory, and waits for the
    /// disk. Cached pages next to the range may be locked too.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a range that is unaligned or exceeds the size of the file at the time
    /// of [`LockedFile::new`]; [`Error::Io`] if the file has become shorter or cannot be read.
    pub fn hold(&self, range: Range) -> Result<()> {
        let failed = |errno| Error::new("lock pages of", "a file", errno);
        let inside = range.offset.checked_add(range.len).is_some_and(|end| {
            let page = crate::meminfo::page_bytes();
            end <= (self.len as u64).div_ceil(page) * page && range.offset.is_multiple_of(page)
        });
        if !inside {
            return Err(failed(Errno::INVAL));
        }
        // SAFETY: the range is inside our mapping, as checked above, and no byte is accessed here.
        let done = unsafe {
            let first = self.address.cast::<u8>().add(range.offset as usize);
            libc::madvise(first.cast(), range.len as usize, MADV_POPULATE_READ)
        };
        if done != 0 {
            let error = std::io::Error::last_os_error();
            return Err(failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
        }
        Ok(())
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // SAFETY: the range is our whole mapping, and nothing else uses it.
        let _ = unsafe { mm::munmap(self.address, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meminfo::page_bytes;
    use std::io::Write;

    /// Memory that this process has locked, in KiB.
    fn locked() -> u64 {
        let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = status.lines().find(|line| line.starts_with("Locked:"));
        let field = line.and_then(|line| line.split_ascii_whitespace().nth(1));
        field.and_then(|field| field.parse().ok()).unwrap()
    }

    #[test]
    fn held_pages_are_locked_until_drop_and_holding_a_truncated_range_fails() {
        let page = page_bytes();
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; 64 * page as usize + 5]).unwrap();
        let held = match LockedFile::new(&file) {
            Ok(held) => held,
            // The source directory is on tmpfs, or this user may not lock memory.
            Err(Error::Unsupported { .. } | Error::Permission { .. } | Error::Io { .. }) => return,
            Err(error) => panic!("{error}"),
        };
        let range = |first, pages| Range {
            offset: first * page,
            len: pages * page,
        };
        let before = locked();
        held.hold(range(0, 8)).unwrap();
        held.hold(range(64, 1)).unwrap();
        assert!(
            locked() >= before + 9 * page / 1024,
            "the held pages are not locked"
        );
        assert!(held.hold(range(64, 2)).is_err(), "beyond the end");
        assert!(held
            .hold(Range {
                offset: 7,
                len: page
            })
            .is_err());
        file.set_len(page).unwrap();
        assert!(
            held.hold(range(0, 8)).is_err(),
            "the file has become shorter"
        );
        drop(held);
        assert_eq!(locked(), before);
    }

    #[test]
    fn file_in_memory_cannot_be_locked() {
        let file = tempfile::tempfile_in("/proc/self").map(drop);
        assert!(file.is_err());
        let fd = rustix::fs::memfd_create("limelight", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        file.write_all(b"text").unwrap();
        let error = LockedFile::new(&file).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}
