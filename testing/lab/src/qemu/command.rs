// SPDX-License-Identifier: GPL-2.0-or-later
//! The QEMU command line of a virtual machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::tsc;
use crate::kernel::Bootable;
use crate::scenario::{Bus, DiskSpeed, Kernel, Mode, ZeroDisk, Zeroes};

/// The emulator for x86-64.
pub const QEMU: &str = "qemu-system-x86_64";
/// The emulator for 64-bit ARM.
pub const QEMU_AARCH64: &str = "qemu-system-aarch64";

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The host's CPU.
    Kvm,
    /// QEMU's translator, which emulates the CPU.
    Tcg,
}

impl Accelerator {
    /// Name in results files and for `--accel`.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// A machine to boot.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel. The architecture and some of the kernel's parameters depend on it.
    pub kernel: Kernel,
    /// The kernel's image.
    pub image: PathBuf,
    /// The initramfs.
    pub initramfs: PathBuf,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Virtual CPUs; exact mode always uses one.
    pub vcpus: u32,
    /// Raw images, `/dev/vda` first. The guest's writes go to a temporary snapshot.
    pub disks: Vec<PathBuf>,
    /// Combined speed of `disks`; `None` for the host's speed.
    pub disk_speed: Option<DiskSpeed>,
    /// Zero disks; a disk with [`Zeroes::File`] has an image.
    pub zero_disks: Vec<(ZeroDisk, Option<PathBuf>)>,
    /// The guest's notion of time.
    pub mode: Mode,
    /// The accelerator in fast mode; exact mode always uses TCG.
    pub accelerator: Accelerator,
    /// Whether TCG executes the CPUs in turn, in one thread. Then no CPU can write code while
    /// another CPU translates that code.
    pub in_turn: bool,
    /// Parameters added to the kernel's command line.
    pub parameters: Vec<&'static str>,
    /// Whether the CPU has ERMS and FSRM.
    pub fast_strings: bool,
    /// A TCG plugin, as the argument of `-plugin`.
    pub plugin: Option<String>,
    /// Seed of the random numbers that QEMU gives the guest in exact mode. The same seed gives the
    /// same boot.
    pub seed: u32,
}

impl Machine {
    /// A machine with 256 MiB, two CPUs and no disks, in fast mode.
    pub fn bare(kernel: &Bootable, initramfs: PathBuf, accelerator: Accelerator) -> Self {
        Machine {
            kernel: kernel.kernel,
            image: kernel.image(),
            initramfs,
            memory_mib: 256,
            vcpus: 2,
            disks: Vec::new(),
            disk_speed: None,
            zero_disks: Vec::new(),
            mode: Mode::Fast,
            accelerator,
            in_turn: false,
            parameters: Vec::new(),
            fast_strings: false,
            plugin: None,
            seed: 1,
        }
    }

