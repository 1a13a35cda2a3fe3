// SPDX-License-Identifier: GPL-2.0-or-later
//! A process's file mappings, their pages in its page tables, and the cgroup that each page is
//! charged to: `/proc/PID/maps`, `/proc/PID/pagemap`, `/proc/kpagecgroup`.

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

/// Bytes of one entry of `pagemap` and of `kpagecgroup`.
const ENTRY: usize = 8;

/// Entries read with one call.
const BATCH: usize = 4096;

/// Entries of `kpagecgroup` read at once: pages of a file are often adjacent.
const BLOCK: u64 = 32;

/// Most bytes of one mapping that are scanned: the mapped file of a database is no library.
const LOOK: u64 = 1 << 30;

/// A part of a file that a process maps without write permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadMapping {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The file: its device and inode numbers.
    pub file: (u64, u64),
}

impl ReadMapping {
    /// Parses a line of `/proc/PID/maps`; `None` if it is no file, not readable, or writable.
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
    /// Its index, counted from the beginning of the file.
    pub index: u64,
    /// Its page frame.
    pub frame: u64,
}

impl Process {
    /// The files that it maps without write permission, by address.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if it has ended, [`Error::Permission`] without CAP_SYS_PTRACE.
    pub fn read_mappings(&self) -> Result<Vec<ReadMapping>> {
        let text = self.dir().read_text("maps")?;
        Ok(text.lines().filter_map(ReadMapping::parse).collect())
    }

    /// Opens a mapped file through its mapping, even if the file has moved or the process has
    /// another root directory. Does not change its access time if permitted.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if it is no longer mapped there, [`Error::Invalid`] if it is no regular
    /// file, [`Error::Permission`] without CAP_SYS_ADMIN.
    pub fn open_mapped(&self, mapped: &ReadMapping) -> Result<File> {
        let name = format!("map_files/{:x}-{:x}", mapped.start, mapped.end);
        let path = self.dir().path().join(&name);
        let failed = |errno| Error::new("open", &path, errno);
        // The process may map another file at this address at any moment.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let named = rustix::fs::openat(self, name.as_str(), flags, Mode::empty());
        let fd = reopen::regular(&named.map_err(failed)?, OFlags::NOATIME);
        Ok(File::from(fd.map_err(failed)?))
    }

    /// Opens its page table.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Permission`] as above.
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
    /// The pages of a mapping that are in the process's page tables and still belong to the file.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Permission`] as above; [`Error::Permission`] also without
    /// CAP_SYS_ADMIN, because the kernel then hides the frames.
    pub fn resident(&mut self, mapped: &ReadMapping) -> Result<Vec<FilePage>> {
        let page = page_bytes();
        let first = mapped.offset / page;
        let end = mapped.end.min(mapped.start.saturating_add(LOOK));
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
                            "see the page frames in",
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
    /// [`Error::Gone`] on a kernel without it (CONFIG_PROC_PAGE_MONITOR, CONFIG_MEMCG),
    /// [`Error::Permission`] for all but root.
    pub fn open(proc: &Proc) -> Result<PageCgroups> {
        let fd = proc.dir().open_at("kpagecgroup", OFlags::RDONLY, "read")?;
        Ok(PageCgroups {
            file: File::from(fd),
            block: (u64::MAX, Vec::new()),
        })
    }

    /// Inode number of the cgroup that a page frame is charged to, or of its nearest ancestor that
    /// still exists. `None` if it is charged to none, or there is no such frame.
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
    fn only_read_only_mappings_of_files_count() {
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
            // Not root.
            Err(error) => assert!(matches!(error, Error::Permission { .. }), "{error}"),
        }
        let mut table = own.page_table().unwrap();
        let code = mapped.iter().map(|mapped| table.resident(mapped));
        match code.collect::<Result<Vec<_>>>() {
            Ok(pages) => assert!(!pages.concat().is_empty(), "this code runs"),
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
