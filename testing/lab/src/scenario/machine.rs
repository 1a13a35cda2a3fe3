// SPDX-License-Identifier: GPL-2.0-or-later
//! The machine that a scenario asks for.

use limelight_apps::plan::Init;

/// How a disk of zeroes is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// NVMe.
    Nvme,
}

/// Source of the zeroes of a zero disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zeroes {
    /// QEMU generates them (`null-co`); writes are discarded.
    Null,
    /// A file of zeroes; writes persist until the machine is off.
    File,
    /// QEMU generates them, but a read that touches the sector in the middle fails.
    Failing,
}

/// A disk that serves as a source of zeroes; [`ZeroDisk::MIB`] large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZeroDisk {
    /// Its bus.
    pub bus: Bus,
    /// Its backend.
    pub zeroes: Zeroes,
}

impl ZeroDisk {
    /// Size of each, in MiB.
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

/// Combined speed of all virtio disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpeed {
    /// Requests per second of host time.
    pub requests_per_s: u32,
    /// Largest size in KiB that counts as one request.
    pub request_kib: u32,
}

/// The machine of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineSize {
    /// Guest memory in MiB. In exact mode it includes the files that the guest writes, and the swap
    /// disk is added to it.
    pub memory_mib: u32,
    /// Free memory in MiB when the first cell begins, whatever the kernel itself uses; with none,
    /// all that there is.
    pub free_mib: Option<u32>,
    /// Virtual CPUs; exact mode always has one.
    pub vcpus: u32,
    /// Size in MiB of the data disk, an empty ext4 that the guest mounts; 0 for none.
    pub data_mib: u32,
    /// Size in MiB of the swap disk or zram, if the variant has one.
    pub swap_mib: u32,
    /// Debian packages of the root file system to mount; empty for no root file system.
    pub rootfs_packages: Vec<&'static str>,
    /// The Debian release of those packages, by its name.
    pub suite: &'static str,
    /// PID 1; the root file system must contain its package.
    pub init: Init,
    /// Whether the guest gets Limelight as the Debian package built by `make lab-deb`, and that
    /// package's successor; not with the lab's PID 1.
    pub packaged: bool,
    /// Time per request of the data disk, in nanoseconds, whatever the number in flight: the disk
    /// is then in guest memory, with a file system in either mode. 0: as fast as the host.
    pub request_nsec: u32,
    /// A flash disk in guest memory for the data disk's files and, if the variant swaps to a disk,
    /// for its swap; the sizes are those above.
    pub flash: Option<FlashSpeed>,
    /// Combined speed of all virtio disks. `None`: as fast as the host.
    pub disk_speed: Option<DiskSpeed>,
    /// Disks that serve as sources of zeroes.
    pub zero_disks: Vec<ZeroDisk>,
    /// Whether the guest can use the BFQ scheduler for its disks.
    pub bfq: bool,
    /// Whether caches are modelled and their misses counted by cause; only in exact mode, and on a
    /// kernel built by the lab.
    pub cache_model: bool,
    /// Whether memory and cpuset are on cgroup v1, mounted where Android mounts them; only on a
    /// kernel that has them.
    pub cgroup_v1: bool,
    /// Whether the CPU has ERMS and FSRM, with which the kernel clears pages by `rep stosb`. TCG
    /// executes it one byte at a time, which makes it appear many times more expensive than it is.
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
