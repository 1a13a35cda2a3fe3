// SPDX-License-Identifier: GPL-2.0-or-later
//! The test's files. They have no name, so they are gone when the last process closes them.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use limelight_sys::pagecache;
use rustix::fs::Advice;
use rustix::io::FdFlags;

use super::stop::Stop;
use super::{failed, LOAD, MIB, PHOTOS};
use crate::exit::Failure;

/// The files of viewer and load. Child processes inherit their descriptors.
#[derive(Debug)]
pub struct Files {
    /// The viewer's.
    pub photos: File,
    /// The load's.
    pub load: File,
}

impl Files {
    /// Writes both files to the disk and drops them from the page cache, so that their pages are
    /// charged to the process that reads them first.
    pub fn write(directory: &Path, stop: &Stop) -> Result<Files, Failure> {
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
        Ok(Files {
            photos: write(directory, PHOTOS, &mut noise, stop)?,
            load: write(directory, LOAD, &mut noise, stop)?,
        })
    }
}

fn write(directory: &Path, bytes: u64, noise: &mut Noise, stop: &Stop) -> Result<File, Failure> {
    let in_directory = |error| {
        Failure::Other(format!(
            "cannot write a file in {}: {error}",
            directory.display()
        ))
    };
    let mut file = tempfile::tempfile_in(directory).map_err(in_directory)?;
    let mut block = vec![0; MIB as usize];
    for _ in 0..bytes / MIB {
        stop.check()?;
        noise.fill(&mut block);
        file.write_all(&block).map_err(in_directory)?;
    }
    file.sync_all().map_err(in_directory)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?;
    let cached = pagecache::cached(&file, bytes).map_err(failed)?;
    if cached.iter().map(|range| range.len).sum::<u64>() > bytes / 10 {
        return Err(Failure::Curable {
            message: format!(
                "the file system of {} keeps its files in memory, so the test could show nothing",
                directory.display()
            ),
            cure: "name a directory on a disk: limelight selftest --directory DIR".to_owned(),
        });
    }
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).map_err(std::io::Error::from)?;
    Ok(file)
}

/// Pseudorandom bytes (xorshift), which no file system can compress or deduplicate.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, block: &mut [u8]) {
        for word in block.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn directory_in_memory_is_refused() {
        let stop = Stop::new(Duration::from_secs(600)).unwrap();
        let directory = Path::new("/dev/shm");
        let kind = rustix::fs::statfs(directory).map(|stat| stat.f_type);
        if kind != Ok(0x0102_1994) {
            return;
        }
        let refused = write(directory, MIB, &mut Noise(1), &stop).unwrap_err();
        assert!(
            refused.to_string().contains("keeps its files in memory"),
            "{refused}"
        );
    }

    #[test]
    fn missing_directory_is_named() {
        let stop = Stop::new(Duration::from_secs(600)).unwrap();
        let refused = write(Path::new("/no/such"), MIB, &mut Noise(1), &stop).unwrap_err();
        assert!(refused.to_string().contains("/no/such"), "{refused}");
    }
}
