// SPDX-License-Identifier: GPL-2.0-or-later
//! mutter (GNOME): it marks the cgroup of each app that has or had the focus, with the attribute
//! `user.xdg.inactive-since`. The value -1 means that the app has the focus now. The source watches
//! the parent directories of these cgroups.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use limelight_sys::cgroup::Hierarchy;
use limelight_sys::inotify::{Inotify, Watch};
use limelight_sys::proc::Proc;
use rustix::fs::inotify::{ReadFlags, WatchFlags};

use super::environment::Environment;
use super::pick::NotHere;
use super::wayland::Compositor;
use super::{FocusBy, Gone, PidBy, Seen, Source};

/// The extended attribute with the mark.
const ATTRIBUTE: &str = "user.xdg.inactive-since";

/// Interfaces by which mutter is recognised.
const OWN_INTERFACES: [&str; 2] = ["gtk_shell1", "mutter_x11_interop"];

/// Nested slices are searched to this depth. A session has only a handful of slices.
const DEPTH_MAX: usize = 8;

/// Focus source that reads mutter's marks on this user's cgroups.
pub struct Mutter {
    marks: Marks,
    /// Only used to notice the end of the compositor.
    compositor: Compositor,
    root: PathBuf,
}

/// The watched marks below a directory.
#[derive(Debug)]
struct Marks {
    mount: PathBuf,
    queue: Inotify,
    slices: BTreeMap<Watch, PathBuf>,
    focused: Option<PathBuf>,
}

/// Recognises mutter by its interfaces, and finds this user's cgroups.
pub fn connect(environment: &Environment) -> Result<Box<dyn Source>, NotHere> {
    let socket = environment.wayland.as_deref();
    let socket = socket.ok_or_else(|| NotHere::because("there is no Wayland compositor"))?;
    let compositor = Compositor::connect(socket)?;
    if !compositor.offers(&OWN_INTERFACES) {
        let why = format!("{} is not mutter", compositor.peer);
        return Err(NotHere::because(why));
    }
    let proc = Proc::open("/proc")?;
    let cgroups = Hierarchy::find(&proc)?;
    let own = proc.process(std::process::id() as i32);
    let own = own.and_then(|own| own.cgroup()).ok().flatten();
    let root = root_of(
        cgroups.mount_point(),
        own.as_deref(),
        rustix::process::getuid().as_raw(),
    );
    let marks = Marks::watch(cgroups.mount_point(), &root)?;
    Ok(Box::new(Mutter {
        marks,
        compositor,
        root,
    }))
}

/// Root of the cgroups of the user's systemd, derived from the agent's own cgroup if the agent runs
/// below that root.
fn root_of(mount: &Path, own: Option<&str>, uid: u32) -> PathBuf {
    let manager = format!("user@{uid}.service");
    let own = own.and_then(|own| {
        let (above, _) = own.split_once(&manager)?;
        Some(mount.join(above.trim_start_matches('/')).join(&manager))
    });
    own.unwrap_or_else(|| mount.join(format!("user.slice/user-{uid}.slice/{manager}")))
}

impl Marks {
    /// Watches a directory and the slices in it, and reads the existing marks.
    fn watch(mount: &Path, root: &Path) -> limelight_sys::Result<Marks> {
        let mut marks = Marks {
            mount: mount.to_owned(),
            queue: Inotify::new()?,
            slices: BTreeMap::new(),
            focused: None,
        };
        marks.add(root, 0)?;
        Ok(marks)
    }

    fn add(&mut self, slice: &Path, depth: usize) -> limelight_sys::Result<()> {
        let kinds =
            WatchFlags::ATTRIB | WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        let watch = self.queue.watch(slice, kinds);
        let watch = watch?;
        self.slices.insert(watch, slice.to_owned());
        // The watch is added before the scan, so that no change between them is missed.
        for child in std::fs::read_dir(slice).into_iter().flatten().flatten() {
            if child.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.examine(&child.path(), depth);
            }
        }
        Ok(())
    }

    /// Examines one cgroup, and watches it if it is a slice. Ignores a slice that is already gone.
    fn examine(&mut self, path: &Path, depth: usize) {
        let is_slice = path.extension().is_some_and(|kind| kind == "slice");
        if is_slice && depth < DEPTH_MAX && !self.slices.values().any(|known| known == path) {
            let _ = self.add(path, depth + 1);
        }
        match (has_focus(path), self.focused.as_deref() == Some(path)) {
            (true, _) => self.focused = Some(path.to_owned()),
            (false, true) => self.focused = None,
            (false, false) => {}
        }
    }

    /// Handles all changes since the last call.
    fn take(&mut self) -> limelight_sys::Result<()> {
        for event in self.queue.events()? {
            let slice = event.watch.and_then(|watch| self.slices.get(&watch));
            let path = match (slice, &event.name) {
                (Some(slice), Some(name)) => slice.join(name),
                (Some(_), None) if event.flags.contains(ReadFlags::IGNORED) => {
                    // The slice is gone.
                    self.slices.retain(|watch, _| Some(*watch) != event.watch);
                    continue;
                }
                (Some(_), None) => continue,
                // The queue overflowed: events were lost, so everything may have changed.
                (None, _) if event.watch.is_none() => {
                    let slices: Vec<PathBuf> = self.slices.values().cloned().collect();
                    slices.iter().try_for_each(|slice| self.add(slice, 0))?;
                    continue;
                }
                (None, _) => continue,
            };
            if event.flags.contains(ReadFlags::DELETE) {
                self.focused = self.focused.take().filter(|focused| *focused != path);
            } else if event.flags.contains(ReadFlags::ISDIR) {
                self.examine(&path, 0);
            }
        }
        Ok(())
    }

    fn seen(&self) -> Seen {
        let nothing = Seen::nothing(FocusBy::Compositor);
        let focused = self.focused.as_deref();
        let Some(path) = focused.and_then(|path| path.strip_prefix(&self.mount).ok()) else {
            return nothing;
        };
        Seen {
            cgroup: Some(format!("/{}", path.display())),
            pid_by: Some(PidBy::Mark),
            ..nothing
        }
    }
}

/// Whether a cgroup is marked as having the focus.
fn has_focus(path: &Path) -> bool {
    let mut value = [0u8; 32];
    let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut value).unwrap_or(0);
    let value = value.get(..length).unwrap_or_default();
    let text = String::from_utf8_lossy(value);
    text.trim_end_matches('\0').trim() == "-1"
}

impl Source for Mutter {
    fn name(&self) -> &'static str {
        "mutter"
    }

    fn detail(&self) -> String {
        format!(
            "{} marks the app's cgroup below {} ({ATTRIBUTE})",
            self.compositor.peer,
            self.root.display()
        )
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.marks.queue.as_fd(), self.compositor.connection.as_fd()]
    }

    fn observe(&mut self) -> Result<Seen, Gone> {
        let gone = |why: &dyn std::fmt::Display| Gone::new("mutter", why);
        self.compositor.check().map_err(|error| gone(&error))?;
        self.marks.take().map_err(|error| gone(&error))?;
        Ok(self.marks.seen())
    }
}

#[cfg(test)]
#[path = "mutter_tests.rs"]
mod tests;
