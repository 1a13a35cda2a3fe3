// SPDX-License-Identifier: GPL-2.0-or-later
//! The model: the state of the machine as far as Limelight knows it.

pub mod ageing;
pub mod app;
pub mod apps;
pub mod boost;
pub mod class;
pub mod coldstart;
pub mod footprint;
pub mod frames;
pub mod latency;
pub mod never;
pub mod pattern;
pub mod pressure;
pub mod prezero;
pub mod protected;
pub mod shortage;
pub mod snapshot;
pub mod storage;
pub mod terminal;
pub mod topmost;
pub mod unit;
pub mod wake_graph;
pub mod window;

pub use app::{App, AppKey, Home, ProcessId};
pub use protected::{Guarded, Harm, Protected};
pub use snapshot::{InForce, Lru, Reserved, Snapshot};
