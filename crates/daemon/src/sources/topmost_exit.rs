// SPDX-License-Identifier: GPL-2.0-or-later
//! Exit notification for the topmost app, by a pidfd or by its cgroup's event file.

use std::os::fd::{AsFd, BorrowedFd};

use limelight_core::model::{App, AppKey};
use limelight_sys::persistent_file::PersistentFile;
use limelight_sys::pidfd::Pidfd;
use rustix::event::epoll::EventFlags;

use crate::system::identify::open_home;
use crate::system::System;

const EVENTS: &str = "cgroup.events";

/// Exit notification for the topmost app.
#[derive(Debug)]
pub enum TopmostExit {
    /// Readable once the process has ended.
    Process(Pidfd),
    /// Signals when the last process leaves the cgroup, and at other changes of the cgroup.
    Group(PersistentFile),
}

impl TopmostExit {
    /// Opens the notification for an app. Without one, the next tick notices the exit.
    pub fn of(app: &App, system: &System) -> Option<TopmostExit> {
        match app.key {
            AppKey::Tree(root) => Pidfd::open(root.pid).ok().map(TopmostExit::Process),
            AppKey::Cgroup { .. } => {
                let cgroup = open_home(system, app)?;
                let events = PersistentFile::open(cgroup.dir(), EVENTS).ok()?;
                let group = TopmostExit::Group(events);
                group.settle().then_some(group)
            }
        }
    }

    /// The events to wait for.
    pub fn flags(&self) -> EventFlags {
        match self {
            TopmostExit::Process(_) => EventFlags::IN,
            TopmostExit::Group(_) => EventFlags::PRI,
        }
    }

    /// Acknowledges an event: a cgroup's file repeats it until it is read. Returns `false` if the
    /// cgroup is gone.
    pub fn settle(&self) -> bool {
        match self {
            TopmostExit::Process(_) => true,
            TopmostExit::Group(events) => events.read(&mut [0; 256]).is_ok(),
        }
    }
}

impl AsFd for TopmostExit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            TopmostExit::Process(pidfd) => pidfd.as_fd(),
            TopmostExit::Group(events) => events.as_fd(),
        }
    }
}
