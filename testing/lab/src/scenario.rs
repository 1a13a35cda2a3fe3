// SPDX-License-Identifier: GPL-2.0-or-later
//! The interface between a scenario and the lab: which machines to boot, what to run in them, and
//! what must hold.
//!
//! A [`Spec`] is independent of QEMU, images and results files. The lab reads its variants, arms
//! and tasks, and boots machines in which the arms take turns. It passes the collected figures to
//! [`Spec::must_hold`].

mod machine;

use std::fmt;

use limelight_apps::plan::Arm;
use limelight_apps::scenario::Work;
use serde::{Deserialize, Serialize};

pub use self::machine::{Bus, DiskSpeed, FlashSpeed, MachineSize, ZeroDisk, Zeroes};
use crate::results::{Aggregates, Recorded};

/// A kernel that the lab can build or fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// The distribution's own package, unmodified.
    Debian,
    /// Linux 6.12 with the Limelight series.
    Limelight,
    /// The same source and configuration without the series. Shows what the series costs while it
    /// is inactive.
    Unpatched,
    /// `limelight` with KASAN, lockdep and the memory management's own assertions
    /// (`CONFIG_DEBUG_VM`).
    Debug,
    /// The series for SiFive's FU540, a RISC-V CPU with a DMA controller, emulated by QEMU. It runs
    /// the kernel's KUnit tests and no scenario.
    Fu540,
    /// The distribution's own package of Linux 6.12 for 64-bit ARM.
    Arm64,
    /// The distribution's own package of Linux 6.1, the oldest supported version, for 64-bit ARM.
    /// It supports memory and cpuset on cgroup v1, as Android uses them.
    Arm64Oldest,
    /// The kernel of the package built by `make kernel-deb`.
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

    /// Whether this is a 64-bit ARM kernel.
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
                format!("no kernel is called {text:?}; the kernels are {names}")
            })
    }
}

/// Purpose of a scenario; it determines which command runs the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Run by `limelight-lab test`. Its guest sends `Check` records, and [`Spec::must_hold`] may
    /// judge counters. Times never decide.
    Test,
    /// Run by `limelight-lab bench`, repeated, and shown in the report. It may measure times.
    Benchmark,
    /// Run by `limelight-lab soak`: it takes too long to be part of every test run, or may crash
    /// the emulator.
    Soak,
    /// Run only by name: it or its prerequisites take hours, or it shows known failures.
    Named,
}

/// The guest's page replacement.
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

/// The guest's swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapKind {
    /// No swap.
    None,
    /// A disk of [`MachineSize::swap_mib`]: a virtio disk, or in exact mode a disk in guest memory.
    Disk,
    /// zram with a nominal size of [`MachineSize::swap_mib`].
    Zram,
    /// The same, with a disk of that size as the backing device. In exact mode only on a machine with
    /// [`MachineSize::flash`].
    ZramDisk,
}

impl SwapKind {
    /// Name used in variant names and tables.
    pub fn name(self) -> &'static str {
        match self {
            SwapKind::None => "no-swap",
            SwapKind::Disk => "swap",
            SwapKind::Zram => "zram",
            SwapKind::ZramDisk => "zram-disk",
        }
    }
}

/// One setting of the machine and its background load. Arms are compared only within a variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// Page replacement.
    pub lru: Lru,
    /// Swap.
    pub swap: SwapKind,
    /// The background load's name (`copy`, `index-read`, ...), or another word that distinguishes
    /// this variant from the scenario's other variants. Letters, digits and `-`.
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

/// An arm on a kernel. The same [`Arm`] may run on several kernels: `idle`, for example, gives the
/// limit on each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArmOn {
    /// The treatment of the foreground app.
    pub arm: Arm,
    /// The kernel.
    pub kernel: Kernel,
}

impl ArmOn {
    /// `arm` on `kernel`.
    pub const fn new(arm: Arm, kernel: Kernel) -> Self {
        ArmOn { arm, kernel }
    }

    /// Whether limelightd runs in this arm.
    pub fn is_ours(self) -> bool {
        matches!(self.arm, Arm::Limelight | Arm::LimelightOnDebian)
    }
}

impl fmt::Display for ArmOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", arm_name(self.arm), self.kernel))
    }
}

