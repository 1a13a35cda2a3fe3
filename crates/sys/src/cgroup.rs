// SPDX-License-Identifier: GPL-2.0-or-later
//! Control groups, version 2.
//!
//! A [`Cgroup`] is an open directory. It keeps referring to the same group even if that group is
//! removed and a new group of the same name is created. Callers key their state about a group by
//! [`CgroupId`], not by path.

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

mod freezer;
mod reclaim;

pub use reclaim::Reclaimed;

/// A limit of the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// A number of bytes; the kernel rounds it down to whole pages.
    Bytes(u64),
    /// No limit: `max` in the kernel's notation.
    Max,
}

impl Limit {
    /// 0 bytes: the default of `memory.min` and `memory.low`.
    pub const ZERO: Limit = Limit::Bytes(0);
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Bytes(bytes) => write!(f, "{bytes}"),
            Limit::Max => f.write_str("max"),
        }
    }
}

/// Parse error: the text is neither a number of bytes nor `max`.
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

/// A file of the memory controller that contains a [`Limit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKnob {
    /// Up to this amount, the group's memory is never reclaimed, neither by the two-list LRU nor by
    /// MGLRU. If other memory does not suffice, the kernel kills a process instead.
    Min,
    /// Up to this amount, the group's memory is reclaimed only if unprotected memory does not
    /// suffice. Has hardly any effect under MGLRU.
    Low,
    /// Above this amount, the group is throttled and its memory is reclaimed.
    High,
    /// Above this amount, the group's memory is reclaimed. If that does not suffice, the kernel
    /// kills a process of the group.
    Max,
    /// Swap space that the group may use.
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

/// A file that contains a group's weight relative to its siblings.
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

/// Path of a cgroup below the mount point: `/` is the root, `/a/b` a group. Never contains `.`,
/// `..`, an empty name, a NUL or a newline.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupPath(String);

impl CgroupPath {
    /// The root of the hierarchy.
    pub fn root() -> Self {
        CgroupPath("/".to_owned())
    }

    /// Parses a path as in `/proc/PID/cgroup`; the leading slash is optional. `None` for an invalid
    /// path, such as one outside our cgroup namespace (`/../x`).
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

    /// Last component; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The parent group; `None` for the root.
    pub fn parent(&self) -> Option<CgroupPath> {
        match self.0.rfind('/')? {
            _ if self.is_root() => None,
            0 => Some(Self::root()),
            slash => Some(CgroupPath(self.0[..slash].to_owned())),
        }
    }

    /// The child group with this name. `name` must be a single file name.
    pub fn below(&self, name: &str) -> CgroupPath {
        CgroupPath(match self.is_root() {
            true => format!("/{name}"),
            false => format!("{self}/{name}"),
        })
    }

    /// The groups on the way from the root (excluded) down to this group (included); empty for the
    /// root.
    pub fn chain(&self) -> Vec<CgroupPath> {
        let ends = self.0.match_indices('/').skip(1).map(|(at, _)| at);
        let mut chain: Vec<_> = ends.map(|at| CgroupPath(self.0[..at].to_owned())).collect();
        if !self.is_root() {
            chain.push(self.clone());
        }
        chain
    }

    /// True if `other` is this group or one of its descendants.
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
    /// Finds the mount point in `mountinfo`; [`Error::Unsupported`] if there is none.
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

    /// Uses the hierarchy at this mount point, without reading its options from `mountinfo`.
    pub fn at(mount_point: impl Into<PathBuf>) -> Result<Self> {
        Ok(Hierarchy {
            dir: Dir::open(mount_point)?,
            recursive: false,
        })
    }

    /// Whether unclaimed protection of a group is distributed among its children
    /// (`memory_recursiveprot`). systemd mounts the hierarchy with this option. False if unknown.
    pub fn has_recursive_protection(&self) -> bool {
        self.recursive
    }

    /// Path of the mount point.
    pub fn mount_point(&self) -> &Path {
        self.dir.path()
    }

    /// Opens a group; [`Error::Gone`] if the path does not exist.
    pub fn open(&self, path: &CgroupPath) -> Result<Cgroup> {
        let dir = self.dir.open_dir(path.relative())?;
        let id = CgroupId(dir.inode_and_owner()?.0);
        Ok(Cgroup {
            dir,
            path: path.clone(),
            id,
        })
    }

