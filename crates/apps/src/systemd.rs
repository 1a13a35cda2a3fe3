// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest whose PID 1 is Debian's systemd: our init makes the root file system ready, moves there and becomes
//! systemd; a unit of its own then runs the plan.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::init::PLAN;
use crate::machine::{self, ROOTFS};
use crate::plan::{Plan, PACKAGES};
use crate::process::run;

/// The user whose service manager the apps belong to.
pub const USER: u32 = 1000;
/// The slice of that user's apps, below the root of the cgroups.
pub const APPS: &str = "user.slice/user-1000.slice/user@1000.service/app.slice";
/// The slice of what that user's apps need.
pub const SESSION: &str = "user.slice/user-1000.slice/user@1000.service/session.slice";

const SYSTEMD: &str = "/lib/systemd/systemd";
const UNITS: &str = "etc/systemd/system";
/// What runs the plan.
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
/// Programs of the initial file system that cells need.
const PROGRAMS: [&str; 5] = [
    OURS,
    "limelightd",
    "limelight",
    "limelight-agent",
    "busybox",
];
/// The lab's own.
const OURS: &str = "limelight-guest";
/// What would come and go while something is measured, or is an arm's to start.
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
/// Killers that packages enable when they are installed.
const RIVALS: [&str; 4] = [
    "earlyoom.service",
    "nohang.service",
    "nohang-desktop.service",
    "systemd-oomd.service",
];

/// Becomes systemd in the root file system; returns only when that fails.
pub fn become_init(plan: &Plan) -> Result<()> {
    machine::load_modules(&plan.machine)?;
    let device = plan.machine.rootfs.as_deref();
    let device = device.context("a guest with systemd needs a root file system")?;
    machine::mount(device, ROOTFS, "ext4", "")?;
    furnish(plan, Path::new(ROOTFS)).context("cannot make the root file system ready")?;
    for directory in ["dev", "proc", "run", "sys"] {
        move_mount(&format!("/{directory}"), &format!("{ROOTFS}/{directory}"))?;
    }
    // What is left in the initial file system would occupy memory for ever.
    for directory in ["/bin", "/lib"] {
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {directory}"))?;
    }
    std::env::set_current_dir(ROOTFS).with_context(|| format!("cannot enter {ROOTFS}"))?;
    let (dot, root) = (CString::new(".")?, CString::new("/")?);
    // SAFETY: all strings are valid.
    unsafe {
        let moved = libc::mount(
            dot.as_ptr(),
            root.as_ptr(),
            std::ptr::null(),
            libc::MS_MOVE,
            std::ptr::null(),
        );
        if moved != 0 || libc::chroot(dot.as_ptr()) != 0 || libc::chdir(root.as_ptr()) != 0 {
            return Err(io::Error::last_os_error()).context("cannot make it the root");
        }
    }
    let error = Command::new(SYSTEMD).exec();
    Err(error).with_context(|| format!("cannot execute {SYSTEMD}: is systemd in the image?"))
}

/// Puts the plan, its programs, its unit and a user into the root file system below `root`.
fn furnish(plan: &Plan, root: &Path) -> Result<()> {
    for package in &plan.machine.packages {
        let (from, to) = (Path::new(PACKAGES).join(package), root.join(&PACKAGES[1..]));
        fs::create_dir_all(&to)?;
        fs::copy(&from, to.join(package))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    for program in PROGRAMS {
        // Where Limelight comes as a package, its programs come with it.
        if program.starts_with("limelight") && program != OURS && !plan.machine.packages.is_empty()
        {
            continue;
        }
        let (from, to) = (
            Path::new("/bin").join(program),
            root.join("bin").join(program),
        );
        // Debian's own busybox may be there.
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    let mut plan = plan.clone();
    // Both are done with.
    plan.machine.modules.clear();
    plan.machine.rootfs = None;
    let write = |path: &str, text: &str| {
        fs::write(root.join(path), text).with_context(|| format!("cannot write {path}"))
    };
    write(&PLAN[1..], &serde_json::to_string(&plan)?)?;
    let (name, text) = UNIT;
    write(&format!("{UNITS}/{name}"), text)?;
    let wants = root.join(UNITS).join("multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    for rival in RIVALS {
        match fs::remove_file(wants.join(rival)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot disable {rival}"));
            }
            _ => {}
        }
    }
    symlink(format!("../{name}"), wants.join(name))?;
    for unit in MASKED {
        let link = root.join(UNITS).join(unit);
        let _ = fs::remove_file(&link);
        symlink("/dev/null", &link).with_context(|| format!("cannot mask {unit}"))?;
    }
    // With an identity it is not the first boot, on which every unit would be enabled.
    write("etc/machine-id", "6c696d656c696768742d6c6162000000\n")?;
    write("etc/fstab", "")?;
    write("etc/hostname", "lab\n")?;
    let append = |path: &str, line: &str| -> Result<()> {
        let mut file = OpenOptions::new().append(true).open(root.join(path))?;
        file.write_all(line.as_bytes())
            .with_context(|| format!("cannot write to {path}"))
    };
    append(
        "etc/passwd",
        &format!("lab:x:{USER}:{USER}::/home/lab:/bin/sh\n"),
    )?;
    append("etc/group", &format!("lab:x:{USER}:\n"))?;
    append("etc/shadow", "lab:*:19000:0:99999:7:::\n")?;
    let home = root.join("home/lab");
    fs::create_dir_all(&home)?;
    Ok(std::os::unix::fs::chown(&home, Some(USER), Some(USER))?)
}

fn move_mount(from: &str, to: &str) -> Result<()> {
    let (c_from, c_to) = (CString::new(from)?, CString::new(to)?);
    // SAFETY: both strings are valid.
    let moved = unsafe {
        libc::mount(
            c_from.as_ptr(),
            c_to.as_ptr(),
            std::ptr::null(),
            libc::MS_MOVE,
            std::ptr::null(),
        )
    };
    if moved != 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("cannot move the mount {from} to {to}"));
    }
    Ok(())
}

/// Starts the user's service manager, below which a session's apps have their cgroups.
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

/// Runs `systemctl` and insists on success.
pub fn systemctl(arguments: &[&str]) -> Result<()> {
    let (code, text) = run("/bin/systemctl", arguments)?;
    if code != 0 {
        let (_, log) = run("/bin/journalctl", &["--no-pager", "--lines=20"])?;
        bail!(
            "systemctl {} exits with {code}: {}\n{log}",
            arguments.join(" "),
            text.trim()
        );
    }
    Ok(())
}
