// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's large files: in a directory of a disk, or as extents of a raw device.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::memory::{MIB, PAGE};

/// A file, or a range of a device used as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// File or device.
    pub path: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, a multiple of the page size.
    pub len: u64,
}

impl Extent {
    /// Opens the file or device for reading.
    pub fn open(&self) -> Result<File> {
        File::open(&self.path).with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.len as usize / PAGE
    }
}

/// Provides files of requested sizes.
#[derive(Debug)]
pub enum Store {
    /// Files of a mounted file system.
    Directory(PathBuf),
    /// Consecutive extents of a device.
    Device {
        /// The device.
        path: PathBuf,
        /// The device for writes, which it discards, so that they take no guest memory.
        sink: PathBuf,
        /// Size of both, in bytes.
        size: u64,
        /// First unallocated byte.
        next: u64,
    },
}

impl Store {
    /// A file of `mib` MiB for reading. In a directory, the file is created unless it exists with
    /// that size. The pages of a created file are numbered, so that no two are identical.
    pub fn file(&mut self, name: &str, mib: u32) -> Result<Extent> {
        let len = u64::from(mib) * MIB as u64;
        match self {
            Store::Directory(directory) => {
                let path = directory.join(format!("{name}-{mib}M"));
                if fs::metadata(&path).map_or(true, |found| found.len() != len) {
                    create(&path, len)
                        .with_context(|| format!("cannot create {}", path.display()))?;
                }
                Ok(Extent {
                    path,
                    offset: 0,
                    len,
                })
            }
            Store::Device {
                path, size, next, ..
            } => {
                let offset = *next;
                if offset + len > *size {
                    bail!(
                        "{} has {size} bytes, but {name} would end at byte {}: \
                         give the machine a larger data device",
                        path.display(),
                        offset + len
                    );
                }
                *next += len;
                Ok(Extent {
                    path: path.clone(),
                    offset,
                    len,
                })
            }
        }
    }

    /// A file or extent for writing up to `mib` MiB.
    pub fn target(&self, name: &str, mib: u32) -> Extent {
        let len = u64::from(mib) * MIB as u64;
        let (path, len) = match self {
            Store::Directory(directory) => (directory.join(name), len),
            Store::Device { sink, size, .. } => (sink.clone(), len.min(*size)),
        };
        Extent {
            path,
            offset: 0,
            len,
        }
    }
}

fn create(path: &Path, len: u64) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let mut chunk = vec![0u8; MIB];
    let mut page = 0u64;
    file.seek(SeekFrom::Start(0))?;
    for _ in 0..len / MIB as u64 {
        for bytes in chunk.chunks_exact_mut(PAGE) {
            bytes[..8].copy_from_slice(&page.to_le_bytes());
            page += 1;
        }
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Extent, Store};

    #[test]
    fn directory_creates_a_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = Store::Directory(directory.path().to_owned());
        let first = store.file("photos", 2).unwrap();
        let written = first.path.metadata().unwrap().modified().unwrap();
        assert_eq!(first.path.metadata().unwrap().len(), 2 << 20);
        assert_eq!(store.file("photos", 2).unwrap(), first);
        assert_eq!(first.path.metadata().unwrap().modified().unwrap(), written);
    }

    #[test]
    fn device_allocates_disjoint_extents_until_full() {
        let mut store = Store::Device {
            path: "/dev/data".into(),
            sink: "/dev/sink".into(),
            size: 3 << 20,
            next: 0,
        };
        let a = store.file("a", 1).unwrap();
        let b = store.file("b", 2).unwrap();
        assert_eq!(a.offset + a.len, b.offset);
        let error = store.file("c", 1).unwrap_err().to_string();
        assert!(error.contains("larger data device"), "{error}");
        assert_eq!(
            store.target("copy", 9),
            Extent {
                path: "/dev/sink".into(),
                offset: 0,
                len: 3 << 20
            }
        );
    }
}
