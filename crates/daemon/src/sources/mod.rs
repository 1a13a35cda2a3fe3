// SPDX-License-Identifier: GPL-2.0-or-later
//! Sources of events. A source turns events into plain values and has no other effect.

pub mod apps;
pub mod display_servers;
pub mod evdev;
pub mod new_units;
pub mod oom;
pub mod oom_score_adj;
pub mod pressure;
pub mod services;
pub mod sessions;
pub mod storage;
pub mod top_app;
pub mod topmost_exit;
pub mod traced;
pub mod wake_graph;
