// SPDX-License-Identifier: GPL-2.0-or-later
//! Typed interfaces to the Linux kernel.
//!
//! Each interface starts from a directory or a file descriptor of the caller. So the same code
//! reads a running kernel, a container's view of a kernel, and a fake tree in a test. This crate
//! makes no decisions: it parses values into types, and turns failures into [`Error`]. An error
//! contains the attempted action, the path, and its kind: gone, not permitted, unsupported or
//! invalid, for example.
//!
//! All `unsafe` code of the project's user space is in this crate and in the premap library.

pub mod advice;
pub mod block;
pub mod capability;
pub mod cgroup;
pub mod cgroup1;
pub mod clock;
pub mod controllers;
pub mod device;
pub mod dir;
pub mod error;
pub mod evdev;
pub mod fanotify;
pub mod files;
pub mod gauge;
pub mod heap;
pub mod inotify;
pub mod keyed;
pub mod list;
pub mod locked_file;
pub mod lru_gen;
pub mod mapped_file;
pub mod maps;
pub mod meminfo;
pub mod memory_lock;
pub mod mountinfo;
pub mod pagecache;
pub mod peercred;
pub mod perf;
pub mod persistent_file;
pub mod pidfd;
pub mod proc;
pub mod process;
pub mod psi;
pub mod remote_memory;
mod reopen;
pub mod sched;
pub mod schedulers;
pub mod signal;
pub mod swap;
pub mod swapped;
pub mod tracefs;
pub mod tree;
pub mod tty;
pub mod unix_sockets;
pub mod user_config;
pub mod watermarks;
pub mod zero_extent;

pub use error::{Error, Result};
