// SPDX-License-Identifier: GPL-2.0-or-later
//! Virtual disks of the kernel's `null_blk` driver, configured through configfs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::memory::MIB;

/// Unit of a copy, in bytes; a unit of zeroes is not written.
const PIECE: usize = 64 << 10;

/// A null_blk disk. Dropping the value does not remove the disk; [`NullBlk::remove`] does.
pub struct NullBlk {
    directory: PathBuf,
    device: PathBuf,
}

impl NullBlk {
    /// Creates the disk `/dev/NAME` and powers it on.
    pub fn create(name: &str, properties: &[(&str, String)]) -> Result<Self> {
        let directory = PathBuf::from("/sys/kernel/config/nullb").join(name);
        fs::create_dir(&directory).with_context(|| {
            format!("cannot create {}: is null_blk loaded?", directory.display())
        })?;
        let disk = NullBlk {
            directory,
            device: Path::new("/dev").join(name),
        };
        for (file, value) in properties {
            disk.set(file, value)?;
        }
        disk.set("power", "1")?;
        if !disk.device.exists() {
            bail!("null_blk did not create {}", disk.device.display());
        }
        Ok(disk)
    }

    /// Creates the disk `/dev/NAME` in guest memory. `more` are further properties.
    pub fn in_memory(name: &str, mib: u64, more: &[(&str, String)]) -> Result<Self> {
        let mut properties = vec![
            ("size", mib.to_string()),
            ("memory_backed", "1".into()),
            ("irqmode", "2".into()),
        ];
        properties.extend_from_slice(more);
        NullBlk::create(name, &properties)
    }

    /// Creates the disk `/dev/NAME` in guest memory, with the contents of `source`. Units of zeroes
    /// take no memory. `pace` are the properties that set the disk's speed.
    pub fn copy_of(source: &Path, name: &str, pace: &[(&str, String)]) -> Result<Self> {
        let mut from =
            File::open(source).with_context(|| format!("cannot open {}", source.display()))?;
        let bytes = from.seek(SeekFrom::End(0))?;
        from.rewind()?;
        let disk = NullBlk::in_memory(name, bytes.div_ceil(MIB as u64), pace)?;
        let to = OpenOptions::new().write(true).open(disk.device())?;
        let mut buffer = vec![0; MIB];
        let mut at = 0;
        while at < bytes {
            let length = MIB.min((bytes - at) as usize);
            from.read_exact(&mut buffer[..length])
                .with_context(|| format!("cannot read {}", source.display()))?;
            for (index, piece) in buffer[..length].chunks(PIECE).enumerate() {
                if piece.iter().any(|&byte| byte != 0) {
                    to.write_all_at(piece, at + (index * PIECE) as u64)
                        .with_context(|| format!("cannot fill {}", disk.device().display()))?;
                }
            }
            at += length as u64;
        }
        to.sync_all()?;
        Ok(disk)
    }

    /// Path of the disk's device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Sets a property.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// Removes the disk even if it is in use.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))
    }
}
