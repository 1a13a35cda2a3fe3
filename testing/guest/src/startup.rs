// SPDX-License-Identifier: GPL-2.0-or-later
//! Starts `limelightd` where it cannot work. Each cause has its own message and exit code.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use limelight_sys::device::DEVICE_PATH;

use crate::cgroup::ROOT;
use crate::daemon::{focus, limelight, write_config, Daemon, CONFIG, LIMELIGHTD};
use crate::dispatch::Stage;
use crate::guest_setup::mount;
use crate::process::{Process, Start};
use crate::record::Reporter;
use crate::swap_app::{App, Spec, NORMAL};

/// Timeout for a daemon to refuse to start.
const LIMIT: Duration = Duration::from_secs(60);
const OUTPUT: &str = "/run/startup.log";
/// UID of the user nobody.
const UNPRIVILEGED: u32 = 65534;

/// Starts the daemon repeatedly: each start and stop switches the kernel's static keys.
pub fn repeat(mut stage: Stage, times: u32) -> Result<()> {
    let app = App::start(NORMAL, "front", &Spec::new(8, 1))?;
    for _ in 0..times {
        let daemon = Daemon::start(&[app.pid()])?;
        focus(app.pid())?;
        daemon.stop(&stage.reporter)?;
    }
    stage.reporter.value("starts", f64::from(times));
    stage.reporter.finish()
}

/// Runs all cases.
pub fn run(stage: Stage) -> Result<()> {
    let reporter = &stage.reporter;
    let refused = |case: &str, user: Option<u32>, code: i32, words: &[&str]| -> Result<()> {
        let (seen_code, text) = start_and_wait(user)?;
        let message = words.iter().all(|word| text.contains(word));
        reporter.check(
            format!("{case}: exit code {code} and a message with {words:?}"),
            seen_code == code && message,
            format!("exit code {seen_code}: {}", text.trim()),
        )
    };

    write_config("[protect]\nbudget_percent = 60\nbudged_percent = 60\n")?;
    refused(
        "an unknown key in the configuration",
        None,
        10,
        &[CONFIG, "3", "budged_percent"],
    )?;
    write_config("[protect]\nbudget_percent = \"much\"\n")?;
    refused(
        "a value of the wrong type in the configuration",
        None,
        10,
        &[CONFIG, "2", "budget_percent"],
    )?;
    fs::remove_file(CONFIG)?;

    let first = Daemon::start(&[])?;
    refused("a second daemon", None, 11, &["another limelightd"])?;
    check_alive(reporter)?;
    first.stop(reporter)?;

    unmount(ROOT)?;
    let result = refused("no cgroup v2", None, 12, &["cgroup"]);
    mount(
        "cgroup2",
        ROOT,
        "cgroup2",
        "nsdelegate,memory_recursiveprot",
    )?;
    result?;

    refused("no permission", Some(UNPRIVILEGED), 13, &["permission"])?;

    write_config("[kernel]\ndevice = \"on\"\n")?;
    let device = hide_device()?;
    let result = refused(
        "a device that the configuration requires and the kernel does not have",
        None,
        14,
        &[DEVICE_PATH],
    );
    show_device(device)?;
    result?;
    fs::remove_file(CONFIG)?;
    stage.reporter.finish()
}

/// Removes the device node, as if the kernel had no device. Returns the device number if there was
/// a node.
fn hide_device() -> Result<Option<u64>> {
    match fs::metadata(DEVICE_PATH) {
        Ok(found) => {
            fs::remove_file(DEVICE_PATH)?;
            Ok(Some(found.rdev()))
        }
        Err(_) => Ok(None),
    }
}

/// Restores the device node.
fn show_device(number: Option<u64>) -> Result<()> {
    let Some(number) = number else {
        return Ok(());
    };
    let path = std::ffi::CString::new(DEVICE_PATH)?;
    // SAFETY: `path` is a valid string.
    if unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o600, number) } != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot create {DEVICE_PATH} again"));
    }
    Ok(())
}

fn check_alive(reporter: &Reporter) -> Result<()> {
    let status = limelight(&["status"]);
    reporter.check(
        "the first daemon still answers after a second one was refused",
        status.is_ok(),
        match status {
            Ok(()) => "status exits with 0".into(),
            Err(error) => format!("{error:#}"),
        },
    )
}

/// Runs the daemon until it exits; returns its exit code and output.
fn start_and_wait(user: Option<u32>) -> Result<(i32, String)> {
    let output = File::create(OUTPUT)?;
    let mut command = Command::new(LIMELIGHTD);
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    Start::PLAIN.prepare(&mut command)?;
    if let Some(user) = user {
        // Registered last: `prepare`'s hook needs root.
        // SAFETY: the closure runs between fork and exec of a single-threaded child and makes only
        // async-signal-safe calls.
        unsafe {
            command.pre_exec(move || {
                if libc::setgid(user) != 0 || libc::setuid(user) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
    }
    let mut process = Process::spawn(command, "limelightd")?;
    let code = process.wait(LIMIT).unwrap_or(-1);
    Ok((code, fs::read_to_string(OUTPUT)?))
}

fn unmount(target: &str) -> Result<()> {
    let path = std::ffi::CString::new(target)?;
    // SAFETY: `path` is a valid string.
    if unsafe { libc::umount2(path.as_ptr(), 0) } != 0 {
        return Err(io::Error::last_os_error()).with_context(|| format!("cannot unmount {target}"));
    }
    Ok(())
}
