// SPDX-License-Identifier: GPL-2.0-or-later
//! Another process's memory: advice about parts of it, and giving it back when the process is
//! being killed.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::pidfd::Pidfd;

/// Ranges with one call, and bytes of each: the kernel takes no more than 1024, and forgets what
/// goes beyond 2 GiB.
const BATCH: usize = 1024;
const PIECE: u64 = 1 << 20;

/// Addresses of a process, in whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    /// First address.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
}

impl AddressRange {
    /// Number of bytes.
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

/// How many pieces from the first one on make up so many bytes.
fn pieces_in(pieces: &[AddressRange], bytes: u64) -> usize {
    let mut left = bytes;
    let whole = pieces.iter().take_while(|piece| {
        let fits = left >= piece.bytes();
        left = left.saturating_sub(piece.bytes());
        fits
    });
    whole.count()
}

/// What may be said of another process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteAdvice {
    /// It will be used: what is in swap is read, and what files lack. Nothing is mapped, so a
    /// first use still faults, but does not wait.
    WillNeed,
    /// It is the first to go when memory is short.
    Cold,
    /// It goes now.
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

/// What became of a request to give a dying process's memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It is free, as far as nobody shares it.
    Done,
    /// The process was quicker: it has no memory any more.
    AlreadyGone,
    /// Not now: somebody else works on its memory. Asking again helps.
    Contended,
    /// The process is not dying, or shares its memory with one that is not.
    StillLiving,
}

impl Pidfd {
    /// Gives advice about ranges of the process's memory; returns the number of bytes for which it
    /// was taken. Ranges of which a part is not mapped any more, and memory that is locked or
    /// special, are passed over: a process changes while one looks at it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] before Linux 5.10, [`Error::Gone`] when the process has ended,
    /// [`Error::Permission`] without CAP_SYS_NICE and CAP_SYS_PTRACE.
    pub fn advise(&self, ranges: &[AddressRange], advice: RemoteAdvice) -> Result<u64> {
        let pieces: Vec<AddressRange> = ranges.iter().flat_map(AddressRange::pieces).collect();
        let mut taken = 0u64;
        let mut rest = &pieces[..];
        while !rest.is_empty() {
            let batch = &rest[..rest.len().min(BATCH)];
            let served = match self.advise_some(batch, advice) {
                // The kernel stops in front of the piece that it refuses.
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
        // SAFETY: `vectors` lives as long as the call. The addresses are another process's: nothing
        // of ours is accessed, and no advice of the three changes what memory holds.
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

    /// Sends SIGKILL. Allocates nothing, so that the error is a bare number: [`Errno::SRCH`] when
    /// the process has exited.
    pub fn kill(&self) -> Result<(), Errno> {
        rustix::process::pidfd_send_signal(self, rustix::process::Signal::KILL)
    }

    /// Takes the memory of a process that has been sent SIGKILL, before the process itself gets
    /// round to it. Allocates nothing, so that the error is a bare number: [`Errno::NOSYS`] before
    /// Linux 5.15, [`Errno::PERM`] for another user's process.
    pub fn release_memory(&self) -> Result<Released, Errno> {
        // SAFETY: plain numbers; the descriptor lives as long as the call.
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

    /// Pages of this process, all written to.
    struct Pages(std::ptr::NonNull<libc::c_void>, u64);

    impl Pages {
        fn new(pages: u64) -> Pages {
            use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
            let bytes = pages * page_bytes();
            // SAFETY: a new mapping at an address of the kernel's choice, written to within its
            // bounds.
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
            // SAFETY: the mapping is ours and whole, and nobody uses it any more.
            let _ = unsafe { rustix::mm::munmap(self.0.as_ptr(), self.1 as usize) };
        }
    }

    fn own() -> Pidfd {
        Pidfd::open(std::process::id() as i32).unwrap()
    }

    #[test]
    fn advice_passes_over_what_is_not_mapped() {
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
                // A kernel without it.
                Err(error) => assert!(error.is_unsupported(), "{error}"),
            }
        }
        assert_eq!(own.advise(&[], RemoteAdvice::Cold).unwrap(), 0);
    }

    #[test]
    fn long_ranges_are_taken_in_pieces() {
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
    fn more_ranges_than_one_call_takes() {
        let pages = Pages::new(1);
        let many = vec![pages.range(); 2 * BATCH + 1];
        match own().advise(&many, RemoteAdvice::Cold) {
            Ok(bytes) => assert_eq!(bytes, many.len() as u64 * page_bytes()),
            Err(error) => assert!(error.is_unsupported(), "{error}"),
        }
    }

    #[test]
    fn only_the_memory_of_the_dying_is_released() {
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
        pidfd.kill().unwrap();
        let released = pidfd.release_memory().unwrap();
        assert_ne!(released, Released::StillLiving);
        child.wait().unwrap();
        assert_eq!(pidfd.kill(), Err(Errno::SRCH));
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
