// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's release.

use limelight_sys::proc::Proc;

use super::Findings;

/// Oldest kernel on which everything was tested.
const OLDEST_KERNEL: (u32, u32) = (6, 1);

/// Checks whether the kernel is new enough.
pub fn examine(proc: &Proc, findings: &mut Findings) {
    let release = match proc.kernel_release() {
        Ok(release) => release,
        Err(error) => {
            return findings.missing("kernel", error, "mount procfs: mount -t proc proc /proc")
        }
    };
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST_KERNEL => {
            findings.acts("kernel", format!("Linux {release}"))
        }
        _ => findings.inert(
            "kernel",
            format!("Linux {release} is older than 6.1, the oldest kernel that was tested"),
            "run Linux 6.1 or newer",
        ),
    }
}