/// The name of an arm on the command line, in results files and in tables.
fn arm_name(arm: Arm) -> &'static str {
    match arm {
        Arm::Idle => "idle",
        Arm::Stock => "stock",
        Arm::MemoryLow => "memory-low",
        Arm::MemoryMin => "memory-min",
        Arm::BestStock => "best-stock",
        Arm::InitOnFree => "init-on-free",
        Arm::DamonLruSort => "damon-lru-sort",
        Arm::DamonReclaim => "damon-reclaim",
        Arm::KillOnly => "kill-only",
        Arm::SwapAll => "swap-all",
        Arm::Earlyoom => "earlyoom",
        Arm::Nohang => "nohang",
        Arm::SystemdOomd => "systemd-oomd",
        Arm::Preload => "preload",
        Arm::LimelightOnDebian => "limelight-on-debian",
        Arm::Limelight => "limelight",
    }
}

/// One piece of work in one repetition of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Distinguishes the tasks of an arm (`think-30s`); letters, digits, `.` and `-`.
    pub name: String,
    /// The guest's work.
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

/// A figure shown in tables and in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name in the guest's `values`, for example `major_faults` or `response_us`.
    pub name: &'static str,
    /// Label for people, without the unit: `major faults`.
    pub label: &'static str,
    /// The direction that is better.
    pub better: Better,
}

impl Metric {
    const fn new(name: &'static str, label: &'static str, better: Better) -> Self {
        Metric {
            name,
            label,
            better,
        }
    }

    /// The figure `name` of the guest's `values`; less of it is better.
    pub const fn lower(name: &'static str, label: &'static str) -> Self {
        Metric::new(name, label, Better::Lower)
    }

    /// The figure `name` of the guest's `values`; more of it is better.
    pub const fn higher(name: &'static str, label: &'static str) -> Self {
        Metric::new(name, label, Better::Higher)
    }

    /// The figure `name` of the guest's `values`, for which no direction is better.
    pub const fn neutral(name: &'static str, label: &'static str) -> Self {
        Metric::new(name, label, Better::Neutral)
    }
}

/// The direction of a metric that is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less is better: faults, times.
    Lower,
    /// More is better: throughput, pages kept.
    Higher,
    /// Neither direction is better.
    Neutral,
}

/// The guest's notion of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// KVM where it works, else multi-threaded TCG. Counters are reliable, times are rough.
    Fast,
    /// One vCPU, on which each instruction takes one nanosecond, without the host's clock and
    /// disks. Two runs are identical, so times can be compared. Memory latency is not modelled.
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

/// A promise of a scenario, and whether it was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The promise, as a sentence.
    pub what: String,
    /// Whether it held.
    pub passed: bool,
    /// The figures that decide.
    pub seen: String,
    /// Whether the promise is about a counter that varies from run to run, and not about harm. If
    /// the first repetition of a test falls short of such a promise, the median of three
    /// repetitions decides.
    pub is_figure: bool,
}

impl Verdict {
    /// A verdict on `what`, based on `seen`.
    pub fn new(what: impl Into<String>, passed: bool, seen: impl Into<String>) -> Self {
        Verdict {
            what: what.into(),
            passed,
            seen: seen.into(),
            is_figure: false,
        }
    }

    /// The same verdict, on a counter that varies from run to run.
    #[must_use]
    pub fn on_figure(self) -> Self {
        Verdict {
            is_figure: true,
            ..self
        }
    }
}

/// Lists of page replacements, swaps and loads, which stand for every combination of them.
pub type Product = (&'static [Lru], &'static [SwapKind], &'static [&'static str]);

