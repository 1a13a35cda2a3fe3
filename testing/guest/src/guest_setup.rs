// SPDX-License-Identifier: GPL-2.0-or-later
//! The guest's setup: file systems, modules, disks, swap and page replacement.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::disk::Disk;
use crate::flash;
use crate::init::SLEPT;
use crate::memory::{Mapping, MIB, PAGE};
use crate::null_blk::NullBlk;
use crate::plan::{Data, Machine, Swap};
use crate::process::{named, run};
use crate::store::Store;

/// Timeout of [`wait`]; only a hang takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

const RTC: &str = "/sys/class/rtc/rtc0/wakealarm";
const POWER: &str = "/sys/power/state";
/// File that selects the depth of suspend. The RTC alarm wakes the lab's machine only from the
/// depth `deep`.
const DEPTH: &str = "/sys/power/mem_sleep";

/// Mount point of the data disk.
const DATA: &str = "/data";
/// Android's mount point for the cpusets of cgroup v1.
pub const CPUSET: &str = "/dev/cpuset";
/// Mount point of the Debian root file system.
pub const ROOTFS: &str = "/rootfs";
/// Exact mode's device for files, and its device that discards writes.
const NULL_DATA: &str = "limelight-data";
const NULL_SINK: &str = "limelight-sink";
/// Exact mode's swap device.
const NULL_SWAP: &str = "limelight-swap";
const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";
const ZRAM: &str = "/dev/zram0";
/// Largest request of a slow disk, in KiB: the same as virtio's.
const LARGEST_REQUEST_KIB: u32 = 1280;
/// Read-ahead of the machine's disks in KiB: Linux's default, except that Linux 7.3 has 8 MiB on
/// disks that report to be rotational, as QEMU's do.
const READ_AHEAD_KIB: u64 = 128;

/// Mounts the kernel's own file systems, which everything else needs.
pub fn mount_kernel_file_systems() -> Result<()> {
    for (source, target, kind, options) in [
        ("proc", "/proc", "proc", ""),
        ("sysfs", "/sys", "sysfs", ""),
        ("devtmpfs", "/dev", "devtmpfs", ""),
        ("tmpfs", "/run", "tmpfs", "mode=755"),
        ("tmpfs", "/tmp", "tmpfs", "mode=1777"),
        // systemd's mount options.
        (
            "cgroup2",
            crate::cgroup::ROOT,
            "cgroup2",
            "nsdelegate,memory_recursiveprot",
        ),
    ] {
        mount(source, target, kind, options)?;
    }
    fs::create_dir_all("/var/lib")?;
    // A kernel without one of these file systems still runs most scenarios; a scenario that needs
    // it fails with an error.
    for (kind, target) in [
        ("tracefs", "/sys/kernel/tracing"),
        ("configfs", "/sys/kernel/config"),
    ] {
        if Path::new(target).is_dir() {
            let _ = mount(kind, target, kind, "");
        }
    }
    Ok(())
}

/// Sets the machine up as the plan says, modules first. Returns the memory that is locked so that
/// only the planned amount stays free; `None` if the plan sets no amount.
pub fn set_up(machine: &Machine) -> Result<Option<Mapping>> {
    load_modules(machine)?;
    if machine.cgroup_v1 {
        for (target, options) in [
            ("/dev/memcg", "memory"),
            (CPUSET, "cpuset,noprefix"),
            ("/dev/cpuctl", "cpu"),
            ("/dev/blkio", "blkio"),
        ] {
            mount("none", target, "cgroup", options)?;
        }
    }
    mount_configfs();
    if machine.disks_model_flash {
        report_flash()?;
    }
    if let Some(flash) = &machine.flash {
        flash::create(flash)?;
    }
    match &machine.data {
        Data::None => {}
        Data::Disk(device) => mount_disk(device, DATA)?,
        Data::NullBlk {
            mib,
            completion_nsec,
        } => {
            null_blk(NULL_DATA, *mib, *completion_nsec, None, true)?;
            null_blk(NULL_SINK, *mib, *completion_nsec, None, false)?;
        }
        Data::SlowDisk { mib, request_nsec } => {
            null_blk(
                NULL_DATA,
                *mib,
                *request_nsec,
                Some(LARGEST_REQUEST_KIB),
                true,
            )?;
            let device = format!("/dev/{NULL_DATA}");
            make_ext4(&device).with_context(|| format!("cannot format {device}"))?;
            mount(&device, DATA, "ext4", "")?;
        }
    }
    if let Swap::NullBlk {
        mib,
        completion_nsec,
    } = &machine.swap
    {
        null_blk(NULL_SWAP, *mib, *completion_nsec, None, true)?;
        let device = format!("/dev/{NULL_SWAP}");
        fill(Path::new(&device), *mib).with_context(|| format!("cannot fill {device}"))?;
    }
    if let Some(device) = &machine.rootfs {
        mount_disk(device, ROOTFS)?;
        for directory in ["proc", "sys", "dev", "run", "tmp"] {
            bind(&format!("/{directory}"), &format!("{ROOTFS}/{directory}"))?;
        }
        if machine.data != Data::None {
            bind(DATA, &format!("{ROOTFS}/mnt"))?;
        }
    }
    reset(machine)?;
    machine.free_mib.map(ballast).transpose()
}

