// SPDX-License-Identifier: GPL-2.0-or-later
//! File mappings of a process (`/proc/PID/maps`), their pages in its page tables
//! (`/proc/PID/pagemap`), and the cgroup that each page is charged to (`/proc/kpagecgroup`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::meminfo::page_bytes;
use crate::proc::Proc;
use crate::process::Process;
use crate::reopen;

/// Bits of a `pagemap` entry (Documentation/admin-guide/mm/pagemap.rst).
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;
const FRAME: u64 = (1 << 55) - 1;

/// Size of an entry of `pagemap` and of `kpagecgroup`, in bytes.
const ENTRY: usize = 8;

/// Entries of `pagemap` per read.
const BATCH: usize = 4096;

/// Entries of `kpagecgroup` per read. More than one, because pages of a file often have adjacent
/// frames.
const BLOCK: u64 = 32;

/// Maximum number of bytes that are scanned per mapping; the rest is ignored. Libraries are
/// smaller; mapped database files may be larger.
const SCAN_MAX_BYTES: u64 = 1 << 30;

/// A part of a file that a process maps readable but not writable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadMapping {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Device and inode number of the file.
    pub file: (u64, u64),
}

impl ReadMapping {
    /// Parses a line of `/proc/PID/maps`; `None` if the mapping has no file, is not readable, or is
    /// writable.
    pub fn parse(line: &str) -> Option<ReadMapping> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let inode = fields.next()?.parse().ok()?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let short = |text| u32::from_str_radix(text, 16).ok();
        let readable = rights.starts_with('r') && !rights.contains('w');
        (readable && inode != 0).then_some(())?;
        Some(ReadMapping {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            file: (rustix::fs::makedev(short(major)?, short(minor)?), inode),
        })
    }
}

/// A page of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePage {
    /// Index of the page in the file; the first page has index 0.
    pub index: u64,
    /// Number of its page frame.
    pub frame: u64,
}

impl Process {
    /// The file mappings that are readable but not writable, by address.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the process has ended, [`Error::Permission`] without CAP_SYS_PTRACE.
    pub fn read_mappings(&self) -> Result<Vec<ReadMapping>> {
        let text = self.dir().read_text("maps")?;
        Ok(text.lines().filter_map(ReadMapping::parse).collect())
    }

    /// Opens a mapped file through its mapping. This works even if the file was moved or the
    /// process has another root directory. Leaves the access time unchanged if `O_NOATIME` is
    /// permitted.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if there is no longer a mapping of these addresses, [`Error::Invalid`] if
    /// the file is neither a regular file nor a block device, or if it is a block device and the
    /// process does not run as root, [`Error::Permission`] without CAP_SYS_ADMIN.
    pub fn open_mapped(&self, mapped: &ReadMapping) -> Result<File> {
        let name = format!("map_files/{:x}-{:x}", mapped.start, mapped.end);
        let path = self.dir().path().join(&name);
        let failed = |errno| Error::new("open", &path, errno);
        // O_PATH comes first, because the process may map another file at this address at any
        // moment.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let named = rustix::fs::openat(self, name.as_str(), flags, Mode::empty());
        let is_roots = || self.status().is_ok_and(|status| status.effective_uid == 0);
        let fd = reopen::mapped(&named.map_err(failed)?, is_roots, OFlags::NOATIME);
        Ok(File::from(fd.map_err(failed)?))
    }

    /// Opens the page table of the process.
    ///
    /// # Errors
    ///
    /// As for [`Process::read_mappings`].
    pub fn page_table(&self) -> Result<PageTable> {
        let fd = self.dir().open_at("pagemap", OFlags::RDONLY, "read")?;
        Ok(PageTable {
            file: File::from(fd),
            path: self.dir().path().join("pagemap"),
            buffer: vec![0; BATCH * ENTRY],
        })
    }
}

