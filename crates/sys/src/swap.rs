// SPDX-License-Identifier: GPL-2.0-or-later
//! The medium of each swap area, and the memory that compressed swap uses: zram, and zswap in front
//! of other areas.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{major, minor};

use crate::block;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::keyed::Keyed;
use crate::meminfo::SwapArea;
use crate::mountinfo::unescape;
use crate::persistent_file::PersistentFile;
use crate::proc::Proc;

/// Medium of a swap area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwapMedium {
    /// Compressed memory.
    Zram(Zram),
    /// A disk or a partition.
    Disk(Spin),
    /// A file on a disk.
    File(Spin),
}

/// Whether a disk has moving parts (`queue/rotational`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// No moving parts: flash, or a device that reports itself as non-rotational.
    Solid,
    /// Moving parts: a hard disk.
    Rotational,
    /// Not reported by the kernel, for example for a file system on several disks or a removed
    /// disk.
    Unknown,
}

/// Contents of a zram device (`mm_stat`, `bd_stat`), in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zram {
    /// Data stored, before compression.
    pub stored_bytes: u64,
    /// Data stored, after compression.
    pub compressed_bytes: u64,
    /// Memory used, including the allocator's overhead.
    pub taken_bytes: u64,
    /// Limit of the memory used; 0 means no limit.
    pub limit_bytes: u64,
    /// Whether the device has a backing device, to which its pages can be written back
    /// (`backing_dev`).
    pub backed: bool,
    /// Data on the backing device. It uses no memory.
    pub written_back_bytes: u64,
    /// Data that was ever written to the backing device.
    pub backing_writes_bytes: u64,
}

/// What a block device has transferred since boot (`stat`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Time in which at least one request was in progress. Resolution: one kernel tick.
    pub busy: Duration,
}

/// State of zswap, the compressed cache in front of swap areas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Zswap {
    /// Whether the kernel compresses swapped pages and keeps them in memory before it writes them
    /// to an area.
    pub enabled: bool,
    /// Limit of the memory used, in percent of the machine's memory.
    pub most_percent: u32,
    /// Memory used now, in bytes; `None` before Linux 5.19.
    pub taken_bytes: Option<u64>,
    /// Data stored, before compression, in bytes; `None` before Linux 5.19.
    pub stored_bytes: Option<u64>,
}

impl SwapArea {
    /// Determines the medium of the area from sysfs (`/sys`). If a disk or file was removed in the
    /// meantime, the result has [`Spin::Unknown`].
    ///
    /// # Errors
    ///
    /// For a zram device: [`Error::Malformed`] if its statistics have an undocumented form,
    /// [`Error::Gone`] if it was removed in the meantime.
    pub fn medium(&self, sys: &Dir) -> Result<SwapMedium> {
        let path = unescape(&self.path);
        if self.is_zram() {
            return Ok(SwapMedium::Zram(Zram::read(sys, name_of(&path))?));
        }
        if self.kind == "file" {
            let device = rustix::fs::stat(&path).map(|stat| stat.st_dev);
            let spin = device.map_or(Spin::Unknown, |device| {
                let number = format!("{}:{}", major(device), minor(device));
                spin(&sys.path().join("dev/block").join(number))
            });
            return Ok(SwapMedium::File(spin));
        }
        Ok(SwapMedium::Disk(spin(&self.block_directory(sys))))
    }

    /// The sysfs directory of the area's disk or partition.
    fn block_directory(&self, sys: &Dir) -> PathBuf {
        let path = unescape(&self.path);
        sys.path().join("class/block").join(name_of(&path))
    }

    /// What the area's disk or partition has transferred since boot. `None` for a file, whose disk
    /// also holds other files, and if the kernel reports nothing.
    pub fn transfers(&self, sys: &Dir) -> Option<Transfers> {
        if self.kind == "file" {
            return None;
        }
        let block = self.block_directory(sys);
        let text = Dir::open(block).ok()?.read_text("stat").ok()?;
        Transfers::parse(&text)
    }
}

