// SPDX-License-Identifier: GPL-2.0-or-later
//! An open directory, and the path under which it was opened.
//!
//! Files below the directory are opened relative to its descriptor. Symbolic links and paths that
//! leave the directory are refused, so a path from another user cannot lead elsewhere. A new
//! directory of the same name is not mistaken for the old one.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Initial buffer size. Most kernel files fit, so two reads suffice: the second one finds the end
/// of the file.
const FILE_USUAL_BYTES: usize = 4096;

/// Read limit per file. No kernel file that is read through [`Dir::read`] is larger.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

impl Dir {
    /// Opens a directory. The path must be trusted, because symbolic links are followed.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => Ok(Dir { fd, path }),
            Err(errno) => Err(Error::new("open", path, errno)),
        }
    }

    /// The path under which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory below this one.
    pub fn open_dir(&self, relative: impl AsRef<Path>) -> Result<Self> {
        let relative = relative.as_ref();
        let fd = self.open_at(relative, OFlags::RDONLY | OFlags::DIRECTORY, "open")?;
        Ok(Dir {
            fd,
            path: self.path.join(relative),
        })
    }

    /// Opens a file below this directory. `action` is the verb phrase in "cannot ACTION PATH".
    pub fn open_at(
        &self,
        relative: impl AsRef<Path>,
        flags: OFlags,
        action: &'static str,
    ) -> Result<OwnedFd> {
        let relative = relative.as_ref();
        let inside =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        fs::openat2(
            &self.fd,
            relative,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            inside,
        )
        .map_err(|errno| Error::new(action, self.path.join(relative), errno))
    }

    /// Another handle of the same directory.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Error::new("open", &self.path, errno)
        })?;
        Ok(Dir {
            fd,
            path: self.path.clone(),
        })
    }

    /// Reads a whole file below this directory (truncated at 16 MiB).
    pub fn read(&self, relative: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.read_start(relative, FILE_MAX_BYTES)
    }

    /// Reads the first bytes of a file below this directory, at most this many.
    pub fn read_start(&self, relative: impl AsRef<Path>, most: u64) -> Result<Vec<u8>> {
        let relative = relative.as_ref();
        let fd = self.open_at(relative, OFlags::RDONLY, "read")?;
        let mut contents = Vec::with_capacity(FILE_USUAL_BYTES);
        match std::fs::File::from(fd)
            .take(most)
            .read_to_end(&mut contents)
        {
            Ok(_) => Ok(contents),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                Err(Error::new("read", self.path.join(relative), errno))
            }
        }
    }

    /// Reads a whole file as text; bytes that are not UTF-8 become U+FFFD.
    pub fn read_text(&self, relative: impl AsRef<Path>) -> Result<String> {
        let text = String::from_utf8(self.read(relative)?);
        Ok(text.unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned()))
    }

    /// Writes a value with one `write()`, as kernel files require. The file must exist.
    pub fn write(&self, relative: impl AsRef<Path>, value: &str) -> Result<()> {
        let relative = relative.as_ref();
        let fd = self.open_at(relative, OFlags::WRONLY | OFlags::TRUNC, "write")?;
        match rustix::io::write(&fd, value.as_bytes()) {
            Ok(written) if written == value.len() => Ok(()),
            Ok(_) => Err(Error::new("write", self.path.join(relative), Errno::IO)),
            Err(errno) => Err(Error::new("write", self.path.join(relative), errno)),
        }
    }

    /// Whether the directory has an entry of that name.
    pub fn contains(&self, name: &str) -> bool {
        fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Creates a subdirectory; [`Error::Busy`] if the name is taken.
    pub fn make_dir(&self, name: &str) -> Result<()> {
        fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o755))
            .map_err(|errno| Error::new("create", self.path.join(name), errno))
    }

    /// Removes an empty subdirectory; [`Error::Busy`] if it is in use or not empty.
    pub fn remove_dir(&self, name: &str) -> Result<()> {
        fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(|errno| Error::new("remove", self.path.join(name), errno))
    }

    /// Names of all entries in the directory, in the kernel's order.
    pub fn names(&self) -> Result<Vec<String>> {
        self.names_where(|_| true)
    }

    /// Names of the subdirectories, found without opening any entry. Includes entries of unknown
    /// type if the file system does not report types.
    pub fn directories(&self) -> Result<Vec<String>> {
        self.names_where(may_be_directory)
    }

    /// The first `most` names that [`Dir::directories`] would return, and whether there are more.
    /// Stops reading the directory at that limit.
    pub fn first_directories(&self, most: usize) -> Result<(Vec<String>, bool)> {
        let mut names = Vec::new();
        let mut entries = self.entries_where(may_be_directory)?;
        while let Some(name) = entries.next().transpose()? {
            if names.len() == most {
                return Ok((names, true));
            }
            names.push(name);
        }
        Ok((names, false))
    }

    fn names_where<'a>(&'a self, wanted: impl Fn(FileType) -> bool + 'a) -> Result<Vec<String>> {
        self.entries_where(wanted)?.collect()
    }

    fn entries_where<'a>(
        &'a self,
        wanted: impl Fn(FileType) -> bool + 'a,
    ) -> Result<impl Iterator<Item = Result<String>> + 'a> {
        let failed = |errno| Error::new("list", &self.path, errno);
        let entries = fs::Dir::read_from(&self.fd).map_err(failed)?;
        Ok(entries.filter_map(move |entry| match entry {
            Ok(entry) => {
                let name = entry.file_name().to_string_lossy();
                let counts = name != "." && name != ".." && wanted(entry.file_type());
                counts.then(|| Ok(name.into_owned()))
            }
            Err(errno) => Some(Err(failed(errno))),
        }))
    }

    /// Whether the link count shows that the directory has no subdirectories: it is 2, for the
    /// directory's name and its own `.`. `false` also on file systems that do not count links.
    pub fn is_leaf(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 2)
    }

    /// When a file in the directory was last read from, in seconds since 1970.
    pub fn last_access_s(&self, name: &str) -> Result<i64> {
        let stat = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| Error::new("stat", self.path.join(name), errno))?;
        Ok(stat.st_atime)
    }

    /// Inode number of the directory, and uid of its owner.
    pub fn inode_and_owner(&self) -> Result<(u64, u32)> {
        let stat = fs::fstat(&self.fd).map_err(|errno| Error::new("stat", &self.path, errno))?;
        Ok((stat.st_ino, stat.st_uid))
    }
}

