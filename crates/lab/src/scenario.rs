// SPDX-License-Identifier: GPL-2.0-or-later
//! What a scenario tells the lab: which machines to boot, what runs in them, and what must hold.
//!
//! A scenario knows nothing of QEMU, images or results files. The lab asks it for its variants,
//! arms and cells, boots one machine per kernel (all repetitions interleaved), and hands the
//! collected figures back to [`Scenario::must_hold`].

use std::fmt;
use std::time::Duration;

use limelight_apps::plan::{Arm, Init};
use limelight_apps::scenario::Work;
use serde::{Deserialize, Serialize};

use crate::results::Aggregates;

/// A kernel that the lab can build or fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// The distribution's own package, unmodified.
    Debian,
    /// Linux 6.12 with the Limelight series.
    Limelight,
    /// The same source and configuration without the series: what the series costs when idle.
    Unpatched,
    /// `limelight` with KASAN, lockdep and the VM's own assertions.
    Debug,
    /// The series for a RISC-V processor whose DMA controller QEMU emulates; it runs its own tests
    /// and no scenario.
    Fu540,
    /// The distribution's own package for 64-bit ARM, in an emulated machine of that kind.
    Arm64,
    /// The same of Linux 6.1, the oldest that Limelight runs on: it has cgroup v1 with memory and cpuset, as
    /// Android uses it.
    Arm64Oldest,
    /// The one in the package that `make kernel-deb` made.
    Packaged,
}

impl Kernel {
    /// All kernels, in the order in which `limelight-lab list` shows them.
    pub const ALL: [Kernel; 8] = [
        Kernel::Debian,
        Kernel::Limelight,
        Kernel::Unpatched,
        Kernel::Debug,
        Kernel::Fu540,
        Kernel::Arm64,
        Kernel::Arm64Oldest,
        Kernel::Packaged,
    ];

    /// The name on the command line and under `target/lab/kernels/`.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Debian => "debian",
            Kernel::Limelight => "limelight",
            Kernel::Unpatched => "unpatched",
            Kernel::Debug => "debug",
            Kernel::Fu540 => "fu540",
            Kernel::Arm64 => "debian-arm64",
            Kernel::Arm64Oldest => "debian-arm64-6.1",
            Kernel::Packaged => "packaged",
        }
    }

    /// Whether it is for 64-bit ARM.
    pub fn is_arm64(self) -> bool {
        matches!(self, Kernel::Arm64 | Kernel::Arm64Oldest)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Kernel::ALL
            .into_iter()
            .find(|kernel| kernel.name() == text)
            .ok_or_else(|| {
                let names = Kernel::ALL.map(Kernel::name).join(", ");
                format!("no kernel is called {text:?}: there are {names}")
            })
    }
}

/// What a scenario is for; it decides which command runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Run by `limelight-lab test`. Its guest sends `Check` records; counters may be judged by
    /// [`Scenario::must_hold`]; no time ever decides.
    Test,
    /// Run by `limelight-lab bench`, repeated, and shown in the report. Carries timings.
    Benchmark,
    /// Run by `limelight-lab soak`, on the debug kernel.
    Soak,
    /// Run only by its name: it needs what takes hours to make.
    Named,
}

/// Which page replacement the guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lru {
    /// Active and inactive lists (`lru_gen/enabled` = 0).
    TwoList,
    /// Multi-generational LRU (`lru_gen/enabled` = 7).
    Mglru,
}

impl Lru {
    /// Name used in variant names and tables.
    pub fn name(self) -> &'static str {
        match self {
            Lru::TwoList => "two-list",
            Lru::Mglru => "mglru",
        }
    }

    /// The value for `/sys/kernel/mm/lru_gen/enabled`.
    pub fn lru_gen(self) -> u8 {
        match self {
            Lru::TwoList => 0,
            Lru::Mglru => 7,
        }
    }
}

/// Where the guest's anonymous memory may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapKind {
    /// Nowhere.
    None,
    /// A disk of [`MachineSize::swap_mib`]: virtio, in exact mode one inside the guest.
    Disk,
    /// zram of [`MachineSize::swap_mib`] nominal size.
    Zram,
}

impl SwapKind {
    /// Name used in variant names and tables.
    pub fn name(self) -> &'static str {
        match self {
            SwapKind::None => "no-swap",
            SwapKind::Disk => "swap",
            SwapKind::Zram => "zram",
        }
    }
}

/// One setting of the machine and its background load; arms are compared within a variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// Page replacement.
    pub lru: Lru,
    /// Swap.
    pub swap: SwapKind,
    /// The background load's name (`copy`, `index-read`, ...), or another word that tells this
    /// variant from its neighbours; letters, digits and `-`.
    pub load: String,
}

impl Variant {
    /// A variant from its three parts.
    pub fn new(lru: Lru, swap: SwapKind, load: impl Into<String>) -> Self {
        Variant {
            lru,
            swap,
            load: load.into(),
        }
    }

