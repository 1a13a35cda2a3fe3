// SPDX-License-Identifier: GPL-2.0-or-later
//! The cgroups that an app's protection hangs on.

use limelight_core::control::Status;
use limelight_sys::cgroup::{Cgroup, CgroupPath, Hierarchy};
use limelight_sys::proc::Proc;

use super::{Findings, Machine};
use crate::format;

/// The cgroup above which the chain is examined, and whose it is.
pub type AppCgroup = Result<(String, CgroupPath), String>;

/// The cgroup of the app that was asked for, of the topmost one, or of this command.
pub fn app_cgroup(machine: &Machine, proc: &Proc, daemon: Option<&Status>) -> AppCgroup {
    let topmost = daemon.and_then(|status| status.topmost.as_ref());
    if let (None, Some(topmost)) = (machine.pid, topmost) {
        if let Some(path) = topmost.app.cgroup.as_deref().and_then(CgroupPath::parse) {
            return Ok((
                format!("of {}, which is in front", format::app(&topmost.app)),
                path,
            ));
        }
    }
    let (pid, whose) = match machine.pid {
        Some(pid) => (pid, format!("of pid {pid}")),
        None => (std::process::id() as i32, "of this command".to_owned()),
    };
    let cgroup = proc.process(pid).and_then(|process| process.cgroup());
    let cgroup = cgroup.map_err(|error| error.to_string())?;
    let path = cgroup.as_deref().and_then(CgroupPath::parse);
    path.map(|path| (whose, path)).ok_or_else(|| {
        format!("pid {pid} has no cgroup v2 that can be seen from here (a container's view?)")
    })
}

/// Whether limits can be set all the way down to it.
pub fn examine(proc: &Proc, app: AppCgroup, findings: &mut Findings) {
    let hierarchy = match Hierarchy::find(proc) {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            return findings.missing(
                "cgroup v2",
                error,
                "mount it (mount -t cgroup2 none /sys/fs/cgroup), or boot with \
                 systemd.unified_cgroup_hierarchy=1",
            )
        }
    };
    findings.acts(
        "cgroup v2",
        format!("at {}", hierarchy.mount_point().display()),
    );
    let root = hierarchy.open(&CgroupPath::root());
    match root.and_then(|root| root.controllers()) {
        Ok(controllers) if controllers.iter().any(|name| name == "memory") => {}
        Ok(_) => {
            return findings.missing(
                "memory controller",
                format!(
                    "not among the controllers of {}",
                    hierarchy.mount_point().display()
                ),
                "take it from cgroup v1 (boot with systemd.unified_cgroup_hierarchy=1), or remove \
                 cgroup_disable=memory from the kernel's command line",
            )
        }
        Err(error) => {
            return findings.missing("memory controller", error, "read it as root");
        }
    }
    match app {
        Ok((whose, path)) => chain(&hierarchy, &whose, &path, findings),
        Err(why) => findings.inert("memory controller", why, "name a process: --pid PID"),
    }
}

/// A limit is worth what every ancestor grants, so the controller must be there all the way down.
fn chain(hierarchy: &Hierarchy, whose: &str, path: &CgroupPath, findings: &mut Findings) {
    const CHECK: &str = "memory controller";
    if path.is_root() {
        return findings.inert(
            CHECK,
            format!("the cgroup {whose} is the root, which has no limits"),
            "start apps in cgroups of their own (systemd-run --user --scope APP), or use the \
             Limelight kernel, which needs none",
        );
    }
    let chain = match hierarchy.open_chain(path) {
        Ok(chain) => chain,
        Err(error) => return findings.inert(CHECK, error, "name a living process: --pid PID"),
    };
    let without = |group: &&Cgroup| !group.dir().contains("memory.min");
    match chain.iter().find(without) {
        None => findings.acts(CHECK, format!("all the way down to {path}, {whose}")),
        Some(group) => {
            let above = group.path().parent().unwrap_or(CgroupPath::root());
            let control = hierarchy
                .mount_point()
                .join(above.as_str().trim_start_matches('/'));
            findings.inert(
                CHECK,
                format!(
                    "not enabled for {}, above or at the cgroup {whose}",
                    group.path()
                ),
                &format!(
                    "let systemd do it (MemoryAccounting=yes), or: echo +memory > \
                     {}/cgroup.subtree_control",
                    control.display().to_string().trim_end_matches('/')
                ),
            )
        }
    }
}
