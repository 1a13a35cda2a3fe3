// SPDX-License-Identifier: GPL-2.0-or-later
//! A browser's own clock: chromium's Event Timing, beside `cp`, an indexer and a tab that grows.

use limelight_apps::scenario::Browser;

use super::rotation;
use super::terms::*;
use crate::scenario::DiskSpeed;

const TASK: &str = "page";
const PACKAGES: [&str; 6] = [
    "chromium",
    "chromium-driver",
    "recollcmd",
    "xvfb",
    "xfonts-base",
    "fonts-dejavu-core",
];
/// An ordinary SSD for a guest at a seventh of exact mode's speed.
const DISK: DiskSpeed = DiskSpeed {
    requests_per_s: 1_400,
    request_kib: 128,
};
/// Largest loss against the best simpler arm.
const LOSS: f64 = 0.05;

/// Debian's chromium.
pub const BROWSER: Spec = Spec {
    name: "browser",
    about: "clicks and keys in chromium, measured by its Event Timing",
    variants: &[(&[Lru::Mglru], &[SwapKind::Disk], &["cp-index-tab"])],
    arms: &[
        IDLE,
        STOCK,
        BEST_STOCK,
        EARLYOOM,
        NOHANG,
        SYSTEMD_OOMD,
        ON_DEBIAN,
        LIMELIGHT,
    ],
    machine: |_| MachineSize {
        memory_mib: 768,
        data_mib: 1024,
        swap_mib: 512,
        disk_speed: Some(DISK),
        rootfs_packages: [&rotation::PACKAGES[..], &PACKAGES].concat(),
        init: Init::Systemd,
        ..MachineSize::default()
    },
    tasks: |_, _| {
        let work = Browser {
            interactions: 60,
            think_ms: 1_500,
            grow_mib: 160,
        };
        vec![Task::new(TASK, Work::Browser(work))]
    },
    time_limit_s: 1_800,
    must_hold,
    metrics: &[&[
        Metric::lower("inp_us", "interaction to next paint (98th percentile)"),
        Metric::lower("interaction_p50_us", "median interaction"),
        Metric::lower("interaction_mean_us", "mean interaction"),
        Metric::lower("major_faults", "major faults of the browser"),
        Metric::lower("daemon_cpu_us", "limelightd's processor time"),
        Metric::higher("loads_alive", "loads alive at the end"),
    ]],
    repetitions: 1,
    repetitions_per_boot: 1,
    // One arm's killer may damage systemd's services for the next arm.
    boot_per_arm: true,
    mode: Mode::Fast,
    ..Spec::BENCHMARK
};

fn must_hold(aggregates: &Aggregates) -> Vec<Verdict> {
    Seen::each_arm(aggregates, TASK, |seen, arm| {
        let simpler = [STOCK, BEST_STOCK, EARLYOOM, NOHANG, SYSTEMD_OOMD];
        let compared = |base| {
            let ratio = seen.ratio("inp_us", arm, base)?;
            Some(seen.verdict(
                format!("the 98th percentile of interactions on {arm} is at most 1.05 of {base}'s"),
                ratio <= 1.0 + LOSS,
                format!("{ratio:.3} of {base}'s"),
            ))
        };
        simpler.into_iter().filter_map(compared).collect::<Vec<_>>()
    })
}
