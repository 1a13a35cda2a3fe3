// SPDX-License-Identifier: GPL-2.0-or-later
//! The machine that a scenario asks for.

use limelight_apps::plan::Init;

/// The bus of a zero disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// NVMe.
    Nvme,
}

/// Backend of a zero disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zeroes {
    /// QEMU generates the zeroes (`null-co`); writes are discarded.
    Null,
    /// A file of zeroes; writes persist until the machine is off.
    File,
    /// QEMU generates the zeroes, but a read of the sector in the middle of the disk fails.
    Failing,
}

/// A disk full of zeroes, from which prezero can read zeroed pages. Its size is [`ZeroDisk::MIB`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZeroDisk {
    /// The disk's bus.
    pub bus: Bus,
    /// The disk's backend.
    pub zeroes: Zeroes,
}

impl ZeroDisk {
    /// Size of a zero disk, in MiB.
    pub const MIB: u32 = 16;

    /// A disk of zeroes.
    pub const fn new(bus: Bus, zeroes: Zeroes) -> Self {
        ZeroDisk { bus, zeroes }
    }
}

/// Speed of a modelled flash disk, which serves one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashSpeed {
    /// Time per request, in nanoseconds.
    pub request_nsec: u32,
    /// Largest request, in KiB.
    pub request_kib: u32,
}

/// Combined speed of all virtio disks except zero disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpeed {
    /// Requests per second of host time.
    pub requests_per_s: u32,
    /// Largest request in KiB that counts as one; a larger request counts as several.
    pub request_kib: u32,
}

/// The machine of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSize {
    /// Guest memory in MiB. In exact mode, the files on the data disk are part of it. The lab adds
    /// memory for a swap disk and a root file system that are kept in guest memory.
    pub memory_mib: u32,
    /// Free memory in MiB when the first cell begins, equal for all kernels; PID 1 locks the rest.
    /// `None`: nothing is locked.
    pub free_mib: Option<u32>,
    /// Virtual CPUs; exact mode always has one.
    pub vcpus: u32,
    /// Size in MiB of the data disk, an empty ext4 that the guest mounts; 0 for none.
    pub data_mib: u32,
    /// Size in MiB of the swap disk or zram, if the variant has one.
    pub swap_mib: u32,
    /// Debian packages in the root file system; without any, there is no root file system.
    pub rootfs_packages: Vec<&'static str>,
    /// Code name of the Debian release that the packages come from.
    pub suite: &'static str,
    /// PID 1; the root file system must contain its package.
    pub init: Init,
    /// Whether the guest installs Limelight from the Debian package built by `make lab-deb`. The
    /// guest also gets the package's successor. Not possible with the lab's PID 1.
    pub packaged: bool,
    /// Time per request of the data disk in nanoseconds, for any number of requests in flight. The
    /// disk is then in guest memory in both modes, with a file system. With 0, the data disk is the
    /// mode's ordinary data disk, at its ordinary speed.
    pub request_nsec: u32,
    /// Completion time of a request to exact mode's swap disk, in nanoseconds; 0: that of its other
    /// disks.
    pub swap_nsec: u32,
    /// Speed of a flash disk in guest memory. It replaces the data disk and, if the variant swaps
    /// to a disk, the swap disk; their sizes stay as above.
    pub flash: Option<FlashSpeed>,
    /// Combined speed of all virtio disks except zero disks. `None`: the host's speed.
    pub disk_speed: Option<DiskSpeed>,
    /// Disks full of zeroes, for prezero.
    pub zero_disks: Vec<ZeroDisk>,
    /// Whether the guest can use the BFQ scheduler for its disks.
    pub bfq: bool,
    /// Whether a cache model counts misses by cause. Only in exact mode, and on a kernel built by
    /// the lab.
    pub cache_model: bool,
    /// Whether the memory, cpu, cpuset and blkio controllers are on cgroup v1, mounted where
    /// Android mounts them. Only on a kernel that has these controllers on cgroup v1.
    pub cgroup_v1: bool,
    /// Whether the CPU has ERMS and FSRM, with which the kernel clears pages by `rep stosb`. TCG
    /// executes that instruction one byte at a time, so clearing appears many times more expensive
    /// than it is.
    pub fast_strings: bool,
}

impl Default for MachineSize {
    fn default() -> Self {
        MachineSize {
            memory_mib: 256,
            free_mib: None,
            vcpus: 2,
            data_mib: 0,
            swap_mib: 256,
            rootfs_packages: Vec::new(),
            suite: "bookworm",
            init: Init::Lab,
            packaged: false,
            request_nsec: 0,
            swap_nsec: 0,
            flash: None,
            disk_speed: None,
            zero_disks: Vec::new(),
            bfq: false,
            cache_model: false,
            cgroup_v1: false,
            fast_strings: false,
        }
    }
}
