// SPDX-License-Identifier: GPL-2.0-or-later
//! Parsers for compositors' reports of the focused window, one module for each protocol. Any
//! program in the session controls parts of the input (a window's title, an app's name), so each
//! parser is fuzzed (`testing/fuzz`). The session agent makes the connections.
#![forbid(unsafe_code)]

pub mod app_id;
pub mod hyprland;
pub mod i3;
mod invalid;
pub mod kwin;
pub mod lines;
pub mod niri;
mod seen;

pub use invalid::Invalid;
pub use seen::{FocusBy, PidBy, Seen};