    /// Every combination of the three lists.
    pub fn product(lrus: &[Lru], swaps: &[SwapKind], loads: &[&str]) -> Vec<Self> {
        let mut all = Vec::new();
        for &lru in lrus {
            for &swap in swaps {
                all.extend(loads.iter().map(|&load| Variant::new(lru, swap, load)));
            }
        }
        all
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!(
            "{}/{}/{}",
            self.lru.name(),
            self.swap.name(),
            self.load
        ))
    }
}

/// An arm on the kernel that it needs. The same [`Arm`] may be asked for on several kernels, for
/// example `idle` on each to have the limit of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArmOn {
    /// What is done for the foreground app.
    pub arm: Arm,
    /// Where.
    pub kernel: Kernel,
}

impl ArmOn {
    /// `arm` on `kernel`.
    pub const fn new(arm: Arm, kernel: Kernel) -> Self {
        ArmOn { arm, kernel }
    }
}

impl fmt::Display for ArmOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", arm_name(self.arm), self.kernel))
    }
}

/// The name of an arm on the command line, in results files and in tables.
pub fn arm_name(arm: Arm) -> &'static str {
    match arm {
        Arm::Idle => "idle",
        Arm::Stock => "stock",
        Arm::MemoryLow => "memory-low",
        Arm::MemoryMin => "memory-min",
        Arm::BestStock => "best-stock",
        Arm::InitOnFree => "init-on-free",
        Arm::KillOnly => "kill-only",
        Arm::SwapAll => "swap-all",
        Arm::Earlyoom => "earlyoom",
        Arm::Nohang => "nohang",
        Arm::SystemdOomd => "systemd-oomd",
        Arm::LimelightOnDebian => "limelight-on-debian",
        Arm::Limelight => "limelight",
    }
}

/// How a disk of zeroes is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// virtio-blk.
    Virtio,
    /// NVMe.
    Nvme,
}

/// Where a disk of zeroes has them from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zeroes {
    /// QEMU makes them up (`null-co`); what is written is forgotten.
    Null,
    /// A file of zeroes; what is written stays until the machine is off.
    File,
    /// QEMU makes them up, but a read that touches the sector in the middle fails.
    Failing,
}

/// A disk that is read for its zeroes ([`ZeroDisk::MIB`] large).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ZeroDisk {
    /// How it is attached.
    pub bus: Bus,
    /// What is behind it.
    pub zeroes: Zeroes,
}

impl ZeroDisk {
    /// Size of each.
    pub const MIB: u32 = 16;

    /// A disk of zeroes.
    pub const fn new(bus: Bus, zeroes: Zeroes) -> Self {
        ZeroDisk { bus, zeroes }
    }
}

/// How fast a modelled flash disk is: it serves one request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashSpeed {
    /// Time that each request takes, in nanoseconds.
    pub request_nsec: u32,
    /// Largest request, in KiB.
    pub request_kib: u32,
}

/// How fast virtio disks are, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpeed {
    /// Requests in a second of the host's time.
    pub requests_per_s: u32,
    /// Size of a request, in KiB, from which on it counts as several.
    pub request_kib: u32,
}

/// The machine a variant needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSize {
    /// Guest memory in MiB. In exact mode the files that the guest writes live in it too, and the
    /// swap disk is added to it.
    pub memory_mib: u32,
    /// Free memory in MiB that the machine has when its first cell begins, whatever its kernel takes
    /// for itself; none leaves all that there is.
    pub free_mib: Option<u32>,
    /// Virtual CPUs; exact mode always has one.
    pub vcpus: u32,
    /// Size in MiB of the data disk, an empty ext4 that the guest mounts; 0 for none.
    pub data_mib: u32,
    /// Size in MiB of the swap disk or zram, where the variant has one.
    pub swap_mib: u32,
    /// Debian packages of the root file system to mount; empty for none.
    pub rootfs_packages: Vec<String>,
    /// Who is PID 1; the root file system must have its package.
    pub init: Init,
    /// Whether Limelight comes to the guest as the Debian package that `make lab-deb` makes, and as its
    /// successor; not with the lab's PID 1.
    pub packaged: bool,
    /// Time that each request of the data disk takes, in nanoseconds, however many are under way:
    /// the disk is then in guest memory, with a file system in either mode. 0: as fast as the host.
    pub request_nsec: u32,
    /// A flash disk in guest memory for the data disk's files and, where the variant swaps to a disk, for
    /// its swap; sizes are those above.
    pub flash: Option<FlashSpeed>,
    /// What all virtio disks together serve. `None`: as much as the host does.
    pub disk_speed: Option<DiskSpeed>,
    /// Disks that are read for their zeroes.
    pub zero_disks: Vec<ZeroDisk>,
    /// The guest can have BFQ schedule its disks.
    pub bfq: bool,
    /// Caches are modelled and their misses counted by who caused them; only in exact mode, and on a
    /// kernel that the lab builds.
    pub cache_model: bool,
    /// Memory and cpusets are cgroup v1's, at the places where Android mounts them; only on a kernel that has them.
    pub cgroup_v1: bool,
    /// The processor has ERMS and FSRM, with which the kernel clears pages by `rep stosb`. TCG executes that
    /// a byte at a time, which makes it look many times dearer than it is.
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

