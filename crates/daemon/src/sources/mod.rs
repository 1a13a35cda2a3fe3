// SPDX-License-Identifier: GPL-2.0-or-later
//! What tells the daemon something. A source turns what happened into plain values and does
//! nothing else.

pub mod apps;
pub mod control;
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
pub mod traced;
pub mod wake_graph;