/// A test, benchmark or soak that runs in virtual machines.
///
/// The guest's initramfs contains `/init` and `/bin/limelight-guest` (the program of
/// `testing/guest`), `/bin/limelightd`, `/bin/limelight`, `/bin/limelight-agent`, `/bin/busybox`,
/// `/plan.json`, and the kernel modules that the plan lists. The three Limelight programs are
/// missing if the guest installs packages. Virtio disks are `/dev/vda`, `/dev/vdb` and so on, in
/// the order data (formatted), swap, root file system; a disk that the variant does not have is
/// skipped. The plan names the disks.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name on the command line and of the results folder; letters, digits and `-`.
    pub name: &'static str,
    /// One line for `limelight-lab list`.
    pub about: &'static str,
    /// Purpose; it determines which command runs the scenario.
    pub kind: Kind,
    /// The settings under which the arms are compared.
    pub variants: &'static [Product],
    /// The arms, in the order of the tables.
    pub arms: &'static [ArmOn],
    /// Arms that run only when named on the command line.
    pub further_arms: &'static [ArmOn],
    /// Arms that run only if a verdict fails without them, or when named on the command line. They
    /// can only excuse the other arms: without their rows, the verdicts are stricter.
    pub deferred_arms: &'static [ArmOn],
    /// Returns whether an arm is left out in a variant.
    pub excludes: fn(&Variant, ArmOn) -> bool,
    /// The machine of a variant.
    pub machine: fn(&Variant) -> MachineSize,
    /// The tasks of one repetition of an arm.
    pub tasks: fn(&Variant, ArmOn) -> Vec<Task>,
    /// Time limit in seconds of one repetition of one arm of a variant, on two cores without KVM.
    /// The lab multiplies it by the number of arms and of repetitions in a boot, and adds the time
    /// that the boot itself takes.
    pub time_limit_s: u64,
    /// Judges the figures of everything that ran. Arms and variants that the command line excludes
    /// are missing in the aggregates. Gives no verdicts if the guest's checks cover everything.
    pub must_hold: fn(&Aggregates) -> Vec<Verdict>,
    /// The counters that may not exceed their recorded values, in tests that run in exact mode.
    pub recorded: &'static [Recorded],
    /// The figures that tables and the report show, most important first.
    pub metrics: &'static [&'static [Metric]],
    /// Default number of repetitions.
    pub repetitions: u32,
    /// Maximum number of repetitions in one boot. The boots of different kernels alternate.
    pub repetitions_per_boot: u32,
    /// Whether every arm gets its own boot, even where arms share a kernel.
    pub boot_per_arm: bool,
    /// Default mode.
    pub mode: Mode,
    /// Console texts that the lab would otherwise take for a kernel defect. A line that contains
    /// one of them is ignored.
    pub expected_console: &'static [&'static str],
}

impl Spec {
    /// A test of limelightd on both kernels.
    pub const TEST: Spec = Spec {
        name: "",
        about: "",
        kind: Kind::Test,
        variants: &[(&[Lru::Mglru], &[SwapKind::None], &["none"])],
        arms: &[
            ArmOn::new(Arm::LimelightOnDebian, Kernel::Debian),
            ArmOn::new(Arm::Limelight, Kernel::Limelight),
        ],
        further_arms: &[],
        deferred_arms: &[],
        excludes: |_, _| false,
        machine: |_| MachineSize::default(),
        tasks: |_, _| Vec::new(),
        time_limit_s: 0,
        must_hold: |_| Vec::new(),
        recorded: &[],
        metrics: &[],
        repetitions: 1,
        repetitions_per_boot: 5,
        boot_per_arm: false,
        mode: Mode::Fast,
        expected_console: &[],
    };

    /// [`Spec::TEST`] as a benchmark, with five repetitions.
    pub const BENCHMARK: Spec = Spec {
        kind: Kind::Benchmark,
        repetitions: 5,
        ..Spec::TEST
    };

    /// [`Spec::TEST`] as a soak.
    pub const SOAK: Spec = Spec {
        kind: Kind::Soak,
        ..Spec::TEST
    };

    /// [`Spec::TEST`], run only by name.
    pub const NAMED: Spec = Spec {
        kind: Kind::Named,
        ..Spec::TEST
    };

    /// The settings under which the arms are compared.
    pub fn variants(&self) -> Vec<Variant> {
        let product = |&(lrus, swaps, loads): &Product| Variant::product(lrus, swaps, loads);
        self.variants.iter().flat_map(product).collect()
    }

    /// The arms of a variant, in the order of the tables.
    pub fn arms(&self, variant: &Variant) -> Vec<ArmOn> {
        let mut arms = self.arms.to_vec();
        arms.retain(|arm| !(self.excludes)(variant, *arm));
        arms
    }

    /// The figures that tables and the report show, most important first.
    pub fn metrics(&self) -> Vec<Metric> {
        self.metrics.concat()
    }
}
