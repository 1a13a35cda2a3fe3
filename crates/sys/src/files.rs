// SPDX-License-Identifier: GPL-2.0-or-later
//! Files of a process: its program, its open files and their positions, and its mapped files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};

use crate::error::{Error, Result};
use crate::process::Process;
use crate::reopen;

/// Identity of one version of a file. It changes when the file is written to or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// Type of file behind a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Any other type. Such a file has no contents to read ahead.
    Other,
}

/// Attributes of a file that matter for reading ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Identity of the file; for a block device, the identity of its device node.
    pub id: FileId,
    /// Its type.
    pub kind: FileKind,
    /// Number of the device that serves reads of the file: the device of the file system, or the
    /// block device itself.
    pub device: u64,
    /// Uid of its owner.
    pub owner: u32,
    /// Device number, if the file is a character device.
    character: Option<u64>,
}

impl FileStat {
    pub(crate) fn new(stat: &rustix::fs::Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::BlockDevice => FileKind::Block,
            _ => FileKind::Other,
        };
        FileStat {
            id: FileId {
                device: stat.st_dev,
                inode: stat.st_ino,
                size: u64::try_from(stat.st_size).unwrap_or(0),
                mtime_ns: stat
                    .st_mtime
                    .saturating_mul(1_000_000_000)
                    .saturating_add(stat.st_mtime_nsec as i64),
            },
            kind,
            device: match kind {
                FileKind::Block => stat.st_rdev,
                _ => stat.st_dev,
            },
            owner: stat.st_uid,
            character: (FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
                .then_some(stat.st_rdev),
        }
    }

    /// Whether both describe the same file, possibly in different versions.
    pub fn same_file(&self, other: &FileStat) -> bool {
        (self.id.device, self.id.inode) == (other.id.device, other.id.inode)
    }

    /// Whether both describe the same file, or nodes of the same character device.
    pub fn same_device(&self, other: &FileStat) -> bool {
        self.same_file(other) || (self.character.is_some() && self.character == other.character)
    }

    /// Attributes of the file at a path. Symbolic links are followed.
    pub fn at(path: &Path) -> Result<Self> {
        let stat = rustix::fs::stat(path).map_err(|errno| Error::new("stat", path, errno))?;
        Ok(FileStat::new(&stat))
    }

    /// Attributes of an open file.
    pub fn of(file: impl std::os::fd::AsFd) -> Result<Self> {
        let stat = rustix::fs::fstat(file).map_err(|errno| Error::new("stat", "a file", errno))?;
        Ok(FileStat::new(&stat))
    }
}

/// A process's position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Offset of the next `read()`.
    pub offset: u64,
    /// Whether the file is open for reading and its reads use the page cache.
    pub cached_reads: bool,
}

/// A file that a process maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// Device and inode number.
    pub key: (u64, u64),
    /// Its path as `/proc/PID/maps` shows it: relative to the root directory of the reader, not of
    /// the process.
    pub path: PathBuf,
}

impl Process {
    /// Attributes and path of its program. The path is relative to the root directory of the
    /// caller.
    pub fn program(&self) -> Result<(FileStat, PathBuf)> {
        let stat = rustix::fs::statat(self.dir(), "exe", AtFlags::empty())
            .map_err(|errno| self.failed("stat", "exe", errno))?;
        let path = rustix::fs::readlinkat(self.dir(), "exe", Vec::new())
            .map_err(|errno| self.failed("read", "exe", errno))?;
        Ok((FileStat::new(&stat), to_path(path)))
    }

    /// Numbers of its file descriptors, ascending. If there are more than `most`, the lowest ones.
    pub fn descriptors(&self, most: usize) -> Result<Vec<i32>> {
        let names = self.dir().open_dir("fd")?.names()?;
        let mut numbers: Vec<i32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers.truncate(most);
        Ok(numbers)
    }

    /// Attributes of the file behind one of its descriptors.
    pub fn descriptor(&self, number: i32) -> Result<FileStat> {
        let name = format!("fd/{number}");
        let stat = rustix::fs::statat(self.dir(), &name, AtFlags::empty())
            .map_err(|errno| self.failed("stat", &name, errno))?;
        Ok(FileStat::new(&stat))
    }

