// SPDX-License-Identifier: GPL-2.0-or-later
//! Reports opens of files on whole file systems, and reads of single files.
//!
//! The queue contains notifications, not permission events, so the observed processes never wait
//! for the caller. Each event carries an open descriptor of the file. So the caller needs neither
//! the path of the file nor the mount namespace of the process. Requires CAP_SYS_ADMIN.

use std::mem::{size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Bytes per read of the queue: at most 170 events. Also limits the file descriptors, because each
/// event comes with an open one.
const BUFFER: usize = 4096;

/// Type of opens to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any open of a file.
    Open,
    /// An open for execution by execve(): of a program and its loader, or of a script and its
    /// interpreter. The event comes before the first page of the program is needed.
    Exec,
}

impl Kind {
    fn mask(self) -> u64 {
        match self {
            Kind::Open => libc::FAN_OPEN,
            Kind::Exec => libc::FAN_OPEN_EXEC,
        }
    }
}

/// An open or a read of a file.
#[derive(Debug)]
pub struct Event {
    /// Pid of the process that opened or read the file.
    pub pid: i32,
    /// Whether the file was opened for execution. The kernel may merge several events of one
    /// process and file, so `read` can be set too.
    pub exec: bool,
    /// Whether the file was read.
    pub read: bool,
    /// The file, opened for reading; reads do not change its access time.
    pub file: OwnedFd,
}

/// Events taken from the queue.
#[derive(Debug, Default)]
pub struct Batch {
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Whether the queue overflowed and events were lost.
    pub lost: bool,
}

/// The event queue. Readable (`EPOLLIN`) when it is not empty.
#[derive(Debug)]
pub struct Fanotify {
    fd: OwnedFd,
}

impl Fanotify {
    /// Creates an empty queue with the system's default length.
    pub fn new() -> Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        let file_flags = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NOATIME;
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::fanotify_init(flags, file_flags as u32) };
        if fd < 0 {
            return Err(failed("make", Path::new("a fanotify queue")));
        }
        // SAFETY: the kernel has just created this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Fanotify { fd })
    }

    /// Watches the whole file system that is mounted at `mount`. Opens through other mounts of it
    /// are reported too.
    pub fn watch(&self, mount: &Path, kind: Kind) -> Result<()> {
        self.mark(libc::FAN_MARK_ADD, mount, kind)
    }

    /// Watches reads of one file by any process. Until [`Fanotify::unwatch_reads`], each read of
    /// the file has the overhead of queueing an event.
    pub fn watch_reads(&self, file: impl AsFd) -> Result<()> {
        self.mark_file(libc::FAN_MARK_ADD, file)
    }

    /// Ends a watch of [`Fanotify::watch_reads`]. A missing watch is not an error.
    pub fn unwatch_reads(&self, file: impl AsFd) -> Result<()> {
        match self.mark_file(libc::FAN_MARK_REMOVE, file) {
            Err(error) if error.is_gone() => Ok(()),
            result => result,
        }
    }

    fn mark_file(&self, what: libc::c_uint, file: impl AsFd) -> Result<()> {
        // SAFETY: the path is null, which is allowed: the kernel marks the file of the descriptor.
        let done = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                what | libc::FAN_MARK_INODE,
                libc::FAN_ACCESS,
                file.as_fd().as_raw_fd(),
                std::ptr::null(),
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(failed("watch reads of", Path::new("a file")))
        }
    }

    /// Ends a watch of [`Fanotify::watch`]. A missing watch is not an error.
    pub fn unwatch(&self, mount: &Path, kind: Kind) -> Result<()> {
        match self.mark(libc::FAN_MARK_REMOVE, mount, kind) {
            Err(error) if error.is_gone() => Ok(()),
            result => result,
        }
    }

    fn mark(&self, what: libc::c_uint, mount: &Path, kind: Kind) -> Result<()> {
        let path = std::ffi::CString::new(mount.as_os_str().as_bytes())
            .map_err(|_| Error::new("watch", mount, Errno::INVAL))?;
        // SAFETY: `path` is a C string that outlives the call.
        let done = unsafe {
            libc::fanotify_mark(
                self.fd.as_raw_fd(),
                what | libc::FAN_MARK_FILESYSTEM,
                kind.mask(),
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(failed("watch", mount))
        }
    }

    /// Takes the waiting events, at most one buffer full. An empty queue is not an error.
    pub fn take(&self) -> Result<Batch> {
        // Events are aligned to eight bytes.
        let mut buffer = [0u64; BUFFER / 8];
        // SAFETY: the buffer has the stated length, and any bytes are valid in it.
        let read = unsafe { libc::read(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), BUFFER) };
        let Ok(read) = usize::try_from(read) else {
            let error = std::io::Error::last_os_error();
            return match Errno::from_io_error(&error) {
                Some(Errno::AGAIN | Errno::INTR) => Ok(Batch::default()),
                // The kernel could not open the file of the first event, and this event is lost.
                // The file is being executed on a network file system, is a device without a
                // driver, or may not be opened.
                Some(Errno::TXTBSY | Errno::NXIO | Errno::NODEV | Errno::ACCESS) => {
                    Ok(Batch::default())
                }
                _ => Err(failed("read", Path::new("a fanotify queue"))),
            };
        };
        // SAFETY: the kernel has filled `read` bytes with whole events, and has opened their
        // descriptors for us.
        Ok(unsafe { batch(&buffer, read) })
    }
}

