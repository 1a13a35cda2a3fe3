// SPDX-License-Identifier: GPL-2.0-or-later
//! Apps: groups of processes that are one app for the user.

use limelight_proto::AppStatus;

/// Identity of a process. The pid alone is not enough, because the kernel reuses pids.
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
    /// All processes in one cgroup. The inode number, unlike the path, is not reused before the
    /// next boot.
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
    /// Whether the cgroup contains only this app, so that its knobs affect no other process.
    pub own: bool,
    /// Whether Limelight created this cgroup and moved the app into it. Memory charged before the
    /// move stays charged to the old cgroup.
    pub adopted: bool,
}

/// An app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    /// Identity.
    pub key: AppKey,
    /// Name for display: of a claimed app the process's `comm` or the cgroup's last component; of
    /// an app found by a scan the name in its desktop entry, or else its desktop id, package or
    /// `comm`.
    pub name: String,
    /// The process that a focus claim named, if any.
    pub process: Option<ProcessId>,
    /// Its cgroup; `None` if its processes are in no cgroup of the v2 hierarchy.
    pub home: Option<Home>,
}

impl App {
    /// The app's cgroup if it contains only this app, so that its knobs may be used; else `None`.
    pub fn own_home(&self) -> Option<&Home> {
        self.home.as_ref().filter(|home| home.own)
    }
}

/// An app that is one process.
#[cfg(test)]
pub(crate) fn app(pid: i32) -> App {
    let process = ProcessId { pid, starttime: 1 };
    App {
        key: AppKey::Tree(process),
        name: format!("app{pid}"),
        process: Some(process),
        home: None,
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