fn may_be_directory(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::Unknown)
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn files_below_the_directory_are_read_and_written() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("a")).unwrap();
        std::fs::write(temp.path().join("a/value"), "a longer value\n").unwrap();
        let dir = Dir::open(temp.path()).unwrap().open_dir("a").unwrap();
        dir.write("value", "7").unwrap();
        assert_eq!(dir.read_text("value").unwrap(), "7");
        assert_eq!(dir.names().unwrap(), ["value"]);
        assert!(dir.contains("value") && !dir.contains("other"));
    }

    #[test]
    fn directory_with_a_subdirectory_is_no_leaf() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let counts_links = std::fs::metadata(temp.path()).unwrap().nlink() != 1;
        assert_eq!(dir.is_leaf(), counts_links);
        std::fs::create_dir(temp.path().join("below")).unwrap();
        assert!(!dir.is_leaf());
        std::fs::remove_dir(temp.path().join("below")).unwrap();
        assert_eq!(dir.is_leaf(), counts_links);
    }

    #[test]
    fn listing_of_directories_stops_at_the_limit() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::create_dir(temp.path().join(name)).unwrap();
        }
        std::fs::write(temp.path().join("file"), "").unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let listed = |most| {
            let (names, more) = dir.first_directories(most).unwrap();
            (names.len(), more)
        };
        assert_eq!(listed(2), (2, true));
        assert_eq!(listed(3), (3, false));
        assert_eq!(listed(0), (0, true));
    }

    #[test]
    fn paths_and_links_cannot_leave_the_directory() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("a")).unwrap();
        std::fs::write(temp.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink("../secret", temp.path().join("a/link")).unwrap();
        let dir = Dir::open(temp.path().join("a")).unwrap();
        assert!(dir.read("../secret").is_err());
        assert!(dir.read("/etc/hostname").is_err());
        assert!(dir.read("link").is_err());
    }

    #[test]
    fn taken_name_is_busy_and_missing_file_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        dir.make_dir("a").unwrap();
        assert!(matches!(dir.make_dir("a"), Err(Error::Busy { .. })));
        std::fs::write(temp.path().join("a/f"), "").unwrap();
        assert!(matches!(dir.remove_dir("a"), Err(Error::Busy { .. })));
        assert!(dir.read("b").unwrap_err().is_gone());
        assert!(dir.write("b", "1").unwrap_err().is_gone());
    }
}
