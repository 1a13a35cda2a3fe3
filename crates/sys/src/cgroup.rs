// SPDX-License-Identifier: GPL-2.0-or-later
//! Control groups, version 2.
//!
//! A [`Cgroup`] is an open directory: it keeps denoting the same group even if that is removed and
//! another one of the same name is made. State about a group is keyed by [`CgroupId`], not by path.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::keyed::Keyed;
use crate::mountinfo;
use crate::proc::Proc;
use crate::psi::Pressure;

mod freezer;
mod reclaim;

pub use reclaim::{Reclaimed, SwapCounters};

/// A limit of the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// That many bytes; the kernel rounds down to pages.
    Bytes(u64),
    /// No limit: `max` in the kernel's notation.
    Max,
}

impl Limit {
    /// Nothing at all: the default of `memory.min` and `memory.low`.
    pub const ZERO: Limit = Limit::Bytes(0);

    /// The value as the kernel will report it after a write: whole pages.
    pub fn rounded_to(self, page_bytes: u64) -> Limit {
        match self {
            Limit::Bytes(bytes) => Limit::Bytes(bytes - bytes % page_bytes.max(1)),
            Limit::Max => Limit::Max,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Bytes(bytes) => write!(f, "{bytes}"),
            Limit::Max => f.write_str("max"),
        }
    }
}

/// The text is neither a number of bytes nor `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("neither a number of bytes nor \"max\"")]
pub struct NotALimit;

impl FromStr for Limit {
    type Err = NotALimit;

    fn from_str(text: &str) -> Result<Self, NotALimit> {
        match text.trim() {
            "max" => Ok(Limit::Max),
            text => text.parse().map(Limit::Bytes).map_err(|_| NotALimit),
        }
    }
}

/// A file of the memory controller that holds a [`Limit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKnob {
    /// Memory below this is never reclaimed, on either LRU, at the price of an OOM kill.
    Min,
    /// Memory below this is reclaimed only when nothing else is left; inert under MGLRU.
    Low,
    /// Throttled and reclaimed above this.
    High,
    /// Reclaimed, then killed above this.
    Max,
    /// Swap space that may be used.
    SwapMax,
}

impl MemoryKnob {
    /// Name of the file in the cgroup's directory.
    pub fn file(self) -> &'static str {
        match self {
            MemoryKnob::Min => "memory.min",
            MemoryKnob::Low => "memory.low",
            MemoryKnob::High => "memory.high",
            MemoryKnob::Max => "memory.max",
            MemoryKnob::SwapMax => "memory.swap.max",
        }
    }
}

/// A file that holds a group's weight against its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightKnob {
    /// Share of CPU time.
    Cpu,
    /// Share of disk time distributed by iocost.
    Io,
    /// Share of disk time distributed by BFQ.
    Bfq,
}

impl WeightKnob {
    /// Name of the file in the cgroup's directory.
    pub fn file(self) -> &'static str {
        match self {
            WeightKnob::Cpu => "cpu.weight",
            WeightKnob::Io => "io.weight",
            WeightKnob::Bfq => "io.bfq.weight",
        }
    }

    /// The default weight.
    pub const DEFAULT: u32 = 100;

    /// The largest weight; the smallest is 1.
    pub fn max(self) -> u32 {
        match self {
            WeightKnob::Cpu | WeightKnob::Io => 10_000,
            WeightKnob::Bfq => 1000,
        }
    }
}

/// Identity of a cgroup: its inode number, which the kernel does not reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

/// Path of a cgroup below the mount point: `/` is the root, `/a/b` a group. Never holds `..`, an
/// empty name or a NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupPath(String);

impl CgroupPath {
    /// The root of the hierarchy.
    pub fn root() -> Self {
        CgroupPath("/".to_owned())
    }

    /// Parses the notation of `/proc/PID/cgroup`, or the same without the leading slash. `None` for
    /// a path outside our cgroup namespace (`/../x`).
    pub fn parse(text: &str) -> Option<Self> {
        let mut path = String::new();
        for name in text.split('/').filter(|name| !name.is_empty()) {
            if name == "." || name == ".." || name.contains('\0') || name.contains('\n') {
                return None;
            }
            path.push('/');
            path.push_str(name);
        }
        Some(if path.is_empty() {
            Self::root()
        } else {
            CgroupPath(path)
        })
    }

