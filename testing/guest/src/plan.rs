// SPDX-License-Identifier: GPL-2.0-or-later
//! The contract between the lab on the host and PID 1 in the guest. The lab writes a [`Plan`] to
//! `/plan.json` of the initramfs. The guest writes [`Record`]s to its second serial port
//! ([`crate::record::PORT`]), one per line; the last one is [`Record::Done`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Directory of [`Machine::packages`] in the guest.
pub const PACKAGES: &str = "/packages";

/// All work of one boot of a virtual machine. The default is no work, on a machine without disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Setup of the machine before the first cell.
    pub machine: Machine,
    /// The cells, in the order in which they run; the lab interleaves the arms.
    pub cells: Vec<Cell>,
}

/// Setup of the guest for the whole boot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel modules to load, in order, as paths inside the initramfs.
    pub modules: Vec<String>,
    /// Location of the scenario's files; the guest creates absent ones.
    pub data: Data,
    /// Device of the Debian root file system (ext4) that real apps are chrooted into, e.g.
    /// `/dev/vdb`. It is mounted read-write, so the machine must get a snapshot of the image.
    pub rootfs: Option<String>,
    /// If present, the root file system is copied to a disk in guest memory before it is mounted
    /// (exact mode). The value is the time per request on that disk, in nanoseconds; beside a flash
    /// disk, that disk is as fast as the flash instead.
    #[serde(default)]
    pub rootfs_in_memory_nsec: Option<u32>,
    /// PID 1 while cells run. Real apps need a chroot only if it is [`Init::Lab`].
    #[serde(default)]
    pub init: Init,
    /// File names of Debian packages below [`PACKAGES`], in the order that the scenario expects. If
    /// there are any, Limelight's programs are not copied to the root file system but come from
    /// these packages.
    #[serde(default)]
    pub packages: Vec<String>,
    /// The swap device.
    pub swap: Swap,
    /// Value for `/sys/kernel/mm/lru_gen/enabled`: 0 is the two-list LRU, 7 is MGLRU. If absent,
    /// the kernel's default stays. On a kernel without MGLRU, 7 fails every cell.
    #[serde(default)]
    pub lru_gen: Option<u8>,
    /// Free memory in MiB that the setup leaves to the cells; PID 1 locks the rest. Kernels differ
    /// in their own memory usage, and arms on different kernels are comparable only with equal free
    /// memory. If absent, the cells get all free memory.
    #[serde(default)]
    pub free_mib: Option<u32>,
    /// A flash disk for files and swap; the plan's `data` and `swap` name its partitions by
    /// [`Flash::FILES`] and [`Flash::SWAP`].
    #[serde(default)]
    pub flash: Option<Flash>,
    /// Whether the guest's disks model flash. The kernel allocates and reads swap on flash in
    /// another way, but QEMU's disks report that they rotate.
    #[serde(default)]
    pub disks_model_flash: bool,
    /// Whether the memory, cpu, cpuset and blkio controllers are on cgroup v1, mounted where
    /// Android mounts them.
    #[serde(default)]
    pub cgroup_v1: bool,
    /// Disks that serve as a source of zeroes, e.g. `/dev/vdb` and `/dev/nvme0n1`.
    #[serde(default)]
    pub zero_disks: Vec<String>,
}

/// PID 1 of a guest after its setup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// The lab's program.
    #[default]
    Lab,
    /// The root file system's systemd.
    Systemd,
    /// The root file system's sysvinit, which starts everything through OpenRC.
    Openrc,
}

/// A modelled flash disk inside the guest (`null_blk`), with a partition for files (ext4) and one
/// for swap. It serves one request at a time, reads and writes alike, and each takes the same time.
/// Setup writes all of it once, so that later writes take no further guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flash {
    /// Size of the file partition, in MiB.
    pub files_mib: u32,
    /// Size of the swap partition, in MiB; 0 for none.
    pub swap_mib: u32,
    /// Time per request, in nanoseconds.
    pub request_nsec: u32,
    /// Largest request, in KiB: with the request time it determines the throughput.
    pub request_kib: u32,
}

impl Flash {
    /// The whole disk.
    pub const DISK: &'static str = "limelight-flash";
    /// The file partition.
    pub const FILES: &'static str = "/dev/limelight-flash1";
    /// The swap partition.
    pub const SWAP: &'static str = "/dev/limelight-flash2";
}

