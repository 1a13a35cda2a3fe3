// SPDX-License-Identifier: GPL-2.0-or-later
//! What a disk was asked for.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A disk by its directory in sysfs.
#[derive(Debug, Clone)]
pub struct Disk(PathBuf);

/// Counters of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Read requests that were completed.
    pub reads: u64,
    /// KiB that they brought.
    pub read_kib: u64,
    /// Write requests that were completed.
    pub writes: u64,
    /// KiB that they took.
    pub written_kib: u64,
}

impl Disk {
    /// The disk on which `path` lies; of a block device, the device.
    pub fn of(path: &Path) -> Result<Self> {
        let meta =
            fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        let device = if meta.file_type().is_block_device() {
            meta.rdev()
        } else {
            meta.dev()
        };
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Disk(format!("/sys/dev/block/{major}:{minor}").into()))
    }

    /// What it was asked for so far.
    pub fn requests(&self) -> Result<Requests> {
        let path = self.0.join("stat");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(&text).with_context(|| format!("{} holds {text:?}", path.display()))
    }

    /// Gives it another scheduler; the kernel must have it, or its module must be loaded.
    pub fn set_scheduler(&self, name: &str) -> Result<()> {
        let path = self.0.join("queue/scheduler");
        fs::write(&path, name).with_context(|| format!("cannot write {name} to {}", path.display()))
    }

    /// How far the kernel reads ahead on it, in KiB.
    pub fn read_ahead_kib(&self) -> Result<u64> {
        let path = self.0.join("queue/read_ahead_kb");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.trim()
            .parse()
            .with_context(|| format!("{} holds {text:?}", path.display()))
    }

    /// Sets how far the kernel reads ahead on it, for everybody.
    pub fn set_read_ahead_kib(&self, kib: u64) -> Result<()> {
        let path = self.0.join("queue/read_ahead_kb");
        fs::write(&path, kib.to_string())
            .with_context(|| format!("cannot write {kib} to {}", path.display()))
    }
}

impl Requests {
    /// What happened since `before`.
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
    use super::{parse, Requests};

    #[test]
    fn a_disks_counters() {
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