    /// Opens all groups of [`CgroupPath::chain`], in the same order.
    pub fn open_chain(&self, path: &CgroupPath) -> Result<Vec<Cgroup>> {
        path.chain().iter().map(|path| self.open(path)).collect()
    }

    /// The first group of [`CgroupPath::chain`] that lacks a file. The controller of that file has
    /// no effect on the returned group and its descendants. A group that cannot be opened, because
    /// it no longer exists for example, counts as lacking the file.
    pub fn first_without(&self, path: &CgroupPath, file: &str) -> Option<CgroupPath> {
        let lacks =
            |path: &CgroupPath| !self.open(path).is_ok_and(|group| group.dir.contains(file));
        path.chain().into_iter().find(lacks)
    }

    /// Whether the cpu controller is enabled for this cgroup or an ancestor, so that the processes
    /// are scheduled as a cgroup. Autogroups then have no effect on them.
    pub fn groups_for_cpu(&self, path: &CgroupPath) -> bool {
        let top = path.chain().into_iter().next();
        top.and_then(|top| self.open(&top).ok())
            .is_some_and(|top| top.dir.contains(WeightKnob::Cpu.file()))
    }

    /// Resolves a path from user input: a path within the hierarchy, or a file system path that
    /// starts with the mount point. `None` if the path is invalid.
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
    /// Path of the group at the time it was opened.
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

    /// The user that owns the directory. For a delegated group, this is the user it was delegated
    /// to.
    pub fn owner_uid(&self) -> Result<u32> {
        Ok(self.dir.inode_and_owner()?.1)
    }

