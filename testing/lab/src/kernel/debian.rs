// SPDX-License-Identifier: GPL-2.0-or-later
//! Unpacks kernels from Debian packages: the distribution's unmodified kernel, its kernel source,
//! and our kernel package. Nothing here needs root.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::cache::{Inputs, Shelf};
use crate::image::package;
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::scenario::Kernel;
use crate::shell;

/// The newest `linux-image-6.12.*-cloud-amd64-unsigned`, as a cache entry with `bzImage`, `.config`
/// and `modules/`. If apt finds no such package, the newest entry in the cache is used.
pub fn get(paths: &Paths) -> Result<PathBuf> {
    let shelf = Shelf::new(&paths.cache, "kernels")?;
    let apt = Apt::native();
    let newest = apt.newest_image("6.12", "amd64");
    if let (Err(_), Some(kept)) = (&newest, shelf.newest("debian")?) {
        return Ok(kept);
    }
    let package = newest?;
    let version = apt.candidate(&package)?;
    let key = Inputs::new()
        .text("package", &package)
        .text("version", &version)
        .key();
    shelf.get("debian", &key, |dir| {
        let progress = Progress::new("kernel debian");
        progress.note(format!("kernel debian: fetching {package} {version}"));
        let unpacked = dir.join("unpacked");
        apt.fetch(&package, &unpacked)?;
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

fn unpack(package: &Path, to: &Path) -> Result<()> {
    shell::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(to))
}

/// Moves image, configuration and modules out of an unpacked package.
fn take_apart(unpacked: &Path, image: &str, dir: &Path) -> Result<()> {
    let boot = unpacked.join("boot");
    for (prefix, to) in [("vmlinuz-", image), ("config-", ".config")] {
        rename(&only(&boot, prefix)?, &dir.join(to))?;
    }
    let modules = ["lib/modules", "usr/lib/modules"].map(|part| unpacked.join(part));
    let modules = modules.iter().find(|dir| dir.is_dir());
    let modules = modules.with_context(|| format!("{} has no modules", unpacked.display()))?;
    rename(&only(modules, "")?, &dir.join("modules"))
}

/// The tarball of the package `linux-source-6.12`: the installed file, else one fetched with apt.
pub fn source_tarball(paths: &Paths) -> Result<PathBuf> {
    const TARBALL: &str = "usr/src/linux-source-6.12.tar.xz";
    let installed = Path::new("/").join(TARBALL);
    if installed.is_file() {
        return Ok(installed);
    }
    let package = "linux-source-6.12";
    let apt = Apt::native();
    let version = apt.candidate(package)?;
    let key = Inputs::new()
        .text("package", package)
        .text("version", &version)
        .key();
    let entry = Shelf::new(&paths.cache, "source")?.get(package, &key, |dir| {
        eprintln!("kernel source: fetching {package} {version}");
        apt.fetch(package, dir)
    })?;
    Ok(entry.join(TARBALL))
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
    let package = apt.newest_image(series, "arm64")?;
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

/// apt, for this machine's architecture or another one.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// apt for this machine's architecture.
    fn native() -> Apt {
        Apt {
            options: Vec::new(),
        }
    }

    /// apt with the host's sources, for another architecture. The package lists are kept in `dir`,
    /// so the host need not be multi-arch, and root is not needed.
    fn foreign(architecture: &str, dir: &Path) -> Result<Apt> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = dir.join(part);
            fs::create_dir_all(&part)
                .with_context(|| format!("cannot create {}", part.display()))?;
        }
        paths::write(&dir.join("status"), "")?;
        let at = |part: &str| dir.join(part).display().to_string();
        let options = [
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures={architecture}"),
            format!("Dir::State={}", at("")),
            format!("Dir::State::Lists={}", at("lists")),
            format!("Dir::State::Status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            "Acquire::Languages=none".to_owned(),
            // apt's sandbox user could not read the directory.
            "APT::Sandbox::User=root".to_owned(),
        ];
        let apt = Apt {
            options: options.to_vec(),
        };
        shell::run(apt.command("apt-get").args(["update", "-q"]))
            .with_context(|| format!("apt has no lists for {architecture}"))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Downloads `package` and unpacks it into `dir`.
    fn fetch(&self, package: &str, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        shell::run(
            self.command("apt-get")
                .args(["download", "-q", package])
                .current_dir(dir),
        )
        .context("the package cannot be fetched: does `apt-get update` work here?")?;
        let archive = only(dir, package)?;
        unpack(&archive, dir)?;
        fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
    }

    /// The name of the newest kernel package of a series (`6.12`).
    fn newest_image(&self, series: &str, architecture: &str) -> Result<String> {
        let pattern = series.replace('.', r"\.");
        let list = shell::output(self.command("apt-cache").args([
            "search",
            "--names-only",
            &format!(r"^linux-image-{pattern}\..*-cloud-{architecture}-unsigned$"),
        ]))?;
        let names = list
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        let newest = names.max_by(|a, b| version_order(a, b));
        newest.map(str::to_owned).with_context(|| {
            format!(
                "apt knows no linux-image-{series}.*-cloud-{architecture}-unsigned: run `apt-get update` \
                 with Debian 12's main and security archives in its sources"
            )
        })
    }

    /// The version of `package` that apt would install.
    fn candidate(&self, package: &str) -> Result<String> {
        let policy = shell::output(self.command("apt-cache").args(["policy", package]))?;
        let version = policy
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate: "));
        match version {
            Some(version) if version != "(none)" => Ok(version.to_owned()),
            _ => bail!("apt has no package {package}: run `apt-get update`"),
        }
    }
}

/// Orders names by the numbers in them: `6.12.9` before `6.12.10`.
fn version_order(a: &str, b: &str) -> Ordering {
    let key = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit())
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    key(a).cmp(&key(b))
}

/// The only entry of `dir` with this prefix.
fn only(dir: &Path, prefix: &str) -> Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        let mut names = [
            "linux-image-6.12.9+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.117+deb12-cloud-amd64-unsigned",
            "linux-image-6.12.101+deb12-cloud-amd64-unsigned",
        ];
        names.sort_by(|a, b| version_order(a, b));
        assert!(names[0].contains("6.12.9+") && names[2].contains("6.12.117+"));
    }
}