/// One piece of work in one repetition of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Tells the tasks of an arm apart (`think-30s`); letters, digits, `.` and `-`.
    pub name: String,
    /// What the guest runs.
    pub work: Work,
}

impl Task {
    /// A named piece of work.
    pub fn new(name: impl Into<String>, work: Work) -> Self {
        Task {
            name: name.into(),
            work,
        }
    }
}

/// A figure that tables and the report show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name in the guest's `values`, for example `major_faults` or `swipe_median_us`.
    pub name: &'static str,
    /// What a person reads, without the unit: `major faults`.
    pub label: &'static str,
    /// Which direction is good.
    pub better: Better,
}

impl Metric {
    /// A figure by its name in the guest's `values`.
    pub const fn new(name: &'static str, label: &'static str, better: Better) -> Self {
        Metric {
            name,
            label,
            better,
        }
    }
}

/// Which direction of a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Faults, times.
    Lower,
    /// Throughput, pages kept.
    Higher,
    /// Neither: context.
    Neutral,
}

/// How time passes in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// KVM where it really works, else multi-threaded TCG: counters are good, times are rough.
    Fast,
    /// One vCPU, one instruction is one nanosecond, no host clock and no host disk: two runs are
    /// identical, times can be compared, memory latency is not modelled.
    Exact,
}

impl Mode {
    /// Name on the command line and in results files.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Fast => "fast",
            Mode::Exact => "exact",
        }
    }
}

/// Something that a scenario promises, and whether it held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The promise, as a sentence.
    pub what: String,
    /// Whether it held.
    pub passed: bool,
    /// The figures that decided.
    pub seen: String,
}

impl Verdict {
    /// A verdict on `what` from what was `seen`.
    pub fn new(what: impl Into<String>, passed: bool, seen: impl Into<String>) -> Self {
        Verdict {
            what: what.into(),
            passed,
            seen: seen.into(),
        }
    }
}

/// A test, benchmark or soak that runs in virtual machines.
///
/// The guest finds in its initramfs: `/init` and `/bin/limelight-guest` (the program of
/// `crates/apps`), `/bin/limelightd`, `/bin/limelight`, `/bin/limelight-agent`, `/bin/busybox`,
/// `/plan.json`, and the kernel modules that the plan lists. The data disk is `/dev/vda`, formatted;
/// further disks follow in the order data, swap, root file system, and the plan names them.
pub trait Scenario: Sync {
    /// Name on the command line and of the results folder; letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// One line for `limelight-lab list`.
    fn about(&self) -> &'static str;

    /// Which command runs it.
    fn kind(&self) -> Kind;

    /// The settings under which the arms are compared.
    fn variants(&self) -> Vec<Variant>;

    /// The arms of a variant, in the order of the tables.
    fn arms(&self, variant: &Variant) -> Vec<ArmOn>;

    /// Arms that run only when the command line asks for them.
    fn further_arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        Vec::new()
    }

    /// The machine of a variant.
    fn machine(&self, variant: &Variant) -> MachineSize;

    /// What one repetition of an arm runs.
    fn tasks(&self, variant: &Variant, arm: ArmOn) -> Vec<Task>;

    /// The most that one repetition of one arm of a variant may take on two cores without KVM;
    /// the lab multiplies it by the cells in a boot and adds the boot itself.
    fn time_limit(&self, variant: &Variant) -> Duration;

    /// What must hold, judged on everything that ran (an arm or variant that was left out on the
    /// command line is simply absent from the aggregates).
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict>;

    /// The figures that tables and the report show, most important first.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// Repetitions when the command line does not say.
    fn repetitions(&self) -> u32 {
        match self.kind() {
            Kind::Test | Kind::Soak | Kind::Named => 1,
            Kind::Benchmark => 5,
        }
    }

    /// The most repetitions that share one boot; the boots of different kernels alternate.
    fn repetitions_per_boot(&self) -> u32 {
        5
    }

    /// Whether every arm gets a boot of its own even where arms share a kernel.
    fn boot_per_arm(&self) -> bool {
        false
    }

    /// How time passes when the command line does not say.
    fn mode(&self) -> Mode {
        Mode::Fast
    }

    /// Words added to the kernel's command line. Arms whose words differ share no boot.
    fn kernel_parameters(&self, _variant: &Variant, _arm: ArmOn) -> Vec<String> {
        Vec::new()
    }

    /// Texts that are allowed in the guest's console although the lab would take them for a kernel
    /// failure (an expected OOM report, for example): any line that contains one is passed over.
    fn expected_console(&self) -> &'static [&'static str] {
        &[]
    }
}