    /// Reads an extended attribute of the group's directory as text, at most 255 bytes. `None` if
    /// the attribute is longer or not set, or if the kernel does not support such attributes
    /// (before Linux 5.7).
    pub fn attribute(&self, name: &str) -> Option<String> {
        let mut value = [0u8; 255];
        let length = rustix::fs::fgetxattr(&self.dir, name, &mut value[..]).ok()?;
        let value = value.get(..length)?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Turns [`Error::Gone`] into [`Error::Unsupported`] if the group exists: a missing file then
    /// means that the controller of this file is not enabled.
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

    /// Swap charged to the group and its descendants, in bytes (`memory.swap.current`).
    pub fn swap_current(&self) -> Result<u64> {
        self.bytes("memory.swap.current")
    }

    /// Reads a limit. [`Error::Unsupported`]: the memory controller is not enabled for the group.
    pub fn limit(&self, knob: MemoryKnob) -> Result<Limit> {
        let text = self.text(knob.file())?;
        text.parse()
            .map_err(|NotALimit| self.malformed(knob.file(), &text, "not a limit"))
    }

    /// Writes a limit. The kernel rounds it down to whole pages.
    pub fn set_limit(&self, knob: MemoryKnob, limit: Limit) -> Result<()> {
        self.write(knob.file(), &limit.to_string())
    }

    /// Reads a weight. 0 means that the group runs only when the CPU is otherwise idle
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

    /// Reads `memory.stat`: amounts in bytes, and event counts.
    pub fn memory_stat(&self) -> Result<Keyed> {
        Ok(Keyed::parse(self.text("memory.stat")?))
    }

    /// Reads `memory.events`: how often each limit was reached, and the number of OOM kills.
    pub fn memory_events(&self) -> Result<Keyed> {
        Ok(Keyed::parse(self.text("memory.events")?))
    }

    /// Whether the group or a descendant has a process (`cgroup.events`).
    pub fn is_populated(&self) -> Result<bool> {
        Ok(Keyed::parse(self.text("cgroup.events")?).get("populated") == Some(1))
    }

    /// Kills every process in the group and its descendants (`cgroup.kill`, Linux 5.14). This
    /// includes frozen processes and processes forked during the call. [`Error::Unsupported`] for
    /// the root, for a threaded group, and on older kernels.
    pub fn kill(&self) -> Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Reads `cgroup.type`: `domain`, `domain threaded`, `domain invalid` or `threaded`.
    /// [`Error::Unsupported`] for the root, which has no such file.
    pub fn kind(&self) -> Result<String> {
        Ok(self.text("cgroup.type")?.trim().to_owned())
    }

    /// Pids of the processes in this group, ascending; descendants of the group are excluded.
    pub fn procs(&self) -> Result<Vec<i32>> {
        let text = self.text("cgroup.procs")?;
        // The kernel prints 0 for a process of another pid namespace.
        let pids = text.lines().filter_map(|line| line.trim().parse().ok());
        let mut pids: Vec<i32> = pids.filter(|&pid| pid > 0).collect();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Pids of the processes in this group and all its descendants, ascending. Skips groups that
    /// are removed during the walk, and threaded groups, whose processes the group above them
    /// lists. The walk stops at a depth of 64 levels, because the owner of a group can nest groups
    /// without limit.
    pub fn procs_below(&self) -> Result<Vec<i32>> {
        self.procs_below_within(usize::MAX)
    }

    /// Like [`Cgroup::procs_below`], but reads at most this many descendants. With more, it fails
    /// and has read hardly more: the owner of a group can make groups without limit.
    pub fn procs_below_within(&self, mut groups: usize) -> Result<Vec<i32>> {
        const LEVELS: u32 = 64;
        let mut pids = Vec::new();
        self.collect_procs(&mut pids, LEVELS, &mut groups)?;
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn collect_procs(&self, pids: &mut Vec<i32>, levels: u32, groups: &mut usize) -> Result<()> {
        pids.extend(self.procs()?);
        if levels == 0 {
            return Ok(());
        }
        let (names, more) = self.child_names(*groups)?;
        if more {
            let path = self.dir.path();
            return Err(Error::new("read all groups below", path, Errno::TOOBIG));
        }
        *groups -= names.len();
        for child in self.opened(names) {
            let child = child?;
            // Skips empty groups early, because most groups of a large tree are empty.
            if child.is_populated().is_ok_and(|populated| !populated) {
                continue;
            }
            match child.collect_procs(pids, levels - 1, groups) {
                Err(error) if !error.is_gone() && !error.is_unsupported() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Child groups. The iterator opens each group only when it reaches it, because there may be
    /// more groups than file descriptors. Groups that no longer exist are left out.
    pub fn children(&self) -> Result<impl Iterator<Item = Result<Cgroup>> + '_> {
        let names = match self.dir.is_leaf() {
            true => Vec::new(),
            false => self.dir.directories()?,
        };
        Ok(self.opened(names))
    }

    fn opened(&self, names: Vec<String>) -> impl Iterator<Item = Result<Cgroup>> + '_ {
        let names = names.into_iter();
        names.filter_map(|name| match self.child(&name) {
            Err(
                Error::Invalid {
                    errno: Errno::NOTDIR,
                    ..
                }
                | Error::Gone { .. },
            ) => None,
            child => Some(child),
        })
    }

    /// Names of at most `most` child groups, and whether there are more. A group without
    /// children is not listed, because it has dozens of files.
    pub fn child_names(&self, most: usize) -> Result<(Vec<String>, bool)> {
        match self.dir.is_leaf() {
            true => Ok((Vec::new(), false)),
            false => self.dir.first_directories(most),
        }
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

    /// Moves a process into the group. Its memory stays charged to the old group.
    pub fn attach(&self, pid: i32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Controllers that the group may enable for its children.
    pub fn controllers(&self) -> Result<Vec<String>> {
        self.words("cgroup.controllers")
    }

    /// Controllers that the group has enabled for its children.
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

    /// Enables or disables a controller for the group's children. [`Error::Busy`]: the group itself
    /// has processes. Only the root may have both processes and enabled controllers.
    pub fn set_subtree_controller(&self, controller: &str, on: bool) -> Result<()> {
        let sign = if on { '+' } else { '-' };
        self.write("cgroup.subtree_control", &format!("{sign}{controller}"))
    }

    /// Creates a child group; [`Error::Busy`] if the name is taken.
    pub fn create_child(&self, name: &str) -> Result<Cgroup> {
        self.dir.make_dir(name)?;
        self.child(name)
    }

    /// Opens the child group with this name.
    pub fn open_child(&self, name: &str) -> Result<Cgroup> {
        self.child(name)
    }

    /// Removes a child group; [`Error::Busy`] while it has processes or children.
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
