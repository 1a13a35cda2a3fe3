// SPDX-License-Identifier: GPL-2.0-or-later
//! The contract between the lab on the host and PID 1 in the guest: the lab writes a [`Plan`] to
//! `/plan.json` of the initramfs, the guest answers with one [`Record`] a line on its second
//! serial port ([`crate::record::PORT`]), the last of which is [`Record::Done`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the guest finds [`Machine::packages`].
pub const PACKAGES: &str = "/packages";

/// Everything one boot of a virtual machine has to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How the machine is set up before the first cell runs.
    pub machine: Machine,
    /// What runs, in this order: the lab interleaves arms here.
    pub cells: Vec<Cell>,
}

/// Set-up of the guest that holds for the whole boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel modules to load, in order, as paths inside the initramfs.
    pub modules: Vec<String>,
    /// Where the scenario's files live; the guest creates those that are absent.
    pub data: Data,
    /// Device of the Debian root file system (ext4) that real apps are chrooted into, e.g.
    /// `/dev/vdb`. It is mounted read-write: give the machine a snapshot.
    pub rootfs: Option<String>,
    /// Time that a request takes, in nanoseconds, on the disk in guest memory to which that file system is copied
    /// before it is mounted (exact mode). Absent: it is used where it is.
    #[serde(default)]
    pub rootfs_in_memory_nsec: Option<u32>,
    /// Who is PID 1 while cells run; with another one than the lab's real apps need no chroot.
    #[serde(default)]
    pub init: Init,
    /// File names below [`PACKAGES`] of Debian packages to install, the first one before the others. Limelight's
    /// programs then come from them, and from nowhere else.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Where anonymous memory may go.
    pub swap: Swap,
    /// Value for `/sys/kernel/mm/lru_gen/enabled`: 0 is the two-list LRU, 7 is MGLRU; absent
    /// leaves the kernel's default. Asking a kernel without MGLRU for 7 fails every cell.
    #[serde(default)]
    pub lru_gen: Option<u8>,
    /// Free memory in MiB that the set-up machine leaves to its cells; PID 1 locks the rest. Kernels
    /// differ in what they take for themselves, and arms on different kernels are comparable only
    /// when this does not decide. Absent leaves everything.
    #[serde(default)]
    pub free_mib: Option<u32>,
    /// A flash disk for files and swap, which the plan's `data` and `swap` name by [`Flash::FILES`]
    /// and [`Flash::SWAP`].
    #[serde(default)]
    pub flash: Option<Flash>,
    /// Memory, processors, cpusets and disks are cgroup v1's, mounted where Android mounts them.
    #[serde(default)]
    pub cgroup_v1: bool,
    /// Disks that are read for their zeroes, e.g. `/dev/vdb` and `/dev/nvme0n1`.
    #[serde(default)]
    pub zero_disks: Vec<String>,
}

/// PID 1 of a guest that is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// The lab's program.
    #[default]
    Lab,
    /// The root file system's systemd.
    Systemd,
    /// The root file system's sysvinit, which has OpenRC start everything.
    Openrc,
}

/// A modelled flash disk inside the guest (`null_blk`), with a part for files (ext4) and one for swap.
/// It serves one request at a time, reads and writes alike, and each takes the same time. All of
/// it is written once when the machine is set up, so that its contents take no memory later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flash {
    /// Size of the part for files, in MiB.
    pub files_mib: u32,
    /// Size of the part for swap, in MiB; 0 for none.
    pub swap_mib: u32,
    /// Time that a request takes, in nanoseconds.
    pub request_nsec: u32,
    /// Largest request, in KiB: with the time of one, what the disk moves in a second.
    pub request_kib: u32,
}

impl Flash {
    /// The whole disk.
    pub const DISK: &'static str = "limelight-flash";
    /// Its part for files.
    pub const FILES: &'static str = "/dev/limelight-flash1";
    /// Its part for swap.
    pub const SWAP: &'static str = "/dev/limelight-flash2";
}

/// Where the scenario's files live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// A disk with an ext4 file system: the lab's virtio disk (fast mode), e.g. `/dev/vda`, or a part of the
    /// [`Flash`] disk.
    Disk(String),
    /// A `null_blk` disk inside the guest, used without a file system: every file is an extent of
    /// the device (exact mode). Extents that nobody writes cost no memory.
    NullBlk {
        /// Size in MiB.
        mib: u32,
        /// Completion time of one request, in nanoseconds.
        completion_nsec: u32,
    },
    /// A `null_blk` disk inside the guest with an ext4 file system (either mode): every request
    /// takes the same time, however large it is and however many are under way.
    SlowDisk {
        /// Size in MiB. What is written costs guest memory.
        mib: u32,
        /// Time that a request takes, in nanoseconds.
        request_nsec: u32,
    },
    /// No disk at all.
    None,
}

/// The machine's swap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// None.
    None,
    /// A disk, e.g. `/dev/vdc` or a part of the [`Flash`] disk; the guest writes the swap header.
    Disk(String),
    /// A `null_blk` disk inside the guest (exact mode). All of it is written once before it is used,
    /// so that what is swapped out later takes no memory that the guest had left: the machine has
    /// this much more.
    NullBlk {
        /// Size in MiB.
        mib: u32,
        /// Completion time of one request, in nanoseconds.
        completion_nsec: u32,
    },
    /// Compressed memory, nominal size in MiB.
    Zram(u32),
}

/// What is done for the foreground app in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// No background load at all: the limit.
    Idle,
    /// The kernel as it comes.
    Stock,
    /// memory.low on the app's cgroup and its ancestors, by hand.
    MemoryLow,
    /// memory.min on the app's cgroup and its ancestors, by hand.
    MemoryMin,
    /// The best that stock knobs give for this LRU without Limelight (the scenario names them).
    BestStock,
    /// The kernel zeroes pages when they are freed (`init_on_free=1` on its command line).
    InitOnFree,
    /// No swap, and a killer of least recently used apps, as on a phone.
    KillOnly,
    /// Swap for every app, and that killer when swap is full.
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
    /// Unique within the boot; the guest's records carry it.
    pub id: String,
    /// The arm.
    pub arm: Arm,
    /// Repetition, from 0; it seeds the guest's random choices.
    pub repetition: u32,
    /// Guest seconds after which the cell is abandoned, everything it started killed, and
    /// [`Record::Failed`] written.
    pub limit_s: u32,
    /// What to run: a tag and the parameters of one of the guest's scenarios.
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
    /// Something for the progress line.
    Progress {
        /// Cell it belongs to.
        cell: String,
        /// Text for a person.
        text: String,
    },
    /// A finished cell.
    Result {
        /// [`Cell::id`].
        cell: String,
        /// Counters and times by name; the unit is the name's suffix (`_us`, `_kib`, `_pages`, none for counts).
        values: BTreeMap<String, f64>,
        /// Samples by name, same units.
        series: BTreeMap<String, Vec<f64>>,
    },
    /// A check inside a whole-VM test.
    Check {
        /// Cell it belongs to.
        cell: String,
        /// What was checked, as a sentence.
        what: String,
        /// Whether it held.
        passed: bool,
        /// What was seen.
        seen: String,
    },
    /// A cell that could not run; the boot goes on with the next one.
    Failed {
        /// Cell it belongs to.
        cell: String,
        /// Why.
        why: String,
    },
    /// All cells ran, or failed one by one, and the guest powers off.
    Done,
}
