// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps: processes that belong together for the user.

/// One process for as long as it lives. The pid alone may be given to a stranger later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Process id.
    pub pid: i32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub starttime: u64,
}

/// What makes an app the same app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AppKey {
    /// Everything in one cgroup. The inode number is not given out again before the next boot,
    /// a path may be.
    Cgroup {
        /// Inode number of the cgroup's directory.
        inode: u64,
    },
    /// One process and its descendants.
    Tree(ProcessId),
}

/// The cgroup in which an app lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Path below the cgroup v2 mount point, with a leading slash.
    pub path: String,
    /// Inode number of the directory.
    pub inode: u64,
    /// The cgroup holds this app and nothing else, so its knobs reach no one else.
    pub own: bool,
    /// Limelight made this cgroup and moved the app into it: what was charged before stayed behind.
    pub adopted: bool,
}

/// An app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Identity.
    pub key: AppKey,
    /// Name for people: the claimed process's `comm`, or the cgroup's last component.
    pub name: String,
    /// The process that was claimed, when one was.
    pub process: Option<ProcessId>,
    /// Its cgroup; `None` when its processes have none on the v2 hierarchy.
    pub home: Option<Home>,
}

impl App {
    /// The cgroup whose knobs may be used for this app.
    pub fn own_home(&self) -> Option<&Home> {
        self.home.as_ref().filter(|home| home.own)
    }
}
