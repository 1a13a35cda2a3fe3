// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest with Debian's systemd as PID 1: a unit runs the plan.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{bail, Context, Result};

use crate::handover::{write, NAME, USER};
use crate::process::run;

/// `oom_score_adj` of apps that a user's service manager starts: 100 above its own, so that the OOM
/// killer prefers an app (systemd-system.conf(5), `DefaultOOMScoreAdjust=`).
pub const APP_OOM_SCORE_ADJ: i32 = 200;

/// The slice of the user's apps, relative to the cgroup root.
pub const APPS: &str = "user.slice/user-1000.slice/user@1000.service/app.slice";
/// The slice of the services of the user's session.
pub const SESSION: &str = "user.slice/user-1000.slice/user@1000.service/session.slice";

/// The login terminal.
pub const TERMINAL: &str = "/dev/tty1";

const SYSTEMD: &str = "/lib/systemd/systemd";
const UNITS: &str = "etc/systemd/system";
/// The unit that runs the plan.
const UNIT: (&str, &str) = (
    "limelight-lab.service",
    "[Unit]
Description=Runs the lab's plan
After=multi-user.target
[Service]
ExecStart=/bin/limelight-guest session
OOMScoreAdjust=-1000
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
",
);
/// Units that would start during a measurement, or that an arm starts itself.
const MASKED: [&str; 13] = [
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "logrotate.timer",
    "man-db.timer",
    "systemd-tmpfiles-clean.timer",
    "getty@tty1.service",
    "serial-getty@ttyS0.service",
    "systemd-timesyncd.service",
    "networking.service",
];
/// Rivals that their packages enable on installation. They are masked, so that only their arm
/// starts them: systemd itself starts systemd-oomd for each slice with `ManagedOOMSwap=kill`, and
/// Debian's root slice is one (systemd.resource-control(5)).
pub const RIVALS: [&str; 5] = [
    "earlyoom.service",
    "nohang.service",
    "nohang-desktop.service",
    "systemd-oomd.service",
    "preload.service",
];

/// Installs the unit into the root file system below `root`; returns the path of the init program.
pub fn furnish(root: &Path) -> Result<&'static str> {
    let (name, text) = UNIT;
    write(root, &format!("{UNITS}/{name}"), text)?;
    let wants = root.join(UNITS).join("multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    symlink(format!("../{name}"), wants.join(name))?;
    for unit in MASKED.iter().chain(&RIVALS) {
        let link = root.join(UNITS).join(unit);
        let _ = fs::remove_file(&link);
        symlink("/dev/null", &link).with_context(|| format!("cannot mask {unit}"))?;
    }
    // Without a machine ID, systemd would enable every unit, as on a first boot.
    write(root, "etc/machine-id", "6c696d656c696768742d6c6162000000\n")?;
    Ok(SYSTEMD)
}

/// Starts the user's service manager, which has the cgroups of the session's apps.
pub fn start_user() -> Result<()> {
    systemctl(&["start", &format!("user@{USER}.service")])?;
    let slice = Path::new(crate::cgroup::ROOT).join(APPS);
    match slice.is_dir() {
        true => Ok(()),
        false => {
            fs::create_dir(&slice).with_context(|| format!("cannot create {}", slice.display()))
        }
    }
}

/// Logs the lab's user in on the first virtual terminal: the service `unit` opens a session through
/// PAM, as a display manager does, and runs `command` in it.
pub fn start_session(unit: &str, environment: &str, command: &[&str]) -> Result<()> {
    let properties = [
        &format!("User={NAME}"),
        "PAMName=login",
        "StandardInput=tty",
        "StandardOutput=journal",
        "StandardError=journal",
        &format!("TTYPath={TERMINAL}"),
        &format!("Environment={environment}"),
    ];
    let mut arguments = vec!["--quiet", "--unit", unit];
    arguments.extend(properties.iter().flat_map(|text| ["--property", text]));
    arguments.extend(command);
    let (code, text) = run("/usr/bin/systemd-run", &arguments)?;
    if code != 0 {
        bail!("systemd-run exited with {code}: {}", text.trim());
    }
    Ok(())
}

/// Stops the session's service, unless it has ended already.
pub fn stop_session(unit: &str) -> Result<()> {
    let stopped = systemctl(&["stop", unit]);
    let (code, _) = run("/bin/systemctl", &["is-active", "--quiet", unit])?;
    match code {
        0 => stopped,
        _ => Ok(()),
    }
}

/// The log of the user's processes and of the kernel, which reports crashes, and the state of the
/// session's service.
pub fn session_log(unit: &str) -> Result<String> {
    let user = format!("_UID={USER}");
    let of_both = ["--no-pager", "--lines=40", &user, "+", "_TRANSPORT=kernel"];
    let (_, text) = run("/bin/journalctl", &of_both)?;
    let (_, service) = run("/bin/systemctl", &["--no-pager", "status", unit])?;
    Ok(format!("{text}\n{service}"))
}

/// Runs `systemctl`, which must succeed.
pub fn systemctl(arguments: &[&str]) -> Result<()> {
    let (code, text) = run("/bin/systemctl", arguments)?;
    if code != 0 {
        let (_, log) = run("/bin/journalctl", &["--no-pager", "--lines=20"])?;
        bail!(
            "systemctl {} exited with {code}: {}\n{log}",
            arguments.join(" "),
            text.trim()
        );
    }
    Ok(())
}
