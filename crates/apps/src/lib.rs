// SPDX-License-Identifier: GPL-2.0-or-later
//! The programs that run inside the lab's virtual machines.
//!
//! The lab writes a [`plan::Plan`]; [`init`] carries it out as PID 1 and gives each cell a process
//! ([`cell`]), which starts the programs ([`viewer`], [`load`]) and reports ([`record`]).

pub mod cell;
pub mod cgroup;
pub mod counters;
pub mod daemon;
pub mod gallery;
pub mod init;
pub mod kernel_log;
pub mod load;
pub mod machine;
pub mod memory;
pub mod plan;
pub mod process;
pub mod random;
pub mod record;
pub mod scenario;
pub mod store;
pub mod viewer;
