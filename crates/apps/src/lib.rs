// SPDX-License-Identifier: GPL-2.0-or-later
//! The programs that run inside the lab's virtual machines.
//!
//! The lab writes a [`plan::Plan`]; [`init`] carries it out as PID 1 and gives each cell a process
//! ([`cell`]), which starts the programs ([`viewer`], [`load`]) and reports ([`record`]).

pub mod background;
pub mod boost;
pub mod boost_rules;
pub mod cache_model;
pub mod cell;
pub mod cgroup;
pub mod churn;
pub mod cold_start;
pub mod counters;
pub mod daemon;
pub mod daemon_killed;
pub mod disk;
pub mod focus_move;
pub mod fragment;
pub mod gallery;
pub mod gallery_real;
pub mod heap;
pub mod init;
pub mod kernel_log;
pub mod knobs;
pub mod load;
pub mod machine;
pub mod memory;
pub mod null_blk;
pub mod overhead;
pub mod pages;
pub mod photo;
pub mod plan;
pub mod pool;
pub mod premap;
pub mod premap_rules;
pub mod prezero;
pub mod prezero_engines;
pub mod prezero_rules;
pub mod process;
pub mod random;
pub mod readahead_bounds;
pub mod readahead_rules;
pub mod reading;
pub mod record;
pub mod response;
pub mod scenario;
pub mod self_hog;
pub mod soak;
pub mod spin;
pub mod startup;
pub mod store;
pub mod viewer;
pub mod windows;
pub mod x11;
