// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads a file through a mapping, so that pages that are not in memory cause page faults.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::meminfo::page_bytes;

/// A whole file, mapped for reading.
#[derive(Debug)]
pub struct MappedFile {
    address: *mut libc::c_void,
    len: usize,
    page: usize,
}

impl MappedFile {
    /// Maps a file and reads none of its pages.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an empty file.
    pub fn new(file: &File) -> Result<MappedFile> {
        let failed = |errno| Error::new("map", "a file", errno);
        let stat = rustix::fs::fstat(file).map_err(failed)?;
        let len = usize::try_from(stat.st_size).map_err(|_| failed(Errno::NOMEM))?;
        // SAFETY: the kernel chooses a free address for the mapping.
        let address = unsafe {
            let null = std::ptr::null_mut();
            mm::mmap(
                null,
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        };
        Ok(MappedFile {
            address: address.map_err(failed)?,
            len,
            page: page_bytes() as usize,
        })
    }

    /// Number of pages, the last one possibly incomplete.
    pub fn pages(&self) -> usize {
        self.len.div_ceil(self.page)
    }

    /// Reads the first byte of a page. If the file has become shorter or cannot be read, the kernel
    /// ends the process with SIGBUS.
    ///
    /// # Panics
    ///
    /// If there is no such page.
    pub fn touch(&self, page: usize) -> u8 {
        assert!(page < self.pages(), "page {page} of {}", self.pages());
        // SAFETY: the address is inside our mapping, which is readable.
        unsafe {
            self.address
                .cast::<u8>()
                .add(page * self.page)
                .read_volatile()
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the range is our whole mapping, and nothing else uses it.
        let _ = unsafe { mm::munmap(self.address, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_of_a_file_are_read() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(MappedFile::new(&file).is_err());
        let page = page_bytes() as usize;
        file.write_all(&vec![7; page]).unwrap();
        file.write_all(&[9]).unwrap();
        let mapped = MappedFile::new(&file).unwrap();
        assert_eq!(mapped.pages(), 2);
        assert_eq!((mapped.touch(0), mapped.touch(1)), (7, 9));
    }
}
