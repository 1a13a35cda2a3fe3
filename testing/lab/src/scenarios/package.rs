// SPDX-License-Identifier: GPL-2.0-or-later
//! Limelight's Debian package on a fresh Debian with systemd. `package-desktop` has a user logged in there, under sway
//! without a display, with three apps. It runs in exact mode: how soon the focus arrives would otherwise be the host's time.

use std::time::Duration;

use limelight_apps::plan::Init;
use limelight_apps::scenario::{Package as Parameters, Work};

use super::terms::ON_DEBIAN;
use crate::results::Aggregates;
use crate::scenario::{
    ArmOn, Better, Kind, Lru, MachineSize, Metric, Mode, Scenario, SwapKind, Task, Variant, Verdict,
};

/// See the module.
pub struct Package {
    desktop: bool,
}

/// Without a desktop: root says what is in front.
pub const PLAIN: Package = Package { desktop: false };

/// With one.
pub const DESKTOP: Package = Package { desktop: true };

const TASK: &str = "life";
/// Debian's releases, by number and by name: 252 and 257 are their systemd's versions.
const RELEASES: [(&str, &str); 2] = [("debian-12", "bookworm"), ("debian-13", "trixie")];
/// Time from a change of focus to what follows it.
const FOCUS_US: f64 = 100_000.0;
/// What every Debian has, and what the package needs: the image has no more.
pub const BASE: [&str; 4] = ["systemd", "dbus", "libpam-systemd", "passwd"];
/// What a small desktop has; through the session's bus units of users are started.
const DESKTOP_PACKAGES: [&str; 6] = [
    "dbus-user-session",
    "sway",
    "foot",
    "galculator",
    "mousepad",
    "fonts-dejavu-core",
];

impl Scenario for Package {
    fn name(&self) -> &'static str {
        match self.desktop {
            true => "package-desktop",
            false => "package",
        }
    }

    fn about(&self) -> &'static str {
        match self.desktop {
            true => "the same beside a user's session with sway and three apps",
            false => "the Debian package installed, used, upgraded, removed and purged",
        }
    }

    /// A guest with a whole Debian takes minutes to boot where its processor is emulated.
    fn kind(&self) -> Kind {
        Kind::Benchmark
    }

    fn variants(&self) -> Vec<Variant> {
        let releases = RELEASES.iter();
        let variant = |(name, _): &(&str, _)| Variant::new(Lru::Mglru, SwapKind::None, *name);
        releases.map(variant).collect()
    }

    fn arms(&self, _variant: &Variant) -> Vec<ArmOn> {
        vec![ON_DEBIAN]
    }

    fn machine(&self, variant: &Variant) -> MachineSize {
        let desktop = DESKTOP_PACKAGES.iter().filter(|_| self.desktop);
        let mut releases = RELEASES.iter();
        let suite = releases.find(|(name, _)| *name == variant.load);
        MachineSize {
            memory_mib: if self.desktop { 1024 } else { 512 },
            rootfs_packages: BASE
                .iter()
                .chain(desktop)
                .map(|name| name.to_string())
                .collect(),
            suite: suite.map_or(MachineSize::default().suite, |(_, suite)| suite),
            init: Init::Systemd,
            packaged: true,
            ..MachineSize::default()
        }
    }

    fn tasks(&self, _variant: &Variant, _arm: ArmOn) -> Vec<Task> {
        let work = Parameters {
            desktop: self.desktop,
        };
        vec![Task::new(TASK, Work::Package(work))]
    }

    fn time_limit(&self, _variant: &Variant) -> Duration {
        Duration::from_secs(600)
    }

    /// Whether everything went is not a matter of how often.
    fn repetitions(&self) -> u32 {
        1
    }

    fn mode(&self) -> Mode {
        match self.desktop {
            true => Mode::Exact,
            false => Mode::Fast,
        }
    }

    /// The guest's checks say everything else.
    fn must_hold(&self, aggregates: &Aggregates) -> Vec<Verdict> {
        match self.desktop {
            true => follows_the_focus(aggregates, TASK),
            false => Vec::new(),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let metric = |name, label| Metric::new(name, label, Better::Lower);
        let mut all = focus_metrics();
        all.extend([
            metric("daemon_own_kib", "daemon's memory"),
            metric("agent_own_kib", "agent's memory"),
            metric("daemon_switches_per_s", "daemon's wake-ups a second"),
            metric("agent_switches_per_s", "agent's wake-ups a second"),
        ]);
        all
    }
}

/// Protection and boost are where the focus is.
fn follows_the_focus(aggregates: &Aggregates, task: &str) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for variant in aggregates.variants() {
        for (name, what) in [
            ("focus_protect_max_us", "protection"),
            ("focus_boost_max_us", "boost"),
        ] {
            let most = aggregates.median(&variant, ON_DEBIAN, task, name);
            let most = most.unwrap_or(f64::INFINITY);
            verdicts.push(Verdict::new(
                format!("{what} follows the focus within 100 ms"),
                most < FOCUS_US,
                format!("{:.1} ms at the latest", most / 1000.0),
            ));
        }
    }
    verdicts
}

/// How soon that is.
fn focus_metrics() -> Vec<Metric> {
    let metric = |name, label| Metric::new(name, label, Better::Lower);
    vec![
        metric("focus_protect_us", "protection moved"),
        metric("focus_protect_p95_us", "protection, 19 of 20 times"),
        metric("focus_protect_max_us", "protection, at the latest"),
        metric("focus_boost_us", "boost moved"),
        metric("focus_boost_p95_us", "boost, 19 of 20 times"),
        metric("focus_boost_max_us", "boost, at the latest"),
    ]
}
