// SPDX-License-Identifier: GPL-2.0-or-later
//! Fuzz targets: one function for each kind of text that comes from outside, with what must hold
//! whatever the text is. A target panics when it does not.
//!
//! `make fuzz` has libFuzzer look for such texts, a bounded time for each target; the texts that
//! reach something new are kept in `corpus/TARGET/`, and `cargo test` replays them all without an
//! engine. A new target is a module here, a line in [`TARGETS`], and a directory with the first
//! few texts.

pub mod app_id;
pub mod cgroup;
pub mod config;
pub mod control;
pub mod desktop;
pub mod hyprland;
pub mod i3;
pub mod niri;
pub mod proc;
pub mod record;
pub mod trace;
pub mod unit_name;

/// A target: its name, which is also that of its corpus, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("app_id", app_id::run),
    ("cgroup", cgroup::run),
    ("config", config::run),
    ("control", control::run),
    ("desktop", desktop::run),
    ("hyprland", hyprland::run),
    ("i3", i3::run),
    ("niri", niri::run),
    ("proc", proc::run),
    ("record", record::run),
    ("trace", trace::run),
    ("unit_name", unit_name::run),
];

/// The target of this name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, run)| *run)
}
