// SPDX-License-Identifier: GPL-2.0-or-later
//! Operations on the memory of another process: advice on address ranges, and the release of all
//! memory of a killed process.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::error::{Error, Result};
use crate::pidfd::Pidfd;

/// Maximum number of ranges per call: the limit of the kernel.
const BATCH: usize = 1024;
/// Maximum number of bytes per range. A full batch is then 1 GiB; the kernel ignores everything
/// beyond 2 GiB per call.
const PIECE: u64 = 1 << 20;

/// An address range of a process, in whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
}

impl AddressRange {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn pieces(&self) -> impl Iterator<Item = AddressRange> {
        let AddressRange { start, end } = *self;
        let starts = (start..end).step_by(PIECE as usize);
        starts.map(move |start| AddressRange {
            start,
            end: end.min(start.saturating_add(PIECE)),
        })
    }
}

/// Number of leading pieces that fit completely into `bytes` bytes.
fn pieces_in(pieces: &[AddressRange], bytes: u64) -> usize {
    let mut left = bytes;
    let whole = pieces.iter().take_while(|piece| {
        let fits = left >= piece.bytes();
        left = left.saturating_sub(piece.bytes());
        fits
    });
    whole.count()
}

/// Advice on another process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAdvice {
    /// The memory will be used: reads swapped pages and missing file pages. Maps nothing, so the
    /// first access still faults, but does not wait for I/O.
    WillNeed,
    /// The kernel reclaims this memory first when memory becomes short.
    Cold,
    /// The kernel reclaims the memory now.
    PageOut,
}

impl RemoteAdvice {
    fn number(self) -> libc::c_int {
        match self {
            RemoteAdvice::WillNeed => libc::MADV_WILLNEED,
            RemoteAdvice::Cold => libc::MADV_COLD,
            RemoteAdvice::PageOut => libc::MADV_PAGEOUT,
        }
    }
}

/// Result of a request to release the memory of a killed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The memory is free, except for pages that other processes share.
    Done,
    /// The process has already released its memory.
    AlreadyGone,
    /// The kernel could not release the memory at this moment (`EAGAIN`, `EINTR`); a retry can
    /// succeed.
    Contended,
    /// The process was not killed, or shares its memory with a process that was not killed.
    StillLiving,
}

