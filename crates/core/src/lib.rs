// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's model and policy: events and a snapshot in, actions out; no I/O.
//!
//! * [`model`]: what is true. Which app is topmost and who said so, how much memory it works with,
//!   how short the machine's memory is. Fed by the daemon's sources.
//! * [`policy`]: what to do about it. Pure functions; one file per mechanism.
//! * [`settings`]: what the administrator decided.
//! * [`control`]: the control socket's protocol.
//!
//! Nothing here reads a clock: time comes in as a [`std::time::Duration`] since boot.

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

pub mod control;
pub mod model;
pub mod policy;
pub mod settings;
pub mod text;
