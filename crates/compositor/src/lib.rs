// SPDX-License-Identifier: GPL-2.0-or-later
//! What compositors say of the focus: from the bytes on their sockets to what is meant, one module
//! for each protocol. Whoever runs in the session can make them say anything (a window's title, the
//! name of an app), so each of these parsers is fuzzed (`crates/fuzz`). The connections are the agent's.
#![forbid(unsafe_code)]

pub mod app_id;
pub mod hyprland;
pub mod i3;
pub mod kwin;
pub mod lines;
pub mod niri;
mod seen;

pub use seen::{FocusBy, PidBy, Seen};
