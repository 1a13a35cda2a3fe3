// SPDX-License-Identifier: GPL-2.0-or-later
//! Emptying and removing the cgroups that were made.

use limelight_sys::cgroup::CgroupPath;

use super::{find_place, gone_or_failed, Undone, PASSES};
use crate::doors::Doors;
use crate::restore::{Entry, Place};

/// Moves everything out of a cgroup of ours, back to where it came from, and removes it.
pub(super) fn empty(doors: &Doors, entry: &Entry, path: &str) -> limelight_sys::Result<Undone> {
    let Entry::Scope { from, moved, .. } = entry else {
        return Ok(Undone::Gone);
    };
    let Some(parsed) = CgroupPath::parse(path) else {
        return Ok(Undone::Failed {
            why: format!("{path} is no cgroup path"),
        });
    };
    let scope = doors.cgroups.open(&parsed)?;
    let mut refused = None;
    for _ in 0..PASSES {
        let pids = scope.procs_below().unwrap_or_default();
        if pids.is_empty() {
            break;
        }
        for pid in pids {
            let Ok((id, _process)) = doors.process(pid) else {
                continue;
            };
            let own = moved
                .iter()
                .find(|m| m.pid == id.pid && m.starttime == id.starttime);
            let home = own.map_or(from, |m| &m.from);
            if let Err(error) = send_home(doors, home, pid) {
                refused = Some(error);
            }
        }
    }
    Ok(match remove(doors, path) {
        Undone::Failed { why } => Undone::Failed {
            why: refused.unwrap_or(why),
        },
        undone => undone,
    })
}

/// Moves a process into a cgroup; where that is gone, into the nearest ancestor that takes it.
fn send_home(doors: &Doors, home: &Place, pid: i32) -> Result<(), String> {
    let found = find_place(doors, home).map_err(|error| error.to_string())?;
    if let Some(cgroup) = found {
        return cgroup.attach(pid).map_err(|error| error.to_string());
    }
    let mut path = CgroupPath::parse(&home.path);
    let mut refused = format!("{} is gone", home.path);
    while let Some(parent) = path.and_then(|path| path.parent()) {
        match doors
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

pub(super) fn remove(doors: &Doors, path: &str) -> Undone {
    let Some(path) = CgroupPath::parse(path) else {
        return Undone::Failed {
            why: format!("{path} is no cgroup path"),
        };
    };
    let Some(parent) = path.parent() else {
        return Undone::Gone;
    };
    match doors
        .cgroups
        .open(&parent)
        .and_then(|parent| parent.remove_child(path.name()))
    {
        Ok(()) => Undone::Restored,
        Err(error) => gone_or_failed(&error),
    }
}
