// SPDX-License-Identifier: GPL-2.0-or-later
//! Empties and removes the cgroups that Limelight created.

use limelight_sys::cgroup::CgroupPath;

use crate::restore::undo::{find_place, gone_or_failed, Undone, PASSES};
use crate::restore::{Entry, Place};
use crate::system::System;

/// Moves all processes out of a cgroup that Limelight created, back to their previous cgroups, and
/// removes the emptied cgroup.
pub(crate) fn empty(system: &System, entry: &Entry, path: &str) -> limelight_sys::Result<Undone> {
    let Entry::Scope { from, moved, .. } = entry else {
        return Ok(Undone::Gone);
    };
    let Some(parsed) = CgroupPath::parse(path) else {
        return Ok(Undone::Failed {
            why: format!("{path} is not a cgroup path"),
        });
    };
    let scope = system.cgroups.open(&parsed)?;
    let mut refused = None;
    for _ in 0..PASSES {
        let pids = scope.procs_below().unwrap_or_default();
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            let Ok((id, _process)) = system.process(pid) else {
                continue;
            };
            let own = moved
                .iter()
                .find(|m| m.pid == id.pid && m.starttime == id.starttime);
            let home = own.map_or(from, |m| &m.from);
            if let Err(error) = send_home(system, home, pid) {
                refused = Some(error);
            }
        }
    }
    Ok(match remove(system, path) {
        Undone::Failed { why } => Undone::Failed {
            why: refused.unwrap_or(why),
        },
        undone => undone,
    })
}

/// Moves a process into a cgroup. If that cgroup is gone, moves it into the nearest ancestor that
/// accepts it.
fn send_home(system: &System, home: &Place, pid: i32) -> Result<(), String> {
    let found = find_place(system, home).map_err(|error| error.to_string())?;
    if let Some(cgroup) = found {
        return cgroup.attach(pid).map_err(|error| error.to_string());
    }
    let mut path = CgroupPath::parse(&home.path);
    let mut refused = format!("{} is gone", home.path);
    while let Some(parent) = path.and_then(|path| path.parent()) {
        match system
            .cgroups
            .open(&parent)
            .and_then(|cgroup| cgroup.attach(pid))
        {
            Ok(()) => return Ok(()),
            Err(error) => refused = error.to_string(),
        }
        path = Some(parent);
    }
    Err(refused)
}

pub(crate) fn remove(system: &System, path: &str) -> Undone {
    let Some(path) = CgroupPath::parse(path) else {
        return Undone::Failed {
            why: format!("{path} is not a cgroup path"),
        };
    };
    let Some(parent) = path.parent() else {
        return Undone::Gone;
    };
    match system
        .cgroups
        .open(&parent)
        .and_then(|parent| parent.remove_child(path.name()))
    {
        Ok(()) => Undone::Restored,
        Err(error) => gone_or_failed(&error),
    }
}
