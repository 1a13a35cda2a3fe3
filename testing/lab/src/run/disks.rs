// SPDX-License-Identifier: GPL-2.0-or-later
//! Makes the disks of a machine, and describes them for the guest's plan.

use std::path::PathBuf;

use anyhow::{bail, Result};
use limelight_apps::plan::{Data, Flash, Init, Swap};

use crate::image::{disk, rootfs};
use crate::paths::Paths;
use crate::scenario::{Bus, MachineSize, Mode, SwapKind, Variant, ZeroDisk, Zeroes};

/// Completion time of a request to exact mode's disk, in nanoseconds.
pub(super) const EXACT_DISK_NSEC: u32 = 100_000;

/// The guest's device name of the zero disk at `index`. The `disks` other virtio disks come first.
pub(super) fn zero_disk(all: &[ZeroDisk], index: usize, disks: usize) -> String {
    let bus = all[index].bus;
    let before = all[..index].iter().filter(|disk| disk.bus == bus).count();
    match bus {
        Bus::Virtio => format!("/dev/vd{}", char::from(b'a' + (disks + before) as u8)),
        Bus::Nvme => format!("/dev/nvme{before}n1"),
    }
}

/// The zero disks; a disk with [`Zeroes::File`] has an image.
pub(super) fn zero_images(
    paths: &Paths,
    disks: &[ZeroDisk],
) -> Result<Vec<(ZeroDisk, Option<PathBuf>)>> {
    let image = |disk: &ZeroDisk| match disk.zeroes {
        Zeroes::File => Ok((*disk, Some(disk::blank(paths, ZeroDisk::MIB)?))),
        Zeroes::Null | Zeroes::Failing => Ok((*disk, None)),
    };
    disks.iter().map(image).collect()
}

/// Disk images for QEMU, and the guest's view of all disks.
pub(super) struct Disks {
    pub(super) images: Vec<PathBuf>,
    pub(super) data: Data,
    pub(super) swap: Swap,
    pub(super) flash: Option<Flash>,
    pub(super) rootfs: Option<String>,
    /// Memory in MiB for the root file system, if the guest copies it to memory.
    pub(super) rootfs_in_memory_mib: Option<u32>,
}

/// Makes the disk images of a variant's machine, or takes them from the cache.
pub(super) fn disks(
    paths: &Paths,
    variant: &Variant,
    size: &MachineSize,
    mode: Mode,
) -> Result<Disks> {
    let mut images = Vec::new();
    let mut add = |image: PathBuf| {
        let letter = char::from(b'a' + images.len() as u8);
        images.push(image);
        format!("/dev/vd{letter}")
    };
    let on_flash = size.flash.is_some();
    let data = match (size.data_mib, mode) {
        (0, _) => Data::None,
        _ if on_flash => Data::Disk(Flash::FILES.into()),
        (mib, _) if size.request_nsec > 0 => Data::SlowDisk {
            mib,
            request_nsec: size.request_nsec,
        },
        (mib, Mode::Exact) => Data::NullBlk {
            mib,
            completion_nsec: EXACT_DISK_NSEC,
        },
        (mib, Mode::Fast) => Data::Disk(add(disk::data(paths, mib)?)),
    };
    let swap = match variant.swap {
        SwapKind::None => Swap::None,
        SwapKind::Zram => Swap::Zram(size.swap_mib),
        SwapKind::ZramDisk => Swap::ZramDisk {
            mib: size.swap_mib,
            disk: match (on_flash, mode) {
                (true, _) => Flash::SWAP.into(),
                (false, Mode::Fast) => add(disk::blank(paths, size.swap_mib)?),
                (false, Mode::Exact) => bail!("in exact mode, zram-disk needs a flash disk"),
            },
        },
        SwapKind::Disk if on_flash => Swap::Disk(Flash::SWAP.into()),
        SwapKind::Disk if mode == Mode::Exact => Swap::NullBlk {
            mib: size.swap_mib,
            completion_nsec: match size.swap_nsec {
                0 => EXACT_DISK_NSEC,
                nsec => nsec,
            },
        },
        SwapKind::Disk => Swap::Disk(add(disk::blank(paths, size.swap_mib)?)),
    };
    let (rootfs, rootfs_in_memory_mib) = match size.rootfs_packages.as_slice() {
        [] => (None, None),
        packages => {
            let image = rootfs::get(paths, size.suite, packages)?;
            let in_memory = mode == Mode::Exact && size.init != Init::Lab;
            let mib = in_memory.then(|| disk::usage_mib(&image)).transpose()?;
            (Some(add(image)), mib)
        }
    };
    let flash = size.flash.map(|speed| Flash {
        files_mib: size.data_mib,
        swap_mib: match variant.swap {
            SwapKind::Disk | SwapKind::ZramDisk => size.swap_mib,
            SwapKind::None | SwapKind::Zram => 0,
        },
        request_nsec: speed.request_nsec,
        request_kib: speed.request_kib,
    });
    Ok(Disks {
        images,
        data,
        swap,
        flash,
        rootfs,
        rootfs_in_memory_mib,
    })
}

/// Makes the fast-mode disk images of a variant's machine in advance.
pub fn images(paths: &Paths, variant: &Variant, size: &MachineSize) -> Result<()> {
    disks(paths, variant, size, Mode::Fast).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_disks_follow_the_other_disks_on_their_bus() {
        let disk = |bus| ZeroDisk::new(bus, Zeroes::Null);
        let all = [
            disk(Bus::Nvme),
            disk(Bus::Virtio),
            disk(Bus::Nvme),
            disk(Bus::Virtio),
        ];
        let names: Vec<String> = (0..4).map(|index| zero_disk(&all, index, 2)).collect();
        assert_eq!(
            names,
            ["/dev/nvme0n1", "/dev/vdc", "/dev/nvme1n1", "/dev/vdd"]
        );
    }
}
