// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's typed doors to Linux.
//!
//! Each door is rooted at a directory or a file descriptor that the caller gives, so that the same
//! code reads a running kernel, a container's view of one, and a tree that a test wrote. Nothing
//! here decides anything: values are parsed into types, failures into [`Error`], which says what
//! was attempted on which path and whether the thing is gone, forbidden, unsupported or wrong.
//!
//! All `unsafe` code of the project's user space is in this crate.

pub mod advice;
mod capability;
pub mod cgroup;
pub mod cgroup1;
pub mod clock;
pub mod controllers;
pub mod device;
pub mod dir;
pub mod diskstats;
pub mod error;
pub mod evdev;
pub mod fanotify;
pub mod files;
pub mod gauge;
pub mod inotify;
pub mod keyed;
pub mod list;
pub mod locked_file;
pub mod lru_gen;
pub mod maps;
pub mod meminfo;
pub mod memory_lock;
pub mod mountinfo;
pub mod pagecache;
pub mod peercred;
pub mod perf;
pub mod pidfd;
pub mod proc;
pub mod process;
pub mod psi;
pub mod remote_memory;
mod reopen;
pub mod sched;
pub mod schedulers;
pub mod signal;
pub mod standing;
pub mod swap;
pub mod swapped;
pub mod tracefs;
pub mod tree;
pub mod unix_sockets;
pub mod watermarks;
pub mod zero_extent;

pub use error::{Error, Result};
