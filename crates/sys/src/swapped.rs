// SPDX-License-Identifier: GPL-2.0-or-later
//! Finds the parts of a process's memory that are in swap, mapped from files, or anonymous. Uses
//! `PAGEMAP_SCAN`, and on older kernels the entries of `/proc/PID/pagemap`.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::meminfo::page_bytes;
use crate::process::Process;
use crate::remote_memory::AddressRange;

const FILE: &str = "pagemap";

/// `PAGEMAP_SCAN` (include/uapi/linux/fs.h, Linux 6.7).
const SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;

/// Maximum number of regions that one `PAGEMAP_SCAN` call returns.
const REGIONS: usize = 512;

/// Upper bound of user addresses on all architectures.
const ADDRESSES: u64 = 1 << 56;

/// A kind of page. `scan` contains categories of `PAGEMAP_SCAN`, `entry` contains bits of a
/// `pagemap` entry; a page of this kind has all of them.
#[derive(Debug, Clone, Copy)]
struct Category {
    scan: u64,
    entry: u64,
    /// Categories that a page of this kind does not have; `entry_not` contains the corresponding
    /// bits.
    scan_not: u64,
    entry_not: u64,
}

const SWAPPED: Category = Category {
    scan: 1 << 4,
    entry: 1 << 62,
    scan_not: 0,
    entry_not: 0,
};

/// Mapped pages of a file or of shared memory.
const OF_FILES: Category = Category {
    scan: (1 << 2) | (1 << 3),
    entry: (1 << 61) | (1 << 63),
    scan_not: 0,
    entry_not: 0,
};

/// Mapped pages that belong neither to a file nor to shared memory.
const ANONYMOUS: Category = Category {
    scan: 1 << 3,
    entry: 1 << 63,
    scan_not: 1 << 2,
    entry_not: 1 << 61,
};

/// Size of a `pagemap` entry, in bytes.
const ENTRY: usize = 8;
/// Entries of `pagemap` per read.
const BATCH: u64 = 4096;

/// Limit of the walk per mapping, in bytes. Some programs reserve terabytes of address space, and
/// the walk reads one entry per page.
const MAPPING_MAX_BYTES: u64 = 4 << 30;
/// Limit of the walk for all mappings together, in bytes.
const TOTAL_MAX_BYTES: u64 = 32 << 30;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Place of a page in swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapSlot {
    /// Number of the swap area; areas are numbered in the order of `/proc/swaps`.
    pub area: usize,
    /// Page offset in the area.
    pub offset: u64,
}

impl SwapSlot {
    /// The slot in a `pagemap` entry (Documentation/admin-guide/mm/pagemap.rst); `None` if the page
    /// is not in swap, or the kernel hides the slot.
    fn of_entry(entry: u64) -> Option<SwapSlot> {
        const AREA_BITS: u64 = 5;
        const OFFSET_BITS: u64 = 50;
        let offset = entry >> AREA_BITS & ((1 << OFFSET_BITS) - 1);
        // The first page of an area is its header, so 0 is hidden.
        let swapped = entry & SWAPPED.entry != 0 && offset != 0;
        swapped.then_some(SwapSlot {
            area: (entry & ((1 << AREA_BITS) - 1)) as usize,
            offset,
        })
    }
}

impl Process {
    /// Places in swap of the pages in a range of its memory, by address. Empty without
    /// CAP_SYS_ADMIN: the kernel then hides the slots. Errors as for [`Process::swapped`].
    pub fn swap_slots(&self, range: AddressRange) -> Result<Vec<SwapSlot>> {
        let file = self.pagemap()?;
        let page = page_bytes();
        let mut slots = Vec::new();
        let mut buffer = vec![0; BATCH as usize * ENTRY];
        let (mut at, end) = (range.start / page, range.end.div_ceil(page));
        while at < end {
            let bytes = &mut buffer[..(end - at).min(BATCH) as usize * ENTRY];
            let read = self.entries(&file, bytes, at)?;
            slots.extend(read.filter_map(SwapSlot::of_entry));
            at += BATCH;
        }
        Ok(slots)
    }

