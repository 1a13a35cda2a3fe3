// SPDX-License-Identifier: GPL-2.0-or-later
//! Setup of a guest with Debian's sysvinit and OpenRC. It installs the same files as Limelight's
//! package for systems without systemd (packaging/alpine).

use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

use super::ENABLED;
use crate::cgroup;
use crate::guest_setup;
use crate::handover::{write, NAME};

/// The package's files.
const FILES: [(&str, &str); 4] = [
    (
        "etc/init.d/limelightd",
        include_str!("../../../../packaging/openrc/limelightd.initd"),
    ),
    (
        "etc/conf.d/limelightd",
        include_str!("../../../../packaging/openrc/limelightd.confd"),
    ),
    (
        "etc/xdg/autostart/limelight-agent.desktop",
        include_str!("../../../../packaging/openrc/limelight-agent.desktop"),
    ),
    (
        "etc/limelight/limelight.toml",
        include_str!("../../../../packaging/limelight.toml"),
    ),
];
/// The inittab line that runs the plan in runlevel 2.
const RUNNER: &str = "lab:2:once:/bin/limelight-guest session >/dev/ttyS0 2>&1\n";
/// sway runs the desktop's autostart entries only if configured.
const SWAY_CONFIG: &str = "exec dex --autostart --environment sway\n";

/// Installs everything into the root file system below `root`; returns the path of the init
/// program.
pub fn furnish(root: &Path) -> Result<&'static str> {
    for (path, text) in FILES {
        write(root, path, text)?;
    }
    let script = root.join(FILES[0].0);
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let enabled = root.join(&ENABLED[1..]);
    symlink("/etc/init.d/limelightd", &enabled)
        .with_context(|| format!("cannot make {}", enabled.display()))?;
    fs::rename(root.join("bin/limelightd"), root.join("sbin/limelightd"))
        .context("cannot move limelightd to /sbin")?;

    let path = root.join("etc/inittab");
    let inittab =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let kept = inittab.lines().filter(|line| !line.contains("getty"));
    let lines: String = kept.map(|line| format!("{line}\n")).collect();
    write(root, "etc/inittab", &(lines + RUNNER))?;
    let path = root.join("etc/rc.conf");
    let rc =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    write(
        root,
        "etc/rc.conf",
        &(rc + "\nrc_cgroup_mode=\"unified\"\n"),
    )?;
    write(
        root,
        &format!("home/{NAME}/.config/sway/config"),
        SWAY_CONFIG,
    )?;
    // OpenRC mounts the cgroup hierarchy itself.
    guest_setup::unmount(cgroup::ROOT)?;
    Ok("/sbin/init")
}
