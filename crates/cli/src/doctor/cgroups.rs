// SPDX-License-Identifier: GPL-2.0-or-later
//! Examines the cgroups from the root to the foreground app: whether their controllers are enabled.

use limelight_proto::Status;
use limelight_sys::cgroup::{CgroupPath, Hierarchy};
use limelight_sys::controllers::Lack;
use limelight_sys::proc::Proc;

use super::{Findings, Machine};
use crate::format;

/// The cgroup to examine with its ancestors, and a description of its owner.
pub type AppCgroup = Result<(String, CgroupPath), String>;

/// Owner if no app is in the foreground, no process was named, and this command runs outside of any
/// app's cgroup. A missing controller is not a fault there.
pub const NO_APP: &str = "of this command, which is not an app";

/// Whether apps are started in siblings of this cgroup, so that they have the same controllers.
fn is_beside_apps(path: &CgroupPath) -> bool {
    !path.is_root() && !path.as_str().starts_with("/system.slice")
}

/// The cgroup of the named process, else of the foreground app, else of this command.
pub fn app_cgroup(machine: &Machine, proc: &Proc, daemon: Option<&Status>) -> AppCgroup {
    let topmost = daemon.and_then(|status| status.topmost.as_ref());
    if let (None, Some(topmost)) = (machine.pid, topmost) {
        if let Some(path) = topmost.app.cgroup.as_deref().and_then(CgroupPath::parse) {
            return Ok((
                format!("of {}, the foreground app", format::app(&topmost.app)),
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
    let path = path.map(|path| match machine.pid {
        None if !is_beside_apps(&path) => (NO_APP.to_owned(), path),
        _ => (whose, path),
    });
    path.ok_or_else(|| format!("no cgroup v2 of pid {pid} is visible from here (in a container?)"))
}

/// Checks whether knobs can be set at every level down to the app's cgroup.
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
            let lack = proc.lack_of("memory").unwrap_or(Lack::Hidden);
            return findings.missing(
                "memory controller",
                format!(
                    "{} has no memory controller: {lack}; no memory is reserved, no app is \
                     squeezed, and nice values replace weights",
                    hierarchy.mount_point().display()
                ),
                lack.cure(),
            );
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

/// A controller that must be enabled at every level down to an app.
struct Controller {
    name: &'static str,
    /// The mechanism that depends on it most.
    part: &'static str,
    /// A file that exists in every cgroup for which the controller is enabled.
    file: &'static str,
    /// The unit setting that makes systemd enable the controller.
    unit: &'static str,
}

const CONTROLLERS: [Controller; 3] = [
    Controller {
        name: "memory",
        part: "protect",
        file: "memory.min",
        unit: "MemoryAccounting=yes",
    },
    Controller {
        name: "cpu",
        part: "boost",
        file: "cpu.weight",
        unit: "CPUWeight=100",
    },
    Controller {
        name: "io",
        part: "boost",
        file: "io.stat",
        unit: "IOWeight=100",
    },
];

/// Checks that each controller is enabled at every level, because a value acts only as far as every
/// ancestor allows.
fn chain(hierarchy: &Hierarchy, whose: &str, path: &CgroupPath, findings: &mut Findings) {
    if whose == NO_APP {
        return findings.note(
            "memory controller",
            "it exists; whether it is enabled for an app is checked while one is in the \
             foreground, or with --pid",
        );
    }
    if path.is_root() {
        return findings.inert(
            "memory controller",
            format!("the cgroup {whose} is the root, which has no limits"),
            "start apps in cgroups of their own (systemd-run --user --scope APP), or use the \
             Limelight kernel, which needs no cgroup",
        );
    }
    if let Err(error) = hierarchy.open_chain(path) {
        return findings.inert(
            "memory controller",
            error,
            "name a running process: --pid PID",
        );
    }
    for controller in &CONTROLLERS {
        let check = format!("{} controller", controller.name);
        let findings = findings.part(controller.part);
        match hierarchy.first_without(path, controller.file) {
            None => findings.acts(&check, format!("enabled down to {path}, {whose}")),
            Some(group) => findings.inert(
                &check,
                format!("not enabled for {group}, at or above the cgroup {whose}"),
                &enable(hierarchy, controller, path, &group),
            ),
        }
    }
    findings.part(CONTROLLERS[0].part);
}

/// The cure that enables a controller for `group`. systemd leaves a user's own tree to that user's
/// manager, and by default delegates memory and cpu to it, but not io.
fn enable(
    hierarchy: &Hierarchy,
    controller: &Controller,
    path: &CgroupPath,
    group: &CgroupPath,
) -> String {
    let manager = |part: &CgroupPath| {
        let name = part.name();
        name.starts_with("user@") && name.ends_with(".service")
    };
    let chain = path.chain();
    let managed = chain.iter().find(|part| manager(part));
    let above = group.parent().unwrap_or(CgroupPath::root());
    if managed.is_some_and(|managed| managed.contains(group) && managed != group) {
        let there = hierarchy
            .open(&above)
            .and_then(|above| above.controllers())
            .is_ok_and(|names| names.iter().any(|name| name == controller.name));
        // The user's manager has the controller, and enables it for units that request it.
        if there {
            return format!(
                "let apps request it: [Scope] {} in /etc/systemd/user/app-.scope.d/weight.conf, \
                 then systemctl --user daemon-reload; it applies to apps that are started later",
                controller.unit
            );
        }
        return "delegate it: [Service] Delegate=pids memory cpu io in \
                /etc/systemd/system/user@.service.d/delegate.conf, then systemctl daemon-reload \
                and a new login"
            .to_owned();
    }
    let mount = hierarchy.mount_point();
    let control = mount.join(above.as_str().trim_start_matches('/'));
    format!(
        "let systemd enable it ({} for {}), or: echo +{} > {}/cgroup.subtree_control",
        controller.unit,
        group.name(),
        controller.name,
        control.display().to_string().trim_end_matches('/')
    )
}
