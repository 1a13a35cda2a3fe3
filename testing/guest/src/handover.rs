// SPDX-License-Identifier: GPL-2.0-or-later
//! A guest with Debian's init as PID 1: the lab's init prepares the root file system, switches to
//! it and executes Debian's init, which runs the plan in a service.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::flash;
use crate::guest_setup::{self, ROOTFS};
use crate::init::PLAN;
use crate::null_blk::NullBlk;
use crate::openrc;
use crate::plan::{Init, Plan, PACKAGES};
use crate::systemd;

/// UID of the logged-in user.
pub const USER: u32 = 1000;
/// The user's name.
pub const NAME: &str = "lab";

/// Device of exact mode's root file system.
const NULL_ROOT: &str = "limelight-root";
/// Programs in the initramfs that cells need.
const PROGRAMS: [&str; 5] = [
    OURS,
    "limelightd",
    "limelight",
    "limelight-agent",
    "busybox",
];
/// The lab's own program.
const OURS: &str = "limelight-guest";

/// Executes the root file system's init; returns only on failure.
pub fn become_init(plan: &Plan) -> Result<()> {
    guest_setup::load_modules(&plan.machine)?;
    let device = plan.machine.rootfs.as_deref();
    let device = device.context("a guest with Debian's init needs a root file system")?;
    let copy;
    let device = match plan.machine.rootfs_in_memory_nsec {
        None => Path::new(device),
        Some(nsec) => {
            guest_setup::mount_configfs();
            let pace = match &plan.machine.flash {
                Some(flash) => flash::pace(flash).into(),
                None => vec![("completion_nsec", nsec.to_string())],
            };
            copy = NullBlk::copy_of(Path::new(device), NULL_ROOT, &pace)?;
            guest_setup::drop_caches()?;
            copy.device()
        }
    };
    guest_setup::mount(&device.to_string_lossy(), ROOTFS, "ext4", "")?;
    let root = Path::new(ROOTFS);
    furnish(plan, root).context("cannot prepare the root file system")?;
    let program = match plan.machine.init {
        Init::Lab => bail!("the plan keeps the lab's init"),
        Init::Systemd => systemd::furnish(root)?,
        Init::Openrc => openrc::furnish(root)?,
    };
    for directory in ["dev", "proc", "run", "sys"] {
        move_mount(&format!("/{directory}"), &format!("{ROOTFS}/{directory}"))?;
    }
    // Files left in the initramfs would occupy memory permanently.
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
            return Err(io::Error::last_os_error()).context("cannot switch to the new root");
        }
    }
    let error = Command::new(program).exec();
    Err(error).with_context(|| format!("cannot execute {program}: is its package in the image?"))
}

/// Installs the plan, its programs and a user into the root file system below `root`.
fn furnish(plan: &Plan, root: &Path) -> Result<()> {
    for package in &plan.machine.packages {
        let (from, to) = (Path::new(PACKAGES).join(package), root.join(&PACKAGES[1..]));
        fs::create_dir_all(&to)?;
        fs::copy(&from, to.join(package))
            .with_context(|| format!("cannot copy {}", from.display()))?;
    }
    for program in PROGRAMS {
        // If the plan installs Limelight's packages, Limelight's programs come from them.
        if program.starts_with("limelight") && program != OURS && !plan.machine.packages.is_empty()
        {
            continue;
        }
        let (from, to) = (
            Path::new("/bin").join(program),
            root.join("bin").join(program),
        );
        // Overwrites Debian's own busybox if it is present.
        fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
    }
    let mut plan = plan.clone();
    // The lab's init has already loaded these modules and mounted this root file system.
    plan.machine.modules.clear();
    plan.machine.rootfs = None;
    plan.machine.rootfs_in_memory_nsec = None;
    write(root, &PLAN[1..], &serde_json::to_string(&plan)?)?;
    write(root, "etc/fstab", "")?;
    write(root, "etc/hostname", "lab\n")?;
    append(
        root,
        "etc/passwd",
        &format!("{NAME}:x:{USER}:{USER}::/home/{NAME}:/bin/sh\n"),
    )?;
    append(root, "etc/group", &format!("{NAME}:x:{USER}:\n"))?;
    append(
        root,
        "etc/shadow",
        &format!("{NAME}:*:19000:0:99999:7:::\n"),
    )?;
    let home = root.join("home").join(NAME);
    fs::create_dir_all(&home)?;
    Ok(std::os::unix::fs::chown(&home, Some(USER), Some(USER))?)
}

/// Writes a file below `root`, and creates its parent directories.
pub fn write(root: &Path, path: &str, text: &str) -> Result<()> {
    let path = root.join(path);
    (|| {
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        fs::write(&path, text)
    })()
    .with_context(|| format!("cannot write {}", path.display()))
}

fn append(root: &Path, path: &str, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().append(true).open(root.join(path))?;
    file.write_all(line.as_bytes())
        .with_context(|| format!("cannot write to {path}"))
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
