// SPDX-License-Identifier: GPL-2.0-or-later
//! A Debian root file system with the packages that a scenario needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::disk;
use crate::cache::{Inputs, Shelf};
use crate::paths::{self, Paths};
use crate::progress::Progress;
use crate::shell;

/// If the host runs this Debian release, the lab uses the host's apt sources for it.
const HOST: &str = "bookworm";
/// Free space in the image in addition to the packages, in MiB.
const ROOM_MIB: u32 = 512;

/// An ext4 image with `packages` of the release `suite` and their dependencies. Each set of
/// packages is installed only once.
pub fn get(paths: &Paths, suite: &str, packages: &[&str]) -> Result<PathBuf> {
    let mut packages = packages.to_vec();
    packages.sort();
    packages.dedup();
    let list = packages.join(",");
    let key = Inputs::new()
        .text("suite", suite)
        .text("packages", &list)
        .key();
    let entry = Shelf::new(&paths.cache, "images")?.get("rootfs", &key, |dir| {
        let progress = Progress::new("root file system");
        progress.note(format!(
            "root file system: installing {list} (a minute or two)"
        ));
        let tar = dir.join("rootfs.tar");
        progress
            .during("installing packages", || install(suite, &list, &tar))
            .context("mmdebstrap cannot make the root file system")?;
        let image = dir.join("disk");
        progress.during("making the image", || make_image(&tar, dir, &image))?;
        std::fs::remove_file(&tar).with_context(|| format!("cannot remove {}", tar.display()))?;
        progress.finish("made");
        Ok(())
    })?;
    Ok(entry.join("disk"))
}

fn install(suite: &str, packages: &str, tar: &Path) -> Result<()> {
    let mut command = Command::new(shell::need("mmdebstrap")?);
    command
        .args(["--quiet", "--mode=auto", "--variant=apt"])
        .arg(format!("--include={packages}"))
        .arg("--aptopt=Apt::Install-Recommends false")
        .arg("--dpkgopt=force-unsafe-io")
        .arg("--dpkgopt=path-exclude=/usr/share/man/*")
        .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
        .arg(suite)
        .arg(tar);
    // Use the host's apt sources, including its mirrors and proxies, if the host runs the same
    // release.
    if suite == HOST && host_is_suite() {
        command.args(apt_sources(Path::new("/etc/apt")));
    }
    shell::run(&mut command)
}

fn host_is_suite() -> bool {
    std::fs::read_to_string("/etc/os-release").is_ok_and(|text| {
        text.lines()
            .any(|l| l == format!("VERSION_CODENAME={HOST}"))
    })
}

/// apt's source files below `etc`.
fn apt_sources(etc: &Path) -> Vec<PathBuf> {
    let main = etc.join("sources.list");
    let more = paths::files_below(&etc.join("sources.list.d")).unwrap_or_default();
    let more = more
        .iter()
        .filter(|file| {
            file.extension()
                .is_some_and(|e| e == "list" || e == "sources")
        })
        .map(|file| etc.join("sources.list.d").join(file));
    main.is_file()
        .then_some(main.clone())
        .into_iter()
        .chain(more)
        .collect()
}

/// Converts the archive into an image. The archive is unpacked first, because the tools of Debian
/// 12 fill an image only from a directory. Without root, both steps run in user namespaces with the
/// same ID mapping, which preserves file owners.
fn make_image(tar: &Path, dir: &Path, image: &Path) -> Result<()> {
    let tree = dir.join("tree");
    std::fs::create_dir(&tree).with_context(|| format!("cannot create {}", tree.display()))?;
    let root = rustix::process::geteuid().is_root();
    let within = |program: &str| {
        if root {
            return Command::new(program);
        }
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-auto", "--map-root-user", program]);
        unshare
    };
    let device_nodes = "--exclude=./dev/*";
    shell::run(
        within("tar")
            .args(["-x", device_nodes, "-f"])
            .arg(tar)
            .arg("-C")
            .arg(&tree),
    )?;
    let used = disk::usage_mib(&tree)?;
    disk::sparse(image, used + used / 8 + ROOM_MIB)?;
    let mkfs = shell::need("mkfs.ext4")?;
    disk::format_ext4(within(&mkfs.to_string_lossy()), image, Some(&tree))?;
    shell::run(within("rm").arg("-rf").arg(&tree))
}
