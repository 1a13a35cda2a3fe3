// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest's initramfs: the project's static programs, busybox, the plan, the kernel modules that
//! the guest loads, and the packages that it installs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use limelight_apps::kselftest;
use limelight_apps::plan::{Arm, Plan, PACKAGES};
use limelight_apps::scenario::Work;

use super::cpio::Writer;
use crate::kernel::modules::Module;
use crate::kernel::{self, Bootable};
use crate::paths::Paths;
use crate::shell;

/// The project's programs, all in `/bin` of the guest. The first one is the guest's init. It is the
/// only one copied if the guest installs Limelight as a package. The demo does without the last.
const PROGRAMS: [&str; 4] = [
    "limelight-guest",
    "limelightd",
    "limelight",
    "limelight-agent",
];

/// Mount points and writable directories of the guest.
const DIRECTORIES: [&str; 15] = [
    "bin",
    "dev",
    "etc",
    "lib",
    "lib/modules",
    "lib64",
    "mnt",
    "packages",
    "proc",
    "run",
    "sys",
    "tmp",
    "root",
    "var",
    "var/lib",
];

/// Path of a module in the guest, as in [`limelight_apps::plan::Machine::modules`].
pub fn module_path(module: &Module) -> String {
    format!("/lib/modules/{}.ko", module.name)
}

/// A package's file name in the guest, as in [`limelight_apps::plan::Machine::packages`].
pub fn package_name(package: &Path) -> String {
    let name = package.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Where the programs of an initramfs come from: the project's (built by `make static` or `make
/// android`), busybox, and the kernel's selftest.
#[derive(Debug, Clone)]
pub struct Programs {
    paths: Paths,
    dir: PathBuf,
    busybox: PathBuf,
    made_by: &'static str,
}

impl Programs {
    /// The programs for the architecture of `kernel`.
    pub fn of(paths: &Paths, kernel: &Bootable) -> Result<Programs> {
        let (dir, made_by) = match kernel.kernel.is_arm64() {
            true => (paths.programs_aarch64(), "make android"),
            false if paths.programs_dir.is_some() => (paths.programs(), "make demo"),
            false => (paths.programs(), "make static"),
        };
        Ok(Programs {
            paths: paths.clone(),
            dir,
            busybox: match kernel.busybox() {
                Some(busybox) => busybox,
                None => shell::need("busybox")?,
            },
            made_by,
        })
    }
}

/// Writes the archive to `to`. The archive is not compressed: an emulated guest would take seconds
/// to decompress it, while QEMU loads a large file quickly.
pub fn write(
    programs: &Programs,
    plan: &Plan,
    modules: &[Module],
    packages: &[PathBuf],
    to: &Path,
) -> Result<()> {
    let ours = match (packages.is_empty(), programs.paths.programs_dir.is_some()) {
        (false, _) => 1,
        (true, true) => PROGRAMS.len() - 1,
        (true, false) => PROGRAMS.len(),
    };
    let mut files: Vec<(String, PathBuf)> = PROGRAMS[..ours]
        .iter()
        .map(|name| (format!("bin/{name}"), programs.dir.join(name)))
        .collect();
    files.push(("bin/busybox".into(), programs.busybox.clone()));
    if plan.cells.iter().any(|cell| cell.work == Work::Kselftest) {
        let selftest = kernel::kselftest::get(&programs.paths)?;
        files.push((kselftest::PROGRAM[1..].into(), selftest));
    }
    // A Debian root file system has the package instead.
    let earlyoom = plan.cells.iter().any(|cell| cell.arm == Arm::Earlyoom);
    if earlyoom && plan.machine.rootfs.is_none() {
        files.extend(kernel::rival::earlyoom(&programs.paths)?);
    }
    let mut contents = Vec::new();
    for (at, from) in files {
        let bytes = fs::read(&from).with_context(|| {
            let (from, made_by) = (from.display(), programs.made_by);
            format!("cannot read {from}: `{made_by}` builds it")
        })?;
        contents.push((at, bytes));
    }
    for package in packages {
        let at = format!("{}/{}", &PACKAGES[1..], package_name(package));
        let bytes =
            fs::read(package).with_context(|| format!("cannot read {}", package.display()))?;
        contents.push((at, bytes));
    }
    let plan = serde_json::to_vec_pretty(plan).context("the plan cannot be written as JSON")?;

    let pack = || -> std::io::Result<()> {
        let mut archive = Writer::new(BufWriter::new(File::create(to)?));
        for dir in DIRECTORIES {
            archive.directory(dir, 0o755)?;
        }
        // The kernel opens /dev/console for init before any file system is mounted.
        archive.character_device("dev/console", 0o600, (5, 1))?;
        for (at, bytes) in &contents {
            archive.file(at, 0o755, bytes)?;
        }
        archive.symlink("bin/sh", "busybox")?;
        archive.symlink("init", "bin/limelight-guest")?;
        archive.file("plan.json", 0o644, &plan)?;
        for module in modules {
            archive.file(&module_path(module), 0o644, &module.contents)?;
        }
        archive.finish()?.flush()
    };
    pack().with_context(|| format!("cannot write {}", to.display()))
}
