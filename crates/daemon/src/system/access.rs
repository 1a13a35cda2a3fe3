// SPDX-License-Identifier: GPL-2.0-or-later
//! Users that the configuration or the machine authorizes: members of the group of `[access]`, and
//! users with the screen or an input device open.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use limelight_sys::files::FileStat;
use limelight_sys::process::Process;
use tracing::{debug, info};

use crate::config::AccessGroup;
use crate::system::{now, System};

/// How long the list of users with a device open is cached. Making the list reads every descriptor
/// of every user's processes, and any user may cause that.
const FRESH: Duration = Duration::from_secs(2);

/// Maximum number of descriptors that are checked for one process.
const DESCRIPTORS_MAX: usize = 4096;

/// Maximum number of device nodes of a kind.
const NODES_MAX: usize = 1024;

/// A user whose permission is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker {
    /// The user.
    pub uid: u32,
    /// Whether the user is in the group of `[access]`.
    pub member: bool,
}

impl Speaker {
    /// Whether this user may see the actions on the apps of `owner`.
    pub fn sees(&self, owner: u32) -> bool {
        self.sees_all() || self.uid == owner
    }

    /// Whether this user may see the actions on all users' apps.
    pub fn sees_all(&self) -> bool {
        self.uid == 0 || self.member
    }
}

/// The group of `[access]`, and the users who have the devices open.
#[derive(Debug, Default)]
pub struct Access {
    /// The group as messages name it; empty without a group.
    name: String,
    gid: Option<u32>,
    /// The users with a device open, and when they were listed.
    holders: RefCell<Option<(Duration, BTreeSet<u32>)>>,
}

impl Access {
    /// Looks up the configured group.
    pub fn new(groups: &Path, wanted: &AccessGroup) -> Access {
        let (name, gid) = match wanted {
            AccessGroup::Off => (String::new(), None),
            AccessGroup::Id(gid) => (gid.to_string(), Some(*gid)),
            AccessGroup::Name(name) => {
                let gid = group_id(groups, name);
                if gid.is_none() {
                    info!(
                        "there is no group {name} in {}: the activity of other users' apps is \
                         shown only to root; create it (groupadd --system {name}), or name another \
                         one in [access] group",
                        groups.display()
                    );
                }
                (name.clone(), gid)
            }
        };
        Access {
            name,
            gid,
            holders: RefCell::default(),
        }
    }

    /// Name or number of the group; `None` without a group.
    pub fn group(&self) -> Option<&str> {
        (!self.name.is_empty()).then_some(self.name.as_str())
    }

    /// Number of the group, if it exists.
    pub fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// Whether one of these groups is the group of `[access]`.
    pub fn includes(&self, groups: impl IntoIterator<Item = u32>) -> bool {
        let gid = self.gid;
        gid.is_some() && groups.into_iter().any(|group| Some(group) == gid)
    }

    /// The user of a process, with the process's own groups.
    pub fn speaker_of(&self, process: &Process, uid: u32) -> Speaker {
        let groups = process.groups().unwrap_or_default();
        Speaker {
            uid,
            member: self.includes(groups),
        }
    }

    /// Whether a process of this user has the screen or an input device open.
    pub fn has_devices(&self, system: &System, uid: u32) -> bool {
        let at = now();
        let mut holders = self.holders.borrow_mut();
        match holders.as_ref() {
            Some((then, users)) if at.saturating_sub(*then) < FRESH => users.contains(&uid),
            _ => {
                let users = holders_of_devices(system);
                let is_one = users.contains(&uid);
                *holders = Some((at, users));
                is_one
            }
        }
    }
}

/// The number of a group in a file such as `/etc/group`.
fn group_id(path: &Path, name: &str) -> Option<u32> {
    let text = fs::read_to_string(path)
        .inspect_err(|error| debug!("cannot read {}: {error}", path.display()))
        .ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let known = fields.next()?;
        let gid = fields.nth(1)?;
        (known == name).then(|| gid.parse().ok())?
    })
}

/// Users with a process that has a screen (`/dev/dri/card*`) or an input device
/// (`/dev/input/event*`) open. A display server that runs as root counts for the user who started
/// it, by its real uid. Render nodes do not count: any app may have one open.
fn holders_of_devices(system: &System) -> BTreeSet<u32> {
    let mut users = BTreeSet::new();
    let mut nodes = nodes(&system.roots.dri, "card");
    nodes.extend(self::nodes(&system.roots.input, "event"));
    if nodes.is_empty() {
        return users;
    }
    for pid in system.proc.pids().unwrap_or_default() {
        let Ok(process) = system.proc.process(pid) else {
            continue;
        };
        let Ok(status) = process.status() else {
            continue;
        };
        let owners = [status.real_uid, status.effective_uid];
        // Root needs no device, and a user needs to be found only once.
        let settled = |uid: &u32| *uid == 0 || users.contains(uid);
        if !owners.iter().all(settled) && has_one(&process, &nodes) {
            users.extend(owners);
        }
    }
    users
}

/// Device nodes whose names have this prefix. Only root can create files in the directory, so the
/// names can be trusted.
fn nodes(directory: &Path, prefix: &str) -> Vec<FileStat> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let named = entries.filter_map(|entry| entry.ok()).filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(prefix))
    });
    let nodes = named.filter_map(|entry| FileStat::at(&entry.path()).ok());
    nodes.take(NODES_MAX).collect()
}

/// Whether a process has one of these devices open, for reading or writing. Devices are compared by identity, because any
/// user can create a file with the same name.
fn has_one(process: &Process, nodes: &[FileStat]) -> bool {
    let numbers = process.descriptors(DESCRIPTORS_MAX).unwrap_or_default();
    numbers.into_iter().any(|number| {
        let file = process.descriptor(number).ok();
        file.is_some_and(|file| {
            nodes.iter().any(|node| node.same_device(&file))
                && process.has_access(number, &file).unwrap_or(false)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_found_by_its_whole_name() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("group");
        let text = "root:x:0:\nlimelights:x:7:\n# limelight:x:8:\nlimelight:x:990:ada\nbad:x\n";
        fs::write(&path, text).unwrap();
        assert_eq!(group_id(&path, "limelight"), Some(990));
        assert_eq!(group_id(&path, "lime"), None);
        assert_eq!(group_id(&path, "bad"), None);
        assert_eq!(group_id(&temp.path().join("absent"), "limelight"), None);
    }

    #[test]
    fn without_a_group_no_user_is_a_member() {
        let absent = Path::new("/nonexistent");
        for wanted in [AccessGroup::Off, AccessGroup::Name("limelight".into())] {
            let access = Access::new(absent, &wanted);
            assert!(!access.includes([0, 990, u32::MAX]), "{wanted:?}");
        }
        let access = Access::new(absent, &AccessGroup::Id(990));
        assert!(access.includes([5, 990]) && !access.includes([5]));
        assert_eq!(access.group(), Some("990"));
    }
}
