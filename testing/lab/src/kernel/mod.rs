// SPDX-License-Identifier: GPL-2.0-or-later
//! Provides kernels: built from source, or unpacked from Debian packages.

mod apt;
mod build;
mod config;
mod debian;
pub mod kselftest;
mod linux;
pub mod modules;
mod patch;
pub mod rival;
mod source;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use self::linux::Linux;
use crate::paths::{self, Paths};
use crate::scenario::Kernel;

/// A bootable kernel.
#[derive(Debug, Clone)]
pub struct Bootable {
    /// The kernel.
    pub kernel: Kernel,
    /// The kernel's entry in the cache.
    pub dir: PathBuf,
    /// Hash of the inputs that it was built from.
    pub hash: String,
}

impl Bootable {
    fn new(kernel: Kernel, dir: PathBuf) -> Result<Self> {
        let hash = dir
            .file_name()
            .and_then(|name| name.to_str()?.rsplit('-').next().map(str::to_owned))
            .with_context(|| format!("{}: not an entry of the cache", dir.display()))?;
        Ok(Bootable { kernel, dir, hash })
    }

    /// The image for QEMU.
    pub fn image(&self) -> PathBuf {
        self.dir.join(self.image_name())
    }

    fn image_name(&self) -> &'static str {
        match self.kernel {
            Kernel::Fu540 | Kernel::Arm64 | Kernel::Arm64Oldest => "Image",
            _ => "bzImage",
        }
    }

    /// The module tree; kernels built by the lab have none.
    pub fn modules(&self) -> Option<PathBuf> {
        Some(self.dir.join("modules")).filter(|dir| dir.is_dir())
    }

    /// A busybox for the kernel's architecture; `None` where the host's busybox is used.
    pub fn busybox(&self) -> Option<PathBuf> {
        Some(self.dir.join("busybox")).filter(|file| file.is_file())
    }

    /// Copies image and configuration to `target/lab/kernels/NAME/`.
    fn export(&self, paths: &Paths) -> Result<()> {
        let name = paths.linux.name_of(self.kernel);
        let to = paths.lab.join("kernels").join(name);
        std::fs::create_dir_all(&to).with_context(|| format!("cannot create {}", to.display()))?;
        for file in [self.image_name(), ".config"] {
            let (from, to) = (self.dir.join(file), to.join(file));
            if std::fs::read(&from).ok() != std::fs::read(&to).ok() {
                paths::copy_file(&from, &to)?;
            }
        }
        Ok(())
    }
}

/// Takes the kernel from the cache, or builds or fetches it.
pub fn get(paths: &Paths, kernel: Kernel) -> Result<Bootable> {
    let dir = match kernel {
        Kernel::Debian => debian::get(paths),
        Kernel::Arm64 | Kernel::Arm64Oldest => debian::get_arm64(paths, kernel),
        Kernel::Packaged => debian::get_packaged(paths),
        _ => build::get(paths, kernel),
    };
    let dir = dir.with_context(|| format!("cannot get kernel {kernel}"))?;
    let bootable = Bootable::new(kernel, dir)?;
    bootable.export(paths)?;
    Ok(bootable)
}
