// SPDX-License-Identifier: GPL-2.0-or-later
//! Results of slow builds, cached by the hash of their inputs.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rustix::fs::{flock, FlockOperation};
use sha2::{Digest, Sha256};

use crate::paths::{self, files_below};

/// Maximum number of entries per name. The least recently used surplus entries are removed.
const KEPT_ENTRIES: usize = 4;
/// Entries used more recently than this are never removed, because a run may still need them: a
/// matrix of exact runs takes hours.
const IN_USE: Duration = Duration::from_secs(12 * 3600);

/// A hash over named inputs.
#[derive(Clone, Default)]
pub struct Inputs(Sha256);

impl Inputs {
    /// No inputs yet.
    pub fn new() -> Self {
        Inputs::default()
    }

    /// Adds a named value. Lengths are hashed too, so that adjacent values cannot be confused.
    pub fn text(&mut self, name: &str, value: impl AsRef<[u8]>) -> &mut Self {
        for part in [name.as_bytes(), value.as_ref()] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
        self
    }

    /// Adds a file's contents.
    pub fn file(&mut self, name: &str, path: &Path) -> Result<&mut Self> {
        let opened = || -> std::io::Result<Sha256> {
            let mut file = File::open(path)?;
            let mut hash = Sha256::new();
            let mut buffer = vec![0; 1 << 20];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(hash),
                    n => hash.update(&buffer[..n]),
                }
            }
        };
        let hash = opened().with_context(|| format!("cannot read {}", path.display()))?;
        Ok(self.text(name, hash.finalize()))
    }

    /// Adds the names and contents of all files below `dir`.
    pub fn tree(&mut self, name: &str, dir: &Path) -> Result<&mut Self> {
        for file in files_below(dir)? {
            self.text(name, file.as_os_str().as_bytes());
            self.file("contents", &dir.join(&file))?;
        }
        Ok(self)
    }

    /// The hash as 16 hexadecimal digits.
    pub fn key(&self) -> String {
        let digest = self.0.clone().finalize();
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// One kind of entry in the cache: `<cache>/<kind>/<name>-<key>/`.
pub struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    /// Opens the directory of `kind` below the cache directory.
    pub fn new(cache: &Path, kind: &str) -> Result<Self> {
        let dir = cache.join(kind);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Shelf { dir })
    }

    /// Returns the entry `name` for `key`. If it is missing, `make` fills an empty directory, which
    /// is then moved into place, so that a partial entry is never visible. If two concurrent runs
    /// need the same entry, one makes it and the other waits.
    pub fn get(
        &self,
        name: &str,
        key: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let entry = self.dir.join(format!("{name}-{key}"));
        if !entry.exists() {
            let lock_path = self.dir.join(format!(".{name}-{key}.lock"));
            let lock = File::create(&lock_path)
                .with_context(|| format!("cannot create {}", lock_path.display()))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                eprintln!("{name}: another process is making it; waiting");
                flock(&lock, FlockOperation::LockExclusive)
                    .with_context(|| format!("cannot lock {}", lock_path.display()))?;
            }
            self.remove_abandoned()?;
            if !entry.exists() {
                let part = self.dir.join(format!(".{name}-{key}.part"));
                paths::remove_tree(&part)?;
                fs::create_dir(&part)
                    .with_context(|| format!("cannot create {}", part.display()))?;
                let made = make(&part).and_then(|()| paths::publish(&part, &entry));
                if made.is_err() {
                    paths::remove_tree(&part)?;
                    let _ = fs::remove_file(&lock_path);
                }
                made?;
            }
            let _ = fs::remove_file(&lock_path);
        }
        touch(&entry)?;
        self.prune(name, &entry)?;
        Ok(entry)
    }

    /// The most recently used entry called `name`, with any key.
    pub fn newest(&self, name: &str) -> Result<Option<PathBuf>> {
        Ok(self.entries(name)?.pop().map(|(_, path)| path))
    }

    /// Removes the partial entries whose locks no process holds: killed runs left them behind.
    fn remove_abandoned(&self) -> Result<()> {
        for file in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let part = file.path();
            if part.extension().is_none_or(|extension| extension != "part") {
                continue;
            }
            let lock_path = part.with_extension("lock");
            let held = File::open(&lock_path)
                .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err());
            if !held {
                paths::remove_tree(&part)?;
                let _ = fs::remove_file(&lock_path);
            }
        }
        Ok(())
    }

    fn prune(&self, name: &str, keep: &Path) -> Result<()> {
        let entries = self.entries(name)?;
        let surplus = entries.len().saturating_sub(KEPT_ENTRIES);
        let unused = |at: &SystemTime| at.elapsed().is_ok_and(|elapsed| elapsed > IN_USE);
        entries
            .iter()
            .filter(|(at, path)| path != keep && unused(at))
            .take(surplus)
            .try_for_each(|(_, path)| paths::remove_tree(path))
    }

    /// Entries called `name`, least recently used first.
    fn entries(&self, name: &str) -> Result<Vec<(SystemTime, PathBuf)>> {
        let list = || -> std::io::Result<Vec<(SystemTime, PathBuf)>> {
            let mut found = Vec::new();
            for entry in fs::read_dir(&self.dir)? {
                let entry = entry?;
                let file_name = entry.file_name();
                let key = file_name
                    .to_str()
                    .and_then(|s| s.strip_prefix(name)?.strip_prefix('-'));
                if key.is_some_and(|key| key.len() == 16 && !key.contains('-')) {
                    found.push((entry.metadata()?.modified()?, entry.path()));
                }
            }
            found.sort();
            Ok(found)
        };
        list().with_context(|| format!("cannot list {}", self.dir.display()))
    }
}

