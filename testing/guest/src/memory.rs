// SPDX-License-Identifier: GPL-2.0-or-later
//! Memory that a guest program maps, touches and queries.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use anyhow::{Context, Result};

use crate::random::Random;

/// Bytes in a page of the lab's guests.
pub const PAGE: usize = 4096;
/// Bytes in a MiB.
pub const MIB: usize = 1 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;

/// A memory mapping of this process, unmapped on drop.
pub struct Mapping {
    address: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of anonymous memory and touches none of them.
    pub fn anonymous(len: usize) -> Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        Self::checked(address, len)
            .with_context(|| format!("cannot map {len} bytes of anonymous memory"))
    }

    /// Maps `len` bytes of `file` from `offset` on, read-only.
    pub fn file(file: &File, offset: u64, len: usize) -> Result<Self> {
        // SAFETY: a new read-only mapping at an address of the kernel's choice; the guest's files
        // neither shrink nor change while they are mapped.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        Self::checked(address, len)
            .with_context(|| format!("cannot map {len} bytes of a file at offset {offset}"))
    }

    fn checked(address: *mut libc::c_void, len: usize) -> io::Result<Self> {
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping {
            address: address.cast(),
            len,
        })
    }

    /// Number of whole pages.
    pub fn pages(&self) -> usize {
        self.len / PAGE
    }

    /// Reads one word of every cache line of a page, as a program that displays the page would.
    pub fn read_page(&self, page: usize) -> u64 {
        assert!(page < self.pages());
        let mut sum = 0u64;
        for line in 0..PAGE / LINE {
            // SAFETY: the address lies inside the mapping, which is readable and lives as long as
            // `self`; it is aligned to a cache line.
            let word = unsafe {
                ptr::read_volatile(self.address.add(page * PAGE + line * LINE).cast::<u64>())
            };
            sum = sum.wrapping_add(word);
        }
        sum
    }

    /// Reads one word of a page.
    pub fn touch_page(&self, page: usize) -> u64 {
        assert!(page < self.pages());
        // SAFETY: as in `read_page`.
        unsafe { ptr::read_volatile(self.address.add(page * PAGE).cast::<u64>()) }
    }

    /// Writes one word of a page of anonymous memory.
    pub fn dirty_page(&mut self, page: usize, word: u64) {
        assert!(page < self.pages());
        // SAFETY: as in `read_page`; only anonymous mappings, which are writable, are dirtied, and
        // `&mut self` excludes every other access.
        unsafe { ptr::write_volatile(self.address.add(page * PAGE).cast::<u64>(), word) }
    }

    /// Whether every byte of a page is 0.
    pub fn is_zero(&self, page: usize) -> bool {
        assert!(page < self.pages());
        (0..PAGE / 8).all(|word| {
            // SAFETY: as in `read_page`.
            let word = unsafe {
                let start = self.address.add(page * PAGE).cast::<u64>();
                ptr::read_volatile(start.add(word))
            };
            word == 0
        })
    }

    /// Dirties every byte of a page of anonymous memory.
    pub fn soil(&mut self, page: usize) {
        assert!(page < self.pages());
        // SAFETY: as in `dirty_page`.
        unsafe { ptr::write_bytes(self.address.add(page * PAGE), 0xa5, PAGE) };
    }

    /// Frees a page of anonymous memory with MADV_DONTNEED.
    pub fn discard_page(&mut self, page: usize) -> Result<()> {
        assert!(page < self.pages());
        // SAFETY: the page lies inside the mapping, and `&mut self` excludes every other access.
        let done = unsafe {
            let start = self.address.add(page * PAGE);
            libc::madvise(start.cast(), PAGE, libc::MADV_DONTNEED)
        };
        if done != 0 {
            return Err(io::Error::last_os_error()).context("MADV_DONTNEED failed");
        }
        Ok(())
    }

    /// Start address.
    pub fn address(&self) -> *const u8 {
        self.address
    }

    /// Fills half of an anonymous page with noise, so that zram compresses it to half its size.
    pub fn fill_page(&mut self, page: usize, random: &mut Random) {
        self.fill_words(page, PAGE / 16, random);
    }

    /// Fills the first `words` of the 512 words of an anonymous page with noise.
    pub fn fill_words(&mut self, page: usize, words: usize, random: &mut Random) {
        assert!(page < self.pages() && words <= PAGE / 8);
        for word in 0..words {
            // SAFETY: as in `dirty_page`.
            unsafe {
                ptr::write_volatile(
                    self.address.add(page * PAGE + word * 8).cast::<u64>(),
                    random.word(),
                )
            }
        }
    }

    /// Number of resident pages; for a file, the pages in the page cache.
    pub fn resident_pages(&self) -> Result<usize> {
        let mut map = vec![0u8; self.len.div_ceil(PAGE)];
        // SAFETY: `map` has one byte for each page of the range, which is mapped by us.
        let done = unsafe { libc::mincore(self.address.cast(), self.len, map.as_mut_ptr()) };
        if done != 0 {
            return Err(io::Error::last_os_error()).context("mincore failed");
        }
        Ok(map.iter().filter(|&&byte| byte & 1 != 0).count())
    }

    /// Maps the first page of a file writable and shared, for a counter that two processes use.
    pub fn shared_word(file: &File) -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice; all accesses are atomic.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        Self::checked(address, PAGE).context("cannot map the counter's file")
    }

    /// The mapping's first word as an atomic.
    pub fn word(&self) -> &std::sync::atomic::AtomicU64 {
        // SAFETY: the mapping is page-aligned, at least a page long, and lives as long as `self`;
        // it is only accessed through atomics.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(self.address.cast()) }
    }

    /// Maps `len` bytes of anonymous memory and locks them.
    pub fn locked(len: usize) -> Result<Self> {
        let mapping = Self::anonymous(len)?;
        mapping.lock()?;
        Ok(mapping)
    }

    /// Locks the mapping in memory.
    pub fn lock(&self) -> Result<()> {
        // SAFETY: the range is our own mapping.
        if unsafe { libc::mlock(self.address.cast(), self.len) } != 0 {
            return Err(io::Error::last_os_error()).context("mlock failed");
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us and no reference into it outlives `self`.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

/// Number of pages of a file range that are in the page cache. The query maps the range, but faults
/// in no page, so it does not make pages look used. `offset` is a multiple of the page size.
pub fn cached_pages(file: &File, offset: u64, len: u64) -> Result<u64> {
    Ok(Mapping::file(file, offset, len as usize)?.resident_pages()? as u64)
}

/// This process's major faults so far.
pub fn major_faults() -> u64 {
    usage(libc::RUSAGE_SELF).ru_majflt as u64
}

/// Peak RSS among the children that this process has waited for, in KiB.
pub fn peak_of_children_kib() -> u64 {
    usage(libc::RUSAGE_CHILDREN).ru_maxrss as u64
}

/// CPU time of the children that this process has waited for, in microseconds.
pub fn cpu_of_children_us() -> u64 {
    let usage = usage(libc::RUSAGE_CHILDREN);
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

fn usage(whose: libc::c_int) -> libc::rusage {
    // SAFETY: an all-zero rusage is valid, and getrusage fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of a process with all its threads, in nanoseconds; 0 when it has exited.
pub fn cpu_ns(pid: i32) -> u64 {
    let mut clock = 0;
    // SAFETY: `clock` is valid.
    match unsafe { libc::clock_getcpuclockid(pid, &mut clock) } {
        0 => clock_ns(clock),
        _ => 0,
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec; it stays zero if the clock no longer exists.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::{cached_pages, cpu_ns, Mapping, MIB, PAGE};
    use crate::random::Random;

    #[test]
    fn anonymous_memory_becomes_resident_page_by_page() {
        let mut memory = Mapping::anonymous(MIB).unwrap();
        assert_eq!(memory.pages(), MIB / PAGE);
        let before = memory.resident_pages().unwrap();
        memory.fill_page(3, &mut Random::new(1));
        memory.dirty_page(200, 5);
        assert!(memory.resident_pages().unwrap() > before);
        assert_eq!(memory.touch_page(200), 5);
        assert_ne!(memory.read_page(3), 0);
    }

    #[test]
    fn running_process_uses_cpu_time() {
        let pid = std::process::id() as i32;
        let before = cpu_ns(pid);
        let mut random = Random::new(1);
        assert_ne!((0..100_000).fold(0, |sum, _| sum ^ random.word()), 0);
        assert!(cpu_ns(pid) > before);
        // No PID is that large.
        assert_eq!(cpu_ns((1 << 22) + 1), 0);
    }

    #[test]
    fn written_file_is_cached() {
        let mut file = tempfile();
        std::io::Write::write_all(&mut file, &[1u8; 4 * PAGE]).unwrap();
        assert_eq!(cached_pages(&file, 0, 4 * PAGE as u64).unwrap(), 4);
        assert_eq!(
            cached_pages(&file, PAGE as u64, PAGE as u64 + 1).unwrap(),
            2
        );
        let mapping = Mapping::file(&file, 0, 4 * PAGE).unwrap();
        assert_eq!(mapping.resident_pages().unwrap(), 4);
    }

    fn tempfile() -> std::fs::File {
        tempfile::tempfile().unwrap()
    }
}