/// The events in the first `filled` bytes of a buffer. An event without a descriptor reports an
/// overflow of the queue.
///
/// # Safety
/// These bytes hold whole events, and each descriptor in them is open and has no other owner.
unsafe fn batch(buffer: &[u64], filled: usize) -> Batch {
    let mut batch = Batch::default();
    let mut at = 0;
    let filled = filled.min(size_of_val(buffer));
    while at + size_of::<libc::fanotify_event_metadata>() <= filled {
        // SAFETY: the event lies within the buffer, and any bytes are valid in it.
        // read_unaligned() requires no alignment.
        let event = unsafe {
            let address = buffer.as_ptr().cast::<u8>().add(at);
            address
                .cast::<libc::fanotify_event_metadata>()
                .read_unaligned()
        };
        if event.event_len == 0 {
            break;
        }
        at += event.event_len as usize;
        batch.lost |= event.mask & libc::FAN_Q_OVERFLOW != 0;
        if event.fd >= 0 {
            batch.events.push(Event {
                pid: event.pid,
                exec: event.mask & libc::FAN_OPEN_EXEC != 0,
                read: event.mask & libc::FAN_ACCESS != 0,
                // SAFETY: the caller hands this descriptor over.
                file: unsafe { OwnedFd::from_raw_fd(event.fd) },
            });
        }
    }
    batch
}

fn failed(action: &'static str, path: &Path) -> Error {
    let error = std::io::Error::last_os_error();
    Error::new(
        action,
        path,
        Errno::from_io_error(&error).unwrap_or(Errno::IO),
    )
}

impl AsFd for Fanotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    /// A queue that watches the file system of `path`; `None` without the privileges.
    fn watching(path: &Path, kinds: &[Kind]) -> Option<Fanotify> {
        let queue = Fanotify::new().ok()?;
        for &kind in kinds {
            queue.watch(path, kind).ok()?;
        }
        Some(queue)
    }

    fn inode(file: &OwnedFd) -> u64 {
        rustix::fs::fstat(file).unwrap().st_ino
    }

    #[test]
    fn open_and_exec_are_reported_with_file_and_process() {
        let temp = tempfile::tempdir().unwrap();
        let program = temp.path().join("true");
        std::fs::copy("/bin/true", &program).unwrap();
        let wanted = std::fs::metadata(&program).unwrap().ino();
        let Some(queue) = watching(temp.path(), &[Kind::Open, Kind::Exec]) else {
            return;
        };
        std::fs::File::open(&program).unwrap();
        let mut child = Command::new(&program).spawn().unwrap();
        child.wait().unwrap();
        let (mut opened, mut executed) = (false, false);
        loop {
            let batch = queue.take().unwrap();
            if batch.events.is_empty() {
                break;
            }
            for event in &batch.events {
                if inode(&event.file) == wanted {
                    opened |= event.pid == std::process::id() as i32 && !event.exec;
                    executed |= event.pid == child.id() as i32 && event.exec;
                }
            }
        }
        assert!(opened && executed, "opened {opened}, executed {executed}");
        queue.unwatch(temp.path(), Kind::Open).unwrap();
        queue.unwatch(temp.path(), Kind::Open).unwrap();
    }

    #[test]
    fn reads_of_one_file_are_reported_until_the_watch_ends() {
        use std::io::Read;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        std::fs::write(&path, "text").unwrap();
        let Ok(queue) = Fanotify::new() else { return };
        let mut file = std::fs::File::open(&path).unwrap();
        if queue.watch_reads(&file).is_err() {
            return;
        }
        let mut read = || file.read(&mut [0; 2]).unwrap();
        assert_eq!(read(), 2);
        let batch = queue.take().unwrap();
        assert_eq!(batch.events.len(), 1);
        assert!(batch.events[0].read && !batch.events[0].exec);
        queue.unwatch_reads(&batch.events[0].file).unwrap();
        queue.unwatch_reads(&batch.events[0].file).unwrap();
        assert_eq!(read(), 2);
        assert!(queue.take().unwrap().events.is_empty());
    }

    #[test]
    fn event_without_a_descriptor_reports_an_overflow() {
        use std::os::fd::IntoRawFd;
        let file = std::fs::File::open("/dev/null").unwrap();
        let opened = (libc::FAN_OPEN, file.into_raw_fd(), 7);
        let overflow = (libc::FAN_Q_OVERFLOW, libc::FAN_NOFD, 0);
        let length = size_of::<libc::fanotify_event_metadata>();
        let mut buffer = Vec::new();
        for (mask, fd, pid) in [opened, overflow] {
            let event = libc::fanotify_event_metadata {
                event_len: length as u32,
                vers: libc::FANOTIFY_METADATA_VERSION,
                reserved: 0,
                metadata_len: length as u16,
                mask,
                fd,
                pid,
            };
            // SAFETY: the event is 24 bytes without padding.
            let words: [u64; 3] = unsafe { std::mem::transmute(event) };
            buffer.extend(words);
        }
        // SAFETY: the buffer holds two events, and the descriptor is handed over.
        let taken = unsafe { batch(&buffer, 2 * length) };
        assert!(taken.lost);
        assert_eq!(taken.events.len(), 1);
        assert_eq!(taken.events[0].pid, 7);
        // SAFETY: the second event has no descriptor.
        let taken = unsafe { batch(&buffer[3..], length) };
        assert!(taken.lost && taken.events.is_empty());
    }

    #[test]
    fn missing_mount_is_gone() {
        let Ok(queue) = Fanotify::new() else { return };
        let missing = Path::new("/nonexistent/limelight");
        assert!(queue.watch(missing, Kind::Open).unwrap_err().is_gone());
    }
}