/// `/proc/PID/pagemap` of one process.
#[derive(Debug)]
pub struct PageTable {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl PageTable {
    /// Pages of a mapping that are present in the page tables of the process and belong to the
    /// file, not to a private copy.
    ///
    /// # Errors
    ///
    /// As for [`Process::read_mappings`]. Also [`Error::Permission`] without CAP_SYS_ADMIN, because
    /// the kernel then hides the frame numbers.
    pub fn resident(&mut self, mapped: &ReadMapping) -> Result<Vec<FilePage>> {
        let page = page_bytes();
        let first = mapped.offset / page;
        let end = mapped.end.min(mapped.start.saturating_add(SCAN_MAX_BYTES));
        let count = end.saturating_sub(mapped.start) / page;
        let mut pages = Vec::new();
        let mut done = 0;
        while done < count {
            let wanted = (count - done).min(BATCH as u64) as usize * ENTRY;
            let at = (mapped.start / page + done) * ENTRY as u64;
            let read = self.file.read_at(&mut self.buffer[..wanted], at);
            let read = read.map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                Error::new("read", &self.path, errno)
            })?;
            if read < ENTRY {
                // The process has ended or released its memory.
                break;
            }
            for entry in entries(&self.buffer[..read]) {
                let index = first + done;
                done += 1;
                if entry & (PRESENT | OF_FILE) != PRESENT | OF_FILE {
                    continue;
                }
                match entry & FRAME {
                    0 => {
                        return Err(Error::new(
                            "read the page frames in",
                            &self.path,
                            Errno::PERM,
                        ))
                    }
                    frame => pages.push(FilePage { index, frame }),
                }
            }
        }
        Ok(pages)
    }
}

fn entries(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .chunks_exact(ENTRY)
        .map(|entry| u64::from_ne_bytes(entry.try_into().unwrap_or_default()))
}

/// `/proc/kpagecgroup`: the cgroup that each page is charged to.
#[derive(Debug)]
pub struct PageCgroups {
    file: File,
    /// The last block read: its first frame and its entries.
    block: (u64, Vec<u64>),
}

impl PageCgroups {
    /// Opens the file.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] on a kernel without this file (CONFIG_PROC_PAGE_MONITOR, CONFIG_MEMCG),
    /// [`Error::Permission`] if the caller is not root.
    pub fn open(proc: &Proc) -> Result<PageCgroups> {
        let fd = proc.dir().open_at("kpagecgroup", OFlags::RDONLY, "read")?;
        Ok(PageCgroups {
            file: File::from(fd),
            block: (u64::MAX, Vec::new()),
        })
    }

    /// Inode number of the cgroup that a page frame is charged to. If that cgroup was removed, the
    /// inode number of its nearest existing ancestor. `None` if the frame is charged to no cgroup
    /// or does not exist.
    pub fn of(&mut self, frame: u64) -> Option<u64> {
        let first = frame / BLOCK * BLOCK;
        if self.block.0 != first {
            let mut buffer = [0; BLOCK as usize * ENTRY];
            let read = self.file.read_at(&mut buffer, first * ENTRY as u64).ok()?;
            self.block = (first, entries(&buffer[..read]).collect());
        }
        let inode = self.block.1.get((frame - first) as usize).copied()?;
        (inode != 0).then_some(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_read_only_mappings_of_files_are_listed() {
        let text = "\
7f01-7f09 r-xp 00002000 fd:01 1234   /usr/lib/libc.so.6 (deleted)
7f09-7f0a rw-p 0000a000 fd:01 1234   /usr/lib/libc.so.6
7f0a-7f0b r--s 00000000 00:05 9      /memfd:x y
7f0b-7f0c rw-p 00000000 00:00 0
7f0c-7f0d ---p 00000000 fd:01 1234   /usr/lib/libc.so.6
7ffd-7ffe r-xp 00000000 00:00 0      [vdso]
broken";
        let files: Vec<_> = text.lines().filter_map(ReadMapping::parse).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        let expected = ReadMapping {
            start: 0x7f01,
            end: 0x7f09,
            offset: 0x2000,
            file: (rustix::fs::makedev(0xfd, 1), 1234),
        };
        assert_eq!(files[0], expected);
    }

    #[test]
    fn own_program_is_mapped_and_can_be_opened() {
        let proc = Proc::open("/proc").unwrap();
        let own = proc.process(std::process::id() as i32).unwrap();
        let files = own.read_mappings().unwrap();
        let program = std::fs::metadata("/proc/self/exe").unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&program);
        let mapped: Vec<_> = files.iter().filter(|m| m.file.1 == inode).collect();
        assert!(!mapped.is_empty());
        match own.open_mapped(mapped[0]) {
            Ok(file) => assert_eq!(file.metadata().unwrap().len(), program.len()),
            // The test does not run as root.
            Err(error) => assert!(matches!(error, Error::Permission { .. }), "{error}"),
        }
        let mut table = own.page_table().unwrap();
        let code = mapped.iter().map(|mapped| table.resident(mapped));
        match code.collect::<Result<Vec<_>>>() {
            Ok(pages) => assert!(!pages.concat().is_empty(), "this code is not resident"),
            Err(error) => assert!(matches!(error, Error::Permission { .. }), "{error}"),
        }
    }

    proptest! {
        #[test]
        fn lines_never_panic(line in any::<String>()) {
            ReadMapping::parse(&line);
        }
    }
}
