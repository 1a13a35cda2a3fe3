// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether opened files can be watched.

use limelight_sys::proc::Proc;

use super::Findings;

/// Checks for fanotify in the kernel; whether limelightd may use it is reported with its
/// mechanisms.
pub fn examine(proc: &Proc, findings: &mut Findings) {
    const CHECK: &str = "opened files";
    if proc.dir().contains("sys/fs/fanotify") {
        findings.acts(
            CHECK,
            "fanotify: what an app reads when it starts can be recorded (with CAP_SYS_ADMIN)",
        );
    } else {
        findings.missing(
            CHECK,
            "this kernel has no fanotify: starts are not recorded, and streams are found later",
            "run a kernel with CONFIG_FANOTIFY",
        );
    }
}
