// SPDX-License-Identifier: GPL-2.0-or-later
//! The lab's directories: the work tree, the lab's output in it, and the cache that all clones
//! share.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use anyhow::{bail, Context, Result};

use crate::kernel::Linux;

/// The lab's directories.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The work tree.
    pub root: PathBuf,
    /// `target/lab` of the work tree: programs, results, run directories, and copies of the
    /// kernels.
    pub lab: PathBuf,
    /// `$XDG_CACHE_HOME/limelight`, or `~/.cache/limelight`: kernels, images, sources and test
    /// programs, named by a hash of their inputs.
    pub cache: PathBuf,
    /// Directory of the demo's programs, which are compiled in less time; `None`: those built by
    /// `make static`.
    pub programs_dir: Option<PathBuf>,
    /// The selected version of Linux. Each version has its own results.
    pub linux: Linux,
}

impl Paths {
    /// Finds the work tree from the current directory upwards and creates the lab's directories.
    pub fn discover() -> Result<Self> {
        let here = env::current_dir().context("the current directory is gone")?;
        let Some(root) = here.ancestors().find(|dir| is_work_tree(dir)) else {
            bail!(
                "{} is not inside a clone of Limelight (neither it nor a directory above it has \
                 kernel/configs/base.config and testing/lab): change to a clone and run the lab \
                 there",
                here.display()
            );
        };
        let paths = Paths {
            root: root.into(),
            lab: root.join("target/lab"),
            cache: cache_dir()?,
            programs_dir: None,
            linux: Linux::default(),
        };
        for dir in [&paths.lab, &paths.cache] {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(paths)
    }

    /// `kernel/` of the work tree.
    pub fn kernel(&self) -> PathBuf {
        self.root.join("kernel")
    }

    /// The static programs built by `make static`, or those of the demo.
    pub fn programs(&self) -> PathBuf {
        let made = || self.lab.join("bin");
        self.programs_dir.clone().unwrap_or_else(made)
    }

    /// The static programs for 64-bit ARM, built by `make android`.
    pub fn programs_aarch64(&self) -> PathBuf {
        self.lab.join("bin-aarch64")
    }

    /// Results of all runs, one directory per scenario. Arms are compared only on kernels of one
    /// version, so each version has its own directory.
    pub fn results(&self) -> PathBuf {
        match self.linux {
            Linux::V6_12 => self.lab.join("results"),
            newer @ Linux::V7_3 => self.lab.join(format!("results-{}", newer.series())),
        }
    }

    /// Working directories of boots. Those of failed runs, and of runs with `--keep`, stay here.
    pub fn runs(&self) -> PathBuf {
        self.lab.join("runs")
    }

    /// Console logs of boots that failed because QEMU executed a stale breakpoint (`Oops: int3`,
    /// docs/development/lab.md).
    pub fn int3(&self) -> PathBuf {
        self.lab.join("int3")
    }

    /// `path` relative to the work tree.
    pub fn short<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

fn is_work_tree(dir: &Path) -> bool {
    dir.join("kernel/configs/base.config").is_file() && dir.join("testing/lab").is_dir()
}

fn cache_dir() -> Result<PathBuf> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let base = match absolute("XDG_CACHE_HOME") {
        Some(base) => base,
        None => absolute("HOME")
            .context("neither XDG_CACHE_HOME nor HOME is set: the lab has no place for its cache")?
            .join(".cache"),
    };
    Ok(base.join("limelight"))
}

/// Moves a finished directory or file to its final name. If a directory of that name already
/// exists, it stays and `finished` is removed.
pub fn publish(finished: &Path, to: &Path) -> Result<()> {
    match fs::rename(finished, to) {
        Ok(()) => Ok(()),
        Err(_) if to.is_dir() => remove_tree(finished),
        Err(error) => Err(error)
            .with_context(|| format!("cannot move {} to {}", finished.display(), to.display())),
    }
}

/// Removes a directory tree. An absent tree is not an error.
pub fn remove_tree(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Copies `from` to `to` atomically: a reader sees either the old or the new file, never a partial
/// one.
pub fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let part = to.with_extension(format!("part-{}", std::process::id()));
    let copied = fs::copy(from, &part).and_then(|_| fs::rename(&part, to));
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Writes `text` to `path`.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads `path` as text; bytes that are not UTF-8 are replaced.
pub fn read_lossy(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The files below `dir`, as relative paths in sorted order; empty when `dir` is absent.
pub fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    fn walk(dir: &Path, prefix: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let relative = prefix.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                walk(&entry.path(), &relative, found)?;
            } else {
                found.push(relative);
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    if dir.exists() {
        walk(dir, Path::new(""), &mut found)
            .with_context(|| format!("cannot list {}", dir.display()))?;
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Directories of a lab in a temporary directory, for tests.
    pub(crate) fn temporary() -> (tempfile::TempDir, Paths) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let paths = Paths {
            root: at("root"),
            lab: at("lab"),
            cache: at("cache"),
            programs_dir: None,
            linux: Linux::default(),
        };
        (dir, paths)
    }

    #[test]
    fn files_are_listed_in_a_stable_order() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        for name in ["z", "a", "b/c/d"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = files_below(dir.path()).unwrap();
        assert_eq!(found, ["a", "b/c/d", "z"].map(PathBuf::from));
        assert!(files_below(&dir.path().join("absent")).unwrap().is_empty());
    }

    #[test]
    fn first_published_directory_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second, to) = (
            dir.path().join("1"),
            dir.path().join("2"),
            dir.path().join("to"),
        );
        for (path, text) in [(&first, "first"), (&second, "second")] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), text).unwrap();
        }
        publish(&first, &to).unwrap();
        publish(&second, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "first");
        assert!(!second.exists());
    }
}