/// Location of the scenario's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// A disk with an ext4 file system: the lab's virtio disk (fast mode), e.g. `/dev/vda`, or a
    /// partition of the [`Flash`] disk.
    Disk(String),
    /// A `null_blk` disk inside the guest, used without a file system: every file is an extent of
    /// the device (exact mode). Extents that are never written take no memory.
    NullBlk {
        /// Size in MiB.
        mib: u32,
        /// Completion time of one request, in nanoseconds.
        completion_nsec: u32,
    },
    /// A `null_blk` disk inside the guest with an ext4 file system (either mode). Every request
    /// takes the same time, regardless of its size and of the number of requests in flight.
    SlowDisk {
        /// Size in MiB. Written data takes guest memory.
        mib: u32,
        /// Time per request, in nanoseconds.
        request_nsec: u32,
    },
    /// No disk at all.
    #[default]
    None,
}

/// The machine's swap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// No swap.
    #[default]
    None,
    /// A disk, e.g. `/dev/vdc` or a partition of the [`Flash`] disk; the guest writes the swap
    /// header.
    Disk(String),
    /// A `null_blk` disk inside the guest (exact mode). All of it is written once before use, so
    /// that swapping out takes no further guest memory. The machine gets this much memory in
    /// addition.
    NullBlk {
        /// Size in MiB.
        mib: u32,
        /// Completion time of one request, in nanoseconds.
        completion_nsec: u32,
    },
    /// Compressed memory (zram) of this nominal size, in MiB.
    Zram(u32),
    /// zram with a backing device.
    ZramDisk {
        /// Nominal size of zram in MiB.
        mib: u32,
        /// The backing device, e.g. `/dev/vdc`.
        disk: String,
    },
}

/// The treatment of the foreground app in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// No background load: the best possible result.
    Idle,
    /// The unmodified kernel.
    Stock,
    /// memory.low on the app's cgroup and its ancestors, set by the test instead of `limelightd`.
    MemoryLow,
    /// memory.min on the app's cgroup and its ancestors, set by the test instead of `limelightd`.
    MemoryMin,
    /// The stock kernel with the settings that the scenario defines as the best for this LRU.
    BestStock,
    /// The kernel zeroes pages when they are freed (`init_on_free=1`).
    InitOnFree,
    /// The unmodified kernel with DAMON_LRU_SORT, which sorts pages by how often it sees them used.
    DamonLruSort,
    /// The unmodified kernel with DAMON_RECLAIM, which reclaims pages that it sees unused.
    DamonReclaim,
    /// No swap. A killer as on a phone kills the least recently used app.
    KillOnly,
    /// Swap for every app. The same killer acts when swap is nearly full.
    SwapAll,
    /// Swap, and Debian's earlyoom.
    Earlyoom,
    /// Swap, and Debian's nohang.
    Nohang,
    /// Swap, and Debian's systemd-oomd.
    SystemdOomd,
    /// Swap, and Debian's preload, which reads files of programs that it expects to be started.
    Preload,
    /// `limelightd` on the distribution's kernel.
    LimelightOnDebian,
    /// `limelightd` on our kernel.
    Limelight,
}

/// One run of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Unique within the boot; the guest's records contain it.
    pub id: String,
    /// The arm.
    pub arm: Arm,
    /// Repetition, from 0; it seeds the guest's random choices.
    pub repetition: u32,
    /// Time limit in guest seconds. After it the cell is abandoned, its processes are killed, and
    /// [`Record::Failed`] is written.
    pub limit_s: u32,
    /// The work: a tag and the parameters of one of the guest's scenarios.
    pub work: crate::scenario::Work,
}

/// One line from the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The guest is up.
    Up {
        /// Kernel release, as from `uname -r`.
        kernel: String,
        /// Managed memory in KiB (`MemTotal`).
        memory_kib: u64,
    },
    /// A progress message.
    Progress {
        /// ID of the cell.
        cell: String,
        /// Human-readable text.
        text: String,
    },
    /// A finished cell.
    Result {
        /// ID of the cell.
        cell: String,
        /// Counters and times by name; the unit is the name's suffix (`_us`, `_kib`, `_pages`, none
        /// for counts).
        values: BTreeMap<String, f64>,
        /// Samples by name, with the same units.
        series: BTreeMap<String, Vec<f64>>,
    },
    /// The result of one check of a scenario.
    Check {
        /// ID of the cell.
        cell: String,
        /// The check, as a sentence.
        what: String,
        /// Whether the check passed.
        passed: bool,
        /// The observed values.
        seen: String,
    },
    /// A cell that failed; the boot continues with the next one.
    Failed {
        /// ID of the cell.
        cell: String,
        /// The reason.
        why: String,
    },
    /// All cells have finished or failed, and the guest powers off.
    Done,
}