    /// Whether one of its descriptors is open for reading or writing. An `O_PATH` descriptor is not:
    /// any user can get one of any file that they can see. False if the descriptor refers to
    /// another file than `seen`, which [`Process::descriptor`] returned.
    pub fn has_access(&self, number: i32, seen: &FileStat) -> Result<bool> {
        // The process may replace the file behind the descriptor between two calls. `fdinfo` is
        // read in one piece, and inode and mount identify the file that its flags belong to.
        let text = self.dir().read_text(format!("fdinfo/{number}"))?;
        let Some(opened) = Opened::parse(&text).filter(|opened| !opened.only_path) else {
            return Ok(false);
        };
        let name = format!("fd/{number}");
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = rustix::fs::statx(self.dir(), &name, AtFlags::empty(), wanted)
            .map_err(|errno| self.failed("stat", &name, errno))?;
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        let same = (device, stat.stx_ino) == (seen.id.device, seen.id.inode);
        Ok(same && (opened.inode, opened.mount) == (stat.stx_ino, stat.stx_mnt_id))
    }

    /// Target of one of its descriptors: a path, or a name such as `socket:[4242]`.
    pub fn descriptor_target(&self, number: i32) -> Result<PathBuf> {
        let name = format!("fd/{number}");
        let target = rustix::fs::readlinkat(self.dir(), &name, Vec::new())
            .map_err(|errno| self.failed("read", &name, errno))?;
        Ok(to_path(target))
    }

    /// Opens the file behind one of its descriptors for reading, with an independent position.
    /// Fails unless the descriptor still refers to `seen`, the file that [`Process::descriptor`]
    /// returned.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`] if the descriptor has been closed or refers to another file,
    /// [`Error::Invalid`] if the file is neither a regular file nor a block device.
    pub fn open_descriptor(&self, number: i32, seen: &FileStat) -> Result<File> {
        let name = format!("fd/{number}");
        let failed = |errno| self.failed("open", &name, errno);
        // O_PATH comes first, because the process may replace the file behind the descriptor at any
        // moment.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let named = rustix::fs::openat(self.dir(), &name, flags, Mode::empty()).map_err(failed)?;
        let fd = reopen::same(&named, seen, OFlags::empty()).map_err(failed)?;
        Ok(File::from(fd))
    }

    /// Position in the file behind one of its descriptors.
    pub fn position(&self, number: i32) -> Result<Position> {
        let name = format!("fdinfo/{number}");
        let text = self.dir().read_text(&name)?;
        Position::parse(&text)
            .ok_or_else(|| Error::malformed(self.dir().path().join(&name), "no pos or no flags"))
    }

    /// The files that it maps, each listed once. Deleted files are left out.
    pub fn mapped_files(&self) -> Result<Vec<MappedFile>> {
        Ok(parse_maps(&self.dir().read_text("maps")?))
    }

    fn failed(&self, action: &'static str, name: &str, errno: rustix::io::Errno) -> Error {
        Error::new(action, self.dir().path().join(name), errno)
    }
}

fn to_path(bytes: std::ffi::CString) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec(bytes.into_bytes()))
}

/// The value of a key of `fdinfo`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.map(str::trim)
}

/// The flags in `fdinfo`.
fn flags(text: &str) -> Option<u32> {
    u32::from_str_radix(value(text, "flags:")?, 8).ok()
}

/// What `fdinfo` says about an open file.
struct Opened {
    /// The descriptor only names the file.
    only_path: bool,
    inode: u64,
    /// Id of the mount.
    mount: u64,
}

impl Opened {
    fn parse(text: &str) -> Option<Opened> {
        Some(Opened {
            only_path: flags(text)? & libc::O_PATH as u32 != 0,
            inode: value(text, "ino:")?.parse().ok()?,
            mount: value(text, "mnt_id:")?.parse().ok()?,
        })
    }
}

impl Position {
    /// Parses `fdinfo`; `None` if the position or the flags are missing.
    pub fn parse(text: &str) -> Option<Self> {
        let flags = flags(text)?;
        Some(Position {
            offset: value(text, "pos:")?.parse().ok()?,
            cached_reads: flags & libc::O_ACCMODE as u32 != libc::O_WRONLY as u32
                && flags & (libc::O_DIRECT | libc::O_PATH) as u32 == 0,
        })
    }
}

