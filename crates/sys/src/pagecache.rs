// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the cached parts of a file, and reads parts of a file in advance.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::meminfo::page_bytes;
use crate::reopen;

/// A range of bytes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// Maximum number of bytes that are mapped at a time. Limits the address space and the size of the
/// result.
const MAP_BYTES: u64 = 1 << 30;

/// Finds the cached parts of a file of `size` bytes, ascending and in whole pages. Reads nothing
/// and marks no page as used. Since Linux 5.2, all pages appear cached unless the caller owns the
/// file or may write to it.
pub fn cached(file: impl AsFd, size: u64) -> Result<Vec<Range>> {
    let mut ranges = Vec::new();
    for start in (0..size).step_by(MAP_BYTES as usize) {
        let len = (size - start).min(MAP_BYTES);
        let present = residency(&file, start, len)?;
        let first = start / page_bytes();
        let pages = (first..).zip(present);
        append(
            &mut ranges,
            pages.filter_map(|(page, bits)| (bits & 1 != 0).then_some(page)),
        );
    }
    Ok(ranges)
}

/// Combines ascending page indexes of a file into ranges of bytes.
pub fn ranges(pages: impl IntoIterator<Item = u64>) -> Vec<Range> {
    let mut ranges = Vec::new();
    append(&mut ranges, pages);
    ranges
}

fn append(ranges: &mut Vec<Range>, pages: impl IntoIterator<Item = u64>) {
    let len = page_bytes();
    for offset in pages.into_iter().map(|page| page * len) {
        match ranges.last_mut() {
            Some(last) if last.offset + last.len == offset => last.len += len,
            _ => ranges.push(Range { offset, len }),
        }
    }
}

/// One byte for each page of a range; bit 0 is set if the page is cached.
fn residency(file: impl AsFd, start: u64, len: u64) -> Result<Vec<u8>> {
    let failed = |errno| Error::new("count the cached pages of", "a file", errno);
    let mut present = vec![0u8; len.div_ceil(page_bytes()) as usize];
    let len = len as usize;
    // SAFETY: the kernel chooses a free address for the mapping, and no byte of it is accessed.
    // `present` has one byte for each page of the mapping.
    unsafe {
        let address = mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            file,
            start,
        )
        .map_err(failed)?;
        let done = libc::mincore(address, len, present.as_mut_ptr());
        let error = std::io::Error::last_os_error();
        // The whole mapping is ours, so it can be unmapped.
        let _ = mm::munmap(address, len);
        if done != 0 {
            return Err(failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
        }
    }
    Ok(present)
}

/// Splits a range at multiples of `chunk` bytes; a `chunk` below a page counts as one page.
pub fn pieces(range: Range, chunk: u64) -> impl Iterator<Item = Range> {
    let end = range.offset.saturating_add(range.len);
    let chunk = chunk.max(page_bytes());
    let mut offset = range.offset;
    std::iter::from_fn(move || {
        let piece = Range {
            offset,
            // If the first chunk is unaligned, it ends at the next chunk boundary.
            len: (chunk - offset % chunk).min(end - offset),
        };
        offset += piece.len;
        (piece.len > 0).then_some(piece)
    })
}

/// Starts to read the uncached pages of a range, with calls of `chunk` bytes. Per call, the kernel
/// reads at most the device's largest request or its readahead size, whichever is larger, and
/// ignores the rest. Returns when the requests are queued. Before that, the file system may have to
/// read the location of the blocks from the disk.
pub fn read_ahead(file: impl AsFd, range: Range, chunk: u64) -> Result<()> {
    for Range { offset, len } in pieces(range, chunk) {
        // SAFETY: all arguments are plain numbers, and the descriptor is open during the call.
        let done =
            unsafe { libc::readahead(file.as_fd().as_raw_fd(), offset as i64, len as usize) };
        if done != 0 {
            let error = std::io::Error::last_os_error();
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(Error::new("read ahead", "a file", errno));
        }
    }
    Ok(())
}