impl Pidfd {
    /// Gives advice on ranges of the process's memory. Returns the number of bytes that the kernel
    /// processed. Splits the ranges into pieces of at most 1 MiB, and skips pieces that the kernel
    /// refuses: locked or special memory, and memory that the process has unmapped in the meantime.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] before Linux 5.10, [`Error::Gone`] if the process has ended,
    /// [`Error::Permission`] without CAP_SYS_NICE and CAP_SYS_PTRACE.
    pub fn advise(&self, ranges: &[AddressRange], advice: RemoteAdvice) -> Result<u64> {
        let pieces: Vec<AddressRange> = ranges.iter().flat_map(AddressRange::pieces).collect();
        let mut taken = 0u64;
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(BATCH)];
            let served = match self.advise_some(batch, advice) {
                // The kernel stops at the first piece that it refuses.
                Ok(bytes) => {
                    taken = taken.saturating_add(bytes);
                    pieces_in(batch, bytes)
                }
                Err(Errno::NOMEM | Errno::INVAL | Errno::FAULT | Errno::BADF) => 0,
                Err(errno) => return Err(self.failed("advise on the memory of", errno)),
            };
            rest = &rest[(served + usize::from(served < batch.len()))..];
        }
        Ok(taken)
    }

    fn advise_some(&self, ranges: &[AddressRange], advice: RemoteAdvice) -> Result<u64, Errno> {
        let vectors: Vec<libc::iovec> = ranges
            .iter()
            .map(|range| libc::iovec {
                iov_base: range.start as *mut libc::c_void,
                iov_len: range.bytes() as usize,
            })
            .collect();
        // SAFETY: `vectors` outlives the call. The addresses belong to the process of the pidfd.
        // None of the three kinds of advice changes the contents of memory.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                self.as_fd().as_raw_fd(),
                vectors.as_ptr(),
                vectors.len(),
                advice.number(),
                0,
            )
        };
        u64::try_from(done).map_err(|_| last_errno())
    }

    /// Sends a signal. The error is a bare number, so that this does not allocate: [`Errno::SRCH`]
    /// if the process has exited.
    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(self, signal)
    }

    /// Releases the memory of a process that was sent SIGKILL, without waiting for the exit of the
    /// process. The error is a bare number, so that this does not allocate: [`Errno::NOSYS`] before
    /// Linux 5.15, [`Errno::PERM`] for a process of another user.
    pub fn release_memory(&self) -> Result<Released, Errno> {
        // SAFETY: all arguments are plain numbers, and the descriptor is open during the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_mrelease,
                self.as_fd().as_raw_fd(),
                0 as libc::c_uint,
            )
        };
        match done {
            0 => Ok(Released::Done),
            _ => match last_errno() {
                Errno::SRCH => Ok(Released::AlreadyGone),
                Errno::AGAIN | Errno::INTR => Ok(Released::Contended),
                Errno::INVAL => Ok(Released::StillLiving),
                errno => Err(errno),
            },
        }
    }

    fn failed(&self, action: &'static str, errno: Errno) -> Error {
        Error::new(action, format!("/proc/{}", self.pid()), errno)
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meminfo::page_bytes;

    /// A mapping of this process; all its pages have been written to.
    struct Pages(std::ptr::NonNull<libc::c_void>, u64);

    impl Pages {
        fn new(pages: u64) -> Pages {
            use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
            let bytes = pages * page_bytes();
            // SAFETY: the kernel chooses a free address for the mapping, and the write stays within
            // its bounds.
            let address = unsafe {
                let rights = ProtFlags::READ | ProtFlags::WRITE;
                let address = mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes as usize,
                    rights,
                    MapFlags::PRIVATE,
                )
                .unwrap();
                std::ptr::write_bytes(address.cast::<u8>(), 7, bytes as usize);
                address
            };
            Pages(std::ptr::NonNull::new(address).unwrap(), bytes)
        }

        fn range(&self) -> AddressRange {
            let start = self.0.as_ptr() as u64;
            AddressRange {
                start,
                end: start + self.1,
            }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the range is our whole mapping, and nothing else uses it.
            let _ = unsafe { rustix::mm::munmap(self.0.as_ptr(), self.1 as usize) };
        }
    }

    fn own() -> Pidfd {
        Pidfd::open(std::process::id() as i32).unwrap()
    }

    #[test]
    fn advice_skips_unmapped_ranges() {
        let pages = Pages::new(4);
        let own = own();
        // The first page of the address space is never mapped.
        let nothing = AddressRange {
            start: 0,
            end: page_bytes(),
        };
        for advice in [
            RemoteAdvice::Cold,
            RemoteAdvice::WillNeed,
            RemoteAdvice::PageOut,
        ] {
            let ranges = [nothing, pages.range(), nothing, pages.range(), nothing];
            match own.advise(&ranges, advice) {
                Ok(bytes) => assert_eq!(bytes, 8 * page_bytes(), "{advice:?}"),
                // This kernel does not support the advice.
                Err(error) => assert!(error.is_unsupported(), "{error}"),
            }
        }
        assert_eq!(own.advise(&[], RemoteAdvice::Cold).unwrap(), 0);
    }

    #[test]
    fn long_ranges_are_split_into_pieces() {
        let range = |start, end| AddressRange { start, end };
        let pieces: Vec<_> = range(4096, 4096 + 2 * PIECE + 8192).pieces().collect();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[2], range(4096 + 2 * PIECE, 4096 + 2 * PIECE + 8192));
        assert_eq!(pieces_in(&pieces, 2 * PIECE), 2);
        assert_eq!(pieces_in(&pieces, 2 * PIECE - 1), 1);
        assert_eq!(pieces_in(&pieces, u64::MAX), 3);
        assert_eq!(range(8192, 4096).pieces().count(), 0);
    }

    #[test]
    fn ranges_beyond_the_limit_of_one_call_are_processed() {
        let pages = Pages::new(1);
        let many = vec![pages.range(); 2 * BATCH + 1];
        match own().advise(&many, RemoteAdvice::Cold) {
            Ok(bytes) => assert_eq!(bytes, many.len() as u64 * page_bytes()),
            Err(error) => assert!(error.is_unsupported(), "{error}"),
        }
    }

    #[test]
    fn memory_is_released_only_after_a_kill() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pidfd = Pidfd::open(child.id() as i32).unwrap();
        match pidfd.release_memory() {
            Ok(released) => assert_eq!(released, Released::StillLiving),
            Err(errno) => {
                assert_eq!(errno, Errno::NOSYS);
                child.kill().unwrap();
                child.wait().unwrap();
                return;
            }
        }
        pidfd.signal(Signal::KILL).unwrap();
        let released = pidfd.release_memory().unwrap();
        assert_ne!(released, Released::StillLiving);
        child.wait().unwrap();
        assert_eq!(pidfd.signal(Signal::KILL), Err(Errno::SRCH));
        assert_eq!(pidfd.release_memory().unwrap(), Released::AlreadyGone);
        let error = pidfd.advise(
            &[AddressRange {
                start: 0,
                end: page_bytes(),
            }],
            RemoteAdvice::Cold,
        );
        assert!(error.unwrap_err().is_gone());
    }
}
