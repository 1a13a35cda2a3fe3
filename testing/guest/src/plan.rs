// SPDX-License-Identifier: GPL-2.0-or-later
//! The contract between the lab on the host and PID 1 in the guest: the lab writes a [`Plan`] to
//! `/plan.json` of the initramfs, the guest answers with one [`Record`] a line on its second
//! serial port ([`crate::record::PORT`]), the last of which is [`Record::Done`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Directory of [`Machine::packages`] in the guest.
pub const PACKAGES: &str = "/packages";

/// All work of one boot of a virtual machine; by default none, on a machine without disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Setup of the machine before the first cell.
    pub machine: Machine,
    /// The cells, in order: the lab interleaves arms here.
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
    /// `/dev/vdb`. It is mounted read-write: give the machine a snapshot.
    pub rootfs: Option<String>,
    /// Copies that file system to a disk in guest memory before it is mounted (exact mode): time
    /// per request on that disk, in nanoseconds. Absent: it is mounted directly.
    #[serde(default)]
    pub rootfs_in_memory_nsec: Option<u32>,
    /// PID 1 while cells run; with one other than the lab's, real apps need no chroot.
    #[serde(default)]
    pub init: Init,
    /// File names below [`PACKAGES`] of Debian packages to install, the first one before the
    /// others. Limelight's programs then come only from them.
    #[serde(default)]
    pub packages: Vec<String>,
    /// The swap device.
    pub swap: Swap,
    /// Value for `/sys/kernel/mm/lru_gen/enabled`: 0 is the two-list LRU, 7 is MGLRU; absent leaves
    /// the kernel's default. On a kernel without MGLRU, 7 fails every cell.
    #[serde(default)]
    pub lru_gen: Option<u8>,
    /// Free memory in MiB that the setup leaves to the cells; PID 1 locks the rest. Kernels differ
    /// in their own memory usage, and arms on different kernels are comparable only with equal free
    /// memory. Absent leaves everything.
    #[serde(default)]
    pub free_mib: Option<u32>,
    /// A flash disk for files and swap; the plan's `data` and `swap` name its partitions by
    /// [`Flash::FILES`] and [`Flash::SWAP`].
    #[serde(default)]
    pub flash: Option<Flash>,
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
/// All of it is written once during setup, so that its contents take no memory later.
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
    /// A `null_blk` disk inside the guest with an ext4 file system (either mode): every request
    /// takes the same time, whatever its size and the number in flight.
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
    /// None.
    #[default]
    None,
    /// A disk, e.g. `/dev/vdc` or a partition of the [`Flash`] disk; the guest writes the swap
    /// header.
    Disk(String),
    /// A `null_blk` disk inside the guest (exact mode). All of it is written once before use, so
    /// that swapping out takes no further guest memory: the machine gets this much more memory.
    NullBlk {
        /// Size in MiB.
        mib: u32,
        /// Completion time of one request, in nanoseconds.
        completion_nsec: u32,
    },
    /// Compressed memory, nominal size in MiB.
    Zram(u32),
}

/// The treatment of the foreground app in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Without background load: the limit.
    Idle,
    /// The unmodified kernel.
    Stock,
    /// memory.low on the app's cgroup and its ancestors, by hand.
    MemoryLow,
    /// memory.min on the app's cgroup and its ancestors, by hand.
    MemoryMin,
    /// The best stock knobs for this LRU without Limelight (the scenario names them).
    BestStock,
    /// The kernel zeroes pages when they are freed (`init_on_free=1`).
    InitOnFree,
    /// No swap, and a killer of the least recently used app, as on a phone.
    KillOnly,
    /// Swap for every app, and the same killer when swap is full.
    SwapAll,
    /// Swap, and Debian's earlyoom.
    Earlyoom,
    /// Swap, and Debian's nohang.
    Nohang,
    /// Swap, and Debian's systemd-oomd.
    SystemdOomd,
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
    /// Limit in guest seconds: then the cell is abandoned, everything it started is killed, and
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
        /// `uname -r`.
        kernel: String,
        /// Managed memory in KiB (`MemTotal`).
        memory_kib: u64,
    },
    /// A progress message.
    Progress {
        /// Cell it belongs to.
        cell: String,
        /// Human-readable text.
        text: String,
    },
    /// A finished cell.
    Result {
        /// [`Cell::id`].
        cell: String,
        /// Counters and times by name; the unit is the name's suffix (`_us`, `_kib`, `_pages`, none
        /// for counts).
        values: BTreeMap<String, f64>,
        /// Samples by name, same units.
        series: BTreeMap<String, Vec<f64>>,
    },
    /// A check inside a whole-VM test.
    Check {
        /// Cell it belongs to.
        cell: String,
        /// The check, as a sentence.
        what: String,
        /// Whether it held.
        passed: bool,
        /// The observed values.
        seen: String,
    },
    /// A cell that failed; the boot continues with the next one.
    Failed {
        /// Cell it belongs to.
        cell: String,
        /// The reason.
        why: String,
    },
    /// All cells have finished or failed, and the guest powers off.
    Done,
}
