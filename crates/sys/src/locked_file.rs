// SPDX-License-Identifier: GPL-2.0-or-later
//! Keeps pages of a file in memory: a mapping with `mlock2(MLOCK_ONFAULT)`.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{FileType, FsWord, SeekFrom};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, MlockFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::pagecache::Range;

/// File systems on disks whose files have an anonymous device number (include/uapi/linux/magic.h).
const ON_DISKS: [FsWord; 3] = [
    0x9123_683e_u32 as FsWord, // btrfs
    0x794c_7630,               // overlayfs
    0xca45_1a4e_u32 as FsWord, // bcachefs
];

/// Linux 5.14: maps pages that are cached or can be read, and returns an error if an access would
/// cause a SIGBUS (include/uapi/asm-generic/mman-common.h).
const MADV_POPULATE_READ: libc::c_int = 22;

/// A file with parts locked in memory. They are unlocked on drop.
#[derive(Debug)]
pub struct LockedFile {
    address: *mut libc::c_void,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is never accessed.
unsafe impl Send for LockedFile {}

impl LockedFile {
    /// Maps a file and locks none of it yet.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a file that is not on a local disk: locking a file in memory is
    /// pointless, and a server may answer late or never. [`Error::Invalid`] for an empty file.
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
        // For a block device, only a seek returns its size.
        let len = rustix::fs::seek(file, SeekFrom::End(0)).map_err(failed)?;
        let len = usize::try_from(len).map_err(|_| failed(Errno::NOMEM))?;
        if len == 0 {
            return Err(failed(Errno::INVAL));
        }
        // SAFETY: a new mapping at an address of the kernel's choice, of which no byte is accessed.
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
        // SAFETY: our whole mapping; only its treatment by the kernel changes.
        let done = unsafe { mm::mlock_with(locked.address, len, MlockFlags::ONFAULT) };
        done.map_err(failed)?;
        Ok(locked)
    }

    /// Locks a range of whole pages and reads those that are not in memory, which waits for the
    /// disk. Cached neighbours may be locked too.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a range outside the file as it was when it was mapped; [`Error::Io`]
    /// if the file has become shorter or cannot be read.
    pub fn hold(&self, range: Range) -> Result<()> {
        let failed = |errno| Error::new("lock pages of", "a file", errno);
        let inside = range.offset.checked_add(range.len).is_some_and(|end| {
            let page = crate::meminfo::page_bytes();
            end <= (self.len as u64).div_ceil(page) * page && range.offset.is_multiple_of(page)
        });
        if !inside {
            return Err(failed(Errno::INVAL));
        }
        // SAFETY: inside our mapping, as checked; nothing is accessed here.
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
        // SAFETY: our whole mapping, which has no other user.
        let _ = unsafe { mm::munmap(self.address, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meminfo::page_bytes;
    use std::io::Write;

    /// KiB that this process has locked.
    fn locked() -> u64 {
        let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = status.lines().find(|line| line.starts_with("Locked:"));
        let field = line.and_then(|line| line.split_ascii_whitespace().nth(1));
        field.and_then(|field| field.parse().ok()).unwrap()
    }

    #[test]
    fn held_pages_are_locked_until_drop_and_a_truncated_file_is_an_error() {
        let page = page_bytes();
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&vec![1; 64 * page as usize + 5]).unwrap();
        let held = match LockedFile::new(&file) {
            Ok(held) => held,
            // The source directory is in memory, or locking is not allowed here.
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
        assert!(locked() >= before + 9 * page / 1024, "nothing is locked");
        assert!(held.hold(range(64, 2)).is_err(), "behind the end");
        assert!(held
            .hold(Range {
                offset: 7,
                len: page
            })
            .is_err());
        file.set_len(page).unwrap();
        assert!(
            held.hold(range(0, 8)).is_err(),
            "an access would be a SIGBUS"
        );
        drop(held);
        assert_eq!(locked(), before);
    }

    #[test]
    fn memory_files_and_empty_files_cannot_be_locked() {
        let file = tempfile::tempfile_in("/proc/self").map(drop);
        assert!(file.is_err());
        let fd = rustix::fs::memfd_create("limelight", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        file.write_all(b"text").unwrap();
        let error = LockedFile::new(&file).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}