fn touch(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|opened| opened.set_modified(SystemTime::now()))
        .with_context(|| format!("cannot touch {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(parts: &[(&str, &str)]) -> String {
        let mut inputs = Inputs::new();
        for (name, value) in parts {
            inputs.text(name, value);
        }
        inputs.key()
    }

    #[test]
    fn every_input_counts_and_adjacent_inputs_do_not_mix() {
        let base = key_of(&[("a", "1"), ("b", "2")]);
        assert_eq!(base, key_of(&[("a", "1"), ("b", "2")]));
        assert_ne!(base, key_of(&[("a", "1"), ("b", "3")]));
        assert_ne!(base, key_of(&[("a", "1b"), ("", "2")]));
    }

    #[test]
    fn tree_hash_changes_with_names_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let key = || {
            let mut inputs = Inputs::new();
            inputs.tree("tree", dir.path()).unwrap();
            inputs.key()
        };
        fs::write(dir.path().join("a"), "1").unwrap();
        let first = key();
        fs::write(dir.path().join("a"), "2").unwrap();
        let second = key();
        fs::rename(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_ne!(first, second);
        assert_ne!(second, key());
    }

    #[test]
    fn entry_is_made_once_and_failure_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(cache.path(), "kernels").unwrap();
        let key = "0123456789abcdef";
        assert!(shelf.get("x", key, |_| anyhow::bail!("no")).is_err());
        let entry = shelf
            .get("x", key, |dir| paths::write(&dir.join("file"), "1"))
            .unwrap();
        let again = shelf.get("x", key, |_| panic!("made twice")).unwrap();
        assert_eq!(entry, again);
        assert_eq!(fs::read_to_string(entry.join("file")).unwrap(), "1");
        assert_eq!(
            fs::read_dir(cache.path().join("kernels")).unwrap().count(),
            1
        );
    }

    #[test]
    fn abandoned_entries_are_removed_and_locked_ones_kept() {
        let cache = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(cache.path(), "kernels").unwrap();
        let at = |name: &str| cache.path().join("kernels").join(name);
        for name in [".x-1.part", ".x-2.part"] {
            fs::create_dir(at(name)).unwrap();
        }
        File::create(at(".x-1.lock")).unwrap();
        let lock = File::create(at(".x-2.lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        shelf.get("x", "0123456789abcdef", |_| Ok(())).unwrap();
        assert!(!at(".x-1.part").exists() && !at(".x-1.lock").exists());
        assert!(at(".x-2.part").exists() && at(".x-2.lock").exists());
    }

    #[test]
    fn least_recently_used_entries_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(cache.path(), "kernels").unwrap();
        let key = |n: usize| format!("{n:016x}");
        for n in 0..KEPT_ENTRIES + 2 {
            shelf.get("x", &key(n), |_| Ok(())).unwrap();
            shelf.get("other", &key(n), |_| Ok(())).unwrap();
        }
        let entries = shelf.entries("x").unwrap();
        assert_eq!(
            entries.len(),
            KEPT_ENTRIES + 2,
            "an entry that may be in use was removed"
        );
        for (at, path) in &entries {
            let entry = File::open(path).unwrap();
            entry.set_modified(*at - 2 * IN_USE).unwrap();
        }
        let last = KEPT_ENTRIES + 1;
        shelf.get("x", &key(last), |_| Ok(())).unwrap();
        let left = shelf.entries("x").unwrap();
        assert_eq!(left.len(), KEPT_ENTRIES);
        let last = cache
            .path()
            .join("kernels")
            .join(format!("x-{}", key(last)));
        assert_eq!(shelf.newest("x").unwrap(), Some(last));
    }
}