/// Waits until the last page of a range is in memory; reads it if no request has.
pub fn wait_for(file: impl AsFd, range: Range) -> Result<()> {
    let mut byte = [0u8];
    let last = (range.offset + range.len).saturating_sub(1);
    rustix::io::pread(file, &mut byte, last)
        .map(drop)
        .map_err(|errno| Error::new("read", "a file", errno))
}

/// Opens a regular file without blocking and, if `O_NOATIME` is permitted, without changing its
/// access time. Refuses symbolic links anywhere in the path, so that no other file can be
/// substituted.
pub fn open(path: &Path) -> Result<File> {
    use rustix::fs::{openat2, Mode, OFlags, ResolveFlags, CWD};
    let failed = |errno| Error::new("open", path, errno);
    // The lookup refuses symbolic links even before fstat(), because a linked directory may be on a
    // network server that does not answer.
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let named = openat2(CWD, path, flags, Mode::empty(), links).map_err(failed)?;
    let fd = reopen::regular(&named, OFlags::NOATIME).map_err(failed)?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pieces_cover_a_range_and_end_at_chunks() {
        let chunk = 4 * page_bytes();
        let range = Range {
            offset: chunk - page_bytes(),
            len: chunk + 2 * page_bytes(),
        };
        let all: Vec<(u64, u64)> = pieces(range, chunk).map(|p| (p.offset, p.len)).collect();
        let page = page_bytes();
        assert_eq!(
            all,
            [(3 * page, page), (4 * page, chunk), (2 * chunk, page)]
        );
        assert_eq!(pieces(Range { offset: 5, len: 0 }, chunk).count(), 0);
    }

    #[test]
    fn wait_reads_a_page_that_no_request_covers() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10 * page_bytes()).unwrap();
        let range = Range {
            offset: 0,
            len: 2 * page_bytes(),
        };
        wait_for(&file, range).unwrap();
        assert_eq!(cached(&file, page_bytes() * 10).unwrap().len(), 1);
    }

    #[test]
    fn written_file_is_cached_and_a_hole_is_not() {
        let page = page_bytes();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 3 * page as usize]).unwrap();
        file.set_len(10 * page).unwrap();
        let ranges = cached(&file, 10 * page).unwrap();
        let expected = Range {
            offset: 0,
            len: 3 * page,
        };
        assert_eq!(ranges, [expected]);
        assert_eq!(cached(&file, 0).unwrap(), []);
    }

    #[test]
    fn adjacent_pages_form_one_range() {
        let bytes = page_bytes();
        let range = |first, pages| Range {
            offset: first * bytes,
            len: pages * bytes,
        };
        assert_eq!(
            ranges([1, 2, 3, 7, 9, 10]),
            [range(1, 3), range(7, 1), range(9, 2)]
        );
        assert_eq!(ranges([]), []);
    }

    #[test]
    fn range_that_was_read_ahead_is_cached() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        let len = 4 << 20;
        std::fs::write(&path, vec![7; len as usize]).unwrap();
        let file = open(&path).unwrap();
        rustix::fs::fsync(&file).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if !cached(&file, len).unwrap().is_empty() {
            // The file is on tmpfs: its pages cannot be dropped, so they cannot be read ahead.
            return;
        }
        let wanted = Range {
            offset: 0,
            len: 1 << 20,
        };
        read_ahead(&file, wanted, 128 << 10).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while cached(&file, len).unwrap() != [wanted] {
            assert!(std::time::Instant::now() < deadline, "not read within 30 s");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn only_regular_files_are_opened() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("link");
        std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
        assert!(open(&link).is_err());
        let inside = temp.path().join("real/data");
        std::fs::create_dir(temp.path().join("real")).unwrap();
        std::fs::write(&inside, "x").unwrap();
        std::os::unix::fs::symlink("real", temp.path().join("alias")).unwrap();
        assert!(open(&inside).is_ok());
        assert!(open(&temp.path().join("alias/data")).is_err());
        // The lookup does not enter a linked directory.
        let behind = open(&temp.path().join("alias/nothing")).unwrap_err();
        assert!(!behind.is_gone(), "{behind}");
        assert!(open(temp.path()).is_err());
        assert!(open(Path::new("/dev/null")).is_err());
        assert!(open(Path::new("/nonexistent")).unwrap_err().is_gone());
    }
}
