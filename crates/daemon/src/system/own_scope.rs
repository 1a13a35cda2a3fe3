// SPDX-License-Identifier: GPL-2.0-or-later
//! Names of the cgroups that Limelight makes for apps: `/limelight.slice/app-PID-STARTTIME.scope`.

use limelight_core::model::ProcessId;

/// The parent cgroup of adopted apps.
pub const SLICE: &str = "/limelight.slice";

/// Path of the cgroup for the tree of this process.
pub fn scope_path(root: ProcessId) -> String {
    format!("{SLICE}/app-{}-{}.scope", root.pid, root.starttime)
}

/// The root process of the tree in this cgroup, if Limelight made the cgroup.
pub fn root_of_scope(path: &str) -> Option<ProcessId> {
    let name = path.strip_prefix(SLICE)?.strip_prefix('/')?;
    let (pid, starttime) = name
        .strip_prefix("app-")?
        .strip_suffix(".scope")?
        .split_once('-')?;
    Some(ProcessId {
        pid: pid.parse().ok()?,
        starttime: starttime.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_names_its_root() {
        let root = ProcessId {
            pid: 42,
            starttime: 777,
        };
        let path = scope_path(root);
        assert_eq!(root_of_scope(&path), Some(root));
        for other in [
            "/limelight.slice",
            "/limelight.slice/app-1.scope",
            "/app-1-2.scope",
        ] {
            assert_eq!(root_of_scope(other), None, "{other}");
        }
    }
}