/// Mounts configfs if it was missing at boot because it is a module.
pub fn mount_configfs() {
    if !Path::new("/sys/kernel/config/nullb").is_dir() && Path::new("/sys/kernel/config").is_dir() {
        let _ = mount("configfs", "/sys/kernel/config", "configfs", "");
    }
}

/// Loads the plan's modules.
pub fn load_modules(machine: &Machine) -> Result<()> {
    machine
        .modules
        .iter()
        .try_for_each(|path| load_module(path))
}

/// The value of a field of `/proc/meminfo`, in KiB.
pub fn memory_kib(name: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    meminfo_kib(&text, name)
}

/// The value of a field in a text with the format of `/proc/meminfo`, in KiB.
pub fn meminfo_kib(text: &str, name: &str) -> Result<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok())
        .with_context(|| format!("/proc/meminfo has no {name} in kB"))
}

/// Locks memory until only `free_mib` MiB are free.
pub fn ballast(free_mib: u32) -> Result<Mapping> {
    let free_kib = memory_kib("MemFree")? as usize;
    let surplus = (free_kib << 10).saturating_sub(free_mib as usize * MIB) / PAGE * PAGE;
    if surplus == 0 {
        bail!("{free_kib} KiB are free, {free_mib} MiB are wanted: give the machine more memory");
    }
    Mapping::locked(surplus)
}

/// Resets the state for the next cell: page replacement, empty swap, empty page cache.
pub fn reset(machine: &Machine) -> Result<()> {
    if let Some(wanted) = machine.lru_gen {
        set_lru_gen(wanted)?;
    }
    reset_swap(&machine.swap)?;
    drop_caches()
}

/// Writes dirty pages back and empties the page cache and the slabs.
pub fn drop_caches() -> Result<()> {
    // SAFETY: sync has no preconditions.
    unsafe { libc::sync() };
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the caches")
}

/// The file store of the plan's machine.
pub fn store(machine: &Machine) -> Result<Store> {
    match &machine.data {
        Data::Disk(_) | Data::SlowDisk { .. } => Ok(Store::Directory(PathBuf::from(DATA))),
        Data::NullBlk { mib, .. } => Ok(Store::Device {
            path: format!("/dev/{NULL_DATA}").into(),
            sink: format!("/dev/{NULL_SINK}").into(),
            size: u64::from(*mib) * MIB as u64,
            next: 0,
        }),
        Data::None => bail!("this scenario needs a data disk, and the plan's machine has none"),
    }
}

/// The PID of the first node's kswapd.
pub fn kswapd() -> Result<Option<i32>> {
    named("kswapd0")
}

/// The number in a file of `/sys` or of a cgroup; the file must hold nothing else.
pub fn number_in(path: &Path) -> Result<u64> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("{} holds {text:?}, not a number", path.display()))
}

/// Makes all QEMU's disks report that they do not rotate.
fn report_flash() -> Result<()> {
    for entry in fs::read_dir("/sys/block").context("cannot list /sys/block")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("vd") {
            let file = entry.path().join("queue/rotational");
            fs::write(&file, "0").with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

/// Waits until a condition holds; false on timeout.
pub fn wait(mut holds: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if holds()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        sleep(Duration::from_millis(50));
    }
}

/// Suspends the machine for two seconds.
pub fn suspend() -> Result<()> {
    fs::write(RTC, "+2").with_context(|| format!("cannot write {RTC}"))?;
    fs::write(DEPTH, "deep").with_context(|| format!("cannot write {DEPTH}"))?;
    fs::write(POWER, "mem").with_context(|| format!("cannot write {POWER}"))?;
    fs::write(SLEPT, "").with_context(|| format!("cannot write {SLEPT}"))
}

/// Whether MGLRU is enabled.
pub fn mglru() -> bool {
    fs::read_to_string(LRU_GEN)
        .ok()
        .and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok())
        .is_some_and(|bits| bits & 1 != 0)
}