impl Transfers {
    /// Parses a block device's `stat`, whose sectors have 512 bytes and whose times are in
    /// milliseconds (`Documentation/block/stat.rst`). `None` if a number is missing.
    pub fn parse(text: &str) -> Option<Transfers> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let number = |place: usize| words.get(place)?.parse::<u64>().ok();
        Some(Transfers {
            read: number(2)?.saturating_mul(512),
            written: number(6)?.saturating_mul(512),
            busy: Duration::from_millis(number(9)?),
        })
    }

    /// The transfers since an earlier reading; `None` if a counter has decreased.
    pub fn since(&self, before: &Transfers) -> Option<Transfers> {
        Some(Transfers {
            read: self.read.checked_sub(before.read)?,
            written: self.written.checked_sub(before.written)?,
            busy: self.busy.checked_sub(before.busy)?,
        })
    }
}

/// Last component of a path; empty for `/`.
fn name_of(path: &Path) -> &str {
    let name = path.file_name().map(OsStrExt::as_bytes);
    std::str::from_utf8(name.unwrap_or_default()).unwrap_or_default()
}

/// Whether a disk rotates. `block` is the sysfs directory of the disk or of a partition.
fn spin(block: &Path) -> Spin {
    let text = block::queue(block).and_then(|queue| queue.read_text("rotational").ok());
    match text.as_deref().map(str::trim) {
        Some("0") => Spin::Solid,
        Some("1") => Spin::Rotational,
        _ => Spin::Unknown,
    }
}

impl Zram {
    /// Reads the state of a device with this name (`zram0`) below a sysfs root.
    pub fn read(sys: &Dir, name: &str) -> Result<Zram> {
        const FILE: &str = "mm_stat";
        let device = Dir::open(sys.path().join("class/block").join(name))?;
        let text = device.read_text(FILE)?;
        let zram = Zram::parse(&text).ok_or_else(|| {
            let what = format!("{:?} is not in the format of mm_stat", text.trim());
            Error::malformed(device.path().join(FILE), what)
        })?;
        // Both files exist only on a kernel with CONFIG_ZRAM_WRITEBACK. The unit of bd_stat is 4
        // KiB. Its numbers: pages there now, pages ever read, pages ever written. Without a backing
        // device, all are 0: only a reset of the device removes one, and it clears them.
        let backing = device.read_text("backing_dev").unwrap_or_default();
        let backed = !matches!(backing.trim(), "" | "none");
        let statistics = match backed {
            true => device.read_text("bd_stat").unwrap_or_default(),
            false => String::new(),
        };
        let pages = |place| statistics.split_ascii_whitespace().nth(place)?.parse().ok();
        let bytes = |place| pages(place).map_or(0, |pages: u64| pages.saturating_mul(4096));
        Ok(Zram {
            backed,
            written_back_bytes: bytes(0),
            backing_writes_bytes: bytes(2),
            ..zram
        })
    }

    /// Parses `mm_stat`; `None` if one of its first four numbers is missing.
    pub fn parse(text: &str) -> Option<Zram> {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Zram {
            stored_bytes: next()?,
            compressed_bytes: next()?,
            taken_bytes: next()?,
            limit_bytes: next()?,
            ..Zram::default()
        })
    }
}

/// Writes single pages of a zram device to its backing device (`writeback`).
#[derive(Debug)]
pub struct WriteBack {
    file: PersistentFile,
    path: PathBuf,
}

impl WriteBack {
    /// Opens the file of a zram device that is a swap area. `None` if the area is no zram device, or
    /// the device has no backing device.
    pub fn open(area: &SwapArea, sys: &Dir) -> Result<Option<WriteBack>> {
        const FILE: &str = "writeback";
        match area.medium(sys)? {
            SwapMedium::Zram(zram) if zram.backed => {}
            _ => return Ok(None),
        }
        let device = Dir::open(area.block_directory(sys))?;
        Ok(Some(WriteBack {
            file: PersistentFile::open_to_write(&device, FILE)?,
            path: device.path().join(FILE),
        }))
    }

