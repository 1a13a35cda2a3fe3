// SPDX-License-Identifier: GPL-2.0-or-later
//! The distribution's packages: its kernel as it comes, and its kernel source. Neither needs root.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::cache::{Inputs, Shelf};
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::shell;

/// The newest `linux-image-6.12.*-cloud-amd64-unsigned` as a cache entry with `bzImage`, `.config`
/// and `modules/`.
pub fn get(paths: &Paths) -> Result<PathBuf> {
    let shelf = Shelf::new(&paths.cache, "kernels")?;
    let newest = newest_image();
    if let (Err(_), Some(kept)) = (&newest, shelf.newest("debian")?) {
        return Ok(kept);
    }
    let package = newest?;
    let version = candidate(&package)?;
    let key = Inputs::new()
        .text("package", &package)
        .text("version", &version)
        .key();
    shelf.get("debian", &key, |dir| {
        let progress = Progress::new("kernel debian");
        progress.note(format!("kernel debian: fetching {package} {version}"));
        let unpacked = dir.join("unpacked");
        fetch(&package, &unpacked)?;
        let boot = unpacked.join("boot");
        for (prefix, to) in [("vmlinuz-", "bzImage"), ("config-", ".config")] {
            rename(&only(&boot, prefix)?, &dir.join(to))?;
        }
        let modules = ["lib/modules", "usr/lib/modules"].map(|p| unpacked.join(p));
        let modules = modules.iter().find(|dir| dir.is_dir());
        let modules = modules.with_context(|| format!("{package} has no modules"))?;
        rename(&only(modules, "")?, &dir.join("modules"))?;
        paths::remove_tree(&unpacked)?;
        progress.finish("unpacked");
        Ok(())
    })
}

/// The tarball of the package `linux-source-6.12`: the installed one, else fetched by apt.
pub fn source_tarball(paths: &Paths) -> Result<PathBuf> {
    const TARBALL: &str = "usr/src/linux-source-6.12.tar.xz";
    let installed = Path::new("/").join(TARBALL);
    if installed.is_file() {
        return Ok(installed);
    }
    let package = "linux-source-6.12";
    let version = candidate(package)?;
    let key = Inputs::new()
        .text("package", package)
        .text("version", &version)
        .key();
    let entry = Shelf::new(&paths.cache, "source")?.get(package, &key, |dir| {
        eprintln!("kernel source: fetching {package} {version}");
        fetch(package, dir)
    })?;
    Ok(entry.join(TARBALL))
}

/// Downloads `package` and unpacks it into `dir`.
fn fetch(package: &str, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    shell::run(
        Command::new("apt-get")
            .args(["download", "-q", package])
            .current_dir(dir),
    )
    .context("the package cannot be fetched: does `apt-get update` work here?")?;
    let archive = only(dir, package)?;
    shell::run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(dir))?;
    fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

fn newest_image() -> Result<String> {
    let list = shell::output(Command::new("apt-cache").args([
        "search",
        "--names-only",
        r"^linux-image-6\.12\..*-cloud-amd64-unsigned$",
    ]))?;
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let newest = names.max_by(|a, b| version_order(a, b));
    newest.map(str::to_owned).context(
        "apt knows no linux-image-6.12.*-cloud-amd64-unsigned: run `apt-get update` with Debian 12's \
         main and security archives in its sources",
    )
}

/// The version of `package` that apt would install.
fn candidate(package: &str) -> Result<String> {
    let policy = shell::output(Command::new("apt-cache").args(["policy", package]))?;
    let version = policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "));
    match version {
        Some(version) if version != "(none)" => Ok(version.to_owned()),
        _ => bail!("apt has no package {package}: run `apt-get update`"),
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

/// The one entry of `dir` whose name starts with `prefix`.
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
