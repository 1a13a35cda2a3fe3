// SPDX-License-Identifier: GPL-2.0-or-later
//! `kill -9 limelightd` under load: the kernel drops the daemon's state at once, and the successor
//! restores every value.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use limelight_sys::device::{Device, DeviceError, DEVICE_PATH};

use crate::counters::Counters;
use crate::daemon::Daemon;
use crate::dispatch::Stage;
use crate::gallery::{prepare_arm, set_up, swipe};
use crate::guest_setup::memory_kib;
use crate::scenario::Gallery;

/// Maximum size of the trace buffer in the daemon's own instance, in KiB per CPU.
const TRACE_KIB: u64 = 128;

/// Tolerance for the machine's locked memory, in KiB: the kernel counts it in batches.
const LOCKED_SLACK_KIB: u64 = 512;

/// Checks that the daemon's trace buffers take little memory.
fn check_tracing(stage: &Stage) -> Result<()> {
    let path = "/sys/kernel/tracing/instances/limelight/buffer_size_kb";
    let Ok(text) = fs::read_to_string(path) else {
        // On a kernel without the tracepoint, the daemon scans instead of tracing.
        return Ok(());
    };
    let kib = text.split_ascii_whitespace().next();
    let kib: Option<u64> = kib.and_then(|kib| kib.parse().ok());
    stage.reporter.check(
        "limelightd's trace buffers are small",
        kib.is_some_and(|kib| kib <= TRACE_KIB),
        format!("{} KiB of buffer for each CPU", text.trim()),
    )
}

/// Runs the scenario; the gallery's loads continue while the daemon is killed.
pub fn run(mut stage: Stage, gallery: &Gallery) -> Result<()> {
    let (prepared, mut viewer) = set_up(&stage, gallery)?;
    let locked_before = memory_kib("Mlocked")?;
    let daemon =
        prepare_arm(stage.arm, &viewer)?.context("this scenario needs an arm with limelightd")?;
    viewer.visit()?;
    let counters = Counters::now()?;
    let loads = prepared.start()?;
    sleep(Duration::from_millis(gallery.warm_up_ms.into()));
    swipe(&mut viewer, gallery, false, &mut stage.reporter)?;

    let changed = daemon.before().changes()?;
    stage.reporter.check(
        "limelightd changes values for the foreground app",
        !changed.is_empty(),
        changed.join("; "),
    )?;
    check_tracing(&stage)?;
    if Path::new(DEVICE_PATH).exists() {
        let held = matches!(
            Device::open(Path::new(DEVICE_PATH)),
            Err(DeviceError::Held { .. })
        );
        stage.reporter.check(
            "while limelightd runs, no other process can open the device",
            held,
            format!("a second open fails because the device is held: {held}"),
        )?;
    }
    let locked = memory_kib("Mlocked")?;
    let before = daemon.kill()?;
    let left = memory_kib("Mlocked")?;
    stage.reporter.check(
        "right after kill -9, no memory that limelightd locked stays locked",
        left <= locked_before + LOCKED_SLACK_KIB && locked > left,
        format!(
            "locked memory: {locked_before} KiB before limelightd, {locked} KiB while it ran, \
             {left} KiB after the kill"
        ),
    )?;
    if Path::new(DEVICE_PATH).exists() {
        let info = Device::open(Path::new(DEVICE_PATH)).and_then(|device| device.info())?;
        stage.reporter.check(
            "right after kill -9, the kernel holds no state of limelightd",
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
