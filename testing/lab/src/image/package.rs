// SPDX-License-Identifier: GPL-2.0-or-later
//! The Debian packages of Limelight and of its kernel. Each has a successor: the same package with
//! a higher version, to test upgrades.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{bail, Context, Result};

use super::initramfs::package_name;
use crate::paths::Paths;
use crate::shell;

/// Held while a successor is built, because the preparation of several concurrent guests may need
/// it.
static BUILDING: Mutex<()> = Mutex::new(());

/// Suffix of the successor's version.
const SUCCESSOR: &str = "+next1";

/// The package built by `make lab-deb`, and its successor.
pub fn pair(paths: &Paths) -> Result<Vec<PathBuf>> {
    let directory = paths.lab.join("deb");
    let made = packages(&directory)?;
    let [package] = made.as_slice() else {
        bail!(
            "{} has {} packages, and should have one: `make lab-deb` makes it",
            paths.short(&directory),
            made.len()
        );
    };
    with_successor(package.clone(), &directory)
}

/// The kernel package built by `make kernel-deb`, and its successor.
pub fn kernel_pair(paths: &Paths) -> Result<Vec<PathBuf>> {
    with_successor(kernel(paths)?, &paths.lab.join("kernel-deb"))
}

/// `package` and its successor. Builds the successor below `directory` unless it is up to date.
fn with_successor(package: PathBuf, directory: &Path) -> Result<Vec<PathBuf>> {
    let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let next = directory.join("next");
    let known = packages(&next)?;
    if let ([successor], false) = (known.as_slice(), next.join("tree").exists()) {
        if modified(successor)? > modified(&package)? {
            return Ok(vec![package, successor.clone()]);
        }
    }
    if next.is_dir() {
        fs::remove_dir_all(&next).with_context(|| format!("cannot remove {}", next.display()))?;
    }
    let tree = next.join("tree");
    fs::create_dir_all(&next)?;
    let dpkg_deb = || Ok::<_, anyhow::Error>(Command::new(shell::need("dpkg-deb")?));
    shell::run(dpkg_deb()?.arg("-R").arg(&package).arg(&tree))?;
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control)
        .with_context(|| format!("cannot read {}", control.display()))?;
    fs::write(&control, successor(&text)?)?;
    shell::run(
        dpkg_deb()?
            .args(["--root-owner-group", "-Zgzip", "-z1", "-b"])
            .arg(&tree)
            .arg(&next),
    )?;
    fs::remove_dir_all(&tree)?;
    let mut pair = vec![package];
    pair.extend(packages(&next)?);
    Ok(pair)
}

fn modified(path: &Path) -> Result<SystemTime> {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified());
    time.with_context(|| format!("cannot read the age of {}", path.display()))
}

/// The kernel package built by `make kernel-deb`.
pub fn kernel(paths: &Paths) -> Result<PathBuf> {
    let directory = paths.root.join("target/kernel-deb");
    let mut made = packages(&directory)?;
    made.retain(|path| package_name(path).starts_with("linux-image-"));
    match made.as_slice() {
        [package] => Ok(package.clone()),
        _ => bail!(
            "{} has {} packages linux-image-*.deb, and should have one: `make kernel-deb` makes it",
            paths.short(&directory),
            made.len()
        ),
    }
}

fn packages(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot list {}", directory.display()))
        }
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect())
}

/// `control` with a higher version.
fn successor(control: &str) -> Result<String> {
    let mut found = false;
    let lines: Vec<String> = control
        .lines()
        .map(|line| match line.strip_prefix("Version: ") {
            Some(version) => {
                found = true;
                format!("Version: {version}{SUCCESSOR}\n")
            }
            None => format!("{line}\n"),
        })
        .collect();
    if !found {
        bail!("the package's control file has no version:\n{control}");
    }
    Ok(lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successor_differs_only_in_its_version() {
        let control = "Package: limelight\nVersion: 0.1.0-1\nDescription: light\n more\n";
        assert_eq!(
            successor(control).unwrap(),
            "Package: limelight\nVersion: 0.1.0-1+next1\nDescription: light\n more\n"
        );
        assert!(successor("Package: limelight\n").is_err());
    }
}
