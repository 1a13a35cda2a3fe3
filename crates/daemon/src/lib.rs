// SPDX-License-Identifier: GPL-2.0-or-later
//! `limelightd`: one epoll loop of sources, model, policy and mechanisms.
//!
//! ```text
//! sources ──► event_loop ──► reconcile: model ──► plan ──► gate ──► mechanisms ──► outcome
//!  (here)       (here)               (limelight-core)     (here)     (here)
//! ```
//!
//! * [`event_loop`]: epoll, deadlines, the service manager, the registration of sources.
//! * [`sources`]: reports of the foreground app, input, memory pressure and new apps.
//! * [`reconcile`]: from an input to the actions; [`reconcile::gate`] decides which actions are
//!   forbidden on which processes.
//! * [`mechanisms`]: one struct for each of protect, boost, premap, readahead, prezero, swap and
//!   window.
//! * [`restore`]: the record of changes, written to disk before each change, and the restore.
//! * [`control`]: the control socket, its requests and the daemon's reports.
//! * [`system`]: `/proc`, `/sys` and cgroups; the app of a process, and which users may claim it.
//! * [`config`]: the configuration.
//!
//! Nothing here panics on data from outside. No error ends the loop, except repeated failures of
//! the wait for events.

#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod config;
pub mod control;
pub mod event_loop;
pub mod exit;
pub mod log;
pub mod mechanisms;
pub mod reconcile;
pub mod restore;
pub mod sources;
pub mod system;
