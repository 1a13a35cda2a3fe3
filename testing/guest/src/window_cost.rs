// SPDX-License-Identifier: GPL-2.0-or-later
//! The cost of a response window.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use limelight_sys::device::{Device, DeviceError, DEVICE_PATH};

use crate::boost::sleeper;
use crate::cgroup::Cgroup;
use crate::daemon::{focus, Daemon, Line};
use crate::dispatch::Stage;
use crate::memory::now_ns;
use crate::windows::Seen;

/// Number of measured windows, whose cost is averaged, and of warm-up windows.
const WINDOWS: u64 = 500;
const WARM_UP: u64 = 50;
/// Deadline of a window of a new app.
const DEADLINE: Duration = Duration::from_millis(500);

/// Measures the cost of opening and closing a window: the kernel's through its ioctls, and the
/// daemon's over a persistent connection.
pub fn run(mut stage: Stage) -> Result<()> {
    let cgroup = Cgroup::create("app.slice/app-limelight-waiter-1.scope")?;
    let app = sleeper(Some(&cgroup), false)?;
    let daemon = Daemon::start(&[app.pid()])?;
    focus(app.pid())?;
    let mut line = Line::connect()?;
    let mut tell = |event: &str| -> Result<()> {
        let at_us = now_ns() / 1000;
        let pid = app.pid();
        line.tell(&format!(
            r#"{{"op":"window","event":"{event}","at_us":{at_us},"pid":{pid},"source":"lab"}}"#
        ))
    };
    let mut windows = |count: u64| -> Result<()> {
        for _ in 0..count {
            tell("open")?;
            tell("close")?;
        }
        Ok(())
    };
    windows(WARM_UP)?;
    let (spent, since) = (daemon.cpu_ns()?, now_ns());
    windows(WINDOWS)?;
    let (spent, took) = (daemon.cpu_ns()? - spent, now_ns() - since);
    // The daemon's idle CPU time over the same period is subtracted.
    let idle = daemon.cpu_ns()?;
    sleep(Duration::from_nanos(took));
    let idle = daemon.cpu_ns()? - idle;
    let each = |ns: u64| ns as f64 / 1e3 / WINDOWS as f64;
    stage
        .reporter
        .value("daemon_us_per_window", each(spent.saturating_sub(idle)));
    stage.reporter.value("elapsed_us_per_window", each(took));
    let seen = Seen::now()?;
    let counted = seen.tally("answered");
    stage.reporter.check(
        "each reported window is counted",
        counted == WARM_UP + WINDOWS,
        seen.text(),
    )?;
    daemon.stop(&stage.reporter)?;
    drop(app);
    cost_of_calls(&mut stage)?;
    stage.reporter.finish()
}

/// Measures the ioctls alone, if the kernel has the device.
fn cost_of_calls(stage: &mut Stage) -> Result<()> {
    let path = Path::new(DEVICE_PATH);
    if !path.exists() {
        return Ok(());
    }
    let device = Device::open(path)?;
    let mut time = |name: &str, window: &dyn Fn() -> Result<(), DeviceError>| -> Result<()> {
        for _ in 0..WARM_UP {
            window()?;
        }
        let since = now_ns();
        for _ in 0..WINDOWS {
            window()?;
        }
        let took = (now_ns() - since) as f64 / 1e3 / WINDOWS as f64;
        stage.reporter.value(name, took);
        Ok(())
    };
    time("ioctl_us_per_window", &|| {
        device.open_window(DEADLINE)?;
        device.close_window()
    })?;
    // Baseline: the cost of entering and leaving the kernel.
    time("ioctl_us_for_nothing", &|| {
        device.close_window()?;
        device.close_window()
    })
}