fn set_lru_gen(wanted: u8) -> Result<()> {
    if !Path::new(LRU_GEN).exists() {
        if wanted == 0 {
            return Ok(());
        }
        bail!("{LRU_GEN} is absent: this kernel is built without CONFIG_LRU_GEN");
    }
    fs::write(LRU_GEN, wanted.to_string())
        .with_context(|| format!("cannot write {wanted} to {LRU_GEN}"))?;
    if mglru() != (wanted & 1 != 0) {
        bail!(
            "{LRU_GEN} reads {:?} after {wanted} was written",
            fs::read_to_string(LRU_GEN)
        );
    }
    Ok(())
}

/// The swap device, if there is one.
pub fn swap_device(swap: &Swap) -> Option<String> {
    match swap {
        Swap::None => None,
        Swap::Disk(device) => Some(device.clone()),
        Swap::NullBlk { .. } => Some(format!("/dev/{NULL_SWAP}")),
        Swap::Zram(_) | Swap::ZramDisk { .. } => Some(ZRAM.into()),
    }
}

/// Turns swap off until the next cell.
pub fn swap_off(swap: &Swap) -> Result<()> {
    let Some(device) = swap_device(swap) else {
        return Ok(());
    };
    let path = CString::new(device.as_str())?;
    // SAFETY: `path` is a valid string.
    if unsafe { libc::swapoff(path.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot turn swap off on {device}"));
    }
    Ok(())
}

fn reset_swap(swap: &Swap) -> Result<()> {
    let Some(device) = swap_device(swap) else {
        return Ok(());
    };
    let path = CString::new(device.as_str())?;
    // SAFETY: `path` is a valid string. Failure means that the device was not in use as swap.
    unsafe { libc::swapoff(path.as_ptr()) };
    let zram = match swap {
        Swap::Zram(mib) => Some((mib, None)),
        Swap::ZramDisk { mib, disk } => Some((mib, Some(disk))),
        Swap::None | Swap::Disk(_) | Swap::NullBlk { .. } => None,
    };
    if let Some((mib, disk)) = zram {
        fs::write("/sys/block/zram0/reset", "1").context("cannot reset zram0: no zram device?")?;
        // The kernel accepts a backing device only before the size is set.
        if let Some(disk) = disk {
            fs::write("/sys/block/zram0/backing_dev", disk)
                .context("cannot set the backing device of zram0: no CONFIG_ZRAM_WRITEBACK?")?;
        }
        fs::write("/sys/block/zram0/disksize", format!("{mib}M"))
            .context("cannot set the size of zram0")?;
    }
    make_swap(&device).with_context(|| format!("cannot write a swap header to {device}"))?;
    // SAFETY: `path` is a valid string.
    if unsafe { libc::swapon(path.as_ptr(), 0) } != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot use {device} as swap"));
    }
    Ok(())
}

/// Writes a swap header: version 1, last page, no bad pages.
fn make_swap(device: &str) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    let bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
    file.write_all_at(&swap_header(bytes)?, 0)?;
    file.sync_all()?;
    Ok(())
}