    /// Ranges of its memory that are in swap, by address, up to `most` bytes in total. Excludes
    /// shared memory in swap, because the page tables do not show it.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the process has ended, [`Error::Permission`] without CAP_SYS_PTRACE,
    /// [`Error::Unsupported`] on a kernel without `pagemap` (CONFIG_PROC_PAGE_MONITOR).
    pub fn swapped(&self, most: u64) -> Result<Vec<AddressRange>> {
        self.find(SWAPPED, most)
    }

    /// Ranges of its memory that are mapped pages of files or of shared memory, by address, up to
    /// `most` bytes in total. Errors as for [`Process::swapped`].
    pub fn file_pages(&self, most: u64) -> Result<Vec<AddressRange>> {
        self.find(OF_FILES, most)
    }

    /// Ranges of its memory that are mapped anonymous pages, by address, up to `most` bytes in
    /// total. Errors as for [`Process::swapped`].
    pub fn anonymous_pages(&self, most: u64) -> Result<Vec<AddressRange>> {
        self.find(ANONYMOUS, most)
    }

    fn find(&self, category: Category, most: u64) -> Result<Vec<AddressRange>> {
        let file = self.pagemap()?;
        match self.scan(file.as_fd(), category, most) {
            Err(Error::Unsupported { .. }) => self.walk(&file, category, most),
            result => result,
        }
    }

