// SPDX-License-Identifier: GPL-2.0-or-later
//! Unpacks kernels from Debian packages: the distribution's unmodified kernel, its kernel source,
//! and our kernel package. Nothing here needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::apt::Apt;
use super::Linux;
use crate::cache::{Inputs, Shelf};
use crate::image::package;
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::scenario::Kernel;
use crate::shell;

/// The suite of Debian that has Linux 7.3.
const BACKPORTS: &str = "trixie-backports";
/// The suite of Debian that is used on hosts other than Debian.
const STABLE: &str = "trixie";

/// Debian's newest kernel of the selected version, as a cache entry with `bzImage`, `.config` and
/// `modules/`.
pub fn get(paths: &Paths) -> Result<PathBuf> {
    match paths.linux {
        Linux::V6_12 => get_native(paths),
        Linux::V7_3 => get_backport(paths),
    }
}

/// The newest `linux-image-6.12.*-cloud-amd64-unsigned`. If apt finds no such package, the newest
/// entry in the cache is used.
fn get_native(paths: &Paths) -> Result<PathBuf> {
    let shelf = Shelf::new(&paths.cache, "kernels")?;
    let apt = apt(paths)?;
    let newest = apt.newest(&image_pattern("6.12", "amd64"));
    if let (Err(_), Some(kept)) = (&newest, shelf.newest("debian")?) {
        return Ok(kept);
    }
    let package = newest?;
    fetch_kernel(&shelf, "debian", &apt, &[package])
}

/// The newest kernel of Linux 7.3 for `cloud-amd64`. An existing entry is used without a check for
/// updates, because such a check has to fetch apt's lists.
fn get_backport(paths: &Paths) -> Result<PathBuf> {
    let name = paths.linux.name_of(Kernel::Debian);
    let shelf = Shelf::new(&paths.cache, "kernels")?;
    if let Some(kept) = shelf.newest(&name)? {
        return Ok(kept);
    }
    let lists = paths.cache.join("apt-backports");
    let apt = Apt::suite(BACKPORTS, &lists)?;
    let binary = apt.newest(r"^linux-binary-7\.3\..*-cloud-amd64$")?;
    let packages = ["linux-binary-", "linux-base-", "linux-modules-"]
        .map(|part| binary.replacen("linux-binary-", part, 1));
    let entry = fetch_kernel(&shelf, &name, &apt, &packages);
    paths::remove_tree(&lists)?;
    entry
}

/// apt for Debian's packages: the host's where the host is Debian. Elsewhere, `LIMELIGHT_MIRROR`
/// names a mirror of Debian, and the packages are those of Debian 13.
pub fn apt(paths: &Paths) -> Result<Apt> {
    match std::env::var_os("LIMELIGHT_MIRROR") {
        Some(_) => Apt::suite(STABLE, &paths.cache.join("apt-stable")),
        None => Ok(Apt::native()),
    }
}

/// The pattern of the names of kernel packages of a series (`6.12`).
fn image_pattern(series: &str, architecture: &str) -> String {
    let series = series.replace('.', r"\.");
    format!(r"^linux-image-{series}\..*-cloud-{architecture}-unsigned$")
}

/// The kernel in `packages`, from the cache or with apt.
fn fetch_kernel(shelf: &Shelf, name: &str, apt: &Apt, packages: &[String]) -> Result<PathBuf> {
    let mut inputs = Inputs::new();
    for package in packages {
        let version = apt.candidate(package)?;
        inputs.text("package", package).text("version", &version);
    }
    shelf.get(name, &inputs.key(), |dir| {
        let progress = Progress::new(format!("kernel {name}"));
        let unpacked = dir.join("unpacked");
        for package in packages {
            progress.note(format!("kernel {name}: fetching {package}"));
            apt.fetch(package, &unpacked)?;
        }
        take_apart(&unpacked, "bzImage", dir)?;
        paths::remove_tree(&unpacked)?;
        progress.finish("unpacked");
        Ok(())
    })
}

/// The package built by `make kernel-deb`, as a cache entry with `bzImage`, `.config` and
/// `modules/`.
pub fn get_packaged(paths: &Paths) -> Result<PathBuf> {
    let package = package::kernel(paths)?;
    let key = Inputs::new().file("package", &package)?.key();
    Shelf::new(&paths.cache, "kernels")?.get(Kernel::Packaged.name(), &key, |dir| {
        let unpacked = dir.join("unpacked");
        unpack(&package, &unpacked)?;
        take_apart(&unpacked, "bzImage", dir)?;
        paths::remove_tree(&unpacked)
    })
}

