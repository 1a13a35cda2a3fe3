// SPDX-License-Identifier: GPL-2.0-or-later
//! The policy: pure functions from an event and a snapshot to actions, one file per mechanism.
//! [`plan`](mod@plan) combines them.

pub mod boost;
pub mod plan;
pub mod premap;
pub mod prezero;
pub mod protect;
pub mod readahead;
pub mod swap;
pub mod window;

pub use plan::{plan, Action, Event};
