// SPDX-License-Identifier: GPL-2.0-or-later
//! What tells that the app in front has ended: its process's descriptor, or its cgroup.

use std::os::fd::{AsFd, BorrowedFd};

use limelight_core::model::{App, AppKey};
use limelight_sys::pidfd::Pidfd;
use limelight_sys::standing::StandingFile;
use rustix::event::epoll::EventFlags;

use crate::doors::Doors;
use crate::identify::open_home;

const EVENTS: &str = "cgroup.events";

/// Either.
#[derive(Debug)]
pub enum FrontEnd {
    /// Readable when the process has ended.
    Process(Pidfd),
    /// Has an event when the last process leaves, and others.
    Group(StandingFile),
}

impl FrontEnd {
    /// Opens what there is. Without it the next tick notices the end.
    pub fn of(app: &App, doors: &Doors) -> Option<FrontEnd> {
        match app.key {
            AppKey::Tree(root) => Pidfd::open(root.pid).ok().map(FrontEnd::Process),
            AppKey::Cgroup { .. } => {
                let cgroup = open_home(doors, app)?;
                let events = StandingFile::open(cgroup.dir(), EVENTS).ok()?;
                let group = FrontEnd::Group(events);
                group.settle().then_some(group)
            }
        }
    }

    /// What to wait for.
    pub fn flags(&self) -> EventFlags {
        match self {
            FrontEnd::Process(_) => EventFlags::IN,
            FrontEnd::Group(_) => EventFlags::PRI,
        }
    }

    /// Takes what it told: a cgroup's file tells it until it is read. `false`: it is gone.
    pub fn settle(&self) -> bool {
        match self {
            FrontEnd::Process(_) => true,
            FrontEnd::Group(events) => events.read(&mut [0; 256]).is_ok(),
        }
    }
}

impl AsFd for FrontEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            FrontEnd::Process(pidfd) => pidfd.as_fd(),
            FrontEnd::Group(events) => events.as_fd(),
        }
    }
}