/// Unpacks `package` into the directory `to`.
pub fn unpack(package: &Path, to: &Path) -> Result<()> {
    shell::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(to))
}

/// Moves image, configuration and modules out of an unpacked package. Since Linux 7, Debian's
/// packages have all three in the directory of the modules.
fn take_apart(unpacked: &Path, image: &str, dir: &Path) -> Result<()> {
    let modules = ["lib/modules", "usr/lib/modules"].map(|part| unpacked.join(part));
    let modules = modules.iter().find(|dir| dir.is_dir());
    let modules = modules.with_context(|| format!("{} has no modules", unpacked.display()))?;
    let modules = only(modules, "")?;
    let boot = unpacked.join("boot");
    let (vmlinuz, config) = if boot.is_dir() {
        (only(&boot, "vmlinuz-")?, only(&boot, "config-")?)
    } else {
        (modules.join("vmlinuz"), modules.join("config"))
    };
    rename(&vmlinuz, &dir.join(image))?;
    rename(&config, &dir.join(".config"))?;
    rename(&modules, &dir.join("modules"))
}

/// The tarball of the package `linux-source-VERSION`: the installed file, else one fetched with
/// apt.
pub fn source_tarball(paths: &Paths, linux: Linux) -> Result<PathBuf> {
    let package = format!("linux-source-{}", linux.series());
    let tarball = format!("usr/src/{package}.tar.xz");
    let installed = Path::new("/").join(&tarball);
    if installed.is_file() {
        return Ok(installed);
    }
    let shelf = Shelf::new(&paths.cache, "source")?;
    let entry = match linux {
        Linux::V6_12 => fetch_source(&shelf, &Apt::native(), &package)?,
        Linux::V7_3 => match shelf.newest(&package)? {
            Some(kept) => kept,
            None => {
                let lists = paths.cache.join("apt-backports");
                let entry = fetch_source(&shelf, &Apt::suite(BACKPORTS, &lists)?, &package);
                paths::remove_tree(&lists)?;
                entry?
            }
        },
    };
    Ok(entry.join(tarball))
}

fn fetch_source(shelf: &Shelf, apt: &Apt, package: &str) -> Result<PathBuf> {
    let version = apt.candidate(package)?;
    let key = Inputs::new()
        .text("package", package)
        .text("version", &version)
        .key();
    shelf.get(package, &key, |dir| {
        eprintln!("kernel source: fetching {package} {version}");
        apt.fetch(package, dir)
    })
}

/// A kernel for 64-bit ARM, as a cache entry with `Image`, `.config`, `modules/` and a `busybox` of
/// the same architecture. An existing entry is used without a check for updates, because fetching
/// apt's lists for another architecture takes a minute.
pub fn get_arm64(paths: &Paths, kernel: Kernel) -> Result<PathBuf> {
    let name = kernel.name();
    let series = match kernel {
        Kernel::Arm64Oldest => "6.1",
        _ => "6.12",
    };
    let shelf = Shelf::new(&paths.cache, "kernels")?;
    if let Some(kept) = shelf.newest(name)? {
        return Ok(kept);
    }
    let lists = paths.cache.join("apt-arm64");
    let apt = Apt::foreign("arm64", &lists)?;
    let package = apt.newest(&image_pattern(series, "arm64"))?;
    let version = apt.candidate(&package)?;
    let key = Inputs::new()
        .text("package", &package)
        .text("version", &version)
        .key();
    let entry = shelf.get(name, &key, |dir| {
        let progress = Progress::new(format!("kernel {name}"));
        progress.note(format!("kernel {name}: fetching {package} {version}"));
        let unpacked = dir.join("unpacked");
        apt.fetch(&package, &unpacked)?;
        apt.fetch("busybox-static", &unpacked)?;
        take_apart(&unpacked, "Image", dir)?;
        rename(&unpacked.join("bin/busybox"), &dir.join("busybox"))?;
        paths::remove_tree(&unpacked)?;
        progress.finish("unpacked");
        Ok(())
    });
    paths::remove_tree(&lists)?;
    entry
}

/// The only entry of `dir` with this prefix.
pub fn only(dir: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
        })
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(path), true) => Ok(path),
        _ => bail!("{}: expected exactly one entry {prefix}*", dir.display()),
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to)
        .with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}
