// SPDX-License-Identifier: GPL-2.0-or-later
//! Access to procfs, sysfs, cgroups and devices: those of the running machine, or files that a test
//! made.

pub mod access;
pub mod authorization;
pub mod identify;
pub mod lock;
pub mod own_memory;
pub mod own_scope;
pub mod processes;
pub mod self_tuning;
pub mod unusable;

use std::path::PathBuf;
use std::rc::Rc;

use limelight_core::model::ProcessId;
use limelight_proto::RUNTIME_DIR;
use limelight_sys::cgroup::{CgroupPath, Hierarchy};
use limelight_sys::device::DEVICE_PATH;
use limelight_sys::dir::Dir;
use limelight_sys::mountinfo;
use limelight_sys::proc::Proc;
use limelight_sys::process::Process;
use limelight_sys::tree::ProcessTree;

use crate::exit::Failure;
use processes::Processes;
use unusable::Unusable;

/// Name of the cgroup controller for memory.
pub const MEMORY: &str = "memory";

/// The daemon's clock: time since boot.
pub use limelight_sys::clock::boottime as now;

/// Paths of everything that is read or written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// procfs.
    pub proc: PathBuf,
    /// sysfs.
    pub sys: PathBuf,
    /// The cgroup v2 mount; `None`: as listed in `mountinfo`.
    pub cgroup: Option<PathBuf>,
    /// tracefs; `None`: as listed in `mountinfo`.
    pub tracefs: Option<PathBuf>,
    /// `/dev/limelight`.
    pub device: PathBuf,
    /// Directory of the input devices.
    pub input: PathBuf,
    /// Directory of the pseudo-terminals.
    pub pts: PathBuf,
    /// Directory of the screens.
    pub dri: PathBuf,
    /// File of the users' groups.
    pub groups: PathBuf,
    /// Android's cpuset of the topmost app.
    pub top_app: PathBuf,
    /// logind's session files.
    pub sessions: PathBuf,
    /// logind's files of inhibitor locks.
    pub inhibit: PathBuf,
    /// Directories of desktop entries and AppStream data, the parents of `applications` and
    /// `metainfo`, in order of precedence.
    pub data: Vec<PathBuf>,
    /// A directory that exists only where systemd is the init.
    pub systemd: PathBuf,
    /// Control socket, restore record and lock.
    pub runtime: PathBuf,
}

#[cfg(test)]
impl Roots {
    /// A system of files in `proc`, `sys` and `cgroup` below a directory.
    pub fn below(directory: &std::path::Path) -> Roots {
        Roots {
            proc: directory.join("proc"),
            sys: directory.join("sys"),
            cgroup: Some(directory.join("cgroup")),
            ..Roots::default()
        }
    }
}

impl Default for Roots {
    fn default() -> Self {
        Roots {
            proc: "/proc".into(),
            sys: "/sys".into(),
            cgroup: None,
            tracefs: None,
            device: DEVICE_PATH.into(),
            input: "/dev/input".into(),
            pts: "/dev/pts".into(),
            dri: "/dev/dri".into(),
            groups: "/etc/group".into(),
            top_app: "/dev/cpuset/top-app".into(),
            sessions: "/run/systemd/sessions".into(),
            inhibit: "/run/systemd/inhibit".into(),
            data: data_directories(),
            systemd: "/run/systemd/system".into(),
            runtime: RUNTIME_DIR.into(),
        }
    }
}

