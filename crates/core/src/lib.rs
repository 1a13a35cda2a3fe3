// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's model and policy: events and a snapshot in, actions out; no I/O.
//!
//! * [`model`]: the current state, such as the topmost app, its memory, and the machine's shortage
//!   of memory. The daemon's sources update it.
//! * [`policy`]: pure functions that compute actions from that state, one file per mechanism.
//! * [`settings`]: the administrator's configuration.
//! * [`rate`] and [`text`]: small tools that both the policy and the daemon use.
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
pub mod rate;
pub mod settings;
pub mod text;
