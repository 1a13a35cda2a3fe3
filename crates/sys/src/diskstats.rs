// SPDX-License-Identifier: GPL-2.0-or-later
//! Traffic of each block device: `/proc/diskstats`.

use crate::error::Result;
use crate::proc::Proc;

/// Unit of the kernel's counters in bytes, independent of the sector size of the device.
const SECTOR: u64 = 512;

/// Traffic of one disk, partition or virtual device, since boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskTraffic {
    /// Name, such as `vda2`.
    pub name: String,
    /// Number of read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Proc {
    /// Traffic of all block devices. The traffic of a disk includes the traffic of its partitions.
    pub fn disk_traffic(&self) -> Result<Vec<DiskTraffic>> {
        let text = self.dir().read_text("diskstats")?;
        Ok(text.lines().filter_map(parse).collect())
    }
}

/// Parses a line of `/proc/diskstats`; `None` if it lacks the write counters.
pub fn parse(line: &str) -> Option<DiskTraffic> {
    // The fields follow the two device numbers: Documentation/admin-guide/iostats.rst.
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?.to_owned();
    let fields: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let bytes = |field: usize| fields.get(field)?.checked_mul(SECTOR);
    Some(DiskTraffic {
        name,
        reads: *fields.first()?,
        read_bytes: bytes(2)?,
        writes: *fields.get(4)?,
        written_bytes: bytes(6)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_sectors_of_512() {
        let line = " 254       0 vda 100 2 80 3 50 4 160 5 0 6 7 0 0 0 0 1 2";
        let expected = DiskTraffic {
            name: "vda".to_owned(),
            reads: 100,
            read_bytes: 80 * 512,
            writes: 50,
            written_bytes: 160 * 512,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("254 0 vda 1 2 3"), None);
    }

    #[test]
    fn tree_without_disks_has_no_traffic() {
        let temp = tempfile::tempdir().unwrap();
        let proc = Proc::open(temp.path().to_str().unwrap()).unwrap();
        assert!(proc.disk_traffic().unwrap_err().is_gone());
        std::fs::write(temp.path().join("diskstats"), "\n").unwrap();
        assert_eq!(proc.disk_traffic().unwrap(), []);
    }

    proptest! {
        #[test]
        fn never_panics(line in any::<String>()) {
            parse(&line);
        }
    }
}
