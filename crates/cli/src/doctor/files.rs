// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether opened files can be watched.

use limelight_sys::fanotify::Fanotify;
use limelight_sys::Error;

use super::Findings;

/// Makes a queue and lets it go again; nothing is watched.
pub fn examine(findings: &mut Findings) {
    const CHECK: &str = "opened files";
    match Fanotify::new() {
        Ok(_) => findings.acts(
            CHECK,
            "fanotify: what an app reads when it starts can be recorded",
        ),
        Err(error @ Error::Permission { .. }) => findings.note(
            CHECK,
            format!("only root can tell ({error}); limelightd needs CAP_SYS_ADMIN for it"),
        ),
        Err(error @ Error::Unsupported { .. }) => findings.missing(
            CHECK,
            error,
            "run a kernel with CONFIG_FANOTIFY; until then starts are not recorded, and streams \
             are found a little later",
        ),
        Err(error) => findings.inert(CHECK, error, "see fs.fanotify in sysctl"),
    }
}