    fn pagemap(&self) -> Result<File> {
        match self.dir().open_at(FILE, OFlags::RDONLY, "read") {
            Ok(fd) => Ok(File::from(fd)),
            Err(error) if error.is_gone() && self.exists() => {
                Err(self.pagemap_failed(Errno::NOSYS))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads entries of `pagemap` from page number `at` on into the buffer. There are none if the
    /// process has released its memory.
    fn entries<'a>(
        &self,
        file: &File,
        buffer: &'a mut [u8],
        at: u64,
    ) -> Result<impl Iterator<Item = u64> + 'a> {
        let read = file.read_at(buffer, at * ENTRY as u64);
        let read = read.map_err(|error| {
            self.pagemap_failed(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        let entries = buffer[..read].chunks_exact(ENTRY);
        Ok(entries.map(|entry| u64::from_ne_bytes(entry.try_into().unwrap_or_default())))
    }

    fn pagemap_failed(&self, errno: Errno) -> Error {
        Error::new("read", self.dir().path().join(FILE), errno)
    }

    fn scan(
        &self,
        file: BorrowedFd<'_>,
        category: Category,
        most: u64,
    ) -> Result<Vec<AddressRange>> {
        let mut found = Found::new(most);
        let mut regions = vec![Region::default(); REGIONS];
        // The scan ends at the last mapping: the kernel rejects addresses beyond the limit of this
        // architecture.
        let maps = self.dir().read_text("maps")?;
        let end = maps.lines().rev().find_map(accessible);
        let end = end.map_or(0, |range| range.end);
        let mut start = 0;
        while start < end && found.wanted() > 0 {
            let mut arguments = ScanArguments {
                size: std::mem::size_of::<ScanArguments>() as u64,
                start,
                end,
                regions: regions.as_mut_ptr() as u64,
                regions_len: REGIONS as u64,
                max_pages: found.wanted(),
                category_inverted: category.scan_not,
                category_mask: category.scan | category.scan_not,
                return_mask: category.scan,
                ..ScanArguments::default()
            };
            // SAFETY: `arguments` contains its own size, and the address and capacity of `regions`.
            // Both outlive the call. No flag requests a change of the memory.
            let done = unsafe { libc::ioctl(file.as_raw_fd(), SCAN, &mut arguments) };
            let Ok(count) = usize::try_from(done) else {
                let error = std::io::Error::last_os_error();
                return match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                    Errno::INTR => continue,
                    errno => Err(self.pagemap_failed(errno)),
                };
            };
            for region in regions.iter().take(count) {
                found.add(region.start, region.end);
            }
            if arguments.walk_end <= start {
                break;
            }
            start = arguments.walk_end;
        }
        Ok(found.ranges)
    }

    /// Does the same as [`Process::scan`] by walking the entries of `pagemap`.
    fn walk(&self, file: &File, category: Category, most: u64) -> Result<Vec<AddressRange>> {
        let page = page_bytes();
        let mut found = Found::new(most);
        let mut buffer = vec![0; BATCH as usize * ENTRY];
        let mut left = TOTAL_MAX_BYTES / page;
        let maps = self.dir().read_text("maps")?;
        for range in maps.lines().filter_map(accessible) {
            let end = (range.end / page).min(range.start / page + MAPPING_MAX_BYTES / page);
            let mut at = range.start / page;
            while at < end && left > 0 && found.wanted() > 0 {
                let wanted = (end - at).min(BATCH).min(left);
                let bytes = &mut buffer[..wanted as usize * ENTRY];
                let mut entries = self.entries(file, bytes, at)?.peekable();
                if entries.peek().is_none() {
                    return Ok(found.ranges);
                }
                for entry in entries {
                    let is =
                        entry & category.entry == category.entry && entry & category.entry_not == 0;
                    if is && found.wanted() > 0 {
                        found.add(at * page, (at + 1) * page);
                    }
                    at += 1;
                }
                left = left.saturating_sub(wanted);
            }
        }
        Ok(found.ranges)
    }
}

/// Ranges found so far.
struct Found {
    ranges: Vec<AddressRange>,
    bytes: u64,
    most: u64,
}

impl Found {
    fn new(most: u64) -> Found {
        Found {
            ranges: Vec::new(),
            bytes: 0,
            most,
        }
    }

    /// Number of pages that may still be added.
    fn wanted(&self) -> u64 {
        self.most.saturating_sub(self.bytes) / page_bytes()
    }

    fn add(&mut self, start: u64, end: u64) {
        self.bytes = self.bytes.saturating_add(end.saturating_sub(start));
        match self.ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => self.ranges.push(AddressRange { start, end }),
        }
    }
}

/// Address range of a line of `maps`; `None` if the process may not access the range.
pub fn accessible(line: &str) -> Option<AddressRange> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    if rest.starts_with("---") {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    let range = AddressRange {
        start: number(start)?,
        end: number(end)?,
    };
    // Excludes the vsyscall page of x86, which is outside the user addresses.
    (range.start < range.end && range.end < ADDRESSES).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Proc;
    use proptest::prelude::*;

    /// Present pages. The tests use them because a machine may have no swap.
    const PRESENT: Category = Category {
        scan: 1 << 3,
        entry: 1 << 63,
        scan_not: 0,
        entry_not: 0,
    };

    fn own() -> Process {
        let proc = Proc::open("/proc").unwrap();
        proc.process(std::process::id() as i32).unwrap()
    }

    #[test]
    fn swap_slots_are_read_from_the_entries() {
        let slot = |area, offset| Some(SwapSlot { area, offset });
        assert_eq!(SwapSlot::of_entry(1 << 62 | 7 << 5 | 3), slot(3, 7));
        assert_eq!(
            SwapSlot::of_entry(1 << 62 | 1 << 55 | 1 << 54),
            slot(0, 1 << 49)
        );
        assert_eq!(SwapSlot::of_entry(1 << 62 | 3), None, "hidden");
        assert_eq!(SwapSlot::of_entry(1 << 63 | 7 << 5), None, "present");
        let text = vec![1u8; 3 * page_bytes() as usize];
        let start = text.as_ptr() as u64;
        let range = AddressRange {
            start,
            end: start + text.len() as u64,
        };
        assert_eq!(own().swap_slots(range).unwrap(), []);
    }

    #[test]
    fn both_methods_find_the_same_pages() {
        let page = page_bytes() as usize;
        let mut memory = vec![0u8; 16 * page];
        let base = memory.as_ptr() as usize;
        let first = base.next_multiple_of(page);
        for touched in [1, 2, 3, 7, 9] {
            memory[first + touched * page - base] = 1;
        }
        let own = own();
        let file = File::open("/proc/self/pagemap").unwrap();
        let walked = own.walk(&file, PRESENT, u64::MAX).unwrap();
        let within = |ranges: &[AddressRange], page_number: usize| {
            let address = (first + page_number * page) as u64;
            ranges
                .iter()
                .any(|range| (range.start..range.end).contains(&address))
        };
        for touched in [1, 2, 3, 7, 9] {
            assert!(within(&walked, touched));
        }
        let scanned = match own.scan(file.as_fd(), PRESENT, u64::MAX) {
            Ok(ranges) => ranges,
            // Before Linux 6.7.
            Err(error) => return assert!(error.is_unsupported(), "{error}"),
        };
        for touched in [1, 2, 3, 7, 9] {
            assert!(within(&scanned, touched));
        }
        for number in 0..15 {
            assert_eq!(
                within(&walked, number),
                within(&scanned, number),
                "{number}"
            );
        }
        assert!(scanned.windows(2).all(|pair| pair[0].end < pair[1].start));
    }

    #[test]
    fn memory_and_files_are_distinguished() {
        let page = page_bytes() as usize;
        let memory = vec![1u8; 4 * page];
        let inside = (memory.as_ptr() as usize).next_multiple_of(page) as u64;
        let code = accessible as *const () as u64;
        let own = own();
        let has = |ranges: &[AddressRange], address: u64| {
            let mut all = ranges.iter();
            all.any(|range| (range.start..range.end).contains(&address))
        };
        let (files, anonymous) = (own.file_pages(u64::MAX), own.anonymous_pages(u64::MAX));
        let (files, anonymous) = (files.unwrap(), anonymous.unwrap());
        assert!(has(&anonymous, inside) && !has(&files, inside));
        assert!(has(&files, code) && !has(&anonymous, code));
        let file = File::open("/proc/self/pagemap").unwrap();
        let walked = own.walk(&file, ANONYMOUS, u64::MAX).unwrap();
        assert!(has(&walked, inside) && !has(&walked, code));
    }

    #[test]
    fn results_are_limited_to_the_requested_bytes() {
        let own = own();
        let file = File::open("/proc/self/pagemap").unwrap();
        let page = page_bytes();
        for most in [0, 1, page, 5 * page + 1] {
            let bytes =
                |ranges: Vec<AddressRange>| -> u64 { ranges.iter().map(AddressRange::bytes).sum() };
            let wanted = most / page * page;
            assert_eq!(bytes(own.walk(&file, PRESENT, most).unwrap()), wanted);
            assert_eq!(bytes(own.find(PRESENT, most).unwrap()), wanted);
        }
    }

    #[test]
    fn process_without_swap_has_no_swapped_ranges() {
        let status = own().status().unwrap();
        let ranges = own().swapped(u64::MAX).unwrap();
        if status.swap_bytes == Some(0) {
            assert_eq!(ranges, []);
        }
    }

    #[test]
    fn dead_process_is_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let proc = Proc::open("/proc").unwrap();
        let process = proc.process(child.id() as i32).unwrap();
        assert!(process.swapped(0).unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.swapped(u64::MAX).unwrap_err().is_gone());
    }

    #[test]
    fn only_accessible_ranges_are_read() {
        let range = |start, end| Some(AddressRange { start, end });
        assert_eq!(
            accessible("1000-3000 rw-p 0 00:00 0 [heap]"),
            range(0x1000, 0x3000)
        );
        assert_eq!(accessible("1000-3000 ---p 0 00:00 0"), None);
        assert_eq!(
            accessible("ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]"),
            None
        );
        assert_eq!(accessible("3000-1000 rw-p"), None);
        assert_eq!(accessible("nonsense"), None);
    }

    proptest! {
        #[test]
        fn lines_never_panic(line in any::<String>()) {
            accessible(&line);
        }
    }
}
