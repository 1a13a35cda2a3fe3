// SPDX-License-Identifier: GPL-2.0-or-later
//! What is true now, as far as Limelight knows.

pub mod app;
pub mod boost;
pub mod coldstart;
pub mod footprint;
pub mod pressure;
pub mod snapshot;
pub mod topmost;

pub use app::{App, AppKey, Home, ProcessId};
pub use snapshot::{InForce, Lru, Reserved, Snapshot};