    /// The CPU model for QEMU.
    ///
    /// TCG executes `rep stosb` one iteration at a time, so clearing pages would appear many times
    /// more expensive than it is. ERMS and FSRM, which make the kernel use that instruction, are
    /// therefore masked unless `fast_strings` is set. Exact mode also masks the random number
    /// instructions.
    pub fn cpu(&self) -> &'static str {
        if self.is_arm() {
            return "max";
        }
        match (self.mode, self.accelerator, self.fast_strings) {
            (Mode::Exact, _, false) => "max,-erms,-fsrm,-rdrand,-rdseed",
            (Mode::Exact, _, true) => "max,+erms,+fsrm,-rdrand,-rdseed",
            (Mode::Fast, Accelerator::Tcg, false) => "max,-erms,-fsrm",
            (Mode::Fast, Accelerator::Tcg, true) => "max,+erms,+fsrm",
            (Mode::Fast, Accelerator::Kvm, _) => "host",
        }
    }

    /// Number of virtual CPUs that the guest actually gets.
    pub fn cpus(&self) -> u32 {
        match self.mode {
            Mode::Exact => 1,
            Mode::Fast => self.vcpus,
        }
    }

    /// The accelerator that is actually used.
    pub fn accelerator(&self) -> Accelerator {
        match self.mode {
            Mode::Exact => Accelerator::Tcg,
            Mode::Fast => self.accelerator,
        }
    }

    fn is_arm(&self) -> bool {
        self.kernel.is_arm64()
    }

    /// The kernel's command line.
    pub fn kernel_parameters(&self) -> String {
        let tsc;
        // An oops ends the guest at once, so that it does not run into its time limit.
        let mut words = vec![
            match self.is_arm() {
                true => "console=ttyAMA0",
                false => "console=ttyS0",
            },
            "panic=-1",
            "oops=panic",
            "quiet",
            "loglevel=5",
        ];
        if self.accelerator() == Accelerator::Tcg {
            words.push("mitigations=off");
            // A guest that calibrates its own clock gets a wrong rate on a busy host.
            tsc = match self.is_arm() {
                true => None,
                false => {
                    words.extend(["tsc=reliable", "no_timer_check"]);
                    tsc::emulated_khz(self.mode).map(|khz| format!("tsc_early_khz={khz}"))
                }
            };
            words.extend(tsc.as_deref());
            // A busy host stalls an emulated CPU, which looks like a lock-up of the guest. Only the
            // debug kernel keeps its lock-up detectors, with thresholds of two minutes.
            if self.kernel == Kernel::Debug {
                words.extend(["watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=120"]);
            } else {
                words.extend(["nosoftlockup", "rcupdate.rcu_cpu_stall_suppress=1"]);
            }
        }
        if self.mode == Mode::Exact {
            words.push("nokaslr");
        }
        words.extend(&self.parameters);
        words.join(" ")
    }

    /// The command that runs QEMU. The guest's two serial ports are written to `console` and
    /// `results`.
    pub fn command(&self, console: &Path, results: &Path) -> Command {
        let mut qemu = Command::new(match self.is_arm() {
            true => QEMU_AARCH64,
            false => QEMU,
        });
        qemu.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-M",
            match self.is_arm() {
                true => "virt",
                false => "q35",
            },
        ]);
        match (self.mode, self.accelerator) {
            (Mode::Exact, _) => {
                qemu.args(["-accel", "tcg", "-icount", "shift=0,sleep=off"]);
                qemu.args(["-rtc", "base=2024-01-01,clock=vm"]);
                qemu.args(["-seed", &self.seed.to_string()])
            }
            (Mode::Fast, Accelerator::Tcg) => qemu.args([
                "-accel",
                match self.in_turn {
                    true => "tcg,thread=single",
                    false => "tcg,thread=multi",
                },
            ]),
            (Mode::Fast, Accelerator::Kvm) => qemu.args(["-accel", "kvm"]),
        };
        qemu.args(["-cpu", self.cpu(), "-smp", &self.cpus().to_string()]);
        qemu.args(["-m", &format!("{}M", self.memory_mib)]);
        qemu.arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&self.initramfs);
        qemu.args(["-append", &self.kernel_parameters()]);
        for (index, (name, file)) in [("console", console), ("results", results)]
            .iter()
            .enumerate()
        {
            qemu.args([
                "-chardev",
                &format!("file,id={name},path={}", comma_safe(file)),
            ]);
            match (self.is_arm(), *name) {
                // The `virt` board has one UART of its own; the other port is a PCI device.
                (true, "console") => qemu.args(["-serial", "chardev:console"]),
                (true, _) => qemu.args(["-device", &format!("pci-serial,chardev={name}")]),
                (false, _) => qemu.args([
                    "-device",
                    &format!("isa-serial,chardev={name},index={index}"),
                ]),
            };
        }
        if let Some(plugin) = &self.plugin {
            qemu.args(["-plugin", plugin]);
        }
        // All disks share one throttling group, as partitions of one slow disk do.
        let throttle = self.disk_speed.map_or(String::new(), |speed| {
            format!(
                ",throttling.group=disk,throttling.iops-total={},throttling.iops-size={}",
                speed.requests_per_s,
                speed.request_kib * 1024
            )
        });
        for (index, disk) in self.disks.iter().enumerate() {
            qemu.args([
                "-drive",
                &format!(
                    "if=none,id=disk{index},format=raw,snapshot=on,cache=unsafe{throttle},file={}",
                    comma_safe(disk)
                ),
                "-device",
                &format!("virtio-blk-pci,drive=disk{index}"),
            ]);
        }
        for (index, (disk, file)) in self.zero_disks.iter().enumerate() {
            qemu.args(zero_disk(index, disk, file.as_deref()));
        }
        qemu
    }
}

/// The arguments for a zero disk.
fn zero_disk(index: usize, disk: &ZeroDisk, file: Option<&Path>) -> [String; 4] {
    let bytes = u64::from(ZeroDisk::MIB) << 20;
    let (option, backend) = match (disk.zeroes, file) {
        (Zeroes::File, Some(file)) => (
            "-drive",
            format!(
                "if=none,id=zero{index},format=raw,snapshot=on,cache=unsafe,file={}",
                comma_safe(file)
            ),
        ),
        (Zeroes::Failing, _) => (
            "-blockdev",
            format!(
                "driver=blkdebug,node-name=zero{index},image.driver=null-co,image.size={bytes},\
                 image.read-zeroes=on,inject-error.0.event=none,inject-error.0.iotype=read,\
                 inject-error.0.errno=5,inject-error.0.sector={}",
                bytes / 2 / 512
            ),
        ),
        (Zeroes::Null | Zeroes::File, _) => (
            "-blockdev",
            format!("driver=null-co,node-name=zero{index},size={bytes},read-zeroes=on"),
        ),
    };
    let device = match disk.bus {
        Bus::Virtio => format!("virtio-blk-pci,drive=zero{index}"),
        Bus::Nvme => format!("nvme,serial=zero{index},drive=zero{index}"),
    };
    [option.into(), backend, "-device".into(), device]
}

