// SPDX-License-Identifier: GPL-2.0-or-later
//! The user's own configuration (`~/.config/limelight/limelight.toml`), which makes exceptions for
//! the user's apps. The agent only passes the text on: the daemon parses it, checks it, and applies
//! it to apps of this user.
//!
//! The file is examined at the start and at each change of focus, so that a change needs no restart
//! and an idle session no wakeup.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use limelight_proto::USER_FILE_MAX;

/// The user's file, and its state when it was last read.
#[derive(Debug)]
pub struct OwnRules {
    path: Option<PathBuf>,
    /// Device, inode, size and time of the last change; `None`: there was no file.
    seen: Option<(u64, u64, u64, i64, i64)>,
}

impl OwnRules {
    /// The file at this path, not read yet.
    pub fn new(path: Option<PathBuf>) -> OwnRules {
        OwnRules { path, seen: None }
    }

    /// The path and the contents if the file has changed since it was last read. The contents are empty
    /// if the file is gone or cannot be used.
    pub fn look(&mut self) -> Option<(String, String)> {
        let path = self.path.as_ref()?;
        let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let now = metadata.map(|data| {
            (
                data.dev(),
                data.ino(),
                data.size(),
                data.mtime(),
                data.mtime_nsec(),
            )
        });
        if now == self.seen {
            return None;
        }
        self.seen = now;
        let name = path.display().to_string();
        let text = now.map(|_| self.read()).transpose();
        let text = text.unwrap_or_else(|why| {
            tracing::warn!("{name} is not used: {why}");
            None
        });
        Some((name, text.unwrap_or_default()))
    }

    fn read(&self) -> Result<String, String> {
        let path = self.path.as_deref().unwrap_or_else(|| "".as_ref());
        let file = File::open(path).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        let read = file.take(USER_FILE_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| error.to_string())?;
        if bytes.len() > USER_FILE_MAX {
            return Err(format!("it is longer than {USER_FILE_MAX} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_changed_file_is_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("limelight.toml");
        let mut rules = OwnRules::new(Some(path.clone()));
        let name = path.display().to_string();
        assert_eq!(rules.look(), None, "there is no file");
        fs::write(&path, "[never]\n").unwrap();
        assert_eq!(rules.look(), Some((name.clone(), "[never]\n".to_owned())));
        assert_eq!(rules.look(), None);
        fs::write(&path, "[never]\nclose = []\n").unwrap();
        assert!(rules.look().is_some_and(|(_, text)| text.contains("close")));
        fs::write(&path, vec![b'#'; USER_FILE_MAX + 1]).unwrap();
        assert_eq!(
            rules.look(),
            Some((name.clone(), String::new())),
            "too long"
        );
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(rules.look(), Some((name.clone(), String::new())), "no text");
        fs::remove_file(&path).unwrap();
        assert_eq!(rules.look(), Some((name, String::new())), "gone");
        assert_eq!(rules.look(), None);
        assert_eq!(OwnRules::new(None).look(), None);
    }
}