    /// Writes the page with this offset in the swap area. Nothing happens if the page is already on
    /// the backing device or is filled with one value.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the backing device is full, `EIO` if the administrator's limit
    /// (`writeback_limit`) is used up.
    pub fn page(&self, offset: u64) -> Result<()> {
        let value = format!("page_index={offset}");
        let written = self.file.write(value.as_bytes());
        written.map_err(|errno| Error::new("write", self.path.clone(), errno))
    }
}

impl Zswap {
    /// Whether zswap is enabled. It is not on a kernel without zswap.
    pub fn is_enabled(sys: &Dir) -> Result<bool> {
        match sys.read_text("module/zswap/parameters/enabled") {
            Ok(enabled) => Ok(enabled.trim() == "Y"),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the state of zswap. On a kernel without zswap, the result is the default: not enabled.
    pub fn read(sys: &Dir, proc: &Proc) -> Result<Zswap> {
        let parameters = match sys.open_dir("module/zswap/parameters") {
            Ok(parameters) => parameters,
            Err(error) if error.is_gone() => return Ok(Zswap::default()),
            Err(error) => return Err(error),
        };
        let percent = parameters.read_text("max_pool_percent").ok();
        let meminfo = Keyed::parse(proc.dir().read_text("meminfo")?);
        let bytes = |name| meminfo.get(name).and_then(|kib| kib.checked_mul(1024));
        Ok(Zswap {
            enabled: Zswap::is_enabled(sys)?,
            most_percent: percent
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
            taken_bytes: bytes("Zswap"),
            stored_bytes: bytes("Zswapped"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meminfo::parse_swaps;
    use proptest::prelude::*;
    use std::fs;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn transfers_of_a_partition_are_read_and_those_of_a_file_are_not() {
        let (temp, sys) = fake();
        let numbers = "  5 1 16 7 3 0 8 2 0 12 9 0 0 0 0 0 0\n";
        write(temp.path(), "devices/sda/sda2/stat", numbers);
        let transfers = |path: &str, kind: &str| {
            let line = format!("F T S U P\n{path} {kind} 1024 0 -2\n");
            parse_swaps(&line)[0].transfers(&sys)
        };
        let expected = Transfers {
            read: 8192,
            written: 4096,
            busy: Duration::from_millis(12),
        };
        assert_eq!(transfers("/dev/sda2", "partition"), Some(expected));
        assert_eq!(transfers("/dev/sda2", "file"), None);
        assert_eq!(transfers("/dev/vda", "partition"), None);
        assert_eq!(Transfers::parse("1 2 3"), None);
        assert_eq!(Transfers::default().since(&expected), None);
        assert_eq!(expected.since(&expected), Some(Transfers::default()));
    }

    /// A sysfs with a rotational `sda` and its partition, a solid `vda`, and `zram0`.
    fn fake() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        write(root, "devices/sda/queue/rotational", "1\n");
        write(root, "devices/sda/sda2/partition", "2\n");
        write(root, "devices/vda/queue/rotational", "0\n");
        write(
            root,
            "devices/zram0/mm_stat",
            "  81920 4096 12288  0 16384 1 0 0 0\n",
        );
        fs::create_dir_all(root.join("class/block")).unwrap();
        for (name, target) in [
            ("sda", "sda"),
            ("sda2", "sda/sda2"),
            ("vda", "vda"),
            ("zram0", "zram0"),
        ] {
            let target = Path::new("../../devices").join(target);
            std::os::unix::fs::symlink(target, root.join("class/block").join(name)).unwrap();
        }
        let dir = Dir::open(root).unwrap();
        (temp, dir)
    }

    fn medium(sys: &Dir, line: &str) -> SwapMedium {
        parse_swaps(line)[0].medium(sys).unwrap()
    }

    #[test]
    fn media_are_read_from_sysfs() {
        let (temp, sys) = fake();
        assert_eq!(
            medium(&sys, "/dev/sda2 partition 8 0 -2"),
            SwapMedium::Disk(Spin::Rotational)
        );
        assert_eq!(
            medium(&sys, "/dev/vda partition 8 0 -2"),
            SwapMedium::Disk(Spin::Solid)
        );
        assert_eq!(
            medium(&sys, "/dev/gone partition 8 0 -2"),
            SwapMedium::Disk(Spin::Unknown)
        );
        let zram = Zram {
            stored_bytes: 81920,
            compressed_bytes: 4096,
            taken_bytes: 12288,
            ..Zram::default()
        };
        let line = "/dev/zram0 partition 8 0 100";
        assert_eq!(medium(&sys, line), SwapMedium::Zram(zram));
        write(temp.path(), "devices/zram0/bd_stat", " 3 1 5\n");
        write(temp.path(), "devices/zram0/backing_dev", "none\n");
        let state = || match medium(&sys, line) {
            SwapMedium::Zram(zram) => zram,
            other => panic!("{other:?}"),
        };
        assert_eq!(state(), zram);
        let area = &parse_swaps(line)[0];
        assert!(WriteBack::open(area, &sys).unwrap().is_none());
        write(temp.path(), "devices/zram0/backing_dev", "/dev/vdb\n");
        assert!(state().backed);
        assert_eq!(state().written_back_bytes, 3 * 4096);
        assert_eq!(state().backing_writes_bytes, 5 * 4096);
        write(temp.path(), "devices/zram0/writeback", "");
        let pages = WriteBack::open(area, &sys).unwrap().unwrap();
        pages.page(17).unwrap();
        let asked = fs::read_to_string(temp.path().join("devices/zram0/writeback"));
        assert_eq!(asked.unwrap(), "page_index=17");
        write(temp.path(), "devices/zram0/mm_stat", "1 2\n");
        let error = parse_swaps(line)[0].medium(&sys).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
        assert!(error.to_string().contains("zram0/mm_stat"), "{error}");
    }

    #[test]
    fn swap_file_has_the_medium_of_its_file_system() {
        let (temp, sys) = fake();
        let file = temp.path().join("swap file");
        fs::write(&file, "").unwrap();
        let escaped = file.to_str().unwrap().replace(' ', "\\040");
        let line = format!("{escaped} file 8 0 -2");
        assert_eq!(medium(&sys, &line), SwapMedium::File(Spin::Unknown));
        let device = rustix::fs::stat(&file).unwrap().st_dev;
        let number = format!("dev/block/{}:{}", major(device), minor(device));
        write(temp.path(), &format!("{number}/queue/rotational"), "0\n");
        assert_eq!(medium(&sys, &line), SwapMedium::File(Spin::Solid));
    }

    #[test]
    fn zswap_is_off_unless_it_reports_otherwise() {
        let (temp, sys) = fake();
        write(
            temp.path(),
            "proc/meminfo",
            "Zswap: 4 kB\nZswapped: 12 kB\n",
        );
        let proc = Proc::open(temp.path().join("proc").to_str().unwrap()).unwrap();
        assert_eq!(Zswap::read(&sys, &proc).unwrap(), Zswap::default());
        let parameters = "module/zswap/parameters";
        write(temp.path(), &format!("{parameters}/enabled"), "Y\n");
        write(
            temp.path(),
            &format!("{parameters}/max_pool_percent"),
            "20\n",
        );
        let expected = Zswap {
            enabled: true,
            most_percent: 20,
            taken_bytes: Some(4096),
            stored_bytes: Some(12288),
        };
        assert_eq!(Zswap::read(&sys, &proc).unwrap(), expected);
        write(temp.path(), &format!("{parameters}/enabled"), "N\n");
        assert!(!Zswap::read(&sys, &proc).unwrap().enabled);
    }

    proptest! {
        #[test]
        fn never_panics(text in any::<String>()) {
            Zram::parse(&text);
        }
    }
}