/// Doubles commas, which QEMU requires in values.
pub(super) fn comma_safe(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The first line of the emulator's version output.
pub fn version() -> anyhow::Result<String> {
    let text = crate::shell::output(Command::new(QEMU).arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mode: Mode, accelerator: Accelerator) -> Machine {
        let kernel = Bootable {
            kernel: Kernel::Limelight,
            dir: PathBuf::new(),
            hash: String::new(),
        };
        Machine {
            memory_mib: 160,
            disks: vec!["a,b".into(), "c".into()],
            mode,
            parameters: vec!["x=1"],
            seed: 7,
            ..Machine::bare(&kernel, "initramfs".into(), accelerator)
        }
    }

    fn line(machine: &Machine) -> String {
        crate::shell::show(&machine.command(Path::new("console.log"), Path::new("results.jsonl")))
    }

    #[test]
    fn exact_mode_takes_time_only_from_instructions() {
        let exact = machine(Mode::Exact, Accelerator::Kvm);
        let line = line(&exact);
        for part in [
            "-icount shift=0,sleep=off",
            "clock=vm",
            "-seed 7",
            "-smp 1",
            "nokaslr",
            "tsc_early_khz=1000000",
        ] {
            assert!(line.contains(part), "{part} is missing: {line}");
        }
        assert!(!line.contains("kvm"), "{line}");
        assert_eq!((exact.cpus(), exact.accelerator()), (1, Accelerator::Tcg));
    }

    #[test]
    fn fast_mode_uses_all_cpus() {
        let tcg = line(&machine(Mode::Fast, Accelerator::Tcg));
        assert!(
            tcg.contains("-accel tcg,thread=multi") && tcg.contains("-smp 2"),
            "{tcg}"
        );
        let mut in_turn = machine(Mode::Fast, Accelerator::Tcg);
        in_turn.in_turn = true;
        let in_turn = line(&in_turn);
        assert!(
            in_turn.contains("-accel tcg,thread=single") && in_turn.contains("-smp 2"),
            "{in_turn}"
        );
        let kvm = line(&machine(Mode::Fast, Accelerator::Kvm));
        assert!(kvm.contains("-accel kvm -cpu host"), "{kvm}");
        assert!(!kvm.contains("tsc_early_khz"), "{kvm}");
    }

    #[test]
    fn arm64_machine_has_its_own_serial_ports() {
        let mut machine = machine(Mode::Fast, Accelerator::Tcg);
        machine.kernel = Kernel::Arm64;
        let line = line(&machine);
        for part in [
            "qemu-system-aarch64",
            "-M virt",
            "-cpu max -smp 2",
            "console=ttyAMA0",
            "-serial chardev:console",
            "pci-serial,chardev=results",
        ] {
            assert!(line.contains(part), "{part} is missing: {line}");
        }
        assert!(!line.contains("tsc") && !line.contains("isa-"), "{line}");
    }

    #[test]
    fn disks_are_snapshots_and_may_have_commas_in_their_names() {
        let line = line(&machine(Mode::Fast, Accelerator::Tcg));
        assert!(
            line.contains("id=disk0,format=raw,snapshot=on,cache=unsafe,file=a,,b"),
            "{line}"
        );
        assert!(line.contains("virtio-blk-pci,drive=disk1"), "{line}");
        assert!(!line.contains("throttling"), "{line}");
    }

    #[test]
    fn zero_disks_have_matching_backends() {
        let mut machine = machine(Mode::Fast, Accelerator::Tcg);
        machine.zero_disks = vec![
            (ZeroDisk::new(Bus::Virtio, Zeroes::Null), None),
            (ZeroDisk::new(Bus::Nvme, Zeroes::File), Some("d".into())),
            (ZeroDisk::new(Bus::Virtio, Zeroes::Failing), None),
        ];
        let line = self::line(&machine);
        for part in [
            "driver=null-co,node-name=zero0,size=16777216,read-zeroes=on -device virtio-blk-pci,drive=zero0",
            "file=d -device nvme,serial=zero1,drive=zero1",
            "inject-error.0.sector=16384 -device virtio-blk-pci,drive=zero2",
        ] {
            assert!(line.contains(part), "{part} is missing: {line}");
        }
    }

    #[test]
    fn slow_disks_share_one_request_limit() {
        let mut machine = machine(Mode::Fast, Accelerator::Tcg);
        machine.disk_speed = Some(DiskSpeed {
            requests_per_s: 120,
            request_kib: 48,
        });
        let line = self::line(&machine);
        let words =
            "throttling.group=disk,throttling.iops-total=120,throttling.iops-size=49152,file=";
        assert_eq!(line.matches(words).count(), 2, "{line}");
    }

    #[test]
    fn debug_kernel_keeps_its_lockup_detectors() {
        let mut machine = machine(Mode::Fast, Accelerator::Tcg);
        assert!(machine.kernel_parameters().contains("nosoftlockup"));
        assert!(machine.kernel_parameters().ends_with(" x=1"));
        machine.kernel = Kernel::Debug;
        assert!(!machine.kernel_parameters().contains("nosoftlockup"));
    }
}
