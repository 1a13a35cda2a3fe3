// SPDX-License-Identifier: GPL-2.0-or-later
//! Checks whether the kernel can report opened files.

use limelight_sys::proc::Proc;

use super::Findings;

/// Checks whether the kernel has fanotify. The daemon's own report says whether limelightd may use
/// it.
pub fn examine(proc: &Proc, findings: &mut Findings) {
    const CHECK: &str = "opened files";
    if proc.dir().contains("sys/fs/fanotify") {
        findings.acts(
            CHECK,
            "fanotify: the files that an app reads at start can be recorded (with CAP_SYS_ADMIN)",
        );
    } else {
        findings.missing(
            CHECK,
            "this kernel has no fanotify: starts are not recorded, and streams are detected later",
            "run a kernel with CONFIG_FANOTIFY",
        );
    }
}
