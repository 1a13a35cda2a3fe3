// SPDX-License-Identifier: GPL-2.0-or-later
//! The source of the kernels that the lab builds.

use std::env;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::{debian, Linux};
use crate::cache::Inputs;
use crate::paths::{self, Paths};
use crate::shell;

/// A kernel source that can be unpacked into a directory.
pub enum Source {
    /// Debian's source package.
    Tarball(PathBuf),
    /// The tree in `LIMELIGHT_KERNEL_SRC`; it is copied, never changed.
    Tree(PathBuf),
}

impl Source {
    /// `LIMELIGHT_KERNEL_SRC` if set, else Debian's source package of `linux`.
    pub fn choose(paths: &Paths, linux: Linux) -> Result<Self> {
        let Some(tree) = env::var_os("LIMELIGHT_KERNEL_SRC").filter(|tree| !tree.is_empty()) else {
            return Ok(Source::Tarball(debian::source_tarball(paths, linux)?));
        };
        let tree = PathBuf::from(tree);
        let at = format!("LIMELIGHT_KERNEL_SRC={}", tree.display());
        if !tree.join("Kbuild").is_file() {
            bail!("{at}: no kernel source there");
        }
        let version = version(&paths::read_lossy(&tree.join("Makefile"))?);
        if version != linux.series() {
            bail!("{at} is Linux {version}, not {}", linux.series());
        }
        Ok(Source::Tree(tree))
    }

    /// Adds the source to the inputs of a kernel. A tarball counts by its contents. A tree counts
    /// by names, sizes and modification times, because reading it would take as long as copying it.
    pub fn add_to(&self, inputs: &mut Inputs) -> Result<()> {
        match self {
            Source::Tarball(file) => inputs.file("source", file).map(drop),
            Source::Tree(tree) => {
                let files = paths::files_below(tree)?;
                for file in files.iter().filter(|file| !file.starts_with(".git")) {
                    inputs.text("source file", file.as_os_str().as_bytes());
                    let path = tree.join(file);
                    let meta = fs::symlink_metadata(&path)
                        .with_context(|| format!("cannot stat {}", path.display()))?;
                    inputs.text(
                        "size and time",
                        format!("{} {}.{}", meta.len(), meta.mtime(), meta.mtime_nsec()),
                    );
                }
                Ok(())
            }
        }
    }

    /// Unpacks or copies one file of the source into the directory `to`, at the same path below it.
    pub fn unpack_file(&self, file: &str, to: &Path) -> Result<()> {
        match self {
            Source::Tarball(tarball) => shell::run(
                Command::new("tar")
                    .arg("-xf")
                    .arg(tarball)
                    .arg("-C")
                    .arg(to)
                    .args(["--strip-components=1", "--wildcards"])
                    .args(["--no-wildcards-match-slash", &format!("*/{file}")]),
            ),
            Source::Tree(tree) => {
                let (from, to) = (tree.join(file), to.join(file));
                let copied = fs::copy(&from, &to);
                copied.with_context(|| format!("cannot copy {}", from.display()))?;
                Ok(())
            }
        }
    }

    /// Unpacks or copies the source into the empty directory `to`.
    pub fn unpack(&self, to: &Path) -> Result<()> {
        match self {
            Source::Tarball(file) => shell::run(
                Command::new("tar")
                    .arg("-xf")
                    .arg(file)
                    .arg("-C")
                    .arg(to)
                    .arg("--strip-components=1"),
            ),
            Source::Tree(tree) => {
                let entries = fs::read_dir(tree)
                    .with_context(|| format!("cannot list {}", tree.display()))?;
                let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
                let entries = entries.filter(|path| !path.ends_with(".git"));
                shell::run(Command::new("cp").arg("-a").args(entries).arg(to))?;
                shell::run(
                    Command::new("make")
                        .args(["-s", "mrproper"])
                        .current_dir(to),
                )
            }
        }
    }
}

/// Version and patch level in the text of a kernel's `Makefile`: `6.12`.
fn version(makefile: &str) -> String {
    let number = |name: &str| {
        let mut lines = makefile.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    let parts: Vec<_> = ["VERSION =", "PATCHLEVEL ="]
        .map(number)
        .into_iter()
        .flatten()
        .collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_the_makefile() {
        let makefile = "# comment\nVERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n";
        assert_eq!(version(makefile), "7.3");
    }
}
