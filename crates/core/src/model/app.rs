// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps: groups of processes that are one app for the user.

use limelight_proto::AppStatus;

/// A process. Its pid alone may be reused after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub starttime: u64,
}

/// Identity of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AppKey {
    /// All processes in one cgroup. The inode number is not reused before the next boot; a path may
    /// be.
    Cgroup {
        /// Inode number of the cgroup's directory.
        inode: u64,
    },
    /// One process and its descendants.
    Tree(ProcessId),
}

/// The cgroup of an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Path below the cgroup v2 mount point, with a leading slash.
    pub path: String,
    /// Inode number of the directory.
    pub inode: u64,
    /// The cgroup holds only this app, so its knobs affect no other process.
    pub own: bool,
    /// Limelight created this cgroup and moved the app into it: earlier charges stayed in the old
    /// one.
    pub adopted: bool,
}

/// An app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Identity.
    pub key: AppKey,
    /// Name for display: the claimed process's `comm`, or the cgroup's last component.
    pub name: String,
    /// The claimed process, if one was claimed.
    pub process: Option<ProcessId>,
    /// Its cgroup; `None` if its processes have none on the v2 hierarchy.
    pub home: Option<Home>,
}

impl App {
    /// The cgroup whose knobs may be used for this app.
    pub fn own_home(&self) -> Option<&Home> {
        self.home.as_ref().filter(|home| home.own)
    }
}

impl From<&App> for AppStatus {
    fn from(app: &App) -> AppStatus {
        AppStatus {
            name: app.name.clone(),
            pid: app.process.map(|process| process.pid),
            cgroup: app.home.as_ref().map(|home| home.path.clone()),
            own_cgroup: app.own_home().is_some(),
        }
    }
}
