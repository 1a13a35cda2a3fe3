// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's model and policy: events and a snapshot in, actions out; no I/O.
//!
//! * [`model`]: the current state. The topmost app and its source, the memory it works with, the
//!   machine's shortage of memory. Fed by the daemon's sources.
//! * [`policy`]: the actions that follow. Pure functions; one file per mechanism.
//! * [`settings`]: the administrator's configuration.
//!
//! Nothing here reads a clock: times are passed in as a [`std::time::Duration`] since boot.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod model;
pub mod policy;
pub mod settings;
pub mod text;
