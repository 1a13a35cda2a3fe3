// SPDX-License-Identifier: GPL-2.0-or-later
//! Classes that users have saved for apps (`limelight class set --save`). They outlive the app and
//! the daemon, in a file in the daemon's state directory that only root can read and write.
//!
//! An app is recognised by its Android package, else its desktop id, else its program's path. Root's
//! entry applies to every user's app of that name. A user's entry applies to the user's own apps.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use limelight_core::model::class::{Class, Identity};
use serde::{Deserialize, Serialize};
use tracing::warn;

/// The file's name inside the daemon's state directory.
pub const FILE_NAME: &str = "classes.json";

/// Maximum number of entries of one user, except root.
const USER_MAX: usize = 64;

/// Maximum number of entries of all users together, except root.
const ALL_MAX: usize = 1024;

/// Longest name of an app in an entry, in bytes.
const NAME_MAX: usize = 512;

/// Larger files are not read.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// A saved class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// The user who saved it.
    uid: u32,
    /// The app's name.
    app: String,
    class: Class,
}

/// All saved classes.
#[derive(Debug, Default)]
pub struct Saved {
    entries: Vec<Entry>,
    /// `None`: nothing can be saved, as in a dry run.
    file: Option<PathBuf>,
}

/// Why a class was not saved.
#[derive(Debug, thiserror::Error)]
pub enum NotSaved {
    /// The daemon has no state directory.
    #[error("this daemon saves nothing, because it is a dry run")]
    DryRun,
    /// The app has no name by which it could be recognised.
    #[error("the app has no package, desktop id or program by which it could be recognised")]
    Nameless,
    /// There are too many entries.
    #[error("too many classes are saved: at most {USER_MAX} by a user, {ALL_MAX} by all users")]
    TooMany,
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// The name by which an app is recognised.
pub fn name_of(identity: &Identity) -> Option<&str> {
    let names = [
        &identity.package,
        &identity.desktop_id,
        &identity.executable,
    ];
    let name = names.into_iter().flatten().next()?;
    (name.len() <= NAME_MAX).then_some(name)
}

impl Saved {
    /// Reads the file in `directory`. `None`: nothing is read or saved.
    pub fn open(directory: Option<&Path>) -> Saved {
        let file = directory.map(|directory| directory.join(FILE_NAME));
        let entries = file.as_deref().map_or_else(Vec::new, |path| {
            read(path).unwrap_or_else(|error| {
                warn!(
                    "cannot read the saved classes in {}: {error}; none is in force",
                    path.display()
                );
                Vec::new()
            })
        });
        Saved { entries, file }
    }

    /// The class that root has saved for an app, or else its owner; and who saved it.
    pub fn of(&self, identity: &Identity, owner: u32) -> Option<(Class, u32)> {
        let name = name_of(identity)?;
        let by = |uid: u32| {
            let mut entries = self.entries.iter();
            let entry = entries.find(|entry| entry.uid == uid && entry.app == name)?;
            Some((entry.class, uid))
        };
        by(0).or_else(|| by(owner))
    }

    /// Saves a user's class for an app; `None` removes it.
    ///
    /// # Errors
    ///
    /// The class is not saved, and the entries stay as they were.
    pub fn set(
        &mut self,
        uid: u32,
        identity: &Identity,
        class: Option<Class>,
    ) -> Result<(), NotSaved> {
        let path = self.file.clone().ok_or(NotSaved::DryRun)?;
        let name = name_of(identity).ok_or(NotSaved::Nameless)?;
        let mut entries = self.entries.clone();
        entries.retain(|entry| entry.uid != uid || entry.app != name);
        if let Some(class) = class {
            let users = entries.iter().filter(|entry| entry.uid != 0);
            let own = entries.iter().filter(|entry| entry.uid == uid);
            if uid != 0 && (users.count() >= ALL_MAX || own.count() >= USER_MAX) {
                return Err(NotSaved::TooMany);
            }
            entries.push(Entry {
                uid,
                app: name.to_owned(),
                class,
            });
        }
        write(&path, &entries).map_err(|source| NotSaved::Write { path, source })?;
        self.entries = entries;
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    if length > FILE_MAX_BYTES {
        return Err(io::Error::other("it is too large"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Replaces the file, so that it is complete at any time.
fn write(path: &Path, entries: &[Entry]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
    }
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&fresh)?;
    file.write_all(&serde_json::to_vec(entries)?)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(id: &str) -> Identity {
        Identity {
            desktop_id: Some(id.to_owned()),
            executable: Some("/usr/bin/x".to_owned()),
            ..Identity::default()
        }
    }

    #[test]
    fn classes_outlive_the_daemon_and_root_s_come_first() {
        let temp = tempfile::tempdir().unwrap();
        let state = temp.path().join("state");
        let mut saved = Saved::open(Some(&state));
        assert_eq!(saved.of(&app("a"), 1000), None);
        saved.set(1000, &app("a"), Some(Class::Normal)).unwrap();
        saved.set(1000, &app("a"), Some(Class::Disposable)).unwrap();
        let mut saved = Saved::open(Some(&state));
        assert_eq!(saved.of(&app("a"), 1000), Some((Class::Disposable, 1000)));
        assert_eq!(saved.of(&app("a"), 1001), None, "another user's app");
        assert_eq!(saved.of(&app("b"), 1000), None);
        saved.set(0, &app("a"), Some(Class::Keep)).unwrap();
        let mut saved = Saved::open(Some(&state));
        for owner in [0, 1000, 1001] {
            assert_eq!(saved.of(&app("a"), owner), Some((Class::Keep, 0)));
        }
        saved.set(0, &app("a"), None).unwrap();
        saved.set(1000, &app("a"), None).unwrap();
        assert_eq!(Saved::open(Some(&state)).of(&app("a"), 1000), None);
    }

    #[test]
    fn what_cannot_be_saved_changes_nothing() {
        let mut dry = Saved::open(None);
        let dry_run = dry.set(0, &app("a"), Some(Class::Keep));
        assert!(matches!(dry_run, Err(NotSaved::DryRun)), "{dry_run:?}");
        let temp = tempfile::tempdir().unwrap();
        let mut saved = Saved::open(Some(temp.path()));
        let nameless = saved.set(0, &Identity::default(), Some(Class::Keep));
        assert!(matches!(nameless, Err(NotSaved::Nameless)), "{nameless:?}");
        for number in 0..USER_MAX {
            let identity = app(&number.to_string());
            saved.set(1000, &identity, Some(Class::Normal)).unwrap();
        }
        let more = saved.set(1000, &app("more"), Some(Class::Normal));
        assert!(matches!(more, Err(NotSaved::TooMany)), "{more:?}");
        assert_eq!(saved.of(&app("more"), 1000), None);
        saved.set(0, &app("more"), Some(Class::Keep)).unwrap();
        // A file that is no list of classes is not used, and is replaced by the next save.
        let file = temp.path().join(FILE_NAME);
        fs::write(&file, "[{\"uid\":0}]").unwrap();
        let mut saved = Saved::open(Some(temp.path()));
        assert_eq!(saved.of(&app("more"), 1000), None);
        saved.set(0, &app("a"), Some(Class::Keep)).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("keep"));
    }
}