/// The directories of `XDG_DATA_DIRS`, and the directories where sandboxes put the desktop entries
/// of apps that are installed for all users.
fn data_directories() -> Vec<PathBuf> {
    let named = std::env::var("XDG_DATA_DIRS").unwrap_or_default();
    let named = match named.as_str() {
        "" => "/usr/local/share:/usr/share",
        named => named,
    };
    let sandboxes = ["/var/lib/flatpak/exports/share", "/var/lib/snapd/desktop"];
    let mut directories: Vec<PathBuf> = Vec::new();
    for directory in named.split(':').chain(sandboxes).map(PathBuf::from) {
        if directory.is_absolute() && !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

/// The opened roots.
#[derive(Debug)]
pub struct System {
    /// procfs.
    pub proc: Proc,
    /// sysfs.
    pub sys: Dir,
    /// cgroup v2.
    pub cgroups: Hierarchy,
    /// The paths.
    pub roots: Roots,
    /// Pid of the process that restores everything if the daemon is killed.
    pub watcher: Option<i32>,
    /// Open directories in procfs.
    pub processes: Processes,
}

impl System {
    /// Opens the roots.
    pub fn open(roots: Roots) -> Result<System, Failure> {
        let broken = |error: limelight_sys::Error| Failure::Broken(error.to_string());
        let proc = Proc::open(&roots.proc.to_string_lossy()).map_err(broken)?;
        let sys = Dir::open(&roots.sys).map_err(broken)?;
        let cgroups = match &roots.cgroup {
            Some(path) => Hierarchy::at(path),
            None => Hierarchy::find(&proc),
        };
        let cgroups = cgroups.map_err(|error| Failure::NoCgroup2 {
            why: error.to_string(),
        })?;
        Ok(System {
            proc,
            sys,
            cgroups,
            roots,
            watcher: None,
            processes: Processes::default(),
        })
    }

    /// Processes that are never frozen or killed: init, the daemon and its watcher.
    pub fn vital_pids(&self) -> Vec<i32> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        [1, own].into_iter().chain(self.watcher).collect()
    }

    /// Whether no service manager owns the cgroup tree, so that Limelight alone creates cgroups
    /// in it.
    pub fn owns_tree(&self) -> bool {
        !self.roots.systemd.exists()
    }

    /// A process tree with these processes and their descendants. It may contain other processes.
    pub fn tree_below(&self, roots: &[i32]) -> limelight_sys::Result<ProcessTree> {
        let below = self.proc.tree_below(roots);
        below.map_or_else(|| self.proc.tree(), Ok)
    }

    /// Opens a process and identifies it.
    pub fn process(&self, pid: i32) -> limelight_sys::Result<(ProcessId, Rc<Process>)> {
        self.processes.find(&self.proc, pid)
    }

    /// Opens exactly this process, if it is still alive.
    pub fn same_process(&self, id: ProcessId) -> Option<Rc<Process>> {
        let (found, process) = self.process(id.pid).ok()?;
        (found == id).then_some(process)
    }

    /// Like [`System::same_process`], but fails if it cannot be determined whether the process is
    /// alive, for example without a free descriptor.
    pub fn living(&self, id: ProcessId) -> limelight_sys::Result<Option<Rc<Process>>> {
        match self.process(id.pid) {
            Ok((found, process)) => Ok((found == id).then_some(process)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the process has ended. Without a free descriptor that cannot be determined, and the
    /// process counts as running.
    pub fn has_ended(&self, id: ProcessId) -> bool {
        !self
            .living(id)
            .map_or_else(|error| error.is_exhausted(), |found| found.is_some())
    }

    /// Identifies processes, in ascending order. Processes that have ended are left out. Fails if no
    /// descriptor or memory is left to determine which.
    pub fn identify_all(&self, pids: &[i32]) -> limelight_sys::Result<Vec<ProcessId>> {
        let mut ids = Vec::with_capacity(pids.len());
        for &pid in pids {
            match self.process(pid) {
                Ok((id, _)) => ids.push(id),
                Err(error) if error.is_exhausted() => return Err(error),
                Err(_) => {}
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Identifies this boot, so that a restore record of an earlier boot is never applied; empty
    /// where the kernel does not report it.
    pub fn boot_id(&self) -> String {
        let text = self.proc.dir().read_text("sys/kernel/random/boot_id");
        text.map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    /// Whether the hierarchy offers the memory controller at all.
    pub fn has_memory_controller(&self) -> bool {
        let root = self.cgroups.open(&CgroupPath::root());
        let controllers = root.and_then(|root| root.controllers());
        controllers.is_ok_and(|controllers| controllers.iter().any(|name| name == MEMORY))
    }

    /// A path below the cgroup mount, as a user would type it.
    pub fn cgroup_file(&self, path: &str, file: &str) -> String {
        let mut full = self.cgroups.mount_point().to_owned();
        full.push(path.trim_start_matches('/'));
        full.push(file);
        full.to_string_lossy().into_owned()
    }

    /// Where tracefs is mounted, or why it was not found.
    pub fn tracefs(&self) -> Result<PathBuf, Unusable> {
        if let Some(path) = &self.roots.tracefs {
            return Ok(path.clone());
        }
        let mounts = self.proc.mounts()?;
        let found = mountinfo::find(&mounts, "tracefs");
        let point = found.map(|mount| mount.point.clone());
        point.ok_or(Unusable::NoTracefs)
    }
}

fn identify(proc: &Proc, pid: i32) -> limelight_sys::Result<(ProcessId, Process)> {
    let process = proc.process(pid)?;
    let starttime = process.stat()?.start_ticks;
    Ok((ProcessId { pid, starttime }, process))
}

/// Opens exactly this process, if it is still alive.
pub fn same_process(proc: &Proc, id: ProcessId) -> Option<Process> {
    let (found, process) = identify(proc, id.pid).ok()?;
    (found == id).then_some(process)
}
