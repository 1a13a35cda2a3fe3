// SPDX-License-Identifier: GPL-2.0-or-later
//! `kill -9 limelightd` in the middle of load: the kernel forgets at once, the successor puts
//! everything back.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use limelight_sys::device::{Device, DeviceError, DEVICE_PATH};

use crate::cell::Stage;
use crate::counters::Counters;
use crate::daemon::Daemon;
use crate::gallery::{prepare_arm, swipe, Prepared, Viewer, APP};
use crate::scenario::Gallery;

/// Runs the scenario; the gallery's loads go on while the daemon dies.
pub fn run(mut stage: Stage, gallery: &Gallery) -> Result<()> {
    let mut store = stage.store()?;
    let prepared = Prepared::new(
        &gallery.loads,
        &mut store,
        gallery.app_cgroup,
        gallery.load_nice,
        stage.repetition,
    )?;
    let mut viewer = Viewer::start(
        &mut store,
        "viewer",
        gallery.app_cgroup.then_some(APP),
        &gallery.footprint,
        gallery.swipe_percent,
        gallery.family,
        stage.repetition,
    )?;
    let daemon =
        prepare_arm(stage.arm, &viewer)?.context("only arms with limelightd can kill it")?;
    viewer.visit()?;
    let counters = Counters::now()?;
    let loads = prepared.start()?;
    sleep(Duration::from_millis(gallery.warm_up_ms.into()));
    swipe(&mut viewer, gallery, &mut stage.reporter)?;

    let changed = daemon.before().changes()?;
    stage.reporter.check(
        "limelightd has changed something for the topmost app",
        !changed.is_empty(),
        changed.join("; "),
    )?;
    if Path::new(DEVICE_PATH).exists() {
        let held = matches!(
            Device::open(Path::new(DEVICE_PATH)),
            Err(DeviceError::Held { .. })
        );
        stage.reporter.check(
            "while limelightd runs, nobody else can open the device",
            held,
            if held { "busy" } else { "it opened" },
        )?;
    }
    let before = daemon.kill()?;
    if Path::new(DEVICE_PATH).exists() {
        let info = Device::open(Path::new(DEVICE_PATH)).and_then(|device| device.info())?;
        stage.reporter.check(
            "at once after kill -9 the kernel holds no state",
            info.generation == 0 && info.enabled == 0 && info.members == 0,
            format!("{info:?}"),
        )?;
    }

    let successor = Daemon::start_after(before)?;
    successor
        .before()
        .check_restored("after the successor started", &stage.reporter)?;
    drop(loads);
    successor.stop(&stage.reporter)?;
    counters.report(&mut stage.reporter.values)?;
    stage.reporter.finish()
}