    /// The path, with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for the root of the hierarchy.
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// Last name; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The group around this one; `None` for the root.
    pub fn parent(&self) -> Option<CgroupPath> {
        match self.0.rfind('/')? {
            _ if self.is_root() => None,
            0 => Some(Self::root()),
            slash => Some(CgroupPath(self.0[..slash].to_owned())),
        }
    }

    /// The group of that name directly below this one. `name` must be a single file name.
    pub fn below(&self, name: &str) -> CgroupPath {
        CgroupPath(match self.is_root() {
            true => format!("/{name}"),
            false => format!("{self}/{name}"),
        })
    }

    /// The groups from the topmost ancestor below the root down to this group; empty for the root.
    pub fn chain(&self) -> Vec<CgroupPath> {
        let ends = self.0.match_indices('/').skip(1).map(|(at, _)| at);
        let mut chain: Vec<_> = ends.map(|at| CgroupPath(self.0[..at].to_owned())).collect();
        if !self.is_root() {
            chain.push(self.clone());
        }
        chain
    }

    /// True for this group itself and everything below it.
    pub fn contains(&self, other: &CgroupPath) -> bool {
        self.is_root()
            || other
                .0
                .strip_prefix(&self.0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn relative(&self) -> &str {
        match self.0.trim_start_matches('/') {
            "" => ".",
            relative => relative,
        }
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A mounted cgroup v2 hierarchy.
#[derive(Debug)]
pub struct Hierarchy {
    dir: Dir,
    recursive: bool,
}

impl Hierarchy {
    /// Finds the mount point by `mountinfo`; [`Error::Unsupported`] if there is none.
    pub fn find(proc: &Proc) -> Result<Self> {
        let mounts = proc.mounts()?;
        match mountinfo::find(&mounts, "cgroup2") {
            Some(mount) => Ok(Hierarchy {
                recursive: mount.has_option("memory_recursiveprot"),
                ..Self::at(&mount.point)?
            }),
            None => Err(Error::Unsupported {
                action: "find a cgroup v2 mount in",
                path: proc.dir().path().join("self/mountinfo"),
                errno: Errno::NOENT,
            }),
        }
    }

    /// Uses the hierarchy mounted here, without reading its options from `mountinfo`.
    pub fn at(mount_point: impl Into<PathBuf>) -> Result<Self> {
        Ok(Hierarchy {
            dir: Dir::open(mount_point)?,
            recursive: false,
        })
    }

    /// Whether protection that a group has and no child uses covers all of its children
    /// (`memory_recursiveprot`), as on a machine with systemd. False if unknown.
    pub fn has_recursive_protection(&self) -> bool {
        self.recursive
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a group; [`Error::Gone`] if there is none at that path.
    pub fn open(&self, path: &CgroupPath) -> Result<Cgroup> {
        let dir = self.dir.open_dir(path.relative())?;
        let id = CgroupId(dir.inode_and_owner()?.0);
        Ok(Cgroup {
            dir,
            path: path.clone(),
            id,
        })
    }

    /// Opens the topmost ancestor below the root, the next one, and so on down to the group itself.
    pub fn open_chain(&self, path: &CgroupPath) -> Result<Vec<Cgroup>> {
        path.chain().iter().map(|path| self.open(path)).collect()
    }

    /// The topmost of a group's ancestors, including itself and excluding the root, that lacks a
    /// file: the controller of that file has no effect from there on. A group that no longer exists
    /// lacks it.
    pub fn first_without(&self, path: &CgroupPath, file: &str) -> Option<CgroupPath> {
        let lacks =
            |path: &CgroupPath| !self.open(path).is_ok_and(|group| group.dir.contains(file));
        path.chain().into_iter().find(lacks)
    }

    /// Whether the scheduler puts processes of this cgroup into a group of the cpu controller,
    /// possibly an ancestor's. Their session is then no scheduling group (autogroup).
    pub fn groups_for_cpu(&self, path: &CgroupPath) -> bool {
        let top = path.chain().into_iter().next();
        top.and_then(|top| self.open(&top).ok())
            .is_some_and(|top| top.dir.contains(WeightKnob::Cpu.file()))
    }

    /// Resolves a path from user input: below the mount point, or starting with it.
    pub fn path_of(&self, text: &str) -> Option<CgroupPath> {
        let below = Path::new(text)
            .strip_prefix(self.mount_point())
            .ok()
            .and_then(Path::to_str);
        CgroupPath::parse(below.unwrap_or(text))
    }
}

/// One open control group.
#[derive(Debug)]
pub struct Cgroup {
    dir: Dir,
    path: CgroupPath,
    id: CgroupId,
}

impl Cgroup {
    /// Its path at the time it was opened.
    pub fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// Its identity.
    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// Its directory in the file system.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// User that owns the directory, and thus the group if it was delegated.
    pub fn owner_uid(&self) -> Result<u32> {
        Ok(self.dir.inode_and_owner()?.1)
    }

    /// An extended attribute of its directory as text, at most 255 bytes; `None` if it has none of
    /// that name, or if cgroups have none at all (Linux before 5.7).
    pub fn attribute(&self, name: &str) -> Option<String> {
        let mut value = [0u8; 255];
        let length = rustix::fs::fgetxattr(&self.dir, name, &mut value[..]).ok()?;
        let value = value.get(..length)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// If a file is missing in an existing group, its controller is not enabled.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Gone {
                action,
                path,
                errno: Errno::NOENT,
            } if self.dir.contains("cgroup.procs") => Error::Unsupported {
                action,
                path,
                errno: Errno::NOENT,
            },
            error => error,
        }
    }

    fn text(&self, file: &str) -> Result<String> {
        self.dir
            .read_text(file)
            .map_err(|error| self.explain(error))
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        self.dir
            .write(file, value)
            .map_err(|error| self.explain(error))
    }

    fn malformed(&self, file: &str, text: &str, what: &str) -> Error {
        Error::malformed(
            self.dir.path().join(file),
            format!("{:?} is {what}", text.trim()),
        )
    }

    fn bytes(&self, file: &str) -> Result<u64> {
        let text = self.text(file)?;
        text.trim()
            .parse()
            .map_err(|_| self.malformed(file, &text, "not a number"))
    }

    /// True while the group exists.
    pub fn exists(&self) -> bool {
        self.dir.contains("cgroup.procs")
    }

    /// Memory charged to the group and its descendants, in bytes (`memory.current`).
    pub fn memory_current(&self) -> Result<u64> {
        self.bytes("memory.current")
    }

    /// Swap charged to it, in bytes (`memory.swap.current`).
    pub fn swap_current(&self) -> Result<u64> {
        self.bytes("memory.swap.current")
    }

    /// Reads a limit. [`Error::Unsupported`]: the memory controller is not enabled for the group.
    pub fn limit(&self, knob: MemoryKnob) -> Result<Limit> {
        let text = self.text(knob.file())?;
        text.parse()
            .map_err(|NotALimit| self.malformed(knob.file(), &text, "not a limit"))
    }

    /// Writes a limit. The kernel rounds it to pages: see [`Limit::rounded_to`].
    pub fn set_limit(&self, knob: MemoryKnob, limit: Limit) -> Result<()> {
        self.write(knob.file(), &limit.to_string())
    }

    /// Reads a weight; 0 stands for a group that runs only when the CPU is otherwise idle
    /// (`cpu.idle`). [`Error::Unsupported`]: the controller is not enabled for the group.
    pub fn weight(&self, knob: WeightKnob) -> Result<u32> {
        let text = self.text(knob.file())?;
        let line = text.lines().next().unwrap_or_default().trim();
        line.strip_prefix("default ")
            .unwrap_or(line)
            .parse()
            .map_err(|_| self.malformed(knob.file(), &text, "not a weight"))
    }

    /// Writes a weight, 1 to [`WeightKnob::max`].
    pub fn set_weight(&self, knob: WeightKnob, weight: u32) -> Result<()> {
        self.write(knob.file(), &weight.to_string())
    }

    /// `memory.stat`: bytes, and counts for events.
    pub fn memory_stat(&self) -> Result<Keyed> {
        Ok(Keyed::parse(&self.text("memory.stat")?))
    }

    /// `memory.events`: how often limits were reached, `oom_kill` among them.
    pub fn memory_events(&self) -> Result<Keyed> {
        Ok(Keyed::parse(&self.text("memory.events")?))
    }

    /// `memory.pressure`; [`Error::Unsupported`] without PSI.
    pub fn memory_pressure(&self) -> Result<Pressure> {
        Pressure::read(&self.dir, "memory.pressure")
    }

    /// Whether the group or a descendant has a process (`cgroup.events`).
    pub fn is_populated(&self) -> Result<bool> {
        Ok(Keyed::parse(&self.text("cgroup.events")?).get("populated") == Some(1))
    }

    /// Kills every process in the group and its descendants, including frozen ones and those forked
    /// meanwhile (`cgroup.kill`, Linux 5.14). [`Error::Unsupported`] for a threaded group and on
    /// older kernels; the root has no such file either.
    pub fn kill(&self) -> Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Reads `cgroup.type`: `domain`, `domain threaded`, `domain invalid` or `threaded`; the root
    /// has none.
    pub fn kind(&self) -> Result<String> {
        Ok(self.text("cgroup.type")?.trim().to_owned())
    }

    /// Processes in this group itself, without descendants, ascending.
    pub fn procs(&self) -> Result<Vec<i32>> {
        let text = self.text("cgroup.procs")?;
        // 0 stands for a process of another pid namespace.
        let pids = text.lines().filter_map(|line| line.trim().parse().ok());
        let mut pids: Vec<i32> = pids.filter(|&pid| pid > 0).collect();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Processes in this group and all its descendants, ascending. Groups that vanish meanwhile are
    /// left out, and those deeper than 64 levels, because the owner of a group can nest without
    /// limit.
    pub fn procs_below(&self) -> Result<Vec<i32>> {
        const LEVELS: u32 = 64;
        let mut pids = Vec::new();
        self.collect_procs(&mut pids, LEVELS)?;
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn collect_procs(&self, pids: &mut Vec<i32>, levels: u32) -> Result<()> {
        pids.extend(self.procs()?);
        if levels == 0 {
            return Ok(());
        }
        for child in self.children()? {
            let child = child?;
            // In a flood of groups most are empty.
            if child.is_populated().is_ok_and(|populated| !populated) {
                continue;
            }
            match child.collect_procs(pids, levels - 1) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Groups directly below this one. Each is opened only when the iterator reaches it, because
    /// there may be more of them than descriptors; one that no longer exists is left out.
    pub fn children(&self) -> Result<impl Iterator<Item = Result<Cgroup>> + '_> {
        let names = self.dir.directories()?.into_iter();
        Ok(names.filter_map(|name| match self.child(&name) {
            Err(
                Error::Invalid {
                    errno: Errno::NOTDIR,
                    ..
                }
                | Error::Gone { .. },
            ) => None,
            child => Some(child),
        }))
    }

    /// Names of at most `most` groups directly below this one, and whether there are more.
    pub fn child_names(&self, most: usize) -> Result<(Vec<String>, bool)> {
        self.dir.first_directories(most)
    }

    fn child(&self, name: &str) -> Result<Cgroup> {
        let dir = self.dir.open_dir(name)?;
        let id = CgroupId(dir.inode_and_owner()?.0);
        Ok(Cgroup {
            dir,
            path: self.path.below(name),
            id,
        })
    }

    /// Moves a process into the group. Its charged memory stays where it is.
    pub fn attach(&self, pid: i32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Controllers that the group may enable for its children.
    pub fn controllers(&self) -> Result<Vec<String>> {
        self.words("cgroup.controllers")
    }

    /// Controllers that are enabled for its children.
    pub fn subtree_control(&self) -> Result<Vec<String>> {
        self.words("cgroup.subtree_control")
    }

    fn words(&self, file: &str) -> Result<Vec<String>> {
        Ok(self
            .text(file)?
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect())
    }

    /// Enables or disables a controller for its children. [`Error::Busy`]: the group has processes
    /// of its own (only the root may have both).
    pub fn set_subtree_controller(&self, controller: &str, on: bool) -> Result<()> {
        let sign = if on { '+' } else { '-' };
        self.write("cgroup.subtree_control", &format!("{sign}{controller}"))
    }

    /// Makes a group below this one; [`Error::Busy`] if the name is taken.
    pub fn create_child(&self, name: &str) -> Result<Cgroup> {
        self.dir.make_dir(name)?;
        self.child(name)
    }

    /// Opens the group of that name below this one.
    pub fn open_child(&self, name: &str) -> Result<Cgroup> {
        self.child(name)
    }

    /// Removes a group below this one; [`Error::Busy`] while it has processes or children.
    pub fn remove_child(&self, name: &str) -> Result<()> {
        self.dir.remove_dir(name)
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
