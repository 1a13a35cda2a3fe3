// SPDX-License-Identifier: GPL-2.0-or-later
//! Parsers for what compositors report about the focus, one module for each protocol. Any program
//! in the session controls parts of the input (a window's title, an app's name), so each of these
//! parsers is fuzzed (`testing/fuzz`). The agent makes the connections.
#![forbid(unsafe_code)]

pub mod app_id;
pub mod hyprland;
pub mod i3;
pub mod kwin;
pub mod lines;
pub mod niri;
mod seen;

pub use seen::{FocusBy, PidBy, Seen};