/// Parses `/proc/PID/maps`. Lists each mapped file once, and leaves out deleted files.
pub fn parse_maps(text: &str) -> Vec<MappedFile> {
    let line = |line: &str| {
        // 7f00-7f01 r-xp 00001000 fd:01 1234      /usr/lib/libc.so.6
        let (head, path) = line.split_once(" /")?;
        let mut words = head.split_ascii_whitespace().skip(3);
        let (major, minor) = words.next()?.split_once(':')?;
        let device = rustix::fs::makedev(
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        );
        let inode = words.next()?.parse().ok().filter(|&inode| inode != 0)?;
        let alive = !path.ends_with(" (deleted)");
        alive.then(|| ((device, inode), PathBuf::from(format!("/{path}"))))
    };
    // Not `lines()`, which removes a trailing carriage return: it may belong to the path.
    let lines = text.split_terminator('\n');
    let files: BTreeMap<(u64, u64), PathBuf> = lines.filter_map(line).collect();
    let files = files.into_iter();
    files.map(|(key, path)| MappedFile { key, path }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inotify::Inotify;
    use crate::proc::Proc;
    use proptest::prelude::*;
    use rustix::fs::inotify::{ReadFlags, WatchFlags};
    use std::io::{Read, Seek};

    fn own() -> Process {
        let proc = Proc::open("/proc").unwrap();
        proc.process(std::process::id() as i32).unwrap()
    }

    #[test]
    fn open_file_and_its_position_are_found() {
        use std::os::fd::AsRawFd;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::write(&path, vec![5; 10_000]).unwrap();
        let mut file = File::open(&path).unwrap();
        let number = file.as_raw_fd();
        file.read_exact(&mut [0; 48]).unwrap();

        let own = own();
        assert!(own.descriptors(usize::MAX).unwrap().contains(&number));
        let stat = own.descriptor(number).unwrap();
        assert_eq!(stat, FileStat::of(&file).unwrap());
        assert_eq!(own.descriptor_target(number).unwrap(), path);
        assert_eq!((stat.id.size, stat.kind), (10_000, FileKind::Regular));
        let position = own.position(number).unwrap();
        assert_eq!((position.offset, position.cached_reads), (48, true));

        let mut again = own.open_descriptor(number, &stat).unwrap();
        assert_eq!(again.stream_position().unwrap(), 0);
        let mut text = Vec::new();
        again.read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), 10_000);
        assert_eq!(own.position(number).unwrap().offset, 48);
    }

    #[test]
    fn descriptor_that_only_names_a_file_has_no_access() {
        use std::os::fd::AsRawFd;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("device");
        std::fs::write(&path, "").unwrap();
        let open = |flags| rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        for (flags, expected) in [
            (OFlags::PATH, false),
            (OFlags::RDONLY, true),
            (OFlags::WRONLY, true),
            (OFlags::RDWR, true),
        ] {
            let file = open(flags);
            let seen = own().descriptor(file.as_raw_fd()).unwrap();
            let access = own().has_access(file.as_raw_fd(), &seen).unwrap();
            assert_eq!(access, expected, "{flags:?}");
        }
        let other = File::open("/dev/null").unwrap();
        let seen = FileStat::at(&path).unwrap();
        assert!(!own().has_access(other.as_raw_fd(), &seen).unwrap());
    }

    /// A user could show the inode number of a device with a file of their own.
    #[test]
    fn descriptor_replaced_by_a_readable_file_never_has_access_to_the_first() {
        use std::os::fd::AsRawFd;
        use std::sync::atomic::{AtomicBool, Ordering};
        let temp = tempfile::tempdir().unwrap();
        let (device, own_file) = (temp.path().join("device"), temp.path().join("own"));
        std::fs::write(&device, "").unwrap();
        std::fs::write(&own_file, "").unwrap();
        let named = rustix::fs::open(&device, OFlags::PATH, Mode::empty()).unwrap();
        let read = rustix::fs::open(&own_file, OFlags::RDONLY, Mode::empty()).unwrap();
        let seen = FileStat::of(&named).unwrap();
        let mut changing = rustix::fs::open(&device, OFlags::PATH, Mode::empty()).unwrap();
        let number = changing.as_raw_fd();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    rustix::io::dup2(&read, &mut changing).unwrap();
                    rustix::io::dup2(&named, &mut changing).unwrap();
                }
            });
            let process = own();
            let access = (0..20_000).any(|_| process.has_access(number, &seen).unwrap_or(false));
            done.store(true, Ordering::Relaxed);
            assert!(!access);
        });
    }

    /// Number of opens of the watched file since the last call.
    fn opens(watch: &Inotify) -> usize {
        let events = watch.events().unwrap();
        let opens = events.iter().filter(|e| e.flags.contains(ReadFlags::OPEN));
        opens.count()
    }

    #[test]
    fn fifo_behind_a_descriptor_is_not_opened() {
        use std::os::fd::AsRawFd;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let fifo = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
        let watch = Inotify::new().unwrap();
        watch.watch(&path, WatchFlags::OPEN).unwrap();
        let number = fifo.as_raw_fd();
        let stat = own().descriptor(number).unwrap();
        assert_eq!(stat.kind, FileKind::Other);
        let refused = own().open_descriptor(number, &stat).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
        assert_eq!(opens(&watch), 0);
    }

    #[test]
    fn descriptor_replaced_during_an_open_never_opens_the_other_file() {
        use std::os::fd::AsRawFd;
        use std::sync::atomic::{AtomicBool, Ordering};
        let temp = tempfile::tempdir().unwrap();
        let (path, other) = (temp.path().join("data"), temp.path().join("fifo"));
        std::fs::write(&path, "text").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &other, Mode::RUSR | Mode::WUSR).unwrap();
        let name = |path| rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
        let (file, fifo) = (name(&path), name(&other));
        let stat = FileStat::of(&file).unwrap();
        let watch = Inotify::new().unwrap();
        watch.watch(&other, WatchFlags::OPEN).unwrap();
        let mut changing = name(&path);
        let number = changing.as_raw_fd();
        let (done, mut others) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    rustix::io::dup2(&fifo, &mut changing).unwrap();
                    rustix::io::dup2(&file, &mut changing).unwrap();
                }
            });
            let process = own();
            let opened = (0..20_000).filter_map(|_| process.open_descriptor(number, &stat).ok());
            let is_other = |file: &File| !FileStat::of(file).is_ok_and(|of| of.same_file(&stat));
            others = opened.filter(is_other).count();
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(others, 0);
        assert_eq!(opens(&watch), 0, "the FIFO was opened");
    }

    #[test]
    fn program_is_among_the_mapped_files() {
        let own = own();
        let (stat, path) = own.program().unwrap();
        assert_eq!(path, std::env::current_exe().unwrap());
        let mapped = own.mapped_files().unwrap();
        let found = mapped.iter().find(|file| file.path == path).unwrap();
        assert_eq!(found.key.1, stat.id.inode);
    }

    #[test]
    fn writing_to_a_file_changes_its_id() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::write(&path, "one").unwrap();
        let before = FileStat::of(File::open(&path).unwrap()).unwrap();
        std::fs::write(&path, "four").unwrap();
        let after = FileStat::of(File::open(&path).unwrap()).unwrap();
        assert_ne!(before.id, after.id);
        assert_eq!(before.id.inode, after.id.inode);
    }

    #[test]
    fn mappings_without_files_and_deleted_files_are_left_out() {
        let text = "\
55d0-55d1 r-xp 00001000 fd:01 1234                       /usr/bin/a b
55d1-55d2 rw-p 00000000 fd:01 1234                       /usr/bin/a b
7f00-7f01 rw-p 00000000 00:00 0 
7f02-7f03 r--s 00000000 00:05 77                         /tmp/x (deleted)
7fff-8000 r-xp 00000000 00:00 0                          [vdso]
";
        let files = parse_maps(text);
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].path, PathBuf::from("/usr/bin/a b"));
        assert_eq!(files[0].key, (rustix::fs::makedev(0xfd, 1), 1234));
        let odd = parse_maps("7f00-7f01 r-xp 0 fd:01 9 /a\r\n");
        assert_eq!(odd[0].path, PathBuf::from("/a\r"));
    }

    #[test]
    fn files_opened_write_only_or_direct_have_no_cached_reads() {
        let parse = |flags| Position::parse(&format!("pos:\t7\nflags:\t{flags}\nmnt_id:\t1\n"));
        let direct = format!("{:o}", libc::O_DIRECT);
        assert!(!parse("0100001").unwrap().cached_reads);
        assert!(!parse(&direct).unwrap().cached_reads);
        assert!(parse("0100002").unwrap().cached_reads);
        assert_eq!(parse("x"), None);
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in any::<String>()) {
            Position::parse(&text);
            parse_maps(&text);
        }
    }
}
