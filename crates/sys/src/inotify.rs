// SPDX-License-Identifier: GPL-2.0-or-later
//! A non-blocking queue of file system events.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A queue of events. Readable (`EPOLLIN`) when it is not empty.
#[derive(Debug)]
pub struct Inotify {
    fd: OwnedFd,
}

/// Id of a watch. Ids are unique during the lifetime of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Watch(i32);

/// A file system event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The watch that reported the event; `None` if the queue overflowed and events were lost.
    pub watch: Option<Watch>,
    /// Kinds of the event. Several are set if the kernel merged events.
    pub flags: ReadFlags,
    /// Name of the file in the watched directory; `None` for an event of the watched file itself.
    pub name: Option<String>,
}

impl Inotify {
    /// Creates an empty queue.
    pub fn new() -> Result<Self> {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(fd) => Ok(Inotify { fd }),
            Err(errno) => Err(Error::new("make", "an inotify queue", errno)),
        }
    }

    /// Watches a file or directory for these kinds of events. A second watch of the same file
    /// replaces its kinds.
    pub fn watch(&self, path: &Path, kinds: WatchFlags) -> Result<Watch> {
        inotify::add_watch(&self.fd, path, kinds)
            .map(Watch)
            .map_err(|errno| Error::new("watch", path, errno))
    }

    /// Removes a watch. It is not an error if the kernel has already removed it because the file
    /// was deleted.
    pub fn unwatch(&self, watch: Watch) -> Result<()> {
        match inotify::remove_watch(&self.fd, watch.0) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(Error::new("remove a watch of", "an inotify queue", errno)),
        }
    }

    /// Takes all waiting events. An empty queue is not an error.
    pub fn events(&self) -> Result<Vec<Event>> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: (event.wd() >= 0).then_some(Watch(event.wd())),
                    flags: event.events(),
                    name: event
                        .file_name()
                        .map(|name| name.to_string_lossy().into_owned()),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("read", "an inotify queue", errno)),
            }
        }
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_a_directory_are_reported() {
        let temp = tempfile::tempdir().unwrap();
        let queue = Inotify::new().unwrap();
        let watch = queue
            .watch(temp.path(), WatchFlags::CREATE | WatchFlags::DELETE)
            .unwrap();
        assert_eq!(queue.events().unwrap(), []);
        std::fs::create_dir(temp.path().join("app.scope")).unwrap();
        let events = queue.events().unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].watch, Some(watch));
        assert_eq!(events[0].name.as_deref(), Some("app.scope"));
        assert!(events[0]
            .flags
            .contains(ReadFlags::CREATE | ReadFlags::ISDIR));
        queue.unwatch(watch).unwrap();
        queue.unwatch(watch).unwrap();
    }

    #[test]
    fn missing_directory_is_gone() {
        let queue = Inotify::new().unwrap();
        let missing = Path::new("/nonexistent/limelight");
        assert!(queue
            .watch(missing, WatchFlags::CREATE)
            .unwrap_err()
            .is_gone());
    }
}
