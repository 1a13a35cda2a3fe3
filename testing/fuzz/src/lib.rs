// SPDX-License-Identifier: GPL-2.0-or-later
//! Fuzz targets: one function per kind of external input. A target panics when its parser violates
//! an invariant.
//!
//! `make fuzz` has libFuzzer search for inputs that make a target panic, for a limited time per
//! target. `corpus/TARGET/` contains a few named seeds and every input that once caused a failure;
//! `cargo test` replays them without libFuzzer. To add a target, add a module here, a line in
//! [`TARGETS`], and a directory of seeds.

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

/// A target: its name, which is also the name of its corpus directory, and the function that checks
/// an input.
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
