// SPDX-License-Identifier: GPL-2.0-or-later
//! Without an agent, the daemon infers the foreground app from the client that the display server
//! wakes after a key: how often is it right? That depends on wake-up latency, so this is a
//! measurement and not a test.

use std::time::Duration;

use limelight_apps::scenario::Work;

use super::terms::LIMELIGHT;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Scenario, SwapKind, Task, Variant, Verdict,
};

/// Accuracy of the wake graph.
pub struct WakeGraph;

/// An X server with a keyboard and no display, a window manager and an app.
const PACKAGES: [&str; 5] = [
    "xserver-xorg-core",
    "xserver-xorg-input-evdev",
    "xserver-xorg-video-dummy",
    "openbox",
    "xterm",
];

impl Scenario for WakeGraph {
    fn name(&self) -> &'static str {
        "wake-graph"
    }

    fn about(&self) -> &'static str {
        "keys for apps in turn, without a source: how often the daemon infers the foreground app"
    }

    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        vec![Variant::new(Lru::Mglru, SwapKind::None, "keys")]
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![LIMELIGHT]
    }

    fn machine(&self, _variant: &Variant) -> MachineSize {
        MachineSize {
            memory_mib: 384,
            vcpus: 2,
            data_mib: 64,
            rootfs_packages: PACKAGES.map(String::from).to_vec(),
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        vec![Task::new("24-moves", Work::Wakes)]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(300)
    }

    fn repetitions(&self) -> u32 {
        3
    }

    /// The guest's checks cover everything.
    fn must_hold(&self, _aggregates: &Aggregates) -> Vec<Verdict> {
        Vec::new()
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric::new(name, label, Better::Neutral);
        vec![
            metric("right", "guesses that were right"),
            metric("wrong", "wrong ones"),
            metric("none", "no guess"),
        ]
    }
}