fn swap_header(bytes: u64) -> Result<Vec<u8>> {
    let pages = bytes / PAGE as u64;
    if pages < 10 {
        bail!("{bytes} bytes are too few for swap");
    }
    let mut header = vec![0u8; PAGE];
    header[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    header[1028..1032].copy_from_slice(&u32::try_from(pages - 1)?.to_le_bytes());
    header[PAGE - 10..].copy_from_slice(b"SWAPSPACE2");
    Ok(header)
}

/// Formats a device with busybox's ext2, and enables extents. With ext2's block lists, every few
/// MiB of a file would need an extra request.
pub fn make_ext4(device: &str) -> Result<()> {
    const SUPERBLOCK: u64 = 1024;
    const INCOMPATIBLE: u64 = SUPERBLOCK + 0x60;
    const EXTENTS: u32 = 0x40;
    let (code, text) = run(
        "/bin/busybox",
        &["mke2fs", "-F", "-b", "4096", "-m", "0", device],
    )?;
    if code != 0 {
        bail!("mke2fs exited with {code}: {}", text.trim());
    }
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    let mut word = [0; 4];
    file.read_exact_at(&mut word, INCOMPATIBLE)?;
    let features = u32::from_le_bytes(word) | EXTENTS;
    file.write_all_at(&features.to_le_bytes(), INCOMPATIBLE)?;
    Ok(file.sync_all()?)
}

fn null_blk(
    name: &str,
    mib: u32,
    completion_nsec: u32,
    request_kib: Option<u32>,
    memory_backed: bool,
) -> Result<()> {
    let largest = request_kib.map(|kib| ("max_sectors", (kib * 2).to_string()));
    let mut properties = vec![
        ("size", mib.to_string()),
        ("memory_backed", u8::from(memory_backed).to_string()),
        ("irqmode", "2".into()),
        ("completion_nsec", completion_nsec.to_string()),
    ];
    properties.extend(largest);
    NullBlk::create(name, &properties).map(drop)
}

/// Writes every byte of a device, so that all its memory is allocated.
pub fn fill(device: &Path, mib: u32) -> Result<()> {
    let mut file = OpenOptions::new().write(true).open(device)?;
    let zeros = vec![0u8; MIB];
    for _ in 0..mib {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    Ok(())
}

fn load_module(path: &str) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open the module {path}"))?;
    // The module creates no null_blk devices: configfs does, where their properties can be set.
    let parameters = if path.contains("null_blk") {
        c"nr_devices=0"
    } else {
        c""
    };
    // SAFETY: the descriptor and the string are valid.
    let done = unsafe {
        libc::syscall(
            libc::SYS_finit_module,
            file.as_raw_fd(),
            parameters.as_ptr(),
            0,
        )
    };
    if done != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EEXIST) {
            return Err(error).with_context(|| format!("cannot load the module {path}"));
        }
    }
    Ok(())
}

/// Mounts a disk of the machine, such as `/dev/vda`, or a partition of it, with the read-ahead of
/// [`READ_AHEAD_KIB`].
fn mount_disk(device: &str, target: &str) -> Result<()> {
    Disk::of(Path::new(device))?.set_read_ahead_kib(READ_AHEAD_KIB)?;
    mount(device, target, "ext4", "")
}

fn bind(source: &str, target: &str) -> Result<()> {
    mount_flags(source, target, "", "", libc::MS_BIND | libc::MS_REC)
}

/// Mounts a file system on a directory, which is created if absent.
pub fn mount(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    mount_flags(source, target, kind, options, 0)
}

/// Detaches the mount on a directory. The kernel removes the mount as soon as it is unused.
pub fn unmount(target: &str) -> Result<()> {
    let path = CString::new(target)?;
    // SAFETY: the string is valid and outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).with_context(|| format!("cannot unmount {target}")),
    }
}

/// Makes a mount, not its whole file system, read-only or writable.
pub fn remount(target: &str, writable: bool) -> Result<()> {
    let read_only = if writable { 0 } else { libc::MS_RDONLY };
    let flags = libc::MS_REMOUNT | libc::MS_BIND | read_only;
    mount_flags("none", target, "", "", flags)
}

fn mount_flags(
    source: &str,
    target: &str,
    kind: &str,
    options: &str,
    flags: libc::c_ulong,
) -> Result<()> {
    if !Path::new(target).is_dir() {
        fs::create_dir_all(target).with_context(|| format!("cannot create {target}"))?;
    }
    let (c_source, c_target, c_kind, c_options) = (
        CString::new(source)?,
        CString::new(target)?,
        CString::new(kind)?,
        CString::new(options)?,
    );
    // SAFETY: all strings are valid and outlive the call.
    let done = unsafe {
        libc::mount(
            c_source.as_ptr(),
            c_target.as_ptr(),
            c_kind.as_ptr(),
            flags,
            c_options.as_ptr().cast(),
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot mount {source} ({kind}) on {target}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::swap_header;
    use crate::memory::PAGE;

    #[test]
    fn swap_header_names_the_last_page() {
        let header = swap_header(1 << 20).unwrap();
        assert_eq!(header.len(), PAGE);
        assert_eq!(header[1028..1032], 255u32.to_le_bytes());
        assert!(header.ends_with(b"SWAPSPACE2"));
        assert!(swap_header(4096).is_err());
    }
}
