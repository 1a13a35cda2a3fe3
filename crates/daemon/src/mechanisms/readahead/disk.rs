// SPDX-License-Identifier: GPL-2.0-or-later
//! Read-ahead properties of a disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use limelight_sys::block;
use limelight_sys::dir::Dir;
use limelight_sys::meminfo::page_bytes;
use rustix::fs::{major, minor};

/// The kernel's default read-ahead, in bytes. Used in place of values that a device does not
/// report.
const ORDINARY: u64 = 128 << 10;

/// Properties of a device's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// How far the kernel reads ahead on its own, in bytes; 0: not at all.
    pub read_ahead: u64,
    /// Largest request, in bytes.
    pub request: u64,
    /// Largest request of pages that are not contiguous in memory, in bytes.
    pub scattered: u64,
    /// Whether it has to move a head to another position, as a hard disk does.
    pub rotational: bool,
}

impl Disk {
    /// Bytes to request per call. The kernel drops the part of a call that exceeds the larger of
    /// its read-ahead and the largest request. Whole multiples of `scattered` avoid a small last
    /// request.
    pub fn chunk(&self) -> u64 {
        let most = self.read_ahead.max(self.request);
        most / self.scattered * self.scattered
    }
}

/// Cache of device properties.
#[derive(Debug)]
pub struct Disks {
    sys: PathBuf,
    known: HashMap<u64, Disk>,
}

impl Disks {
    /// Creates an empty cache. `sys` is the mount point of sysfs.
    pub fn new(sys: &Path) -> Disks {
        Disks {
            sys: sys.to_owned(),
            known: HashMap::new(),
        }
    }

    /// The properties of the disk with this device number. They are read once and cached until
    /// [`Disks::forget`].
    pub fn get(&mut self, device: u64) -> Disk {
        let sys = &self.sys;
        *self
            .known
            .entry(device)
            .or_insert_with(|| look(sys, device))
    }

    /// Forgets all devices: their settings may have changed.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

fn look(sys: &Path, device: u64) -> Disk {
    let number = format!("{}:{}", major(device), minor(device));
    let queue = block::queue(&sys.join("dev/block").join(&number));
    let figure = |directory: &Dir, file: &str| -> Option<u64> {
        directory.read_text(file).ok()?.trim().parse().ok()
    };
    let of_queue = |file| figure(queue.as_ref()?, file);
    let bytes = |kib: u64| kib.checked_mul(1024);
    // A file system on several devices has a device number of its own and no queue.
    let of_file_system = || {
        let device = Dir::open(sys.join("class/bdi").join(&number)).ok()?;
        figure(&device, "read_ahead_kb")
    };
    let read_ahead = of_queue("read_ahead_kb").or_else(of_file_system);
    let request = of_queue("max_sectors_kb")
        .and_then(bytes)
        .unwrap_or(ORDINARY)
        .max(page_bytes());
    Disk {
        read_ahead: read_ahead.and_then(bytes).unwrap_or(ORDINARY),
        request,
        scattered: of_queue("max_segments")
            .and_then(|segments| segments.checked_mul(page_bytes()))
            .map_or(request, |bytes| bytes.clamp(page_bytes(), request)),
        rotational: of_queue("rotational") == Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::makedev;

    #[test]
    fn disk_partition_and_multi_device_file_system_are_read() {
        let temp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("devices/sda/queue/read_ahead_kb", "256\n");
        write("devices/sda/queue/max_sectors_kb", "1280\n");
        write("devices/sda/queue/max_segments", "128\n");
        write("devices/sda/sda1/partition", "1\n");
        write("devices/sda/queue/rotational", "1\n");
        write("class/bdi/0:44/read_ahead_kb", "4096\n");
        std::fs::create_dir_all(temp.path().join("dev/block")).unwrap();
        for (number, to) in [("8:0", "sda"), ("8:1", "sda/sda1")] {
            let link = temp.path().join("dev/block").join(number);
            std::os::unix::fs::symlink(format!("../../devices/{to}"), link).unwrap();
        }
        let mut disks = Disks::new(temp.path());
        let disk = Disk {
            read_ahead: 256 << 10,
            request: 1280 << 10,
            scattered: 128 * page_bytes(),
            rotational: true,
        };
        assert_eq!(disks.get(makedev(8, 0)), disk);
        assert_eq!(disks.get(makedev(8, 1)), disk);
        // Whole requests; with pages of 64 KiB the segments are not a limit.
        assert_eq!(disk.chunk(), 1280 * 1024 / disk.scattered * disk.scattered);
        assert!(disk.chunk() <= 1280 << 10 && disk.chunk() > 640 << 10);
        assert_eq!(disks.get(makedev(0, 44)).read_ahead, 4 << 20);
        let unknown = Disk {
            read_ahead: ORDINARY,
            request: ORDINARY,
            scattered: ORDINARY,
            rotational: false,
        };
        assert_eq!(disks.get(makedev(0, 45)), unknown);
    }
}
