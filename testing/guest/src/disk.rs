// SPDX-License-Identifier: GPL-2.0-or-later
//! A disk's request counters and queue settings.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::guest_setup::number_in;

/// A disk, by its directory in sysfs.
#[derive(Debug, Clone)]
pub struct Disk(PathBuf);

/// Counters of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Completed read requests.
    pub reads: u64,
    /// KiB read.
    pub read_kib: u64,
    /// Completed write requests.
    pub writes: u64,
    /// KiB written.
    pub written_kib: u64,
}

impl Disk {
    /// The disk that `path` is on; for a block device, the device itself.
    pub fn of(path: &Path) -> Result<Self> {
        let meta = fs::metadata(path).with_context(|| format!("cannot stat {}", path.display()))?;
        let device = if meta.file_type().is_block_device() {
            meta.rdev()
        } else {
            meta.dev()
        };
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Disk(format!("/sys/dev/block/{major}:{minor}").into()))
    }

    /// The directory of the disk's queue; for a partition, that of its disk.
    fn queue(&self) -> PathBuf {
        let own = self.0.join("queue");
        if own.is_dir() {
            own
        } else {
            self.0.join("../queue")
        }
    }

    /// The disk's counters so far.
    pub fn requests(&self) -> Result<Requests> {
        let path = self.0.join("stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text).with_context(|| format!("cannot parse {}: {text:?}", path.display()))
    }

    /// Sets the disk's I/O scheduler, which must be built in or loaded.
    pub fn set_scheduler(&self, name: &str) -> Result<()> {
        let path = self.queue().join("scheduler");
        fs::write(&path, name).with_context(|| format!("cannot write {name} to {}", path.display()))
    }

    /// The kernel's read-ahead on this disk, in KiB.
    pub fn read_ahead_kib(&self) -> Result<u64> {
        number_in(&self.queue().join("read_ahead_kb"))
    }

    /// Sets the kernel's read-ahead on this disk for all processes, in KiB.
    pub fn set_read_ahead_kib(&self, kib: u64) -> Result<()> {
        let path = self.queue().join("read_ahead_kb");
        fs::write(&path, kib.to_string())
            .with_context(|| format!("cannot write {kib} to {}", path.display()))
    }
}

impl Requests {
    /// The increase of each counter since `before`.
    pub fn since(self, before: Requests) -> Requests {
        Requests {
            reads: self.reads.saturating_sub(before.reads),
            read_kib: self.read_kib.saturating_sub(before.read_kib),
            writes: self.writes.saturating_sub(before.writes),
            written_kib: self.written_kib.saturating_sub(before.written_kib),
        }
    }
}

fn parse(stat: &str) -> Option<Requests> {
    let mut fields = stat.split_ascii_whitespace().map(str::parse::<u64>);
    let reads = fields.next()?.ok()?;
    let sectors_read = fields.nth(1)?.ok()?;
    let writes = fields.nth(1)?.ok()?;
    let sectors_written = fields.nth(1)?.ok()?;
    Some(Requests {
        reads,
        read_kib: sectors_read / 2,
        writes,
        written_kib: sectors_written / 2,
    })
}

#[cfg(test)]
mod tests {
    use super::{parse, Disk, Requests};

    #[test]
    fn partition_uses_the_queue_of_its_disk() {
        let disk = tempfile::tempdir().unwrap();
        let partition = disk.path().join("sda1");
        std::fs::create_dir(&partition).unwrap();
        std::fs::create_dir(disk.path().join("queue")).unwrap();
        let file = disk.path().join("queue/read_ahead_kb");
        std::fs::write(&file, "4096").unwrap();
        Disk(partition).set_read_ahead_kib(128).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "128");
    }

    #[test]
    fn disk_counters_are_parsed() {
        let requests = parse("     240        5    61440      312       7 1 96 8\n").unwrap();
        let expected = Requests {
            reads: 240,
            read_kib: 30720,
            writes: 7,
            written_kib: 48,
        };
        assert_eq!(requests, expected);
        assert_eq!(parse("240 5"), None);
    }
}
