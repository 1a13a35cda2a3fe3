// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelightd`: one epoll loop of sources, model, policy and actuators.
//!
//! ```text
//! sources ──Event──► model ──Snapshot──► policy ──Action──► actuators ──outcome──► model
//!  (here)          (limelight-core)    (limelight-core)      (here)
//! ```
//!
//! * [`daemon`]: the loop, and the order in which things happen; `react`: from an event to what is
//!   done about it.
//! * [`sources`]: the control socket, `oom_score_adj`, memory pressure.
//! * [`identify`] and [`trust`]: which app a process is, and who may say so.
//! * [`actuators`]: cgroup knobs, `oom_score_adj`, `/dev/limelight`.
//! * [`readahead`]: what is brought in before the app in front asks for it.
//! * [`gate`]: what may never be done to which processes.
//! * [`guard`]: the thread that kills when memory runs out.
//! * [`restore`] and [`undo`]: what was changed, on disk before it is changed, and putting it back.
//! * [`config`], [`exit`], [`lock`], [`notify`]: being a good service.
//!
//! Nothing here panics on data from outside, and no error ends the loop.

#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod access;
pub mod actuators;
mod agents;
pub mod answers;
pub mod apps;
mod boost;
mod competitors;
pub mod config;
pub mod daemon;
pub mod decisions;
pub mod doors;
pub mod exit;
mod expected;
mod following;
mod front_end;
pub mod gate;
mod gatekeeper;
pub mod guard;
mod guesses;
pub mod history;
mod household;
pub mod identify;
pub mod killers;
mod limit;
pub mod lock;
pub mod locker;
pub mod log;
pub mod notify;
mod own;
pub mod prezero;
mod react;
pub mod reactor;
pub mod readahead;
mod reload;
mod report;
mod requests;
pub mod restore;
pub mod sources;
mod starting;
pub mod swap_report;
pub mod swapper;
pub mod trust;
pub mod undo;
mod visibility;
mod watched;
pub mod watcher;
mod windows;
