// SPDX-License-Identifier: GPL-2.0-or-later
//! The modelled flash disk: one `null_blk` device with a partition for files and another for swap.
//! Both partitions share one queue, which serves one request at a time.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

use crate::guest_setup;
use crate::memory::MIB;
use crate::null_blk::NullBlk;
use crate::plan::Flash;

/// Length of the queue, as in the MMC driver. The kernel can merge and sort queued requests.
const WAITING: u32 = 64;
/// `BLKPG` and its operation that adds a partition (linux/blkpg.h).
const BLKPG: libc::Ioctl = 0x1269;
const ADD_PARTITION: libc::c_int = 1;

#[repr(C)]
struct Argument {
    op: libc::c_int,
    flags: libc::c_int,
    length: libc::c_int,
    data: *const Partition,
}

#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: libc::c_int,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// The properties of a `null_blk` disk that give it the flash's speed: it serves one request at a
/// time.
pub fn pace(flash: &Flash) -> [(&'static str, String); 3] {
    [
        ("completion_nsec", flash.request_nsec.to_string()),
        ("hw_queue_depth", "1".into()),
        ("max_sectors", (flash.request_kib * 2).to_string()),
    ]
}

/// Creates the disk, writes all of it, adds the partitions, and formats the file partition.
pub fn create(flash: &Flash) -> Result<()> {
    let mib = flash.files_mib + flash.swap_mib;
    let disk = NullBlk::in_memory(Flash::DISK, mib.into(), &pace(flash))?;
    let queue = format!("/sys/block/{}/queue", Flash::DISK);
    for (file, value) in [
        ("scheduler", "mq-deadline".into()),
        ("nr_requests", WAITING.to_string()),
    ] {
        let path = Path::new(&queue).join(file);
        fs::write(&path, &value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))?;
    }
    let device = disk.device();
    guest_setup::fill(device, mib).with_context(|| format!("cannot fill {}", device.display()))?;
    add_partition(device, 1, 0, flash.files_mib)?;
    guest_setup::make_ext4(Flash::FILES)
        .with_context(|| format!("cannot format {}", Flash::FILES))?;
    if flash.swap_mib > 0 {
        add_partition(device, 2, flash.files_mib, flash.swap_mib)?;
    }
    Ok(())
}

/// First sector of the swap partition.
pub fn swap_sector(flash: &Flash) -> u64 {
    u64::from(flash.files_mib) * MIB as u64 / 512
}

fn add_partition(device: &Path, number: i32, start_mib: u32, mib: u32) -> Result<()> {
    let bytes = |mib: u32| i64::from(mib) * MIB as i64;
    let partition = Partition {
        start: bytes(start_mib),
        length: bytes(mib),
        number,
        device_name: [0; 64],
        volume_name: [0; 64],
    };
    let argument = Argument {
        op: ADD_PARTITION,
        flags: 0,
        length: size_of::<Partition>() as libc::c_int,
        data: &partition,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .with_context(|| format!("cannot open {}", device.display()))?;
    // SAFETY: `argument` points to a partition of the length that it names; both outlive the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKPG, &argument) } != 0 {
        return Err(io::Error::last_os_error()).with_context(|| {
            format!(
                "cannot add partition {number} ({mib} MiB) to {}",
                device.display()
            )
        });
    }
    Ok(())
}
