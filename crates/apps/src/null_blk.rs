// SPDX-License-Identifier: GPL-2.0-or-later
//! Disks that the kernel makes up (`null_blk`), with every property that configfs offers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

/// A disk of this kind. It stays when this is dropped.
pub struct NullBlk {
    directory: PathBuf,
    device: PathBuf,
}

impl NullBlk {
    /// Makes the disk `/dev/NAME` and switches it on.
    pub fn create(name: &str, properties: &[(&str, String)]) -> Result<Self> {
        let directory = PathBuf::from("/sys/kernel/config/nullb").join(name);
        fs::create_dir(&directory).with_context(|| {
            format!("cannot create {}: is null_blk there?", directory.display())
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

    /// Its device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Sets a property.
    pub fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value)
            .with_context(|| format!("cannot write {value} to {}", path.display()))
    }

    /// Takes the disk away, whoever uses it.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir(&self.directory)
            .with_context(|| format!("cannot remove {}", self.directory.display()))
    }
}
